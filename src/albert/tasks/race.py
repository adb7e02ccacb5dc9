"""RACE (Lai et al. 2017), declared in `race.toml`: its files, and token ids of questions with options.

Files are `RACE/{train,dev,test}/{middle,high}/*.txt`, each with one JSON object, or `all.txt` with one object per line
if the files of a folder were merged as in the reference."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, MissingInput
from albert.tables.files import input_file
from albert.tables.records import json_line_records
from albert.tables.split_files import SplitFiles, json_entry
from albert.tables.table import Row, Table
from albert.tasks.declared import load_tasks
from albert.tasks.inputs import QuestionInContext
from albert.tasks.metrics import accuracy
from albert.tasks.multiple_choice import MultipleChoice

_OPTIONS = ("A", "B", "C", "D")
_LEVELS = ("middle", "high")


def read_passages(path: Path, split: str, levels: Sequence[str]) -> Table:
    """Every question of a split, level by level, passages by name; identified by its passage and number. Of a file,
    questions of another level are left out and counted.

    Args:
        path: the folder of the split, or a file with one JSON object per line.
    """
    files: list[Path] = []
    if path.is_file():
        files.append(path)
    else:
        for level in levels:
            folder = path / level
            merged = folder / "all.txt"
            passages_of_level = [merged] if merged.is_file() else sorted(folder.glob("*.txt"))
            if not passages_of_level:
                raise MissingInput(folder, "has no passages", "expected a file *.txt for each")
            files += passages_of_level
    rows: list[Row] = []
    passages: dict[str, str] = {}
    left_out: Counter[str] = Counter()
    for file in files:
        for record in json_line_records(input_file(file, "JSON lines")):  # skips blank lines at the end
            name, questions = _questions(record.fields, record.where)
            if name in passages:
                remedy = f"the first is at {passages[name]}"
                raise DamagedData(record.where, f"a second passage is called {name!r}", remedy)
            passages[name] = record.where
            wanted = [row for row in questions if row.group in levels or row.group not in _LEVELS]
            rows += wanted
            left_out["questions_of_another_level"] += len(questions) - len(wanted)
    if not rows:
        raise MissingInput(path, f"holds no question of level {' or '.join(levels)}")
    return Table(rows, {"rows": len(rows), "passages": len(passages), **+left_out})


def _questions(passage: dict[str, Any], where: str) -> tuple[str, list[Row]]:
    name = json_entry(passage, "id", str, where, "RACE")
    article = json_entry(passage, "article", str, where, "RACE")
    lists = [json_entry(passage, key, list, where, "RACE") for key in ("questions", "options", "answers")]
    if len({len(each) for each in lists}) > 1:
        raise DamagedData(where, "has {} questions, {} lists of options and {} answers".format(*map(len, lists)))
    level = next((level for level in _LEVELS if name.startswith(level)), str(passage.get("level") or ""))
    rows = []
    for number, (question, options, answer) in enumerate(zip(*lists, strict=True)):
        subject = f"{where}: question {number}"
        if not isinstance(options, list) or len(options) != len(_OPTIONS):
            raise DamagedData(subject, f"does not have {len(_OPTIONS)} options")
        fields = {"article": article, "question": question, "answer": answer}
        fields |= zip(_OPTIONS, options, strict=True)
        wrong = [key for key, value in fields.items() if not isinstance(value, str)]
        if wrong:
            raise DamagedData(subject, f"{wrong[0]} is not a text", "expected RACE's JSON layout")
        rows.append(Row(f"{name}-{number}", subject, fields, group=level))
    return name, rows


TASKS = RACE, RACE_V2, RACE_MIDDLE, RACE_HIGH = load_tasks(
    "race.toml",
    (accuracy,),
    lambda entry: (
        SplitFiles(
            "RACE", {split: split for split in ("train", "dev", "test")}, partial(read_passages, levels=entry["levels"])
        ),
        QuestionInContext("question", "article"),
        MultipleChoice(_OPTIONS, "answer"),
    ),
)
