"""Test files without labels are read as they are published, and answers written as the servers take them."""

import json

import pytest

from albert.runtime.errors import DamagedData
from albert.tasks.examples import is_labelled, text_columns, to_examples
from albert.tasks.glue import AX, COLA, MNLI, RTE, STSB
from albert.tasks.race import RACE
from albert.tasks.squad import SQUAD_1, SQUAD_2
from albert.tasks.submission import DECLARED, submission_files
from albert.tasks.task import Score

# The header lines of GLUE's own test files, and the names that its server asks for.
PUBLISHED = {
    ("cola", "test"): ("CoLA/test.tsv", "index\tsentence", "CoLA.tsv"),
    ("sst-2", "test"): ("SST-2/test.tsv", "index\tsentence", "SST-2.tsv"),
    ("mrpc", "test"): ("MRPC/test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String", "MRPC.tsv"),
    ("sts-b", "test"): (
        "STS-B/test.tsv",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2",
        "STS-B.tsv",
    ),
    ("qqp", "test"): ("QQP/test.tsv", "id\tquestion1\tquestion2", "QQP.tsv"),
    ("mnli", "test"): (
        "MNLI/test_matched.tsv",
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
        "sentence2_parse\tsentence1\tsentence2",
        "MNLI-m.tsv",
    ),
    ("mnli", "test_mismatched"): ("MNLI/test_mismatched.tsv", "index\tsentence1\tsentence2", "MNLI-mm.tsv"),
    ("qnli", "test"): ("QNLI/test.tsv", "index\tquestion\tsentence", "QNLI.tsv"),
    ("rte", "test"): ("RTE/test.tsv", "index\tsentence1\tsentence2", "RTE.tsv"),
    ("wnli", "test"): ("WNLI/test.tsv", "index\tsentence1\tsentence2", "WNLI.tsv"),
    ("ax", "test"): ("AX/diagnostic.tsv", "index\tsentence1\tsentence2", "AX.tsv"),
}
WORDS = {
    "mnli": {"contradiction", "entailment", "neutral"},
    "ax": {"contradiction", "entailment", "neutral"},
    "qnli": {"entailment", "not_entailment"},
    "rte": {"entailment", "not_entailment"},
}


@pytest.mark.parametrize(("name", "split"), PUBLISHED)
def test_glue_tables_are_read_without_labels_and_written_with_the_servers_words(name, split, tmp_path):
    task = DECLARED[name]
    file, header, handed_in = PUBLISHED[name, split]
    columns = header.split("\t")
    (tmp_path / file).parent.mkdir()
    lines = ["\t".join([number, *(f"{column} of {number}" for column in columns[1:])]) for number in ("0", "1", "17")]
    (tmp_path / file).write_text("\n".join([header, *lines]) + "\n")
    rows = task.source.read(tmp_path, split).rows
    assert not is_labelled(task, rows)
    examples = to_examples(task, rows, labelled=False)
    assert [example.identifier for example in examples] == ["0", "1", "17"]
    theirs = {"Premise": "sentence1", "Hypothesis": "sentence2"} if task is AX else {}
    wanted = tuple(f"{theirs.get(column, column)} of 17" for column in text_columns(task))
    assert examples[2].texts == wanted
    assert all(example.target is None for example in examples)
    with pytest.raises(DamagedData, match="has no column"):
        to_examples(task, rows)
    labels = [1.0, 2.0, 3.0] if isinstance(task.target, Score) else (*task.target.labels, *task.target.labels)[:3]
    entries = [{"id": e.identifier, "prediction": label} for e, label in zip(examples, labels, strict=True)]
    (found,) = submission_files(task, split, entries).items()
    assert found[0] == handed_in
    table = [line.split("\t") for line in found[1].splitlines()]
    assert table[0] == ["index", "prediction"]
    assert [row[0] for row in table[1:]] == ["0", "1", "17"]
    if not isinstance(task.target, Score):
        assert {row[1] for row in table[1:]} <= WORDS.get(name, {"0", "1"})


def test_every_task_of_the_server_has_a_file():
    names = {name for task in DECLARED.values() for name in task.submission.values()}
    assert names == {file.removesuffix(".tsv") for _, _, file in PUBLISHED.values()}


def test_numbers_stay_within_the_range_of_the_scores():
    entries = [{"id": str(i), "prediction": value} for i, value in enumerate((-0.2, 2.5, 5.7))]
    assert submission_files(STSB, "test", entries) == {
        "STS-B.tsv": "index\tprediction\n0\t0.000000\n1\t2.500000\n2\t5.000000\n"
    }
    assert list(submission_files(STSB, "dev", entries)) == ["sts-b-dev.tsv"]


def test_answers_are_objects_by_question_and_no_answer_is_empty():
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
    ("lines", "message"),
    [
        ("0\ta\tb\n0\tc\td\n", r":3: a second row has the number 0; the first is at .*:2"),
        ("0\ta\tb\nx\tc\td\n", r":3: 'x' in column 'index' is not a number"),
    ],
)
def test_rows_that_the_server_could_not_tell_apart_are_refused(lines, message, tmp_path):
    (tmp_path / "test.tsv").write_text("index\tsentence1\tsentence2\n" + lines)
    with pytest.raises(DamagedData, match=message):
        RTE.source.read(tmp_path, "test")
    (tmp_path / "test.tsv").write_text("sentence1\tsentence2\na\tb\n")
    with pytest.raises(DamagedData, match="has no column 'index'"):
        RTE.source.read(tmp_path, "test")


def test_only_cola_s_test_file_has_a_header(tmp_path):
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\tHe left.\n")
    (tmp_path / "dev.tsv").write_text("gj04\t1\t\tHe left.\n")
    for split in ("dev", "test"):
        (row,) = COLA.source.read(tmp_path, split).rows
        assert row.fields["sentence"] == "He left."


def test_questions_without_answers_are_no_training_data(tmp_path):
    qas = [{"id": "q", "question": "who?"}]
    content = {"data": [{"paragraphs": [{"context": "a ship", "qas": qas}]}]}
    (tmp_path / "dev-v2.0.json").write_text(json.dumps(content))
    rows = SQUAD_2.source.read(tmp_path, "dev").rows
    assert not is_labelled(SQUAD_2, rows)
    assert to_examples(SQUAD_2, rows, labelled=False)[0].answers == ()
    with pytest.raises(DamagedData, match="has no 'answers'"):
        to_examples(SQUAD_2, rows)
    qas.append({"id": "r", "question": "when?", "answers": []})
    (tmp_path / "dev-v2.0.json").write_text(json.dumps(content))
    rows = SQUAD_2.source.read(tmp_path, "dev").rows
    assert is_labelled(SQUAD_2, rows)  # one question that lost its answers does not pass for a hidden one
    with pytest.raises(DamagedData, match=r"qas\[0\]: has no 'answers'"):
        to_examples(SQUAD_2, rows)


def test_mnli_is_handed_in_twice():
    assert MNLI.submission == {"test": "MNLI-m", "test_mismatched": "MNLI-mm"}
