"""Held-out figures: the same every time, beside the best constant answer."""

from collections import Counter
from dataclasses import replace

import pytest
import torch

from albert.checkpoints.model_directory import save_model_directory
from albert.model.albert import AlbertForPreTraining
from albert.pretraining.intrinsic_evaluation import EVALUATION_SEED, HeldOutSamples, evaluate_pretraining
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.samples import PretrainingSamples, SequenceRecipe
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.text.preparation.shards import TokenCorpus

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def held_out(tiny_corpus):
    return TokenCorpus.open(tiny_corpus, "held_out")


@pytest.fixture(scope="module")
def model_directory(tiny_recipe, tiny_corpus, tmp_path_factory):
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("evaluated") / "model"
    shaped = replace(tiny_recipe.model, initializer_range=0.2, hidden_dropout_prob=0.2)
    save_model_directory(directory, AlbertForPreTraining(shaped), tiny_corpus)
    return directory


def samples_of(held_out, limit=1000, batch_size=32, **sequences):
    recipe = SequenceRecipe(**{"max_length": 32, **sequences})
    return HeldOutSamples(PretrainingSamples(held_out, recipe, MaskingRecipe(), EVALUATION_SEED), limit, batch_size)


def test_the_same_model_gets_the_same_figures_twice(model_directory, tiny_corpus):
    found = [evaluate_pretraining(model_directory, tiny_corpus, device="cpu") for _ in range(2)]
    assert found[0] == found[1]
    tasks, figures = ("masked_tokens", "sentence_order"), ("loss", "accuracy", "baseline")
    assert set(found[0]) == {"sequences"} | {f"{task}_{figure}" for task in tasks for figure in figures}
    assert 0 < found[0]["masked_tokens_baseline"] < 0.5 <= found[0]["sentence_order_baseline"] < 1


def test_the_figures_do_not_depend_on_the_batches(held_out, tiny_recipe):
    model = AlbertForPreTraining(tiny_recipe.model).eval()
    one, other = (samples_of(held_out, batch_size=size).evaluate(model, CPU, "fp32", quiet=True) for size in (32, 5))
    assert one == pytest.approx(other, rel=1e-5)


def test_the_samples_are_the_same_whatever_ran_before(held_out):
    one, other = samples_of(held_out), samples_of(held_out)
    for a, b in zip(one.batches, other.batches, strict=True):
        assert torch.equal(a.packed.token_ids, b.packed.token_ids)
        assert torch.equal(a.masked_positions, b.masked_positions)
        assert torch.equal(a.order_labels, b.order_labels)


def test_the_baselines_are_the_best_constant_answers(held_out):
    samples = samples_of(held_out)
    tokens = Counter(label for batch in samples.batches for label in batch.masked_labels.tolist())
    orders = Counter(label for batch in samples.batches for label in batch.order_labels.tolist() if label >= 0)
    assert samples.baselines() == {
        "masked_tokens_baseline": max(tokens.values()) / tokens.total(),
        "sentence_order_baseline": max(orders.values()) / orders.total(),
    }


def test_without_an_order_to_predict_there_is_no_figure_about_it(held_out, tiny_recipe):
    model = AlbertForPreTraining(tiny_recipe.model).eval()
    figures = samples_of(held_out, objective="none").evaluate(model, CPU, "fp32", quiet=True)
    assert set(figures) == {"masked_tokens_loss", "masked_tokens_accuracy", "masked_tokens_baseline", "sequences"}


def test_an_untrained_model_guesses(held_out, tiny_recipe):
    figures = samples_of(held_out).evaluate(AlbertForPreTraining(tiny_recipe.model).eval(), CPU, "fp32", quiet=True)
    assert figures["masked_tokens_loss"] == pytest.approx(5.7, abs=0.2)
    assert figures["sentence_order_loss"] == pytest.approx(0.69, abs=0.05)


def test_a_limit_is_kept(held_out):
    samples = samples_of(held_out, limit=7, batch_size=3)
    assert [batch.packed.n_sequences for batch in samples.batches] == [3, 3, 1]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"max_length": 65}, "max_length: is 65, the model has 64 positions"),
        ({"max_length": 0}, "sequences.max_length: is 0, at least 5 is needed"),
        ({"limit": 0}, "sequences: is 0, at least 1 sequence is needed"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(model_directory, tiny_corpus, asked, message):
    with pytest.raises(InvalidConfiguration) as refusal:
        evaluate_pretraining(model_directory, tiny_corpus, **asked)
    assert str(refusal.value) == message


def test_a_corpus_that_is_not_there_is_named(model_directory, tmp_path):
    with pytest.raises(MissingInput, match="absent"):
        evaluate_pretraining(model_directory, tmp_path / "absent")
