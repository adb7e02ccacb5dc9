"""Reports of fine-tuned models: classes, confusions, errors with text, calibration, advice, and the page of a run."""

import json
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from tests.finetuning.conftest import NOUNS, PLAIN_WORDS, SMALL, UNDECLARED, folder_of

import albert
from albert.cli.main import run
from albert.finetuning.selection import development_trend
from albert.finetuning.task_run import finetune
from albert.recipes.finetuning import FinetuningSettings
from albert.report.advice import next_step
from albert.report.page import axis_number
from albert.report.runs import result_of_run
from albert.runtime.json_files import Journal, read_json_object
from albert.tables.table import Answer
from albert.tasks.error_analysis import MAX_MATRIX, calibration
from albert.tasks.examples import Example
from albert.tasks.multi_label import MultiLabel
from albert.tasks.single_label import SingleLabel
from albert.tasks.submission import DECLARED
from albert.tasks.tagging import TokenTagging

CPU = FinetuningSettings(device="cpu")


def few_steps(task):
    recipe = replace(task.recipe, learning_rate=3e-3, batch_size=8, steps=4, epochs=None, examples=None, max_length=32)
    return replace(task, recipe=replace(recipe, warmup_share=0.1, question_length=8, stride=8))


class Page(HTMLParser):
    """Checks that tags are closed and that nothing is loaded."""

    def __init__(self, text):
        super().__init__()
        self.open, self.words, self.seen = [], [], set()
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        assert tag not in ("script", "img", "link", "iframe")
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)


# --------------------------------------------------------------------------------------------------------------------
# Every kind of task.


def test_every_kind_of_task_has_a_report(task, task_data, start, tmp_path):
    result = finetune(few_steps(task), start, task_data, tmp_path / "run", settings=CPU)
    report = read_json_object(tmp_path / "run/results.json")
    page = Page((tmp_path / "run/report.html").read_text(encoding="utf-8"))
    constant = "best constant" if task.name == "sts-b" else "majority baseline"
    assert "Scores on the development set" in page.text and constant in page.text
    assert report["baseline_name"] == constant
    assert report["training_scores"]["examples"] > 0
    scores = result.scores
    if task.name == "sst-2":
        n_right = 16 - len(report["errors"])
        assert scores["accuracy"] == pytest.approx(100 * n_right / 16)
        assert sum(map(sum, report["confusion"]["counts"])) == 16
        assert [row["count"] for row in report["per_class"]] == [8, 8]
    if task.name in ("tags", "labels", "race"):
        assert report["per_class"] and report["confusion"]["labels"]
    if task.name == "tags":
        types = {row["class"]: row for row in report["per_class"]}
        assert types["LOC"]["f1"] == pytest.approx(scores["entity_f1_LOC"])
        assert types["PER"]["count"] == 13
    if task.name == "labels":
        macro = sum(row["f1"] for row in report["per_class"]) / len(report["per_class"])
        assert macro == pytest.approx(scores["macro_f1"])
    if task.name == "sts-b":
        assert report["per_class"] is None and report["calibration"] is None
        differences = [abs(error["difference"]) for error in report["errors"]]
        assert differences == sorted(differences, reverse=True) and "Largest errors" in page.text
    else:
        probabilities = [error["probability"] for error in report["errors"] if "label" not in error]
        assert probabilities == sorted(probabilities, reverse=True)
        assert report["calibration"]["bins"]


def test_a_resumed_run_writes_the_same_report(complete_and_resumed, data, start, tmp_path):
    task = few_steps(DECLARED["sst-2"])
    settings = FinetuningSettings(device="cpu", checkpoint_every=1)
    complete_and_resumed(task, start, folder_of("sst-2", data), settings, after=2)
    pages = [(tmp_path / name / "report.html").read_bytes() for name in ("complete", "stopped")]
    assert pages[0] == pages[1]
    (tmp_path / "complete/report.html").unlink()
    finetune(task, start, folder_of("sst-2", data), tmp_path / "complete", settings=settings)
    assert (tmp_path / "complete/report.html").read_bytes() == pages[0]


# --------------------------------------------------------------------------------------------------------------------
# The command line and Python.


@pytest.fixture
def own_table(tmp_path):
    rows = [
        f"<b>ship</b> & island {number} the sailor saw\t{'<good>' if number % 3 else 'bad'}" for number in range(24)
    ]
    path = tmp_path / "reviews.tsv"
    path.write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    return path


def test_command_and_python_show_where_the_model_is_wrong(own_table, pretrained, tmp_path, capsys):
    output = tmp_path / "run"
    table = ["--train", str(own_table), "--dev", str(own_table), "--text", "text", "--label", "label"]
    assert run(["finetune", *table, "--model", str(pretrained), "--output", str(output), *SMALL]) == 0
    out = capsys.readouterr().out
    assert f"report: {output / 'report.html'}" in out
    assert "Classes" in out and "expected calibration error" in out.lower()
    page = (output / "report.html").read_text(encoding="utf-8")
    assert "<b>ship</b>" not in page and "<good>" not in page
    assert "<good>" in Page(page).text
    report = read_json_object(output / "results.json")
    report["notes"].append("head solved: accuracy 60.0 after 9 s")
    assert "accuracy 60.0</li>" in result_of_run(report, output).page()  # equal runs have equal pages
    table_options = {"train": str(own_table), "dev": str(own_table), "text": "text", "label": "label"}
    options = {"model": str(pretrained), "output": output, "steps": 4, "batch_size": 4, "max_length": 32}
    result = albert.finetune(**table_options, **options, device="cpu")
    assert result.per_class == report["per_class"] and result.errors == report["errors"]
    assert result.calibration == report["calibration"]
    assert result.confusion is not None
    assert result.confusion.counts == report["confusion"]["counts"]
    assert "report.html" in repr(result)
    shown = result._repr_html_()  # a part of the page: its tables, and the first errors
    assert "Classes" in shown and "Confusion matrix" in Page(shown).text and "<b>ship</b>" not in shown
    n_errors = len(report["errors"])
    assert (shown.count('class="error"'), page.count('class="error"')) == (min(5, n_errors), n_errors)
    scores = tmp_path / "scores.json"
    evaluate = ["evaluate", "--model", str(output), "--dev", str(own_table), "--device", "cpu"]
    assert run([*evaluate, "--results", str(scores)]) == 0
    assert "Classes" in capsys.readouterr().out
    assert json.loads(scores.read_text())["confusion"] == report["confusion"]
    assert {"per_class", "errors", "calibration"} <= json.loads(scores.read_text()).keys()
    assert run([*evaluate, "--report", str(tmp_path / "page.html")]) == 0
    assert f"report: {tmp_path / 'page.html'}" in capsys.readouterr().out
    page = Page((tmp_path / "page.html").read_text(encoding="utf-8")).text
    assert "Confusion matrix" in page and "Calibration" in page and "<good>" in page and "majority baseline" in page
    evaluated = albert.evaluate(model=str(output), dev=str(own_table), device="cpu", report=tmp_path / "again.html")
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "page.html").read_bytes()
    assert "largest first" in evaluated.confusion._repr_html_() and "Classes" in evaluated._repr_html_()
    assert evaluated.per_class == report["per_class"]
    assert [error["text"] for error in evaluated.errors] == [error["text"] for error in result.errors]


def test_python_says_what_the_command_line_says(tmp_path, pretrained, capsys):
    rows = "".join(f"中文字 的 句子 {number};{number % 2}\n" for number in range(12))
    (tmp_path / "rows.csv").write_text("text;label\n" + rows, encoding="utf-8")
    albert.finetune(train=tmp_path / "rows.csv", model=pretrained)
    said = capsys.readouterr().err
    assert "columns are separated by ';'" in said and "classification" in said and "unknown" in said
    for remedy in ('kind="number", kind="multi-label"', 'labels=["A", "B", ...]', 'positive="LABEL"', "text=..."):
        assert f"; to change it: {remedy}\n" in said  # Python, not options


def test_the_classes_of_one_run_of_several_are_shown(own_table, pretrained, tmp_path, capsys):
    command = ["sweep", "--train", str(own_table), "--model", str(pretrained), *SMALL]
    assert run([*command, "--output", str(tmp_path / "seeds"), "--seeds", "2"]) == 0
    shown = capsys.readouterr().out
    assert "the best run" in shown and "Classes" in shown and "seed-" in shown.partition("report: ")[2]
    assert re.fullmatch(r"next: \S*albert predict \S+/seed-\d/model --classify .+", shown.splitlines()[-1])
    command = ["sweep", "--train", str(own_table), "--model", str(pretrained), "max_length=32", "--device", "cpu"]
    assert run([*command, "--output", str(tmp_path / "folds"), "--folds", "2", "--frozen"]) == 0
    shown = capsys.readouterr().out
    assert "the fold with the lower score" in shown and "Classes" in shown and "fold-" in shown.partition("report: ")[2]
    words = shlex.split(shown.splitlines()[-1])  # of the next command, which trains on all rows
    assert words[0] == "next:" and words[words.index("finetune") + 1 :][:2] == ["--model", str(pretrained)]
    assert "--folds" not in words and "--frozen" in words and f"{tmp_path / 'folds'}-model" in words
    assert run(words[words.index("finetune") :]) == 0


def test_the_preview_shows_the_keys_that_were_given(own_table, pretrained, capsys):
    assert run(["finetune", "--train", str(own_table), "--model", str(pretrained), "epochs=2", "seed=3"]) == 0
    assert "keys of a run: epochs=2 seed=3\n" in capsys.readouterr().out
    assert run(["finetune", "--train", str(own_table), "--model", str(pretrained)]) == 0
    assert "keys of a run" not in capsys.readouterr().out


# --------------------------------------------------------------------------------------------------------------------
# The figures.


def classified(gold, predicted, probability=0.9, labels=("a", "b", "c")):
    examples = [Example(str(number), f"f:{number}", (f"text {number}",), 0) for number in range(len(gold))]
    entries = []
    for right, found in zip(gold, predicted, strict=True):
        probabilities = {label: probability if label == found else 0.0 for label in labels}
        entries.append({"gold": right, "prediction": found, "probabilities": probabilities})
    task = replace(DECLARED["sst-2"], target=SingleLabel(tuple(labels), "y"))
    return task.target.analysis(examples, entries)


def test_largest_confusions_come_first():
    found = classified("aaabbc", "abbcba")
    assert found["confusion"]["counts"] == [[1, 2, 0], [0, 1, 1], [1, 0, 0]]
    assert found["confusion"]["largest"][0] == {"gold": "a", "predicted": "b", "count": 2}
    by_class = {row["class"]: row for row in found["per_class"]}
    assert by_class["a"]["precision"] == 50.0 and by_class["a"]["recall"] == pytest.approx(100 / 3)
    assert by_class["c"] == {"class": "c", "precision": 0.0, "recall": 0.0, "f1": 0.0, "count": 1, "predicted": 1}
    assert [error["text"] for error in found["errors"]] == ["text 1", "text 2", "text 3", "text 5"]


def test_many_classes_have_no_matrix():
    labels = [f"class {number}" for number in range(MAX_MATRIX + 1)]
    found = classified(labels, labels[1:] + labels[:1], labels=labels)
    assert found["confusion"]["counts"] is None and found["confusion"]["largest"]
    assert len(found["per_class"]) == MAX_MATRIX + 1


def test_entities_are_confused_with_types_or_with_nothing():
    words = ("Anna", "saw", "New", "York")
    entry = {
        "gold": ["B-PER", "O", "B-LOC", "I-LOC"],
        "prediction": ["B-LOC", "O", "B-LOC", "O"],
        "probabilities": [0.9, 0.9, 0.6, 0.4],
    }
    found = UNDECLARED["tags"].target.analysis([Example("0", "f:0", words, (1, 0, 3, 4))], [entry])
    pairs = {(each["gold"], each["predicted"]) for each in found["confusion"]["largest"]}
    assert pairs == {("PER", "LOC"), ("LOC", ""), ("", "LOC")}
    assert found["errors"][0]["words"] == "Anna"
    assert found["calibration"]["bins"][-1]["count"] == 2


def test_a_single_label_and_names_are_shown():
    target = MultiLabel(("1",), "y", names=("toxic",))
    task = replace(UNDECLARED["labels"], target=target)
    examples = [Example(str(number), "f", ("text",), ()) for number in range(2)]
    entries = [
        {"gold": ["1"], "prediction": ["1"], "probabilities": {"1": 0.8}},
        {"gold": [], "prediction": ["1"], "probabilities": {"1": 0.7}},
    ]
    found = task.target.analysis(examples, entries)
    row = {"class": "toxic", "precision": 50.0, "recall": 100.0, "count": 1, "predicted": 2}
    assert row.items() <= found["per_class"][0].items()
    assert len(found["errors"]) == 1
    assert found["errors"][0]["gold"] == [] and found["errors"][0]["probability"] == 0.7


def test_words_without_entities_are_classes():
    task = replace(UNDECLARED["tags"], target=TokenTagging(("NN", "VB"), "tags"))
    entry = {"gold": ["NN", "VB"], "prediction": ["NN", "NN"], "probabilities": [0.9, 0.8]}
    found = task.target.analysis([Example("0", "f", ("dogs", "run"), (0, 1))], [entry])
    assert [row["class"] for row in found["per_class"]] == ["NN", "VB"]
    assert found["confusion"]["counts"] == [[1, 0], [1, 0]]


def test_answers_are_compared_as_squad_does():
    example = Example("0", "f", ("who?", "the ship"), None, (Answer("the ship", 0),))
    best = [{"answer": "ship", "probability": 0.9}]
    entries = [
        {"prediction": "Ship.", "gold": ["the ship"], "best": best},
        {"prediction": "", "gold": ["the ship"], "best": best, "no_answer_probability": 0.7},
    ]
    found = DECLARED["squad-2.0"].target.analysis([example, example], entries)
    assert [error["probability"] for error in found["errors"]] == [0.7]


def test_calibration_error_of_probabilities():
    found = calibration(np.array([0.95, 0.95, 0.55, 1.0]), np.array([True, False, True, True]))
    assert found is not None
    assert [each["count"] for each in found["bins"]] == [1, 3]
    assert found["expected_calibration_error"] == pytest.approx(0.25 * 45 + 0.75 * (290 / 3 - 200 / 3))


@pytest.mark.parametrize("value", [0.000709, -0.000123, 98765.0, 0.709, 12.34, 100.0, 0.0])
def test_numbers_of_axes_fit_their_margin(value):
    assert len(axis_number(value)) <= 7
    assert float(axis_number(value)) == pytest.approx(value, rel=0.05)


@pytest.mark.parametrize(
    ("training", "development", "trend", "epochs", "option"),
    [
        (99.0, 80.0, "rising", 3.0, "--model small-vectors"),
        (85.0, 80.0, "rising", 3.0, "epochs=6"),
        (85.0, 80.0, "once", 3.0, "epochs=6"),
        (100.0, 95.0, "once", 3.0, "--model small-vectors"),
        (85.0, 80.0, "unknown", 0.8, "epochs=2"),
        (85.0, 80.0, "stopped", 3.0, "--model small-vectors"),
        (51.0, 50.0, "rising", 3.0, "learning_rate=0.0008"),
        (51.0, 50.0, "rising", 0.3, "epochs=1"),
        (99.5, 99.0, "stopped", 3.0, None),
        (None, 80.0, "rising", 3.0, None),
    ],
)
def test_next_step_names_a_value(training, development, trend, epochs, option):
    shape = {"hidden_size": 128, "learning_rate": 4e-4, "higher_rate": 8e-4, "epochs": epochs, "trend": trend}
    step = next_step("accuracy", training, development, 50.0, **shape)
    assert step is None if option is None else step is not None and step["try"].startswith(option)
    assert next_step("accuracy", training, development, 50.0, **shape, rows=29) is None
    if step is not None and option.startswith("epochs"):
        after_steps = next_step("accuracy", training, development, 50.0, **shape, steps=40)
        assert after_steps is not None and (after_steps["try"], after_steps["why"]) == ("steps=80", step["why"])
    if step is not None and option.startswith("epochs") and trend != "unknown":
        assert ("still rising at the end" in step["why"]) is (trend == "rising")
        assert ("scored only at the end" in step["why"]) is (trend == "once")


@pytest.mark.parametrize(
    ("scores", "epochs", "trend"),
    [
        ([70.0], 3.0, "once"),
        ([60.0, 70.0, 80.0], 3.0, "rising"),
        ([70.0, 70.0], 3.0, "unknown"),  # two equal evaluations
        ([60.0, 70.0, 70.0, 70.0], 3.0, "unknown"),
        ([60.0, 70.0, 70.0, 71.0, 70.0, 71.0], 0.8, "unknown"),  # less than an epoch
        ([60.0, 70.0, 70.0, 71.0, 70.0, 71.0], 3.0, "stopped"),  # one point of 200 rows is chance
        ([60.0, 70.0, 70.0, 71.0, 70.0, 76.0], 3.0, "rising"),
        ([60.0, 70.0, 70.0, 76.0, 70.0, 71.0], 3.0, "unknown"),
    ],
)
def test_a_plateau_is_several_evaluations_within_the_noise_and_some_epochs(scores, epochs, trend, tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    for step, score in enumerate(scores):
        journal.write("evaluation", step=step, accuracy=score)
    journal.close()
    assert development_trend("accuracy", tmp_path / "journal.jsonl", epochs, examples=200) == trend


def test_advice_after_less_than_an_epoch_is_more_epochs(pretrained, tmp_path, monkeypatch):
    """The solved head knows what can be known, a fifth of the labels are wrong, and the rate is too low to learn: every
    evaluation is the same."""
    monkeypatch.setattr("albert.finetuning.probe.UNTRAINED_DEVIATION", 0.0)  # the encoder has random weights
    rows = [f"the {NOUNS[i % 2]} {PLAIN_WORDS[i % 7]} {i},{'ab'[(i + (i % 5 == 0)) % 2]}" for i in range(600)]
    (tmp_path / "rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    options = {"train": tmp_path / "rows.csv", "dev": 0.4, "model": pretrained, "device": "cpu"}
    options |= {"learning_rate": 1e-9, "batch_size": 8}
    for steps, said in ((24, "do not show whether the score still rises"), (96, "did not rise by more than chance")):
        result = albert.finetune(**options, steps=steps, evaluate_every=steps // 6, output=tmp_path / str(steps))
        assert (result.report["training"]["epochs"] >= 2) == (steps == 96)
        assert said in result.report["next_step"]["why"]
