"""Several processes, with replicated or sharded weights, train what one trains, and resume each other's runs."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from dev.reliability.runs import final_files
from safetensors.numpy import load_file
from tests.pretraining.conftest import events

from albert.checkpoints.model_directory import open_model
from albert.pretraining.initial_weights import Init
from albert.pretraining.run import pretrain, untrained_model
from albert.runtime.json_files import save_versioned
from albert.training.logging import MACHINE_METRICS
from albert.training.run_folder import RunFolder
from albert.training.state import TENSORS_NAME


@pytest.fixture(scope="module")
def recipe(tiny_recipe):
    """Twelve updates, each in the journal."""
    return replace(tiny_recipe, log_every=1, checkpoint_every=2, keep_checkpoints=1)


@pytest.fixture(scope="module")
def command(tiny_corpus):
    """The arguments of `albert pretrain` for a recipe and a run."""

    def command(recipe, run, *options) -> list[str]:
        path = run.with_suffix(".json")
        if not path.exists():
            save_versioned(path, recipe)
        words = ["pretrain", path, "--data", tiny_corpus, "--output", run, "--device", "cpu", *options]
        return list(map(str, words))

    return command


@pytest.fixture(scope="module")
def train(fork_server, command):
    """Run the command in a number of processes to the end; returns them."""

    def train(recipe, run, size, *options, tell_samples=False):
        runs = fork_server.start_world([command(recipe, run, *options)] * size, tell_samples=tell_samples)
        assert [process.finish() for process in runs] == [0] * size, [process.printed for process in runs]
        return runs

    return train


@pytest.fixture(scope="module")
def reference(recipe, train, tmp_path_factory):
    """The run of one process, and the samples of its steps."""
    directory = tmp_path_factory.mktemp("one") / "run"
    (process,) = train(recipe, directory, 1, tell_samples=True)
    return directory, process.samples


def samples_of(processes) -> dict[int, list[str]]:
    """The samples of the ranks in turn, by step."""
    steps = min((process.samples.keys() for process in processes), key=len)
    return {
        step: [digest for turn in zip(*(p.samples[step] for p in processes), strict=True) for digest in turn]
        for step in steps
    }


def assert_same_training(run, reference, rel=1e-6, with_optimizer=True):
    for event in ("train", "evaluation"):
        records = [
            [
                {k: v for k, v in record.items() if k not in ("event", *MACHINE_METRICS)}
                for record in events(path, event)
            ]
            for path in (run, reference)
        ]
        assert records[0]
        for ours, theirs in zip(*records, strict=True):
            assert ours == pytest.approx(theirs, rel=rel)
    files = [[path / "model" / "model.safetensors"] for path in (run, reference)]
    if with_optimizer:
        newest = [RunFolder(path).checkpoints()[-1] for path in (run, reference)]
        assert newest[0][0] == newest[1][0]
        for paths, (_, checkpoint) in zip(files, newest, strict=True):
            paths.append(checkpoint / TENSORS_NAME)
    for path, expected_path in zip(*files, strict=True):
        tensors, expected = load_file(path), load_file(expected_path)
        assert tensors.keys() == expected.keys()
        for name, tensor in expected.items():
            np.testing.assert_allclose(tensors[name], tensor, rtol=0, atol=1e-5, err_msg=name)


def test_two_processes_with_fixed_shapes_train_what_one_trains_without(recipe, train, tmp_path, reference):
    train(replace(recipe, fixed_shape=True), tmp_path / "run", 2)
    assert_same_training(tmp_path / "run", reference[0], rel=1e-4, with_optimizer=False)


@pytest.mark.parametrize(("size", "micro_batch_size", "parallelism"), [(2, 2, "data"), (4, 1, "sharded")])
def test_several_processes_train_what_one_trains(
    recipe, train, tmp_path, reference, size, micro_batch_size, parallelism
):
    recipe = replace(recipe, micro_batch_size=micro_batch_size, parallelism=parallelism)
    processes = train(recipe, tmp_path / "run", size, tell_samples=True)
    assert samples_of(processes) == reference[1]
    assert_same_training(tmp_path / "run", reference[0])


def test_a_run_is_resumed_by_another_number_of_processes(fork_server, command, recipe, tmp_path, reference):
    """Each number of processes takes two or four updates, with a checkpoint after each second one, and is killed."""
    samples = {}
    done = 0
    for size, parallelism, saves in ((2, "data", 1), (4, "sharded", 2), (2, "sharded", 2), (1, "data", 0)):
        words = command(recipe, tmp_path / "run", f"parallelism={parallelism}")
        moments = {0: f"after-save {saves}"} if saves else {}
        runs = fork_server.start_world([words] * size, moments, tell_samples=True)
        if saves:
            runs[0].wait_for("after-save", saves)
            for run in runs:
                run.kill()
        assert all(run.finish() == 0 for run in runs) == (saves == 0), [run.printed for run in runs]
        own = samples_of(runs)
        assert set(own) >= set(range(done, done + 2 * max(saves, 1)))
        samples |= own
        done += 2 * saves
    assert samples == reference[1]
    assert_same_training(tmp_path / "run", reference[0])
    assert "not be bit-identical" in runs[0].printed


def test_objective_none_trains_the_same_in_two_processes(recipe, train, tmp_path):
    """Weights that are not trained are saved all the same."""
    recipe = replace(recipe, sequences=replace(recipe.sequences, objective="none"), parallelism="sharded")
    for size in (1, 2):
        train(recipe, tmp_path / str(size), size)
    assert_same_training(tmp_path / "2", tmp_path / "1")


def test_warm_start_and_dropout_change_are_the_same_in_two_processes(recipe, train, tiny_corpus, tmp_path, reference):
    """Only the first rank opens the model; the others get its weights from the checkpoint of step 0."""
    source = reference[0] / "model"
    schedule, model = replace(recipe.schedule, total_steps=4), replace(recipe.model, num_hidden_layers=3)
    changes = {"schedule": schedule, "model": model, "seed": 1, "dropout_changes": ((2, 0.0),)}
    recipe = replace(recipe, parallelism="sharded", **changes)
    pretrain(recipe, tiny_corpus, tmp_path / "one", "cpu", init=Init(model=str(source)))
    train(recipe, tmp_path / "two", 2, "--init", source)
    assert_same_training(tmp_path / "two", tmp_path / "one")
    assert [(record["step"], record["dropout"]) for record in events(tmp_path / "two", "change")] == [(2, 0.0)]


def test_sharded_processes_start_from_the_same_model_and_draw_the_same_dropout(recipe, train, tmp_path, reference):
    model = replace(recipe.model, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    recipe = replace(recipe, model=model, schedule=replace(recipe.schedule, total_steps=6))
    for parallelism in ("data", "sharded"):
        run = tmp_path / parallelism
        train(replace(recipe, parallelism=parallelism), run, 2, "--init", reference[0] / "model")
    assert_same_training(tmp_path / "sharded", tmp_path / "data")


def test_sharded_processes_killed_after_the_last_checkpoint_write_its_model(
    fork_server, command, recipe, train, tmp_path, reference
):
    recipe = replace(recipe, parallelism="sharded")
    runs = fork_server.start_world([command(recipe, tmp_path / "run")] * 2, {0: "end 1"})
    runs[0].wait_until(lambda: runs[0].phase == "end")
    for run in runs:
        run.kill()
    assert not (tmp_path / "run" / "model").exists()
    train(recipe, tmp_path / "run", 2)
    assert_same_training(tmp_path / "run", reference[0])


@pytest.mark.parametrize(("lost", "parallelism"), [(0, "data"), (1, "sharded")])
def test_a_lost_process_ends_the_others_at_once(fork_server, command, recipe, tmp_path, lost, parallelism):
    """It is noticed by its closed connections, long before the time-out of thirty minutes."""
    words = command(replace(recipe, parallelism=parallelism), tmp_path / "run")
    runs = fork_server.start_world([words] * 2, {lost: "training 4"})
    runs[lost].wait_for("training", 4)
    assert runs[lost].kill()
    other = runs[1 - lost]
    assert other.finish() == 75, other.printed
    assert f"process {1 - lost}: lost another process; see its message; the same command resumes" in other.printed


def test_ranks_with_other_arguments_or_files_are_refused(fork_server, command, recipe, tmp_path, reference):
    words = command(recipe, tmp_path / "run")
    for commands, difference in (
        ([words, [*words, "seed=5"]], "recipe than rank 0; start all "),
        ([command(recipe, reference[0]), words], "newest checkpoint than rank 0"),
    ):
        runs = fork_server.start_world(commands)
        assert [run.finish() for run in runs] == [78, 78]
        assert f"rank 1: has another {difference}" in runs[0].printed
        assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_torchrun_restarts_a_run_whose_process_was_killed(command, recipe, train, tmp_path):
    """All processes resume from the newest checkpoint."""
    recipe = replace(recipe, schedule=replace(recipe.schedule, total_steps=30), checkpoint_every=5, evaluate_every=15)
    train(recipe, tmp_path / "reference", 2)
    launcher = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "3", "-m", "albert"]
    run = RunFolder(tmp_path / "run")
    with subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", *launcher, *command(recipe, run.path)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not run.checkpoints() and process.poll() is None:
            time.sleep(0.005)
        killed_at = run.checkpoints()[-1][0]
        os.kill(child_of_rank(process.pid, 1), signal.SIGKILL)
        _, printed = process.communicate(timeout=240)
    assert process.returncode == 0, printed
    assert killed_at < 30
    assert printed.count("training tokens are few") == 2, f"started once: {printed}"
    assert final_files(run.path) == final_files(tmp_path / "reference")


def child_of_rank(parent: int, rank: int) -> int:
    """The process that a launcher started as a rank."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if f"RANK={rank}" in Path(f"/proc/{child}/environ").read_text().split("\0"):
            return int(child)
    raise AssertionError(f"no process of rank {rank}")


def test_objective_none_leaves_the_sentence_head_as_initialised(tiny_recipe, tiny_corpus, tmp_path):
    """Fine-tuning needs the pooler, which weight decay alone would shrink to zero."""
    sequences = replace(tiny_recipe.sequences, objective="none")
    recipe = replace(tiny_recipe, sequences=sequences, schedule=replace(tiny_recipe.schedule, total_steps=6))
    pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu")
    initial = untrained_model(recipe).state_dict()
    _, last = RunFolder(tmp_path / "run").checkpoints()[-1]
    trained = load_file(last / TENSORS_NAME)
    for part in ("albert.pooler", "sop_classifier", "albert.encoder"):
        names = [name for name in initial if name.startswith(part)]
        unchanged = all(np.array_equal(trained[f"model.{name}"], initial[name].numpy()) for name in names)
        assert unchanged == (part != "albert.encoder"), part
    report = open_model(tmp_path / "run" / "model", "pretraining").loading_report
    assert {name.rsplit(".", 1)[0] for name in report.missing} == {"albert.pooler", "sop_classifier.classifier"}
