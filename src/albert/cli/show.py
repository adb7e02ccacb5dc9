"""`albert show`: training samples of a prepared corpus, decoded, with what was masked and asked; and their counts."""

import numpy as np
from rich.table import Table

from albert.cli.console import open_console
from albert.cli.rendered_samples import LEGEND, RenderedSamples
from albert.cli.show_options import Show
from albert.pretraining.sample_statistics import Figure, measure, tokens_cut
from albert.pretraining.samples import PretrainingSamples
from albert.runtime.errors import UsageError
from albert.text.preparation.shards import TokenCorpus

NARROWEST, WIDEST = 60, 100


def run(asked: Show) -> int:
    """Run `albert show`."""
    for name in ("number", "first", "epoch", "count"):
        if getattr(asked, name) < 0:
            raise UsageError(f"--{name}", f"is {getattr(asked, name)}, at least 0 is needed")
    corpus = TokenCorpus.open(asked.corpus, asked.split, verify=False)
    samples = PretrainingSamples(corpus, asked.sequences, asked.masking, asked.seed)
    if asked.first >= samples.per_epoch:
        raise UsageError("--first", f"is {asked.first}, the epoch has {samples.per_epoch:,} samples")
    begin = asked.epoch * samples.per_epoch + asked.first
    shown, counted = (min(some, samples.per_epoch - asked.first) for some in (asked.number, asked.count))
    console = open_console(soft_wrap=False)
    console.width = min(max(console.width, NARROWEST), WIDEST)
    console.print(
        f"{asked.corpus}: {corpus.n_documents:,} {asked.split} documents, {corpus.n_tokens:,} tokens, "
        f"{samples.per_epoch:,} samples an epoch; epoch {asked.epoch}, seed {asked.seed}",
        markup=False,
        soft_wrap=True,
    )
    console.print(LEGEND)
    for sample in RenderedSamples(samples, np.arange(begin, begin + shown)):
        console.print()
        console.print(sample)
    if counted:
        console.print()
        figures = measure(samples, np.arange(begin, begin + counted))
        if asked.sequences.keep_pairs:
            figures.append(tokens_cut([corpus], asked.sequences, asked.seed))
        console.print(counts(figures, counted))
    return 0


def counts(figures: list[Figure], number: int) -> Table:
    """What was counted beside what is expected; a score is in standard deviations."""
    table = Table(title=f"{number:,} samples, counted", title_justify="left", box=None, padding=(0, 2, 0, 0))
    table.add_column("")
    for heading in ("seen", "expected", "score"):
        table.add_column(heading, justify="right")
    for figure in figures:
        table.add_row(figure.name, *(_cell(value) for value in (figure.seen, figure.expected)), _score(figure))
    return table


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if value > 2 else f"{value:.4f}"


def _score(figure: Figure) -> str:
    if figure.expected is None:
        return ""
    if figure.deviation is None:
        return "about"
    if figure.deviation == 0:
        return "exact" if figure.score == 0 else "[bold red]differs[/bold red]"
    score = figure.score or 0.0
    return f"{score:+.1f}" if abs(score) < 4 else f"[bold red]{score:+.1f}[/bold red]"
