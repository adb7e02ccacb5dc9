"""`albert show`: training samples as text, and counts of many."""

from collections.abc import Collection, Iterator
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
from rich.console import Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from albert.api.options import GROUP
from albert.cli.main import imports
from albert.cli.options import command
from albert.cli.render import indented, open_console, table
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.pretraining.segments import IN_ORDER, NO_LABEL, SentenceObjective
from albert.runtime.errors import UsageError
from albert.text.shards import TokenCorpus, read_description
from albert.text.tokenizer import BLANK, Tokenizer

if TYPE_CHECKING:
    from albert.pretraining.statistics import Figure

SEQUENCES = SequenceRecipe(max_length=128)
"""The default; a sample of the paper's 512 tokens would fill a page."""
MASKING = MaskingRecipe()

NARROWEST = 60
WIDEST = 100
"""Columns of the output."""


def show(
    corpus: Path,
    *,
    number: int = 3,
    first: int = 0,
    epoch: int = 0,
    seed: int = 0,
    split: Literal["train", "held_out"] = "train",
    count: int = 2000,
    sequences: Annotated[SequenceRecipe, GROUP] = SEQUENCES,
    masking: Annotated[MaskingRecipe, GROUP] = MASKING,
) -> None:
    """Show training samples from a prepared corpus: a few as text, and counts of many.

    Each sample is the one that a run with this seed and these settings sees at this position of the epoch.

    Example: albert show corpus --number 2 --objective sop --max-length 128

    Args:
        corpus: A prepared corpus.
        number: Number of samples to show.
        first: Position of the first one in the order of training.
        epoch: The epoch.
        seed: Seed of the run.
        split: The part of the corpus.
        count: Number of samples to count, from --first on.
    """
    read_description(corpus)
    for option, value in (("--number", number), ("--first", first), ("--epoch", epoch), ("--count", count)):
        if value < 0:
            raise UsageError(option, f"is {value}, at least 0 is needed")
    opened = TokenCorpus.open(corpus, split, verify=False)
    samples = PretrainingSamples(opened, sequences, masking, seed)
    if first >= samples.per_epoch:
        raise UsageError("--first", f"is {first}, the epoch has {samples.per_epoch:,} samples")
    begin = epoch * samples.per_epoch + first
    shown = min(number, samples.per_epoch - first)
    counted = min(count, samples.per_epoch - first)

    console = open_console(soft_wrap=False)
    console.width = min(max(console.width, NARROWEST), WIDEST)
    console.print(
        f"{corpus}: {opened.n_documents:,} {split} documents, {opened.n_tokens:,} tokens, "
        f"{samples.per_epoch:,} samples an epoch; epoch {epoch}, seed {seed}",
        soft_wrap=True,
    )
    console.print(indented(LEGEND, by=0))
    for sample in RenderedSamples(samples, np.arange(begin, begin + shown)):
        console.print()
        console.print(sample)
    if counted == 0:
        return

    with imports():
        from albert.pretraining.statistics import measure, tokens_cut

    console.print()
    figures = measure(samples, np.arange(begin, begin + counted))
    if sequences.keep_pairs:
        figures.append(tokens_cut([opened], sequences, seed))
    console.print(counts(figures, counted))


# --------------------------------------------------------------------------------------------------------------------
# Training samples as text: their source, the original tokens, and the tokens that the model sees.

ORIGINAL = "bold green"
MASK = "cyan"
RANDOM = "bold red"
UNCHANGED = "yellow"
MARK = "dim"
SENTENCE_BREAK = " ¦"

LEGEND = Text.assemble(
    *(("{", MARK), ("original tokens", ORIGINAL), (" → ", MARK), "what the model sees", ("}", MARK), ": "),
    *(("[MASK]", MASK), ", a ", ("random token", RANDOM), " or ", ("the token itself", UNCHANGED)),
    f";{SENTENCE_BREAK} between sentences",
)


def origin_of(corpus: TokenCorpus, begin: int, length: int) -> tuple[str, list[int]]:
    """The document and sentences of a run of tokens as text, and the positions where sentences begin in it."""
    shard = int(np.searchsorted(corpus.shard_starts, begin, side="right")) - 1
    end = begin + length
    lengths = corpus.lengths(shard)
    starts, documents = (
        np.concatenate(([0], np.cumsum(part, dtype=np.int64))) for part in (lengths.sentences, lengths.documents)
    )
    sentences = int(corpus.shard_starts[shard]) + starts
    first = int(np.searchsorted(sentences, begin, side="right")) - 1
    last = int(np.searchsorted(sentences, end))
    document = int(np.searchsorted(documents, first, side="right")) - 1
    numbers = (first - int(documents[document]) + 1, last - int(documents[document]))
    words = f"sentence {numbers[0]}" if numbers[0] == numbers[1] else f"sentences {numbers[0]}–{numbers[1]}"
    cuts = {"front": sentences[first] != begin, "end": sentences[last] != end}
    cut = " and its ".join(side for side, is_cut in cuts.items() if is_cut)
    name = f"{words} of {lengths.documents[document]}, document {document + 1} of shard"
    name += f" {corpus.description.shards[corpus.split][shard].name}" + (f", cut at its {cut}" if cut else "")
    return name, sentences[first + 1 : last].tolist()


class RenderedSamples:
    """Training samples as renderable groups."""

    def __init__(self, samples: PretrainingSamples, numbers: np.ndarray) -> None:
        self._corpus = samples.corpus
        self._tokenizer = samples.corpus.tokenizer()
        self._objective: SentenceObjective = samples.recipe.objective
        self._mask_id = samples.masking.mask_id
        self._numbers = numbers
        self._details = samples.details(numbers)

    def __iter__(self) -> Iterator[Group]:
        lengths = self._details.samples.lengths
        for i, end in enumerate(np.cumsum(lengths).tolist()):
            yield self._sample(i, end - int(lengths[i]), end)

    def _sample(self, i: int, begin: int, end: int) -> Group:
        samples, segments, spans, _ = self._details
        masked = int(np.count_nonzero((samples.masked_positions >= begin) & (samples.masked_positions < end)))
        words = spans.words[(spans.begin >= begin) & (spans.begin < end)].tolist()
        label = int(samples.order_labels[i])
        facts = Text.assemble(
            f"{end - begin} tokens, {masked} masked ({masked / (end - begin):.1%}) in {len(words)} spans of ",
            f"{' '.join(map(str, words))} words · " if words else "no words · ",
            (self._order(label), "bold magenta" if label not in (IN_ORDER, NO_LABEL) else "bold"),
        )
        parts: list[Rule | Text | Table] = [
            Rule(f"sample {self._numbers[i]:,}", align="left", characters="─"),
            indented(facts, by=0),
        ]
        position = begin + 1
        for name, run in (("[CLS]", segments.first), ("[SEP]", segments.second)):
            length = int(run.length[i])
            if length:
                first = int(run.begin[i])
                origin, sentences = origin_of(self._corpus, first, length)
                breaks = {position + start - first for start in sentences}
                tokens = self._corpus.read(first, first + length)
                parts.append(indented(Text.assemble((name, MARK), f" {origin}, {length} tokens"), by=0))
                parts.append(indented(self._segment(tokens, position, breaks), by=6))
            position += length + 1
        parts.append(Text("[SEP]", style=MARK))
        return Group(*parts)

    def _order(self, label: int) -> str:
        swapped = {"sop": "swapped", "nsp": "the second is from elsewhere"}
        meanings = {NO_LABEL: "no order label", IN_ORDER: "label 0: in order"}
        return meanings.get(label) or f"label 1: {swapped[self._objective]}"

    def _segment(self, tokens: np.ndarray, begin: int, breaks: Collection[int]) -> Text:
        """The text of a segment that begins at a position of all samples, with marks at sentence breaks."""
        samples, _, spans, _ = self._details
        original = tokens.tolist()
        span_ends = dict(zip(spans.begin.tolist(), spans.end.tolist(), strict=True))
        text = Text()
        position = begin
        end = begin + len(original)
        while position < end:
            if position in breaks:
                text.append(SENTENCE_BREAK, style=MARK)
            stop = span_ends.get(position, position + 1)
            ids = original[position - begin : stop - begin]
            if position in span_ends:
                text.append_text(self._span(ids, samples.token_ids[position:stop].tolist()))
            else:
                text.append(self._text(ids))
            position = stop
        return text[1:] if text.plain.startswith(" ") else text

    def _span(self, original: list[int], seen: list[int]) -> Text:
        """A masked span: the original tokens, and those that the model sees."""
        before = self._text(original)
        blank = " " * (len(before) - len(before.lstrip(" ")))
        text = Text.assemble(blank, ("{", MARK), (before.strip(" ") or BLANK, ORIGINAL), (" →", MARK))
        styles = [
            MASK if new == self._mask_id else UNCHANGED if new == old else RANDOM
            for old, new in zip(original, seen, strict=True)
        ]
        for style, group in groupby(zip(styles, seen, strict=True), key=lambda pair: pair[0]):
            ids = [token for _, token in group]
            times = f"×{len(ids)}" if len(ids) > 1 else ""
            text.append(f" [MASK]{times}" if style == MASK else f" {self._text(ids).strip(' ') or BLANK}", style=style)
        text.append("}", style=MARK)
        return text

    def _text(self, ids: list[int]) -> str:
        return "".join(piece_text(self._tokenizer, token) for token in ids)


def piece_text(tokenizer: Tokenizer, token: int) -> str:
    """The text of a piece, with the blank before it."""
    text, begins_word = tokenizer.surface(token)
    return f" {text}" if begins_word else text


def counts(figures: "list[Figure]", number: int) -> Table:
    """Counts beside their expectations; the score is the difference in standard deviations."""
    rows = [(figure.name, _cell(figure.seen), _cell(figure.expected), _score(figure)) for figure in figures]
    return table(f"{number:,} samples, counted", ("", "seen", "expected", "score"), rows)


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if value > 2 else f"{value:.4f}"


def _score(figure: "Figure") -> str | Text:
    if figure.expected is None:
        return ""
    if figure.deviation is None:
        return "about"
    if figure.deviation == 0:
        return "exact" if figure.score == 0 else Text("differs", "bold red")
    score = figure.score or 0.0
    return Text(f"{score:+.1f}", "" if abs(score) < 4 else "bold red")


show_main = command(show, "albert show")
