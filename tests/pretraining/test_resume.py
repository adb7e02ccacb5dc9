"""A run that is killed again and again, at any moment, ends with the bytes of the run that was left alone."""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from albert.checkpoints.model_directory import open_model
from albert.runtime.journal import read_journal
from albert.runtime.manifests import verify_directory
from albert.runtime.strict_json import save_json
from albert.training.curves import MACHINE_FIGURES
from albert.training.run_folder import RunFolder

KILLS = 6
DEADLINE = 120.0
"""Seconds; far more than any wait should take."""

FORK_ON_DEMAND = """
import os, sys
from albert.cli import main, pretrain

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os.setsid()
        os.dup2(2, 1)
        os._exit(main.run(line.split("\\t")[:-1]))
    print("group", child, flush=True)
    print("code", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""A process that has imported the command already and runs it in children, which die no less for that."""


class Command:
    """`albert pretrain` as a process group that can be killed: `code` is its exit code once it has ended."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", "albert", *arguments]
        devnull = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, env=environment, stdout=devnull, stderr=devnull, start_new_session=True
        )
        self.group = self._process.pid

    def code(self) -> int | None:
        return self._process.poll()


class ForkedCommand:
    """The same in a child of a process that imported everything before."""

    def __init__(self, server: subprocess.Popen, arguments: list[str]) -> None:
        self._server, self._code = server, None
        server.stdin.write("".join(word + "\t" for word in arguments) + "\n")
        server.stdin.flush()
        self.group = self._told("group")

    def code(self) -> int | None:
        if self._code is None and select.select([self._server.stdout], [], [], 0)[0]:
            self._code = self._told("code")
        return self._code

    def _told(self, what: str) -> int:
        """The number the server tells; a test that failed may have left others unread."""
        word, number = "", ""
        while word != what:
            word, number = self._server.stdout.readline().split()
        return int(number)


@pytest.fixture(scope="module")
def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def server(environment):
    command = [sys.executable, "-c", FORK_ON_DEMAND]
    with subprocess.Popen(
        command,
        env=environment,
        text=True,
        bufsize=1,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture(scope="module")
def arguments_for(tiny_recipe, tiny_corpus, tmp_path_factory):
    """The words of the command for a run's directory."""
    model = replace(tiny_recipe.model, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)
    schedule = replace(tiny_recipe.schedule, total_steps=300)
    recipe = replace(tiny_recipe, model=model, schedule=schedule, checkpoint_every=2, evaluate_every=50)
    path = tmp_path_factory.mktemp("recipe") / "recipe.json"
    save_json(path, recipe)
    return lambda run: ["pretrain", str(path), "--data", str(tiny_corpus), "--output", str(run), "--device", "cpu"]


def wait_until(condition, command) -> None:
    """Return when the condition holds or the command has ended."""
    deadline = time.monotonic() + DEADLINE
    while not condition() and command.code() is None:
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def finish(command) -> None:
    wait_until(lambda: False, command)
    assert command.code() == 0


def kill(command) -> bool:
    """Kill the whole process group; whether it was still alive."""
    if command.code() is not None:
        return False
    with contextlib.suppress(ProcessLookupError):  # it may end by itself at this very moment
        os.killpg(command.group, signal.SIGKILL)
    wait_until(lambda: False, command)
    return command.code() == -signal.SIGKILL


def checkpoints_being_written(run: Path) -> list[str]:
    place = run / "checkpoints"
    return [entry.name for entry in place.iterdir() if ".tmp-" in entry.name] if place.is_dir() else []


def told(run: Path) -> list[dict]:
    return [{k: v for k, v in r.items() if k not in MACHINE_FIGURES} for r in read_journal(run / "journal.jsonl")]


def final_files(run: Path) -> dict[str, bytes]:
    newest = RunFolder(run).newest_checkpoint()[1]
    verify_directory(run / "model")
    return {
        "model": (run / "model" / "model.safetensors").read_bytes(),
        "checkpoint's model": (newest / "model.safetensors").read_bytes(),
        "training state": (newest / "training_state.safetensors").read_bytes(),
    }


@pytest.fixture(scope="module")
def reference(server, arguments_for, tmp_path_factory):
    """The run that nobody disturbed."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    finish(ForkedCommand(server, arguments_for(run)))
    return run


def test_a_run_killed_at_any_moment_ends_bit_identical(server, environment, arguments_for, reference, tmp_path):
    run = tmp_path / "run"
    moments = random.Random(time.time_ns())
    killed = 0
    ends = []
    for turn in range(KILLS):
        real = turn in (1, 4)
        command = Command(arguments_for(run), environment) if real else ForkedCommand(server, arguments_for(run))
        if turn % 2:  # during a save
            wait_until(lambda: checkpoints_being_written(run), command)
            time.sleep(moments.uniform(0, 0.003))
        elif turn:  # a moment after it made progress
            newest = RunFolder(run).checkpoints()[-1:]
            wait_until(lambda newest=newest: RunFolder(run).checkpoints()[-1:] != newest, command)
            time.sleep(moments.uniform(0, 0.1))
        else:  # before it could save anything, or soon after
            wait_until(run.exists, command)
            time.sleep(moments.uniform(0, 0.3))
        killed += kill(command)
        ends.append(command.code())
        for _, checkpoint in RunFolder(run).checkpoints():
            verify_directory(checkpoint)
    assert killed >= 1, f"no process met its end in time on this machine: {ends}"
    finish(ForkedCommand(server, arguments_for(run)))
    assert final_files(run) == final_files(reference)
    assert told(run) == told(reference)
    assert not [entry for entry in run.rglob(".*") if entry.name != ".lock"]


def test_a_run_stopped_by_a_signal_ends_bit_identical(server, arguments_for, reference, tmp_path):
    run = tmp_path / "run"
    for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        command = ForkedCommand(server, arguments_for(run))
        newest = RunFolder(run).checkpoints()[-1:]
        wait_until(lambda newest=newest: RunFolder(run).checkpoints()[-1:] != newest, command)
        os.killpg(command.group, number)
        wait_until(lambda: False, command)
        assert command.code() == code
        assert RunFolder(run).newest_checkpoint() is not None
    finish(ForkedCommand(server, arguments_for(run)))
    assert final_files(run) == final_files(reference)
    assert told(run) == told(reference)


def test_a_checkpoint_can_be_opened_as_a_model(reference):
    for _, checkpoint in RunFolder(reference).checkpoints():
        opened = open_model(checkpoint, "pretraining")
        report = opened.loading_report
        assert not (report.missing or report.unexpected or report.newly_initialised)
        assert opened.extra["sentence_objective"] == "sop"


def test_the_same_command_on_a_finished_run_changes_nothing(server, arguments_for, reference):
    before = final_files(reference), told(reference)
    finish(ForkedCommand(server, arguments_for(reference)))
    assert (final_files(reference), told(reference)) == before
