import os
import shutil
import signal

import pytest
import torch
from reliability.runs import journal_of
from tests.training.conftest import Interrupting, final_bytes, steps_kept

from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.runtime.environment import world
from albert.runtime.errors import DamagedData, Diverged, InvalidConfiguration
from albert.runtime.json_files import read_journal, read_json_object
from albert.runtime.manifest import verify_directory
from albert.training import state as circumstances
from albert.training.run_folder import RunFolder, Stopped
from albert.training.update import Sums


@pytest.fixture
def learn_with_evaluation(learn, make_model):
    def learn_more(name="run", **settings):
        def evaluate():
            assert not learn.model.training
            torch.rand(3)  # an evaluation may draw as it likes
            with torch.no_grad():
                return {"score": float(learn.model(torch.ones(1, 6))[1])}

        return learn(name, evaluate=evaluate, evaluate_every=5, **settings)

    return learn_more


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("kind", ["lamb", "adamw", "muon"])
def test_a_signal_saves_at_that_step_and_the_same_command_ends_bit_identical(
    learn_with_evaluation, run, tmp_path, source_of, number, code, kind
):
    settings = {"dropout": 0.3, "kind": kind}
    source = source_of(micro_batch_size=4)
    reference, whole = learn_with_evaluation("reference", source=source, **settings)
    handlers = [signal.getsignal(some) for some in (signal.SIGTERM, signal.SIGINT)]
    with pytest.raises(Stopped, match=f"{signal.Signals(number).name} after saving; run the same command") as stop:
        learn_with_evaluation(source=Interrupting(source, 5, number), **settings)
    assert stop.value.exit_code == code
    assert [signal.getsignal(some) for some in (signal.SIGTERM, signal.SIGINT)] == handlers
    assert steps_kept(run) == [6]  # in the middle of a window of the journal, whose lines are 4, 8 and 10
    verify_directory(run.newest_checkpoint()[1])

    model, result = learn_with_evaluation(source=source, **settings)
    assert final_bytes(run) == final_bytes(RunFolder(tmp_path / "reference"))
    for mine, theirs in zip(model.parameters(), reference.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    assert journal_of(run.path) == journal_of(tmp_path / "reference")
    assert (result.steps, result.tokens, result.evaluation) == (whole.steps, whole.tokens, whole.evaluation)


@pytest.mark.parametrize("died_at", [1, 3, 4, 7, 9])
def test_a_run_that_died_goes_on_as_if_it_had_not(learn, objective, run, tmp_path, died_at):
    """Also when its newest checkpoint lies in the middle of a window, and lines after it were written."""
    settings = {"dropout": 0.3, "checkpoint_every": 3, "log_every": 2}
    learn("reference", **settings)
    calls = []

    def dying(model, batch):
        calls.append(batch)
        if len(calls) == died_at + 1:
            raise MemoryError
        return objective(model, batch)

    with pytest.raises(MemoryError):
        learn(objective=dying, **settings)
    assert steps_kept(run) == [step for step in (3, 6, 9) if step <= died_at][-2:]
    learn(**settings)
    assert final_bytes(run) == final_bytes(RunFolder(tmp_path / "reference"))
    assert journal_of(run.path) == journal_of(tmp_path / "reference")


def test_a_run_that_died_right_after_a_save_lets_older_checkpoints_go(learn, run):
    """Also where nothing is left to train, and so nothing to save."""
    learn(checkpoint_every=3, keep_checkpoints=3)
    assert steps_kept(run) == [6, 9, 10]
    learn(checkpoint_every=3, keep_checkpoints=2)
    assert steps_kept(run) == [9, 10]


def test_a_resume_under_other_circumstances_says_so(learn, monkeypatch, capsys):
    learn(total_steps=2)
    learn(total_steps=4)
    assert "note" not in capsys.readouterr().err
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    learn(total_steps=6)
    assert f"goes on with threads {threads} → 7: not bit for bit as before" in capsys.readouterr().err


def test_a_resume_on_another_processor_says_so_and_the_journal_keeps_it(learn, run, monkeypatch, capsys):
    learn(total_steps=2)
    first = circumstances.processor_name()
    kept = circumstances.processor_capabilities()
    monkeypatch.setattr(circumstances, "processor_name", lambda: "Another 9000")
    monkeypatch.setattr(circumstances, "processor_capabilities", lambda: "AVX2")
    monkeypatch.setattr(circumstances, "fp32_library", lambda: "Another library")
    learn(total_steps=4)
    said = capsys.readouterr().err
    assert f"goes on with processor {first} → Another 9000, capabilities {kept} → AVX2, fp32_products" in said
    assert "→ Another library: not bit for bit as before" in said
    begun, changed = [record for record in read_journal(run.journal_path) if record["event"] == "circumstances"]
    assert (begun["step"], begun["now"]["processor"], begun["changes"]) == (0, first, {})
    assert (changed["step"], changed["now"]["processor"]) == (2, "Another 9000")
    assert changed["changes"]["capabilities"] == {"before": kept, "now": "AVX2"}
    learn(total_steps=6)  # as before from now on
    assert "note" not in capsys.readouterr().err


def test_what_older_runs_did_not_record_is_not_compared(capsys):
    now = circumstances.training_environment(world(), torch.device("cpu"), torch.nn.Linear(2, 2), "bf16")
    old = {name: now[name] for name in ("torch", "device", "threads", "world_size", "parallelism")}
    assert circumstances.report_environment_changes(old, now, world()) == {}
    assert capsys.readouterr().err == ""


def test_of_a_gpu_its_name_and_compute_capability_count(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU")
    now = circumstances.training_environment(world(), torch.device("cuda"), torch.nn.Linear(2, 2), "bf16")
    assert (now["gpu"], now["compute_capability"], now["precision"]) == ("Some GPU", "9.0", "bf16")
    assert "processor" not in now
    assert (now["tf32"], now["deterministic"]) == ("off", "off")


def test_a_diverged_run_keeps_its_last_checkpoint(learn, objective, run):
    calls = []

    def diverging(model, batch):
        calls.append(batch)
        sums = objective(model, batch)
        return sums if len(calls) < 6 else Sums(losses={"class": sums.losses["class"] * float("inf")})

    with pytest.raises(Diverged) as failure:
        learn(objective=diverging, checkpoint_every=2)
    assert failure.value.exit_code == 3
    assert steps_kept(run) == [2, 4]
    run.newest_checkpoint()
    learn()
    assert steps_kept(run)[-1] == 10


@pytest.mark.filterwarnings("ignore:This DataLoader will create 4 worker processes")
def test_any_number_of_workers_gives_the_same_batches_and_weights(learn, objective, tmp_path, source_of):
    seen = {}
    for workers in (0, 1, 4):
        numbers = seen[workers] = []

        def remember(model, batch, numbers=numbers):
            numbers.append(batch.numbers)
            return objective(model, batch)

        source = source_of(micro_batch_size=4)
        learn(str(workers), source=source, objective=remember, workers=workers, dropout=0.3, total_steps=6)
    assert seen[0] == seen[1] == seen[4]
    assert [number for chunk in seen[0] for number in chunk] == list(range(48))
    assert len({final_bytes(RunFolder(tmp_path / name)) for name in ("0", "1", "4")}) == 1


def test_workers_leave_signals_to_their_parent(learn, objective, run):
    """A scheduler signals every process of a job; the parent still gets its batches, and saves."""
    calls = []

    def signalled(model, batch):
        calls.append(batch)
        if len(calls) == 3:
            children = f"/proc/self/task/{os.getpid()}/children"
            with open(children, encoding="ascii") as file:
                workers = [int(word) for word in file.read().split()]
            assert len(workers) >= 2
            for process in (*workers, os.getpid()):
                os.kill(process, signal.SIGTERM)
        return objective(model, batch)

    with pytest.raises(Stopped):
        learn(objective=signalled, workers=2, total_steps=100)
    assert 4 <= steps_kept(run)[-1] <= 5


@pytest.mark.parametrize("different", ["recipe", "corpus"])
def test_a_run_of_another_recipe_or_corpus_is_refused_by_what_differs(learn, run, different):
    learn(total_steps=2)
    before = final_bytes(run)
    identity = {"recipe": "r1", "corpus": "c1"} | {different: "other"}
    with pytest.raises(InvalidConfiguration, match=f"was trained with another {different}; ") as refusal:
        learn(identity=identity, total_steps=4)
    assert refusal.value.exit_code == 78
    assert steps_kept(run) == [2] and final_bytes(run) == before


def test_a_damaged_newest_checkpoint_is_refused_and_the_whole_one_named(learn, run):
    learn(checkpoint_every=2, keep_checkpoints=3)
    newest = run.checkpoints()[-1][1]
    state = newest / "training_state.safetensors"
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)
    with pytest.raises(DamagedData, match=rf"remove {newest} to go on from step 8, which is intact") as refusal:
        learn(checkpoint_every=2)
    assert refusal.value.exit_code == 65

    for _, older in run.checkpoints()[:-1]:
        (older / "training_state.json").unlink()
    with pytest.raises(DamagedData, match=f"no older checkpoint is intact; remove {run.path} to start again"):
        learn(checkpoint_every=2)


def test_a_checkpoint_under_the_name_of_another_step_is_refused(learn, run):
    learn(checkpoint_every=2, keep_checkpoints=3)
    older, newest = run.checkpoints()[-2:]
    shutil.rmtree(newest[1])
    shutil.copytree(older[1], newest[1])
    with pytest.raises(DamagedData, match=rf"state after step {older[0]}, its name says {newest[0]}; remove it"):
        learn(checkpoint_every=2)


def test_going_on_from_the_older_checkpoint_ends_the_same(learn, run):
    learn(checkpoint_every=2, dropout=0.3)
    expected = final_bytes(run)
    (run.checkpoints()[-1][1] / "training_state.safetensors").unlink()
    with pytest.raises(DamagedData, match="step 8"):
        learn(dropout=0.3)
    newest = run.checkpoints()[-1][1]
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    learn(checkpoint_every=2, dropout=0.3)
    assert final_bytes(run) == expected


def test_the_newest_checkpoints_are_kept_and_never_fewer(learn, run, objective):
    seen = set()

    def watching(model, batch):
        seen.add(tuple(steps_kept(run)))
        return objective(model, batch)

    learn(objective=watching, checkpoint_every=2, keep_checkpoints=3)
    assert seen == {(), (2,), (2, 4), (2, 4, 6), (4, 6, 8)}
    assert steps_kept(run) == [6, 8, 10]


def test_a_checkpoint_holds_the_model_the_moments_and_how_far_it_had_come(learn, run):
    learn(kind="adamw")
    checkpoint = run.newest_checkpoint()[1]
    assert {entry.name for entry in checkpoint.iterdir()} == {
        "MANIFEST.json",
        "model.bin",
        "training_state.json",
        "training_state.safetensors",
    }
    assert len({entry.stat().st_mode for entry in checkpoint.iterdir()}) == 1, "readable to whom new files are"
    state = read_json_object(checkpoint / "training_state.json")
    assert (state["step"], state["tokens"], state["identity"]) == (10, 480, {"recipe": "r1", "corpus": "c1"})
    assert {
        "torch",
        "threads",
        "world_size",
        "device",
        "processor",
        "capabilities",
        "fp32_products",
        "precision",
    } <= set(state["circumstances"])


@pytest.mark.parametrize("kind", ["adamw", "lamb", "muon"])
def test_what_fused_optimizers_read_lies_on_the_device_after_a_resume(learn, make_model, run, kind):
    """The count of steps too (pytorch#104767); torch's meta device stands for a GPU, and any step would fail there."""
    learn(kind=kind)
    model = make_model().to("meta")
    optimizer = build_optimizer(OptimizerRecipe(kind=kind), model)
    circumstances.read_training_state(
        run.newest_checkpoint()[1], model, optimizer, {"recipe": "r1", "corpus": "c1"}, step=10
    )
    kept = [value for state in optimizer.state.values() for value in state.values()]
    matrices = 2 if kind == "muon" else 0  # of which it keeps one moment and no count
    assert {value.device.type for value in kept} == {"meta"}
    assert len(kept) == 3 * len(list(model.parameters())) - 2 * matrices
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()


def test_a_second_interrupt_stops_at_once(learn, source_of):
    source = Interrupting(Interrupting(source_of(), 2, signal.SIGINT), 2, signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        learn(source=source)


@pytest.mark.parametrize("at", [4, 10])
def test_a_signal_during_an_evaluation_drops_it_and_the_run_that_goes_on_evaluates(learn, run, tmp_path, at):
    def scores():
        return {"score": float(learn.model.classifier.weight.detach().sum())}

    def signalled():
        os.kill(os.getpid(), signal.SIGTERM)
        raise AssertionError("the evaluation goes on")

    reference, settings = RunFolder(tmp_path / "reference"), {"evaluate_every": at, "dropout": 0.3}
    learn("reference", evaluate=scores, **settings)
    with pytest.raises(Stopped):
        learn(evaluate=signalled, **settings)
    assert steps_kept(run) == [at]
    assert not [record for record in journal_of(run.path) if record["event"] == "evaluation"]
    _, result = learn(evaluate=scores, **settings)
    assert result.evaluation == scores()
    assert final_bytes(run) == final_bytes(reference)
    mine, theirs = (sorted(journal_of(some.path), key=lambda r: (r["step"], r["event"])) for some in (run, reference))
    assert mine == theirs
