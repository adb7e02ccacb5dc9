"""Rows of the development set that a run keeps in the model's folder for the page of `albert serve`."""

import json
from dataclasses import replace

import pytest
from tests.finetuning.conftest import NOUNS
from tests.inference.server.running_servers import running, wait_until

from albert.cli.main import run
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings, page_examples
from albert.inference.predictor import Predictor
from albert.runtime.manifest import verify_directory
from albert.tasks.examples import Example
from albert.tasks.submission import DECLARED

FIELDS = {
    "sts-b": {"text", "pair"},
    "squad-1.1": {"question", "context"},
    "squad-2.0": {"question", "context"},
    "race": {"question", "context", "options"},
}
SST2 = DECLARED["sst-2"]


def test_a_run_keeps_rows_of_its_task_and_the_server_gives_them_to_the_page(task, task_data, pretrained, tmp_path):
    task = replace(task, recipe=replace(task.recipe, steps=2))
    start = PretrainedEncoder(str(pretrained))
    model = finetune(task, start, task_data, tmp_path / "run", settings=FinetuningSettings(device="cpu"))
    directory = model.model_directory
    kept = json.loads((directory / "examples.json").read_text())
    assert [set(each) for each in kept["examples"]] == [FIELDS.get(task.name, {"text"})] * 5
    assert all(isinstance(value, str) and value for each in kept["examples"] for value in each.values())
    verify_directory(directory)
    assert "examples.json" in (directory / "MANIFEST.json").read_text()
    assert "- examples.json holds 5 rows of the development set, without labels\n" in (
        directory / "README.md"
    ).read_text(encoding="utf-8")
    if task.name == "race":
        assert len(kept["examples"][0]["options"].splitlines()) == 4
    with running(lambda: Predictor.open(tmp_path / "run", "cpu")) as server:
        wait_until(lambda: server.service.state == "ready")
        assert server.request("GET", "/page/examples.json").json == kept


def test_none_are_kept_where_none_are_wanted(pretrained, tmp_path, capsys):
    rows = "".join(f"the {noun} {i},{'yes' if i % 2 else 'no'}\n" for i in range(4) for noun in NOUNS)
    (tmp_path / "rows.csv").write_text("text,label\n" + rows)
    words = ["finetune", "--train", str(tmp_path / "rows.csv"), "--text", "text", "--label", "label", "--steps", "1"]
    words += ["--model", str(pretrained), "--output", str(tmp_path / "run"), "--device", "cpu"]
    assert run([*words, "--page-examples", "-1"]) == 78
    assert "page_examples: is -1, at least 0 is needed" in capsys.readouterr().err
    assert run([*words, "--page-examples", "0"]) == 0
    model = tmp_path / "run/model"
    assert not (model / "examples.json").exists()
    assert "examples.json" not in (model / "README.md").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "run/recipe.json").read_text())["settings"]["page_examples"] == 0
    with running(lambda: Predictor.open(model, "cpu")) as server:
        wait_until(lambda: server.service.state == "ready")
        assert server.request("GET", "/page/examples.json").json == {"examples": []}
        assert server.request("GET", "/model").json["name"] == "run"  # its model lies in run/model
        (model / "examples.json").write_text('{"examples": [{"text": 3}]}')  # another program's file of that name
        assert server.request("GET", "/page/examples.json").json == {"examples": []}
    capsys.readouterr()
    assert run(words) != 0
    assert "holds" in capsys.readouterr().err


def example(text: str, label: int) -> Example:
    return Example("0", "rows:1", (text,), label)


def test_labels_take_turns_and_what_is_long_or_empty_is_left_out():
    rows = [example("first", 1), example("second", 1), example("x" * 301, 0), example(" ", 0), example("third", 0)]
    rows += [example("\ud800", 0), example("first", 1)]
    assert page_examples(SST2, rows, 9) == [{"text": "third"}, {"text": "first"}, {"text": "second"}]
    assert page_examples(SST2, rows, 2) == [{"text": "third"}, {"text": "first"}]
    assert page_examples(SST2, [example("x" * 301, 0)], 2) == []


@pytest.mark.parametrize("count", [1, 3, 9])
def test_numbers_are_taken_from_low_to_high(count):
    task = DECLARED["sts-b"]
    rows = [Example(str(i), "rows", (f"a{i}", f"b{i}"), float(9 - i)) for i in range(9)]
    found = [int(each["text"][1]) for each in page_examples(task, rows, count)]
    assert len(found) == count and found == sorted(found, reverse=True)
