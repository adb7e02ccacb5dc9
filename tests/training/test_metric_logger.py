"""Curves of every kind of run go to TensorBoard, Weights & Biases or trackio; a resumed run is one run there."""

import sys
import types

import pytest

from albert.cli.main import run
from albert.runtime.json_files import read_journal
from albert.training.metric_logger import IDENTITY_NAME


class Service:
    """Records the calls of the library of a service."""

    def __init__(self):
        self.runs = []

    def init(self, **settings):
        started = ServiceRun(settings)
        self.runs.append(started)
        return started


class ServiceRun:
    def __init__(self, settings):
        self.settings = settings
        self.points = []
        self.finished = False

    def define_metric(self, name, step_metric):
        assert (name, step_metric) == ("*", "step")

    def log(self, values, step=None):
        self.points.append((values["step"] if step is None else step, values))

    def finish(self):
        self.finished = True


@pytest.fixture
def services(monkeypatch):
    made = {name: Service() for name in ("wandb", "trackio")}
    for name, service in made.items():
        module = types.ModuleType(name)
        monkeypatch.setattr(module, "init", service.init, raising=False)
        monkeypatch.setitem(sys.modules, name, module)
    return made


KINDS = [
    ("pretrain", "wandb"),
    ("finetune", "wandb"),
    ("finetune", "trackio"),
    ("vectors", "wandb"),
    ("pairs", "trackio"),
]


@pytest.mark.parametrize(("kind", "log"), KINDS)
def test_the_curves_of_every_kind_of_run_are_sent(kind, log, commands, services, tmp_path):
    assert run([*commands[kind], "--output", str(tmp_path / "run"), f"log={log}"]) == 0
    [sent] = services[log].runs
    assert sent.finished and sent.settings["project"] == "albert" and sent.settings["resume"] == "allow"
    assert sent.settings["name"].startswith("run") and sent.settings["config"]
    losses = [(step, values["train/loss"]) for step, values in sent.points if "train/loss" in values]
    journal = read_journal(tmp_path / "run" / "journal.jsonl")
    assert losses == [(record["step"], record["loss"]) for record in journal if record["event"] == "train"]
    assert losses
    assert not (tmp_path / "run" / "tensorboard").exists()


@pytest.mark.parametrize("log", ["wandb", "trackio"])
def test_a_resumed_run_is_one_run_there(log, commands, services, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_PROJECT", "ours")
    monkeypatch.setenv("TRACKIO_PROJECT", "ours")
    command = [*commands["pretrain"], "log_every=1", "--output", str(tmp_path / "run"), f"log={log}"]
    assert run([*command, "max_tokens=1"]) == 0
    assert run(command) == 0
    first, second = services[log].runs
    assert first.settings["project"] == second.settings["project"] == "ours"
    assert {key: first.settings.get(key) for key in ("id", "name")} == {
        key: second.settings.get(key) for key in ("id", "name")
    }
    steps = [step for sent in (first, second) for step, values in sent.points if "train/loss" in values]
    assert steps == list(range(1, 9))


def test_the_service_may_change_while_a_run_goes_on(commands, services, tmp_path):
    command = [*commands["finetune"], "--output", str(tmp_path / "run")]
    assert run([*command, "log=wandb"]) == 0
    assert run([*command, "log=trackio"]) == 0  # finished: nothing more is sent
    assert not services["trackio"].runs
    assert run(command) == 0


@pytest.mark.parametrize(("kind", "log"), KINDS)
def test_a_missing_library_is_refused_before_anything_is_written(kind, log, commands, tmp_path, monkeypatch, refused):
    monkeypatch.setitem(sys.modules, log, None)
    refused([*commands[kind], "--output", str(tmp_path / "run"), f"log={log}"], 69, log, "is not installed", f"[{log}]")
    assert not (tmp_path / "run").exists()


def test_tensorboard_is_the_default(commands, tmp_path):
    assert run([*commands["finetune"], "--output", str(tmp_path / "run")]) == 0
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    assert not (tmp_path / "run" / IDENTITY_NAME).exists()
