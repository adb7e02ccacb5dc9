"""Predictions equal those of transformers' pipelines and models, and a cut text is reported."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from tests.parity import from_texts

import albert
from albert.inference.engine import PackedModel
from albert.inference.predictor import Predictor
from albert.model.albert import AlbertForPreTraining
from albert.tasks.examples import asked
from albert.tasks.fill_mask import FillMask
from albert.tasks.pipeline import Lengths
from albert.text.wordpiece import wordpiece_tokenizer

MASKED = [
    "The [MASK] saw the old dog.",
    "[MASK] cat painted it",
    "the cat[MASK]the dog",
    "A  sailor   [MASK]  , again",
    "It remembered the [MASK]",
    "The [MASK] saw the [MASK] dog.",
]


def pipeline(task, path):
    return transformers.pipeline(task, model=str(path), device="cpu")


def values(entries, key):
    return [entry[key] for entry in entries]


@pytest.mark.parametrize("text", MASKED)
def test_masks_are_filled_as_by_the_pipeline(saved, text):
    path = saved("pretraining")
    expected = pipeline("fill-mask", path)(text, top_k=7)
    actual = albert.load(path, precision="fp32").fill_mask(text, top_k=7)
    several = text.count("[MASK]") > 1
    for mine, theirs in zip(actual, expected, strict=True) if several else [(actual, expected)]:
        assert values(mine, "token") == values(theirs, "token")
        np.testing.assert_allclose(values(mine, "score"), values(theirs, "score"), rtol=1e-4)
        if several:
            assert "[MASK]" in mine[0]["sequence"]
            continue
        assert values(mine, "sequence") == values(theirs, "sequence")
        for entry, other in zip(mine, theirs, strict=True):
            if entry["token"] > 4:  # the pipeline writes special pieces with or without brackets
                assert entry["token_str"] == other["token_str"]


class RandomLogits(PackedModel):
    """Random logits in place of a model, so that with a large `top_k` every piece fills every mask."""

    def __init__(self, vocab_size):
        self.logits = torch.randn(512, vocab_size, generator=torch.Generator().manual_seed(0))

    def at(self, ids, types, positions):
        for number, each in enumerate(positions):
            yield number, self.logits[: len(each)], None


def random_predictor(tokenizer) -> Predictor:
    predictor = object.__new__(Predictor)
    predictor.pipelines, predictor.tokenizer, predictor.name = (FillMask(),), tokenizer, "random"
    predictor.packed_model, predictor.lengths = RandomLogits(tokenizer.vocab_size), Lengths(64, 32, 16)
    return predictor


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_filled_sequence_equals_decoding_all_pieces(kind, tokenizer):
    if kind == "wordpiece":
        pieces = [f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")]
        tokenizer = wordpiece_tokenizer([*pieces, "the", "cat", "##s", "##ed", ".", ",", "!", "-", "a", "b"])
    texts = [
        "[MASK] cat",
        "the [MASK]",
        "the cat [MASK]. [MASK] , the dog",
        "[MASK]",
        "the ☃ [MASK][MASK]",
        "☃[MASK] -",
    ]
    features = FillMask().encode([asked(text) for text in texts], tokenizer, Lengths(64, 32, 16))
    ids = [features.sequences.token_ids(number) for number in range(len(texts))]
    filled = random_predictor(tokenizer).fill_mask_batch(texts, top_k=1000)
    special, mask = tokenizer.special_ids, tokenizer.mask_id
    for masks, row in zip(filled, [each.tolist() for each in ids], strict=True):
        positions = [position for position, piece in enumerate(row) if piece == mask]
        for position, actual in zip(positions, masks, strict=True):
            assert sorted(values(actual, "token")) == list(range(tokenizer.vocab_size))
            for entry in actual:
                pieces = [*row[:position], entry["token"], *row[position + 1 :]]
                kept = [piece for i, piece in enumerate(pieces)
                        if piece not in special or (i in positions and i != position)]  # fmt: skip
                assert entry["sequence"] == tokenizer.decode(kept, skip_special_tokens=False)
                assert entry["token_str"] == tokenizer.decode([entry["token"]], skip_special_tokens=False)


def test_text_around_a_mask_is_decoded_once(tokenizer, monkeypatch):
    lengths, decode = [], type(tokenizer).decode
    monkeypatch.setattr(
        type(tokenizer), "decode", lambda self, ids, **how: lengths.append(len(ids)) or decode(self, ids, **how)
    )
    random_predictor(tokenizer).fill_mask_batch(["the cat saw [MASK] the dog"] * 5, top_k=300)
    assert len(lengths) <= 3 * 300 + 3 * 5 and sum(length > 3 for length in lengths) <= 3 * 5


def test_order_equals_sentence_order_head_of_transformers(saved):
    path = saved("pretraining", sentence_objective="sop")
    texts = "The cat saw the dog.", "And it followed the bird again."
    actual = albert.load(path, precision="fp32").order(*texts)
    inputs, outputs = from_texts(path, transformers.AlbertForPreTraining, *texts)
    assert int(inputs["token_type_ids"].sum()) > 0
    expected = float(outputs.sop_logits.softmax(-1)[0, 0])
    assert actual == {
        "label": "in order" if expected >= 0.5 else "swapped",
        "probability_in_order": pytest.approx(expected, rel=1e-4),
        "score": pytest.approx(max(expected, 1 - expected), rel=1e-4),
    }


def test_next_sentence_model_predicts_next_or_foreign(opened):
    predictor = opened("pretraining", sentence_objective="nsp")
    actual = predictor.order("The cat saw the dog.", "And it followed the bird again.")
    assert actual["label"] == ("next" if actual["probability_next"] >= 0.5 else "foreign")


def test_untrained_order_head_is_no_ability(opened, refused):
    predictor = opened("pretraining", sentence_objective="none")
    assert predictor.abilities == ("fill masks",) and ": fill masks; depth=" in repr(predictor)
    refused(lambda: predictor.order("a", "b"), 78, "order")


def test_classes_equal_those_of_the_pipeline(saved, config):
    labels = ["calm", "angry", "glad"]
    path = saved("classification", 3, id2label=dict(enumerate(labels)))
    predictor, theirs = albert.load(path, precision="fp32"), pipeline("text-classification", path)
    assert predictor.labels == labels
    copied = pickle.loads(pickle.dumps(predictor))
    expected = predictor.classify("A letter")
    with torch.autocast("cpu"):
        opened_inside = albert.load(path, torch.device("cpu"), precision="fp32")
        assert copied.classify("A letter") == opened_inside.classify("A letter") == expected
    assert repr(copied) == repr(predictor)
    assert repr(predictor) == (
        f"<Predictor {str(path)!r}: classify texts; labels={labels}, "
        f"depth={config.num_hidden_layers}, max_length={predictor.max_length}, precision='fp32', device='cpu'>"
    )
    texts = ["The cat saw the dog.", "A letter", "the old river followed the king again and again"]
    actual = [*predictor.classify_batch(texts), predictor.classify(texts[0], texts[1])]
    pair = {"text": texts[0], "text_pair": texts[1]}
    expected = [theirs(each, top_k=None) for each in (*texts, pair)]
    for mine, other in zip(actual, expected, strict=True):
        assert values(mine, "label") == values(other, "label")
        np.testing.assert_allclose(values(mine, "score"), values(other, "score"), rtol=1e-4)


def test_max_length_of_fine_tuning_is_kept(opened, saved, refused):
    predictor = opened("classification", 2, max_sequence_length=16)
    assert predictor.max_length == 16
    assert predictor.classify("the cat saw the dog " * 5)[0]["tokens_cut"] > 0
    path = saved("classification", 2, max_sequence_length="long")
    refused(lambda: albert.load(path), 78, "max_sequence_length", "'long'")


def test_regression_gives_the_logit(saved):
    path = saved("classification", 1, id2label={0: "similarity"}, problem_type="regression")
    (actual,) = albert.load(path, precision="fp32").classify("the cat", "the dog")
    _, outputs = from_texts(path, transformers.AlbertForSequenceClassification, "the cat", "the dog")
    assert actual == {"label": "similarity", "score": pytest.approx(float(outputs.logits), rel=1e-4)}


def test_long_context_is_read_in_windows(opened):
    context = "The cat saw the old dog. " * 30
    answers = opened("question_answering").answer("Who saw it?", context, top_k=10_000)
    scores = values(answers, "score")
    assert scores == sorted(scores, reverse=True) and 0 < sum(scores) <= 1 + 1e-9
    assert {answer["start"] // 25 for answer in answers} == set(range(30))
    assert all(answer["answer"] == context[answer["start"] : answer["end"]] for answer in answers)


def test_answer_score_equals_that_of_transformers(saved):
    path = saved("question_answering")
    texts = "Who saw it?", "The cat saw the old dog."
    inputs, outputs = from_texts(path, transformers.AlbertForQuestionAnswering, *texts)
    inside = inputs["token_type_ids"][0].bool().clone()
    inside[-1] = False
    scores = (outputs.start_logits[0, inside][:, None] + outputs.end_logits[0, inside][None, :]).double()
    allowed = torch.ones_like(scores).triu().bool()
    expected = torch.where(allowed, scores, -torch.inf).flatten().softmax(0).max()
    actual = albert.load(path, precision="fp32").answer(*texts)
    assert actual["score"] == pytest.approx(float(expected), rel=1e-3)


def test_pieces_beyond_the_tokenizer_are_never_offered(opened, config, refused):
    model = AlbertForPreTraining(replace(config, vocab_size=config.vocab_size + 38))
    with torch.no_grad():
        model.predictions.bias[config.vocab_size :] = 100.0
    assert len(opened(model).fill_mask("the [MASK]", top_k=1000)) == config.vocab_size
    refused(lambda: opened(model).fill_mask("the [MASK]", top_k=0), 2, "top_k: is 0")


def test_words_are_tagged_as_by_the_pipeline(saved, refused):
    names = ["O", "B-PER", "I-PER"]
    path = saved("token_classification", 3, id2label=dict(enumerate(names)))
    predictor, text = albert.load(path, precision="fp32"), "The old  sailor saw “Ada”, again."
    actual = predictor.tag(text)
    words = values(actual, "word")
    assert words == ["The", "old", "sailor", "saw", "“", "Ada", "”", ",", "again", "."]
    assert words == [text[word["start"] : word["end"]] for word in actual]
    # Transformers splits at blanks only. The first piece that begins at a position may be that of the blank before it.
    apart = " ".join(words)
    theirs = reversed(pipeline("token-classification", path)(apart, ignore_labels=[]))
    pieces = {piece["start"]: piece for piece in theirs}
    end = 0
    for word in actual:
        expected = pieces[apart.index(word["word"], end)]
        end = apart.index(word["word"], end) + len(word["word"])
        assert (word["entity"], word["score"]) == (expected["entity"], pytest.approx(expected["score"], rel=1e-4))
    given = predictor.tag_sentences([words])[0]
    assert [{**word, "start": 0, "end": 0} for word in given] == [{**word, "start": 0, "end": 0} for word in actual]
    assert predictor.tag(" \u200b") == []
    assert predictor.abilities == ("tag words",) and predictor.labels == names
    refused(lambda: predictor.classify("a"), 78, "classify texts", "tag words")


def test_every_word_of_a_long_text_is_tagged(opened):
    predictor = opened("token_classification", 4)
    text = " ".join(f"the sailor saw {'it ' * (n % 5)}again ." for n in range(60))
    actual = predictor.tag(text)
    assert values(actual, "word") == text.split()
    assert all(word["word"] == text[word["start"] : word["end"]] for word in actual)
    predictor.packed_model.micro_batch_tokens = 1
    assert predictor.tag(text) == [word | {"score": pytest.approx(word["score"], rel=1e-4)} for word in actual]


@pytest.mark.parametrize("question", ["", "Who was it?", "It was the _ that sang."])
def test_option_scores_equal_those_of_transformers(saved, question):
    path = saved("multiple_choice")
    context, options = "The cat saw the dog.", ["a bird", "the old king", "nobody", "a bird"]
    actual = albert.load(path, precision="fp32").choose(context, options, question)
    seconds = [question.replace("_", option) if "_" in question else f"{question} {option}" for option in options]
    _, outputs = from_texts(path, transformers.AlbertForMultipleChoice, [context] * 4, seconds, padding=True)
    expected = outputs.logits.softmax(-1)[0]
    scores = values(actual, "score")
    assert scores == sorted(scores, reverse=True) and sum(scores) == pytest.approx(1)
    for entry in actual:
        assert entry["option"] == options[entry["index"]]
        assert entry["score"] == pytest.approx(float(expected[entry["index"]]), rel=1e-4)


def test_cut_context_of_options_is_reported_and_one_option_refused(opened, refused):
    predictor = opened("multiple_choice")
    assert all(entry["tokens_cut"] > 0 for entry in predictor.choose("The cat " * 60, ["yes", "no"]))
    refused(lambda: predictor.choose("The cat", ["yes"]), 2, "options")


def test_overrides_change_the_configuration(saved):
    path = saved("classification", 2)
    overrides = {"hidden_act": "gelu", "num_attention_heads": 2}
    model = transformers.AlbertForSequenceClassification.from_pretrained(path, **overrides)
    _, outputs = from_texts(path, model, "The cat")
    actual = albert.load(path, precision="fp32", overrides=overrides).classify("The cat")[0]["score"]
    assert actual == pytest.approx(float(outputs.logits.softmax(-1).max()), rel=1e-4)
    assert actual != albert.load(path, precision="fp32").classify("The cat")[0]["score"]


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("tokenizer_config.json", {"do_lower_case": False}),
        ("config.json", {"tokenizer_fingerprint": "pieces-0"}),
    ],
)
def test_a_foreign_tokenizer_is_refused(name, changed, saved, refused):
    """Before a weight is read."""
    path = saved("pretraining")
    (path / "MANIFEST.json").unlink()
    (path / name).write_text(json.dumps(json.loads((path / name).read_text()) | changed))
    (path / "model.safetensors").write_bytes(b"not read")
    refused(lambda: albert.load(path), 65, "fingerprint", path)
