"""Tokenizers beside each other: megabytes of UTF-8 text in a second of one core, in turns and in shuffled order.

Ours, transformers' AlbertTokenizer, the tokenizers library beneath it on our tokenizer.json, and sentencepiece alone.
All are given the same batches of texts, as long documents and as single paragraphs; what they return, lists as their
users get them, is dropped after each batch. Ours remembers words, so it is measured twice: "new text" begins with a
tokenizer that has met no word, and "known words" is another pass over the same text. Peers do another part of the text
in each round, together all of it. Seconds are those of the processor; rates by the clock on the wall stand beside them.

sentencepiece alone takes capitals and accents for rare or unknown pieces and gives other ids: it is the floor below,
not a peer. "Plain" texts are the same in lower case and ASCII and need no preprocessing: there, it is the measure.

    python benchmarks/tokenizer_speed.py --data corpus/ --tokenizer spiece.model
"""

import gc
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import sentencepiece
import tokenizers
import transformers
from harness import append_rows
from rich.console import Console
from rich.table import Table

from albert.cli.options import parse
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.text import word_cache
from albert.text.corpus import read_corpus
from albert.text.normalization import normalize_words
from albert.text.sentencepiece import SentencePieceTokenizer
from albert.text.tokenizer_loading import load_tokenizer

NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
ONE_THREAD = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "true", "OMP_NUM_THREADS": "1"}
IDS, OFFSETS = "ids", "ids and offsets"
FLOOR = "sentencepiece, text as it is"
VERSIONS = f"sentencepiece {sentencepiece.__version__}, tokenizers {tokenizers.__version__}"
COLUMNS = ("versions", "texts", "megabytes", "work", "tokenizer", "megabytes_per_cpu_second", "lowest", "highest",
           "megabytes_per_second", "ratio")  # fmt: skip
CONSOLE = Console(width=120)
BATCH = 1_000_000  # bytes of one call
Batch = list[str]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare the speed of tokenizers.

    Example: python benchmarks/tokenizer_speed.py --data corpus/ --tokenizer spiece.model
    """

    data: tuple[Path, ...]
    """Text as `albert prepare` reads it; documents are drawn from all of it."""
    tokenizer: Path
    """A SentencePiece vocabulary."""
    megabytes: float = 20
    """Text that is encoded."""
    rounds: int = 5
    seed: int = 0
    """Of the draw of documents and of the order in each round."""
    output: Path = Path("results/benchmark-tokenizer-speed.csv")


@dataclass(frozen=True)
class Contestant:
    """A tokenizer at one kind of work; `encode` is given ours, which `new_text` says has met no word, and a batch."""

    name: str
    work: str
    encode: Callable[[SentencePieceTokenizer, Batch], Any]
    new_text: bool = False
    is_peer: bool = False


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "tokenizer_speed.py")
    os.environ.update(ONE_THREAD)  # before the first text, when the threads of the peers start
    transformers.logging.set_verbosity_error()  # texts longer than a model takes are no mistake here
    ours = load_tokenizer(asked.tokenizer)
    if not isinstance(ours, SentencePieceTokenizer):
        raise InvalidConfiguration(f"tokenizer {asked.tokenizer}", "is no SentencePiece vocabulary")
    documents = _documents(asked)
    paragraphs = [line for document in documents for line in document.split("\n") if line.strip()]
    contestants = _contestants(ours)
    without_peers = [each for each in contestants if each.work == IDS and not each.is_peer]
    for shape, texts in (("documents", documents), ("paragraphs", paragraphs)):
        _compete(shape, _batches(texts), contestants, ours, asked)
        plain = [" ".join(NOT_ASCII.sub(" ", ours.normalize(text)).split()) for text in texts]
        _compete(f"plain {shape}", _batches(plain), without_peers, ours, asked)
        _where_the_time_goes(shape, _batches(texts), ours)


def _documents(asked: Benchmark) -> list[str]:
    texts = [document.text for document in read_corpus(asked.data)]
    random.Random(asked.seed).shuffle(texts)
    chosen, size = [], 0
    while texts and size < asked.megabytes * 1e6:
        chosen.append(texts.pop())
        size += len(chosen[-1].encode())
    return chosen


def _batches(texts: Sequence[str]) -> list[Batch]:
    batches: list[Batch] = [[]]
    size = 0
    for text in texts:
        if size >= BATCH:
            batches.append([])
            size = 0
        batches[-1].append(text)
        size += len(text.encode())
    return batches


def _contestants(ours: SentencePieceTokenizer) -> list[Contestant]:
    with tempfile.TemporaryDirectory() as directory:
        ours.save(Path(directory))
        theirs = transformers.AlbertTokenizer.from_pretrained(directory)
        beneath = tokenizers.Tokenizer.from_file(str(Path(directory) / "tokenizer.json"))
    alone = sentencepiece.SentencePieceProcessor(model_proto=ours.model)
    bare = {"add_special_tokens": False}
    less = {**bare, "return_attention_mask": False, "return_token_type_ids": False}

    return [
        Contestant("albert, new text", IDS, lambda own, batch: own.encode_batch(batch), new_text=True),
        Contestant("albert, known words", IDS, lambda own, batch: own.encode_batch(batch)),
        Contestant("transformers", IDS, lambda _, batch: theirs(batch, **less)["input_ids"], is_peer=True),
        Contestant("tokenizers, encode_batch", IDS,
                   lambda _, batch: [found.ids for found in beneath.encode_batch(batch, **bare)], is_peer=True),
        Contestant("tokenizers, encode_batch_fast", IDS,
                   lambda _, batch: [found.ids for found in beneath.encode_batch_fast(batch, **bare)], is_peer=True),
        Contestant(FLOOR, IDS, lambda _, batch: alone.encode(batch, num_threads=1)),
        Contestant("sentencepiece, text normalised before", IDS,
                   lambda own, batch: alone.encode([own.normalize(text) for text in batch], num_threads=1)),
        Contestant("albert, new text", OFFSETS, lambda own, batch: own.encode_batch_with_offsets(batch), new_text=True),
        Contestant("albert, known words", OFFSETS, lambda own, batch: own.encode_batch_with_offsets(batch)),
        Contestant("transformers", OFFSETS,
                   lambda _, batch: theirs(batch, return_offsets_mapping=True, **less), is_peer=True),
        Contestant("tokenizers, encode_batch", OFFSETS,
                   lambda _, batch: [(found.ids, found.offsets) for found in beneath.encode_batch(batch, **bare)],
                   is_peer=True),
        Contestant(FLOOR, OFFSETS,
                   lambda _, batch: alone.encode(batch, return_type="offset_mapping", num_threads=1)),
    ]  # fmt: skip


def _compete(
    shape: str, batches: list[Batch], contestants: list[Contestant], ours: SentencePieceTokenizer, asked: Benchmark
) -> None:
    for batch in batches:  # from here on, ours knows all words
        ours.encode_batch(batch)
        ours.encode_batch_with_offsets(batch)
    rates: dict[Contestant, list[tuple[float, float]]] = {}
    with progress(shape, total=asked.rounds * len(contestants), unit="runs") as bar:
        for number in range(asked.rounds):
            for each in random.Random(asked.seed + number).sample(contestants, len(contestants)):
                own = _without_words(ours) if each.new_text else ours
                part = batches[number :: asked.rounds] if each.is_peer else batches
                rates.setdefault(each, []).append(_rate(partial(each.encode, own), part))
                bar.advance()
    size = _megabytes(batches)
    for work in dict.fromkeys(each.work for each in contestants):
        entered = [each for each in contestants if each.work == work]
        medians = {each: statistics.median(rate for rate, _ in rates[each]) for each in entered}
        peers = [each for each in entered if each.is_peer]
        measure = max(medians[each] for each in peers or entered if each.is_peer or each.name == FLOOR)
        table = _table(f"{size:.1f} MB as {sum(map(len, batches)):,} {shape}: {work}",
                       "MB/s of a core", "lowest", "highest", "by the clock",
                       f"times {'the best peer' if peers else 'sentencepiece'}")  # fmt: skip
        rows = []
        for each in entered:
            found, wall = sorted(rates[each]), statistics.median(wall for _, wall in rates[each])
            figures = [medians[each], found[0][0], found[-1][0], wall, medians[each] / measure]
            shown = [f"{figure:.2f}" for figure in figures]
            table.add_row(each.name, *shown)
            rows.append([VERSIONS, shape, f"{size:.1f}", work, each.name, *shown])
        CONSOLE.print(table)
        append_rows(asked.output, COLUMNS, rows)


def _without_words(ours: SentencePieceTokenizer) -> SentencePieceTokenizer:
    return SentencePieceTokenizer(ours.model, ours.lower_case, ours.keep_accents)


def _rate(encode: Callable[[Batch], Any], batches: Sequence[Batch]) -> tuple[float, float]:
    """Megabytes in a second of the processor, and of the clock on the wall."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    for batch in batches:
        encode(batch)
    processor, wall = time.process_time() - processor, time.perf_counter() - wall
    return _megabytes(batches) / processor, _megabytes(batches) / wall


def _megabytes(batches: Sequence[Batch]) -> float:
    return sum(len(text.encode()) for text in chain.from_iterable(batches)) / 1e6


def _table(title: str, *headings: str) -> Table:
    table = Table("", title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def _where_the_time_goes(shape: str, batches: list[Batch], ours: SentencePieceTokenizer) -> None:
    """A pass over new text with clocks in it."""
    size = _megabytes(batches)
    splitting = size / _rate(lambda batch: [text.split() for text in batch], batches)[0]
    for work, cache in ((IDS, "_word_ids"), (OFFSETS, "_word_spans")):
        own, spent = _without_words(ours), Counter[str]()
        known: Any = getattr(own, cache)
        encode = _timed("sentencepiece", known._processor.encode, spent)
        known._processor = SimpleNamespace(encode=encode, normalize=known._processor.normalize)
        known.look_up, known._found = _timed("all", known.look_up, spent), _timed("new", known._found, spent)
        word_cache.normalize_words = _timed("normalise", normalize_words, spent)
        whole = size / _rate(own.encode_batch if work == IDS else own.encode_batch_with_offsets, batches)[0]
        word_cache.normalize_words = normalize_words
        parts = {
            "words found, by str.split": splitting,
            "words looked up": spent["all"] - spent["new"],
            "new words normalised": spent["normalise"],
            "new words in sentencepiece": spent["sentencepiece"],
            "new words kept": spent["new"] - spent["normalise"] - spent["sentencepiece"],
            "pieces put together": whole - splitting - spent["all"],
        }
        table = _table(f"Where the time goes, {shape}, {work}: {len(known):,} new words", "s", "%")
        for name, seconds in parts.items():
            table.add_row(name, f"{seconds:.2f}", f"{100 * seconds / whole:.0f}")
        CONSOLE.print(table)


def _timed(name: str, work: Callable[..., Any], spent: Counter[str]) -> Callable[..., Any]:
    def run(*arguments: Any, **options: Any) -> Any:
        started = time.process_time()
        result = work(*arguments, **options)
        result = list(result) if isinstance(result, Iterator) else result
        spent[name] += time.process_time() - started  # pyright: ignore[reportArgumentType]  # a Counter of seconds
        return result

    return run


if __name__ == "__main__":
    main(sys.argv[1:])
