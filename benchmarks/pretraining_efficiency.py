"""What pre-training yields for its tokens and its time: held-out loss of ours and of transformers' Trainer.

The same text, tokenizer, architecture, precision, threads, tokens and tokens of an update; each with a schedule that
ends with them. Ours takes samples, masks, positions and objectives of its recipe, two objectives where it has SOP.
Trainer has `AlbertForMaskedLM`, its own initial weights, blocks and collator (see pretraining_learners.py); "trainer,
our start" has our initial weights, which tells how much of a difference is theirs. All take turns, a slice of tokens
each, within one process. At each pause all are asked the same: `whole words` are samples of ours with the masks of the
recipe, `tokens` are blocks as Trainer learns them, masked by its collator; both of documents that nobody has read.
Trainer needs `accelerate`.

    python benchmarks/pretraining_efficiency.py --data corpus --recipe runs/mine/recipe.json --tokens 8000000
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from harness import append_rows
from matplotlib.figure import Figure
from pretraining_learners import CPU, Blocks, Contest, Point, Progressed, System, collator
from rich.console import Console
from rich.table import Table
from transformers.utils import logging

from albert.cli.options import parse
from albert.experiments.curves import COLORS, MARKERS
from albert.model.albert import AlbertForPreTraining
from albert.pretraining.batches import PretrainingBatch, collate, pretraining_objective
from albert.pretraining.evaluation import EVALUATION_SEED, MASKED_TOKENS, HeldOutSamples
from albert.pretraining.recipe import PretrainingRecipe, find_recipe
from albert.pretraining.sampling import PretrainingSamples, Sample
from albert.pretraining.segments import NO_LABEL
from albert.runtime.devices import autocast, default_precision
from albert.runtime.environment import Precision
from albert.runtime.errors import UsageError
from albert.runtime.progress import progress
from albert.text.shards import TokenCorpus

FIGURES = ("whole_words_loss", "whole_words_accuracy", "tokens_loss", "tokens_accuracy")
COLUMNS = ("shape", "batch", "precision", "system", "step", "million_tokens", "seconds", *FIGURES)
SAMPLED_STEPS = 64
"""Steps of ours that tell how many tokens a step has."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare pre-training with transformers' Trainer, by tokens and by time.

    Example: python benchmarks/pretraining_efficiency.py --data corpus --tokens 8000000 --slices 16
    """

    data: Path
    """What `albert prepare` wrote."""
    recipe: str = "two-cores"
    """A recipe's name, or the recipe.json of a run; its schedule is shortened to the tokens."""
    tokens: int = 4_000_000
    """Of every learner."""
    slices: int = 16
    """Pauses at which all are measured."""
    systems: tuple[System, ...] = ("albert", "trainer", "trainer, our start")
    learning_rate: float | None = None
    """Of Trainer; the recipe's when it has AdamW."""
    whole_words: bool = False
    """Let Trainer's collator mask whole words."""
    sequences: int = 1000
    """Most held-out sequences of each kind."""
    output: Path = Path("results/benchmark-pretraining-efficiency.csv")
    """The rows; the figure lies beside them."""


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "pretraining_efficiency.py")
    if "albert" not in asked.systems:
        raise UsageError("--systems", "lack albert, which gives the others their turns")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    corpus = TokenCorpus.open(asked.data)
    contest = contest_of(asked, corpus)
    with progress("Learning", asked.tokens * len(asked.systems), "tokens") as bar:
        told = Progressed(HeldOut(corpus, contest.recipe, asked.sequences).measure, bar.advance)
        contest.run(asked.systems, told)
    _report(asked, contest.recipe, told.points)


def contest_of(asked: Benchmark, corpus: TokenCorpus) -> Contest:
    """The recipe with as many updates as the tokens need, and how many Trainer needs for as many.

    Raises:
        UsageError: no learning rate is known for Trainer's AdamW.
    """
    recipe = find_recipe(asked.recipe)
    rate = asked.learning_rate
    if rate is None and recipe.optimizer.kind != "adamw":
        raise UsageError("--learning-rate", f"the recipe has {recipe.optimizer.kind}, Trainer AdamW", "give Trainer's")
    precision = default_precision(CPU) if recipe.precision == "auto" else recipe.precision
    recipe = replace(recipe, model=replace(recipe.model, vocab_size=corpus.vocab_size), precision=precision)
    samples = PretrainingSamples(corpus, recipe.sequences, recipe.masking, recipe.seed)
    first = samples.batch(np.arange(SAMPLED_STEPS * recipe.batch_size))
    of_an_update = int(first.lengths.sum()) / SAMPLED_STEPS
    steps = max(asked.slices, round(asked.tokens / of_an_update))
    their_batch_size = max(1, round(of_an_update / recipe.sequences.max_length))
    warmup = round(steps * recipe.schedule.warmup_steps / recipe.schedule.total_steps)
    return Contest(
        recipe=replace(recipe, schedule=replace(recipe.schedule, total_steps=steps, warmup_steps=warmup)),
        corpus=corpus,
        their_batch_size=their_batch_size,
        their_steps=max(asked.slices, round(asked.tokens / their_batch_size / recipe.sequences.max_length)),
        their_rate=recipe.optimizer.learning_rate if rate is None else rate,
        slices=asked.slices,
        whole_words=asked.whole_words,
    )


class HeldOut:
    """Two sets of held-out sequences, the same for all."""

    def __init__(self, corpus: TokenCorpus, recipe: PretrainingRecipe, limit: int) -> None:
        held_out = TokenCorpus.open(corpus.directory, "held_out", verify=False)
        plain = replace(recipe.sequences, objective="none", neighbours_probability=0.0)
        ours = HeldOutSamples(PretrainingSamples(held_out, plain, recipe.masking, EVALUATION_SEED), limit)
        blocks, mask = Blocks(held_out, recipe.sequences.max_length), collator(corpus, EVALUATION_SEED)
        theirs = mask([blocks[number] for number in range(min(limit, len(blocks)))])
        rows = [
            _as_sample(ids, labels)
            for ids, labels in zip(theirs["input_ids"].numpy(), theirs["labels"].numpy(), strict=True)
        ]
        batches = [collate(rows[begin : begin + 32]) for begin in range(0, len(rows), 32)]
        self._sets: dict[str, Sequence[PretrainingBatch]] = {"whole_words": ours.batches, "tokens": batches}
        self._precision: Precision = recipe.settled_precision

    def measure(self, model: AlbertForPreTraining) -> dict[str, float]:
        """Mean loss in nats and accuracy of masked tokens, of each set."""
        found = {}
        model.eval()
        for name, batches in self._sets.items():
            loss = correct = 0.0
            with torch.inference_mode(), autocast(CPU, self._precision):
                for batch in batches:
                    sums = pretraining_objective(model, batch)
                    loss += float(sums.losses[MASKED_TOKENS])
                    correct += float(sums.correct[MASKED_TOKENS])
            count = sum(batch.counts[MASKED_TOKENS] for batch in batches)
            found |= {f"{name}_loss": loss / count, f"{name}_accuracy": correct / count}
        return found


def _as_sample(ids: np.ndarray, labels: np.ndarray) -> Sample:
    masked = np.flatnonzero(labels != NO_LABEL)
    return Sample(ids, np.zeros_like(ids), masked, labels[masked], NO_LABEL)


def _report(asked: Benchmark, recipe: PretrainingRecipe, points: Sequence[Point]) -> None:
    """Print the ends, append every point, and draw them."""
    model = recipe.model
    about = {
        "shape": f"V{model.vocab_size} H{model.hidden_size} L{model.num_hidden_layers} "
        f"length {recipe.sequences.max_length}",
        "batch": recipe.batch_size,
        "precision": recipe.precision,
    }
    rows = [
        about
        | {"system": point.system, "step": point.step, "million_tokens": f"{point.tokens / 1e6:.3f}"}
        | {"seconds": f"{point.seconds:.3f}", **{name: f"{point.figures[name]:.4f}" for name in FIGURES}}
        for point in points
    ]
    append_rows(asked.output, COLUMNS, rows)
    picture = asked.output.with_suffix(".png")
    draw(points, picture, f"{about['shape']}, batch {about['batch']}, {about['precision']}")
    last = {point.system: point for point in points}
    table = Table("", *last, box=None)
    table.add_row("tokens a second", *(f"{end.tokens / end.seconds:,.0f}" for end in last.values()))
    for name in FIGURES:
        table.add_row(name.replace("_", " "), *(f"{end.figures[name]:.3f}" for end in last.values()))
    ours = [point for point in points if point.system == "albert"]
    for what in ("tokens", "seconds"):
        told = []
        for end in last.values():
            needed = reached(ours, "whole_words_loss", end.figures["whole_words_loss"], what)
            told.append(f"{needed / getattr(end, what):.2f}" if math.isfinite(needed) else "not reached")
        table.add_row(f"share of its {what} in which albert has its loss", *told)
    console = Console(soft_wrap=True, highlight=False)
    console.print(table)
    console.print(f"{asked.output} and {picture}", markup=False)


def reached(points: Sequence[Point], figure: str, value: float, what: str) -> float:
    """How many tokens or seconds it took to come down to a value, between pauses by a straight line; inf: never."""
    before = None
    for point in points:
        if point.figures[figure] <= value:
            if before is None:
                return float(getattr(point, what))
            part = (before.figures[figure] - value) / (before.figures[figure] - point.figures[figure])
            return getattr(before, what) + part * (getattr(point, what) - getattr(before, what))
        before = point
    return math.inf


def draw(points: Sequence[Point], picture: Path, title: str) -> None:
    """Both losses, against tokens on the left and against time on the right, as a PNG."""
    figure = Figure(figsize=(10.5, 7.2), layout="constrained")
    figure.suptitle(f"Held-out loss of masked tokens: {title}", x=0.01, ha="left", fontsize=12)
    panels = figure.subplots(2, 2, sharey="row")
    kinds = (("whole_words_loss", "whole words masked"), ("tokens_loss", "single tokens masked"))
    scales = (("tokens", 1e6, "million tokens"), ("seconds", 60.0, "minutes"))
    for line, (name, kind) in zip(panels, kinds, strict=True):
        for axes, (what, scale, label) in zip(line, scales, strict=True):
            for number, system in enumerate(dict.fromkeys(point.system for point in points)):
                own = [point for point in points if point.system == system]
                across = [getattr(point, what) / scale for point in own]
                color, marker = COLORS[number], MARKERS[number]
                axes.plot(across, [p.figures[name] for p in own], color=color, marker=marker, ms=4, label=system)
            axes.set(xlabel=label, xlim=(0, None))
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
        line[0].set_ylabel(f"{kind}, nats")
    panels[0][0].legend(frameon=False)
    figure.savefig(picture, dpi=130)


if __name__ == "__main__":
    main(sys.argv[1:])
