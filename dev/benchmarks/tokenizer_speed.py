"""Tokenizers compared: megabytes of UTF-8 text per second of one core.

    python dev/benchmarks/tokenizer_speed.py --data corpus/ --tokenizer spiece.model

Ours, transformers' AlbertTokenizer, the tokenizers library backend it on our tokenizer.json, and sentencepiece alone.
All encode the same batches of texts, as long documents and as single paragraphs, to lists. Ours caches words, so it is
measured twice: "new text" starts with an empty cache, and "known words" is a second pass over the same text. Peers
encode another part of the text in each round, together all of it. Seconds are processor time; rates by wall time are
added.

sentencepiece alone treats capitals and accents as rare or unknown pieces and gives other ids: it is a lower bound, not
a peer. "Plain" texts are lower case and ASCII and need no preprocessing: there the ratio is to sentencepiece.

`--preparation` measures another thing, on 100 MB or more and a quiet machine: the ids of the sentences of one document
after the other, as `albert prepare` asks for them, by sentencepiece as it is and by our cache of words, which begins
empty; and the documents whose ids differ from the reference's.
"""

import gc
import os
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import harness
import sentencepiece
import tokenizers
import transformers

from albert.runtime.errors import InvalidConfiguration
from albert.text.corpus import read_corpus
from albert.text.sentencepiece import SentencePieceTokenizer
from albert.text.sentences import split_sentences
from albert.text.tokenizer_loading import load_tokenizer

NOT_ASCII = re.compile(r"[^\x00-\x7f]+")
ONE_THREAD = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "true", "OMP_NUM_THREADS": "1"}
IDS, OFFSETS = "ids", "ids and offsets"
FLOOR = "sentencepiece, text as it is"
VERSIONS = f"sentencepiece {sentencepiece.__version__}, tokenizers {tokenizers.__version__}"
COLUMNS = ("versions", "texts", "megabytes", "work", "tokenizer", "megabytes_per_cpu_second", "lowest", "highest",
           "megabytes_per_second", "ratio", "documents_that_differ")  # fmt: skip
BATCH = 1_000_000  # bytes of one call
Batch = list[str]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare the speed of tokenizers."""

    data: tuple[Path, ...]
    """Inputs as of `albert prepare`; documents are drawn from all of them."""
    tokenizer: Path
    """A SentencePiece vocabulary."""
    megabytes: float = 20
    """Text to encode."""
    rounds: int = 5
    preparation: bool = False
    """Measure only the ids of sentences, as preparation encodes them."""
    seed: int = 0
    """Seed of the draw of documents."""
    output: Path = Path("results/benchmark-tokenizer-speed.csv")


class System(NamedTuple):
    """A tokenizer with one kind of output; `encode` gets ours, with an empty cache if `new_text`, and a batch."""

    encode: Callable[[SentencePieceTokenizer, Batch], Any]
    new_text: bool = False
    is_peer: bool = False


def measure(args: Benchmark) -> Iterator[list[object]]:
    """A row for each kind of text, kind of work and tokenizer; the ratio is to the best peer, or to the floor."""
    os.environ.update(ONE_THREAD)  # before the peers start their threads
    transformers.logging.set_verbosity_error()  # long texts are no error here
    ours = load_tokenizer(args.tokenizer)
    if not isinstance(ours, SentencePieceTokenizer):
        raise InvalidConfiguration(f"tokenizer {args.tokenizer}", "is not a SentencePiece vocabulary")
    documents = _documents(args)
    if args.preparation:
        for row in _prepared(documents, ours, args.rounds):
            yield [VERSIONS, "sentences of documents", f"{_megabytes([documents]):.1f}", IDS, *row]
        return
    paragraphs = [line for document in documents for line in document.split("\n") if line.strip()]
    systems = _systems(ours)
    without_peers = {key: system for key, system in systems.items() if key[0] == IDS and not system.is_peer}
    for shape, texts in (("documents", documents), ("paragraphs", paragraphs)):
        plain = [" ".join(NOT_ASCII.sub(" ", ours.normalize(text)).split()) for text in texts]
        for name, batches, entered in (
            (shape, _batches(texts), systems), (f"plain {shape}", _batches(plain), without_peers),
        ):  # fmt: skip
            for row in _compare(batches, entered, ours, args.rounds):
                yield [VERSIONS, name, f"{_megabytes(batches):.1f}", *row, ""]


def _documents(args: Benchmark) -> list[str]:
    texts = list(read_corpus(args.data))
    random.Random(args.seed).shuffle(texts)
    documents, size = [], 0
    while texts and size < args.megabytes * 1e6:
        documents.append(texts.pop())
        size += len(documents[-1].encode())
    return documents


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


def _systems(ours: SentencePieceTokenizer) -> dict[tuple[str, str], System]:
    """By kind of work and name."""
    with tempfile.TemporaryDirectory() as directory:
        ours.save(Path(directory))
        theirs = transformers.AlbertTokenizer.from_pretrained(directory)
        backend = tokenizers.Tokenizer.from_file(str(Path(directory) / "tokenizer.json"))
    alone = sentencepiece.SentencePieceProcessor(model_proto=ours.model)
    bare = {"add_special_tokens": False}
    less = {**bare, "return_attention_mask": False, "return_token_type_ids": False}

    def fast(_: object, batch: Batch) -> Any:
        return [row.ids for row in backend.encode_batch_fast(batch, **bare)]

    return {
        (IDS, "albert, new text"): System(lambda own, batch: own.encode_batch(batch), new_text=True),
        (IDS, "albert, known words"): System(lambda own, batch: own.encode_batch(batch)),
        (IDS, "transformers"): System(lambda _, batch: theirs(batch, **less)["input_ids"], is_peer=True),
        (IDS, "tokenizers, encode_batch"):
            System(lambda _, batch: [row.ids for row in backend.encode_batch(batch, **bare)], is_peer=True),
        (IDS, "tokenizers, encode_batch_fast"): System(fast, is_peer=True),
        (IDS, FLOOR): System(lambda _, batch: alone.encode(batch, num_threads=1)),
        (IDS, "sentencepiece, text normalised before"):
            System(lambda own, batch: alone.encode([own.normalize(text) for text in batch], num_threads=1)),
        (OFFSETS, "albert, new text"): System(lambda own, batch: own.encode_batch_with_offsets(batch), new_text=True),
        (OFFSETS, "albert, known words"): System(lambda own, batch: own.encode_batch_with_offsets(batch)),
        (OFFSETS, "transformers"):
            System(lambda _, batch: theirs(batch, return_offsets_mapping=True, **less), is_peer=True),
        (OFFSETS, "tokenizers, encode_batch"):
            System(lambda _, batch: [(row.ids, row.offsets) for row in backend.encode_batch(batch, **bare)],
                   is_peer=True),
        (OFFSETS, FLOOR): System(lambda _, batch: alone.encode(batch, return_type="offset_mapping", num_threads=1)),
    }  # fmt: skip


def _compare(
    batches: list[Batch], systems: Mapping[tuple[str, str], System], ours: SentencePieceTokenizer, rounds: int
) -> Iterator[list[object]]:
    for batch in batches:  # fills our cache
        ours.encode_batch(batch)
        ours.encode_batch_with_offsets(batch)

    def rates(system: System, number: int) -> tuple[float, float]:
        own = SentencePieceTokenizer(ours.model, ours.lower_case, ours.keep_accents) if system.new_text else ours
        return _rates(partial(system.encode, own), batches[number::rounds] if system.is_peer else batches)

    runs = {key: partial(rates, system) for key, system in systems.items()}
    results = harness.alternate(runs, rounds, lambda number: number, warm_up=0)
    medians = {key: statistics.median(rate for rate, _ in values) for key, values in results.items()}
    for (work, name), values in results.items():
        peers = [key for key, system in systems.items() if key[0] == work and system.is_peer]
        best = max(medians[key] for key in peers or [(work, FLOOR)])
        wall = statistics.median(rate for _, rate in values)
        figures = harness.spread([rate for rate, _ in values], ".2f")
        yield [work, name, *figures, f"{wall:.2f}", f"{medians[work, name] / best:.2f}"]


def _prepared(documents: Sequence[str], ours: SentencePieceTokenizer, rounds: int) -> Iterator[list[object]]:
    """A row for what preparation calls, whose ids are the reference's, and one for our cache of words."""
    sentences = [split_sentences(document, "en") for document in documents]
    library = sentencepiece.SentencePieceProcessor(model_proto=ours.model)
    systems: dict[str, Callable[[SentencePieceTokenizer, Batch], Any]] = {
        "sentencepiece": lambda own, texts: own.encode_sentences(texts),
        "cache of words": lambda own, texts: own.encode_joined(texts),
    }

    def rates(encode: Callable[[SentencePieceTokenizer, Batch], Any], _: int) -> tuple[float, float]:
        own = SentencePieceTokenizer(ours.model, ours.lower_case, ours.keep_accents)
        return _rates(partial(encode, own), sentences)

    runs = {name: partial(rates, encode) for name, encode in systems.items()}
    results = harness.alternate(runs, rounds, lambda number: number, warm_up=0)
    for name, values in results.items():
        ratios = [own[0] / other[0] for own, other in zip(values, results["sentencepiece"], strict=True)]
        differ = 0
        for texts in sentences:
            ids, counts = systems[name](ours, texts)
            expected = [library.encode(ours.normalize(text)) for text in texts]
            differ += list(counts) != list(map(len, expected)) or ids.tolist() != list(chain.from_iterable(expected))
        wall = statistics.median(rate for _, rate in values)
        figures = harness.spread([rate for rate, _ in values], ".2f")
        yield [name, *figures, f"{wall:.2f}", f"{statistics.median(ratios):.2f}", differ]


def _rates(encode: Callable[[Batch], Any], batches: Sequence[Batch]) -> tuple[float, float]:
    """Megabytes per second of processor time and of wall time."""
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    for batch in batches:
        encode(batch)
    processor, wall = time.process_time() - processor, time.perf_counter() - wall
    return _megabytes(batches) / processor, _megabytes(batches) / wall


def _megabytes(batches: Sequence[Batch]) -> float:
    return sum(len(text.encode()) for text in chain.from_iterable(batches)) / 1e6


main = harness.script(Benchmark, COLUMNS, measure)

if __name__ == "__main__":
    main()
