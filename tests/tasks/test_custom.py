"""The user's own table: labels found and sorted, mistakes named with their row."""

import pytest

from albert.runtime.errors import AlbertError, DamagedData, InvalidConfiguration, MissingInput, UsageError
from albert.tasks.custom import declare_custom_task
from albert.tasks.examples import to_examples
from albert.tasks.task import Choice, Pair, Score


def test_a_task_is_declared_from_columns(tmp_path):
    (tmp_path / "train.csv").write_text("q,a,ok\nwho,me,yes\nwho,you,no\n")
    (tmp_path / "dev.csv").write_text("q,a,ok\nwho,me,yes\n")
    files = {"train": tmp_path / "train.csv", "dev": tmp_path / "dev.csv"}
    task = declare_custom_task(files, "q", "ok", pair="a")
    assert task.target == Choice(("no", "yes"), "ok")
    assert task.inputs == Pair("q", "a")
    examples = to_examples(task, task.source.read(tmp_path, "dev").rows)
    assert (examples[0].texts, examples[0].target) == (("who", "me"), 1)


def test_regression_takes_numbers(tmp_path):
    (tmp_path / "train.jsonl").write_text('{"t": "a", "y": 3}\n{"t": "b", "y": -1.5}\n')
    task = declare_custom_task({"train": tmp_path / "train.jsonl"}, "t", "y", regression=True)
    assert task.target == Score("y")
    assert [e.target for e in to_examples(task, task.source.read(tmp_path, "train").rows)] == [3.0, -1.5]


def test_an_unknown_label_in_dev_names_the_row(tmp_path):
    (tmp_path / "train.csv").write_text("t,y\na,1\nb,2\n")
    (tmp_path / "dev.csv").write_text('t,y\n"two\nlines",1\nb,3\n')
    with pytest.raises(DamagedData, match=r"dev\.csv:4: unknown label '3'"):
        declare_custom_task({"train": tmp_path / "train.csv", "dev": tmp_path / "dev.csv"}, "t", "y")


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("x.csv", "t,y\na,1\nb\n", DamagedData, r"x\.csv:3: has 1 fields where the header has 2"),
        ("x.csv", 't,y\n"open,1\nb,2\n', DamagedData, "broken CSV"),
        ("x.csv", "t,y\n", MissingInput, "has no rows"),
        ("x.csv", "t,t\na,1\n", DamagedData, "same name"),
        ("x.csv", "t,y\na,1\nb,1\n", InvalidConfiguration, "every row has the label '1'"),
        ("x.csv", "t,y\na,1\nb, \n", DamagedData, r"x\.csv:3: empty label"),
        ("x.csv", "text,y\na,1\nb,2\n", DamagedData, "has no column 't'; known: text, y"),
        ("x.csv", "t,stars\na,1\nb,2\n", DamagedData, "has no column 'y'"),
        ("x.tsv", "t\ty\na\n", DamagedData, r"x\.tsv:2"),
        ("x.jsonl", '{"t": "a"\n', DamagedData, r"x\.jsonl:1: is not JSON"),
        ("x.jsonl", '{"t": "a", "y": 1}\n[]\n', DamagedData, r"x\.jsonl:2: is list, a JSON object is expected"),
        ("x.jsonl", '{"t": "a", "y": 1}\n{"t": "a", "y": null}\n', DamagedData, r"x\.jsonl:2: has no column 'y'"),
        ("x.jsonl", '{"t": "\\ud800", "y": 1}\n', DamagedData, "surrogate"),
        ("x.xlsx", "", UsageError, "use .csv, .tsv, .jsonl"),
        ("x.json", "{}", UsageError, "is JSON, not JSON lines; SQuAD's layout goes with the task squad-1.1"),
        ("absent/x.csv", None, MissingInput, "No such file"),
    ],
)
def test_mistakes_are_one_line_with_the_place(tmp_path, name, content, kind, message):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    with pytest.raises(AlbertError, match=message) as error:
        task = declare_custom_task({"train": path}, "t", "y")
        to_examples(task, task.source.read(tmp_path, "train").rows)
    assert type(error.value) is kind
    assert "\n" not in str(error.value)
