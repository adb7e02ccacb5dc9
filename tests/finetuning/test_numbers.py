"""Numbers of any unit are learnt as standard scores, and everyone who opens the model gets them in their own unit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from albert.checkpoints.model_directory import open_model
from albert.cli.main import run
from albert.finetuning.data import prepare_split
from albert.finetuning.evaluation import ComputeOptions, evaluate_directory, evaluate_model
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.objective import Distillation
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.inference.predictor import Predictor
from albert.runtime.json_files import read_journal
from albert.tasks.custom import read_task
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


def learn(task, pretrained, output, settings=CPU, **changes):
    return finetune(task, PretrainedEncoder(str(pretrained), **changes), Path(), output, settings=settings)


def weights(result) -> bytes:
    return (result.model_directory / "model.safetensors").read_bytes()


def test_years_are_learnt_and_every_door_gives_them(task, pretrained, tmp_path):
    result = learn(task, pretrained, tmp_path / "run")
    assert result.scores["pearson"] > 85
    assert result.scores["mean_absolute_error"] < 6 < result.report["baseline"]["mean_absolute_error"]
    lines = (tmp_path / "run/predictions-dev.jsonl").read_text().splitlines()
    said = [json.loads(line)["prediction"] for line in lines]
    again = evaluate_directory(task, str(tmp_path / "run"), Path(), device="cpu")
    assert again.evaluation.scores == result.scores
    texts = [row.fields["text"] for row in task.source.read(Path(), "dev").rows]
    predictor = Predictor.open(tmp_path / "run", device="cpu", precision="fp32")
    assert [predictor.score(text) for text in texts] == pytest.approx(said, abs=0.01)
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(result.model_directory).eval()
    sequences = prepare_split(task, Path(), "dev", load_tokenizer(result.model_directory), task.recipe)
    with torch.inference_mode():
        ids = torch.from_numpy(sequences.features.sequences.token_ids(5))[None]
        assert float(theirs(input_ids=ids).logits) == pytest.approx(said[5], abs=0.01)


def test_bfloat16_does_not_round_a_year(task, pretrained, tmp_path):
    """Bfloat16 has 8 bits: between 1024 and 2048 it knows every eighth number."""
    result = learn(shorter(task, 2), pretrained, tmp_path / "run")
    model = open_model(str(result.model_directory), "classification", 1).model
    dev = prepare_split(task, Path(), "dev", load_tokenizer(result.model_directory), task.recipe)
    said = {
        precision: [
            entry["prediction"]
            for entry in evaluate_model(model, task, dev, ComputeOptions(torch.device("cpu"), precision)).predictions
        ]
        for precision in ("fp32", "bf16")
    }
    np.testing.assert_allclose(said["bf16"], said["fp32"], atol=0.5)


@pytest.mark.parametrize("select", ["last", "best"])
def test_an_interrupted_run_goes_on_to_the_same_weights(task, pretrained, tmp_path, interrupted, select):
    """With exits at every depth and a teacher; what is best is chosen and kept in the unit of the data."""
    teacher = learn(shorter(task, 10), pretrained, tmp_path / "teacher")
    settings = replace(
        CPU,
        checkpoint_every=2,
        evaluate_every=2,
        select=select,
        exits="every",
        distillation=Distillation(teacher=str(teacher.model_directory)),
    )
    task = shorter(task, 6)
    whole = learn(task, pretrained, tmp_path / "whole", settings)
    with interrupted(4, distilled=True):
        learn(task, pretrained, tmp_path / "cut", settings)
    resumed = learn(task, pretrained, tmp_path / "cut", settings)
    assert weights(whole) == weights(resumed)
    assert whole.scores == evaluate_directory(task, str(tmp_path / "cut"), Path(), device="cpu").evaluation.scores
    losses = [line["loss"] for line in read_journal(tmp_path / "whole/journal.jsonl") if line["event"] == "train"]
    assert losses[0] < 10
    early = Predictor.open(tmp_path / "whole", device="cpu", patience=1)._network.classifier
    assert early.tolerance == pytest.approx(0.1 * 11.2, rel=0.05)


def test_a_kept_head_goes_on_from_the_numbers_that_it_gives(task, pretrained, tmp_path):
    first = learn(task, pretrained, tmp_path / "first")
    still = replace(task, recipe=replace(task.recipe, learning_rate=1e-12, steps=1))
    kept = learn(still, first.model_directory, tmp_path / "kept", keep_head=True)
    assert kept.scores == pytest.approx(first.scores, rel=1e-4)


def test_a_run_of_an_earlier_version_goes_on_with_the_numbers_themselves(
    task, pretrained, tmp_path, monkeypatch, interrupted
):
    task, settings = shorter(task, 6), replace(CPU, checkpoint_every=2)
    monkeypatch.setattr("albert.finetuning.run.number_scale", lambda *_: None)  # as it was
    whole = learn(task, pretrained, tmp_path / "whole", settings)
    with interrupted(4):
        learn(task, pretrained, tmp_path / "cut", settings)
    monkeypatch.undo()
    assert weights(learn(task, pretrained, tmp_path / "cut", settings)) == weights(whole)
    assert learn(task, pretrained, tmp_path / "whole", settings).already_complete


def test_a_constant_column_is_refused_in_one_line(table, pretrained, tmp_path, capsys):
    table.write_text("text,price\n" + "".join(f"text {n},5.5\n" for n in range(30)))
    command = ["finetune", "--train", str(table), "--text", "text", "--label", "price", "--regression"]
    assert run([*command, "--model", str(pretrained), "--output", str(tmp_path / "run"), "--device", "cpu"]) == 78
    said = capsys.readouterr().err.strip()
    assert "column 'price': holds the number 5.5 in all 27 training rows" in said and "\n" not in said
    assert not (tmp_path / "run").exists()
