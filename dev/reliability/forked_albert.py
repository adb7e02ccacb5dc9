"""`albert` in a child of the fork server: reports the phases of a run, and injects a fault."""

import functools
import hashlib
import importlib
import os
import runpy
import signal
import sys
import traceback

import torch
from dev.reliability.durable_calls import Fault, inject
from dev.reliability.fork_server import tell

from albert.cli import main
from albert.pretraining import run as pretrain
from albert.pretraining import sampling, task
from albert.runtime.devices import measured_matmul_rate
from albert.training import loop as steps
from albert.training import run_folder

COMMANDS = ("pretrain", "finetune", "evaluate", "predict", "prepare", "tokenizer")
WORK = (
    *(
        "albert.report.runs",
        "albert.text.prepare",
        "albert.text.sentencepiece",
        "albert.inference.files",
        "albert.pretraining.initial_weights",
    ),
    *("albert.checkpoints.hub", "albert.columns.read", "albert.text.unknown"),
    *("torch._dynamo", "torch.profiler"),  # imported late by torch's optimisers
    *("sklearn.metrics", "rich._emoji_codes"),  # imported late for scores and tables
    *("albert.report.pictures", "torch.utils.tensorboard"),  # imported late by runs
)
"""Modules that commands import late; imported before the first fork."""
PHASES = (
    (steps, "update", "training"),
    (run_folder.RunFolder, "save_checkpoint", "save"),
    (run_folder, "remove_directory", "rotation"),
    (task.PretrainingTask, "evaluate", "evaluation"),
    (pretrain, "save_model_directory", "end"),
)
"""(owner, function, phase): the functions that are phases of a run; before the first of them it is in \"start\"."""


def warm_up() -> None:
    """Import what commands need, before the first fork."""
    for name in (*(main.COMMANDS[command].module for command in COMMANDS), *WORK):
        importlib.import_module(name)
    measured_matmul_rate(torch.device("cpu"), "fp32")  # cached per process, so children need not measure it


def run(words: list[str], pause_at: str, tell_samples: bool, diverge_at: int | None, fault: dict | None) -> int:
    """Run a command and return its exit code; if the first word is "python", run a Python file with arguments.

    `pause_at` is an event at which the process stops itself: `after-save 2`, say. After `diverge_at` micro-batches the
    loss is NaN. `fault` has the fields of a `Fault`.
    """
    for owner, name, phase in PHASES:
        setattr(owner, name, with_events(phase, getattr(owner, name), pause_at))
    if tell_samples:
        sampling.PretrainingBatches.micro_batches = with_samples(sampling.PretrainingBatches.micro_batches)
    if diverge_at is not None:
        task.pretraining_objective = diverging(task.pretraining_objective, diverge_at)
    if fault is not None:
        inject(Fault(**fault))
    return _run_file(words[1:]) if words[0] == "python" else main.run(words)


def _run_file(words: list[str]) -> int:
    sys.argv = words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def with_events(phase: str, function, pause_at: str):
    """The function with events `PHASE` and `after-PHASE` around each call."""
    calls = 0

    def report(event: str) -> None:
        tell(event)
        if f"{event} {calls}" == pause_at:
            os.kill(os.getpid(), signal.SIGSTOP)

    @functools.wraps(function)
    def wrapper(*arguments, **options):
        nonlocal calls
        calls += 1
        report(phase)
        try:
            return function(*arguments, **options)
        finally:
            report(f"after-{phase}")

    return wrapper


def diverging(objective, micro_batch: int):
    """The objective with a loss of NaN after a number of micro-batches."""
    calls = 0

    @functools.wraps(objective)
    def wrapper(model, batch):
        nonlocal calls
        calls += 1
        sums = objective(model, batch)
        if calls > micro_batch:
            sums.losses["masked_tokens"] = sums.losses["masked_tokens"] * float("nan")
        return sums

    return wrapper


def with_samples(micro_batches):
    """The method with an event `samples STEP HASH…` of the samples of each step, masks and labels included."""

    @functools.wraps(micro_batches)
    def wrapper(self, step: int, rank: int, world_size: int):
        batches = micro_batches(self, step, rank, world_size)
        tell(" ".join((f"samples {step}", *(digest for batch in batches for digest in digests(batch)))))
        return batches

    return wrapper


def digests(batch) -> list[str]:
    """A hash of each sample of a micro-batch."""
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
