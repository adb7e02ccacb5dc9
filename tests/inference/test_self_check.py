"""A model that was trained with one number of heads is recognised; what a text cannot tell is not claimed."""

from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tiny import tiny_config
from torch.nn import functional

from albert.inference.inspection import check_settings, plausible_settings
from albert.model.albert import AlbertForMaskedLM, AlbertForPreTraining, AlbertForSequenceClassification
from albert.model.config import PRESETS, AlbertConfig
from albert.model.packing import pack
from albert.runtime.errors import InvalidConfiguration
from albert.text.sentencepiece import train_tokenizer
from albert.text.tokenizer import Tokenizer

Save = Callable[..., Path]
TEXT = (files("albert.inference") / "self_check.txt").read_text("utf-8")
TRUE_HEADS = 16


@pytest.fixture(scope="module")
def trained(tokenizer: Tokenizer) -> AlbertForMaskedLM:
    """Learns the fixed text nearly by heart, with 16 heads of 4."""
    config = tiny_config(
        tokenizer.vocab_size,
        embedding_size=32,
        hidden_size=64,
        num_attention_heads=TRUE_HEADS,
        intermediate_size=128,
        max_position_embeddings=128,
        initializer_range=0.1,
    )
    torch.manual_seed(0)
    model, rng = AlbertForMaskedLM(config), np.random.default_rng(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    paragraphs = [np.asarray([2, *tokenizer.encode(line)[:126], 3]) for line in TEXT.splitlines()]
    for _ in range(160):
        masks = [rng.random(len(ids)) < 0.15 for ids in paragraphs]
        inputs = [np.where(mask, tokenizer.mask_id, ids) for mask, ids in zip(masks, paragraphs, strict=True)]
        places = np.flatnonzero(np.concatenate(masks))
        logits = model(pack(inputs, [np.zeros_like(ids) for ids in inputs]), torch.from_numpy(places))
        loss = functional.cross_entropy(logits, torch.from_numpy(np.concatenate(paragraphs)[places]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


@pytest.mark.parametrize("stated", [TRUE_HEADS, 32])
def test_the_number_of_heads_it_was_trained_with_is_found(trained: AlbertForMaskedLM, saved: Save, stated: int) -> None:
    claimed = AlbertForMaskedLM(replace(trained.config, num_attention_heads=stated))
    claimed.load_state_dict(trained.state_dict())
    check = check_settings(saved(claimed))
    assert {setting.num_attention_heads for setting in check.settings} == {1, 16, 32}
    assert check.best.num_attention_heads == TRUE_HEADS
    assert check.best.accuracy > max(s.accuracy for s in check.settings if s.num_attention_heads != TRUE_HEADS)
    assert (check.stated.hidden_act, check.stated.num_attention_heads) == ("gelu_new", stated)
    assert check.stated.as_good_as_the_best == (stated == TRUE_HEADS)
    if stated == TRUE_HEADS:
        assert check.verdict.startswith("no setting is better than the stated gelu_new with 16 heads")
    else:
        assert "with 16 heads is better than the stated gelu_new with 32 heads by" in check.verdict


def test_the_figures_are_those_of_the_settings(trained: AlbertForMaskedLM, saved: Save) -> None:
    check = check_settings(saved(trained))
    losses = [setting.loss for setting in check.settings]
    assert losses == sorted(losses)
    for setting in check.settings:
        assert setting.excess == pytest.approx(setting.loss - check.best.loss, abs=1e-9)
    again = check_settings(saved(trained))
    assert again == check
    assert check.masked_tokens > 100


def test_a_model_that_knows_nothing_decides_nothing(saved: Save, config: AlbertConfig) -> None:
    check = check_settings(saved(AlbertForPreTraining(replace(config, initializer_range=1e-4))))
    assert check.stated.as_good_as_the_best
    assert "cannot be told apart from it by this text" in check.verdict


def test_another_text_can_be_asked_in_another_language(trained: AlbertForMaskedLM, saved: Save) -> None:
    path = saved(trained)
    assert check_settings(path, text="Die Sonne ist ein Stern.\n" * 20).stated.loss != check_settings(path).stated.loss
    with pytest.raises(InvalidConfiguration, match="at least 10 are needed"):
        check_settings(path, text="Die Sonne.")
    with pytest.raises(InvalidConfiguration, match="gives 0 tokens"):
        check_settings(path, text="")


def test_a_model_without_a_masked_token_head_is_not_asked(saved: Save, config: AlbertConfig) -> None:
    with pytest.raises(InvalidConfiguration, match="has no masked-token head"):
        check_settings(saved(AlbertForSequenceClassification(config, 2)))


@pytest.mark.parametrize(
    ("preset", "act", "expected"),
    [
        ("albert-base", "gelu", set(product(("gelu", "gelu_new"), (12, 16, 32)))),
        ("albert-xlarge", "relu", {("relu", 16), ("relu", 32)}),
    ],
)
def test_what_is_plausible(preset: str, act: str, expected: set) -> None:
    stated = replace(PRESETS[preset], hidden_act=act)
    tried = plausible_settings(stated)
    assert tried[0] == stated
    assert {(config.hidden_act, config.num_attention_heads) for config in tried} == expected


def test_the_text_is_plain_and_long_enough_to_decide() -> None:
    assert TEXT.isascii() and 250 < len(TEXT.split()) < 450
    assert train_tokenizer([TEXT], vocab_size=120).encode(TEXT)
