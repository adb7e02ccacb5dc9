"""Fine-tuning beside transformers' Trainer: both do the same work, and its rates are told."""

from dataclasses import replace

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
    """Sentences as long as they are, and questions of one length."""
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
        made.append(benchmark.Case(data, benchmark.Setting(tmp_path / name, 2, 4, "fp32", "cpu"), "tiny", 4))
    return made


def test_both_say_the_same_and_take_their_steps(benchmark, cases):
    sentences, questions = cases
    assert sentences.systems == ("albert", "trainer", "trainer, grouped by length")
    assert questions.systems == ("albert", "trainer")
    assert questions.data.is_fixed and set(questions.data.sequences.lengths) == {64}
    asked = benchmark.Benchmark(data=(), tokenizer=sentences.setting.directory, steps=1, rounds=1)
    for case in cases:
        benchmark._refuse_other_work(case)
        rows = benchmark._rows(case, asked, lambda: None)
        assert {row["work"] for row in rows} == {"fine-tuning", "evaluation"}
        assert {row["peer"] for row in rows} == {*case.systems} - {"albert"}
        assert all(float(row["albert_examples_per_second"]) > 0 and float(row["ratio"]) > 0 for row in rows)


def test_other_work_is_refused(benchmark, cases, monkeypatch):
    case = cases[0]
    said = iter((np.zeros((4, 2)), np.ones((4, 2))))
    monkeypatch.setattr(benchmark.Setting, "seconds_of_evaluation", lambda self, system, data: (1.0, next(said)))
    with pytest.raises(benchmark.CheckFailed, match="logits of both systems differ by 1"):
        benchmark._refuse_other_work(replace(case))
