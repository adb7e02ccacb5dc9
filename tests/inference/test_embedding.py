"""Sentence vectors equal those of transformers, and work in scikit-learn."""

import pickle
import traceback
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
import transformers
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from tests.parity import from_texts

import albert

TEXTS = ["The cat saw the old dog.", "", "A letter", "the old river followed the king again and again", "猫 é"]


@pytest.mark.parametrize("pooling", ["mean", "cls", "weighted"])
def test_vectors_equal_those_of_transformers(saved, pooling):
    path = saved("encoder")
    actual = albert.load(path, precision="fp32").embed(TEXTS, pooling)
    inputs, outputs = from_texts(path, transformers.AutoModel, TEXTS, padding=True)
    hidden = outputs.last_hidden_state.numpy()
    weights = inputs["attention_mask"].numpy().astype(np.float64)
    if pooling == "cls":
        weights[:, 1:] = 0
    elif pooling == "weighted":  # a / (a + p), Arora et al. 2017, with p from the scores in spiece.model
        scores = sentencepiece.SentencePieceProcessor(model_file=str(path / "spiece.model"))
        special = {1: 1.0, 2: 1e-6, 3: 1e-6}  # [UNK], [CLS], [SEP]
        weigh = lambda piece: special.get(piece, 1 / (1 + 1e3 * np.exp(scores.GetScore(piece))))  # noqa: E731
        weights *= np.vectorize(weigh)(inputs["input_ids"].numpy())
    expected = [np.average(states, axis=0, weights=own) for states, own in zip(hidden, weights, strict=True)]
    assert actual.dtype == np.float32
    np.testing.assert_allclose(actual, expected, atol=1e-5)


@pytest.mark.parametrize(("kind", "labels"), [("pretraining", None), ("token_classification", 2)])
def test_every_head_embeds_and_normalises(opened, kind, labels):
    predictor = opened(kind, labels)
    vectors = predictor.embed(TEXTS)
    unit_vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(predictor.embed(TEXTS, normalize=True), unit_vectors, atol=1e-6)
    np.testing.assert_allclose(np.concatenate([predictor.embed([text]) for text in TEXTS]), vectors, atol=1e-5)


def test_pooling_is_refused_where_it_is_unknown_or_has_no_probabilities(saved, tmp_path, refused):
    (tmp_path / "in.txt").write_text("a\n")
    embed = ["predict", saved("encoder"), "--input", tmp_path / "in.txt", "--task", "embed"]
    refused([*embed, "--pooling", "median"], 2, "--pooling", "median")
    words = [*(f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")), "the", "##s"]
    (tmp_path / "bert").mkdir()
    (tmp_path / "bert" / "vocab.txt").write_text("\n".join(words))
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(vocab_size=len(words), **sizes)).save_pretrained(tmp_path / "bert")
    word_pieces = albert.load(tmp_path / "bert")
    refused(lambda: word_pieces.embed(["the"], "weighted"), 2, "pooling 'weighted'", "SentencePiece")


def test_pipeline_of_scikit_learn_trains_on_vectors(saved):
    path, labels = str(saved("encoder")), [0] * 4 + [1] * 4
    texts = ["the cat saw the dog"] * 4 + ["a letter to the king, again"] * 4
    pipeline = make_pipeline(albert.AlbertEmbedding(path, normalize=True, precision="fp32"), LogisticRegression())
    assert pipeline.fit(texts, labels).predict(texts).tolist() == labels
    copy = clone(pipeline)
    assert copy.get_params()["albertembedding__normalize"] is True
    assert copy.fit(texts, labels).predict(np.array(texts[:1])).tolist() == [0]


@pytest.mark.parametrize("ask", ["fit", "transform", "get_feature_names_out"])
def test_an_error_of_the_transformer_has_one_frame_of_the_package(ask, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(albert.AlbertError) as caught:
        getattr(albert.AlbertEmbedding(str(tmp_path / "empty")), ask)(["a text"])
    frames = traceback.extract_tb(caught.value.__traceback__)
    inside = [frame.filename for frame in frames if str(Path(albert.__file__).parent) in frame.filename]
    assert [Path(name).name for name in inside] == ["errors.py"]


def test_string_and_data_frame_are_refused(refused):
    """A string is a list of letters, a data frame one of the names of its columns."""
    embedding = albert.AlbertEmbedding("tiny")
    refused(lambda: embedding.transform("abc"), 2, "texts: is one text")
    pandas = pytest.importorskip("pandas")
    refused(
        lambda: embedding.transform(pandas.DataFrame({"text": ["a"]})),
        2,
        "texts: is an object of type DataFrame",
        "one column",
    )


def test_settings_are_copied_and_pickled_without_weights(saved):
    embedding = albert.AlbertEmbedding(str(saved("encoder")), precision="fp32").fit(TEXTS)
    expected = embedding.transform(TEXTS)
    content = pickle.dumps(embedding)
    assert len(content) < 1000
    np.testing.assert_array_equal(pickle.loads(content).transform(TEXTS), expected)
    assert embedding.get_feature_names_out().tolist()[:2] == ["albert0", "albert1"]
    shallow = clone(embedding).set_params(depth=1)
    assert not np.allclose(shallow.transform(TEXTS), expected)
