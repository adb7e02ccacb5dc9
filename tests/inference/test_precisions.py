"""Answers are in fp32 on every processor; bf16 and int8 are chosen, at every entry point, and change them a little."""

import json

import numpy as np
import pytest
import torch
from tests.inference.conftest import KINDS

import albert
from albert.cli.main import run

TEXTS = [f"The old captain saw the sea {'again ' * n}and the ship." for n in range(9)]
CALLS = {
    "pretrain": lambda model: model.fill_mask_batch([f"{text} [MASK]" for text in TEXTS], top_k=3),
    "classify": lambda model: model.classify_batch(TEXTS, TEXTS[::-1]),
    "score": lambda model: model.score_batch(TEXTS),
    "answer": lambda model: model.answer_batch(["Who saw the sea?"] * 3, TEXTS[:3]),
    "tag": lambda model: model.tag_batch(TEXTS),
    "choose": lambda model: model.choose_batch(TEXTS, [["the sea", "a ship", "the old captain"]] * len(TEXTS)),
}
AWAY = {"bf16": 0.05, "int8": 0.15}
"""How far probabilities and scores may be from those in fp32; those of these random weights are far from certain."""


@pytest.fixture
def with_every_instruction(monkeypatch):
    """A processor with all instructions for bf16, as far as albert can see."""
    seen = torch.cpu.get_capabilities()
    capabilities = {**seen, "avx512_bf16": True, "amx_bf16": True}
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)


def numbers(answers) -> list[float]:
    """All scores of nested answers, ordered by what they belong to, not by rank."""
    if isinstance(answers, float):
        return [answers]
    if isinstance(answers, dict):
        return [answers["score"]]

    def place(answer):
        keys = ("label", "index", "token", "start")
        return [str(answer[key]) for key in keys if key in answer] if isinstance(answer, dict) else []

    return [number for answer in sorted(answers, key=place) for number in numbers(answer)]


@pytest.mark.parametrize("kind", KINDS)
def test_the_default_is_fp32_whatever_the_processor_has(model_paths, predictors, with_every_instruction, kind):
    model = albert.load(model_paths(kind), "cpu")
    assert model.precision == "fp32"
    assert CALLS[kind](model) == CALLS[kind](predictors(kind))
    assert np.array_equal(model.embed(TEXTS), predictors(kind).embed(TEXTS))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("pretrain", "answer")])
def test_a_chosen_precision_is_near_fp32(model_paths, predictors, chosen, kind):
    model = albert.load(model_paths(kind), "cpu", precision=chosen)
    assert model.precision == chosen and f"precision='{chosen}'" in repr(model)
    exact = numbers(CALLS[kind](predictors(kind)))
    near = numbers(CALLS[kind](model))
    assert near == pytest.approx(exact, abs=AWAY[chosen] * max(1.0, *map(abs, exact))) and near != exact


@pytest.mark.parametrize("kind", KINDS)
def test_vectors_in_a_chosen_precision_are_near_fp32(model_paths, predictors, chosen, kind):
    exact = predictors(kind).embed(TEXTS, normalize=True)
    near = albert.load(model_paths(kind), "cpu", precision=chosen).embed(TEXTS, normalize=True)
    assert ((exact * near).sum(axis=1) > 0.99).all() and not np.array_equal(exact, near)


def test_the_command_answers_as_python_in_every_precision(model_paths, chosen, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    command = ["predict", model_paths("classify"), "--input", tmp_path / "texts.txt", "--output"]
    for precision, flags in (("fp32", []), (chosen, ["--precision", chosen])):
        output = tmp_path / f"{precision}.jsonl"
        assert run([str(word) for word in (*command, output, *flags)]) == 0
        assert f": {precision} on cpu" in capsys.readouterr().err
        model = albert.load(model_paths("classify"), "cpu", precision=precision)
        rows = [json.loads(line) for line in output.read_text().splitlines()]
        expected = [answers[0]["score"] for answers in model.classify_batch(TEXTS)]
        assert [row["predicted_score"] for row in rows] == pytest.approx(expected, abs=1e-2 if flags else 1e-6)


def test_the_transformer_of_scikit_learn_computes_in_fp32_or_as_chosen(
    model_paths, predictors, with_every_instruction, chosen
):
    path = str(model_paths("classify"))
    exact = predictors("classify").embed(TEXTS)
    assert np.array_equal(albert.AlbertEmbedding(path).transform(TEXTS), exact)
    near = albert.AlbertEmbedding(path, precision=chosen).transform(TEXTS)
    assert not np.array_equal(near, exact) and np.abs(near - exact).max() < 0.5
