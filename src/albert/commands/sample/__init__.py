"""The embedded sample: prose by six authors for pre-training, and the task "who wrote this passage?" for fine-tuning.

Both use the same split: chapters of development passages are held out of pre-training too, so that scores are on text
that no training has seen. Sources and licence: SOURCE.md.
"""

import gzip
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Generic, TypeVar

from albert.runtime.files import write_text
from albert.runtime.random_streams import stream
from albert.text.sentences import split_sentences

AUTHORS = ("Arthur Conan Doyle", "Charles Darwin", "Charles Dickens", "Herman Melville", "Jane Austen", "Mark Twain")
HELD_OUT_SHARE = 1 / 6  # of each author's characters, at least
PASSAGE_WORDS = range(60, 101)
TRAIN_PASSAGES_PER_AUTHOR = 500
DEV_PASSAGES_PER_AUTHOR = 100
Text = TypeVar("Text")


@dataclass(frozen=True)
class Chapter:
    """A chapter or a story, with one paragraph per line."""

    id: str
    author: str
    title: str
    text: str


@dataclass(frozen=True)
class Passage:
    """Consecutive sentences of one chapter, and their author."""

    text: str
    author: str
    chapter: str


@dataclass(frozen=True)
class Parts(Generic[Text]):
    """Chapters or their passages; no chapter is in both parts."""

    train: tuple[Text, ...]
    dev: tuple[Text, ...]


@cache
def load_chapters() -> tuple[Chapter, ...]:
    """All chapters of the sample, author by author and book by book."""
    packed = (files("albert.commands.sample") / "prose.jsonl.gz").read_bytes()
    return tuple(Chapter(**json.loads(line)) for line in gzip.decompress(packed).splitlines())


@cache
def split_chapters() -> Parts[Chapter]:
    """Hold out random chapters of each author until they are a sixth of the text; always the same."""
    held_out: set[str] = set()
    for number, author in enumerate(AUTHORS):
        chapters = [chapter for chapter in load_chapters() if chapter.author == author]
        remaining = HELD_OUT_SHARE * sum(len(chapter.text) for chapter in chapters)
        for index in stream("sample chapters", 0, number).permutation(len(chapters)):
            if remaining <= 0:
                break
            held_out.add(chapters[index].id)
            remaining -= len(chapters[index].text)
    return Parts(
        train=tuple(chapter for chapter in load_chapters() if chapter.id not in held_out),
        dev=tuple(chapter for chapter in load_chapters() if chapter.id in held_out),
    )


@cache
def labelled_passages() -> Parts[Passage]:
    """The authorship task: 3,000 training and 600 development passages, balanced, authors alternating."""
    split = split_chapters()
    return Parts(_balanced(split.train, TRAIN_PASSAGES_PER_AUTHOR), _balanced(split.dev, DEV_PASSAGES_PER_AUTHOR))


def cut_passages(chapter: Chapter) -> list[Passage]:
    """The chapter's passages of 60 to 100 words, in order: complete sentences, each in at most one passage.

    A sentence that would make a passage too long begins the next one; the sentences before it are left out.
    """
    passages: list[Passage] = []
    sentences = list[str]()
    words = 0
    for sentence in split_sentences(chapter.text):
        length = len(sentence.split())
        if words + length >= PASSAGE_WORDS.stop:
            sentences = []
            words = 0
        sentences.append(sentence)
        words += length
        if words in PASSAGE_WORDS:
            passages.append(Passage(" ".join(sentences), chapter.author, chapter.id))
        if words >= PASSAGE_WORDS.start:
            sentences = []
            words = 0
    return passages


def write_text_corpus(path: Path, chapters: Sequence[Chapter]) -> None:
    """Write chapters as a corpus: JSON lines, one document a line in its field ``text``."""
    lines = (json.dumps({"id": chapter.id, "text": chapter.text}, ensure_ascii=False) for chapter in chapters)
    write_text(path, "".join(line + "\n" for line in lines))


def write_passages(path: Path, passages: Sequence[Passage]) -> None:
    """Write passages as a task's file: JSON lines with the fields ``text`` and ``label`` (the author's name)."""
    lines = (json.dumps({"text": row.text, "label": row.author}, ensure_ascii=False) for row in passages)
    write_text(path, "".join(line + "\n" for line in lines))


def _balanced(chapters: Sequence[Chapter], per_author: int) -> tuple[Passage, ...]:
    """``per_author`` passages of each author, spread evenly over the chapters."""
    columns: list[list[Passage]] = []
    for author in AUTHORS:
        passages = [passage for chapter in chapters if chapter.author == author for passage in cut_passages(chapter)]
        columns.append([passages[i * len(passages) // per_author] for i in range(per_author)])
    return tuple(passage for row in zip(*columns, strict=True) for passage in row)
