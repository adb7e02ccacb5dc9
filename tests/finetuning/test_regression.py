"""Numbers of any unit are trained as standard scores; the saved model gives them in their own unit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from albert.checkpoints.model_directory import open_model
from albert.cli.main import run
from albert.columns.read import read_task
from albert.finetuning.batches import prepare_split
from albert.finetuning.evaluation import ComputeOptions, evaluate_directory, evaluate_model
from albert.finetuning.initial_model import PretrainedEncoder
from albert.finetuning.task_run import finetune
from albert.inference.predictor import Predictor
from albert.recipes.finetuning import Distillation, FinetuningSettings
from albert.runtime.json_files import read_journal
from albert.tasks.table_task import TableTask
from albert.text.tokenizer_loading import load_tokenizer

CPU = FinetuningSettings(device="cpu", precision="fp32")
YEARS = {"ship": 1980.0, "sailor": 1990.0, "storm": 2000.0, "island": 2010.0}


@pytest.fixture
def table(tmp_path) -> Path:
    rows = [f"the {noun} number {n},{year + n / 4}\n" for noun, year in YEARS.items() for n in range(4)]
    (tmp_path / "years.csv").write_text("text,year\n" + "".join(rows))
    return tmp_path / "years.csv"


@pytest.fixture
def task(table):
    task = read_task(TableTask(kind="regression", train=table, dev=table, text="text", label="year")).task
    recipe = replace(task.recipe, learning_rate=3e-3, batch_size=8, epochs=None, steps=60, max_length=32)
    return replace(task, recipe=replace(recipe, head_dropout=0.0))


def shorter(task, steps):
    return replace(task, recipe=replace(task.recipe, steps=steps))


def learn(task, start, output, settings=CPU):
    return finetune(task, start, Path(), output, settings=settings)


def test_every_entry_point_gives_years(task, start, tmp_path):
    result = learn(task, start, tmp_path / "run")
    assert result.scores["pearson"] > 85
    assert result.scores["mean_absolute_error"] < 6 < result.report["baseline"]["mean_absolute_error"]
    lines = (tmp_path / "run/predictions-dev.jsonl").read_text().splitlines()
    years = [json.loads(line)["prediction"] for line in lines]
    again = evaluate_directory(task, str(tmp_path / "run"), Path(), device="cpu")
    assert again.scores == result.scores
    texts = [row.fields["text"] for row in task.source.read(Path(), "dev").rows]
    predictor = Predictor.open(tmp_path / "run", device="cpu", precision="fp32")
    assert [predictor.score(text) for text in texts] == pytest.approx(years, abs=0.01)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(result.model_directory).eval()
    dev = prepare_split(task, Path(), "dev", load_tokenizer(result.model_directory), task.recipe)
    with torch.inference_mode():
        ids = torch.from_numpy(dev.features.sequences.token_ids(5))[None]
        assert float(theirs(input_ids=ids).logits) == pytest.approx(years[5], abs=0.01)
    # Bfloat16 has 8 bits: between 1024 and 2048 it has only every eighth number.
    model = open_model(str(result.model_directory), "classification", 1).model
    options = ComputeOptions(torch.device("cpu"), "bf16")
    rounded = [entry["prediction"] for entry in evaluate_model(model, task, dev, options).predictions]
    np.testing.assert_allclose(rounded, years, atol=0.5)
    # A kept head continues from its numbers.
    still = replace(task, recipe=replace(task.recipe, learning_rate=1e-12, steps=1))
    kept = learn(still, PretrainedEncoder(str(result.model_directory), keep_head=True), tmp_path / "kept")
    assert kept.scores == pytest.approx(result.scores, rel=1e-4)


@pytest.mark.parametrize("select", ["last", "best"])
def test_resumed_run_has_the_same_weights(task, start, tmp_path, complete_and_resumed, select):
    """With a teacher."""
    teacher = learn(shorter(task, 10), start, tmp_path / "teacher")
    distillation = Distillation(teacher=str(teacher.model_directory))
    settings = replace(CPU, checkpoint_every=2, evaluate_every=2, select=select)
    settings = replace(settings, distillation=distillation)
    task = shorter(task, 6)
    complete, _ = complete_and_resumed(task, start, Path(), settings, 4)
    evaluated = evaluate_directory(task, str(tmp_path / "stopped"), Path(), device="cpu")
    assert complete.scores == evaluated.scores
    losses = [line["loss"] for line in read_journal(tmp_path / "complete/journal.jsonl") if line["event"] == "train"]
    assert losses[0] < 10


def test_constant_column_is_refused_in_one_line(table, pretrained, tmp_path, capsys):
    table.write_text("text,price\n" + "".join(f"text {n},5.5\n" for n in range(30)))
    command = ["finetune", "--train", str(table), "--text", "text", "--label", "price", "--kind", "number"]
    assert run([*command, "--model", str(pretrained), "--output", str(tmp_path / "run"), "--device", "cpu"]) == 78
    error = capsys.readouterr().err.strip()
    assert "column 'price': holds the number 5.5 in all 27 training rows" in error and "\n" not in error
    assert not (tmp_path / "run").exists()
