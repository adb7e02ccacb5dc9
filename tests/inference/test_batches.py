"""Any number of texts of any lengths, together: each gets what it gets alone, whatever the head."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import albert
from albert.inference.abilities import UnansweredTexts
from albert.inference.engine import Autotuner
from albert.inference.predictor import Predictor
from albert.inference.tasks import check_texts
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
)
from albert.model.config import AlbertConfig
from albert.runtime.errors import InvalidConfiguration, UsageError

Save = Callable[..., Path]
open_exactly = partial(Predictor.open, precision="fp32")
WORDS = ["the", "Cat", "saw", "café", "…", "猫", "dog.", " ", "\n", "1,000", "it's", "\u200b", "🐈"]
texts = st.lists(
    st.one_of(st.lists(st.sampled_from(WORDS), max_size=90).map(" ".join), st.text(max_size=20)), max_size=7
)
few = settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def predictors(tmp_path_factory: pytest.TempPathFactory, config: AlbertConfig, tokenizer_directory: Path) -> Any:
    from albert.checkpoints.model_directory import save_model_directory

    models = {
        "classify": (AlbertForSequenceClassification(config, 3), {}),
        "score": (AlbertForSequenceClassification(config, 1), {"id2label": {0: "x"}, "problem_type": "regression"}),
        "answer": (AlbertForQuestionAnswering(config), {}),
        "tag": (AlbertForTokenClassification(config, 3), {}),
        "choose": (AlbertForMultipleChoice(config), {}),
        "pretrained": (AlbertForPreTraining(config), {"sentence_objective": "sop"}),
    }
    opened = {}
    for name, (model, extra) in models.items():
        path = tmp_path_factory.mktemp(name) / "model"
        save_model_directory(path, model, tokenizer_directory, extra=extra)
        opened[name] = open_exactly(path)
    return opened


def assert_close(actual: Any, expected: Any) -> None:
    """Equal, but for the last digits of numbers."""
    if isinstance(expected, float):
        assert actual == pytest.approx(expected, rel=1e-4, abs=1e-6)
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for key, value in expected.items():
            assert_close(actual[key], value)
    elif isinstance(expected, list):
        assert len(actual) == len(expected)
        for mine, theirs in zip(actual, expected, strict=True):
            assert_close(mine, theirs)
    else:
        assert actual == expected


@few
@given(texts)
def test_classes_numbers_and_tags_of_a_batch_are_those_of_each_text(predictors: Any, texts: list[str]) -> None:
    classifier = predictors["classify"]
    for actual in (classifier.classify_batch(texts), classifier.classify_batch(texts, texts[::-1])):
        assert len(actual) == len(texts)
    assert_close(classifier.classify_batch(texts), [classifier.classify(text) for text in texts])
    pairs = list(zip(texts, texts[::-1], strict=True))
    assert_close(classifier.classify_batch(texts, texts[::-1]), [classifier.classify(*pair) for pair in pairs])
    assert_close(predictors["score"].score_batch(texts), [predictors["score"].score(text) for text in texts])
    assert_close(predictors["tag"].tag_batch(texts), [predictors["tag"].tag(text) for text in texts])


@few
@given(texts)
def test_answers_and_choices_of_a_batch_are_those_of_each(predictors: Any, texts: list[str]) -> None:
    contexts = [f"Ada saw {text}" for text in texts]
    assert_close(
        predictors["answer"].answer_batch(texts, contexts, top_k=2),
        [predictors["answer"].answer(*pair, top_k=2) for pair in zip(texts, contexts, strict=True)],
    )
    options = [["yes", text, "no"][: 2 + number % 2] for number, text in enumerate(texts)]
    assert_close(
        predictors["choose"].choose_batch(contexts, options, texts),
        [predictors["choose"].choose(*each) for each in zip(contexts, options, texts, strict=True)],
    )


@few
@given(st.lists(st.lists(st.sampled_from(["the", "cat", "[MASK]", "saw"]), max_size=8).map(" ".join), max_size=6))
def test_masks_and_orders_of_a_batch_are_those_of_each(predictors: Any, texts: list[str]) -> None:
    pretrained = predictors["pretrained"]
    masked = [f"{text} [MASK]" for text in texts]
    alone = [pretrained.fill_mask(text, top_k=3) for text in masked]
    assert_close(
        pretrained.fill_mask_batch(masked, top_k=3),
        [actual if isinstance(actual[0], list) else [actual] for actual in alone],
    )
    assert_close(
        pretrained.order_batch(texts, masked),
        [pretrained.order(first, second) for first, second in zip(texts, masked, strict=True)],
    )


def test_no_texts_are_no_answers(predictors: Any) -> None:
    assert predictors["classify"].classify_batch([]) == predictors["score"].score_batch([]) == []
    assert predictors["answer"].answer_batch([], []) == predictors["tag"].tag_batch([]) == []
    assert predictors["choose"].choose_batch([], []) == predictors["pretrained"].fill_mask_batch([]) == []
    assert predictors["pretrained"].order_batch([], []) == []
    assert predictors["tag"].embed([]).shape == (0, 32)


def test_every_text_that_cannot_be_answered_is_told(predictors: Any) -> None:
    with pytest.raises(UnansweredTexts, match=r"text 2: has no \[MASK\]") as caught:
        predictors["pretrained"].fill_mask_batch(["a [MASK]", "b", "[MASK]" + " the cat" * 60])
    assert caught.value.reasons[1][0] == "has no [MASK] to fill"
    assert caught.value.reasons[2][0].endswith("tokens, the model reads 64")
    with pytest.raises(UnansweredTexts, match="context 2: holds no text") as caught:
        predictors["answer"].answer_batch(["Who?"] * 3, ["Ada", " ", ""])
    assert set(caught.value.reasons) == {1, 2}


def test_what_is_no_text_is_named(predictors: Any) -> None:
    classify: Any = predictors["classify"].classify_batch
    with pytest.raises(UsageError, match="texts: is one text"):
        classify("He came.")
    with pytest.raises(UsageError, match="texts, number 2: is float, a text is expected$"):
        check_texts("texts", ["He came.", float("nan")])
    with pytest.raises(UsageError, match="texts, number 1: is list, a text is expected; methods that end in _batch"):
        check_texts("texts", [["He came."]])
    with pytest.raises(UsageError, match="pairs: 1 for 2 texts"):
        classify(["a", "b"], ["c"])
    with pytest.raises(UsageError, match="contexts: 1 for 2 questions"):
        predictors["answer"].answer_batch(["a", "b"], ["c"])
    with pytest.raises(UsageError, match="options: 1 lists for 2 contexts"):
        predictors["choose"].choose_batch(["a", "b"], [["c", "d"]])


def test_a_number_is_no_class_and_a_class_no_number(predictors: Any) -> None:
    assert predictors["score"].abilities == ("score texts",)
    assert predictors["score"].score("the cat") == pytest.approx(predictors["score"].classify("the cat")[0]["score"])
    with pytest.raises(InvalidConfiguration, match="no trained head to score texts; this model can classify texts"):
        predictors["classify"].score("the cat")


def test_albert_load_opens_a_predictor(saved: Save, config: AlbertConfig) -> None:
    model = albert.load(saved(AlbertForSequenceClassification(config, 2)), precision="fp32")
    assert isinstance(model, Predictor)
    assert (model.precision, model.depth, model.patience) == ("fp32", 2, None)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        albert.lode  # noqa: B018


def test_lengths_are_those_of_the_fine_tuning(saved: Save, config: AlbertConfig) -> None:
    lengths = {"task": "own", "max_length": 32, "question_length": 4, "stride": 8}
    question, context = "Who saw the old dog and the king?", "The cat saw the old dog. " * 9
    default = open_exactly(saved(AlbertForQuestionAnswering(config))).answer(question, context)
    own = open_exactly(saved(AlbertForQuestionAnswering(config), finetuning=lengths))
    assert own.max_length == 32
    assert own.answer(question, context)["tokens_cut"] == len(own.tokenizer.encode(question)) - 4
    assert "tokens_cut" not in default
    with pytest.raises(InvalidConfiguration, match="finetuning: stride: is 0, at least 1"):
        open_exactly(saved(AlbertForQuestionAnswering(config), finetuning=lengths | {"stride": 0}))


def test_a_shared_layer_is_applied_as_often_as_asked(saved: Save, config: AlbertConfig) -> None:
    path = saved(AlbertForSequenceClassification(config, 2))
    scores = {}
    for depth in (1, 2, 5):
        predictor = open_exactly(path, depth=depth)
        assert predictor.depth == depth
        scores[depth] = predictor.classify("The cat saw the dog.")
        overridden = open_exactly(path, overrides={"num_hidden_layers": depth})
        assert_close(scores[depth], overridden.classify("The cat saw the dog."))
    assert scores[1] != scores[2] != scores[5]
    with pytest.raises(InvalidConfiguration, match="depth: is 0"):
        open_exactly(path, depth=0)


def test_a_model_whose_layers_differ_is_only_cut_shorter(saved: Save, config: AlbertConfig) -> None:
    from dataclasses import replace

    path = saved(AlbertForSequenceClassification(replace(config, num_hidden_layers=4, num_hidden_groups=4), 2))
    full, short = open_exactly(path), open_exactly(path, depth=3)
    encoder = full._network.model.model.albert.encoder
    encoder.plan = encoder.plan[:3]
    assert_close(short.classify("The cat"), full.classify("The cat"))
    with pytest.raises(
        InvalidConfiguration, match="is 5, the model has 4 layers, not all of them the same; choose one from 1 to 4"
    ):
        open_exactly(path, depth=5)


def test_texts_decided_early_say_how_deep_they_went(saved: Save, config: AlbertConfig) -> None:
    from dataclasses import replace

    deep = replace(config, num_hidden_layers=6)
    path = saved(AlbertForSequenceClassification(deep, 2), exit_depths=[1, 2, 3, 4, 5, 6])
    texts = ["The cat " * n for n in range(12)]
    actual = open_exactly(path, patience=1).classify_batch(texts)
    assert all(2 <= ranked[0]["depth"] <= 6 for ranked in actual)
    for text, ranked in zip(texts, actual, strict=True):
        assert_close(ranked[0]["score"], open_exactly(path, depth=ranked[0]["depth"]).classify(text)[0]["score"])
    with pytest.raises(InvalidConfiguration, match="was trained to answer only after its last layer"):
        open_exactly(saved(AlbertForSequenceClassification(deep, 2)), patience=1)
    choosing = open_exactly(saved(AlbertForMultipleChoice(deep), exit_depths=[1, 2, 3]), patience=1)
    assert {entry["depth"] for entry in choosing.choose("The cat", ["a", "b"])} <= {2, 3, 6}


def test_one_giant_text_goes_through(predictors: Any) -> None:
    giant = "The cat saw the old dog. " * 4000
    assert predictors["classify"].classify(giant)[0]["tokens_cut"] > 10_000
    assert predictors["tag"].tag(giant[: 25 * 100])[-1]["end"] == 25 * 100 - 1
    assert np.isfinite(predictors["answer"].embed([giant, ""])).all()


def test_a_text_by_itself_is_computed_in_the_way_that_has_been_faster():
    """All threads while the machine is quiet, one while another program has a core, all again afterwards."""
    now, ran = [0.0], []
    seconds = {"all": 1.0, "one": 1.5}

    def variant(name: str) -> Callable[[], str]:
        def compute() -> str:
            now[0] += seconds[name]
            ran.append(name)
            return name

        return compute

    def last_calls(calls: int) -> set[str]:
        ran.clear()
        for _ in range(calls):
            assert autotuner.run(100, variant("all"), variant("one")) in seconds
        return set(ran[-5:])

    autotuner = Autotuner(clock=lambda: now[0])
    assert last_calls(12) == {"all"}
    seconds["all"] = 15.0
    assert last_calls(12) == {"one"} and ran.count("all") == Autotuner.HISTORY
    seconds["all"] = 1.0
    assert last_calls(Autotuner.RETRY_EVERY + 5) == {"all"}
    assert autotuner.run(1000, variant("all"), variant("one")) == "all"  # another size has figures of its own


def test_a_text_by_itself_has_one_answer_whatever_computes_it(predictors: Any, workers: Callable[[int], None]) -> None:
    workers(2)
    first, *others = [predictors["classify"].classify("the Cat saw 1,000 dogs.") for _ in range(6)]
    for other in others:
        assert_close(other, first)  # some processors round a product differently with two threads
