"""Sums over the steps since the journal's last line."""

from dataclasses import dataclass, field

from albert.training.update import UpdateFigures


@dataclass
class Window:
    """Adds up updates that were taken, and becomes one line of the journal.

    It is part of the training state, so that a run resumed in the middle of a window writes the same line.
    """

    steps: int = 0
    tokens: int = 0
    seconds: float = 0.0
    flops: float = 0.0
    """Of the first rank."""
    gradient_norm: float = 0.0
    losses: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    correct: dict[str, float] = field(default_factory=dict)

    def add(self, figures: UpdateFigures, seconds: float, flops: float = 0.0) -> None:
        """Add one update."""
        self.steps += 1
        self.tokens += figures.tokens
        self.seconds += seconds
        self.flops += flops
        self.gradient_norm += figures.gradient_norm
        for name, count in figures.counts.items():
            self.counts[name] = self.counts.get(name, 0) + count
        for mine, more in ((self.losses, figures.losses), (self.correct, figures.correct)):
            for name, value in more.items():
                mine[name] = mine.get(name, 0.0) + value

    def line(self) -> dict[str, float]:
        """Means over the window: the loss, each term's loss and accuracy, gradient norm, tokens per second."""
        means = {f"{name}_loss": self.losses[name] / n for name, n in self.counts.items() if n}
        accuracies = {
            f"{name}_accuracy": n / self.counts[name] for name, n in self.correct.items() if self.counts[name]
        }
        return {
            "loss": sum(means.values()),
            **means,
            **accuracies,
            "gradient_norm": self.gradient_norm / self.steps,
            "tokens_per_second": self.tokens / self.seconds,
        }

    def note(self) -> str:
        """The line for people: "loss 4.213, masked tokens 31.8%, 9,120 tokens/s"."""
        line = self.line()
        accuracies = [
            f"{name.removesuffix('_accuracy').replace('_', ' ')} {value:.1%}"
            for name, value in line.items()
            if name.endswith("_accuracy")
        ]
        return ", ".join([f"loss {line['loss']:.3f}", *accuracies[:1], f"{line['tokens_per_second']:,.0f} tokens/s"])
