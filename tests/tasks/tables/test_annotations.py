"""Exports of annotation tools, and nested rows of published data sets (through `albert.finetune`)."""

import json
from pathlib import Path

import pytest

import albert
from albert.runtime.errors import DamagedData, UsageError
from albert.tasks.kinds.choice import Option
from albert.tasks.kinds.classification import Choice
from albert.tasks.kinds.multi_label import Labels
from albert.tasks.kinds.span import Span

MODEL = Path(__file__).parents[3] / "models" / "tiny"
TEXTS = [f"Anna in Rome {word}" for word in ("reads", "sings", "sleeps", "writes", "dances", "cooks")]
TAGS = ("B-PER", "O", "B-LOC", "O")
MARKS = [[0, 4, "PER"], [8, 12, "LOC"]]


def read(path: Path, content, **options):
    """How a file is read; a list is written as JSON lines, other values as JSON, a text as it is."""
    if isinstance(content, list) and path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    result = albert.finetune(train=path, dev=path, model=MODEL, statistics_only=True, **options)
    assert result.reading is not None and result.reading.read is not None
    return result.reading.read


def marks(start: str, end: str, label: str, last: int = 0, **more: list[str]) -> list[dict]:
    """The marked parts as objects, whose ends are `last` before the usual ones."""
    parts = [{start: first, end: stop + last, label: name} for first, stop, name in MARKS]
    return [part | {key: texts[n] for key, texts in more.items()} for n, part in enumerate(parts)]


def label_studio(text: str, *annotations: list[dict]) -> dict:
    return {"id": 7, "data": {"text": text}, "annotations": [{"result": results} for results in annotations]}


def result_of(kind: str, **value) -> dict:
    return {"type": kind, "from_name": "sentiment", "value": value}


IN_TEXTS = {
    "pipeline.jsonl": [{"text": text, "entities": marks("start", "end", "entity_group")} for text in TEXTS],
    "prodigy.jsonl": [
        {"text": text, "spans": marks("start", "end", "label"), "_input_hash": n, "answer": "accept"}
        for n, text in enumerate(TEXTS)
    ]
    + [{"text": "It rains", "spans": [], "_input_hash": 9, "answer": "reject"}],
    "min.json": [
        {"text": text, "label": [{**m, "labels": [m["labels"]]} for m in marks("start", "end", "labels")]}
        for text in TEXTS
    ],
    "studio.json": [
        label_studio(text, [result_of("labels", start=s, end=e, labels=[name]) for s, e, name in MARKS])
        for text in TEXTS
    ],
    "spacy.json": [[text, {"entities": MARKS}] for text in TEXTS],
    "tecoholic.json": {"classes": ["PER"], "annotations": [[text, {"entities": MARKS}] for text in TEXTS] + [None]},
    "entities.jsonl": [{"text": text, "entities": MARKS} for text in TEXTS],
    "rasa.json": {
        "rasa_nlu_data": {
            "common_examples": [{"text": text, "entities": marks("start", "end", "entity")} for text in TEXTS]
        }
    },
    "included.jsonl": [{"text": text, "label": [[s, e - 1, name] for s, e, name in MARKS]} for text in TEXTS],
    "by-text.jsonl": [
        {"text": text, "label": marks("start", "end", "label", -1, text=["Anna", "Rome"])} for text in TEXTS[:2]
    ],
    "cluener.jsonl": [
        {"text": text, "label": {"PER": {"Anna": [[0, 3]]}, "LOC": {"Rome": [[8, 11]]}}} for text in TEXTS
    ],
    "dataturks.jsonl": [
        {
            "content": text,
            "annotation": [
                {"label": [name], "points": [{"start": s, "end": e - 1, "text": text[s:e]}]} for s, e, name in MARKS
            ],
        }
        for text in TEXTS
    ],
    "lines.jsonl": "".join(json.dumps([text, {"entities": MARKS}]) + "\n" for text in TEXTS),
    "cells.csv": "text,label\n"
    + "".join(
        f'{text},"[{{""start"": 0, ""end"": 4, ""labels"": [""PER""]}}, '
        f'{{""start"": 8, ""end"": 12, ""labels"": [""LOC""]}}]"\n'
        for text in TEXTS
    ),
}


@pytest.mark.parametrize("name", IN_TEXTS)
def test_marked_parts_of_texts(tmp_path, name):
    found = read(tmp_path / name, IN_TEXTS[name])
    for row, text in zip(found.tables["train"].rows, TEXTS, strict=False):
        assert row.fields["words"] == tuple(text.split())
        assert row.fields["tags"] == TAGS
    assert len(found.tables["train"].rows) in (2, len(TEXTS))


WORDS = ["Anna", "in", "New", "York"]
OF_WORDS = ("B-PER", "O", "B-LOC", "I-LOC")


@pytest.mark.parametrize(
    ("row", "options"),
    [
        ({"tokens": WORDS, "ner": [[0, 0, "PER"], [2, 3, "LOC"]]}, {}),
        ({"tokenized_text": WORDS, "ner": [[0, 0, "PER"], [2, 3, "LOC"]]}, {}),
        ({"tokens": WORDS, "ner": [[0, 1, "PER"], [2, 4, "LOC"]]}, {}),
        (
            {
                "tokens": WORDS,
                "entities": [{"start": 0, "end": 1, "type": "PER"}, {"start": 2, "end": 4, "type": "LOC"}],
            },
            {"words": "tokens", "tags": "entities"},
        ),
    ],
)
def test_marked_words(tmp_path, row, options):
    found = read(tmp_path / "a.jsonl", [row] * 3, **options)
    assert found.tables["train"].rows[0].fields[found.table_task.tags] == OF_WORDS
    assert found.table_task.span_ends is not None


def test_documents_of_sentences(tmp_path):
    document = {
        "doc_key": "x",
        "sentences": [["It", "rains"], WORDS],
        "ner": [[], [[2, 2, "PER"], [4, 5, "LOC"], [5, 5, "INNER"]]],
    }
    found = read(tmp_path / "a.jsonl", [document] * 2)
    rows = found.tables["train"].rows
    assert [row.fields["tags"] for row in rows] == [("O", "O"), OF_WORDS] * 2
    assert any("overlap" in note for note in found.raw["train"].notes)
    document["ner"] = [[], [[2, 9, "PER"]]]
    with pytest.raises(DamagedData, match="sentence 1"):
        read(tmp_path / "b.jsonl", [document])


def test_marks_that_may_be_read_in_two_ways(tmp_path):
    rows = [{"tokens": [*WORDS, "."], "ner": [[0, 1, "PER"]]}] * 3
    with pytest.raises(UsageError, match="span_ends"):
        read(tmp_path / "a.jsonl", rows)
    task = tmp_path / "task.json"
    task.write_text(json.dumps({"span_ends": "included"}))
    found = read(tmp_path / "a.jsonl", rows, task_file=task)
    assert found.tables["train"].rows[0].fields["ner"] == ("B-PER", "I-PER", "O", "O", "O")
    with pytest.raises(UsageError, match="includes the last word"):
        read(tmp_path / "b.jsonl", [{"tokens": WORDS, "ner": [[0, 0, "PER"], [2, 4, "LOC"]]}])
    wrong = [{"text": text, "label": marks("start", "end", "label", text=["nna ", "Room"])} for text in TEXTS]
    with pytest.raises(DamagedData, match="another text"):
        read(tmp_path / "c.jsonl", wrong)


def test_choices_and_tasks_without_annotation_of_label_studio(tmp_path):
    tasks = [label_studio(text, [result_of("choices", choices=["ab"[n % 2]])]) for n, text in enumerate(TEXTS)]
    tasks += [label_studio("nobody has seen it")]
    found = read(tmp_path / "a.json", tasks, label="sentiment")
    assert found.task.target == Choice(("a", "b"), "sentiment")
    assert len(found.tables["train"].rows) == len(TEXTS)
    assert any("1 tasks without annotation" in note for note in found.raw["train"].notes)
    tasks[0]["annotations"][0]["result"][0]["value"]["choices"] = ["a", "b"]
    assert read(tmp_path / "b.json", tasks, label="sentiment").task.target == Labels(("a", "b"), "sentiment")


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([{"question": f"{n}?", "mc1_targets": {f"r{n}": 1, f"w{n}": 0}} for n in range(4)], {}),
        ([{"question": f"{n}?", "mc1_targets": {"choices": ["r", "w"], "labels": [1, 0]}} for n in range(4)], {}),
    ],
)
def test_right_options_with_a_one(tmp_path, rows, options):
    found = read(tmp_path / "a.jsonl", rows, question="question", options=("mc1_targets",), label="mc1_targets")
    assert isinstance(found.task.target, Option) and found.table_task.option_labels == "from-0"
    with pytest.raises(DamagedData, match="2 right options"):
        row = {"question": "?", "m": {"choices": ["r", "w"], "labels": [1, 1]}}
        read(tmp_path / "b.jsonl", [row] * 2, question="question", options=("m",), label="m")


def test_options_without_any_option_of_the_command(tmp_path):
    rows = [
        {"question": f"{n}?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "AB"[n % 2]}
        for n in range(4)
    ]
    assert isinstance(read(tmp_path / "a.jsonl", rows).task.target, Option)
    stems = [
        {
            "question": {
                "stem": row["question"],
                "choices": [{"text": "x", "label": "A"}, {"text": "y", "label": "B"}],
            },
            "answerKey": row["answerKey"],
        }
        for row in rows
    ]
    assert isinstance(read(tmp_path / "b.jsonl", stems).task.target, Option)


@pytest.mark.parametrize(
    "answers",
    [
        "{'text': ['red'], 'answer_start': [6]}",
        "{'text': array(['red'], dtype=object), 'answer_start': array([6], dtype=int32)}",
        '{""text"": [""red""], ""answer_start"": [6]}',
    ],
)
def test_answers_as_objects_in_cells(tmp_path, answers):
    table = "context,question,answers\n" + "".join(f'"It is red, {n}",How {n}?,"{answers}"\n' for n in range(3))
    found = read(tmp_path / "a.csv", table)
    assert isinstance(found.task.target, Span)
    assert [answer.text for answer in found.tables["train"].rows[0].answers or ()] == ["red"]


def test_answers_in_columns_with_usual_names(tmp_path):
    table = "id,context,question,answer_start,text\n" + "".join(f'{n},"It is red, {n}",How?,6,red\n' for n in range(3))
    found = read(tmp_path / "a.csv", table)
    answers = found.tables["train"].rows[0].answers or ()
    assert [(answer.text, answer.start) for answer in answers] == [("red", 6)]


def test_a_label_in_each_of_several_columns(tmp_path):
    table = "text,label_1,label_2\n" + "".join(
        f"{text},{'abc'[n % 3]},{'abc'[(n + 1) % 3] if n % 2 else ''}\n" for n, text in enumerate(TEXTS)
    )
    found = read(tmp_path / "a.csv", table, label=("label_1", "label_2"))
    column = "label_1, label_2"
    assert found.task.target == Labels(("a", "b", "c"), column)
    assert [row.fields[column] for row in found.tables["train"].rows][:2] == [("a",), ("b", "c")]
    with pytest.raises(DamagedData, match="2 labels"):
        read(tmp_path / "a.csv", table, label=("label_1", "label_2"), classes=True)
    with pytest.raises(DamagedData, match="neither 0 nor 1"):
        read(tmp_path / "b.csv", "text,x,y\na,1,0\nb,0,1\nc,0,2\n", label=("x", "y"))


MIT_MOVIE = "".join(f"O\twhat\nB-ACTOR\t{text.split()[3]}\n\n" for text in TEXTS)
CONLL_2012 = "#begin document (a); part 000\n" + "".join(
    f"a 0 0 Anna NNP (NP* - - - S {'(PERSON*' if n % 2 else '(PERSON)'} {'* ' * n}-\n"
    f"a 0 1 Rome NNP *) - - - S {'*)' if n % 2 else '*'} {'* ' * n}(3)\n\n"
    for n in range(3)
)


def test_tags_before_words_and_fields_in_differing_numbers(tmp_path):
    found = read(tmp_path / "a.bio", MIT_MOVIE)
    row = found.tables["train"].rows[0]
    assert (row.fields["words"], row.fields["tags"]) == (("what", "reads"), ("O", "B-ACTOR"))
    found = read(tmp_path / "a.v4_gold_conll", CONLL_2012 + "#end document\n")
    rows = found.tables["train"].rows
    assert {row.fields["words"] for row in rows} == {("Anna", "Rome")}
    assert [row.fields["tags"] for row in rows] == [("B-PERSON", "O"), ("B-PERSON", "I-PERSON"), ("B-PERSON", "O")]
    found = read(tmp_path / "b.v4_gold_conll", CONLL_2012.replace("1 Rome NNP", "1 Rome NN"), tags="5")
    assert found.table_task.labels == ("NN", "NNP")


@pytest.mark.parametrize(
    "content",
    [
        {f"doc{n}": {"text": text, "label": "ab"[n % 2]} for n, text in enumerate(TEXTS)},
        {str(n): {"text": text, "label": "ab"[n % 2]} for n, text in enumerate(TEXTS)},
        {
            "columns": ["text", "label"],
            "index": [0, 1, 2, 3, 4, 5],
            "data": [[text, "ab"[n % 2]] for n, text in enumerate(TEXTS)],
        },
        {"text": dict(enumerate(TEXTS)), "label": dict(enumerate("ababab"))},
        [{"text": text, "labels": ["ab"[n % 2]]} for n, text in enumerate(TEXTS)],
    ],
)
def test_json_with_rows_by_key_and_as_pandas_writes_them(tmp_path, content):
    found = read(tmp_path / "a.json", content)
    assert [row.fields["text"] for row in found.tables["train"].rows] == TEXTS
    assert found.table_task.labels == ("a", "b") and found.table_task.kind == "classification"


def test_python_dicts_are_no_json(tmp_path):
    for name in ("a.json", "a.jsonl"):
        with pytest.raises(DamagedData, match="literal_eval"):
            read(tmp_path / name, "".join(f"{ {'text': text, 'label': 'a'} }\n" for text in TEXTS))


NESTED = "".join(f"1\tAnna\tB-PER\tO\n2\tRome\tB-ORG\t{tag}\n\n" for tag in ("B-PER", *["O"] * 12, "O\t", "O"))


def test_two_columns_of_tags_and_lines_with_blanks(tmp_path):
    with pytest.raises(UsageError, match="tags 3 or tags 4"):
        read(tmp_path / "a.tsv", NESTED)
    found = read(tmp_path / "a.tsv", NESTED, tags="3")
    assert found.tables["train"].rows[0].fields[found.table_task.tags] == ("B-PER", "B-ORG")
    found = read(tmp_path / "b.conll", "Anna\tB-PER\n \tO\nsings\tO\n\n" * 3)
    assert found.tables["train"].rows[0].fields["words"] == ("Anna", "sings")
    assert found.raw["train"].counts["blank_words_left_out"] == 3
    with pytest.raises(UsageError, match="label"):
        read(tmp_path / "c.conll", "1\tHe\n2\tcame\n\n" * 3)
