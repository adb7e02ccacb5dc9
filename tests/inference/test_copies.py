"""Copies of a model answer as it does, whatever happens to its files; a pickle refuses another model in its place."""

import copy
import pickle
import shutil

import joblib
import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from tests.inference.conftest import KINDS

import albert
from albert.checkpoints.huggingface import build_model

TEXTS = ["The cat saw the old dog.", "A letter", "the old river followed the king again and again"]
PRECISIONS = ["fp32", "bf16"]


@pytest.fixture
def model(model_paths, tmp_path, monkeypatch):
    """A relative path of a classifier, in the working directory."""
    shutil.copytree(model_paths("classify"), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return "model"


@pytest.fixture
def put_another(model, tmp_path, saved, config):
    """Put another model in its place."""

    def replace():
        torch.manual_seed(99)
        other = saved(build_model("classification", config, 3), id2label={0: "calm", 1: "storm", 2: "wreck"})
        shutil.rmtree(tmp_path / model)
        shutil.copytree(other, tmp_path / model)

    return replace


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_deep_copy_has_weights_of_its_own(model_paths, kind, precision):
    original = albert.load(model_paths(kind), precision=precision)
    copied = copy.deepcopy(original)
    expected = original.embed(TEXTS)
    with torch.no_grad():
        for parameter in original.network.parameters():
            parameter.zero_()
    assert np.array_equal(copied.embed(TEXTS), expected) and repr(copied) == repr(original)
    assert np.array_equal(copy.deepcopy(copied).embed(TEXTS), expected)


def test_a_deep_copy_outlives_its_files(model, put_another, monkeypatch):
    original = albert.load(model, depth=1)
    expected = original.classify_batch(TEXTS)
    copied, shallow = copy.deepcopy(original), copy.copy(original)
    put_another()
    monkeypatch.chdir("/")
    assert copied.classify_batch(TEXTS) == shallow.classify_batch(TEXTS) == expected
    assert np.array_equal(copied.embed(TEXTS, "weighted"), original.embed(TEXTS, "weighted"))


@pytest.mark.parametrize("how", [{}, {"precision": "bf16"}, {"depth": 1}, {"overrides": {"hidden_act": "relu"}}])
def test_a_pickle_opens_the_same_model_from_anywhere(model, monkeypatch, how):
    original = albert.load(model, **how)
    expected = original.classify_batch(TEXTS)
    monkeypatch.chdir("/")
    content = pickle.dumps(original)
    assert len(content) < 2_000
    assert pickle.loads(content).classify_batch(TEXTS) == expected
    assert pickle.loads(pickle.dumps(pickle.loads(content))).classify_batch(TEXTS) == expected


def test_a_pickle_refuses_another_model_and_a_missing_one(model, put_another, tmp_path, refused):
    original = albert.load(model)
    before = pickle.dumps(original)
    put_another()
    after = pickle.dumps(original)  # it is the model in memory that counts
    for content in (before, after):
        refused(lambda content=content: pickle.loads(content), 65, tmp_path / model, "another model than the one that")
    shutil.rmtree(tmp_path / model)
    refused(lambda: pickle.loads(before), 66, tmp_path / model)


def test_another_configuration_or_vocabulary_is_another_model(model, tmp_path, refused):
    content = pickle.dumps(albert.load(model))
    config = tmp_path / model / "config.json"
    (tmp_path / model / "MANIFEST.json").unlink(missing_ok=True)
    config.write_text(config.read_text().replace('"storm"', '"gale"'))
    refused(lambda: pickle.loads(content), 65, "another model")


@pytest.fixture
def pipeline(model):
    labels = [0, 1, 1]
    return make_pipeline(albert.AlbertEmbedding(model, normalize=True), LogisticRegression()).fit(TEXTS, labels)


def test_a_pipeline_in_joblib_is_the_same_or_refused(pipeline, put_another, tmp_path, monkeypatch, refused):
    expected = pipeline.predict_proba(TEXTS)
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    monkeypatch.chdir("/")
    assert np.array_equal(joblib.load(tmp_path / "pipeline.joblib").predict_proba(TEXTS), expected)
    joblib.dump(joblib.load(tmp_path / "pipeline.joblib"), tmp_path / "again.joblib")  # which opened nothing
    copied = copy.deepcopy(pipeline)
    put_another()
    assert np.array_equal(copied.predict_proba(TEXTS), expected)
    for name in ("pipeline.joblib", "again.joblib"):
        loaded = joblib.load(tmp_path / name)
        refused(lambda loaded=loaded: loaded.predict_proba(TEXTS), 65, tmp_path / "model", "another model than the one")


def test_a_pipeline_with_other_settings_opens_what_is_there(pipeline, put_another, tmp_path, model_paths):
    joblib.dump(pipeline, tmp_path / "pipeline.joblib")
    put_another()
    loaded = joblib.load(tmp_path / "pipeline.joblib").set_params(albertembedding__model=str(model_paths("classify")))
    assert np.array_equal(loaded.predict_proba(TEXTS), pipeline.predict_proba(TEXTS))


def test_settings_that_changed_after_the_model_was_opened_are_pickled(model, model_paths):
    embedding = albert.AlbertEmbedding(model).fit(TEXTS)
    other = str(model_paths("tag"))
    copied = pickle.loads(pickle.dumps(embedding.set_params(model=other)))
    assert copied.model == other and np.array_equal(copied.transform(TEXTS), albert.load(other).embed(TEXTS))
