"""The embedded sample: prose by six authors to pre-train on, and "who wrote this passage?" to fine-tune on.

One split serves both. The chapters that give the development passages are held out of pre-training too, so
that a score says something about text that no part of the training has seen. Sources and licence:
sample/SOURCE.md.
"""

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from albert.runtime.durable_files import write_text
from albert.runtime.randomness import stream
from albert.text.sentences import split_sentences

AUTHORS = (
    "Arthur Conan Doyle",
    "Charles Darwin",
    "Charles Dickens",
    "Herman Melville",
    "Jane Austen",
    "Mark Twain",
)

HELD_OUT_SHARE = 1 / 6  # of each author's characters, at least
PASSAGE_WORDS = range(60, 101)
TRAIN_PASSAGES_PER_AUTHOR = 500
DEV_PASSAGES_PER_AUTHOR = 100


@dataclass(frozen=True)
class Chapter:
    """A chapter or a story, whole; its text has one paragraph a line."""

    id: str
    author: str
    title: str
    text: str


@dataclass(frozen=True)
class ChapterSplit:
    """Every chapter of the sample, once: in ``train`` or in ``held_out``."""

    train: tuple[Chapter, ...]
    held_out: tuple[Chapter, ...]


@dataclass(frozen=True)
class Passage:
    """Some consecutive sentences of one chapter, and who wrote them."""

    text: str
    author: str
    chapter: str


@dataclass(frozen=True)
class LabelledPassages:
    """The authorship task: as many passages of each author; ``train`` and ``dev`` share no chapter.

    ``left_over`` counts the passages that were cut and not taken, to keep the classes equal.
    """

    train: tuple[Passage, ...]
    dev: tuple[Passage, ...]
    left_over: int


@cache
def load_chapters() -> tuple[Chapter, ...]:
    """All chapters of the sample, author by author and book by book."""
    packed = (files("albert.experiments") / "sample" / "prose.jsonl.gz").read_bytes()
    return tuple(Chapter(**json.loads(line)) for line in gzip.decompress(packed).splitlines())


@cache
def split_chapters() -> ChapterSplit:
    """Of each author, chapters drawn at random until a sixth of the text is held out; always the same."""
    held_out: set[str] = set()
    for number, author in enumerate(AUTHORS):
        own = [chapter for chapter in load_chapters() if chapter.author == author]
        wanted = HELD_OUT_SHARE * sum(len(chapter.text) for chapter in own)
        for index in stream("sample chapters", 0, number).permutation(len(own)):
            if wanted <= 0:
                break
            held_out.add(own[index].id)
            wanted -= len(own[index].text)
    return ChapterSplit(
        train=tuple(chapter for chapter in load_chapters() if chapter.id not in held_out),
        held_out=tuple(chapter for chapter in load_chapters() if chapter.id in held_out),
    )


@cache
def labelled_passages() -> LabelledPassages:
    """The authorship task, 3,000 passages to train on and 600 to score on, authors taking turns."""
    split = split_chapters()
    train, unused_train = _balanced(split.train, TRAIN_PASSAGES_PER_AUTHOR)
    dev, unused_dev = _balanced(split.held_out, DEV_PASSAGES_PER_AUTHOR)
    return LabelledPassages(train=train, dev=dev, left_over=unused_train + unused_dev)


def cut_passages(chapter: Chapter) -> list[Passage]:
    """The chapter's passages of 60 to 100 words, in order: whole sentences, no two passages sharing one.

    A sentence that would make a passage too long begins the next one; what was gathered before is left out.
    """
    passages: list[Passage] = []
    gathered: list[str] = []
    words = 0
    for sentence in split_sentences(chapter.text):
        length = len(sentence.split())
        if words + length >= PASSAGE_WORDS.stop:
            gathered, words = [], 0
        gathered.append(sentence)
        words += length
        if words in PASSAGE_WORDS:
            passages.append(Passage(" ".join(gathered), chapter.author, chapter.id))
        if words >= PASSAGE_WORDS.start:
            gathered, words = [], 0
    return passages


def write_text_corpus(path: Path, chapters: Sequence[Chapter]) -> None:
    """Write chapters as a corpus: JSON lines, one document a line in its field ``text``.

    Raises:
        WriteFailed: the disk is full or failing; nothing is left behind.
    """
    write_text(path, _json_lines({"id": chapter.id, "text": chapter.text} for chapter in chapters))


def write_passages(path: Path, passages: Sequence[Passage]) -> None:
    """Write passages as a task's file: JSON lines with the fields ``text`` and ``label`` (the author's name).

    Raises:
        WriteFailed: the disk is full or failing; nothing is left behind.
    """
    write_text(path, _json_lines({"text": passage.text, "label": passage.author} for passage in passages))


def _balanced(chapters: Sequence[Chapter], per_author: int) -> tuple[tuple[Passage, ...], int]:
    """``per_author`` passages of each author, spread evenly over the chapters; and how many were left."""
    columns: list[list[Passage]] = []
    unused = 0
    for author in AUTHORS:
        cut = [passage for chapter in chapters if chapter.author == author for passage in cut_passages(chapter)]
        columns.append([cut[place * len(cut) // per_author] for place in range(per_author)])
        unused += len(cut) - per_author
    return tuple(passage for turn in zip(*columns, strict=True) for passage in turn), unused


def _json_lines(records: Iterable[Mapping[str, str]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
