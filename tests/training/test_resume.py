"""A stopped, killed or diverged run resumes bit-identically; damaged and foreign checkpoints are refused."""

import os
import shutil
import signal

import pytest
import torch
from dev.reliability.runs import journal_of
from tests.refusals import refusal
from tests.training.conftest import (
    Interrupting,
    PointSource,
    checkpoint_steps,
    events,
    final_bytes,
    on_call,
    point_objective,
)

from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.runtime.environment import world
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.json_files import read_json_object
from albert.runtime.manifest import verify_directory
from albert.training import state
from albert.training.run_folder import STOPPING_SIGNALS, RunFolder, Stopped

IDENTITY = {"recipe": "r1", "corpus": "c1"}


# ---- stopped and killed runs -----------------------------------------------------------------------------------------


@pytest.fixture
def train_with_evaluation(train):
    def train_more(name="run", **settings):
        def evaluate():
            assert not train.model.training
            torch.rand(3)  # an evaluation may use the global generator
            with torch.no_grad():
                return {"score": float(train.model(torch.ones(1, 6))[1])}

        return train(name, evaluate=evaluate, evaluate_every=5, **settings)

    return train_more


@pytest.mark.parametrize(
    ("number", "code", "kind"),
    [
        (signal.SIGTERM, 143, "lamb"),
        (signal.SIGTERM, 143, "adamw"),
        (signal.SIGTERM, 143, "muon"),
        (signal.SIGINT, 130, "lamb"),
        (signal.SIGHUP, 129, "lamb"),
        (signal.SIGUSR1, 138, "lamb"),
        (signal.SIGUSR2, 140, "lamb"),
    ],
)
def test_a_signal_saves_a_checkpoint_and_the_resumed_run_is_bit_identical(
    train_with_evaluation, run, reference, number, code, kind
):
    settings, source = {"dropout": 0.3, "kind": kind}, PointSource(micro_batch_size=4)
    expected_model, expected = train_with_evaluation("reference", source=source, **settings)
    handlers = [signal.getsignal(each) for each in STOPPING_SIGNALS]
    with pytest.raises(Stopped, match=f"{signal.Signals(number).name} after saving; run the same command") as stop:
        train_with_evaluation(source=Interrupting(source, 5, number), **settings)
    assert stop.value.exit_code == code
    assert [signal.getsignal(each) for each in STOPPING_SIGNALS] == handlers
    assert checkpoint_steps(run) == [6]  # between the lines 4, 8 and 10 of the journal
    verify_directory(run.newest_checkpoint()[1])

    model, result = train_with_evaluation(source=source, **settings)
    assert final_bytes(run) == final_bytes(reference)
    assert all(map(torch.equal, model.parameters(), expected_model.parameters()))
    assert journal_of(run.path) == journal_of(reference.path)
    assert (result.steps, result.tokens, result.evaluation) == (expected.steps, expected.tokens, expected.evaluation)


@pytest.mark.parametrize("died_at", [1, 3, 4, 7, 9])
def test_a_killed_run_resumes_bit_identically(train, run, reference, died_at):
    """Also from a checkpoint between two lines of the journal, with lines written after it."""

    def fail():
        raise MemoryError

    settings = {"dropout": 0.3, "checkpoint_every": 3, "log_every": 2}
    train("reference", **settings)
    with pytest.raises(MemoryError):
        train(objective=on_call(died_at + 1, fail), **settings)
    assert checkpoint_steps(run) == [step for step in (3, 6, 9) if step <= died_at][-2:]
    train(**settings)
    assert final_bytes(run) == final_bytes(reference)
    assert journal_of(run.path) == journal_of(reference.path)


def test_a_second_interrupt_stops_at_once(train):
    source = Interrupting(Interrupting(PointSource(), 2, signal.SIGINT), 2, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        train(source=source)


@pytest.mark.parametrize("at", [4, 10])
def test_a_signal_interrupts_an_evaluation_and_the_resumed_run_evaluates_first(train, run, reference, at):
    def scores():
        return {"score": float(train.model.classifier.weight.detach().sum())}

    def signalled():
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the evaluation continues")

    settings = {"evaluate_every": at, "dropout": 0.3}
    train("reference", evaluate=scores, **settings)
    with pytest.raises(Stopped):
        train(evaluate=signalled, **settings)
    assert checkpoint_steps(run) == [at]
    assert not events(run, "evaluation")
    _, result = train(evaluate=scores, **settings)
    assert result.evaluation == scores()
    assert final_bytes(run) == final_bytes(reference)
    journals = (sorted(journal_of(r.path), key=lambda line: (line["step"], line["event"])) for r in (run, reference))
    assert next(journals) == next(journals)


# ---- data loading processes ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
def test_batches_and_weights_do_not_depend_on_the_number_of_loading_processes(train, tmp_path):
    numbers = {0: [], 1: [], 4: []}
    for workers, seen in numbers.items():

        def remember(model, batch, seen=seen):
            seen.append(batch.numbers)
            return point_objective(model, batch)

        source = PointSource(micro_batch_size=4)
        train(str(workers), source=source, objective=remember, workers=workers, dropout=0.3, total_steps=6)
    assert numbers[0] == numbers[1] == numbers[4]
    assert [number for chunk in numbers[0] for number in chunk] == list(range(48))
    assert len({final_bytes(RunFolder(tmp_path / str(workers))) for workers in numbers}) == 1


def test_loading_processes_ignore_signals(train, run):
    """A scheduler signals every process of a job; the parent still needs its batches, and saves."""

    def children():
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
            return {int(word) for word in file.read().split()}

    others = children()  # such as the fork server of other tests

    def signal_all():
        workers = children() - others
        assert len(workers) >= 2
        for process in (*workers, os.getpid()):
            os.kill(process, signal.SIGTERM)

    with pytest.raises(Stopped):
        train(objective=on_call(3, signal_all), workers=2, total_steps=100)
    assert 4 <= checkpoint_steps(run)[-1] <= 5


# ---- other machines --------------------------------------------------------------------------------------------------


def test_a_resume_in_another_environment_prints_a_note_and_is_recorded(train, run, monkeypatch, capsys, workers):
    train(total_steps=2)
    train(total_steps=3)
    assert "note" not in capsys.readouterr().err
    processor, capabilities = state.processor_name(), state.processor_capabilities()
    for name, value in (("processor_name", "Another 9000"), ("processor_capabilities", "AVX1"),
                        ("fp32_library", "Another library")):  # fmt: skip
        monkeypatch.setattr(state, name, lambda value=value: value)
    threads = torch.get_num_threads()
    workers(7)
    train(total_steps=4)
    note = capsys.readouterr().err
    assert f"processor {processor} → Another 9000, capabilities {capabilities} → AVX1, fp32_products" in note
    assert "→ Another library" in note
    assert f"threads {threads} → 7; the result will not be bit-identical" in note
    started, changed = events(run, "environment")
    assert (started["step"], started["now"]["processor"], started["changes"]) == (0, processor, {})
    assert (changed["step"], changed["now"]["processor"]) == (3, "Another 9000")
    assert changed["changes"]["capabilities"] == {"before": capabilities, "now": "AVX1"}
    train(total_steps=6)  # in the environment of the last part
    assert "note" not in capsys.readouterr().err


def test_values_that_older_runs_did_not_record_are_not_compared(capsys):
    now = state.training_environment(world(), torch.device("cpu"), torch.nn.Linear(2, 2), "bf16")
    old = {name: now[name] for name in ("torch", "device", "threads", "world_size", "parallelism")}
    assert state.report_environment_changes(old, now, world()) == {}
    assert capsys.readouterr().err == ""


def test_the_environment_of_a_gpu_has_its_name_and_compute_capability(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    now = state.training_environment(world(), torch.device("cuda"), torch.nn.Linear(2, 2), "bf16")
    assert (now["gpu"], now["compute_capability"], now["precision"]) == ("Some GPU", "9.0", "bf16")
    assert "processor" not in now
    assert (now["tf32"], now["deterministic"]) == ("off", "off")


# ---- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("different", ["recipe", "corpus"])
def test_a_run_with_another_recipe_or_corpus_is_refused(train, run, different):
    train(total_steps=2)
    before = final_bytes(run)
    with refusal(InvalidConfiguration, different) as error:
        train(identity=IDENTITY | {different: "other"}, total_steps=4)
    assert error.value.exit_code == 78
    assert checkpoint_steps(run) == [2] and final_bytes(run) == before


def test_a_damaged_newest_checkpoint_is_refused_and_the_error_names_the_newest_intact_one(train, run):
    train(checkpoint_every=2, keep_checkpoints=3, dropout=0.3)
    expected = final_bytes(run)
    newest = run.checkpoints()[-1][1]
    tensors = newest / "training_state.safetensors"
    content = bytearray(tensors.read_bytes())
    content[-1] ^= 1
    tensors.write_bytes(content)
    with pytest.raises(DamagedData, match=rf"remove {newest} to continue from step 8, which is intact") as error:
        train(dropout=0.3)
    assert error.value.exit_code == 65
    shutil.rmtree(newest)
    train(checkpoint_every=2, dropout=0.3)  # from the older checkpoint
    assert final_bytes(run) == expected
    for _, checkpoint in run.checkpoints():
        (checkpoint / "training_state.json").unlink()
    with pytest.raises(DamagedData, match=f"no older checkpoint is intact; remove {run.path} to start again"):
        train(checkpoint_every=2)


def test_a_checkpoint_with_the_name_of_another_step_is_refused(train, run):
    train(checkpoint_every=2, keep_checkpoints=3)
    older, newest = run.checkpoints()[-2:]
    shutil.rmtree(newest[1])
    shutil.copytree(older[1], newest[1])
    with pytest.raises(DamagedData, match=rf"state after step {older[0]}, its name says {newest[0]}; remove it"):
        train(checkpoint_every=2)


def test_a_finished_run_removes_checkpoints_beyond_the_number_to_keep(train, run):
    """As after a kill between a save and the removal of older checkpoints."""
    train(checkpoint_every=3, keep_checkpoints=3)
    assert checkpoint_steps(run) == [6, 9, 10]
    train(checkpoint_every=3, keep_checkpoints=2)
    assert checkpoint_steps(run) == [9, 10]


def test_a_checkpoint_holds_model_moments_progress_and_environment(train, run):
    train(kind="adamw")
    checkpoint = run.newest_checkpoint()[1]
    names = {"MANIFEST.json", "model.bin", "training_state.json", "training_state.safetensors"}
    assert {entry.name for entry in checkpoint.iterdir()} == names
    assert len({entry.stat().st_mode for entry in checkpoint.iterdir()}) == 1, "permissions of new files"
    saved = read_json_object(checkpoint / "training_state.json")
    assert (saved["step"], saved["tokens"], saved["identity"]) == (10, 480, IDENTITY)
    keys = {"torch", "threads", "world_size", "device", "processor", "capabilities", "fp32_products", "precision"}
    assert keys <= set(saved["environment"])


@pytest.mark.parametrize("kind", ["adamw", "lamb", "muon"])
def test_a_resumed_optimizer_has_its_state_on_the_device(train, make_model, run, kind):
    """Step counts, too (pytorch#104767); the meta device stands for a GPU."""
    train(kind=kind)
    model = make_model().to("meta")
    optimizer = build_optimizer(OptimizerRecipe(kind=kind), model)
    state.read_training_state(run.newest_checkpoint()[1], model, optimizer, IDENTITY, step=10)
    values = [value for entries in optimizer.state.values() for value in entries.values()]
    matrices = 2 if kind == "muon" else 0  # with one moment and no step count
    assert {value.device.type for value in values} == {"meta"}
    assert len(values) == 3 * len(list(model.parameters())) - 2 * matrices
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
