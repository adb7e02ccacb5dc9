"""Has imported everything, and runs `albert` in forked children: a start costs milliseconds, a death is no less one.

Reads lines of JSON: the words of a command (or "python", a file and its words), the environment, a file for what it
prints, where to stand still, which fault to meet. Tells on standard output, one line each: `PROCESS started`, `PROCESS
PHASE` and `PROCESS after-PHASE` around each phase of a child's work, `PROCESS ended CODE`.
"""

import functools
import hashlib
import importlib
import json
import os
import runpy
import select
import signal
import sys
import traceback

import torch

from albert.cli import main
from albert.pretraining import batches
from albert.pretraining import run as pretrain
from albert.runtime.devices import measured_matmul_rate
from albert.training import loop as steps
from albert.training import run_folder
from reliability.durable_calls import Fault, Faults

TOLD = 1
COMMANDS = ("pretrain", "finetune", "evaluate", "predict", "prepare", "tokenizer")
WORK = (
    *("albert.cli.tasks", "albert.cli.predict", "albert.inference.files", "albert.pretraining.run_identity"),
    *("torch._dynamo", "torch.profiler", "typeguard"),  # which torch's optimisers and tyro load when they are used
    *("sklearn.metrics", "rich._emoji_codes"),  # which the scores of a task and what is printed need
)
"""Imported before the first child is made: what reads the options, and what is loaded when there is work."""
PHASES = (
    (steps, "update", "training"),
    (run_folder.RunFolder, "save_checkpoint", "save"),
    (run_folder, "remove_directory", "rotation"),
    (pretrain._Run, "_evaluate", "evaluation"),
    (pretrain, "save_model_directory", "end"),
)
"""Where functions live that are phases of a run; what comes before the first is its start."""


def serve() -> None:
    """Run a command for each line, until there are no more lines and no more children."""
    for command in COMMANDS:
        importlib.import_module(main.COMMANDS[command].module)
    for module in WORK:
        importlib.import_module(module)
    measured_matmul_rate(torch.device("cpu"), "fp32")  # is measured once a process; children find it
    waiting, children, more = b"", set(), True
    while more or children:
        if more and select.select([0], [], [], 0.002)[0]:
            read = os.read(0, 1 << 16)
            more = bool(read)
            *lines, waiting = (waiting + read).split(b"\n")
            children |= {start(json.loads(line)) for line in lines}
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG if more else 0)
            if ended:
                children.remove(child)
                tell(f"ended {os.waitstatus_to_exitcode(status)}", child)


def start(request: dict) -> int:
    """Fork a child that runs one command."""
    child = os.fork()
    if child == 0:
        os.setsid()
        global TOLD
        TOLD = os.dup(TOLD)
        with open(request["printed"], "ab", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        tell("started")
        os.environ.update(request["environment"])
        for place, name, phase in PHASES:
            setattr(place, name, telling(phase, getattr(place, name), request["stand_still"]))
        if request["tell_samples"]:
            batches.PretrainingBatches.micro_batches = telling_samples(batches.PretrainingBatches.micro_batches)
        if request["diverge_at"] is not None:
            pretrain.pretraining_objective = diverging(pretrain.pretraining_objective, request["diverge_at"])
        if request["fault"] is not None:
            Faults(Fault(**request["fault"])).install()
        words = request["arguments"]
        os._exit(run_file(words[1:]) if words[0] == "python" else main.run(words))
    return child


def run_file(words: list[str]) -> int:
    """Run a Python file as a program with these words behind its name; its exit code."""
    sys.argv = words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def telling(phase: str, function, stand_still: str):
    """The same function, announced; the process stops for good at the moment `stand_still`: `after-save 2`, say."""
    calls = 0

    def at(moment: str) -> None:
        tell(moment)
        if f"{moment} {calls}" == stand_still:
            os.kill(os.getpid(), signal.SIGSTOP)

    @functools.wraps(function)
    def announced(*arguments, **options):
        nonlocal calls
        calls += 1
        at(phase)
        try:
            return function(*arguments, **options)
        finally:
            at(f"after-{phase}")

    return announced


def diverging(objective, micro_batch: int):
    """The same loss, which is no number from one micro-batch on."""
    calls = 0

    @functools.wraps(objective)
    def diverged(model, batch):
        nonlocal calls
        calls += 1
        sums = objective(model, batch)
        if calls > micro_batch:
            sums.losses["masked_tokens"] = sums.losses["masked_tokens"] * float("nan")
        return sums

    return diverged


def telling_samples(micro_batches):
    """The same method, which tells of a step what its samples are, masks and labels included: `samples STEP HASH…`."""

    @functools.wraps(micro_batches)
    def announced(self, step: int, rank: int, world_size: int):
        made = micro_batches(self, step, rank, world_size)
        tell(" ".join((f"samples {step}", *(digest for batch in made for digest in digests(batch)))))
        return made

    return announced


def digests(batch) -> list[str]:
    """Of each sample of a micro-batch."""
    found, begin = [], 0
    for number, length in enumerate(batch.packed.lengths):
        masked = (batch.masked_positions >= begin) & (batch.masked_positions < begin + length)
        parts = (
            batch.packed.token_ids[begin : begin + length],
            batch.packed.token_type_ids[begin : begin + length],
            batch.masked_positions[masked] - begin,
            batch.masked_labels[masked],
            batch.order_labels[number],
        )
        content = repr([part.tolist() for part in parts]).encode()
        found.append(hashlib.sha256(content).hexdigest()[:16])
        begin += length
    return found


def tell(what: str, process: int | None = None) -> None:
    """One short line, written at once: lines of several processes do not mix."""
    os.write(TOLD, f"{process or os.getpid()} {what}\n".encode())


if __name__ == "__main__":
    serve()
