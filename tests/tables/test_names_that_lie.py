"""Tables whose ending, encoding or numbers are not what they seem."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from albert.cli.main import run
from albert.tasks.answer_columns import locate_answer


def preview(capsys: pytest.CaptureFixture[str], path: Path, *options: str) -> tuple[int, str]:
    """The exit code and all output of the preview of a table."""
    columns = options or ("--text", "text", "--label", "label")
    code = run(["finetune", "--train", str(path), *columns, "--model", "tiny"])
    captured = capsys.readouterr()
    return code, captured.out + captured.err


def write_csv(path: Path, rows: list[list[str]]) -> Path:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return path


ROWS = [["text", "label"], *([f"the film number {n} was {'good' if n % 2 else 'bad'}", str(n % 2)] for n in range(60))]


def test_a_csv_file_called_xlsx_is_read_with_its_format_named(tmp_path, capsys):
    path = write_csv(tmp_path / "table.xlsx", ROWS)
    code, shown = preview(capsys, path)
    assert code == 65 and "reading.format" in shown
    code, _ = preview(capsys, path, "--text", "text", "--label", "label", "reading.format=csv")
    assert code == 0


@pytest.mark.parametrize(("start", "remedy"), [(b"PK\3\4", "reading.format=xlsx"), (b"PAR1", "reading.format=parquet")])
def test_another_format_called_csv_is_named(tmp_path, capsys, start, remedy):
    path = tmp_path / "table.csv"
    path.write_bytes(start + b"\0\0\0\0")
    code, shown = preview(capsys, path)
    assert code == 65 and remedy in shown


def test_labels_such_as_1_0_are_whole_numbers_unless_one_has_a_fraction(tmp_path, capsys):
    whole = [ROWS[0], *([text, f"{label}.0"] for text, label in ROWS[1:])]
    code, shown = preview(capsys, write_csv(tmp_path / "whole.csv", whole))
    assert code == 0 and "0, 1 " in shown and "f1 (1)" in shown
    fractions = [ROWS[0], *([row[0], ("1.0", "1.5", "2.0")[n % 3]] for n, row in enumerate(ROWS[1:]))]
    path = write_csv(tmp_path / "fractions.csv", fractions)
    code, shown = preview(capsys, path, "--text", "text", "--label", "label", "--kind", "classification")
    assert code == 0 and "1.0, 1.5, 2.0" in shown


def test_a_first_word_that_is_called_like_a_column_is_no_header(tmp_path, capsys):
    sentences = ["Text NN O\nof NN O\nships NN B-X\n", *(f"old{n} NN O\nships NN B-X\n" for n in range(60))]
    path = tmp_path / "tags.conll"
    path.write_text("\n".join(sentences), encoding="utf-8")
    code, shown = preview(capsys, path, "--words", "words")
    assert code == 0 and "names of the columns" not in shown
    path.write_text("Text POS NER\n" + "\n".join(sentences[1:]), encoding="utf-8")
    code, shown = preview(capsys, path, "--words", "Text", "--tags", "NER")
    assert code == 0 and "names of the columns" in shown


def test_damaged_utf_8_in_english_is_not_read_as_another_script(tmp_path, capsys):
    damaged = [b"\xe2??thank you", b"\xf0\xa6", b""]
    lines = [b"%d,i love my day %d %s friends" % (n % 2, n, damaged[n % 3]) for n in range(200)]
    path = tmp_path / "table.csv"
    path.write_bytes(b"label,text\n" + b"\n".join(lines))
    code, shown = preview(capsys, path)
    assert code == 65 and "reading.encoding" in shown and "iconv" in shown


@pytest.mark.parametrize(
    ("encoding", "text"),
    [("cp1251", "сегодня хороший день"), ("cp1253", "σήμερα είναι μια καλή μέρα"), ("cp874", "วันนี้อากาศดีมาก")],
)
def test_a_few_words_of_another_script_are_still_read(tmp_path, capsys, encoding, text):
    lines = [f"{text if n % 5 else 'a film in English'} {n},{n % 2}" for n in range(60)]
    path = tmp_path / "table.csv"
    path.write_bytes("\n".join(["text,label", *lines]).encode(encoding))
    code, shown = preview(capsys, path)
    assert code == 0 and encoding in shown and text.split()[0] in shown


def test_answers_without_a_start_are_found_at_their_first_whole_word(tmp_path, capsys):
    counts = Counter[str]()
    context = "In 1300 the army of 300 met 300 others."
    assert locate_answer("300", None, context, counts).start == context.index(" 300") + 1
    assert locate_answer("400", None, context, counts).start is None
    assert (counts["answers_found_more_than_once"], counts["answers_not_found"]) == (1, 1)
    rows = [["context", "question", "answer"]]
    rows += [[f"In {n} the army of {n} men met others.", "How many?", str(n)] for n in range(300, 330)]
    path = write_csv(tmp_path / "qa.csv", rows)
    options = ("--question", "question", "--context", "context", "--answer", "answer")
    code, shown = preview(capsys, path, *options)
    assert code == 0 and "first place is taken" in shown
    assert "not in the context" not in shown
