"""The options of `albert evaluate` about the depth of a model."""

from dataclasses import dataclass
from pathlib import Path

from albert.runtime.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """How deep a model runs, where it is not as deep as it was trained."""

    depth: tuple[int, ...] = ()
    """Layers to apply, in place of as many as the model was trained with. Several make a table of scores and costs."""
    patience: tuple[int, ...] = ()
    """Early exit: an example leaves when so many depths in a row agree with the one before. For models of
    `albert finetune --exits`; each patience is a row of the table, too."""
    curve: Path | None = None
    """Draw that table, score against compute, as a PNG; the figures go beside it as .csv."""
    rounds: int = 1
    """How often each row of that table is timed."""

    @property
    def makes_table(self) -> bool:
        """Whether a model is run in several ways, or its costs are wanted."""
        return len(self.depth) > 1 or bool(self.patience) or self.curve is not None

    @property
    def one_depth(self) -> int | None:
        """The depth that was asked for where there is no table."""
        return next(iter(self.depth), None)

    def check(self, models: tuple[str, ...], **others: Path | None) -> None:
        """Raises UsageError when it contradicts itself, or what else was asked: files that are of one way to run."""
        for name, path in others.items():
            if path is not None:
                raise UsageError(f"--{name}", "is of one way to run a model", "name one --depth and no --patience")
        if len(models) > 1:
            raise UsageError("--model", f"names {len(models)} models, at several depths one is run", "name one")
        if self.rounds < 1:
            raise UsageError("--rounds", f"is {self.rounds}, at least 1 is needed")
