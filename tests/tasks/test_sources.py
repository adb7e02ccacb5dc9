"""Every line is a row or an error that names file and line; files are found where the layout says."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.tasks.examples import TabSeparated, read_rows, to_examples
from albert.tasks.glue import COLA, SST2, STSB
from albert.tasks.squad import SQUAD_1, read_questions
from albert.tasks.submission import DECLARED
from albert.tasks.task import Score, Span

FIELD = st.text(st.characters(exclude_characters="\t\n\r", exclude_categories=("Cs",)), max_size=12)


@given(rows=st.lists(st.tuples(FIELD, FIELD), min_size=1, max_size=8), end=st.sampled_from(["\n", "\r\n"]))
def test_quotes_and_odd_line_ends_are_text_and_no_row_is_lost(rows, end, tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "x.tsv"
    path.write_bytes(("sentence\tlabel" + end + "".join("\t".join(row) + end for row in rows)).encode())
    found = read_rows(path, "TSV").rows
    assert [(row.fields["sentence"], row.fields["label"]) for row in found] == rows
    assert found[-1].where == f"{path}:{len(rows) + 1}"


def test_an_open_quote_swallows_nothing(tmp_path):
    (tmp_path / "dev.tsv").write_text('sentence\tlabel\n" he said\t1\nshe " said\t0\n')
    examples = to_examples(SST2, SST2.source.read(tmp_path, "dev").rows)
    assert [(e.texts, e.target) for e in examples] == [(('" he said',), 1), (('she " said',), 0)]


def test_a_ragged_row_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("sentence\tlabel\ngood\t1\nbad\n")
    with pytest.raises(DamagedData, match=r"dev\.tsv:3: has 1 tab-separated fields where the header has 2"):
        read_rows(path, "TSV")


def test_files_are_found_in_the_task_folder_or_the_data_folder_plain_or_gzipped(tmp_path):
    text = b"gj04\t1\t\tA sentence.\n"
    for place, name, content in (
        ("a/CoLA", "dev.tsv", text),
        ("b", "dev.tsv.gz", gzip.compress(text)),
        ("c/CoLA", "dev.tsv.gz", gzip.compress(b"\xef\xbb\xbf" + text)),
    ):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / name).write_bytes(content)
    for folder in "abc":
        rows = COLA.source.read(tmp_path / folder, "dev").rows
        assert to_examples(COLA, rows)[0].texts == ("A sentence.",)


def test_a_missing_file_says_what_is_expected_where(tmp_path):
    with pytest.raises(MissingInput, match=r"has no train\.tsv; expected .*SST-2/train\.tsv or .*train\.tsv"):
        SST2.source.read(tmp_path, "train")
    with pytest.raises(InvalidConfiguration, match="did you mean 'dev'"):
        SST2.source.read(tmp_path, "devs")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("dev.tsv", b"sentence\tlabel\n", "has no rows"),
        ("dev.tsv", b"", "has no rows"),
        ("dev.tsv", b"sentence\tlabel\nok\t1\n\xff\t1\n", r":3: is not UTF-8"),
        ("dev.tsv.gz", gzip.compress(b"sentence\tlabel\nok\t1\n", mtime=0)[:-6], "damaged gzip"),
        ("dev.tsv.gz", b"no gzip", "damaged gzip"),
        ("dev.tsv", b"label\tlabel\n1\t1\n", "same name"),
        ("dev.tsv", b"sentence\tlabel\nok\t2\n", r":2: unknown label '2'.*known: '0', '1'"),
        ("dev.tsv", b"sentences\tlabel\nok\t1\n", "has no column 'sentence'; did you mean 'sentences'"),
    ],
)
def test_damaged_tables_are_refused_in_one_line(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises((DamagedData, MissingInput), match=message) as error:
        to_examples(SST2, SST2.source.read(tmp_path, "dev").rows)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", ["high", "nan", "inf", "5.1", "-0.1"])
def test_a_score_must_be_a_number_in_range(tmp_path, value):
    (tmp_path / "dev.tsv").write_text(f"sentence1\tsentence2\tscore\na\tb\t5.0\na\tb\t{value}\n")
    with pytest.raises(DamagedData, match=r"dev\.tsv:3"):
        to_examples(STSB, STSB.source.read(tmp_path, "dev").rows)


def questions(answers, context="one two three two", identifier="q"):
    question = {"id": identifier, "question": "which?", "answers": answers}
    return {"data": [{"title": "t", "paragraphs": [{"context": context, "qas": [question]}]}]}


def test_answers_are_checked_located_and_counted_and_no_question_is_dropped(tmp_path):
    answers = [
        {"text": "one", "answer_start": 0},
        {"text": "three", "answer_start": 7},
        {"text": "two", "answer_start": 5},
        {"text": "four", "answer_start": 0},
        {"text": "two", "answer_start": 14},
    ]
    path = tmp_path / "dev-v1.1.json.gz"
    path.write_bytes(gzip.compress(json.dumps(questions(answers)).encode()))
    found = SQUAD_1.source.read(tmp_path, "dev")
    assert [answer.start for answer in found.rows[0].answers] == [0, 8, None, None, 14]
    assert found.counts == {"rows": 1, "answers": 5, "answers_relocated": 1, "answers_not_found": 2}
    assert to_examples(SQUAD_1, found.rows)[0].texts == ("which?", "one two three two")


def test_blanks_around_a_context_belong_to_it(tmp_path):
    """Answers are counted from its first character (huggingface/datasets#2585: gold spans were off by one)."""
    path, context = tmp_path / "dev.json", "  one two\n"
    path.write_text(json.dumps(questions([{"text": "one", "answer_start": 2}], context=context)))
    found = read_questions(path)
    assert found.rows[0].fields["context"] == context
    assert found.rows[0].answers[0].start == 2 and found.counts["answers_relocated"] == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"data": []}, "holds no question"),
        ([], "has no 'data'"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, r"data\[0\].paragraphs\[0\]: has no 'context'"),
        (questions([{"text": "one", "answer_start": "0"}]), "'answer_start' is not a int"),
        (questions([], context="\ud800"), "surrogate"),
        ({"data": questions([])["data"] * 2}, "a second question has the id 'q'"),
    ],
)
def test_damaged_question_files_are_refused_with_the_place(tmp_path, content, message):
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    with pytest.raises((DamagedData, MissingInput), match=message):
        read_questions(path)


COUNTS = {
    "cola": {"train": 8551, "dev": 1043},
    "sst-2": {"train": 67349, "dev": 872},
    "mrpc": {"train": 3668, "dev": 408},
    "rte": {"train": 2490, "dev": 277},
    "sts-b": {"train": 5749, "dev": 1500},
    "wnli": {"train": 635, "dev": 71},
    "qnli": {"dev": 5463},
    "mnli": {"dev": 9815},
    "squad-1.1": {"dev": 10570},
}


@pytest.mark.parametrize(("name", "split"), [(name, split) for name in COUNTS for split in COUNTS[name]])
def test_every_row_of_the_official_files_becomes_an_example(shared, name, split):
    task = DECLARED[name]
    rows = task.source.read(shared / "data" / ("squad" if isinstance(task.target, Span) else "glue"), split)
    examples = to_examples(task, rows.rows)
    assert len(examples) == COUNTS[name][split]
    assert all(all(text.strip() for text in example.texts) for example in examples)
    if isinstance(task.source, TabSeparated):
        kind = float if isinstance(task.target, Score) else int
        assert all(isinstance(example.target, kind) for example in examples)
    else:
        assert (rows.counts["answers"], rows.counts["answers_not_found"]) == (34726, 0)
