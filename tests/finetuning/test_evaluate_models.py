"""Evaluation of one or several models, and submission files."""

import json
from dataclasses import replace

import pytest
import torch
from tests.refusals import refusal
from tests.tiny import short_task

from albert.checkpoints.huggingface import build_model
from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.finetuning.batches import read_examples
from albert.finetuning.evaluation import evaluate_directory, evaluate_models
from albert.finetuning.opened_model import head_description
from albert.runtime.errors import DamagedData
from albert.tasks.multi_label import MultiLabel
from albert.tasks.regression import Regression
from albert.tasks.span import Span
from albert.tasks.submission import DECLARED
from albert.tasks.tagging import TokenTagging


def random_model(task, config, seed):
    torch.manual_seed(seed)
    model = build_model(task.target.model_kind(), config, task.target.n_outputs)
    for parameter in model.parameters():
        parameter.data.normal_(std=0.3)
    return model


def save_random_model(path, task, config, tokenizer_directory, seed):
    extra = head_description(task, task.recipe, None) | {"no_answer_threshold": 0.1 * seed}
    save_model_directory(path, random_model(task, config, seed), tokenizer_directory, extra=extra)
    return str(path)


@pytest.fixture
def models(task, config, tokenizer_directory, other_tokenizer_directory, tmp_path):
    """A model, and a deeper one with another vocabulary."""
    deeper = replace(config, vocab_size=300, num_hidden_layers=3)
    return (
        save_random_model(tmp_path / "one", task, config, tokenizer_directory, 1),
        save_random_model(tmp_path / "two", task, deeper, other_tokenizer_directory, 2),
    )


def test_together_is_the_mean_of_the_models(task, task_data, models):
    result = evaluate_models(task, models, task_data, device="cpu")
    for model, member in zip(models, result.members, strict=True):
        alone = evaluate_directory(task, model, task_data, device="cpu")
        assert member.scores == alone.scores
        assert member.predictions == alone.predictions
    assert list(result.together.scores) == list(result.members[0].scores)
    one, two = (member.predictions for member in result.members)
    texts = {example.identifier: " ".join(example.texts[-1:]) for example in read_examples(task, task_data, "dev")[0]}
    for ours, first, second in zip(result.together.predictions, one, two, strict=True):
        assert ours["id"] == first["id"] == second["id"]
        match task.target:
            case Regression():
                assert ours["prediction"] == pytest.approx((first["prediction"] + second["prediction"]) / 2)
            case Span():
                best = ours["best"][0]
                assert best["answer"] == texts[ours["id"]][best["start"] : best["end"]]
                if task.target.may_be_absent:
                    mean = (first["no_answer_probability"] + second["no_answer_probability"]) / 2
                    assert ours["no_answer_probability"] == pytest.approx(mean)
            case TokenTagging():
                assert len(ours["prediction"]) == len(ours["words"])
            case _:
                pairs = zip(first["probabilities"].items(), second["probabilities"].values(), strict=True)
                means = {name: (probability + other) / 2 for (name, probability), other in pairs}
                assert ours["probabilities"] == pytest.approx(means)
                likely = [name for name, mean in means.items() if mean >= 0.5]
                several = isinstance(task.target, MultiLabel)
                assert ours["prediction"] == (likely if several else max(means, key=means.__getitem__))


def test_files_without_labels_are_predicted_and_not_scored(config, tokenizer_directory, tmp_path, capsys):
    model = save_random_model(tmp_path / "m", DECLARED["mnli"], config, tokenizer_directory, 1)
    for name in ("test_matched", "test_mismatched"):
        rows = "".join(f"{i}\ta ship {i}\tthe {name}\n" for i in range(5))
        (tmp_path / f"{name}.tsv").write_text("index\tsentence1\tsentence2\n" + rows)
    command = ["evaluate", "mnli", "--model", model, "--data", str(tmp_path), "--device", "cpu"]
    assert run([*command, "--submission", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.count("5 examples without a label: nothing is scored") == 2
    for name in ("MNLI-m.tsv", "MNLI-mm.tsv"):
        lines = (tmp_path / "out" / name).read_text().splitlines()
        assert lines[0] == "index\tprediction"
        assert [line.split("\t")[0] for line in lines[1:]] == [str(i) for i in range(5)]
    assert run([*command, "--split", "test", "--predictions", str(tmp_path / "p.jsonl")]) == 0
    entries = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert {entry["gold"] for entry in entries} == {None}
    capsys.readouterr()
    assert run([*command, "--split", "test"]) == 65
    assert "has no column 'gold_label'" in capsys.readouterr().err
    assert run([*command, "--submission", str(tmp_path), "--results", str(tmp_path / "r.json")]) == 2
    assert "--results: is one file, there are the splits test, test_mismatched" in capsys.readouterr().err
    (tmp_path / "file").write_text("mine")
    assert run([*command, "--submission", str(tmp_path / "file")]) == 73
    assert "file: is not a directory" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_submission_of_questions_has_the_odds_of_no_answer(config, tokenizer_directory, data, tmp_path):
    task = short_task("squad-2.0", question_length=8, stride=8)
    model = save_random_model(tmp_path / "m", task, config, tokenizer_directory, 1)
    hidden = json.loads((data / "dev-v2.0.json").read_text())
    for paragraph in hidden["data"][0]["paragraphs"]:
        for question in paragraph["qas"]:
            del question["answers"]
    (tmp_path / "hidden.json").write_text(json.dumps(hidden))
    output = tmp_path / "out"
    command = ["evaluate", "squad-2.0", "--model", model, "--device", "cpu", "--submission", str(output)]
    assert run([*command, "--dev", str(tmp_path / "hidden.json")]) == 0
    unlabelled = {path.name: path.read_bytes() for path in output.iterdir()}
    assert sorted(unlabelled) == ["squad-2.0-dev-null-odds.json", "squad-2.0-dev.json"]
    assert run([*command, "--data", str(data)]) == 0
    assert {path.name: path.read_bytes() for path in output.iterdir()} == unlabelled
    assert len(json.loads(unlabelled["squad-2.0-dev.json"])) == 32
    odds = json.loads(unlabelled["squad-2.0-dev-null-odds.json"])
    assert all(0 <= value <= 1 for value in odds.values())  # the official script takes more than 1 for "no answer"
    with refusal(DamagedData, "'answers'"):
        hidden_task = replace(task, source=task.source.with_files({"dev": tmp_path / "hidden.json"}))
        evaluate_directory(hidden_task, model, data, device="cpu")


def test_several_models_from_the_command_line(config, tokenizer_directory, data, tmp_path, capsys):
    task = DECLARED["sst-2"]
    models = [save_random_model(tmp_path / n, task, config, tokenizer_directory, s) for s, n in enumerate(("a", "b"))]
    command = ["evaluate", "sst-2", "--model", *models, "--data", str(data / "choice"), "--device", "cpu"]
    assert run([*command, "--results", str(tmp_path / "r.json")]) == 0
    assert "together" in capsys.readouterr().out
    results = json.loads((tmp_path / "r.json").read_text())
    assert list(results["of_each"]) == results["model"] == models
    assert set(results["scores"]) == {"accuracy"}
