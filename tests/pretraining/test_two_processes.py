"""Two processes under torchrun train what one process trains."""

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

from albert.checkpoints.model_directory import open_model
from albert.model.albert import AlbertForPreTraining
from albert.pretraining.batches import PretrainingBatches
from albert.pretraining.pretrain import pretrain
from albert.pretraining.samples import PretrainingSamples
from albert.pretraining.warm_start import Init
from albert.runtime.devices import seed_torch
from albert.runtime.journal import read_journal
from albert.runtime.strict_json import save_json
from albert.text.preparation.shards import TokenCorpus
from albert.training.curves import MACHINE_FIGURES
from albert.training.run_folder import RunFolder
from albert.training.training_state import TENSORS_NAME

TOLERANCE = 1e-5


def under_torchrun(recipe, corpus, run, *more) -> subprocess.CompletedProcess:
    """`albert pretrain` in two processes, with more words."""
    save_json(run.with_suffix(".json"), recipe)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "albert"]
    words = ["pretrain", run.with_suffix(".json"), "--data", corpus, "--output", run, "--device", "cpu", *more]
    return subprocess.run(
        [sys.executable, *launcher, *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
    )


def numbers(run, event) -> list[dict[str, float]]:
    timings = ("event", *MACHINE_FIGURES)
    records = [record for record in read_journal(run / "journal.jsonl") if record["event"] == event]
    return [{key: value for key, value in record.items() if key not in timings} for record in records]


def assert_the_same_training(run, reference):
    for event in ("train", "evaluation"):
        mine, theirs = numbers(run, event), numbers(reference, event)
        assert len(mine) == len(theirs) > 0
        for one, other in zip(mine, theirs, strict=True):
            assert one == pytest.approx(other, rel=TOLERANCE)
    weights, expected = (load_file(path / "model" / "model.safetensors") for path in (run, reference))
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        assert weights[name] == pytest.approx(tensor, abs=1e-5), name


@pytest.mark.parametrize(
    ("micro_batch_size", "objective"),
    [pytest.param(2, "sop", id="with accumulation"), pytest.param(32, "none", id="without a sentence objective")],
)
def test_two_processes_train_what_one_trains(tiny_recipe, tiny_corpus, tmp_path, micro_batch_size, objective):
    recipe = replace(
        tiny_recipe,
        sequences=replace(tiny_recipe.sequences, objective=objective),
        schedule=replace(tiny_recipe.schedule, total_steps=6),
        micro_batch_size=micro_batch_size,
        log_every=1,
        evaluate_every=3,
    )
    pretrain(recipe, tiny_corpus, tmp_path / "one", "cpu")
    done = under_torchrun(recipe, tiny_corpus, tmp_path / "two")
    assert done.returncode == 0, done.stderr
    assert_the_same_training(tmp_path / "two", tmp_path / "one")
    steps = [step for step, _ in RunFolder(tmp_path / "two").checkpoints()]
    assert steps == [step for step, _ in RunFolder(tmp_path / "one").checkpoints()]


def test_two_processes_start_from_a_trained_model_and_change_dropout_as_one_does(tiny_recipe, tiny_corpus, tmp_path):
    """Only the first opens the model; the others take its weights from the checkpoint of step 0."""
    recipe = replace(tiny_recipe, schedule=replace(tiny_recipe.schedule, total_steps=4), log_every=1, evaluate_every=2)
    source = pretrain(recipe, tiny_corpus, tmp_path / "source", "cpu").model
    changed = replace(recipe, model=replace(recipe.model, num_hidden_layers=3), seed=1, dropout_changes=((2, 0.0),))
    pretrain(changed, tiny_corpus, tmp_path / "one", "cpu", init=Init(model=str(source)))
    done = under_torchrun(changed, tiny_corpus, tmp_path / "two", "--init", source)
    assert done.returncode == 0, done.stderr
    assert_the_same_training(tmp_path / "two", tmp_path / "one")
    assert numbers(tmp_path / "two", "change") == [{"step": 2, "dropout": 0.0}]


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
        assert dealt == [samples.numbered(step * 8 + turn).token_ids.tolist() for turn in range(8)]
