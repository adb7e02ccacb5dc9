"""A tiny vocabulary and directories of models with random weights."""

from functools import cache

import pytest
import torch
from tests.tiny import tiny_config

import albert
from albert.checkpoints.huggingface import build_model
from albert.checkpoints.model_directory import save_model_directory
from albert.inference.engine import check_int8
from albert.runtime.errors import Unavailable


@pytest.fixture(scope="session")
def config(tokenizer):
    return tiny_config(
        tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
    )


@pytest.fixture
def saved(tmp_path, tokenizer_directory, config):
    """Save a model, or a new one of some kind, with the tiny tokenizer and return its directory."""

    def save(model, labels=None, config=config, **extra):
        if isinstance(model, str):
            model = build_model(model, config, labels)
        path = tmp_path / f"model-{len(list(tmp_path.iterdir()))}"
        save_model_directory(path, model, tokenizer_directory, extra=extra)
        return path

    return save


@pytest.fixture
def opened(saved):
    """Save a model as `saved` does and open it in fp32."""
    return lambda *model, **extra: albert.load(saved(*model, **extra), precision="fp32")


def has_int8() -> bool:
    """Whether this processor has the products that int8 needs."""
    try:
        check_int8(torch.device("cpu"))
    except Unavailable:
        return False
    return True


@pytest.fixture(params=["bf16", "int8"])
def chosen(request):
    """bf16, which torch computes on every processor, and int8 where it is not refused."""
    if request.param == "int8" and not has_int8():
        pytest.skip("no 8-bit products on this processor")
    return request.param


NAMED = {"id2label": {"0": "calm", "1": "storm", "2": "wreck"}, "label2id": {"calm": 0, "storm": 1, "wreck": 2}}
KINDS = {
    "pretrain": ("pretraining", None, {"sentence_objective": "sop"}),
    "classify": ("classification", 3, NAMED),
    "score": ("classification", 1, {"id2label": {0: "x"}, "problem_type": "regression"}),
    "answer": ("question_answering", None, {}),
    "tag": ("token_classification", 3, NAMED),
    "choose": ("multiple_choice", None, {}),
}


@pytest.fixture(scope="session")
def model_paths(tokenizer_directory, config, tmp_path_factory):
    """The directory of a model of a name of `KINDS`, saved once."""

    @cache
    def path_of(name):
        torch.manual_seed(3)
        kind, labels, extra = KINDS[name]
        path = tmp_path_factory.mktemp("predictors") / name
        save_model_directory(path, build_model(kind, config, labels), tokenizer_directory, extra=extra)
        return path

    return path_of


@cache
def opened_once(path):
    return albert.load(path, "cpu", precision="fp32")


@pytest.fixture
def predictors(model_paths):
    """What `albert.load` gives for a model of each kind in fp32; each is opened once."""
    return lambda name: opened_once(model_paths(name))


@pytest.fixture
def classifier(saved, config) -> str:
    return str(saved("classification", 2, id2label={0: "dull", 1: "[bold]"}))
