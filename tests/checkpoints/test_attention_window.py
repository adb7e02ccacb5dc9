"""A model with an attention window comes back with it, and transformers never runs it with dense attention."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from albert.checkpoints.model_directory import MODELS, Kind, open_model, read_config, save_model_directory
from albert.checkpoints.warm_start import warm_start
from albert.model.albert import AlbertForMaskedLM, AlbertForPreTraining, AlbertForSequenceClassification
from albert.model.config import AlbertConfig
from albert.model.packing import PackedSequences, pack
from albert.runtime.errors import InvalidConfiguration
from albert.text.sentencepiece import train_tokenizer

Rewrite = Callable[..., None]
LABELLED = ("classification", "token_classification")


@pytest.fixture
def windowed(config: AlbertConfig) -> AlbertConfig:
    return replace(config, max_position_embeddings=200, attention_window=4, initializer_range=0.3)


def batch(lengths: tuple[int, ...]) -> PackedSequences:
    draws = np.random.default_rng(0)
    return pack([draws.integers(5, 50, n) for n in lengths], [np.zeros(n, dtype=np.int64) for n in lengths])


def numbers(model: torch.nn.Module, kind: Kind, packed: PackedSequences) -> list[torch.Tensor]:
    with torch.inference_mode():
        asked = (packed, torch.arange(20)) if kind in ("pretraining", "masked_lm") else (packed,)
        found = model(*asked)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("kind", MODELS)
def test_every_head_sees_through_the_window_and_comes_back(kind: Kind, windowed: AlbertConfig, tmp_path: Path) -> None:
    outputs = (3,) if kind in LABELLED else ()
    model = MODELS[kind](windowed, *outputs).eval()
    save_model_directory(tmp_path / "model", model, None)
    opened = open_model(tmp_path / "model", kind)
    assert opened.config == windowed
    dense = open_model(tmp_path / "model", kind, overrides={"attention_window": None}).model
    packed = batch((200, 180, 5))
    written, read, other = (numbers(each, kind, packed) for each in (model, opened.model, dense))
    assert all(map(torch.equal, written, read))
    assert not all(torch.allclose(mine, theirs, atol=1e-4) for mine, theirs in zip(read, other, strict=True))


@pytest.mark.parametrize("dense", [False, True])
def test_transformers_opens_what_it_can_compute_and_nothing_else(
    dense: bool, windowed: AlbertConfig, tmp_path: Path
) -> None:
    config = replace(windowed, attention_window=198 if dense else 197)
    save_model_directory(tmp_path / "model", AlbertForMaskedLM(config), None)
    said = json.loads((tmp_path / "model/config.json").read_text())
    assert said["attention_window"] == config.attention_window
    if dense:
        packed = batch((200,))
        theirs = transformers.AlbertForMaskedLM.from_pretrained(tmp_path / "model").eval()
        with torch.inference_mode():
            expected = theirs(packed.token_ids[None]).logits[0, :20]
        (found,) = numbers(open_model(tmp_path / "model", "masked_lm").model, "masked_lm", packed)
        assert torch.allclose(found, expected, atol=1e-4)
    else:
        for auto in (transformers.AutoModel, transformers.AutoModelForMaskedLM, transformers.AutoConfig):
            with pytest.raises(ValueError, match="albert_window"):
                auto.from_pretrained(tmp_path / "model")
        for named in (transformers.AlbertModel, transformers.AlbertForMaskedLM):
            with pytest.raises(ValueError, match="sliding_window"):
                named.from_pretrained(tmp_path / "model")


def test_a_dense_model_says_nothing_of_windows(config: AlbertConfig, windowed: AlbertConfig, tmp_path: Path) -> None:
    save_model_directory(tmp_path / "windowed", AlbertForPreTraining(windowed), None)
    opened = open_model(tmp_path / "windowed", "pretraining", overrides={"attention_window": None})
    save_model_directory(tmp_path / "dense", opened.model, None, extra=opened.extra)
    said = json.loads((tmp_path / "dense/config.json").read_text())
    assert said["model_type"] == "albert" and not {"attention_window", "attn_implementation"} & said.keys()
    assert transformers.AlbertForPreTraining.from_pretrained(tmp_path / "dense").config.max_position_embeddings == 200


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"attention_window": 0}, "attention_window: is 0, at least 1 is needed"),
        ({"attention_window": "4"}, "attention_window: .*int is expected"),
        ({"attention_window": True}, "attention_window: .*int is expected"),
        ({"attention_window": 2**40}, "attention_window: is 1099511627776, no model has more"),
        ({"model_type": "albert_window"}, "attention_window: is missing from a model of type 'albert_window'"),
    ],
)
def test_bad_windows_in_a_file_are_refused(directory: Path, rewrite: Rewrite, keys: dict, message: str) -> None:
    rewrite(directory, keys)
    with pytest.raises(InvalidConfiguration, match=message) as refusal:
        read_config(directory)
    assert "\n" not in str(refusal.value)


def test_the_example_on_the_card_runs_and_names_no_class_of_transformers(
    windowed: AlbertConfig, tmp_path: Path
) -> None:
    tokenizer = train_tokenizer(["the quick brown fox jumps over the lazy dog " * 20], vocab_size=41)
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    model = AlbertForSequenceClassification(replace(windowed, vocab_size=tokenizer.vocab_size), 2)
    save_model_directory(tmp_path / "model", model, tmp_path / "tokenizer")
    card = (tmp_path / "model/README.md").read_text(encoding="utf-8")
    assert "4 tokens to either side" in card and "library_name: albert" in card
    assert "from_pretrained" not in card and "pipeline" not in card
    example = card.split("```python\n")[1].split("```")[0]
    assert "predictor.abilities" in example
    exec(example.replace("path/to/this/directory", str(tmp_path / "model")), {})


def test_a_dense_model_goes_on_with_a_window_and_more_positions(config: AlbertConfig, windowed: AlbertConfig) -> None:
    source = AlbertForPreTraining(replace(config, initializer_range=0.3)).eval()
    target = AlbertForPreTraining(windowed).eval()
    result = warm_start(
        source.state_dict(), source.config, target.state_dict(), windowed, extend_positions="tile"
    )  # fmt: skip
    assert not result.drawn and not result.unused and result.trained_positions == 200
    assert any("attention_window None → 4" in note for note in result.notes)
    target.load_state_dict(result.tensors)
    fitting, longer = batch((6, 3, 5)), batch((20,))
    for one, other in zip(*(numbers(each, "encoder", fitting) for each in (source.albert, target.albert)), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
    for one, other in zip(*(numbers(each, "encoder", longer) for each in (source.albert, target.albert)), strict=True):
        assert not torch.allclose(one, other, atol=1e-3)
