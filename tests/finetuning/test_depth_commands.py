"""Depth, exits, a frozen encoder and a teacher from the command line, from files to an answer that left early."""

import json

import pytest

from albert.cli.main import dispatch, run

SMALL = ["--steps", "4", "--batch-size", "4", "--max-length", "32", "--device", "cpu"]


@pytest.fixture
def finetune(data, pretrained, tmp_path):
    def arguments(name, *more):
        start = ["finetune", "sst-2", "--model", str(pretrained), "--data", str(data / "choice")]
        return [*start, "--output", str(tmp_path / name), *SMALL, *more]

    return arguments


def test_a_deep_teacher_and_a_student_that_answers_at_every_depth(finetune, data, tmp_path, capsys):
    assert dispatch(finetune("teacher", "--depth", "5", "--freeze-encoder")) == 0
    teacher = json.loads((tmp_path / "teacher/recipe.json").read_text())
    assert teacher["changes"] == {"num_hidden_layers": 5} and teacher["settings"]["freeze_encoder"]
    student = finetune("student", "--depth", "3", "--exits", "every", "--teacher", str(tmp_path / "teacher"))
    assert dispatch([*student, "--distillation-temperature", "4"]) == 0
    kept = json.loads((tmp_path / "student/recipe.json").read_text())["settings"]
    assert kept["exits"] == "every" and kept["distillation"]["temperature"] == 4
    capsys.readouterr()
    evaluate = ["evaluate", "sst-2", "--model", str(tmp_path / "student"), "--data", str(data / "choice")]
    assert dispatch([*evaluate, "--device", "cpu", "--depth", "1", "3", "6", "--patience", "1"]) == 0
    said = capsys.readouterr().out
    assert "trained at depth 3" in said and "depth 6" in said and "patience 1" in said
    predict = ["predict", str(tmp_path / "student"), "--classify", "the ship saw the storm", "--device", "cpu"]
    assert dispatch([*predict, "--patience", "1", "--json"]) == 0
    assert 2 <= json.loads(capsys.readouterr().out.splitlines()[0])["depth"] <= 3


@pytest.mark.parametrize(
    ("wrong", "message", "code"),
    [
        (["--depth", "3", "--num-hidden-layers", "4"], "--depth: and --num-hidden-layers are the same thing", 2),
        (["--distillation-weight", "0.3"], "--distillation-weight: requires --teacher", 2),
        (["--teacher-revision", "v2"], "--teacher-revision: requires --teacher", 2),
        (["--freeze-encoder", "--encoder-dropout", "0.1"], "--encoder-dropout: has no effect with --freeze-encoder", 2),
        (["--exits", "2", "7"], "exits: names 7, the model has 2 layers", 78),
        (["--teacher", "nowhere/at/all"], "nowhere/at/all", 66),
    ],
)
def test_mistakes_are_told_in_a_line_and_leave_nothing(finetune, tmp_path, capsys, wrong, message, code):
    assert run(finetune("run", *wrong)) == code
    said = capsys.readouterr().err
    assert message in said and len(said.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()
