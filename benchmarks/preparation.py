"""Preparing a corpus beside the reference and transformers; memory as the corpus grows; two processes for one.

*peers*: millions of bytes of raw text that one core prepares in a second, of the same documents, in turns, each in its
own process; seconds are those of the processor, imports left out. Ours reads JSON lines, splits sentences, encodes and
writes shards. The reference's `create_pretraining_data.py` (google-research/albert, under its own interpreter) is given
split sentences, and masks and writes one pass over them. transformers' fast tokenizer in `datasets.map`, batched, is
given a loaded data set, and writes ids.
*memory*: the largest sum of resident memory of all processes of `albert prepare`, for a small corpus and a large one.
*processes*: how much sooner two processes are done than one; that needs a machine with nothing else to do.

    python benchmarks/preparation.py --text corpus/ --tokenizer tokenizer \
        --reference google-research/albert --reference-python tensorflow/bin/python
"""

import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import datasets
from harness import append_rows, each_in_a_process, in_turn, ratio
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer

from albert.cli.options import parse
from albert.text.corpus import read_corpus
from albert.text.prepare import prepare
from albert.text.sentences import split_sentences
from albert.text.tokenizer_loading import load_tokenizer

ONE_THREAD = {"OMP_NUM_THREADS": "1", "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
RUN_REFERENCE = """
import sys, time
from albert import create_pretraining_data as reference
reference.FLAGS(sys.argv)
start = time.process_time()
reference.main(None)
print(time.process_time() - start)
"""
COLUMNS = [
    *("load", "peers_megabytes", "albert_mb_per_second", "reference_mb_per_second"),
    *("transformers_mb_per_second", "times_reference", "times_transformers", "memory_megabytes", "resident_mb"),
    *("times_memory", "processes_megabytes", "seconds", "times_processes", "processor_seconds"),
]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Measure preparation.

    Example: python benchmarks/preparation.py --text corpus/ --tokenizer tokenizer --parts memory
    """

    text: tuple[Path, ...]
    """What `albert prepare` reads; it is repeated, with other words, where it is too short."""
    tokenizer: Path
    """A directory with spiece.model and tokenizer.json."""
    reference: Path | None = None
    """A checkout of google-research/albert, in a folder named `albert`; without it, it is left out."""
    reference_python: Path = Path(sys.executable)
    """An interpreter with TensorFlow, tensorflow_hub, six and sentencepiece."""
    parts: tuple[Literal["peers", "memory", "processes"], ...] = ("peers", "memory", "processes")
    rounds: int = 3
    megabytes: float = 60.0
    """Text for ours and for transformers."""
    reference_megabytes: float = 8.0
    """Text for the reference, of the same documents; its rate does not depend on how much it is."""
    memory_megabytes: tuple[float, float] = (50.0, 500.0)
    processes_megabytes: float = 300.0
    output: Path = Path("results/benchmark-preparation.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "preparation.py")
    os.environ |= ONE_THREAD
    row: dict[str, object] = {"load": round(os.getloadavg()[0], 1)}
    with tempfile.TemporaryDirectory() as folder:
        for part in asked.parts:
            row |= PARTS[part](asked, Path(folder))
    append_rows(asked.output, COLUMNS, [row])


# ---- peers ----------------------------------------------------------------------------------------------------------


def compare_peers(asked: Benchmark, folder: Path) -> dict[str, object]:
    """Seconds of a processor for the same documents."""
    size = write_json_lines(folder / "text.jsonl", some_text(asked.text, asked.megabytes))
    peers: dict[str, Callable[..., float]] = {"albert": our_seconds, "transformers": their_seconds}
    sizes = {"albert": size, "transformers": size}
    if asked.reference is not None:
        peers["reference"] = reference_seconds
        documents = list(some_text(asked.text, asked.reference_megabytes))
        sizes["reference"] = sum(len(text.encode()) for text in documents) / 1e6
        sentences = ("".join(line + "\n" for line in [*split_sentences(text), ""]) for text in documents)
        (folder / "sentences.txt").write_text("".join(sentences), encoding="utf-8")
    rates: dict[str, list[float]] = {name: [] for name in peers}
    for number in range(asked.rounds):
        for name in in_turn(list(peers), number):
            seconds = peers[name]
            with tempfile.TemporaryDirectory(dir=folder) as place:
                rates[name].append(sizes[name] / each_in_a_process(partial(seconds, asked, folder), [Path(place)])[0])
    table = Table("peers", "MB/s of a core", "ours is faster by", box=None)
    figures: dict[str, object] = {"peers_megabytes": round(size, 1)}
    for name, found in rates.items():
        times = ratio(rates["albert"], found)
        rate = statistics.median(found)
        figures[f"{name}_mb_per_second"] = round(rate, 2)
        if name != "albert":
            figures[f"times_{name}"] = round(times, 1)
        table.add_row(name, f"{rate:,.2f}", f"{times:,.1f}")
    Console(width=100).print(table)
    return figures


def our_seconds(asked: Benchmark, folder: Path, place: Path) -> float:
    """Text to shards, in one process."""
    tokenizer = load_tokenizer(asked.tokenizer)
    start = time.process_time()
    prepare([folder / "text.jsonl"], tokenizer, place / "data", workers=1)
    return time.process_time() - start


def their_seconds(asked: Benchmark, folder: Path, place: Path) -> float:
    """A loaded data set to ids, in one process."""
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(asked.tokenizer)
    loaded = datasets.load_dataset("json", data_files=str(folder / "text.jsonl"), split="train", cache_dir=str(place))
    start = time.process_time()
    loaded.map(lambda batch: tokenizer(batch["text"], verbose=False), batched=True, remove_columns=["text"])
    return time.process_time() - start


def reference_seconds(asked: Benchmark, folder: Path, place: Path) -> float:
    """Split sentences to one masked pass, in its own process."""
    assert asked.reference is not None
    flags = {
        "input_file": folder / "sentences.txt",
        "output_file": place / "instances.tfrecord",
        "spm_model_file": asked.tokenizer / "spiece.model",
        "vocab_file": "",
        "dupe_factor": 1,
    }
    words = [f"--{name}={value}" for name, value in flags.items()]
    environment = os.environ | {"PYTHONPATH": str(asked.reference.resolve().parent)}
    done = subprocess.run(
        [asked.reference_python, "-c", RUN_REFERENCE, *words], env=environment, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout.split()[-1])


# ---- memory and processes -------------------------------------------------------------------------------------------


def compare_memory(asked: Benchmark, folder: Path) -> dict[str, object]:
    """The largest sum of resident memory, by the size of the corpus."""
    table = Table("memory", "resident, all processes, MB", box=None)
    found: dict[float, float] = {}
    for megabytes in asked.memory_megabytes:
        write_json_lines(folder / "text.jsonl", some_text(asked.text, megabytes))
        found[megabytes] = run_command(asked, folder, workers=2).resident
        table.add_row(f"{megabytes:,.0f} MB of text", f"{found[megabytes]:,.0f}")
    times = max(found.values()) / found[asked.memory_megabytes[0]]
    table.add_row("times", f"{times:,.2f}")
    Console(width=100).print(table)
    sizes, residents = (" ".join(f"{value:.0f}" for value in values) for values in (found, found.values()))
    return {"memory_megabytes": sizes, "resident_mb": residents, "times_memory": round(times, 2)}


def compare_processes(asked: Benchmark, folder: Path) -> dict[str, object]:
    """Seconds with one process and with two."""
    write_json_lines(folder / "text.jsonl", some_text(asked.text, asked.processes_megabytes))
    runs: dict[int, list[CommandRun]] = {1: [], 2: []}
    for number in range(asked.rounds):
        for workers in (1, 2) if number % 2 else (2, 1):
            runs[workers].append(run_command(asked, folder, workers))
    times = ratio(*([run.seconds for run in found] for found in runs.values()))
    table = Table("processes", "seconds", "of a processor", box=None)
    medians = {}
    for workers, found in runs.items():
        medians[workers] = [statistics.median(getattr(run, name) for run in found) for name in ("seconds", "processor")]
        table.add_row(f"{workers}", *(f"{value:,.1f}" for value in medians[workers]))
    table.add_row("times", f"{times:,.2f}", f"load {os.getloadavg()[0]:.1f}")
    Console(width=100).print(table)
    seconds, processor = (
        " ".join(f"{value:.1f}" for value in values) for values in zip(*medians.values(), strict=True)
    )
    return {
        "processes_megabytes": asked.processes_megabytes,
        "seconds": seconds,
        "times_processes": round(times, 2),
        "processor_seconds": processor,
    }


@dataclass(frozen=True)
class CommandRun:
    """What `albert prepare` took: seconds, seconds of a processor, MB of memory of all its processes."""

    seconds: float
    processor: float
    resident: float


def run_command(asked: Benchmark, folder: Path, workers: int) -> CommandRun:
    """Run `albert prepare` in a process of its own, and watch it."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        words = ["prepare", folder / "text.jsonl", "--tokenizer", asked.tokenizer, "--output", f"{place}/data"]
        before, start, largest = processor_seconds_of_children(), time.perf_counter(), 0
        process = subprocess.Popen(
            [sys.executable, "-m", "albert", *words, "--workers", str(workers)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while process.poll() is None:
            largest = max(largest, resident_bytes(process.pid))
            time.sleep(0.02)
        if process.returncode:
            raise SystemExit(f"albert prepare ended with {process.returncode}")
        seconds = time.perf_counter() - start
        return CommandRun(seconds, processor_seconds_of_children() - before, largest / 1e6)


def processor_seconds_of_children() -> float:
    """Of all processes that this one started and that ended, and theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def resident_bytes(process: int) -> int:
    """Resident memory of a process and all below it; what they share is counted for each."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        below = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:  # it has just ended
        return 0
    return pages * resource.getpagesize() + sum(resident_bytes(int(child)) for child in below)


PARTS = {"peers": compare_peers, "memory": compare_memory, "processes": compare_processes}


# ---- text -----------------------------------------------------------------------------------------------------------


def some_text(places: tuple[Path, ...], megabytes: float) -> Iterator[str]:
    """Documents of so many MB, one source after the other; when all were read, again with every 40th word reversed."""
    size = 0
    for again in itertools.count():
        for document in read_corpus(places):
            text = document.text
            if again:
                words = text.split(" ")
                words[again::40] = [word[::-1] for word in words[again::40]]
                text = " ".join(words)
            yield text
            size += len(text.encode())
            if size >= megabytes * 1e6:
                return


def write_json_lines(path: Path, texts: Iterator[str]) -> float:
    """One document a line; how many MB of text they are."""
    size = 0
    with open(path, "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
            size += len(text.encode())
    return size / 1e6


if __name__ == "__main__":
    main(sys.argv[1:])
