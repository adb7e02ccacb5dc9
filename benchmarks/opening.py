"""Opening a model directory beside transformers: seconds and memory, each in a process of its own, in turns.

Both open the same files and then read every parameter once, because transformers maps the file and reads it only when
it is used; we copy, so that nobody who overwrites the file changes or kills a running model. Memory is the peak of the
resident set above what it was once everything was imported, less the same peak for a model of a few kilobytes (code
that is used for the first time takes memory too), in units of the file's size: 1 is one copy of the weights. Our own
directories carry a manifest; checking it reads the file once more, which is a row of its own. Seconds are told three
times: until the model is opened, until its weights have been read, and that with the imports of the process.

    python benchmarks/opening.py --presets albert-base albert-xlarge --rounds 7

`--cold-start` measures instead what a command takes from nothing to its answer: seconds of the processor (user and
system) of whole processes, beside those of the imports that it cannot do without.

    python benchmarks/opening.py --cold-start --rounds 9
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from harness import append_rows, in_turn, interleave, ratio, report

from albert.checkpoints.loading import WEIGHTS_NAME
from albert.checkpoints.model_directory import save_model_directory
from albert.cli.options import parse
from albert.model.albert import AlbertForPreTraining
from albert.model.config import PRESETS, AlbertConfig

OPENERS = {
    "albert": (
        "from albert.checkpoints.model_directory import open_model",
        "model = open_model({directory!r}, 'pretraining', verify=False).model",
    ),
    "albert, manifest checked": (
        "from albert.checkpoints.model_directory import open_model",
        "model = open_model({directory!r}, 'pretraining').model",
    ),
    "transformers": (
        "from transformers import AlbertForPreTraining",
        "model = AlbertForPreTraining.from_pretrained({directory!r})",
    ),
}
TINY = AlbertConfig(
    vocab_size=50, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24
)
FIGURES = ("weight_bytes", "import_seconds", "open_seconds", "ready_seconds", "total_seconds", "peak_copies")
COMPARED = ("ready_seconds", "total_seconds")
COLUMNS = ("preset", "opener", *FIGURES, *(f"{figure}_ratio" for figure in COMPARED))
COLD_STARTS = {
    "import torch": ("-c", "import torch"),
    "import torch, transformers.AlbertModel": (
        "-c",
        "import torch; from transformers import AlbertModel, AlbertTokenizer",
    ),
    "albert --help": ("-m", "albert", "--help"),
    "albert predict --help": ("-m", "albert", "predict", "--help"),
    "albert predict tiny": ("-m", "albert", "predict", "tiny", "--fill-mask", "The cat [MASK] on the mat."),
    "albert.load(tiny)": ("-c", "import albert; albert.load('tiny').fill_mask('The cat [MASK] on the mat.')"),
}
# Writing 5 to clear_refs makes the kernel forget the peak so far.
PROCESS = """
import json, sys, time
def memory(key):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))
started = time.perf_counter()
{imports}
imported = time.perf_counter()
before = memory("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
opening = time.perf_counter()
{opens}
opened = time.perf_counter()
assert sum(float(parameter.detach().sum()) for parameter in model.parameters()) != 0
ready = time.perf_counter()
print(json.dumps(dict(import_seconds=imported - started, open_seconds=opened - opening, ready_seconds=ready - opening,
                      peak_bytes=memory("VmHWM") - before)))
"""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare opening model directories with random weights. Linux alone tells a process its peak of memory.

    Example: python benchmarks/opening.py --presets albert-base albert-xlarge
    """

    presets: tuple[str, ...] = ("albert-base", "albert-xlarge")
    rounds: int = 7
    """Processes of each opener, taken in turns."""
    cold_start: bool = False
    """Measure what commands take in all, not the opening of models."""
    output: Path | None = None
    """results/benchmark-opening.csv, or -cold-start.csv."""


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "opening.py")
    if asked.cold_start:
        rows = _cold_starts(asked.rounds)
        report(asked.output or Path("results/benchmark-cold-start.csv"), ("process", "cpu_seconds", "lowest"), rows)
        return
    output = asked.output or Path("results/benchmark-opening.csv")
    with tempfile.TemporaryDirectory() as folder:
        _save(Path(folder) / "tiny", TINY)
        for preset in asked.presets:
            _save(Path(folder) / preset, PRESETS[preset])
            seen = _measure(asked.rounds, Path(folder) / preset, Path(folder) / "tiny")
            append_rows(output, COLUMNS, _report(preset, seen))


def _save(directory: Path, config: AlbertConfig) -> None:
    torch.manual_seed(0)
    save_model_directory(directory, AlbertForPreTraining(config), None)


def _cold_starts(rounds: int) -> list[list[object]]:
    def cpu_seconds() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    # with compiled bytecode, as pip installs it
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    how: dict[str, Any] = {"env": {**alone, "OMP_NUM_THREADS": "1"}, "check": True, "capture_output": True}
    systems = {name: partial(subprocess.run, [sys.executable, *words], **how) for name, words in COLD_STARTS.items()}
    found = interleave(systems, rounds, clock=cpu_seconds)
    return [[name, round(statistics.median(each), 2), round(min(each), 2)] for name, each in found.items()]


Seen = dict[str, dict[str, list[float]]]


def _measure(rounds: int, directory: Path, tiny: Path) -> Seen:
    """Opener -> figure -> one number a round."""
    seen: Seen = {name: {figure: [] for figure in FIGURES} for name in OPENERS}
    for number in range(rounds + 1):  # the first round warms up the cache of files
        for name in in_turn(list(OPENERS), number):
            found = _open_once(name, directory)
            found["weight_bytes"] = (directory / WEIGHTS_NAME).stat().st_size
            found["total_seconds"] = found["import_seconds"] + found["ready_seconds"]
            found["peak_copies"] = (found["peak_bytes"] - _open_once(name, tiny)["peak_bytes"]) / found["weight_bytes"]
            if number:
                for figure in FIGURES:
                    seen[name][figure].append(found[figure])
    return seen


def _open_once(name: str, directory: Path) -> dict[str, float]:
    imports, opens = OPENERS[name]
    code = PROCESS.format(imports=imports, opens=opens.format(directory=str(directory)))
    # transformers' progress bar costs it time, and threads that wait for each other disturb both
    alone = {**os.environ, "TQDM_DISABLE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True, env=alone)
    return json.loads(done.stdout)


def _report(preset: str, seen: Seen) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, figures in seen.items():
        medians = {figure: round(statistics.median(values), 3) for figure, values in figures.items()}
        ratios = [round(ratio(seen["transformers"][figure], figures[figure]), 2) for figure in COMPARED]
        told = ", ".join(f"{figure} {value:,}" for figure, value in medians.items())
        print(f"{preset}, {name}: {told}; as fast as transformers: ready {ratios[0]}, with imports {ratios[1]}")
        rows.append([preset, name, *medians.values(), *ratios])
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
