"""Figure 1 in figures: smooth where it is smooth, at rest where nothing moves, and measured once."""

from dataclasses import replace

import pytest
import torch
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.experiments import layers
from albert.experiments.layers import SMOOTHNESS, cached_layers, last_movement, unevenness
from albert.experiments.quickstart import split_chapters
from albert.model.albert import AlbertForPreTraining
from albert.text.sentencepiece import train_tokenizer


def test_unevenness_and_rest_by_hand():
    assert unevenness([2.0, 2.0, 2.0]) == 0 and unevenness([3.0]) == 0
    assert unevenness([1.0, 3.0, 2.0]) == pytest.approx(100 * 1.5 / 2)
    assert last_movement([2.0, 1.0, 0.0]) == 0 and last_movement([1.0, 2.0, 3.0]) == pytest.approx(150)


def test_the_length_of_states_makes_no_difference():
    curve = [4.0, 1.0, 2.5, 2.0]
    for measure in (unevenness, last_movement):
        assert measure([10 * value for value in curve]) == pytest.approx(measure(curve))


def test_a_model_is_measured_once(tmp_path, monkeypatch):
    torch.manual_seed(0)
    tokenizer = train_tokenizer([chapter.text for chapter in split_chapters().held_out], vocab_size=200)
    tokenizer.save(tmp_path / "tokenizer")
    config = tiny_config(tokenizer.vocab_size, num_hidden_layers=3, intermediate_size=32, max_position_embeddings=64)
    model = AlbertForPreTraining(replace(config, initializer_range=0.3))
    save_model_directory(tmp_path / "model", model, tmp_path / "tokenizer")
    monkeypatch.setattr(layers, "PASSAGES", 3)
    found = cached_layers(tmp_path / "model", tmp_path / "kept" / "layers.json", 64)
    assert len(found.distance) == len(found.angle) == 3 and found.tokens > 0
    assert all(figure(found) >= 0 for figure in SMOOTHNESS.values())
    assert cached_layers(tmp_path / "gone", tmp_path / "kept" / "layers.json", 64) == found
