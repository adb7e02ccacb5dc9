"""Fine-tuning beside transformers' Trainer: both do the same work, and its rates are told."""

import numpy as np
import pytest
import torch

from albert.checkpoints.model_directory import save_model_directory
from albert.model.albert import AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.tasks.examples import Example
from albert.tasks.task import Answer

pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
pytestmark = pytest.mark.filterwarnings("ignore")  # what Trainer has to say of itself


@pytest.fixture(scope="module")
def benchmark(script):
    """benchmarks/finetuning_speed.py as a module."""
    return script("finetuning_speed")


@pytest.fixture
def cases(benchmark, config, tokenizer, tokenizer_directory, tmp_path, monkeypatch):
    """Sentences as long as they are, and questions of one length, each with a setting."""
    texts = ["the ship", "the old captain saw the island in the storm", "a letter", "the window and the doctor"]
    spans = [Example(text, "here", ("who?", f"{text} " * 40), answers=(Answer(text[:3], 0),)) for text in texts]
    monkeypatch.setattr(benchmark, "FIXED_LENGTH", 64)
    original = benchmark.span_features
    monkeypatch.setattr(benchmark, "span_features", lambda rows, t, length, *_: original(rows, t, length, 8, 16))
    rows = [Example(text, "here", (text,), place % 2) for place, text in enumerate(texts)]
    made = []
    for name, model, data in (
        ("sst-2", AlbertForSequenceClassification(config, 2), benchmark.sentences(rows, tokenizer)),
        ("384", AlbertForQuestionAnswering(config), benchmark.questions(spans, tokenizer, 4)),
    ):
        torch.manual_seed(0)
        save_model_directory(tmp_path / name, model, tokenizer_directory)
        made.append((data, benchmark.Setting(tmp_path / name, 2, "fp32")))
    return made


def test_both_say_the_same_and_take_their_steps(benchmark, cases):
    assert set(cases[1][0].sequences.lengths) == {64}
    for (data, setting), peers in zip(cases, ({"trainer", "trainer, grouped by length"}, {"trainer"}), strict=True):
        rows = list(benchmark.compare(data, setting, steps=1, evaluated=4, rounds=1))
        assert {(row["work"], row["peer"]) for row in rows} == {
            (work, peer) for work in ("fine-tuning", "evaluation") for peer in peers
        }
        assert all(float(row["albert_examples_per_second"]) > 0 and float(row["ratio"]) > 0 for row in rows)


def test_other_work_is_refused(benchmark, cases, monkeypatch):
    monkeypatch.setattr(benchmark, "our_evaluation", lambda *_: (1.0, np.zeros((4, 2))))
    monkeypatch.setattr(benchmark, "their_evaluation", lambda *_: (1.0, np.ones((4, 2))))
    with pytest.raises(benchmark.CheckFailed, match="logits of both systems differ by 1"):
        next(benchmark.compare(*cases[0], steps=1, evaluated=4, rounds=1))
