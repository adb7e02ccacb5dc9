"""Predictions are what transformers' pipelines give, batching changes nothing, and nothing is cut in silence."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from albert.inference.engine import PackedModel
from albert.inference.predictor import Predictor
from albert.inference.tasks import Lengths, Network, encode_with_masks, fill_masks
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
)
from albert.model.config import AlbertConfig
from albert.runtime.errors import DamagedData, InvalidConfiguration, UsageError
from albert.text.tokenizer import Tokenizer
from albert.text.wordpiece import WordPieceTokenizer

Save = Callable[..., Path]
open_exactly = partial(Predictor.open, precision="fp32")
MASKED = [
    "The [MASK] saw the old dog.",
    "[MASK] cat painted it",
    "the cat[MASK]the dog",
    "A  sailor   [MASK]  , again",
    "It remembered the [MASK]",
]


@pytest.mark.parametrize("text", MASKED)
def test_masks_are_filled_as_by_the_pipeline(saved: Save, config: AlbertConfig, text: str) -> None:
    path = saved(AlbertForPreTraining(config))
    expected = _pipeline("fill-mask", path)(text, top_k=7)
    actual = open_exactly(path).fill_mask(text, top_k=7)
    assert [entry["token"] for entry in actual] == [entry["token"] for entry in expected]
    assert [entry["sequence"] for entry in actual] == [entry["sequence"] for entry in expected]
    np.testing.assert_allclose([entry["score"] for entry in actual], [entry["score"] for entry in expected], rtol=1e-4)
    for mine, theirs in zip(actual, expected, strict=True):
        if mine["token"] > 4:  # the pipeline writes a special piece with or without its brackets, as it comes
            assert mine["token_str"] == theirs["token_str"]


def test_several_masks_are_judged_apart(saved: Save, config: AlbertConfig) -> None:
    path = saved(AlbertForPreTraining(config))
    text = "The [MASK] saw the [MASK] dog."
    actual = open_exactly(path).fill_mask(text, top_k=3)
    expected = _pipeline("fill-mask", path)(text, top_k=3)
    assert [[entry["token"] for entry in mask] for mask in actual] == [
        [entry["token"] for entry in mask] for mask in expected
    ]
    assert "[MASK]" in actual[0][0]["sequence"]


class EveryPiece(PackedModel):
    """In place of a model: random logits, so that with a large `top_k` every piece fills every mask."""

    def __init__(self, vocab_size: int) -> None:
        self.logits = torch.randn(512, vocab_size, generator=torch.Generator().manual_seed(0))

    def at(self, ids, types, places):
        for number, each in enumerate(places):
            yield number, self.logits[: len(each)], None


def every_piece(tokenizer: Tokenizer) -> Network:
    model = EveryPiece(tokenizer.vocab_size)
    return Network(model, model, tokenizer, Lengths(64, 32, 16))


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_every_piece_fills_a_mask_as_decoding_the_whole_text_would(kind: str, tokenizer: Tokenizer) -> None:
    if kind == "wordpiece":
        pieces = [f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")]
        pieces += ["the", "cat", "saw", "dog", "ship", "##s", "##ed", ".", ",", "!", "-", "a", "b"]
        tokenizer = WordPieceTokenizer(pieces)
    texts = [
        "[MASK] cat",
        "the [MASK]",
        "the cat [MASK]. [MASK] , the dog",
        "[MASK]",
        "the ☃ [MASK][MASK]",
        "☃[MASK] -",
    ]
    ids = encode_with_masks(tokenizer, texts, 64)
    filled = fill_masks(every_piece(tokenizer), texts, top_k=1000)
    special, mask = tokenizer.special_ids, tokenizer.mask_id
    for masks, row in zip(filled, [each.tolist() for each in ids], strict=True):
        places = [place for place, piece in enumerate(row) if piece == mask]
        for place, actual in zip(places, masks, strict=True):
            assert sorted(entry["token"] for entry in actual) == list(range(tokenizer.vocab_size))
            for entry in actual:
                whole = [piece for i, piece in enumerate([*row[:place], entry["token"], *row[place + 1 :]])
                         if piece not in special or (i in places and i != place)]  # fmt: skip
                assert entry["sequence"] == tokenizer.decode(whole, skip_special_tokens=False)
                assert entry["token_str"] == tokenizer.decode([entry["token"]], skip_special_tokens=False)


def test_the_text_around_a_mask_is_decoded_once_for_all_pieces(tokenizer: Tokenizer, monkeypatch) -> None:
    lengths: list[int] = []
    decode = type(tokenizer).decode
    monkeypatch.setattr(
        type(tokenizer), "decode", lambda self, ids, **how: lengths.append(len(ids)) or decode(self, ids, **how)
    )
    fill_masks(every_piece(tokenizer), ["the cat saw [MASK] the dog"] * 5, top_k=300)
    assert len(lengths) <= 3 * 300 + 3 * 5 and sum(length > 3 for length in lengths) <= 3 * 5


def test_the_order_is_the_sentence_order_head_of_theirs(saved: Save, config: AlbertConfig) -> None:
    path = saved(AlbertForPreTraining(config), sentence_objective="sop")
    first, second = "The cat saw the dog.", "And it followed the bird again."
    actual = open_exactly(path).order(first, second)
    theirs = transformers.AlbertForPreTraining.from_pretrained(path).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(path)(first, second, return_tensors="pt")
    assert int(inputs["token_type_ids"].sum()) > 0
    with torch.inference_mode():
        expected = float(theirs(**inputs).sop_logits.softmax(-1)[0, 0])
    assert actual["probability_in_order"] == pytest.approx(expected, rel=1e-4)
    assert actual["label"] == ("in order" if expected >= 0.5 else "swapped")
    assert actual["score"] == pytest.approx(max(expected, 1 - expected), rel=1e-4)
    assert "tokens_cut" not in actual


def test_an_order_head_that_never_learnt_is_not_asked(saved: Save, config: AlbertConfig) -> None:
    predictor = open_exactly(saved(AlbertForPreTraining(config), sentence_objective="none"))
    assert predictor.abilities == ("fill masks",) and ": fill masks; depth=" in repr(predictor)
    with pytest.raises(InvalidConfiguration, match="no trained head to judge the order"):
        predictor.order("a", "b")


def test_classes_are_those_of_the_pipeline(saved: Save, config: AlbertConfig) -> None:
    labels = {0: "calm", 1: "angry", 2: "glad"}
    path = saved(AlbertForSequenceClassification(config, 3), id2label=labels)
    predictor, pipeline = open_exactly(path), _pipeline("text-classification", path)
    assert predictor.labels == ["calm", "angry", "glad"]
    assert repr(predictor) == (
        f"<Predictor {str(path)!r}: classify texts; labels=['calm', 'angry', 'glad'], "
        f"depth={config.num_hidden_layers}, max_length={predictor.max_length}, precision='fp32', device='cpu'>"
    )
    texts = ["The cat saw the dog.", "A letter", "the old river followed the king again and again"]
    expected = [pipeline(text, top_k=None) for text in texts]
    _assert_equal_scores(predictor.classify_batch(texts), expected)
    _assert_equal_scores([predictor.classify(texts[2])], expected[2:])
    pair = pipeline({"text": texts[0], "text_pair": texts[1]}, top_k=None)
    _assert_equal_scores([predictor.classify(texts[0], texts[1])], [pair])


def test_the_length_of_the_task_is_kept(saved: Save, config: AlbertConfig) -> None:
    predictor = open_exactly(saved(AlbertForSequenceClassification(config, 2), max_sequence_length=16))
    assert predictor.max_length == 16
    assert predictor.classify("the cat saw the dog " * 5)[0]["tokens_cut"] > 0
    with pytest.raises(InvalidConfiguration, match="max_sequence_length: is 'long'"):
        open_exactly(saved(AlbertForSequenceClassification(config, 2), max_sequence_length="long"))


def test_regression_gives_the_number_itself(saved: Save, config: AlbertConfig) -> None:
    path = saved(AlbertForSequenceClassification(config, 1), id2label={0: "similarity"}, problem_type="regression")
    (actual,) = open_exactly(path).classify("the cat", "the dog")
    theirs = transformers.AlbertForSequenceClassification.from_pretrained(path).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(path)("the cat", "the dog", return_tensors="pt")
    with torch.inference_mode():
        expected = float(theirs(**inputs).logits)
    assert actual == {"label": "similarity", "score": pytest.approx(expected, rel=1e-4)}


def test_long_contexts_are_read_whole(saved: Save, config: AlbertConfig) -> None:
    predictor = open_exactly(saved(AlbertForQuestionAnswering(config)))
    context = "The cat saw the old dog. " * 30
    answers = predictor.answer("Who saw it?", context, top_k=10_000)
    assert isinstance(answers, list)
    scores = [answer["score"] for answer in answers]
    assert scores == sorted(scores, reverse=True)
    assert 0 < sum(scores) <= 1 + 1e-9
    assert {answer["start"] // 25 for answer in answers} == set(range(30))
    for answer in answers:
        assert answer["answer"] == context[answer["start"] : answer["end"]]


def test_the_score_of_an_answer_is_that_of_theirs(saved: Save, config: AlbertConfig) -> None:
    path = saved(AlbertForQuestionAnswering(config))
    question, context = "Who saw it?", "The cat saw the old dog."
    actual = open_exactly(path).answer(question, context)
    theirs = transformers.AlbertForQuestionAnswering.from_pretrained(path).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(path)(question, context, return_tensors="pt")
    with torch.inference_mode():
        outputs = theirs(**inputs)
    inside = inputs["token_type_ids"][0].bool().clone()
    inside[-1] = False
    scores = (outputs.start_logits[0, inside][:, None] + outputs.end_logits[0, inside][None, :]).double()
    allowed = torch.ones_like(scores).triu().bool()
    probabilities = torch.where(allowed, scores, -torch.inf).flatten().softmax(0)
    assert actual["score"] == pytest.approx(float(probabilities.max()), rel=1e-3)


def test_a_model_is_only_asked_what_it_has_a_head_for(saved: Save, config: AlbertConfig) -> None:
    classifier = open_exactly(saved(AlbertForSequenceClassification(config, 2)))
    with pytest.raises(InvalidConfiguration, match="no trained head to fill masks; this model can classify"):
        classifier.fill_mask("the [MASK]")
    with pytest.raises(InvalidConfiguration, match="no trained head to answer"):
        classifier.answer("Who?", "the cat")
    with pytest.raises(InvalidConfiguration, match="nothing yet"):
        open_exactly(saved(AlbertModel(config))).classify("the cat")
    with pytest.raises(InvalidConfiguration, match="fill masks and judge the order of segments"):
        open_exactly(saved(AlbertForPreTraining(config))).labels  # noqa: B018


def test_a_head_drawn_at_random_is_not_asked(saved: Save, config: AlbertConfig, tmp_path: Path) -> None:
    path = saved(AlbertForPreTraining(config))
    masked = tmp_path / "masked"
    transformers.AlbertForMaskedLM.from_pretrained(path).save_pretrained(masked)
    for name in ("spiece.model", "tokenizer_config.json"):
        (masked / name).write_bytes((path / name).read_bytes())
    predictor = open_exactly(masked)
    assert predictor.abilities == ("fill masks",)
    actual, expected = predictor.fill_mask(MASKED[0]), open_exactly(path).fill_mask(MASKED[0])
    assert [entry["token"] for entry in actual] == [entry["token"] for entry in expected]


def test_a_foreign_tokenizer_is_refused(saved: Save, config: AlbertConfig) -> None:
    path = saved(AlbertForPreTraining(config))
    (path / "MANIFEST.json").unlink()
    flags = json.loads((path / "tokenizer_config.json").read_text())
    (path / "tokenizer_config.json").write_text(json.dumps(flags | {"do_lower_case": False}))
    with pytest.raises(DamagedData, match="has fingerprint"):
        open_exactly(path)


def test_pieces_beyond_the_tokenizer_are_never_offered(saved: Save, config: AlbertConfig) -> None:
    wider = replace(config, vocab_size=config.vocab_size + 38)
    model = AlbertForPreTraining(wider)
    with torch.no_grad():
        model.predictions.bias[config.vocab_size :] = 100.0
    actual = open_exactly(saved(model)).fill_mask("the [MASK]", top_k=1000)
    assert len(actual) == config.vocab_size


def _pipeline(task: str, path: Path) -> transformers.Pipeline:
    return transformers.pipeline(task, model=str(path), device="cpu")


def _assert_equal_scores(actual: list[list[dict]], expected: list[list[dict]]) -> None:
    for mine, theirs in zip(actual, expected, strict=True):
        assert [entry["label"] for entry in mine] == [entry["label"] for entry in theirs]
        np.testing.assert_allclose([entry["score"] for entry in mine], [entry["score"] for entry in theirs], rtol=1e-4)


def test_words_are_tagged_as_by_the_pipeline(saved: Save, config: AlbertConfig) -> None:
    names = {0: "O", 1: "B-PER", 2: "I-PER"}
    path = saved(AlbertForTokenClassification(config, 3), id2label=names)
    predictor, pipeline = open_exactly(path), _pipeline("token-classification", path)
    text = "The old  sailor saw Ada, again."
    # The first of those that begin at a place, which may be the piece of the blank before it.
    pieces = {piece["start"]: piece for piece in reversed(pipeline(text, ignore_labels=[]))}
    actual = predictor.tag(text)
    assert [word["word"] for word in actual] == ["The", "old", "sailor", "saw", "Ada", ",", "again", "."]
    for word in actual:
        assert word["word"] == text[word["start"] : word["end"]]
        theirs = pieces[word["start"]]  # a word is judged by its first piece
        assert word["entity"] == theirs["entity"]
        assert word["score"] == pytest.approx(theirs["score"], rel=1e-4)
    assert predictor.abilities == ("tag words",)
    assert predictor.labels == ["O", "B-PER", "I-PER"]
    with pytest.raises(InvalidConfiguration, match="no trained head to classify texts; this model can tag words"):
        predictor.classify("a")


def test_every_word_of_a_long_text_is_tagged_where_it_has_most_context(saved: Save, config: AlbertConfig) -> None:
    predictor = open_exactly(saved(AlbertForTokenClassification(config, 4)))
    text = " ".join(f"the sailor saw {'it ' * (n % 5)}again ." for n in range(60))
    actual = predictor.tag(text)
    assert [word["word"] for word in actual] == text.split()
    assert all(word["word"] == text[word["start"] : word["end"]] for word in actual)
    predictor._network.model.micro_batch_tokens = 1
    assert predictor.tag(text) == [word | {"score": pytest.approx(word["score"], rel=1e-4)} for word in actual]


@pytest.mark.parametrize("question", ["", "Who was it?", "It was the _ that sang."])
def test_an_option_is_chosen_as_by_multiple_choice_of_theirs(saved: Save, config: AlbertConfig, question: str) -> None:
    path = saved(AlbertForMultipleChoice(config))
    context, options = "The cat saw the dog.", ["a bird", "the old king", "nobody", "a bird"]
    actual = open_exactly(path).choose(context, options, question)
    theirs = transformers.AlbertForMultipleChoice.from_pretrained(path).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    read = [question.replace("_", option) if "_" in question else f"{question} {option}" for option in options]
    inputs = tokenizer([context] * 4, read, return_tensors="pt", padding=True)
    with torch.inference_mode():
        expected = theirs(**{name: tensor[None] for name, tensor in inputs.items()}).logits.softmax(-1)[0]
    assert [entry["score"] for entry in actual] == sorted((entry["score"] for entry in actual), reverse=True)
    assert sum(entry["score"] for entry in actual) == pytest.approx(1)
    for entry in actual:
        assert entry["option"] == options[entry["index"]]
        assert entry["score"] == pytest.approx(float(expected[entry["index"]]), rel=1e-4)


def test_an_option_that_was_cut_says_so_and_one_is_no_choice(saved: Save, config: AlbertConfig) -> None:
    predictor = open_exactly(saved(AlbertForMultipleChoice(config)))
    actual = predictor.choose("The cat " * 60, ["yes", "no"])
    assert all(entry["tokens_cut"] > 0 for entry in actual)
    with pytest.raises(UsageError, match="1 of them; give at least two"):
        predictor.choose("The cat", ["yes"])


def test_a_setting_in_place_of_the_stated_one_changes_the_answers(saved: Save, config: AlbertConfig) -> None:
    path = saved(AlbertForSequenceClassification(config, 2))
    other = {"hidden_act": "gelu", "num_attention_heads": 2}
    expected = transformers.AlbertForSequenceClassification.from_pretrained(path, **other).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(path)("The cat", return_tensors="pt")
    actual = open_exactly(path, overrides=other).classify("The cat")
    with torch.inference_mode():
        assert actual[0]["score"] == pytest.approx(float(expected(**inputs).logits.softmax(-1).max()), rel=1e-4)
    assert actual[0]["score"] != open_exactly(path).classify("The cat")[0]["score"]


def test_the_next_sentence_is_no_order(saved: Save, config: AlbertConfig) -> None:
    predictor = open_exactly(saved(AlbertForPreTraining(config), sentence_objective="nsp"))
    actual = predictor.order("The cat saw the dog.", "And it followed the bird again.")
    assert actual["label"] in ("next", "foreign")
    assert (actual["label"] == "next") == (actual["probability_next"] >= 0.5)


def test_a_foreign_tokenizer_is_refused_before_a_weight_is_read(saved: Save, config: AlbertConfig) -> None:
    path = saved(AlbertForSequenceClassification(config, 2))
    (path / "MANIFEST.json").unlink()
    content = json.loads((path / "config.json").read_text()) | {"tokenizer_fingerprint": "pieces-0"}
    (path / "config.json").write_text(json.dumps(content))
    (path / "model.safetensors").write_bytes(b"not read")
    with pytest.raises(DamagedData, match="the model was trained with pieces-0"):
        open_exactly(path)
