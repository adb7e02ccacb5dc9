"""The tokenizer beside transformers' and beside the reference's own steps: every sentence with other ids, and why.

The reference's steps are written here a second time, from its description, over the plain sentencepiece library. What
transformers changed in them are switches: a difference is explained when the fewest switches that are needed give the
other ids exactly, and counted under their names. What no switch explains is counted as such and shown.

transformers opens two ways: from the `tokenizer.json` that its own converter makes of the released model, with the five
special tokens as in the files on the Hub (today's converter adds brackets, hyphens and full stops to them, and then
gives other ids than its own tests expect), and from `spiece.model` alone, as transformers 5 converts it by itself.

    python benchmarks/tokenizer_equality.py --model spiece.model --text corpus/ glue/ squad/
"""

import gzip
import json
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sentencepiece
from harness import append_rows
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from sentencepiece import sentencepiece_model_pb2 as model_format
from transformers import AlbertTokenizer
from transformers.convert_slow_tokenizer import AlbertConverter

from albert.cli.options import parse
from albert.runtime.progress import progress
from albert.text.tokenizer_loading import load_tokenizer

ODD = re.compile(r"[0-9][,.]|``|''|[^\x00-\x7f]")
SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n")
SYMBOLS = re.compile('([()"\\-.–£€])')
TIE = "a tie: the same pieces in another order"
UNEXPLAINED = "unexplained"


@dataclass(frozen=True, kw_only=True)
class Equality:
    """Compare ids on many sentences.

    Example: python benchmarks/tokenizer_equality.py --model spiece.model --text corpus/ glue/
    """

    model: Path
    """The released spiece.model."""
    text: tuple[Path, ...]
    """Files or folders of .json, .jsonl, .tsv or .txt text, gzipped or not: every string of a few words counts."""
    per_file: int = 6000
    """Sentences taken of a file; as many again with numbers, doubled quotes or letters beyond ASCII."""
    examples: int = 2
    """Sentences shown of each class."""
    output: Path | None = None
    """A CSV to append the counts to."""


@dataclass(frozen=True)
class ReferenceSteps:
    """`preprocess_text` and `encode_pieces` of the reference under Python 3, and what transformers does otherwise."""

    quotes: bool = False
    """`` and '' become "."""
    letters: bool = False
    """Letters are lower-cased one by one: no sigma is final."""
    marks: bool = False
    """Every non-spacing mark is dropped, also those without a combining class: vowel signs, variation selectors."""
    numbers: bool = False
    """Pieces such as "2010," are made improbable in place of being spelled anew."""
    words: bool = False
    """Words are cut into pieces one by one, not a text as a whole."""
    commas: bool = False
    """Pieces such as "2010," stay, neither improbable nor spelled anew."""
    symbols: bool = False
    """What stands behind a symbol that is always alone, a hyphen say, begins a word: "key-board" is "key - board"."""

    def ids(self, text: str, released: Any, improbable: Any) -> list[int]:
        """The ids of a text; `released` and `improbable` are SentencePiece processors."""
        if self.symbols:
            within, parts = replace(self, symbols=False), SYMBOLS.split(text)
            found = [within.ids(part, released, improbable) for part in parts]
            found[1::2] = [[released.piece_to_id(symbol)] for symbol in parts[1::2]]
            return [number for ids in found for number in ids]
        if self.quotes:
            text = text.replace("``", '"').replace("''", '"')
        text = unicodedata.normalize("NFKD", " ".join(text.strip().split()))
        text = "".join(c for c in text if not (unicodedata.combining(c) or (self.marks and _is_mark(c))))
        text = "".join(map(str.lower, text)) if self.letters else text.lower()
        parts = text.split() if self.words else [text]
        if self.numbers or self.commas:
            processor = released if self.commas else improbable
            return [number for part in parts for number in processor.encode(part)]
        ids = []
        for piece in (piece for part in parts for piece in released.encode(part, out_type=str)):
            spelled = [piece]
            if len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit():
                spelled = [*released.encode(piece[:-1].replace("▁", ""), out_type=str), ","]
            ids += [released.piece_to_id(part) for part in spelled]
        return ids


SWITCHES = tuple(ReferenceSteps.__dataclass_fields__)
TRANSFORMERS = ReferenceSteps(quotes=True, letters=True, marks=True, numbers=True, words=True)
BASES = (ReferenceSteps(), TRANSFORMERS, replace(TRANSFORMERS, marks=False))


def _is_mark(character: str) -> bool:
    return unicodedata.category(character) == "Mn"


def main(arguments: list[str]) -> None:
    """Compare and report."""
    asked = parse(Equality, arguments, "tokenizer_equality.py")
    processors = processors_of(asked.model)
    ours, reference = load_tokenizer(asked.model), load_tokenizer(asked.model, reference=True)
    with tempfile.TemporaryDirectory() as directory:
        theirs, bare = _transformers(asked.model, Path(directory))
    pairs = (
        "albert = transformers",
        "albert = transformers from spiece.model alone",
        "albert = original",
        "albert, reference mode = original",
    )
    counts: dict[str, Counter[str]] = {pair: Counter() for pair in pairs}
    shown: dict[tuple[str, str], list[str]] = {}
    followers: Counter[tuple[str, str]] = Counter()
    sentences = characters = 0
    files = sorted(file for place in asked.text for file in ([place] if place.is_file() else place.rglob("*.*")))
    with progress("Comparing", len(files), "files") as bar:
        for file in files:
            for text in sample(file, asked.per_file):
                sentences, characters = sentences + 1, characters + len(text)
                mine, original = ours.encode(text), ReferenceSteps().ids(text, *processors)
                their, alone = (opened(text, add_special_tokens=False)["input_ids"] for opened in (theirs, bare))
                compared = ((mine, their), (mine, alone), (mine, original), (reference.encode(text), original))
                for pair, (left, right) in zip(pairs, compared, strict=True):
                    if left != right:
                        why = cause(text, left, right, processors)
                        counts[pair][why] += 1
                        shown.setdefault((pair, why), []).append(text)
                        followers[pair, why] += left == original
            bar.advance()
            bar.note(f"{sentences:,} sentences, {sum(map(Counter.total, counts.values())):,} differences")
    rows = []
    for pair in pairs:
        equal = sentences - counts[pair].total()
        for why, count in (("equal", equal), *counts[pair].most_common()):
            examples = shown.get((pair, why), [])[: asked.examples]
            rows.append((pair, why, count, followers[pair, why], examples))
    _report(rows, sentences, characters, len(files))
    if asked.output is not None:
        columns = ("compared", "class", "sentences", "of", "albert_as_the_original")
        append_rows(asked.output, columns, [[*row[:3], sentences, row[3]] for row in rows])


def sample(file: Path, limit: int) -> Iterator[str]:
    """Sentences of a file: the first `limit` odd ones, and as many others, a part of the way apart in a large file."""
    plain = odd = 0
    step = max(1, file.stat().st_size // (limit * 60))
    for number, text in enumerate(_sentences(file)):
        if ODD.search(text):
            odd += 1
            if odd <= limit:
                yield text
        elif number % step == 0 and plain < limit:
            plain += 1
            yield text


def _sentences(file: Path) -> Iterator[str]:
    opened = gzip.open if file.suffix == ".gz" else open
    kind = file.name.removesuffix(".gz").rsplit(".", 1)[-1]
    with opened(file, "rt", encoding="utf-8") as lines:
        for line in [lines.read()] if kind == "json" else lines:
            for text in _strings(json.loads(line)) if kind in ("json", "jsonl") else line.split("\t"):
                yield from (part for part in SENTENCE_END.split(text) if part.count(" ") >= 2)


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(inner)


def processors_of(model: Path) -> tuple[Any, Any]:
    """SentencePiece with the released scores, and with pieces such as "2010," 100 below theirs, as transformers has."""
    proto = model_format.ModelProto()  # pyright: ignore[reportAttributeAccessIssue]  # made at run time
    proto.ParseFromString(model.read_bytes())
    for entry in proto.pieces:
        if len(entry.piece) > 1 and entry.piece[-1] == "," and entry.piece[-2].isdigit():
            entry.score -= 100
    make = sentencepiece.SentencePieceProcessor
    return make(model_proto=model.read_bytes()), make(model_proto=proto.SerializeToString())


def _transformers(model: Path, directory: Path) -> tuple[Any, Any]:
    """transformers' tokenizer from what its converter writes, and from `spiece.model` alone."""
    for name in ("converted", "alone"):
        (directory / name).mkdir()
    (directory / "alone" / "spiece.model").write_bytes(model.read_bytes())
    slow = SimpleNamespace(vocab_file=str(model), keep_accents=False, do_lower_case=True)
    slow.convert_tokens_to_ids = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"].index
    content = json.loads(AlbertConverter(slow).converted().to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["special"]]
    (directory / "converted" / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return tuple(AlbertTokenizer.from_pretrained(directory / name) for name in ("converted", "alone"))


def cause(text: str, left: list[int], right: list[int], processors: tuple[Any, Any]) -> str:
    """The fewest switches between steps that give the one ids and steps that give the other.

    The same pieces in another order have the same score, and which of the two is taken is chance: rounding, which also
    cutting word by word changes.
    """
    for number in range(1, len(SWITCHES) + 1):
        for names in combinations(SWITCHES, number):
            for base in BASES:
                changed = replace(base, **{name: not getattr(base, name) for name in names})
                found = (base.ids(text, *processors), changed.ids(text, *processors))
                if found in ((left, right), (right, left)):
                    return TIE if names == ("words",) else " + ".join(names)
    return TIE if sorted(left) == sorted(right) else UNEXPLAINED


def _report(rows: list[tuple[str, str, int, int, list[str]]], sentences: int, characters: int, files: int) -> None:
    table = Table("compared", "class", "sentences", "albert as the original", "for example")
    for pair, why, count, following, examples in rows:
        shown = "\n".join(escape(text[:90]) for text in examples)
        table.add_row(pair, why, f"{count:,}", "" if why == "equal" else f"{following:,}", shown)
    Console(soft_wrap=False, highlight=False, width=200).print(table)
    print(f"{sentences:,} sentences, {characters / 1e6:,.1f} million characters, {files} files")


if __name__ == "__main__":
    main(sys.argv[1:])
