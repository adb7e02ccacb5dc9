"""Results of a batch equal those of its texts alone, for texts of any number and length and every head."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import albert
from albert.inference.engine import Autotuner, PackedModel
from albert.inference.texts import check_text, check_texts
from albert.tasks.examples import Example
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.pipeline import Lengths
from albert.tasks.span_windows import span_features

WORDS = ["the", "Cat", "saw", "café", "…", "猫", "dog.", " ", "\n", "1,000", "it's", "\u200b", "🐈", "[MASK]"]
texts = st.lists(
    st.one_of(st.lists(st.sampled_from(WORDS), max_size=90).map(" ".join), st.text(max_size=20)), max_size=7
)


def assert_close(actual, expected):
    """Equal, but for the last digits of numbers."""
    if isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-4, abs=1e-6)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        assert_close(list(actual.values()), list(expected.values()))
    elif isinstance(expected, list):
        for mine, theirs in zip(actual, expected, strict=True):
            assert_close(mine, theirs)
    else:
        assert actual == expected


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=texts)
@pytest.mark.parametrize(
    ("name", "method", "arguments", "fixed"),
    [
        ("classify", "classify", lambda texts: (texts,), ()),
        ("classify", "classify", lambda texts: (texts, texts[::-1]), ()),
        ("score", "score", lambda texts: (texts,), ()),
        ("tag", "tag", lambda texts: (texts,), ()),
        ("answer", "answer", lambda texts: (texts, [f"Ada saw {text}" for text in texts]), (2,)),
        ("choose", "choose", lambda texts: (texts, [["yes", *[text] * (len(text) % 2), "no"] for text in texts]), ()),
        ("pretrain", "fill_mask", lambda texts: ([f"{text[:40]} [MASK]" for text in texts],), (3,)),
        ("pretrain", "order", lambda texts: (texts, texts[::-1]), ()),
    ],
)
def test_results_of_a_batch_equal_those_of_each_text(predictors, name, method, arguments, fixed, texts):
    columns = arguments(texts)
    results = getattr(predictors(name), f"{method}_batch")(*columns, *fixed)
    alone = [getattr(predictors(name), method)(*row, *fixed) for row in zip(*columns, strict=True)]
    if method == "fill_mask":  # a single mask is not in a list of masks
        alone = [each if isinstance(each[0], list) else [each] for each in alone]
    assert_close(results, alone)
    assert predictors(name).embed([]).shape == (0, 32)


def test_texts_without_an_answer_are_named_with_reasons(predictors):
    with pytest.raises(albert.AlbertError) as caught:
        predictors("pretrain").fill_mask_batch(["a [MASK]", "b", "[MASK]" + " the cat" * 60])
    assert str(caught.value).startswith("text 2: ") and set(caught.value.reasons) == {1, 2}
    assert caught.value.reasons[1][0] == "has no [MASK] to fill"
    assert caught.value.reasons[2][0].endswith("tokens, the model reads 64")
    with pytest.raises(albert.AlbertError) as caught:
        predictors("answer").answer_batch(["Who?"] * 3, ["Ada", " ", ""])
    assert str(caught.value).startswith("context 2: ") and set(caught.value.reasons) == {1, 2}


def test_inputs_of_wrong_type_or_length_are_named(predictors, refused):
    classify = predictors("classify").classify_batch
    for call, *subjects in (
        (lambda: classify("He came."), "texts: is one text"),
        # Not through the predictor: in tests, values of another type than its annotations are refused earlier.
        (lambda: check_texts("texts", ["a", float("nan")]), "texts, number 2: is nan, a text is expected"),
        (lambda: check_texts("texts", np.array([["a"]])), "texts: is an object of type ndarray"),
        (lambda: check_texts("texts", iter(["a"])), "texts: is an object of type list_iterator"),
        (lambda: check_texts("texts", [["a"]]), "texts, number 1: is a list"),
        (lambda: check_text("text", ["a", "b"]), "text: is a list, a text is expected; methods that end in _batch"),
        (lambda: classify(["a", "b"], ["c"]), "pairs", "1 for 2 texts"),
        (lambda: predictors("answer").answer_batch(["a", "b"], ["c"]), "contexts", "1 for 2 questions"),
        (lambda: predictors("choose").choose_batch(["a", "b"], [["c", "d"]]), "options", "1 list for 2 contexts"),
    ):
        refused(call, 2, *subjects)


def test_only_regression_models_score(predictors, refused):
    assert predictors("score").abilities == ("score texts",)
    assert predictors("score").score("the cat") == pytest.approx(predictors("score").classify("the cat")[0]["score"])
    refused(lambda: predictors("classify").score("the cat"), 78, "score texts", "classify texts")


def test_albert_load_opens_a_predictor(saved):
    model = albert.load(saved("classification", 2), precision="fp32")
    assert (model.precision, model.depth) == ("fp32", 2)
    with pytest.raises(AttributeError):
        albert.lode  # noqa: B018


def test_lengths_are_those_of_fine_tuning(opened, refused):
    lengths = {"task": "own", "max_length": 32, "question_length": 4, "stride": 8}
    question, context = "Who saw the old dog and the king?", "The cat saw the old dog. " * 9
    assert "tokens_cut" not in opened("question_answering").answer(question, context)
    predictor = opened("question_answering", finetuning=lengths)
    assert predictor.max_length == 32
    assert predictor.answer(question, context)["tokens_cut"] == len(predictor.tokenizer.encode(question)) - 4
    refused(lambda: opened("question_answering", finetuning=lengths | {"stride": 0}), 78, "finetuning: stride: is 0")


@pytest.mark.parametrize("lengths", [(64, 50, 11), (32, 28, 1), (32, 4, 25)])
def test_questions_are_cut_as_in_evaluation(lengths, opened, monkeypatch):
    read, rows = [], PackedModel.rows
    monkeypatch.setattr(PackedModel, "rows", lambda model, *parts: read.append(parts) or rows(model, *parts))
    stated = dict(zip(("max_length", "question_length", "stride"), lengths, strict=True))
    example = Example("", "", ("Who saw the old dog? " * 9, "The cat saw the old dog. " * 9), options=("cat", "dog"))
    question, context = example.texts
    predictor = opened("question_answering", finetuning=stated)
    predictor.answer(question, context)
    opened("multiple_choice", finetuning=stated).choose(context, example.options, question)
    spans = span_features([example], predictor.tokenizer, *lengths)
    choices = MultipleChoice((), "").encode([example], predictor.tokenizer, Lengths(*lengths))
    for (ids, types), sequences in zip(read, (spans.sequences, choices.sequences), strict=True):
        numbers = range(len(sequences))
        assert [row.tolist() for row in ids] == [sequences.token_ids(number).tolist() for number in numbers]
        assert [row.tolist() for row in types] == [sequences.token_type_ids(number).tolist() for number in numbers]


def test_depth_is_the_number_of_times_a_shared_layer_is_applied(saved, refused):
    path = saved("classification", 2)
    scores = {}
    for depth in (1, 2, 5):
        predictor = albert.load(path, precision="fp32", depth=depth)
        assert predictor.depth == depth
        scores[depth] = predictor.classify("The cat saw the dog.")
        overridden = albert.load(path, precision="fp32", overrides={"num_hidden_layers": depth})
        assert_close(scores[depth], overridden.classify("The cat saw the dog."))
    assert scores[1] != scores[2] != scores[5]
    refused(lambda: albert.load(path, depth=0), 78, "depth: is 0")


def test_depth_of_layers_that_differ_is_at_most_their_number(saved, config, refused):
    path = saved("classification", 2, replace(config, num_hidden_layers=4, num_hidden_groups=4))
    full, short = (albert.load(path, precision="fp32", depth=depth) for depth in (None, 3))
    encoder = full.network.albert.encoder
    encoder.plan = encoder.plan[:3]
    assert_close(short.classify("The cat"), full.classify("The cat"))
    refused(lambda: albert.load(path, depth=5), 78, "depth: is 5", "1 to 4")


def test_text_of_100_000_characters(predictors):
    text = "The cat saw the old dog. " * 4000
    assert predictors("classify").classify(text)[0]["tokens_cut"] > 10_000
    assert predictors("tag").tag(text[: 25 * 100])[-1]["end"] == 25 * 100 - 1
    assert np.isfinite(predictors("answer").embed([text, ""])).all()


def test_autotuner_runs_the_faster_variant():
    """All threads while the machine is idle, one while another program uses a core, all again afterwards."""
    now, calls = [0.0], []
    seconds = {"all": 1.0, "one": 1.5}

    def variant(name):
        def compute():
            now[0] += seconds[name]
            calls.append(name)
            return name

        return compute

    def last_calls(count):
        calls.clear()
        for _ in range(count):
            assert autotuner.run(100, variant("all"), variant("one")) in seconds
        return set(calls[-5:])

    autotuner = Autotuner(clock=lambda: now[0])
    assert last_calls(12) == {"all"}
    seconds["all"] = 15.0
    assert last_calls(12) == {"one"} and calls.count("all") == Autotuner.HISTORY
    seconds["all"] = 1.0
    assert last_calls(Autotuner.RETRY_EVERY + 5) == {"all"}
    assert autotuner.run(1000, variant("all"), variant("one")) == "all"  # another size is timed separately


def test_single_text_gets_the_same_result_from_one_thread_and_from_several(predictors, workers):
    workers(2)
    first, *others = [predictors("classify").classify("the Cat saw 1,000 dogs.") for _ in range(6)]
    for other in others:
        assert_close(other, first)  # some processors round a product differently with two threads
