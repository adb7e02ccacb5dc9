"""Held-out figures: the same every time, beside the best constant answer."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from albert.model.albert import AlbertForPreTraining
from albert.pretraining.evaluation import EVALUATION_SEED, HeldOutSamples, HeldOutTests, evaluate_pretraining
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.run import pretrain
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.runtime.json_files import read_journal
from albert.text.shards import TokenCorpus

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def held_out(tiny_corpus):
    return TokenCorpus.open(tiny_corpus, "held_out")


def samples_of(held_out, limit=1000, batch_size=32, **sequences):
    recipe = SequenceRecipe(**{"max_length": 32, **sequences})
    return HeldOutSamples(PretrainingSamples(held_out, recipe, MaskingRecipe(), EVALUATION_SEED), limit, batch_size)


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
    assert {name for name in figures if name.startswith("sentence")} == set()


def test_masked_tokens_are_told_apart_by_whether_their_sequence_shows_them_elsewhere(held_out):
    """And by hand: of the rarer half of the masked tokens, the share right among those that can be seen."""
    samples = samples_of(held_out, batch_size=7)
    labels = Counter(label for batch in samples.batches for label in batch.masked_labels.tolist())
    frequent, seen = set(), 0
    for label, count in sorted(labels.items(), key=lambda one: (-one[1], one[0])):
        if seen >= labels.total() / 2:
            break
        frequent.add(label)
        seen += count
    shown, hidden, right = [], [], []
    for number, batch in enumerate(samples.batches):
        answers = np.arange(len(batch.masked_labels)) % (2 + number % 2) == 0
        right.append(answers)
        starts = np.cumsum([0, *batch.packed.lengths])
        places = batch.masked_positions.tolist()
        for answer, place, label in zip(answers, places, batch.masked_labels.tolist(), strict=True):
            sequence = int(np.searchsorted(starts, place, side="right")) - 1
            visible = set(range(starts[sequence], starts[sequence + 1])) - set(places)
            if label not in frequent:
                elsewhere = label in {int(batch.packed.token_ids[i]) for i in visible}
                (shown if elsewhere else hidden).append(bool(answer))
    assert shown and hidden
    assert samples._repetition(right) == {
        "masked_tokens_repeated_accuracy": pytest.approx(sum(shown) / len(shown)),
        "masked_tokens_unrepeated_accuracy": pytest.approx(sum(hidden) / len(hidden)),
    }


def test_an_untrained_model_guesses(held_out, tiny_recipe):
    figures = samples_of(held_out).evaluate(AlbertForPreTraining(tiny_recipe.model).eval(), CPU, "fp32", quiet=True)
    assert figures["masked_tokens_loss"] == pytest.approx(5.7, abs=0.2)
    assert figures["sentence_order_loss"] == pytest.approx(0.69, abs=0.05)


def test_a_limit_is_kept(held_out):
    samples = samples_of(held_out, limit=7, batch_size=3)
    assert [batch.packed.n_sequences for batch in samples.batches] == [3, 3, 1]


def asked_of(held_out, objectives, limit=1000):
    def samples(objective):
        recipe = SequenceRecipe(max_length=64, objective=objective)
        return PretrainingSamples(held_out, recipe, MaskingRecipe(), EVALUATION_SEED)

    return HeldOutTests(samples, objectives, limit)


def sequences_of(samples):
    """Of each sequence: its tokens as the model sees them, and the label of its order."""
    return [
        (tuple(tokens.tolist()), label)
        for batch in samples.batches
        for tokens, label in zip(
            batch.packed.token_ids.split(list(batch.packed.lengths)), batch.order_labels.tolist(), strict=True
        )
    ]


def test_all_tests_ask_about_the_same_texts(held_out):
    tests = asked_of(held_out, ("sop", "nsp")).tests
    assert list(tests) == ["masked_tokens", "next_sentence", "sentence_order"]
    plain, nsp, sop = (sequences_of(samples) for samples in tests.values())
    changed = 0
    for (text, nothing), (of_nsp, next_label), (of_sop, order_label) in zip(plain, nsp, sop, strict=True):
        assert nothing == -100 and (next_label == -100) == (order_label == -100)
        assert len(text) == len(of_sop)
        if order_label != 1:
            assert of_sop == text  # masks included
        if next_label != 1:
            assert of_nsp == text
        changed += order_label == 1 and next_label == 1
    assert changed > 5


@pytest.mark.parametrize("answer", [0, 1])
def test_one_head_answers_every_sentence_test(held_out, tiny_recipe, answer):
    """A head that gives one answer is right about as many pairs as have that label: 0 in order, or truly next."""
    model = AlbertForPreTraining(tiny_recipe.model).eval()
    model.sop_classifier.classifier.weight.data.zero_()
    model.sop_classifier.classifier.bias.data[answer] = 9.0
    tests = asked_of(held_out, ("nsp", "sop"))
    figures = tests.evaluate(model, CPU, "fp32", quiet=True)
    for test in ("next_sentence", "sentence_order"):
        labels = [label for _, label in sequences_of(tests.tests[test]) if label >= 0]
        assert tests.counts[test] == len(labels)
        assert figures[f"{test}_accuracy"] == pytest.approx(labels.count(answer) / len(labels))
        assert figures[f"{test}_baseline"] == max(labels.count(0), labels.count(1)) / len(labels)


def test_without_a_sentence_head_masked_tokens_alone_are_asked(held_out, tiny_recipe):
    model = AlbertForPreTraining(tiny_recipe.model).eval()
    tests = asked_of(held_out, ("nsp", "sop"), limit=20)
    figures = tests.evaluate(model, CPU, "fp32", quiet=True, sentence_head=False)
    assert {name for name in figures if name.startswith("sentence")} == set()
    assert figures == asked_of(held_out, ("none",), limit=20).evaluate(model, CPU, "fp32", quiet=True)


def test_a_run_that_asks_for_more_writes_all_of_it_into_its_journal(tiny_recipe, tiny_corpus, tmp_path):
    """And the command finds the same of the finished model."""
    sequences = replace(tiny_recipe.sequences, objective="nsp")
    recipe = replace(tiny_recipe, sequences=sequences, evaluation_objectives=("sop", "nsp"))
    run = pretrain(recipe, tiny_corpus, tmp_path / "run", "cpu")
    plain = pretrain(replace(tiny_recipe, sequences=sequences), tiny_corpus, tmp_path / "plain", "cpu")
    assert (run.model / "model.safetensors").read_bytes() == (plain.model / "model.safetensors").read_bytes()
    lines = [record for record in read_journal(tmp_path / "run/journal.jsonl") if record["event"] == "evaluation"]
    assert [line["step"] for line in lines] == [6, 12]
    found = evaluate_pretraining([tmp_path / "run"], tiny_corpus, limit=24, device="cpu")
    assert set(found.models[0].scores) == {"masked_tokens", "next_sentence", "sentence_order"}
    for test, score in found.models[0].scores.items():
        for kind in ("accuracy", "loss", "baseline"):
            assert lines[-1][f"{test}_{kind}"] == pytest.approx(getattr(score, kind), rel=1e-6)
    assert "next_sentence_accuracy" not in plain.evaluation and "sentence_order_accuracy" in plain.evaluation


@pytest.mark.parametrize(("constant", "told"), [(1.0, True), (-1.0, False)])
def test_a_run_is_told_when_it_stays_no_better_than_a_constant(
    tiny_corpus, tiny_recipe, tmp_path, monkeypatch, capsys, constant, told
):
    monkeypatch.setattr(HeldOutSamples, "baselines", lambda _: {"masked_tokens_baseline": constant})
    pretrain(tiny_recipe, tiny_corpus, tmp_path / "run", "cpu")
    assert capsys.readouterr().err.count("as before no better than a constant answer") == told  # at the second of two
