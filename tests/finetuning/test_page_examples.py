"""`examples.json`: rows of the development set for the page of `albert serve`."""

import json
from dataclasses import replace

import pytest
from tests.finetuning.conftest import NOUNS
from tests.inference.server.running_servers import running, wait_until

from albert.cli.main import run
from albert.finetuning.page_examples import page_examples
from albert.finetuning.task_run import finetune
from albert.inference.predictor import Predictor
from albert.recipes.finetuning import FinetuningSettings
from albert.runtime.json_files import read_json_object
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


def served_examples(server):
    wait_until(lambda: server.service.state == "ready")
    return server.request("GET", "/page/examples.json").json


def test_run_keeps_rows_of_its_task_and_the_server_serves_them(task, task_data, start, tmp_path):
    task = replace(task, recipe=replace(task.recipe, steps=2))
    result = finetune(task, start, task_data, tmp_path / "run", settings=FinetuningSettings(device="cpu"))
    directory = result.model_directory
    saved = read_json_object(directory / "examples.json")
    assert [set(row) for row in saved["examples"]] == [FIELDS.get(task.name, {"text"})] * 5
    assert all(isinstance(value, str) and value for row in saved["examples"] for value in row.values())
    verify_directory(directory)
    assert "examples.json" in (directory / "MANIFEST.json").read_text()
    card = (directory / "README.md").read_text(encoding="utf-8")
    assert "- examples.json holds 5 rows of the development set, without labels\n" in card
    if task.name not in FIELDS:  # the card of a model with a match embedding has no example row
        assert json.dumps(saved["examples"][0]["text"], ensure_ascii=False) in card
    if task.name == "race":
        assert len(saved["examples"][0]["options"].splitlines()) == 4
    with running(lambda: Predictor.open(tmp_path / "run", "cpu")) as server:
        assert served_examples(server) == saved


def test_no_rows_are_kept_with_page_examples_0(pretrained, tmp_path, capsys):
    rows = "".join(f"the {noun} {i},{'yes' if i % 2 else 'no'}\n" for i in range(4) for noun in NOUNS)
    (tmp_path / "rows.csv").write_text("text,label\n" + rows)
    command = ["finetune", "--train", str(tmp_path / "rows.csv"), "--text", "text", "--label", "label", "steps=1"]
    command += ["--model", str(pretrained), "--output", str(tmp_path / "run"), "--device", "cpu"]
    assert run([*command, "page_examples=-1"]) == 78
    assert "page_examples: is -1, at least 0 is needed" in capsys.readouterr().err
    assert run([*command, "page_examples=0"]) == 0
    model = tmp_path / "run/model"
    assert not (model / "examples.json").exists()
    assert "examples.json" not in (model / "README.md").read_text(encoding="utf-8")
    assert read_json_object(tmp_path / "run/recipe.json")["settings"]["page_examples"] == 0
    with running(lambda: Predictor.open(model, "cpu")) as server:
        assert served_examples(server) == {"examples": []}
        assert server.request("GET", "/model").json["name"] == "run"  # its model is in run/model
        (model / "examples.json").write_text('{"examples": [{"text": 3}]}')  # another program's file of that name
        assert served_examples(server) == {"examples": []}
    capsys.readouterr()
    assert run(command) != 0
    assert "holds" in capsys.readouterr().err


def test_labels_take_turns_and_long_rows_come_last_and_shortened():
    rows = [("first", 1), ("second", 1), ("x" * 301, 0), (" ", 0), ("third", 0), ("\ud800", 0), ("first", 1)]
    examples = [Example("0", "rows:1", (text,), label) for text, label in rows]
    short = [{"text": "third"}, {"text": "first"}, {"text": "second"}]
    assert page_examples(SST2, examples, 3) == short
    assert page_examples(SST2, examples, 9) == [*short, {"text": "x" * 300}]
    assert page_examples(SST2, examples, 2) == [{"text": "third"}, {"text": "first"}]
    long = Example("0", "rows:1", ("příliš žluťoučký " * 40,), 0)
    (row,) = page_examples(SST2, [long], 2)
    assert 280 < len(row["text"]) <= 300 and row["text"].endswith(("příliš", "žluťoučký"))


@pytest.mark.parametrize("count", [1, 3, 9])
def test_numbers_go_from_low_to_high(count):
    examples = [Example(str(i), "rows", (f"a{i}", f"b{i}"), float(9 - i)) for i in range(9)]
    indices = [int(row["text"][1]) for row in page_examples(DECLARED["sts-b"], examples, count)]
    assert len(indices) == count and indices == sorted(indices, reverse=True)
