"""Multiple choice: how a table is recognised, and which option a label names (through `albert.finetune`)."""

import csv
import io
import json

import pytest
from tests.tables.test_wild import MODEL, lines, read

import albert
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.span import Span

TEXTS = ("ship", "storm", "doctor")


def table(names: tuple[str, ...], rows) -> str:
    """A CSV file with a line break in no cell."""
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([names, *rows])
    return file.getvalue()


def with_letters(n_rows: int = 12, letters: str = "ABC") -> str:
    rows = [(f"The {TEXTS[n % 3]} came, {n}.", f"What came {n}?", *TEXTS, letters[n % 3]) for n in range(n_rows)]
    return table(("context", "question", "A", "B", "C", "answer"), rows)


def options_of(question: int, how: str) -> tuple[dict, str]:
    """The options of a question, and the name of the right one, in letters or numbers as in ARC."""
    names = "ABC" if how == "letters" else "123"
    return {"text": list(TEXTS), "label": list(names)}, names[question % 3]


def right(found) -> list[str]:
    """The texts of the right options."""
    rows = found.tables["train"].rows
    column = found.task.target.column
    return [row.fields[row.fields[column]] for row in rows]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("letters.csv", with_letters()),
        ("small.csv", with_letters(letters="abc").replace(",A,B,C,", ",a,b,c,")),
        ("options.csv", with_letters().replace("A,B,C", "option_a,option_b,option_c")),
        ("numbers.csv", with_letters(letters="123").replace("A,B,C", "choice1,choice2,choice3")),
        (
            "texts.csv",
            with_letters(letters="xyz")
            .replace(",x\n", ",ship\n")
            .replace(",y\n", ",storm\n")
            .replace(",z\n", ",doctor\n"),
        ),
        ("capitals.csv", with_letters().replace("context,question", "Context,Question").replace("answer", "Answer")),
        (
            "cells.csv",
            table(("question", "options", "answer"), [(f"{n}?", str(list(TEXTS)), n % 3) for n in range(12)]),
        ),
        (
            "lists.jsonl",
            lines(
                *({"article": "x", "question": f"{n}?", "options": TEXTS, "answer": "ABC"[n % 3]} for n in range(12))
            ),
        ),
        (
            "arc.jsonl",
            lines(
                *(
                    {"question": f"{n}?", "choices": options, "answerKey": name}
                    for n in range(12)
                    for options, name in [options_of(n, "letters" if n % 2 else "numbers")]
                )
            ),
        ),
    ],
)
def test_a_multiple_choice_is_recognised_by_its_options(tmp_path, name, content):
    found = read(tmp_path, name, content).read
    assert isinstance(found.task.target, MultipleChoice)
    assert right(found) == [TEXTS[n % 3] for n in range(12)]
    assert any(item.what == "options" and item.override == "--options" for item in found.inferred)
    found.check()


def test_a_multiple_choice_with_a_context_is_trained_and_asked(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text(with_letters(), encoding="utf-8")
    output = tmp_path / "run"
    albert.finetune(train=path, dev=path, model=MODEL, output=output, frozen=True, device="cpu")
    predictions = albert.evaluate(model=output, dev=path, device="cpu").predictions
    assert [entry["gold"] for entry in predictions] == ["A", "B", "C"] * 4


def test_a_question_with_its_answer_in_the_text_stays_one(tmp_path):
    rows = [(f"The {TEXTS[n % 3]} came, {n}.", f"What came {n}?", TEXTS[n % 3]) for n in range(12)]
    found = read(tmp_path, "qa.csv", table(("context", "question", "answer"), rows)).read
    assert isinstance(found.task.target, Span)
    more = [(*row, "x", "y") for row in rows]  # columns that are called like options, of which no answer names one
    found = read(tmp_path, "more.csv", table(("context", "question", "answer", "A", "B"), more)).read
    assert isinstance(found.task.target, Span)
    starts = [(*row, *TEXTS, 4) for row in rows]
    names = ("context", "question", "answer", "A", "B", "C", "answer_start")
    assert isinstance(read(tmp_path, "starts.csv", table(names, starts)).read.task.target, Span)


def test_spans_of_which_most_are_not_in_their_texts_are_refused(tmp_path):
    named = {"question": "question", "context": "context", "answer": "answer"}
    with pytest.raises(
        albert.AlbertError, match="12 of 12 answers are not in their context; .+ --?options|options and"
    ):
        read(tmp_path, "a.csv", with_letters(letters="xyz"), **named)
    rows = [(f"The {TEXTS[n % 3]} came.", f"{n}?", TEXTS[n % 3] if n % 3 else "nobody") for n in range(12)]
    content = table(("context", "question", "answer"), rows)
    assert read(tmp_path, "b.csv", content).read.tables["train"].counts["answers_not_found"] == 4


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("121212", "may name an option in two ways, from-0 and from-1; say option_labels"),
        ("A1B2C3", "names no option; the labels of this table are read as letter: number it from 0 or from 1"),
        (["[1, 0, 0]"] * 6, "holds lists, and a multiple choice has one right option; number it from 0"),
    ],
)
def test_labels_that_do_not_name_one_option_are_refused(tmp_path, labels, message):
    rows = [{"q": f"{n}?", "o": TEXTS, "l": json.loads(each) if "[" in each else each} for n, each in enumerate(labels)]
    with pytest.raises(albert.AlbertError) as caught:
        read(tmp_path, "a.jsonl", lines(*rows), question="q", options=("o",), label="l")
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_columns_named_by_letters_in_another_order_are_names(tmp_path):
    rows = [(f"{n}?", *TEXTS, "CBA"[n % 3]) for n in range(12)]
    content = table(("question", "C", "B", "A", "right"), rows)
    found = read(tmp_path, "a.csv", content, question="question", options=("C", "B", "A"), label="right").read
    assert right(found) == [TEXTS[n % 3] for n in range(12)] and found.table_task.option_labels == "name"
