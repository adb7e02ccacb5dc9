"""Held-out evaluation: figures of a run beside their baselines, and several models on the same texts."""

import shutil
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from tests.pretraining.conftest import events, model_bytes, prepare_texts
from tests.refusals import refusal

from albert.checkpoints.model_directory import open_model, save_model_directory, write_model
from albert.cli.main import run
from albert.model.albert import AlbertForMaskedLM, AlbertForPreTraining, AlbertForSequenceClassification
from albert.pretraining.evaluation import EVALUATION_SEED, HeldOutSamples, HeldOutTests, Score, evaluate_pretraining
from albert.pretraining.run import pretrain
from albert.pretraining.sampling import PretrainingSamples
from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.text.huggingface import SPECIAL_PIECES
from albert.text.shards import TokenCorpus
from albert.text.wordpiece import wordpiece_tokenizer

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def held_out(tiny_corpus):
    return TokenCorpus.open(tiny_corpus, "held_out")


@pytest.fixture
def model(tiny_recipe):
    return AlbertForPreTraining(tiny_recipe.model).eval()


def held_out_samples(held_out, limit=1000, batch_size=32, **sequences):
    recipe = SequenceRecipe(**{"max_length": 32, **sequences})
    return HeldOutSamples(PretrainingSamples(held_out, recipe, MaskingRecipe(), EVALUATION_SEED), limit, batch_size)


def figures_of(samples, model, **options):
    return samples.evaluate(model, CPU, "fp32", **options)


def test_figures_do_not_depend_on_the_batch_size(held_out, model):
    large, small = (figures_of(held_out_samples(held_out, batch_size=size), model) for size in (32, 5))
    assert large == pytest.approx(small, rel=1e-5)


def test_baselines_are_the_best_constant_predictions(held_out):
    samples = held_out_samples(held_out)
    tokens = Counter(label for batch in samples.batches for label in batch.masked_labels.tolist())
    orders = Counter(label for batch in samples.batches for label in batch.order_labels.tolist() if label >= 0)
    assert samples.baselines() == {
        "masked_tokens_baseline": max(tokens.values()) / tokens.total(),
        "sentence_order_baseline": max(orders.values()) / orders.total(),
    }


def test_objective_none_has_no_sentence_figures(held_out, model):
    figures = figures_of(held_out_samples(held_out, objective="none"), model)
    assert not any(name.startswith("sentence") for name in figures)


def test_repetition_splits_rare_masked_tokens_by_occurrence_elsewhere_in_the_sequence(held_out):
    samples = held_out_samples(held_out, batch_size=7)
    labels = Counter(label for batch in samples.batches for label in batch.masked_labels.tolist())
    frequent, covered = set(), 0
    for label, count in sorted(labels.items(), key=lambda item: (-item[1], item[0])):
        if covered >= labels.total() / 2:
            break
        frequent.add(label)
        covered += count
    expected, hits = {True: [], False: []}, []
    for number, batch in enumerate(samples.batches):
        hits.append(np.arange(len(batch.masked_labels)) % (2 + number % 2) == 0)
        starts = np.cumsum([0, *batch.packed.lengths])
        positions = batch.masked_positions.tolist()
        for hit, position, label in zip(hits[-1], positions, batch.masked_labels.tolist(), strict=True):
            sequence = int(np.searchsorted(starts, position, side="right")) - 1
            visible = set(range(starts[sequence], starts[sequence + 1])) - set(positions)
            if label not in frequent:
                expected[label in {int(batch.packed.token_ids[i]) for i in visible}].append(bool(hit))
    assert samples.repetition(hits) == {
        "masked_tokens_repeated_accuracy": pytest.approx(np.mean(expected[True])),
        "masked_tokens_unrepeated_accuracy": pytest.approx(np.mean(expected[False])),
    }


def test_limit_is_the_number_of_sequences(held_out):
    samples = held_out_samples(held_out, limit=7, batch_size=3)
    assert [batch.packed.n_sequences for batch in samples.batches] == [3, 3, 1]


# ---- several tests on the same texts (Table 5) -----------------------------------------------------------------------


def held_out_tests(held_out, objectives, limit=1000):
    def samples(objective):
        recipe = SequenceRecipe(max_length=64, objective=objective)
        return PretrainingSamples(held_out, recipe, MaskingRecipe(), EVALUATION_SEED)

    return HeldOutTests(samples, objectives, limit)


def sequences_of(samples):
    """The token ids and the order label of each sequence."""
    return [
        (tuple(tokens.tolist()), label)
        for batch in samples.batches
        for tokens, label in zip(
            batch.packed.token_ids.split(list(batch.packed.lengths)), batch.order_labels.tolist(), strict=True
        )
    ]


def test_all_tests_use_the_same_texts_and_masks(held_out):
    tests = held_out_tests(held_out, ("sop", "nsp")).tests
    assert list(tests) == ["masked_tokens", "next_sentence", "sentence_order"]
    changed = 0
    for (text, no_label), (nsp, nsp_label), (sop, sop_label) in zip(*map(sequences_of, tests.values()), strict=True):
        assert no_label == -100 and (nsp_label == -100) == (sop_label == -100)
        assert len(text) == len(sop)
        assert (sop == text or sop_label == 1) and (nsp == text or nsp_label == 1)
        changed += sop_label == 1 and nsp_label == 1
    assert changed > 5


@pytest.mark.parametrize("answer", [0, 1])
def test_one_head_answers_every_sentence_test(held_out, model, answer):
    """A constant answer is as accurate as its label is frequent: 0 for pairs as in the text."""
    model.sop_classifier.classifier.weight.data.zero_()
    model.sop_classifier.classifier.bias.data[answer] = 9.0
    tests = held_out_tests(held_out, ("nsp", "sop"))
    figures = figures_of(tests, model)
    for test in ("next_sentence", "sentence_order"):
        labels = [label for _, label in sequences_of(tests.tests[test]) if label >= 0]
        assert tests.counts[test] == len(labels)
        assert figures[f"{test}_accuracy"] == pytest.approx(labels.count(answer) / len(labels))
        assert figures[f"{test}_baseline"] == max(labels.count(0), labels.count(1)) / len(labels)


def test_without_a_sentence_head_only_masked_tokens_are_tested(held_out, model):
    figures = figures_of(held_out_tests(held_out, ("nsp", "sop"), limit=20), model, sentence_head=False)
    assert figures == figures_of(held_out_tests(held_out, ("none",), limit=20), model)
    assert not any(name.startswith("sentence") for name in figures)


# ---- during a run ----------------------------------------------------------------------------------------------------


def test_evaluation_objectives_are_in_the_journal_and_do_not_change_the_model(tiny_recipe, tiny_corpus, tmp_path):
    """And `evaluate_pretraining` finds the same figures of the finished model."""
    plain = replace(tiny_recipe, sequences=replace(tiny_recipe.sequences, objective="nsp"))
    run, folder = replace(plain, evaluation_objectives=("sop", "nsp")), tmp_path / "run"
    pretrain(run, tiny_corpus, folder, "cpu")
    result = pretrain(plain, tiny_corpus, tmp_path / "plain", "cpu")
    assert model_bytes(folder) == model_bytes(tmp_path / "plain")
    evaluations = events(folder, "evaluation")
    assert [record["step"] for record in evaluations] == [6, 12]
    scores = evaluate_pretraining([folder], tiny_corpus, limit=24, device="cpu").models[0].scores
    assert set(scores) == {"masked_tokens", "next_sentence", "sentence_order"}
    for test, score in scores.items():
        for kind in ("accuracy", "loss", "baseline"):
            assert evaluations[-1][f"{test}_{kind}"] == pytest.approx(getattr(score, kind), rel=1e-6)
    assert "next_sentence_accuracy" not in result.evaluation and "sentence_order_accuracy" in result.evaluation


@pytest.mark.parametrize(("baseline", "warned"), [(1.0, True), (-1.0, False)])
def test_a_run_warns_at_the_second_evaluation_below_the_baseline(
    tiny_corpus, tiny_recipe, tmp_path, monkeypatch, capsys, baseline, warned
):
    monkeypatch.setattr(HeldOutSamples, "baselines", lambda _: {"masked_tokens_baseline": baseline})
    pretrain(tiny_recipe, tiny_corpus, tmp_path / "run", "cpu")
    assert capsys.readouterr().err.count("still no better than a constant prediction") == warned


def test_a_run_on_unknown_words_alone_has_no_accuracy(tiny_recipe, tmp_path, capsys):
    """Text of another script than a WordPiece vocabulary's: every word is [UNK], which is never masked."""
    tokenizer = wordpiece_tokenizer([*SPECIAL_PIECES, "a"])
    corpus = prepare_texts([f"ω ω. ψ{number} ψ." for number in range(20)], tokenizer, tmp_path, 0.3)
    evaluation = pretrain(tiny_recipe, corpus, tmp_path / "run", "cpu").evaluation
    assert [name for name in evaluation if name.startswith("masked_tokens")] == []
    assert run(["evaluate", "pretraining", "--model", str(tmp_path / "run"), "--data", str(corpus)]) == 0
    assert "majority baseline" in capsys.readouterr().out


# ---- several models --------------------------------------------------------------------------------------------------

OBJECTIVES = {"of-sop": "sop", "of-nsp": "nsp", "of-none": "none"}


@pytest.fixture(scope="module")
def models(tiny_recipe, tiny_corpus, tmp_path_factory):
    """Model directories with different weights; one was trained with longer sequences."""
    root = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    config = replace(tiny_recipe.model, initializer_range=0.2)
    for name, objective in OBJECTIVES.items():
        extra = {"sentence_objective": objective, "max_sequence_length": 48 if name == "of-sop" else 32}
        save_model_directory(root / name, AlbertForPreTraining(config), tiny_corpus, extra=extra)
    save_model_directory(root / "masked-lm", AlbertForMaskedLM(tiny_recipe.model), tiny_corpus)
    save_model_directory(root / "classifier", AlbertForSequenceClassification(tiny_recipe.model, 2), tiny_corpus)
    (root / "encoder").mkdir()
    write_model(root / "encoder", open_model(root / "of-sop", "encoder").model, tiny_corpus)
    return root


@pytest.fixture
def evaluate(models, tiny_corpus):
    def evaluate(*names, corpus=tiny_corpus, **options):
        return evaluate_pretraining([models / name for name in names], corpus, device="cpu", **options)

    return evaluate


def test_models_score_the_same_together_and_alone(evaluate):
    together = evaluate(*OBJECTIVES)
    assert together.max_length == 32  # the smallest of all models
    for scored in together.models:
        alone = evaluate(scored.model, max_length=32)
        assert alone.models == (scored,) and alone.counts == together.counts
    assert [scored.sentence_objective for scored in together.models] == list(OBJECTIVES.values())
    assert len({scored.scores["masked_tokens"].baseline for scored in together.models}) == 1
    assert len({scored.scores["masked_tokens"].accuracy for scored in together.models}) > 1
    assert evaluate("of-sop").max_length == 48


def test_a_sentence_head_is_tested_on_every_objective(evaluate):
    result = evaluate(*OBJECTIVES, limit=40)
    sop, nsp, none = result.models
    assert set(sop.scores) == set(nsp.scores) == {"masked_tokens", "next_sentence", "sentence_order"}
    assert set(none.scores) == {"masked_tokens"} and set(result.counts) == set(sop.scores)
    assert evaluate("masked-lm", limit=40).models[0].sentence_objective == "none"
    assert set(evaluate("of-sop", limit=40, objectives=("none",)).counts) == {"masked_tokens"}


def test_a_single_held_out_document_has_no_test_of_next_sentences(evaluate, tiny_texts, tiny_tokenizer, tmp_path):
    corpus = prepare_texts(tiny_texts, tiny_tokenizer, tmp_path, held_out=1e-9)
    assert set(evaluate("of-sop", corpus=corpus).counts) == {"masked_tokens", "sentence_order"}
    with refusal(InvalidConfiguration, "held_out"):
        evaluate("of-sop", corpus=corpus, objectives=("nsp",))


def test_keep_pairs_gives_more_pairs_and_masking_is_an_option(evaluate):
    plain = evaluate("of-sop", max_length=24, limit=40)
    paired = evaluate("of-sop", max_length=24, limit=40, keep_pairs=True)
    assert paired.counts["sentence_order"] > plain.counts["sentence_order"]
    fewer = evaluate("of-sop", max_length=24, limit=40, masking=MaskingRecipe(share=0.05))
    assert 0 < fewer.counts["masked_tokens"] < 0.6 * plain.counts["masked_tokens"]


@pytest.mark.parametrize(("correct", "count"), [(0, 10), (5, 10), (10, 10), (549, 1000), (1, 100_000)])
def test_intervals_are_wilsons(correct, count):
    score, expected = (
        Score.of(correct / count, 0.0, 0.0, count),
        binomtest(correct, count).proportion_ci(method="wilson"),
    )
    assert (score.low, score.high) == pytest.approx((expected.low, expected.high), abs=1e-7)


def test_the_newest_checkpoint_of_an_unfinished_run_is_evaluated(tiny_recipe, evaluate, tiny_corpus, tmp_path):
    run = pretrain(replace(tiny_recipe, checkpoint_every=6), tiny_corpus, tmp_path / "run", "cpu")
    finished = evaluate(run.run, limit=20).models[0]
    shutil.rmtree(run.model)
    last = evaluate(run.run, limit=20).models[0]
    assert last.scores == finished.scores and not finished.notes
    assert last.notes == (f"{run.run} is not finished: its checkpoint of step 12 is evaluated",)
    shutil.rmtree(run.run / "checkpoints" / "step-00000012")
    earlier = evaluate(run.run, limit=20).models[0]
    assert earlier.scores != last.scores and "step 6" in earlier.notes[0]


@pytest.mark.parametrize(
    ("names", "options", "error", "message"),
    [
        (["of-sop"], {"max_length": 65}, InvalidConfiguration, "max_length: is 65, {models}/of-sop has 64 positions"),
        (["of-sop"], {"max_length": 0}, InvalidConfiguration, "max_length: is 0, at least 5 is needed"),
        (["of-sop"], {"limit": 0}, InvalidConfiguration, "sequences: is 0, at least 1 sequence is needed"),
        (
            ["of-sop", "classifier"],
            {},
            InvalidConfiguration,
            "{models}/classifier: has no masked-token head, its class is AlbertForSequenceClassification",
        ),
        (
            ["of-sop", "encoder"],
            {},
            InvalidConfiguration,
            "{models}/encoder: has no masked-token head, its class is AlbertModel",
        ),
        (["of-sop", "absent"], {}, MissingInput, "{models}/absent: no such directory"),
    ],
)
def test_models_and_options_are_checked_before_the_first_evaluation(
    models, evaluate, monkeypatch, names, options, error, message
):
    monkeypatch.setattr(HeldOutTests, "evaluate", lambda *_, **__: pytest.fail("evaluated too early"))
    with pytest.raises(error) as refusal:
        evaluate(*names, **options)
    assert str(refusal.value).startswith(message.format(models=models))
