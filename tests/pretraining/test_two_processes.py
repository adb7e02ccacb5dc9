"""Any number of processes, sharded or not, train what one process trains, and go on with what others began."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reliability.runs import final_files
from safetensors.numpy import load_file

from albert.checkpoints.model_directory import open_model
from albert.model.albert import AlbertForPreTraining
from albert.pretraining.batches import PretrainingBatches
from albert.pretraining.run import pretrain
from albert.pretraining.run_identity import Init
from albert.pretraining.sampling import PretrainingSamples
from albert.runtime.devices import seed_torch
from albert.runtime.json_files import read_journal, save_json
from albert.text.shards import TokenCorpus
from albert.training.logging import MACHINE_METRICS
from albert.training.run_folder import RunFolder
from albert.training.state import TENSORS_NAME

TOLERANCE = 1e-6


def command(recipe, corpus, run, *more) -> list[str]:
    """The words of `albert pretrain`, on every rank."""
    path = run.with_suffix(".json")
    if not path.exists():
        save_json(path, recipe)
    words = ["pretrain", path, "--data", corpus, "--output", run, "--device", "cpu", *more]
    return list(map(str, words))


def numbers(run, event) -> list[dict[str, float]]:
    timings = ("event", *MACHINE_METRICS)
    records = [record for record in read_journal(run / "journal.jsonl") if record["event"] == event]
    return [{key: value for key, value in record.items() if key not in timings} for record in records]


def assert_the_same_training(run, reference):
    for event in ("train", "evaluation"):
        mine, theirs = numbers(run, event), numbers(reference, event)
        assert len(mine) == len(theirs) > 0
        for one, other in zip(mine, theirs, strict=True):
            assert one == pytest.approx(other, rel=TOLERANCE)
    assert_close(run / "model" / "model.safetensors", reference / "model" / "model.safetensors")
    newest, other = (RunFolder(path).checkpoints()[-1] for path in (run, reference))
    assert newest[0] == other[0]
    assert_close(newest[1] / TENSORS_NAME, other[1] / TENSORS_NAME)


def assert_close(path, expected_path):
    """The same names and shapes, and nearly the same numbers."""
    tensors, expected = load_file(path), load_file(expected_path)
    assert tensors.keys() == expected.keys()
    for name, tensor in expected.items():
        np.testing.assert_allclose(tensors[name], tensor, rtol=0, atol=1e-5, err_msg=name)


@pytest.fixture(scope="module")
def recipe(tiny_recipe):
    """Twelve updates, of which every one is told."""
    return replace(tiny_recipe, log_every=1, checkpoint_every=2, keep_checkpoints=1)


@pytest.fixture(scope="module")
def one_process(fork_server, recipe, tiny_corpus, tmp_path_factory):
    """The directory of the run of one process, and the samples of its steps."""
    directory = tmp_path_factory.mktemp("one") / "run"
    run = fork_server.start(command(recipe, tiny_corpus, directory), tell_samples=True)
    assert run.finish() == 0, run.printed
    return directory, run.samples


def samples_of_all(runs) -> dict[int, list[str]]:
    """What the ranks were dealt in turn, by step."""
    steps = min((run.samples.keys() for run in runs), key=len)
    return {
        step: [digest for turn in zip(*(run.samples[step] for run in runs), strict=True) for digest in turn]
        for step in steps
    }


@pytest.mark.parametrize("parallelism", ["data", "sharded"])
def test_two_processes_with_micro_batches_of_a_fixed_shape_train_what_one_trains_without(
    fork_server, recipe, tiny_corpus, tmp_path, one_process, parallelism
):
    recipe = replace(recipe, fixed_shape=True, parallelism=parallelism)
    runs = fork_server.start_world([command(recipe, tiny_corpus, tmp_path / "run")] * 2)
    assert [run.finish() for run in runs] == [0, 0], [run.printed for run in runs]
    for event in ("train", "evaluation"):
        for one, other in zip(numbers(tmp_path / "run", event), numbers(one_process[0], event), strict=True):
            assert one == pytest.approx(other, rel=1e-4)
    assert_close(tmp_path / "run" / "model" / "model.safetensors", one_process[0] / "model" / "model.safetensors")


@pytest.mark.parametrize(
    ("size", "micro_batch_size", "parallelism"),
    [(2, 2, "data"), (4, 1, "data"), (2, 32, "sharded"), (4, 1, "sharded")],
)
def test_several_processes_train_what_one_trains(
    fork_server, recipe, tiny_corpus, tmp_path, one_process, size, micro_batch_size, parallelism
):
    reference, samples = one_process
    recipe = replace(recipe, micro_batch_size=micro_batch_size, parallelism=parallelism)
    runs = fork_server.start_world([command(recipe, tiny_corpus, tmp_path / "run")] * size, tell_samples=True)
    assert [run.finish() for run in runs] == [0] * size, [run.printed for run in runs]
    assert samples_of_all(runs) == samples
    assert_the_same_training(tmp_path / "run", reference)


@pytest.mark.parametrize(
    "worlds",
    [
        [(1, "data"), (2, "data"), (1, "data")],
        [(2, "data"), (1, "data"), (2, "data")],
        [(2, "sharded"), (1, "sharded"), (4, "data")],
        [(2, "data"), (4, "sharded"), (2, "sharded")],
    ],
    ids=str,
)
def test_a_run_goes_on_in_another_world(fork_server, recipe, tiny_corpus, tmp_path, one_process, worlds):
    """Killed after four updates each, the rest is for another number of processes."""
    reference, expected = one_process
    samples = {}
    for number, (size, parallelism) in enumerate(worlds):
        words = command(recipe, tiny_corpus, tmp_path / "run", "--parallelism", parallelism)
        last = number == len(worlds) - 1
        runs = fork_server.start_world([words] * size, {} if last else {0: "after-save 2"}, tell_samples=True)
        if not last:
            runs[0].wait_for("after-save", 2)
            for run in runs:
                run.kill()
        assert last == all(run.finish() == 0 for run in runs), [run.printed for run in runs]
        told = samples_of_all(runs)
        assert set(told) >= set(range(4 * number, 4 * number + 4))
        samples |= told
    assert samples == expected
    assert_the_same_training(tmp_path / "run", reference)
    assert "not bit for bit as before" in runs[0].printed


@pytest.mark.parametrize("parallelism", ["data", "sharded"])
def test_several_processes_without_a_sentence_objective(fork_server, recipe, tiny_corpus, tmp_path, parallelism):
    """Weights that are not trained are there all the same."""
    recipe = replace(recipe, sequences=replace(recipe.sequences, objective="none"), parallelism=parallelism)
    for name, size in (("one", 1), ("two", 2)):
        runs = fork_server.start_world([command(recipe, tiny_corpus, tmp_path / name)] * size)
        assert [run.finish() for run in runs] == [0] * size, [run.printed for run in runs]
    assert_the_same_training(tmp_path / "two", tmp_path / "one")


@pytest.mark.parametrize("parallelism", ["data", "sharded"])
def test_several_processes_start_from_a_trained_model_and_change_dropout_as_one_does(
    fork_server, recipe, tiny_corpus, tmp_path, one_process, parallelism
):
    """Only the first opens the model; the others take its weights from the checkpoint of step 0."""
    source = one_process[0] / "model"
    recipe = replace(recipe, parallelism=parallelism, schedule=replace(recipe.schedule, total_steps=4))
    changed = replace(recipe, model=replace(recipe.model, num_hidden_layers=3), seed=1, dropout_changes=((2, 0.0),))
    pretrain(changed, tiny_corpus, tmp_path / "one", "cpu", init=Init(model=str(source)))
    words = command(changed, tiny_corpus, tmp_path / "two", "--init", source)
    runs = fork_server.start_world([words] * 2)
    assert [run.finish() for run in runs] == [0, 0], [run.printed for run in runs]
    assert_the_same_training(tmp_path / "two", tmp_path / "one")
    assert numbers(tmp_path / "two", "change") == [{"step": 2, "dropout": 0.0}]


def test_shards_draw_the_same_dropout_and_evaluate_without(fork_server, recipe, tiny_corpus, tmp_path):
    """On as many processes, the form in which the weights are kept makes no difference."""
    model = replace(recipe.model, hidden_dropout_prob=0.2, attention_probs_dropout_prob=0.2)
    for parallelism in ("data", "sharded"):
        words = command(replace(recipe, model=model, parallelism=parallelism), tiny_corpus, tmp_path / parallelism)
        runs = fork_server.start_world([words] * 2)
        assert [run.finish() for run in runs] == [0, 0], [run.printed for run in runs]
    assert_the_same_training(tmp_path / "sharded", tmp_path / "data")


def test_shards_whose_last_checkpoint_was_saved_write_the_model_of_that_checkpoint(
    fork_server, recipe, tiny_corpus, tmp_path, one_process
):
    words = command(replace(recipe, parallelism="sharded"), tiny_corpus, tmp_path / "run")
    runs = fork_server.start_world([words] * 2, {0: "end 1"})
    runs[0].wait_until(lambda: runs[0].phase == "end")
    for run in runs:
        run.kill()
    assert not (tmp_path / "run" / "model").exists()
    assert all(run.finish() == 0 for run in fork_server.start_world([words] * 2))
    assert_the_same_training(tmp_path / "run", one_process[0])


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("parallelism", ["data", "sharded"])
def test_the_loss_of_a_process_ends_the_others_at_once(fork_server, recipe, tiny_corpus, tmp_path, lost, parallelism):
    """A lost process is noticed by what it no longer answers, long before the time-out of thirty minutes."""
    words = command(replace(recipe, parallelism=parallelism), tiny_corpus, tmp_path / "run")
    runs = fork_server.start_world([words] * 2, {lost: "training 4"})
    runs[lost].wait_for("training", 4)
    assert runs[lost].kill()
    other = runs[1 - lost]
    assert other.finish() == 75, other.printed
    assert f"process {1 - lost}: lost another process; see its message; the same command resumes" in other.printed


def test_processes_that_were_started_differently_are_refused(fork_server, recipe, tiny_corpus, tmp_path):
    words = command(recipe, tiny_corpus, tmp_path / "run")
    runs = fork_server.start_world([words, [*words, "--seed", "5"]])
    assert [run.finish() for run in runs] == [78, 78]
    assert "rank 1: has another recipe than rank 0; start all with the same command" in runs[0].printed
    assert not (tmp_path / "run").exists()


def test_processes_that_do_not_see_the_same_files_are_refused(fork_server, recipe, tiny_corpus, tmp_path, one_process):
    words = [command(recipe, tiny_corpus, place) for place in (one_process[0], tmp_path / "elsewhere")]
    runs = fork_server.start_world(words)
    assert [run.finish() for run in runs] == [78, 78]
    assert "rank 1: has another newest checkpoint than rank 0" in runs[0].printed


def test_torchrun_brings_back_a_run_whose_process_was_killed(fork_server, recipe, tiny_corpus, tmp_path):
    """It restarts all processes, and they go on from the newest checkpoint."""
    recipe = replace(recipe, schedule=replace(recipe.schedule, total_steps=60), checkpoint_every=5, evaluate_every=30)
    runs = fork_server.start_world([command(recipe, tiny_corpus, tmp_path / "undisturbed")] * 2)
    assert [run.finish() for run in runs] == [0, 0], [run.printed for run in runs]
    launcher = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "3", "-m", "albert"]
    words = [sys.executable, "-m", "torch.distributed.run", *launcher]
    run = RunFolder(tmp_path / "run")
    with subprocess.Popen(
        [*words, *command(recipe, tiny_corpus, run.path)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not run.checkpoints() and process.poll() is None:
            time.sleep(0.005)
        killed_at = run.checkpoints()[-1][0]
        os.kill(child_of_rank(process.pid, 1), signal.SIGKILL)
        _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said
    assert killed_at < 60
    assert "lost another process" in said, said
    assert final_files(run.path) == final_files(tmp_path / "undisturbed")


def child_of_rank(parent: int, rank: int) -> int:
    """The process that a launcher started as a rank."""
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if f"RANK={rank}" in Path(f"/proc/{child}/environ").read_text().split("\0"):
            return int(child)
    raise AssertionError(f"no process of rank {rank}")


def test_without_a_sentence_objective_its_weights_stay_as_they_were_drawn(tiny_recipe, tiny_corpus, tmp_path):
    """A pooler that only decays would be gone when fine-tuning needs it."""
    sequences = replace(tiny_recipe.sequences, objective="none")
    recipe = replace(tiny_recipe, sequences=sequences, schedule=replace(tiny_recipe.schedule, total_steps=6))
    pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu")
    seed_torch("initialization", recipe.seed)
    drawn = AlbertForPreTraining(recipe.model).state_dict()
    _, last = RunFolder(tmp_path / "run").checkpoints()[-1]
    trained = load_file(last / TENSORS_NAME)
    for part in ("albert.pooler", "sop_classifier", "albert.encoder"):
        names = [name for name in drawn if name.startswith(part)]
        kept = all(np.array_equal(trained[f"model.{name}"], drawn[name].numpy()) for name in names)
        assert kept == (part != "albert.encoder"), part
    written = open_model(tmp_path / "run" / "model", "pretraining").loading_report
    assert {name.rsplit(".", 1)[0] for name in written.missing} == {"albert.pooler", "sop_classifier.classifier"}


@pytest.mark.parametrize("micro_batch_size", [1, 3, 8])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_the_ranks_share_the_same_samples_in_the_same_order(tiny_recipe, tiny_corpus, world_size, micro_batch_size):
    corpus = TokenCorpus.open(tiny_corpus, "train", verify=False)
    samples = PretrainingSamples(corpus, tiny_recipe.sequences, tiny_recipe.masking, seed=0)
    source = PretrainingBatches(samples, batch_size=8, micro_batch_size=micro_batch_size)
    for step in (0, samples.per_epoch // 8):  # the second batch reaches into the next epoch
        shares = []
        for rank in range(world_size):
            batches = source.micro_batches(step, rank, world_size)
            assert max(batch.packed.n_sequences for batch in batches) <= micro_batch_size
            shares.append([ids.tolist() for b in batches for ids in b.packed.token_ids.split(list(b.packed.lengths))])
        dealt = [shares[turn % world_size][turn // world_size] for turn in range(8)]
        assert dealt == [samples.sample(step * 8 + turn).token_ids.tolist() for turn in range(8)]
