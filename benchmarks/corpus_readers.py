"""Reading a corpus beside what people would write, and beside `datasets`: the same documents from every kind of file.

What is timed is the text as Python strings, one process, in turns; nothing is split or encoded. The peers check and
count nothing: "plain Python" is the shortest loop over the standard library or pyarrow, `datasets` streams the file.

    python benchmarks/corpus_readers.py --text corpus/books.jsonl.gz
"""

import bz2
import csv
import gzip
import itertools
import json
import lzma
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet
import zstandard

from albert.cli.options import parse
from albert.text.corpus import read_corpus
from albert.text.readers import Reading

csv.field_size_limit(2**31 - 1)
PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": lambda data: gzip.compress(data, 6),
    ".bz2": bz2.compress,
    ".xz": lambda data: lzma.compress(data, preset=1),
    ".zst": zstandard.ZstdCompressor().compress,
}
OPEN = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": zstandard.open}
BUILDERS = {".jsonl": "json", ".csv": "csv", ".parquet": "parquet"}
PAGE = "<page><title>{0}</title><ns>0</ns><revision><model>wikitext</model><text>{1}</text></revision></page>\n"


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Measure the readers, in millions of bytes of text a second.

    Example: python benchmarks/corpus_readers.py --text corpus/books.jsonl.gz
    """

    text: Path
    """Files of text whose documents are written in every kind, and read."""
    megabytes: float = 20.0
    """Text used of it."""
    rounds: int = 5
    output: Path | None = None
    """Append the medians to this table."""


def main(arguments: list[str]) -> None:
    """Write the files, read them in turns, report."""
    asked = parse(Benchmark, arguments, "corpus_readers.py")
    texts, size = [], 0
    for document in read_corpus([asked.text]):
        text = "\n".join(line for line in document.text.split("\n") if line.strip())  # blank lines divide documents
        texts.append(text)
        size += len(text.encode())
        if size >= asked.megabytes * 1e6:
            break
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder), texts)
        rows = [(path.name, *measure(path, len(texts), size / 1e6, asked.rounds)) for path in files]
    print(f"{len(texts):,} documents, {size / 1e6:.1f} MB of text; MB/s, medians of {asked.rounds}")
    for name, *rates in rows:
        print(f"{name:22}" + "".join(f"{who} {rate:8,.1f}   " for who, rate in zip(READERS, rates, strict=True)))
    if asked.output:
        with open(asked.output, "a", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([time.strftime("%Y-%m-%d"), *row] for row in rows)


def write_files(folder: Path, texts: list[str]) -> list[Path]:
    """The same documents in every kind of file."""
    for packed, pack in PACK.items():
        (folder / f"a.txt{packed}").write_bytes(pack("\n\n".join(texts).encode()))
        lines = (json.dumps({"number": n, "text": text}, ensure_ascii=False) + "\n" for n, text in enumerate(texts))
        (folder / f"a.jsonl{packed}").write_bytes(pack("".join(lines).encode()))
    with open(folder / "a.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("number", "text"), *enumerate(texts)])
    pyarrow.parquet.write_table(pa.table({"text": texts}), folder / "a.parquet", row_group_size=1000)
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"text": texts}).save_to_disk(folder / "saved")
    pages = (PAGE.format(n, text.replace("&", "&amp;").replace("<", "&lt;")) for n, text in enumerate(texts))
    (folder / "a.xml").write_text("<mediawiki>" + "".join(pages) + "</mediawiki>", encoding="utf-8")
    return sorted(folder.iterdir(), key=lambda path: path.suffixes)


def measure(path: Path, documents: int, megabytes: float, rounds: int) -> list[float]:
    """The rate of each reader; nan where it has no way to read this."""
    seconds: dict[str, list[float]] = {name: [] for name in READERS}
    for number in range(rounds + 1):  # the first warms up
        for name in sorted(READERS, reverse=bool(number % 2)):
            began = time.perf_counter()
            texts = READERS[name](path)
            if texts is None:
                seconds[name].append(float("nan"))
                continue
            count = sum(1 for _ in texts)
            seconds[name].append(time.perf_counter() - began)
            assert count == documents, (name, path, count, documents)
    return [megabytes / statistics.median(seconds[name][1:]) for name in READERS]


def ours(path: Path) -> Iterable[str]:
    """Our readers."""
    return (document.text for document in read_corpus([path], Reading(documents="blank-line")))


def plain_python(path: Path) -> Iterable[str] | None:
    """The shortest loop that gives the texts."""
    packed = path.suffix if path.suffix in PACK else ""
    match path.name.removesuffix(packed).partition(".")[2]:
        case "txt":
            with OPEN[packed](path, "rt", encoding="utf-8") as file:
                groups = itertools.groupby(file.readlines(), lambda line: not line.isspace())
            return ("".join(lines) for filled, lines in groups if filled)
        case "jsonl":
            return (json.loads(line)["text"] for line in OPEN[packed](path, "rt", encoding="utf-8"))
        case "csv":
            return (row["text"] for row in csv.DictReader(open(path, newline="", encoding="utf-8")))
        case "parquet":
            batches = pyarrow.parquet.ParquetFile(path).iter_batches(1024, columns=["text"])
            return (text for batch in batches for text in batch.column(0).to_pylist())
    return None


def huggingface(path: Path) -> Iterable[str] | None:
    """`datasets`."""
    if path.name == "saved":
        return (row["text"] for row in datasets.load_from_disk(path))
    builder = BUILDERS.get(path.suffixes[0])
    if builder is None:
        return None
    stream = datasets.load_dataset(builder, data_files=str(path), split="train", streaming=True)
    return (row["text"] for row in stream)


READERS = {"ours": ours, "plain Python": plain_python, "datasets": huggingface}

if __name__ == "__main__":
    main(sys.argv[1:])
