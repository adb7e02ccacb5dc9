"""Tasks on tables: inference, held-out rows, saved tasks, statistics, mistakes."""

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.columns.hold_out import hold_out_rows
from albert.columns.read import check_rows, read_task
from albert.columns.statistics import table_statistics
from albert.commands.columns import Columns, TableKeys
from albert.finetuning.batches import read_examples
from albert.finetuning.task_run import save_custom_task
from albert.runtime.errors import AlbertError, DamagedData, InvalidConfiguration, UsageError
from albert.tables.table import Row, Table
from albert.tasks.inputs import Single, Words
from albert.tasks.labels import sort_labels
from albert.tasks.multi_label import MultiLabel
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.regression import Regression
from albert.tasks.single_label import SingleLabel
from albert.tasks.span import Span
from albert.tasks.submission import DECLARED
from albert.tasks.table_task import (
    HeldOut,
    TableTask,
    read_label_names,
    save_table_task,
    table_task_of,
)
from albert.tasks.tagging import TokenTagging


def table(folder: Path, rows: list[dict], name: str = "train.jsonl") -> Path:
    path = folder / name
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def labelled(values: list) -> list[dict]:
    return [{"t": f"text {number}", "y": value} for number, value in enumerate(values)]


def read_labels(folder: Path, values: list, **settings):
    return read_task(TableTask(train=table(folder, labelled(values)), text="t", label="y", **settings))


@pytest.mark.parametrize(
    ("values", "target"),
    [
        ([1, 5, 3] * 9, SingleLabel(("1", "3", "5"), "y")),
        (["yes", "no"] * 3, SingleLabel(("no", "yes"), "y")),
        ([number / 7 for number in range(30)], Regression("y")),
        ([number * number for number in range(30)], Regression("y")),
        ([4.5, 1.25, 3.0, 2.5] * 9, Regression("y")),
        ([number / 4 for number in range(12)], Regression("y")),
        ([*range(18, 81)] * 3, Regression("y")),
        ([*range(1900, 2025)] * 3, Regression("y")),
        ([*range(400)] * 3, Regression("y")),
        ([*range(60)], Regression("y")),
        ([["a", "b"], [], ["b"]] * 2, MultiLabel(("a", "b"), "y")),
        (["b ;a c;", "", "a c"] * 2, MultiLabel(("a c", "b"), "y", ";")),
    ],
)
def test_kind_is_inferred_from_labels(values, target, tmp_path):
    settings = {"kind": "multi-label", "separator": ";"} if ";" in str(values) else {}
    read = read_labels(tmp_path, values, **settings).check()
    assert read.task.target == target and read.task.inputs == Single("t")
    assert (settings or read.inferred[0].what == "task") and read.inferred[0].override


@pytest.mark.parametrize("first", [0, 1])
def test_ambiguous_whole_numbers_are_refused(first, tmp_path):
    values = [*range(first, first + 91)] * 2
    with pytest.raises(
        UsageError, match="column 'y': holds every whole number.*; say --kind classification or --kind number"
    ):
        read_labels(tmp_path, values)
    assert isinstance(read_labels(tmp_path, values, kind="classification").task.target, SingleLabel)
    assert read_labels(tmp_path, values, kind="regression").task.target == Regression("y")


def test_settings_override_inference(tmp_path):
    task = read_labels(tmp_path, [1, 2] * 3, kind="regression", metrics=("spearman",)).task
    assert task.target == Regression("y") and [metric.__name__ for metric in task.metrics] == ["spearman"]
    task = read_labels(tmp_path, [1, 2] * 3, labels=("2", "1"), label_names={"1": "bad", "2": "good"}).task
    assert task.target == SingleLabel(("2", "1"), "y", ("good", "bad"))


def test_tags_are_inferred(tmp_path):
    rows = [{"w": ["a", "ship", str(number)], "n": ["O", "B-X", "O"]} for number in range(5)]
    path = table(tmp_path, rows)
    for names in ({"words": "w", "tags": "n"}, {"text": "w", "label": "n"}):
        task = read_task(TableTask(train=path, **names)).task
        assert (task.inputs, task.target) == (Words("w"), TokenTagging(("B-X", "O"), "n"))
    (tmp_path / "x.conll").write_text("a O\nship B-X\n\nit O\n")
    assert read_task(TableTask(train=tmp_path / "x.conll")).task.target == TokenTagging(("B-X", "O"), "tags")


def test_answers_are_located_and_counted(tmp_path):
    answers = [("it is red", "red", 6), ("so red, red", "red", None), ("it is blue", "blue", 0), ("it", "", None)]
    rows = [{"q": "?", "c": context, "a": answer, "s": start} for context, answer, start in answers]
    read = read_task(TableTask(train=table(tmp_path, rows), question="q", context="c", answer="a", answer_start="s"))
    assert read.task.target == Span(may_be_absent=True, head="joint")
    rows = sorted((row for part in read.tables.values() for row in part.rows), key=lambda row: int(row.identifier))
    assert [[answer.start for answer in row.answers or ()] for row in rows] == [[6], [3], [6], []]
    unanswered = table(tmp_path, [{"q": "?", "c": "it"}], "dev.jsonl")
    without = read_task(replace(read.table_task, train=None, dev=unanswered)).check()
    with pytest.raises(DamagedData, match="has no 'answers'; .+ or the column --answer of your table"):
        read_examples(without.task, tmp_path, "dev")
    counts = {"answers": 3, "answers_relocated": 1, "answers_found_more_than_once": 1, "unanswerable": 1}
    assert counts.items() <= read.tables["train"].counts.items()


def read_options(folder: Path, labels: Iterable[str]):
    rows = [{"q": f"which {n}?", "x": "red", "y": "blue", "z": "B", "l": label} for n, label in enumerate(labels)]
    task = TableTask(train=table(folder, rows), question="q", options=("x", "y", "z"), label="l")
    return read_task(task, hold_out=False)


@pytest.mark.parametrize(
    ("labels", "kind"),
    [("xz", "name"), ("aC", "letter"), ("01", "from-0"), ("31", "from-1"), (["red", "blue"], "text")],
)
def test_option_labels_are_inferred(labels, kind, tmp_path):
    assert read_options(tmp_path, labels).table_task.option_labels == kind


@pytest.mark.parametrize("labels", [["1", "2"], ["B"]])
def test_ambiguous_option_labels_are_refused(labels, tmp_path):
    with pytest.raises(UsageError, match=r"may name an option in two ways, .+; say option_labels"):
        read_options(tmp_path, labels)


def test_lists_of_options_become_columns(tmp_path):
    rows = [{"p": f"passage {n}", "o": ["red", f"blue {n}"], "l": n % 2} for n in range(6)]
    read = read_task(TableTask(train=table(tmp_path, rows), text="p", options=("o",), label="l"))
    assert read.task.target == MultipleChoice(("o[0]", "o[1]"), "l")
    assert {row.fields["l"] for row in read.check().tables["train"].rows} == {"o[0]", "o[1]"}
    more = [{**row, "o": [*row["o"], "white"]} for row in rows]
    files = {"train": table(tmp_path, rows), "dev": table(tmp_path, more, "dev.jsonl")}
    read = read_task(TableTask(**files, text="p", options=("o",), label="l")).check()
    assert read.task.target == MultipleChoice(("o[0]", "o[1]", "o[2]"), "l")  # a question may have fewer
    path = table(tmp_path, [*rows[:5], {"p": "x", "o": ["a", ""], "l": 0}])
    with pytest.raises(DamagedData, match="fewer than two options"):
        read_task(TableTask(train=path, text="p", options=("o",), label="l"), hold_out=False).check()


@given(
    labels=st.lists(st.sampled_from("abc"), min_size=6, max_size=60),
    seed=st.integers(0, 9),
    share=st.floats(0.05, 0.5),
    texts=st.integers(2, 60),
)
def test_held_out_rows_are_deterministic_and_share_no_text(labels, seed, share, texts):
    rows = [Row(str(n), f"f:{n}", {"t": str(n % texts), "y": label}) for n, label in enumerate(labels)]
    task = replace(DECLARED["sst-2"], inputs=Single("t"), target=SingleLabel(("a", "b", "c"), "y"))
    arguments = task, Table(rows, {"rows": len(rows)}), HeldOut(share=share, seed=seed)
    try:
        train, dev = hold_out_rows(*arguments)
    except InvalidConfiguration:
        return
    assert hold_out_rows(*arguments) == (train, dev)
    assert sorted(int(row.identifier) for row in (*train.rows, *dev.rows)) == list(range(len(rows)))
    assert train.rows and dev.rows
    assert not {row.fields["t"] for row in train.rows} & {row.fields["t"] for row in dev.rows}


def test_held_out_rows_are_stratified(tmp_path):
    read = read_labels(tmp_path, ["a"] * 90 + ["b"] * 10)
    assert [row.fields["y"] for row in read.tables["dev"].rows] == ["a"] * 9 + ["b"]


def test_saved_task_is_read_back_and_checks_its_file(tmp_path):
    read = read_labels(tmp_path, [1, 2] * 9, held_out=HeldOut(seed=3))
    save_table_task(tmp_path, read.table_task)
    saved = table_task_of(tmp_path / "model")
    assert Columns(kind="classification").task(TableKeys(), saved) == saved
    assert Columns(kind="classification").task(TableKeys(), TableTask(labels=("b", "a"))).labels == ("b", "a")
    assert saved == read.table_task and saved is not None
    again = read_task(saved)
    assert again.tables == read.tables and again.inferred == ()
    table(tmp_path, labelled([1, 2] * 10))
    with pytest.raises(InvalidConfiguration, match="has changed since its rows were held out"):
        read_task(saved)


def test_a_link_keeps_its_name_whose_ending_is_the_format(tmp_path):
    table(tmp_path, labelled(["a", "b"] * 9), "5f3a")
    (tmp_path / "train.jsonl").symlink_to("5f3a")
    read = read_task(TableTask(train=tmp_path / "train.jsonl", text="t", label="y"))
    save_custom_task(read.task, read.task.recipe, tmp_path)
    saved = table_task_of(tmp_path)
    assert saved is not None and read_task(saved).tables == read.tables
    (tmp_path / "blob").write_bytes(gzip.compress(b"sentence\tlabel\nok\t1\n"))
    (tmp_path / "dev.tsv.gz").symlink_to("blob")
    assert len(DECLARED["sst-2"].source.with_files({"dev": tmp_path / "dev.tsv.gz"}).read(tmp_path, "dev").rows) == 1


def test_statistics_count_bad_rows(tmp_path):
    train = [("a", 1), ("a", 2), ("", 1), ("b", None), ("c", 2)]
    dev = [("a", 1), ("d", 9)]
    files = {
        split: table(tmp_path, [{"t": t, "y": y} for t, y in rows], f"{split}.jsonl")
        for split, rows in (("train", train), ("dev", dev))
    }
    read = read_task(TableTask(**files, text="t", label="y"))
    statistics = table_statistics(read.task, read.tables)
    counts = statistics["train"].counts
    assert counts["rows without text"] == 1 and counts["empty texts"] == 0  # one is left out of training
    assert counts["missing labels"] == counts["duplicates"] == counts["contradictions"] == 1
    assert statistics["train"].labels == {"1": 1, "2": 2}
    counts = statistics["dev"].counts
    assert (counts["in train"], counts["labels unknown to train"]) == (1, 1)


def test_many_labels_are_numbered_once_not_for_every_row(tmp_path):
    class Counted(tuple):
        passes = 0

        def __iter__(self):
            Counted.passes += 1
            return super().__iter__()

    read = read_labels(tmp_path, ["a", "b"] * 9)
    check_rows(replace(read.task, target=SingleLabel(Counted("ab"), "y")), read.tables["train"].rows)
    assert Counted.passes == 1


def test_numeric_labels_are_sorted_by_value():
    assert sort_labels({"10", "2", "1"}) == ("1", "2", "10")
    assert sort_labels({"10", "2", "one"}) == ("10", "2", "one")
    assert sort_labels({"b", "a"}) == ("a", "b")


TWO = labelled([1, 2])


@pytest.mark.parametrize(
    ("settings", "rows", "kind", "message"),
    [
        ({"label": None}, TWO, UsageError, r"classification: needs --label; .+ columns t, y"),
        ({"text": "tt"}, TWO, DamagedData, "has no column 'tt'; did you mean 't'"),
        ({}, labelled([1, 2, "", ""]), DamagedData, "l:3: empty label in .+; 1 more row like"),
        ({}, [*TWO, {"t": ["x"], "y": 1}], DamagedData, "a list in column 't'"),
        ({}, [*TWO, {"t": "x", "y": None}], DamagedData, "l:3: empty label in column 'y'"),
        ({}, [*TWO, *labelled([float("nan")])], DamagedData, "l:3: empty label in column 'y'"),
        ({"kind": "regression"}, labelled([1, "nan", -1e39]), DamagedData, "l:2: 'nan' .+ at most 3.4e38; 1 more row"),
        ({"id": "t"}, TWO[:1] * 2, InvalidConfiguration, "every row has the"),
        ({"id": "y"}, labelled([1, 2, 2]), DamagedData, "l:3: a second row has the id '2', the first is at "),
        ({"label": None, "label_columns": ("y", "y")}, TWO, UsageError, "--label: names the column 'y' twice; name it"),
        ({"kind": "ranking"}, TWO, InvalidConfiguration, "kind: 'ranking' is unknown; known: .+classification"),
        ({"answer_start": "t", "kind": "classification"}, TWO, UsageError, "answer-start: cannot be used"),
        ({"separator": ";"}, labelled(["a;b", "a"]), UsageError, "--separator: .+ with classification; .+ multi-label"),
        ({"kind": "regression", "labels": ("1", "2")}, TWO, UsageError, "--labels: cannot be used with regression"),
        ({"option_labels": "letter"}, TWO, UsageError, "option_labels: .+ it is for multiple-choice"),
        ({"label_names": {"1": "2", "2": "1"}}, TWO, InvalidConfiguration, "'2', the name of '1', is another label"),
        ({"label_names": {"1": "a", "2": "a"}}, TWO, InvalidConfiguration, "'a', the name of '1', is another label"),
        ({"metrics": ("f2",)}, TWO, InvalidConfiguration, "metric f2: cannot be used"),
        ({"labels": ("1",)}, TWO, DamagedData, "unknown label '2'"),
        ({"options": ("t",)}, TWO, UsageError, "--options: 't' has no lists of options"),
    ],
)
def test_mistakes_are_refused_in_one_line(settings, rows, kind, message, tmp_path):
    task = TableTask(**{"train": table(tmp_path, rows), "text": "t", "label": "y", **settings})
    with pytest.raises(AlbertError, match=message) as error:
        read_task(task, hold_out=False).check()
    assert type(error.value) is kind and "\n" not in str(error.value)


@pytest.mark.parametrize("content", [{"0": "no", "1": "yes"}, {"no": 0, "yes": 1}, {"no": "0", "yes": "1"}])
def test_label_names_in_a_json_file(content, tmp_path):
    """As id2label or label2id of transformers has them."""
    path = tmp_path / "names.json"
    path.write_text(json.dumps(content))
    assert read_label_names([str(path)]) == {"0": "no", "1": "yes"}
