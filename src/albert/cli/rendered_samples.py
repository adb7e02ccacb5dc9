"""Training samples as text for people: where they come from, what was masked, and what the model sees in its place."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from rich.console import Group
from rich.padding import Padding
from rich.rule import Rule
from rich.text import Text

from albert.pretraining.samples import PretrainingSamples
from albert.pretraining.sentence_order import IN_ORDER, NO_LABEL, SentenceObjective
from albert.text.preparation.shards import TokenCorpus
from albert.text.tokenizer import Tokenizer
from albert.text.unigram.tokenizer_files import BLANK
from albert.text.wordpiece.wordpiece_matching import CONTINUES
from albert.text.wordpiece.wordpiece_tokenizer import WordPieceTokenizer

THERE, MASK, STRANGER, KEPT, MARK = "bold green", "cyan", "bold red", "yellow", "dim"
SENTENCES = " ¦"

LEGEND = Text.assemble(
    *(("{", MARK), ("what was there", THERE), (" → ", MARK), "what the model sees", ("}", MARK), ": "),
    *(("[MASK]", MASK), ", a ", ("random token", STRANGER), " or ", ("the token itself", KEPT)),
    f";{SENTENCES} between sentences",
)


@dataclass(frozen=True)
class Origin:
    """Where a segment lies in its corpus.

    Attributes:
        begin, end: its tokens, in the run of the whole corpus.
        sentence_edges: where sentences begin inside it.
        name: the document and the sentences, in words.
    """

    begin: int
    end: int
    sentence_edges: tuple[int, ...]
    name: str

    @classmethod
    def of(cls, corpus: TokenCorpus, begin: int, length: int) -> "Origin":
        """The origin of a run of tokens."""
        shard, end = int(np.searchsorted(corpus.shard_starts, begin, side="right")) - 1, begin + length
        lengths = corpus.lengths(shard)
        sentences = int(corpus.shard_starts[shard]) + np.concatenate(
            ([0], np.cumsum(lengths.sentences, dtype=np.int64))
        )
        documents = np.concatenate(([0], np.cumsum(lengths.documents, dtype=np.int64)))
        first, last = int(np.searchsorted(sentences, begin, side="right")) - 1, int(np.searchsorted(sentences, end))
        document = int(np.searchsorted(documents, first, side="right")) - 1
        numbers = (first - int(documents[document]) + 1, last - int(documents[document]))
        words = f"sentence {numbers[0]}" if numbers[0] == numbers[1] else f"sentences {numbers[0]}–{numbers[1]}"
        whole = (sentences[first] == begin, sentences[last] == end)
        cut = [place for place, kept in zip(("front", "end"), whole, strict=True) if not kept]
        name = f"{words} of {lengths.documents[document]}, document {document + 1} of shard"
        name += f" {corpus.description.shards[corpus.split][shard].name}"
        return cls(
            begin,
            end,
            tuple(sentences[first + 1 : last].tolist()),
            name + (f", cut at its {' and its '.join(cut)}" if cut else ""),
        )

    def __str__(self) -> str:
        return self.name


class RenderedSamples:
    """Shows samples one by one.

    Args:
        samples: where they come from.
        numbers: int64, which.
    """

    def __init__(self, samples: PretrainingSamples, numbers: np.ndarray) -> None:
        self._corpus, self._tokenizer = samples.corpus, samples.corpus.tokenizer()
        self._objective: SentenceObjective = samples.recipe.objective
        self._mask_id = samples.masking.mask_id
        self._numbers, self._made = numbers, samples.explained(numbers)

    def __iter__(self) -> Iterator[Group]:
        ends = np.cumsum(self._made.samples.lengths)
        for i, end in enumerate(ends.tolist()):
            yield self._sample(i, end - int(self._made.samples.lengths[i]), end)

    def _sample(self, i: int, begin: int, end: int) -> Group:
        samples, segments, spans, _ = self._made
        masked = int(np.count_nonzero((samples.masked_positions >= begin) & (samples.masked_positions < end)))
        words = spans.words[(spans.begin >= begin) & (spans.begin < end)].tolist()
        label = int(samples.order_labels[i])
        facts = Text.assemble(
            f"{end - begin} tokens, {masked} masked ({masked / (end - begin):.1%}) in {len(words)} spans of ",
            f"{' '.join(map(str, words))} words · " if words else "no words · ",
            (self._order(label), "bold magenta" if label not in (IN_ORDER, NO_LABEL) else "bold"),
        )
        parts: list[Rule | Text | Padding] = [Rule(f"sample {self._numbers[i]:,}", align="left", characters="─"), facts]
        place = begin + 1
        for name, run in (("[CLS]", segments.first), ("[SEP]", segments.second)):
            length = int(run.length[i])
            if length:
                origin = Origin.of(self._corpus, int(run.begin[i]), length)
                parts.append(Text.assemble((name, MARK), f" {origin}, {length} tokens"))
                parts.append(Padding(self._segment(origin, place), (0, 0, 0, 6)))
            place += length + 1
        parts.append(Text("[SEP]", style=MARK))
        return Group(*parts)

    def _order(self, label: int) -> str:
        if label == NO_LABEL:
            return "nothing is asked of the order"
        if label == IN_ORDER:
            return "label 0: in order"
        return {"sop": "label 1: swapped", "nsp": "label 1: the second is from elsewhere"}.get(
            self._objective, "label 1: swapped or from elsewhere"
        )

    def _segment(self, origin: Origin, place: int) -> Text:
        """A segment that begins at a place of the run of all samples."""
        samples, _, spans, _ = self._made
        original = self._corpus.read(origin.begin, origin.end).tolist()
        breaks = {place + edge - origin.begin for edge in origin.sentence_edges}
        span_ends = dict(zip(spans.begin.tolist(), spans.end.tolist(), strict=True))
        text, token, last = Text(), place, place + len(original)
        while token < last:
            if token in breaks:
                text.append(SENTENCES, style=MARK)
            stop = span_ends.get(token, token + 1)
            there = original[token - place : stop - place]
            if token in span_ends:
                text.append_text(self._span(there, samples.token_ids[token:stop].tolist()))
            else:
                text.append(self._written(there))
            token = stop
        return text[1:] if text.plain.startswith(" ") else text

    def _span(self, there: list[int], seen: list[int]) -> Text:
        was = self._written(there)
        blank = " " * (len(was) - len(was.lstrip(" ")))
        text = Text.assemble(blank, ("{", MARK), (was.strip(" ") or BLANK, THERE), (" →", MARK))
        kinds = [
            MASK if now == self._mask_id else KEPT if now == before else STRANGER
            for before, now in zip(there, seen, strict=True)
        ]
        for kind, group in groupby(zip(kinds, seen, strict=True), key=lambda pair: pair[0]):
            ids = [now for _, now in group]
            times = f"×{len(ids)}" if len(ids) > 1 else ""
            text.append(f" [MASK]{times}" if kind == MASK else f" {self._written(ids).strip(' ') or BLANK}", style=kind)
        text.append("}", style=MARK)
        return text

    def _written(self, ids: list[int]) -> str:
        return "".join(written(self._tokenizer, token) for token in ids)


def written(tokenizer: Tokenizer, token: int) -> str:
    """A piece as it stands in a text, with the blank before it."""
    piece = tokenizer.piece(token)
    if isinstance(tokenizer, WordPieceTokenizer):
        return piece.removeprefix(CONTINUES) if piece.startswith(CONTINUES) else f" {piece}"
    return piece.replace(BLANK, " ")
