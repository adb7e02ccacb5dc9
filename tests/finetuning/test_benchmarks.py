"""Benchmarks of fine-tuning at tiny size: speed beside transformers' Trainer, classical models, and grids of runs."""

import csv

import numpy as np
import pytest
import torch

from albert.checkpoints.model_directory import save_model_directory
from albert.model.albert import AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.tables.table import Answer
from albert.tasks.examples import Example


def rows_of(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# --------------------------------------------------------------------------------------------------------------------
# dev/benchmarks/finetuning_speed.py


@pytest.fixture(scope="module")
def speed(script):
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
    return script("finetuning_speed")


@pytest.fixture
def cases(speed, config, tokenizer, tokenizer_directory, tmp_path, monkeypatch):
    """Sentences of different lengths and questions of one length, each with its setting."""
    texts = ["the ship", "the old captain saw the island in the storm", "a letter", "the window and the doctor"]
    spans = [Example(text, "rows", ("who?", f"{text} " * 40), answers=(Answer(text[:3], 0),)) for text in texts]
    monkeypatch.setattr(speed, "FIXED_LENGTH", 64)
    span_features = speed.span_features
    monkeypatch.setattr(speed, "span_features", lambda rows, t, length, *_: span_features(rows, t, length, 8, 16))
    rows = [Example(text, "rows", (text,), index % 2) for index, text in enumerate(texts)]
    cases = []
    for name, model, data in (
        ("sst-2", AlbertForSequenceClassification(config, 2), speed.sentences(rows, tokenizer)),
        ("384", AlbertForQuestionAnswering(config), speed.questions(spans, tokenizer, 4)),
    ):
        torch.manual_seed(0)
        save_model_directory(tmp_path / name, model, tokenizer_directory)
        cases.append((data, speed.Setting(tmp_path / name, 2, "fp32")))
    return cases


@pytest.mark.filterwarnings("ignore")  # warnings of Trainer
def test_trainer_is_compared_if_it_computes_the_same(speed, cases, monkeypatch):
    assert set(cases[1][0].sequences.lengths) == {64}
    for (data, setting), peers in zip(cases, ({"trainer", "trainer, grouped by length"}, {"trainer"}), strict=True):
        rows = list(speed.compare(data, setting, steps=1, evaluated=4, rounds=1))
        assert {(row["work"], row["peer"]) for row in rows} == {
            (work, peer) for work in ("fine-tuning", "evaluation") for peer in peers
        }
        assert all(float(row["albert_examples_per_second"]) > 0 and float(row["ratio"]) > 0 for row in rows)
    monkeypatch.setattr(speed, "our_evaluation", lambda *_: (1.0, np.zeros((4, 2))))
    monkeypatch.setattr(speed, "their_evaluation", lambda *_: (1.0, np.ones((4, 2))))
    with pytest.raises(speed.CheckFailed, match="logits of both systems differ by 1"):
        next(speed.compare(*cases[0], steps=1, evaluated=4, rounds=1))
