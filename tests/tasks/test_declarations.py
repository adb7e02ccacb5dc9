"""Declared tasks: recipes, files, rows, examples and submissions."""

import gzip
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.refusals import refusal

from albert.recipes.finetuning import TaskRecipe
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError
from albert.tables.split_files import read_rows
from albert.tasks.glue import AX, COLA, QQP, RTE, SST2, STSB
from albert.tasks.race import RACE
from albert.tasks.regression import Regression
from albert.tasks.span import Span
from albert.tasks.squad import SQUAD_1, SQUAD_2, read_questions
from albert.tasks.submission import DECLARED, find_task, submission_files

# --------------------------------------------------------------------------------------------------------------------
# Declarations; the recipes of Table 14 are compared in tests/paper.

METRICS = {  # as the papers of GLUE, SQuAD and RACE score them, the main metric first
    "matthews_correlation": "cola ax",
    "accuracy": "sst-2 mnli qnli rte wnli race race-v2 race-middle race-high",
    "f1 accuracy": "mrpc qqp",
    "pearson spearman": "sts-b",
    "span_f1 span_exact_match": "squad-1.1",
    "open_question_scores": "squad-2.0",
}


def test_metrics_are_the_official_ones():
    official = {name: metrics for metrics, names in METRICS.items() for name in names.split()}
    assert {name: " ".join(metric.__name__ for metric in task.metrics) for name, task in DECLARED.items()} == official


def test_recipes_keep_the_number_of_epochs():
    assert DECLARED["race"].recipe == DECLARED["race-middle"].recipe == DECLARED["race-high"].recipe
    second_release = replace(DECLARED["race"].recipe, learning_rate=1e-5, encoder_dropout=0.0)
    assert DECLARED["race-v2"].recipe == second_release
    for recipe in (task.recipe for task in DECLARED.values()):
        recipe.check()
        assert recipe.total_steps(recipe.examples) == recipe.steps
        assert recipe.total_steps(recipe.examples * 2) == recipe.steps * 2


def test_published_scores_are_of_the_tasks_metrics():
    for task in DECLARED.values():
        gold = [("a",), ()] if isinstance(task.target, Span) else np.array([0, 1])
        names = task.baseline_scores(gold) or [metric.__name__ for metric in task.metrics]
        assert {published.metric for published in task.published} <= set(names)


def test_labels_of_mnli_are_in_order():
    assert DECLARED["mnli"].target.shown == ("contradiction", "entailment", "neutral")


def test_no_task_is_named_outside_its_declaration(checkout):
    names = [re.escape(name) for name in DECLARED]
    values = "COLA|SST2|MRPC|STSB|QQP|MNLI|QNLI|RTE|WNLI|AX|SQUAD_1|SQUAD_2"
    pattern = re.compile(rf"""["']({"|".join(names)}|{values})["']|\b({values})\b""")
    folders = [checkout / "src/albert" / name for name in ("tasks", "finetuning", "inference", "training", "cli")]
    for file in (file for folder in folders for file in folder.rglob("*.py")):
        if file.name not in ("glue.py", "squad.py", "race.py", "submission.py"):
            assert not pattern.search(file.read_text(encoding="utf-8")), file


def test_find_task():
    assert find_task("SST-2") is find_task("sst2") is DECLARED["sst-2"]
    assert find_task("SQuAD1.1") is DECLARED["squad-1.1"]
    with refusal(UsageError, "mrpc"):
        find_task("mrcp")


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"batch_size": 0},
        {"epochs": None},
        {"steps": 5},
        {"warmup_share": 1.0},
        {"head_dropout": -0.1},
        {"max_length": 7},
        {"stride": 0},
    ],
)
def test_invalid_recipes_are_refused(wrong):
    fields = {"learning_rate": 1e-5, "batch_size": 8, "epochs": 1.0} | wrong
    with pytest.raises(InvalidConfiguration):
        TaskRecipe(**fields).check()


# --------------------------------------------------------------------------------------------------------------------
# Files and rows


FIELD = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=("Cs",)), max_size=12)


@given(rows=st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=8), end=st.sampled_from(["\n", "\r\n"]))
def test_tsv_round_trip_without_quoting(rows, end, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "x.tsv"
    path.write_bytes(("sentence\tlabel" + end + "".join("\t".join(row) + end for row in rows)).encode())
    read = read_rows(path).rows
    assert [(row.fields["sentence"], row.fields["label"]) for row in read] == rows
    assert read[-1].where == f"{path}:{len(rows) + 1}"


def test_files_are_found_in_both_folders_and_gzipped(tmp_path):
    text = b"gj04\t1\t\tA sentence.\n"
    for file, content in (
        ("a/CoLA/dev.tsv", text),
        ("b/dev.tsv.gz", gzip.compress(text)),
        ("c/CoLA/dev.tsv.gz", gzip.compress(b"\xef\xbb\xbf" + text)),
    ):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_bytes(content)
        rows = COLA.source.read(tmp_path / file[0], "dev").rows
        assert COLA.examples(rows)[0].texts == ("A sentence.",)


def test_missing_files_and_splits_are_refused(tmp_path):
    with refusal(MissingInput, "SST-2/train.tsv"):
        SST2.source.read(tmp_path, "train")
    with refusal(InvalidConfiguration, "dev"):
        SST2.source.read(tmp_path, "devs")


def questions(answers, context="one two three two", identifier="q"):
    question = {"id": identifier, "question": "which?", "answers": answers}
    return {"data": [{"title": "t", "paragraphs": [{"context": context, "qas": [question]}]}]}


def test_answers_are_located_and_counted(tmp_path):
    answers = [
        {"text": "one", "answer_start": 0},
        {"text": "three", "answer_start": 7},
        {"text": "two", "answer_start": 5},
        {"text": "four", "answer_start": 0},
        {"text": "two", "answer_start": 14},
    ]
    path = tmp_path / "dev-v1.1.json.gz"
    path.write_bytes(gzip.compress(json.dumps(questions(answers)).encode()))
    read = SQUAD_1.source.read(tmp_path, "dev")
    assert [answer.start for answer in read.rows[0].answers] == [0, 8, 4, None, 14]
    found = {"answers_relocated": 2, "answers_found_more_than_once": 0, "answers_not_found": 1}
    assert read.counts == {"rows": 1, "answers": 5, **found}
    assert SQUAD_1.examples(read.rows)[0].texts == ("which?", "one two three two")


def test_context_keeps_its_whitespace(tmp_path):
    """Answer positions include leading whitespace (huggingface/datasets#2585: gold spans were off by one)."""
    path, context = tmp_path / "dev.json", "  one two\n"
    path.write_text(json.dumps(questions([{"text": "one", "answer_start": 2}], context=context)))
    read = read_questions(path, "dev")
    assert read.rows[0].fields["context"] == context
    assert read.rows[0].answers[0].start == 2 and read.counts["answers_relocated"] == 0


def test_broken_lines_of_the_official_qqp_files_are_left_out_and_counted(tmp_path):
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    (tmp_path / "train.tsv").write_text(header + '0\t1\t2\ta\tb\t1\n3\t4\t5\tc "\n"\td\t0\n6\t7\t8\te\tf\t0\n')
    rows = QQP.source.read(tmp_path, "train")
    assert [example.texts for example in QQP.examples(rows.rows)] == [("a", "b"), ("e", "f")]
    assert rows.counts == {"rows": 2, "broken_lines": 2}
    (tmp_path / "test.tsv").write_text("id\tquestion1\tquestion2\n0\ta\n")
    with refusal(DamagedData, ":2:"):
        QQP.source.read(tmp_path, "test")


# --------------------------------------------------------------------------------------------------------------------
# Unlabelled test files and submissions

PUBLISHED = {  # files of GLUE's test sets, their headers, and the file names that its server expects
    ("cola", "test"): ("CoLA/test.tsv", "index sentence", "CoLA.tsv"),
    ("sst-2", "test"): ("SST-2/test.tsv", "index sentence", "SST-2.tsv"),
    ("mrpc", "test"): ("MRPC/test.tsv", "index #1_ID #2_ID #1_String #2_String", "MRPC.tsv"),
    ("sts-b", "test"): (
        "STS-B/test.tsv",
        "index genre filename year old_index source1 sentence1 sentence2",
        "STS-B.tsv",
    ),
    ("qqp", "test"): ("QQP/test.tsv", "id question1 question2", "QQP.tsv"),
    ("mnli", "test"): ("MNLI/test_matched.tsv", "index pairID genre sentence1_parse sentence1 sentence2", "MNLI-m.tsv"),
    ("mnli", "test_mismatched"): ("MNLI/test_mismatched.tsv", "index sentence1 sentence2", "MNLI-mm.tsv"),
    ("qnli", "test"): ("QNLI/test.tsv", "index question sentence", "QNLI.tsv"),
    ("rte", "test"): ("RTE/test.tsv", "index sentence1 sentence2", "RTE.tsv"),
    ("wnli", "test"): ("WNLI/test.tsv", "index sentence1 sentence2", "WNLI.tsv"),
    ("ax", "test"): ("AX/diagnostic.tsv", "index sentence1 sentence2", "AX.tsv"),
}
WORDS = {
    "mnli": {"contradiction", "entailment", "neutral"},
    "ax": {"contradiction", "entailment", "neutral"},
    "qnli": {"entailment", "not_entailment"},
    "rte": {"entailment", "not_entailment"},
}


@pytest.mark.parametrize(("name", "split"), PUBLISHED)
def test_glue_test_files_and_submissions(name, split, tmp_path):
    task = DECLARED[name]
    file, header, submission = PUBLISHED[name, split]
    columns = [column.replace("#1_", "#1 ").replace("#2_", "#2 ") for column in header.split()]
    (tmp_path / file).parent.mkdir()
    lines = ["\t".join([number, *(f"{column} of {number}" for column in columns[1:])]) for number in ("0", "1", "17")]
    (tmp_path / file).write_text("\n".join(["\t".join(columns), *lines]) + "\n")
    rows = task.source.read(tmp_path, split).rows
    assert not task.target.is_labelled(rows)
    examples = task.examples(rows, labelled=False)
    assert [example.identifier for example in examples] == ["0", "1", "17"]
    in_file = {"Premise": "sentence1", "Hypothesis": "sentence2"} if task is AX else {}
    assert examples[2].texts == tuple(f"{in_file.get(column, column)} of 17" for column in task.inputs.columns)
    assert all(example.target is None for example in examples)
    with refusal(DamagedData, "column"):
        task.examples(rows)
    labels = [1.0, 2.0, 3.0] if isinstance(task.target, Regression) else (*task.target.labels, *task.target.labels)[:3]
    entries = [{"id": e.identifier, "prediction": label} for e, label in zip(examples, labels, strict=True)]
    ((file_name, content),) = submission_files(task, split, entries).items()
    assert file_name == submission
    table = [line.split("\t") for line in content.splitlines()]
    assert [row[0] for row in table] == ["index", "0", "1", "17"] and table[0][1] == "prediction"
    if not isinstance(task.target, Regression):
        assert {row[1] for row in table[1:]} <= WORDS.get(name, {"0", "1"})


@pytest.mark.parametrize("value", ["high", "nan", "inf", "5.1", "-0.1"])
def test_numbers_are_within_their_range(tmp_path, value):
    (tmp_path / "dev.tsv").write_text(f"sentence1\tsentence2\tscore\na\tb\t5.0\na\tb\t{value}\n")
    with refusal(DamagedData, "dev.tsv:3"):
        STSB.examples(STSB.source.read(tmp_path, "dev").rows)
    entries = [{"id": str(i), "prediction": value} for i, value in enumerate((-0.2, 2.5, 5.7))]
    clipped = "index\tprediction\n0\t0.000000\n1\t2.500000\n2\t5.000000\n"
    assert submission_files(STSB, "test", entries) == {"STS-B.tsv": clipped}
    assert list(submission_files(STSB, "dev", entries)) == ["sts-b-dev.tsv"]


def test_submissions_of_questions():
    entries = [
        {"id": "a", "prediction": "Été", "no_answer_probability": 0.25},
        {"id": "b", "prediction": "", "no_answer_probability": 0.75},
    ]
    files = {name: json.loads(text) for name, text in submission_files(SQUAD_2, "dev", entries).items()}
    assert files == {
        "squad-2.0-dev.json": {"a": "Été", "b": ""},
        "squad-2.0-dev-null-odds.json": {"a": 0.25, "b": 0.75},
    }
    assert list(submission_files(SQUAD_1, "dev", entries)) == ["squad-1.1-dev.json"]
    letters = [{"id": "high1.txt-0", "prediction": "C"}]
    assert json.loads(submission_files(RACE, "test", letters)["race-test.json"]) == {"high1.txt-0": "C"}


@pytest.mark.parametrize(
    ("lines", "subjects"),
    [
        ("0\ta\tb\n0\tc\td\n", ":3: 0 :2"),
        ("0\ta\tb\nx\tc\td\n", ":3: 'x' 'index'"),
    ],
)
def test_duplicate_row_numbers_are_refused(lines, subjects, tmp_path):
    (tmp_path / "test.tsv").write_text("index\tsentence1\tsentence2\n" + lines)
    with refusal(DamagedData, *subjects.split()):
        RTE.source.read(tmp_path, "test")
    (tmp_path / "test.tsv").write_text("sentence1\tsentence2\na\tb\n")
    with refusal(DamagedData, "'index'"):
        RTE.source.read(tmp_path, "test")


def test_unlabelled_questions_are_refused_for_training(tmp_path):
    qas = [{"id": "q", "question": "who?"}]
    content = {"data": [{"paragraphs": [{"context": "a ship", "qas": qas}]}]}
    (tmp_path / "dev-v2.0.json").write_text(json.dumps(content))
    rows = SQUAD_2.source.read(tmp_path, "dev").rows
    assert not SQUAD_2.target.is_labelled(rows)
    assert SQUAD_2.examples(rows, labelled=False)[0].answers == ()
    with refusal(DamagedData, "'answers'"):
        SQUAD_2.examples(rows)
    qas.append({"id": "r", "question": "when?", "answers": []})
    (tmp_path / "dev-v2.0.json").write_text(json.dumps(content))
    rows = SQUAD_2.source.read(tmp_path, "dev").rows
    assert SQUAD_2.target.is_labelled(rows)  # a single question without answers is an error
    with refusal(DamagedData, "qas[0]", "'answers'"):
        SQUAD_2.examples(rows)
