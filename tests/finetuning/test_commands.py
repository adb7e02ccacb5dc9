"""`albert finetune` and `albert evaluate`: from files to scores, and mistakes in one line with their exit code."""

import json
import shlex
from dataclasses import replace

import pytest

from albert.cli.main import dispatch, run
from albert.finetuning.options import rate_for_width
from albert.tasks.glue import SST2, TabSeparated
from albert.tasks.metrics import accuracy, f1
from albert.tasks.submission import DECLARED

SMALL = ["--steps", "4", "--batch-size", "4", "--max-length", "32", "--device", "cpu"]


def test_a_declared_task_from_the_command_line(data, pretrained, tmp_path, capsys):
    output = str(tmp_path / "run")
    arguments = ["finetune", "SST-2", "--model", str(pretrained), "--data", str(data / "choice"), "--output", output]
    assert dispatch([*arguments, *SMALL]) == 0
    said = capsys.readouterr().out
    assert "4 steps over 16 of 16 training rows" in said
    assert "new, drawn at random: classifier.weight, classifier.bias" in said
    assert "best constant answer: 50.00" in said
    results = tmp_path / "scores.json"
    evaluate = ["evaluate", "sst2", "--model", output, "--data", str(data / "choice"), "--device", "cpu"]
    assert dispatch([*evaluate, "--results", str(results), "--predictions", str(tmp_path / "p.jsonl")]) == 0
    report = json.loads((tmp_path / "run/results.json").read_text())
    assert json.loads(results.read_text())["scores"] == report["scores"]
    assert report["recipe"]["max_length"] == 32
    assert len((tmp_path / "p.jsonl").read_text().splitlines()) == 16


def test_a_new_task_is_one_declaration(data, pretrained, tmp_path, monkeypatch, capsys):
    """What docs/tour.md says of entering a task: files, columns, target, metrics and recipe, and nothing else."""
    source = TabSeparated("choice", {"train": "train.tsv", "dev": "dev.tsv"})
    mine = replace(SST2, name="my-reviews", source=source, metrics=(f1, accuracy), published=())
    monkeypatch.setitem(DECLARED, mine.name, mine)
    arguments = ["finetune", "my-reviews", "--model", str(pretrained), "--data", str(data)]
    assert dispatch([*arguments, "--output", str(tmp_path / "run"), *SMALL]) == 0
    assert dispatch(["evaluate", "My_Reviews", "--model", str(tmp_path / "run"), "--data", str(data)]) == 0
    assert json.loads((tmp_path / "run/results.json").read_text())["scores"].keys() == {"f1", "accuracy"}
    assert run(["finetune", "my-review", *arguments[2:], "--output", str(tmp_path / "no")]) == 2
    assert "did you mean 'my-reviews'" in capsys.readouterr().err


def test_several_seeds_from_the_command_line(data, pretrained, tmp_path, capsys):
    output = str(tmp_path / "runs")
    arguments = ["finetune", "sts-b", "--model", str(pretrained), "--data", str(data / "score"), "--output", output]
    assert dispatch([*arguments, *SMALL, "--seeds", "2", "--select", "best", "--evaluate-every", "2"]) == 0
    said = capsys.readouterr().out
    assert "selection: the best of 2 evaluations by pearson on the development set" in said
    assert ["score", "seed-0", "seed-1"] in [line.split() for line in said.splitlines()]
    assert "after step" in said and "quartiles" in said
    summary = json.loads((tmp_path / "runs/summary.json").read_text())
    assert {run["step"] for run in summary["runs"]} <= {2, 4}
    assert "failed" not in said or summary["failed_seeds"]


def test_groups_and_a_question_for_a_model_that_chooses(data, pretrained, tmp_path, capsys):
    output = str(tmp_path / "run")
    arguments = ["finetune", "race", "--model", str(pretrained), "--data", str(data), "--output", output]
    assert dispatch([*arguments, *SMALL, "--question-length", "8", "--v2-recipe"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ("accuracy_middle", "accuracy_high", "--choose"))
    recipe = json.loads((tmp_path / "run/recipe.json").read_text())["recipe"]
    assert (recipe["learning_rate"], recipe["encoder_dropout"]) == (rate_for_width(1e-5, 32), 0.0)


def test_further_splits_are_scored_where_their_files_are(pretrained, tmp_path, capsys):
    header = "index\tsentence1\tsentence2\tgold_label\n"
    rows = "".join(f"{i}\ta ship\tthe sea\t{label}\n" for i, label in enumerate(("neutral", "entailment") * 3))
    for name in ("train", "dev_matched"):
        (tmp_path / f"{name}.tsv").write_text(header + rows)
    arguments = ["finetune", "mnli", "--model", str(pretrained), "--data", str(tmp_path), *SMALL, "--output"]
    assert dispatch([*arguments, str(tmp_path / "one")]) == 0
    assert "dev_mismatched is not scored: " in capsys.readouterr().out
    (tmp_path / "dev_mismatched.tsv").write_text(header + rows)
    assert dispatch([*arguments, str(tmp_path / "two")]) == 0
    assert "dev_mismatched: accuracy " in capsys.readouterr().out
    report = json.loads((tmp_path / "two/results.json").read_text())
    assert report["further_scores"] == {"dev_mismatched": report["scores"]}
    assert len((tmp_path / "two/predictions-dev_mismatched.jsonl").read_text().splitlines()) == 6
    ax = "Premise\tHypothesis\tLabel\na ship\ta sea\tneutral\na ship\ta sea\tcontradiction\n"
    (tmp_path / "diagnostic-full.tsv").write_text(ax)
    assert (
        dispatch(["evaluate", "ax", "--model", str(tmp_path / "two"), "--data", str(tmp_path), "--device", "cpu"]) == 0
    )
    assert "matthews_correlation" in capsys.readouterr().out


@pytest.mark.parametrize("regression", [False, True])
def test_own_files_from_the_command_line(regression, pretrained, tmp_path):
    table = "review,stars\n" + "".join(
        f'"the ship, {word}",{stars}\n' for word, stars in (("good", 10), ("bad", 2)) * 4
    )
    (tmp_path / "my.csv").write_text(table)
    columns = ["--text", "review", "--label", "stars"]
    files = ["--train", str(tmp_path / "my.csv"), "--dev", str(tmp_path / "my.csv")]
    output = str(tmp_path / "run")
    kind = ["--regression"] if regression else []
    assert dispatch(["finetune", *files, *columns, *kind, "--model", str(pretrained), "--output", output, *SMALL]) == 0
    config = json.loads((tmp_path / "run/model/config.json").read_text())
    assert config["id2label"] == ({"0": "stars"} if regression else {"0": "2", "1": "10"})
    assert (
        dispatch(["evaluate", "--dev", str(tmp_path / "my.csv"), *columns, "--model", output, "--device", "cpu"]) == 0
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["finetune", "sst3", "--model", "MODEL", "--data", "x", "--output", "OUT"], 2, "did you mean 'sst-2'"),
        (["finetune", "--model", "MODEL", "--output", "OUT"], 2, "no task"),
        (["finetune", "sst-2", "--model", "MODEL", "--output", "OUT"], 2, "--data: is missing"),
        (["finetune", "sst-2", "--model", "MODEL", "--data", "x", "--output", "OUT"], 66, "has no train.tsv"),
        (["finetune", "sst-2", "--model", "absent/m", "--data", "x", "--output", "OUT"], (66, 69), "no such directory"),
        (
            ["finetune", "sst-2", "--model", "MODEL", "--data", "DATA", "--output", "OUT", "--text", "a"],
            2,
            "own columns",
        ),
        (["finetune", "--train", "x.csv", "--model", "MODEL", "--output", "OUT"], 66, "x.csv: No such file"),
        (["finetune", "sst-2", "--model", "MODEL", "--data", "DATA"], 2, "--output: is needed"),
        (
            ["finetune", "sst-2", "--model", "MODEL", "--data", "DATA", "--output", "OUT", "--epochs", "-1"],
            78,
            "epochs: must be above 0",
        ),
        (
            shlex.split("finetune sst-2 --model MODEL --data DATA --output OUT --epochs 1 --steps 1"),
            2,
            "say the same thing twice",
        ),
        (
            ["finetune", "sst-2", "--model", "MODEL", "--data", "DATA", "--output", "OUT", "--span-head", "joint"],
            2,
            "--span-head: goes with tasks whose answers are spans",
        ),
        (
            ["finetune", "sst-2", "--model", "MODEL", "--data", "DATA", "--output", "OUT", "--v2-recipe"],
            2,
            "has one recipe for both releases",
        ),
        (["finetune", "ax", "--model", "MODEL", "--data", "DATA", "--output", "OUT"], 78, "has no training set"),
        (["evaluate", "sst-2", "--model", "MODEL", "--data", "DATA"], 78, "has no head for this task"),
        (["evaluate", "sst-2", "--model", "MODEL"], 2, "--data: is missing"),
        (["evaluate", "--model", "MODEL"], 2, "your own file needs --dev, --text, --label"),
        (["evaluate", "pretraining", "--model", "MODEL"], 2, "--data: is needed"),
    ],
)
def test_mistakes_are_one_line_with_their_exit_code(arguments, code, message, data, pretrained, tmp_path, capsys):
    places = {"MODEL": str(pretrained), "DATA": str(data / "choice"), "OUT": str(tmp_path / "run")}
    found = run([places.get(argument, argument) for argument in arguments])
    said = capsys.readouterr().err.strip()
    assert message in said
    assert said.count("\n") == 0
    assert said.startswith("albert: error: ")
    assert found in (code if isinstance(code, tuple) else (code,))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["finetune", "evaluate"])
def test_help_ends_with_examples_that_parse(command, capsys):
    with pytest.raises(SystemExit) as end:
        dispatch([command, "--help"])
    assert end.value.code == 0
    assert f"albert {command} sst-2 --model" in capsys.readouterr().out
