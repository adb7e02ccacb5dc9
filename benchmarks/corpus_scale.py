"""A corpus of ten billion tokens, opened, indexed and sampled: time and memory, and what larger ones would take.

The large corpus is a prepared one many times over: its shards are linked under new names until there are as many tokens
as asked for, so that sizes, offsets and files are real and the disk holds them once. A process of its own does the
rest. Memory is its private one: the tokens themselves are mapped, and the system may drop them at any time. Times are
of the processor. Prints a table and appends rows to a CSV.

    python benchmarks/corpus_scale.py --data corpus --billions 10
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from harness import append_rows
from rich.console import Console
from rich.table import Table

from albert.cli.options import parse
from albert.pretraining.batches import micro_batches
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.runtime.json_files import load_json, save_json
from albert.text.shards import (
    DESCRIPTION_NAME,
    DOCUMENTS_NAME,
    SENTENCES_NAME,
    TOKENS_NAME,
    CorpusDescription,
    TokenCorpus,
)

CORPORA = {"16 GB": 16e9, "160 GB": 160e9, "1 TB": 1e12}
FIGURES = ("open_seconds", "index_seconds", "first_batch_seconds", "window_seconds", "tokens_per_second", "private_mb")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Open, index and sample a corpus of many billion tokens.

    Example: python benchmarks/corpus_scale.py --data corpus --billions 10
    """

    data: Path
    """What `albert prepare` wrote; the larger, the fewer links."""
    billions: tuple[float, ...] = (1.0, 10.0)
    """Tokens of the corpora made of it."""
    lengths: tuple[int, ...] = (128, 512)
    batches: int = 300
    """Batches of 1,024 sequences to sample, from all over an epoch."""
    output: Path = Path("results/benchmark-corpus-scale.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    if arguments[:1] == ["measure"]:
        print(json.dumps(_measure(Path(arguments[1]), int(arguments[2]), int(arguments[3]))))
        return
    asked = parse(Benchmark, arguments, "corpus_scale.py")
    description = load_json(CorpusDescription, asked.data / DESCRIPTION_NAME)
    counts = description.counts["train"]
    rows = []
    for billions in asked.billions:
        with tempfile.TemporaryDirectory(dir=asked.data.parent) as place:
            large = _repeat(asked.data, description, round(billions * 1e9 / counts.tokens), Path(place))
            for length in asked.lengths:
                command = [sys.executable, __file__, "measure", str(large), str(length), str(asked.batches)]
                rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    _report(asked, rows, counts.bytes / counts.tokens)


def _repeat(data: Path, description: CorpusDescription, times: int, place: Path) -> Path:
    """The train split of a corpus, many times over."""
    (place / "train").mkdir()
    shards = []
    for shard in description.shards["train"] * times:
        name = f"{len(shards):06d}"
        for pattern in (TOKENS_NAME, SENTENCES_NAME, DOCUMENTS_NAME):
            os.link(data / "train" / pattern.format(shard.name), place / "train" / pattern.format(name))
        shards.append(replace(shard, name=name))
    save_json(place / DESCRIPTION_NAME, replace(description, shards={"train": tuple(shards)}))
    for file in data.iterdir():
        if file.is_file() and file.name != DESCRIPTION_NAME:
            os.link(file, place / file.name)
    return place


def _measure(data: Path, length: int, batches: int) -> dict[str, float]:
    before = _private_memory()
    started = time.process_time()
    corpus = TokenCorpus.open(data, "train", verify=False)
    opened = time.process_time()
    samples = PretrainingSamples(corpus, SequenceRecipe(max_length=length), MaskingRecipe(), 0)
    indexed = time.process_time()
    samples.batch(np.arange(1024))
    first = time.process_time()
    samples.batch(np.arange(1024))
    again = time.process_time()
    peak = tokens = 0
    # From the front of an epoch on, then a batch from each of some places far apart, each in another window.
    begun = time.process_time()
    for number in range(batches):
        numbers = np.arange(number * 1024, (number + 1) * 1024)
        tokens += sum(batch.n_tokens for batch in micro_batches(samples, numbers, 32))
    sampled = time.process_time()
    for place in np.linspace(0, samples.per_epoch - 1024, 8).astype(np.int64).tolist():
        samples.batch(np.arange(place, place + 1024))
        peak = max(peak, _private_memory())
    return {
        "length": length,
        "shards": corpus.n_shards,
        "tokens": corpus.n_tokens,
        "sentences": corpus.n_sentences,
        "sequences": samples.per_epoch,
        "open_seconds": opened - started,
        "index_seconds": indexed - opened,
        "first_batch_seconds": first - indexed,
        "window_seconds": first - indexed - (again - first),
        "tokens_per_second": tokens / (sampled - begun),
        "private_mb": (peak - before) / 1e6,
    }


def _private_memory() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return 1024 * int(line.split()[1])
    raise OSError("/proc/self/status says nothing of RssAnon")


def _report(asked: Benchmark, rows: list[dict[str, float]], bytes_per_token: float) -> None:
    console = Console(width=140)
    table = Table(*("length", "tokens", "shards", "sequences", *FIGURES), box=None)
    for row in rows:
        table.add_row(
            *(
                f"{row[name]:,.{0 if row[name] >= 100 else 2}f}"
                for name in ("length", "tokens", "shards", "sequences", *FIGURES)
            )
        )
    console.print(table)
    computed = Table("corpus", "length", "tokens, billions", "open and index, minutes", "private MB", box=None)
    largest = {row["length"]: row for row in sorted(rows, key=lambda row: row["tokens"])}
    for name, size in CORPORA.items():
        for length, row in largest.items():
            tokens = size / bytes_per_token
            minutes = (row["open_seconds"] + row["index_seconds"]) * tokens / row["tokens"] / 60
            small = next(other for other in rows if other["length"] == length)
            growth = (row["private_mb"] - small["private_mb"]) / max(row["tokens"] - small["tokens"], 1)
            memory = row["private_mb"] + max(growth, 0) * (tokens - row["tokens"])
            computed.add_row(name, str(length), f"{tokens / 1e9:,.1f}", f"{minutes:,.1f}", f"{memory:,.0f}")
    console.print(computed)
    names = list(rows[0])
    shown = [[f"{row[name]:.4g}" if isinstance(row[name], float) else row[name] for name in names] for row in rows]
    append_rows(asked.output, names, shown)


if __name__ == "__main__":
    main(sys.argv[1:])
