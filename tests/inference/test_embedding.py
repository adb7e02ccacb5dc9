"""Sentence vectors are those of transformers, and fit where scikit-learn and sentence-transformers expect them."""

import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import torch
import transformers
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import albert
from albert.inference.embedding import AlbertEmbedding
from albert.inference.predictor import Pooling, Predictor, check_pooling, piece_weights
from albert.model.albert import AlbertForPreTraining, AlbertForTokenClassification, AlbertModel
from albert.model.config import AlbertConfig
from albert.runtime.errors import UsageError
from albert.text.wordpiece import WordPieceTokenizer

Save = Callable[..., Path]
open_exactly = partial(Predictor.open, precision="fp32")
TEXTS = ["The cat saw the old dog.", "", "A letter", "the old river followed the king again and again", "猫 é"]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_vectors_are_those_of_transformers(saved: Save, config: AlbertConfig, pooling: Pooling) -> None:
    path = saved(AlbertModel(config))
    actual = open_exactly(path).embed(TEXTS, pooling)
    model = transformers.AutoModel.from_pretrained(path).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(path)(TEXTS, return_tensors="pt", padding=True)
    with torch.inference_mode():
        hidden = model(**inputs).last_hidden_state
    mask = inputs["attention_mask"][:, :, None]
    expected = (hidden * mask).sum(1) / mask.sum(1) if pooling == "mean" else hidden[:, 0]
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected.numpy(), atol=1e-5)


def test_every_head_embeds_and_length_one_is_length_one(saved: Save, config: AlbertConfig) -> None:
    for model in (AlbertForPreTraining(config), AlbertForTokenClassification(config, 2)):
        predictor = open_exactly(saved(model))
        vectors = predictor.embed(TEXTS, normalize=True)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
        plain = predictor.embed(TEXTS)
        np.testing.assert_allclose(vectors, plain / np.linalg.norm(plain, axis=1, keepdims=True), atol=1e-6)
        for text, vector in zip(TEXTS, plain, strict=True):
            np.testing.assert_allclose(predictor.embed([text])[0], vector, atol=1e-5)


def test_weighted_vectors_count_rare_pieces_more(saved: Save, config: AlbertConfig) -> None:
    """By a / (a + p) (Arora et al. 2017), p from the scores of spiece.model; [CLS] and [SEP] hardly count."""
    path = saved(AlbertModel(config))
    actual = open_exactly(path).embed(TEXTS, "weighted")
    scores = sentencepiece.SentencePieceProcessor(model_file=str(path / "spiece.model"))
    model = transformers.AutoModel.from_pretrained(path).eval()
    inputs = transformers.AutoTokenizer.from_pretrained(path)(TEXTS, return_tensors="pt", padding=True)
    with torch.inference_mode():
        hidden = model(**inputs).last_hidden_state.numpy()
    for vector, states, ids, mask in zip(actual, hidden, inputs["input_ids"], inputs["attention_mask"], strict=True):
        special_weights = {1: 1.0, 2: 1e-6, 3: 1e-6}  # [UNK], [CLS], [SEP]
        weights = [special_weights.get(token, 1 / (1 + 1e3 * np.exp(scores.GetScore(token)))) for token in ids.tolist()]
        np.testing.assert_allclose(vector, np.average(states, axis=0, weights=weights * mask.numpy()), atol=1e-5)


def test_weights_need_a_vocabulary_with_probabilities() -> None:
    tokenizer = WordPieceTokenizer([*(f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")), "the", "##s"])
    with pytest.raises(UsageError, match="'weighted': needs a SentencePiece vocabulary, whose pieces have prob"):
        piece_weights(tokenizer)


def test_an_unknown_pooling_is_refused() -> None:
    with pytest.raises(UsageError, match="pooling 'max': unknown; use mean or cls or weighted"):
        check_pooling("max")


def test_a_pipeline_learns_from_vectors(saved: Save, config: AlbertConfig) -> None:
    path = str(saved(AlbertModel(config)))
    texts = ["the cat saw the dog"] * 4 + ["a letter to the king, again"] * 4
    pipeline = make_pipeline(albert.AlbertEmbedding(path, normalize=True, precision="fp32"), LogisticRegression())
    pipeline.fit(texts, [0] * 4 + [1] * 4)
    assert pipeline.predict(texts).tolist() == [0] * 4 + [1] * 4
    again = clone(pipeline)
    assert again.get_params()["albertembedding__normalize"] is True
    assert again.fit(texts, [0] * 4 + [1] * 4).predict(np.array(texts[:1])).tolist() == [0]


def test_settings_are_copied_and_pickled_and_weights_are_not(saved: Save, config: AlbertConfig) -> None:
    embedding = AlbertEmbedding(str(saved(AlbertModel(config))), precision="fp32").fit(TEXTS)
    expected = embedding.transform(TEXTS)
    content = pickle.dumps(embedding)
    assert len(content) < 1000
    np.testing.assert_array_equal(pickle.loads(content).transform(TEXTS), expected)
    assert embedding.get_feature_names_out().tolist()[:2] == ["albert0", "albert1"]
    shallow = clone(embedding).set_params(depth=1)
    assert not np.allclose(shallow.transform(TEXTS), expected)
