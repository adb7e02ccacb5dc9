"""`albert` in a child of the fork server: it tells its phases, and meets the fault that it is given."""

import functools
import hashlib
import importlib
import os
import runpy
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
from reliability.durable_calls import Fault, meet
from reliability.fork_server import tell

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


def warm_up() -> None:
    """Load what commands need, before the first child is made."""
    for name in (*(main.COMMANDS[command].module for command in COMMANDS), *WORK):
        importlib.import_module(name)
    measured_matmul_rate(torch.device("cpu"), "fp32")  # is measured once a process; children find it


def run(words: list[str], stand_still: str, tell_samples: bool, diverge_at: int | None, fault: dict | None) -> int:
    """Run a command; its exit code. Behind "python", `words` are a file that is run instead, and its words.

    The process stops for good at the moment `stand_still`: `after-save 2`, say. After `diverge_at` micro-batches there
    is no loss. `fault` has the fields of a `Fault`.
    """
    for place, name, phase in PHASES:
        setattr(place, name, telling(phase, getattr(place, name), stand_still))
    if tell_samples:
        batches.PretrainingBatches.micro_batches = telling_samples(batches.PretrainingBatches.micro_batches)
    if diverge_at is not None:
        pretrain.pretraining_objective = diverging(pretrain.pretraining_objective, diverge_at)
    if fault is not None:
        meet(Fault(**fault))
    return _run_file(words[1:]) if words[0] == "python" else main.run(words)


def _run_file(words: list[str]) -> int:
    sys.argv = words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def telling(phase: str, function, stand_still: str):
    """The same function, which tells `PHASE` and `after-PHASE` around each call."""
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
