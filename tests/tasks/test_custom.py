"""The user's own table: any of three formats, labels found and sorted, mistakes named with their row."""

import csv
import gzip
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.runtime.errors import AlbertError, DamagedData, InvalidConfiguration, MissingInput, UsageError
from albert.tasks.custom import declare_custom_task, read_table, sort_labels
from albert.tasks.examples import to_examples
from albert.tasks.task import Choice, Pair, Score

TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=12)


@given(rows=st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), gz=st.booleans())
def test_csv_is_read_as_it_was_written(rows, gz, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / ("x.csv.gz" if gz else "x.csv")
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("review", "stars"))
    writer.writerows(rows)
    content = text.getvalue().encode()
    path.write_bytes(gzip.compress(content) if gz else content)
    assert [(r.fields["review"], r.fields["stars"]) for r in read_table(path).rows] == rows


@given(rows=st.lists(st.tuples(TEXT, st.integers(-9, 9)), min_size=1, max_size=6))
def test_json_lines_are_read_as_they_were_written(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "x.jsonl"
    lines = (json.dumps({"review": text, "stars": stars}) for text, stars in rows)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
    found = read_table(path).rows
    assert [(r.fields["review"], int(r.fields["stars"])) for r in found] == rows


def test_labels_are_sorted_as_numbers_when_they_are_numbers():
    assert sort_labels({"10", "2", "1"}) == ("1", "2", "10")
    assert sort_labels({"10", "2", "one"}) == ("10", "2", "one")
    assert sort_labels({"b", "a"}) == ("a", "b")


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
    task = declare_custom_task({"train": tmp_path / "train.csv", "dev": tmp_path / "dev.csv"}, "t", "y")
    with pytest.raises(DamagedData, match=r"dev\.csv:4: unknown label '3'"):
        to_examples(task, task.source.read(tmp_path, "dev").rows)


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
        ("x.jsonl", '{"t": "a"\n', DamagedData, r"x\.jsonl:1: not JSON"),
        ("x.jsonl", '{"t": "a", "y": 1}\n[]\n', DamagedData, r"x\.jsonl:2: is not a JSON object"),
        ("x.jsonl", '{"t": "a", "y": 1}\n{"t": "a", "y": null}\n', DamagedData, r"x\.jsonl:2: has no column 'y'"),
        ("x.jsonl", '{"t": "\\ud800", "y": 1}\n', DamagedData, "surrogate"),
        ("x.parquet", "", UsageError, "use .csv, .tsv or .jsonl"),
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
