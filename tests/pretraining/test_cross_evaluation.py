"""Several models on the same held-out texts: each as it would be alone, and refused by name."""

import shutil
from dataclasses import replace

import pytest
import torch
from scipy.stats import binomtest

from albert.checkpoints.model_directory import open_model, save_model_directory, write_model
from albert.model.albert import AlbertForMaskedLM, AlbertForPreTraining, AlbertForSequenceClassification
from albert.pretraining import evaluation as cross_evaluation
from albert.pretraining.evaluation import Score, evaluate_pretraining
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.run import pretrain
from albert.runtime.errors import InvalidConfiguration, MissingInput

KINDS = {"of-sop": "sop", "of-nsp": "nsp", "of-none": "none"}


@pytest.fixture(scope="module")
def models(tiny_recipe, tiny_corpus, tmp_path_factory):
    """Model directories by name; they differ in weights, and one knows longer sequences than the others."""
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    for name, objective in KINDS.items():
        config = replace(tiny_recipe.model, initializer_range=0.2)
        longest = 48 if name == "of-sop" else 32
        extra = {"sentence_objective": objective, "max_sequence_length": longest}
        save_model_directory(root / name, AlbertForPreTraining(config), tiny_corpus, extra=extra)
    save_model_directory(root / "masked-lm", AlbertForMaskedLM(tiny_recipe.model), tiny_corpus)
    save_model_directory(root / "classifier", AlbertForSequenceClassification(tiny_recipe.model, 2), tiny_corpus)
    return root


def asked(models, names, corpus, **options):
    return evaluate_pretraining([models / name for name in names], corpus, device="cpu", **options)


def test_models_together_get_the_figures_that_each_gets_alone(models, tiny_corpus):
    together = asked(models, KINDS, tiny_corpus)
    assert together.max_length == 32  # what all of them know
    for one in together.models:
        alone = evaluate_pretraining([one.model], tiny_corpus, max_length=32, device="cpu")
        assert alone.models == (one,) and alone.counts == together.counts
    assert [one.learnt for one in together.models] == list(KINDS.values())
    accuracies = [one.scores["masked_tokens"].accuracy for one in together.models]
    assert len({score.baseline for one in together.models for test, score in one.scores.items() if test[0] == "m"}) == 1
    assert len(set(accuracies)) > 1
    assert asked(models, ["of-sop"], tiny_corpus).max_length == 48


def test_a_head_for_one_thing_is_asked_for_the_other_and_no_head_for_neither(models, tiny_corpus):
    found = asked(models, KINDS, tiny_corpus, limit=40)
    sop, nsp, none = found.models
    assert set(sop.scores) == set(nsp.scores) == {"masked_tokens", "next_sentence", "sentence_order"}
    assert set(none.scores) == {"masked_tokens"} and set(found.counts) == set(sop.scores)
    assert asked(models, ["masked-lm"], tiny_corpus, limit=40).models[0].learnt == "none"
    alone = asked(models, ["of-sop"], tiny_corpus, limit=40, objectives=("none",))
    assert set(alone.counts) == {"masked_tokens"}
    reference = asked(models, ["of-sop"], tiny_corpus, limit=40, objectives=("sop-reference",))
    assert set(reference.models[0].scores) == {"masked_tokens", "reference_order"}


def test_short_sequences_may_keep_their_pairs_and_masks_may_be_those_of_the_run(models, tiny_corpus):
    alone = asked(models, ["of-sop"], tiny_corpus, max_length=24, limit=40)
    paired = asked(models, ["of-sop"], tiny_corpus, max_length=24, limit=40, keep_pairs=True)
    assert paired.counts["sentence_order"] > alone.counts["sentence_order"]
    fewer = asked(models, ["of-sop"], tiny_corpus, max_length=24, limit=40, masking=MaskingRecipe(share=0.05))
    assert 0 < fewer.counts["masked_tokens"] < 0.6 * alone.counts["masked_tokens"]


@pytest.mark.parametrize(("right", "count"), [(0, 10), (5, 10), (10, 10), (549, 1000), (1, 100_000)])
def test_intervals_are_wilsons(right, count):
    expected = binomtest(right, count).proportion_ci(0.95, method="wilson")
    assert Score(right / count, 0.0, 0.0, count).interval == pytest.approx((expected.low, expected.high), abs=1e-7)


def test_of_a_run_under_way_the_newest_checkpoint_is_asked(tiny_recipe, tiny_corpus, tmp_path):
    run = pretrain(replace(tiny_recipe, checkpoint_every=6), tiny_corpus, tmp_path / "run", "cpu")
    finished = evaluate_pretraining([run.run], tiny_corpus, limit=20, device="cpu").models[0]
    shutil.rmtree(run.model)
    last = evaluate_pretraining([run.run], tiny_corpus, limit=20, device="cpu").models[0]
    assert last.scores == finished.scores and not finished.notes
    assert last.notes == (f"{run.run} is under way: what is scored is its checkpoint of step 12",)
    shutil.rmtree(run.run / "checkpoints" / "step-00000012")
    before = evaluate_pretraining([run.run], tiny_corpus, limit=20, device="cpu").models[0]
    assert before.scores != last.scores and "step 6" in before.notes[0]


def test_all_models_are_looked_at_before_the_first_is_asked(models, tiny_corpus, tiny_recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(cross_evaluation.HeldOutTests, "evaluate", lambda *_, **__: pytest.fail("asked too early"))
    headless = tmp_path / "headless"
    headless.mkdir()
    write_model(headless, open_model(models / "of-sop", "encoder").model, tiny_corpus)
    for name, why in {
        models / "classifier": "has no head for the tasks of pre-training, it is an AlbertForSequenceClassification",
        headless: "has no head for the tasks of pre-training, it is an AlbertModel",
    }.items():
        with pytest.raises(InvalidConfiguration) as refusal:
            evaluate_pretraining([models / "of-sop", name], tiny_corpus, device="cpu")
        assert str(refusal.value).startswith(f"{name}: {why}")
    with pytest.raises(MissingInput, match="absent: no such directory"):
        asked(models, ["of-sop", "absent"], tiny_corpus)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_length": 65}, "max_length: is 65, {models}/of-sop has 64 positions"),
        ({"max_length": 0}, "sequences.max_length: is 0, at least 5 is needed"),
        ({"limit": 0}, "sequences: is 0, at least 1 sequence is needed"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(models, tiny_corpus, options, message):
    with pytest.raises(InvalidConfiguration) as refusal:
        asked(models, ["of-sop"], tiny_corpus, **options)
    assert str(refusal.value) == message.format(models=models)


def test_a_corpus_that_is_not_there_is_named(models, tmp_path):
    with pytest.raises(MissingInput, match="absent"):
        asked(models, ["of-sop"], tmp_path / "absent")
