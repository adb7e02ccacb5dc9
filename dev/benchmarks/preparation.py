"""Corpus preparation compared with the reference and transformers: MB of raw text per second of one core.

    python dev/benchmarks/preparation.py --text corpus/ --tokenizer tokenizer \
        --reference google-research/albert --reference-python tensorflow/bin/python

All process the same documents, alternating, each in its own process; seconds are processor time without imports. Ours
reads JSON lines, splits sentences, encodes and writes shards. The reference's `create_pretraining_data.py`
(google-research/albert, with its own interpreter) reads split sentences, and masks and writes one pass over them.
transformers' fast tokenizer in a batched `datasets.map` reads a loaded data set and writes ids.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import datasets
import harness
from transformers import AutoTokenizer

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
COLUMNS = (
    "load", "peers_megabytes", "albert_mb_per_second", "reference_mb_per_second", "transformers_mb_per_second",
    "times_reference", "times_transformers",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Measure preparation."""

    text: tuple[Path, ...]
    """Inputs of `albert prepare`."""
    tokenizer: Path
    """A directory with spiece.model and tokenizer.json."""
    reference: Path | None = None
    """A checkout of google-research/albert in a folder named `albert`; None: not measured."""
    reference_python: Path = Path(sys.executable)
    """An interpreter with TensorFlow, tensorflow_hub, six and sentencepiece."""
    rounds: int = 3
    megabytes: float = 60.0
    """Text for ours and for transformers."""
    reference_megabytes: float = 8.0
    """Text for the reference, of the same documents; its rate does not depend on the amount."""
    output: Path = Path("results/benchmark-preparation.csv")


def measure(args: Benchmark) -> Iterator[dict[str, object]]:
    """One row."""
    os.environ |= ONE_THREAD
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        size = write_json_lines(folder / "text.jsonl", some_text(args.text, args.megabytes))
        peers: dict[str, Callable[..., float]] = {"albert": our_seconds, "transformers": their_seconds}
        sizes = {"albert": size, "transformers": size}
        if args.reference is not None:
            peers["reference"] = reference_seconds
            documents = list(some_text(args.text, args.reference_megabytes))
            sizes["reference"] = sum(len(text.encode()) for text in documents) / 1e6
            sentences = ("".join(line + "\n" for line in [*split_sentences(text), ""]) for text in documents)
            (folder / "sentences.txt").write_text("".join(sentences), encoding="utf-8")

        def rate(name: str) -> float:
            with tempfile.TemporaryDirectory(dir=folder) as own:
                seconds = harness.in_new_processes(partial(peers[name], args, folder), [Path(own)])[0]
            return sizes[name] / seconds

        rates = harness.alternate({name: partial(rate, name) for name in peers}, args.rounds, warm_up=0)
    row: dict[str, object] = {"load": round(os.getloadavg()[0], 1), "peers_megabytes": round(size, 1)}
    for name, values in rates.items():
        row[f"{name}_mb_per_second"] = round(statistics.median(values), 2)
        if name != "albert":
            row[f"times_{name}"] = round(harness.ratio(rates["albert"], values), 1)
    yield row


def our_seconds(args: Benchmark, folder: Path, output: Path) -> float:
    """Text to shards, in one process."""
    tokenizer = load_tokenizer(args.tokenizer)
    start = time.process_time()
    prepare([folder / "text.jsonl"], tokenizer, output / "data", workers=1)
    return time.process_time() - start


def their_seconds(args: Benchmark, folder: Path, output: Path) -> float:
    """A loaded data set to ids, in one process."""
    datasets.disable_progress_bars()
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)
    loaded = datasets.load_dataset("json", data_files=str(folder / "text.jsonl"), split="train", cache_dir=str(output))
    start = time.process_time()
    loaded.map(lambda batch: tokenizer(batch["text"], verbose=False), batched=True, remove_columns=["text"])
    return time.process_time() - start


def reference_seconds(args: Benchmark, folder: Path, output: Path) -> float:
    """Split sentences to one masked pass, in its own process."""
    assert args.reference is not None
    flags = {
        "input_file": folder / "sentences.txt",
        "output_file": output / "instances.tfrecord",
        "spm_model_file": args.tokenizer / "spiece.model",
        "vocab_file": "",
        "dupe_factor": 1,
    }
    words = [f"--{name}={value}" for name, value in flags.items()]
    environment = os.environ | {"PYTHONPATH": str(args.reference.resolve().parent)}
    process = subprocess.run(
        [args.reference_python, "-c", RUN_REFERENCE, *words], env=environment, capture_output=True, text=True
    )
    if process.returncode:
        raise SystemExit(process.stderr)
    return float(process.stdout.split()[-1])


def some_text(paths: tuple[Path, ...], megabytes: float) -> Iterator[str]:
    """The first documents, up to so many MB."""
    size = 0
    for text in read_corpus(paths):
        yield text
        size += len(text.encode())
        if size >= megabytes * 1e6:
            return


def write_json_lines(path: Path, texts: Iterator[str]) -> float:
    """Write one document per line: the MB of text."""
    size = 0
    with open(path, "w", encoding="utf-8") as file:
        for text in texts:
            file.write(json.dumps({"text": text}) + "\n")
            size += len(text.encode())
    return size / 1e6


main = harness.script(Benchmark, COLUMNS, measure)

if __name__ == "__main__":
    main()
