"""What `albert info CORPUS --samples` prints: training samples as text, with their source and their masks."""

from collections.abc import Collection, Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from albert.cli.render import indented, open_console
from albert.pretraining.sampling import PretrainingSamples
from albert.pretraining.segments import IN_ORDER, NO_LABEL
from albert.recipes.architecture import preset_name
from albert.recipes.pretraining import SentenceObjective, find_recipe
from albert.runtime.environment import bundled_model
from albert.runtime.errors import UsageError
from albert.runtime.words import counted
from albert.text.shards import TokenCorpus, read_description
from albert.text.tokenizer import BLANK, Tokenizer
from albert.training.run_folder import RunFolder

NARROWEST = 60
WIDEST = 100
"""Columns of the output."""


def show_samples(name: str, number: int, recipe_name: str, seed: int | None) -> None:
    """Print the first samples that a run with this recipe sees.

    Args:
        name: a prepared corpus.
        number: of samples; an epoch may have fewer.
        recipe_name: a named recipe, or its file.
        seed: of the run; None: the recipe's.
    """
    if number < 1:
        raise UsageError("--samples", f"is {number}, at least 1 is needed")
    recipe = find_recipe(recipe_name)
    if seed is None:
        seed = recipe.seed
    directory = corpus_directory(name)
    corpus = TokenCorpus.open(directory, "train", verify=False)
    samples = PretrainingSamples(corpus, recipe.sequences, recipe.masking, seed)

    console = open_console(soft_wrap=False)
    console.width = min(max(console.width, NARROWEST), WIDEST)
    console.print(
        f"{directory}: {counted(corpus.n_documents, 'documents')}, {counted(corpus.n_tokens, 'tokens')}, "
        f"{samples.per_epoch:,} samples an epoch; recipe {recipe_name}, seed {seed}",
        soft_wrap=True,
    )
    console.print(indented(LEGEND, by=0))
    for sample in RenderedSamples(samples, np.arange(min(number, samples.per_epoch))):
        console.print()
        console.print(sample)


def corpus_directory(name: str) -> Path:
    """The directory of a prepared corpus; raises UsageError for another thing that `albert info` describes."""
    path = Path(name)
    kind = None
    if path.exists():
        run = RunFolder(path)
        if (path / "config.json").is_file():
            kind = "model"
        elif run.model_path.is_dir() or run.recipe_path.is_file():
            kind = "run"
    elif preset_name(name) is not None:
        kind = "preset"
    elif bundled_model(name) is not None:
        kind = "model"
    if kind is not None:
        raise UsageError("--samples", f"is for a corpus; {name} is a {kind}", "name what albert prepare wrote")
    read_description(path)
    return path


# --------------------------------------------------------------------------------------------------------------------
# A sample as text: its source, the original tokens, and the tokens that the model sees.

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
