"""Every signal of a scheduler or a closed terminal ends every kind of run with a checkpoint, at the command line."""

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time

import pytest

from albert.cli.main import run
from albert.training.run_folder import RunFolder
from albert.training.state import TrainingState


@pytest.fixture
def signal_at(monkeypatch):
    """Send a signal to this process after an update of each run."""

    def send(number, step):
        add = TrainingState.add

        def add_and_signal(state, *arguments):
            add(state, *arguments)
            if state.step == step:
                os.kill(os.getpid(), number)

        monkeypatch.setattr(TrainingState, "add", add_and_signal)

    return send


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *(("pretrain", number) for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)),
        *(("finetune", number) for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)),
        ("vectors", signal.SIGUSR1),
        ("pairs", signal.SIGHUP),
    ],
)
def test_a_signal_ends_a_run_after_saving_and_the_same_command_finishes_it(
    kind, number, commands, tmp_path, signal_at, monkeypatch, refused
):
    command = [*commands[kind], "--output", str(tmp_path / "run")]
    signal_at(number, 3)
    refused(command, 128 + number, f"stopped by {signal.Signals(number).name} after saving", "same command")
    assert [step for step, _ in RunFolder(tmp_path / "run").checkpoints()] == [4]
    monkeypatch.undo()
    assert run(command) == 0
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()


def test_an_ignored_hangup_stays_ignored(commands, tmp_path, signal_at):
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signal_at(signal.SIGHUP, 3)
        assert run([*commands["finetune"], "--output", str(tmp_path / "run")]) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_handler_of_the_caller_is_left_alone(commands, tmp_path, signal_at):
    received = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: received.append(number))
    try:
        signal_at(signal.SIGUSR1, 3)
        assert run([*commands["finetune"], "--output", str(tmp_path / "run")]) == 0
        assert received == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_closed_terminal_ends_a_run_after_saving(commands, tmp_path):
    words = [*commands["pretrain"], "steps=100000", "log_every=1", "--output", str(tmp_path / "run")]
    ours, theirs = pty.openpty()

    def take_terminal():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        [sys.executable, "-m", "albert", *words], stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=take_terminal
    )
    os.close(theirs)
    journal = tmp_path / "run" / "journal.jsonl"
    os.set_blocking(ours, False)
    while not journal.is_file() or b'"train"' not in journal.read_bytes():
        assert process.poll() is None
        time.sleep(0.2)
        with contextlib.suppress(BlockingIOError):
            os.read(ours, 2**20)
    os.close(ours)
    assert process.wait(120) == 129
    [*_, last] = RunFolder(tmp_path / "run").checkpoints()
    steps = [json.loads(line)["step"] for line in journal.read_text().splitlines()]
    assert last[0] == max(steps)
