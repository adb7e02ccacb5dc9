"""Figure 1: distance and angle between input and output of every layer."""

import csv
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.layers import (
    SMOOTHNESS,
    cached_layers,
    cut_passages,
    last_movement,
    measure_layers,
    unevenness,
    write_layers,
)
from experiments.pictures import draw_layers
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.commands.sample import load_chapters
from albert.model.albert import AlbertForMaskedLM, AlbertForPreTraining
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import MissingInput
from albert.text.sentencepiece import train_tokenizer

CPU = torch.device("cpu")
PASSAGES = ["It was a dark and stormy night.", "The whale, the whale!", "I have written to Jane of it."]
CONFIG = tiny_config(300, hidden_size=32, num_hidden_layers=3, num_attention_heads=4, initializer_range=0.3)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("models")
    tokenizer = train_tokenizer([load_chapters()[0].text[:20_000]], vocab_size=300)
    tokenizer.save(root / "tokenizer")
    torch.manual_seed(0)
    save_model_directory(root / "shared", AlbertForPreTraining(CONFIG), root / "tokenizer")
    unshared = EncoderConfig(**{**vars(CONFIG), "sharing": "none", "num_hidden_layers": 2})
    save_model_directory(root / "unshared", AlbertForMaskedLM(unshared), root / "tokenizer")
    return {"shared": root / "shared", "unshared": root / "unshared"}


def test_movement_equals_hidden_states_of_transformers(models):
    from transformers import AlbertModel, AutoTokenizer

    model = AlbertModel.from_pretrained(models["shared"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(models["shared"])
    distances, angles = [], []
    for passage in PASSAGES:
        ids = tokenizer(passage, return_tensors="pt")["input_ids"]
        with torch.inference_mode():
            # transformers maps E to H inside its encoder, and its first state is of width H
            states = [s[0].double() for s in model(input_ids=ids, output_hidden_states=True).hidden_states]
        pairs = list(pairwise(states))
        distances.append(torch.stack([(b - a).norm(dim=-1) for a, b in pairs]))
        cosines = torch.stack([torch.cosine_similarity(a, b, dim=-1) for a, b in pairs])
        angles.append(cosines.clamp(-1, 1).acos().rad2deg())
    ours = measure_layers(models["shared"], PASSAGES, device=CPU)
    np.testing.assert_allclose(ours.distance, torch.cat(distances, dim=1).mean(dim=1), rtol=1e-4)
    np.testing.assert_allclose(ours.angle, torch.cat(angles, dim=1).mean(dim=1), rtol=1e-4)
    assert ours.tokens == sum(part.shape[1] for part in distances)
    assert ours.layers == "3 layers, shared"


@pytest.mark.usefixtures("drawn_pictures")
def test_picture_and_table(models, tmp_path):
    picture, table = tmp_path / "layers.png", tmp_path / "layers.csv"
    measured = [measure_layers(model, PASSAGES, device=CPU) for model in models.values()]
    draw_layers(measured, picture)
    write_layers(measured, table)
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = list(csv.DictReader(table.read_text(encoding="utf-8").splitlines()))
    assert [row["layer"] for row in rows] == ["1", "2", "3", "1", "2"]
    assert rows[-1]["layers"] == "2 layers, not shared"


def test_unevenness_and_last_movement_by_hand():
    assert unevenness([2.0, 2.0, 2.0]) == 0 and unevenness([3.0]) == 0
    assert unevenness([1.0, 3.0, 2.0]) == pytest.approx(100 * 1.5 / 2)
    assert last_movement([2.0, 1.0, 0.0]) == 0 and last_movement([1.0, 2.0, 3.0]) == pytest.approx(150)
    for measure in (unevenness, last_movement):  # whatever the length of states
        assert measure([40.0, 10.0, 25.0]) == pytest.approx(measure([4.0, 1.0, 2.5]))


def test_layer_movement_is_cached(models, tmp_path, monkeypatch):
    monkeypatch.setattr("experiments.layers.PASSAGES", 3)
    layers = cached_layers(models["shared"], tmp_path / "layers.json", 64)
    assert len(layers.distance) == len(layers.angle) == 3 and layers.tokens > 0
    assert all(measure(layers) >= 0 for measure in SMOOTHNESS.values())
    assert cached_layers(tmp_path / "absent", tmp_path / "layers.json", 64) == layers


def test_passages_have_the_given_length():
    assert cut_passages(iter(["a b c d e", "f", "g h"]), 3, 2) == ["a b", "c d", "g h"]
    with pytest.raises(MissingInput):
        cut_passages(iter(["a b c"]), 3, 9)
