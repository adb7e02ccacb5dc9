"""Marked parts of texts, raw exports of annotation tools, and nested rows (through `albert.finetune`)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import albert
from albert.runtime.errors import AlbertError, DamagedData, UsageError
from albert.tasks.multi_label import MultiLabel
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.single_label import SingleLabel
from albert.tasks.span import Span

MODEL = Path(__file__).parents[2] / "models" / "tiny"
TEXTS = [f"Anna in Rome {word}" for word in ("reads", "sings", "sleeps", "writes", "dances", "cooks")]
TAGS = ("B-PER", "O", "B-LOC", "O")
MARKS = [[0, 4, "PER"], [8, 12, "LOC"]]


def read(path: Path, content, **options):
    """How a file is read; a list is written as JSON lines, other values as JSON, a text as it is."""
    if isinstance(content, list) and path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in content))
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    result = albert.finetune(train=path, dev=path, model=MODEL, **options)
    assert result.reading is not None and result.reading.read is not None
    return result.reading.read


def marks(label: str, **more: list) -> list[dict]:
    """The marked parts as objects."""
    parts = [{"start": start, "end": end, label: name} for start, end, name in MARKS]
    return [part | {key: values[number] for key, values in more.items()} for number, part in enumerate(parts)]


def prodigy(n: int, text: str, answer: str = "accept") -> dict:
    return {"text": text, "spans": marks("label"), "_input_hash": n, "_task_hash": n, "answer": answer}


IN_TEXTS = {
    "doccano.jsonl": [{"text": text, "label": MARKS} for text in TEXTS],
    "entities.jsonl": [{"text": text, "entities": MARKS} for text in TEXTS],
    "prodigy.jsonl": [prodigy(n, text) for n, text in enumerate(TEXTS)],
    "min.json": [
        {"text": text, "label": marks("labels", labels=[["PER"], ["LOC"]], text=["Anna", "Rome"])} for text in TEXTS
    ],
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
    rows = found.tables["train"].rows
    assert [row.fields["words"] for row in rows] == [tuple(text.split()) for text in TEXTS]
    assert {row.fields["tags"] for row in rows} == {TAGS}


def test_rows_without_marked_parts_are_counted(tmp_path):
    rows = [*IN_TEXTS["min.json"], {"text": "It rains"}, {"text": "It snows", "label": []}]
    found = read(tmp_path / "min.json", rows)
    assert [row.fields["tags"] for row in found.tables["train"].rows[-2:]] == [("O", "O"), ("O", "O")]
    assert any(note.startswith("1 row without 'label'") for note in found.raw["train"].notes)


def label_studio(text: str, *annotations: list[dict]) -> dict:
    return {"id": 7, "data": {"text": text}, "annotations": [{"result": results} for results in annotations]}


def result_of(kind: str, **value) -> dict:
    return {"type": kind, "from_name": "sentiment", "value": value}


STUDIO_MARKS = [
    label_studio(text, [result_of("labels", start=s, end=e, text=text[s:e], labels=[name]) for s, e, name in MARKS])
    for text in TEXTS
]
STUDIO_CHOICES = [label_studio(text, [result_of("choices", choices=["ab"[n % 2]])]) for n, text in enumerate(TEXTS)]
POINTS = [{"label": ["PER"], "points": [{"start": 0, "end": 3, "text": "Anna"}]}]
WORD_MARKS = {"tokens": ["Anna", "in", "Rome"], "ner": [[0, 0, "PER"], [2, 2, "LOC"]]}


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("studio.json", STUDIO_MARKS, {}, "raw export of Label Studio; export it as JSON-MIN, or convert it: python"),
        ("studio.jsonl", STUDIO_CHOICES, {"label": "sentiment"}, "raw export of Label Studio"),
        ("turks.jsonl", [{"content": text, "annotation": POINTS} for text in TEXTS], {}, "DataTurks; write a line"),
        ("spacy.json", [[text, {"entities": MARKS}] for text in TEXTS], {}, "as for spaCy; write a line for each"),
        ("prodigy.jsonl", [prodigy(0, "x in Rome it is", "reject")], {}, "1 of 'reject'; keep the accepted ones: grep"),
        ("words.jsonl", [WORD_MARKS] * 3, {}, "marks words by their numbers, which is not read; write a list of tags"),
        (
            "offsets.jsonl",
            [{"text": text, "entities": [{"start_offset": 0, "end_offset": 4, "label": "PER"}]} for text in TEXTS],
            {},
            'write marked parts as [0, 3, "PER"], or as {"start": 0',
        ),
        (
            "ranges.jsonl",
            [{"text": text, "entities": [{"span": [0, 4], "type": "PER"}]} for text in TEXTS],
            {"label": "entities"},
            'write marked parts as [0, 3, "PER"], or as {"start": 0',
        ),
        (
            "ends.jsonl",
            [{"text": text, "label": [{"start": 0, "end": 3, "label": "PER", "text": "Anna"}]} for text in TEXTS],
            {},
            "in 6 of 6 cases; positions are counted in characters from 0, and the end is that after the last character",
        ),
        (
            "one.jsonl",
            [{"text": "I in Rome", "label": [[0, 0, "PER"]]}],
            {},
            "the end is that after the last character",
        ),
        ("seq.in", "Anna sings a song\nIt rains again, again and again\n", {}, "paste seq.in LABELS > train.tsv"),
        ("train_text.txt", "Anna sings a song\nIt rains again\n", {}, "paste train_text.txt LABELS > train.tsv"),
        ("a.label", "NUM:date When was it ?\nLOC:city Where is it ?\n", {}, "sed 's/ /\\t/' a.label > train.tsv"),
    ],
)
def test_other_forms_are_refused_with_what_to_write(tmp_path, name, content, options, message):
    with pytest.raises(AlbertError) as caught:
        read(tmp_path / name, content, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_folder_of_brat_is_refused_with_the_converter(tmp_path):
    write_brat(tmp_path / "brat" / "part")
    for folder in (tmp_path / "brat" / "part", tmp_path / "brat"):
        with pytest.raises(UsageError, match=r"BRAT's .ann files, .+; convert the folder: python examples/convert_ann"):
            albert.finetune(train=folder, dev=folder, model=MODEL)
    with pytest.raises(UsageError, match="convert the folder"):
        albert.finetune(train=tmp_path / "brat" / "part" / "0.ann", model=MODEL)


def write_brat(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for number, text in enumerate(TEXTS):
        (folder / f"{number}.txt").write_bytes(f"{text}\r\n".encode())
        lines = "T1\tPER 0 4\tAnna\nT2\tLOC 8 12\tRome\nR1\tin Arg1:T1 Arg2:T2\n#1\tNote T1\tsic\n"
        (folder / f"{number}.ann").write_text(lines)
    (folder / "9.txt").write_text("It rains")
    return folder


def convert(export: Path, output: Path) -> "subprocess.CompletedProcess[str]":
    script = Path(__file__).parents[2] / "examples" / "convert_annotations.py"
    command = [sys.executable, str(script), str(export), str(output)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_example_converts_raw_exports(tmp_path):
    table = tmp_path / "train.jsonl"
    (tmp_path / "studio.json").write_text(json.dumps([*STUDIO_MARKS, label_studio("nobody has seen it")]))
    folder = write_brat(tmp_path / "brat")
    with open(folder / "0.ann", "a") as file:
        file.write("T3\tFAR 0 4;8 12\tAnna Rome\n")
    said = {
        tmp_path / "studio.json": "1 tasks without an annotation, left out",
        folder: "1 texts without an .ann file, left out\n",
    }
    for export, counted in said.items():
        done = convert(export, table)
        assert done.returncode == 0 and counted in done.stdout
        result = albert.finetune(train=table, dev=table, model=MODEL)
        rows = result.reading.read.tables["train"].rows
        assert [row.fields["tags"] for row in rows] == [TAGS] * len(TEXTS)
    assert "1 marked parts in several pieces" in done.stdout
    (tmp_path / "choices.json").write_text(json.dumps(STUDIO_CHOICES))
    assert convert(tmp_path / "choices.json", table).returncode == 0
    result = albert.finetune(train=table, dev=table, model=MODEL, label="sentiment")
    assert result.reading.read.task.target == SingleLabel(("a", "b"), "sentiment")
    (folder / "0.ann").write_text("T1\tPER 2 6\tAnna\n")
    assert "0.ann:1: 'Anna' is not at this place" in convert(folder, table).stderr


def test_options_without_any_option_of_the_command(tmp_path):
    rows = [
        {"question": f"{n}?", "choices": {"text": ["x", "y"], "label": ["A", "B"]}, "answerKey": "AB"[n % 2]}
        for n in range(4)
    ]
    assert isinstance(read(tmp_path / "a.jsonl", rows).task.target, MultipleChoice)
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
    assert isinstance(read(tmp_path / "b.jsonl", stems).task.target, MultipleChoice)


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
    assert found.task.target == MultiLabel(("a", "b", "c"), column)
    assert [row.fields[column] for row in found.tables["train"].rows][:2] == [("a",), ("b", "c")]
    with pytest.raises(DamagedData, match="2 labels"):
        read(tmp_path / "a.csv", table, label=("label_1", "label_2"), kind="classification")
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
    with pytest.raises(UsageError, match="tags=3 or tags=4"):
        read(tmp_path / "a.tsv", NESTED)
    found = read(tmp_path / "a.tsv", NESTED, tags="3")
    assert found.tables["train"].rows[0].fields[found.table_task.tags] == ("B-PER", "B-ORG")
    found = read(tmp_path / "b.conll", "Anna\tB-PER\n \tO\nsings\tO\n\n" * 3)
    assert found.tables["train"].rows[0].fields["words"] == ("Anna", "sings")
    assert found.raw["train"].counts["blank_words_left_out"] == 3
    with pytest.raises(UsageError, match="label"):
        read(tmp_path / "c.conll", "1\tHe\n2\tcame\n\n" * 3)
