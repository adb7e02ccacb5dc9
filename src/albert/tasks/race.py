"""RACE (Lai et al. 2017): questions on passages from English examinations, with four options each.

The published layout is read: `RACE/{train,dev,test}/{middle,high}/*.txt`, each file one JSON object; or, where the
files of a folder were put together as the reference does it, `all.txt` with one object a line.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, did_you_mean
from albert.runtime.strict_json import each_key_once
from albert.tasks.metrics import accuracy
from albert.tasks.sources import is_unicode, lines_of
from albert.tasks.task import Option, Published, QuestionInContext, Row, Rows, Task, TaskRecipe

_OPTIONS = ("A", "B", "C", "D")
_SPLITS = ("train", "dev", "test")
_LEVELS = ("middle", "high")
_RELEASE = "google-research/albert README, v2 results, dev"
_TABLE_10 = "arXiv:1909.11942v6 Table 10, test, single model, 1.5M steps"


@dataclass(frozen=True)
class PassageFolders:
    """Folders of passages, one for each split and level, in `DATA/<folder>/` or in DATA itself.

    `files` puts a file in the place of a split's folders: passages of any level, one JSON object a line.
    """

    folder: str
    levels: tuple[str, ...]
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        """The published splits."""
        return _SPLITS

    def with_files(self, files: Mapping[str, Path]) -> "PassageFolders":
        """The same source with files of one JSON object a line for some splits."""
        return replace(self, files={**self.files, **files})

    def read(self, data: Path, split: str) -> Rows:
        """Every question of a split, level by level, passages by name."""
        if split not in _SPLITS:
            raise InvalidConfiguration(f"split {split}", "unknown", did_you_mean(split, _SPLITS))
        if split in self.files:
            return read_passages([self.files[split]])
        return read_passages([file for level in self.levels for file in self._passages(data, split, level)])

    def _passages(self, data: Path, split: str, level: str) -> list[Path]:
        for place in (data / self.folder / split / level, data / split / level):
            whole = place / "all.txt"
            found = [whole] if whole.is_file() else sorted(place.glob("*.txt"))
            if found:
                return found
        expected = f"{data / self.folder / split / level}/*.txt or {data / split / level}/*.txt"
        raise MissingInput(data, f"has no passages in {split}/{level}", f"expected {expected}")


def read_passages(paths: list[Path]) -> Rows:
    """Every question of every passage; a question is called by its passage and its number in it.

    Raises:
        MissingInput: a file is absent, or there is no question.
        DamagedData: not RACE's layout, or two passages of one name, with file and line.
    """
    rows: list[Row] = []
    passages: dict[str, str] = {}
    for path in paths:
        for number, line in enumerate(lines_of(path), start=1):
            if not line.strip():
                continue  # the published files end in blank lines
            where = f"{path}:{number}"
            name, found = _questions(_object(line, where), where)
            if name in passages:
                raise DamagedData(where, f"a second passage is called {name!r}", f"the first is at {passages[name]}")
            passages[name] = where
            rows += found
    if not rows:
        raise MissingInput(paths[0], "holds no question")
    return Rows(rows, {"rows": len(rows), "passages": len(passages)})


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(line, object_pairs_hook=each_key_once)
    except (ValueError, RecursionError) as error:
        raise DamagedData(where, f"not JSON ({error})") from error
    if not isinstance(value, dict):
        raise DamagedData(where, "is not a JSON object", "expected RACE's layout")
    return value


def _questions(passage: dict[str, Any], where: str) -> tuple[str, list[Row]]:
    name, article = _text(passage.get("id"), "id", where), _text(passage.get("article"), "article", where)
    questions, options, answers = (_list(passage, key, where) for key in ("questions", "options", "answers"))
    if not len(questions) == len(options) == len(answers):
        why = f"has {len(questions)} questions, {len(options)} lists of options and {len(answers)} answers"
        raise DamagedData(where, why)
    level = next((level for level in _LEVELS if name.startswith(level)), str(passage.get("level") or ""))
    rows = []
    for number, (question, offered, answer) in enumerate(zip(questions, options, answers, strict=True)):
        what = f"{where}: question {number}"
        if not isinstance(offered, list) or len(offered) != len(_OPTIONS):
            raise DamagedData(what, f"has not {len(_OPTIONS)} options")
        texts = (_text(option, "option", what) for option in offered)
        fields = {"article": article, "question": _text(question, "question", what)}
        fields |= dict(zip(_OPTIONS, texts, strict=True)) | {"answer": _text(answer, "answer", what)}
        rows.append(Row(f"{name}-{number}", what, fields, group=level))
    return name, rows


def _list(passage: dict[str, Any], key: str, where: str) -> list[Any]:
    if not isinstance(passage.get(key), list):
        raise DamagedData(where, f"has no list {key!r}", "expected RACE's layout")
    return passage[key]


def _text(value: Any, what: str, where: str) -> str:
    if not isinstance(value, str):
        raise DamagedData(where, f"{what} is not a text", "expected RACE's layout")
    if not is_unicode(value):
        raise DamagedData(where, f"{what} holds half of a surrogate pair", "fetch the file again")
    return value


_RECIPE = TaskRecipe(  # Table 14
    learning_rate=2e-5,
    batch_size=32,
    steps=12000,
    examples=87866,
    warmup_share=1000 / 12000,
    encoder_dropout=0.1,
    head_dropout=0.1,
    max_length=512,
    question_length=128,
)

RACE = Task(
    name="race",
    description="Choose the answer to a question on a passage, middle and high school (Lai et al. 2017)",
    source=PassageFolders("RACE", _LEVELS),
    inputs=QuestionInContext("question", "article"),
    target=Option(_OPTIONS, "answer"),
    metrics=(accuracy,),
    recipe=_RECIPE,
    second_recipe=replace(_RECIPE, learning_rate=1e-5, encoder_dropout=0.0),
    published=(
        Published("albert-xxlarge-v1", "accuracy", 86.5, _TABLE_10),
        *(
            Published(f"albert-{size}-v2", "accuracy", score, _RELEASE)
            for size, score in (("base", 66.8), ("large", 75.2), ("xlarge", 80.7), ("xxlarge", 86.8))
        ),
    ),
)


def _level(level: str, test: float) -> Task:
    return replace(
        RACE,
        name=f"{RACE.name}-{level}",
        description=f"Choose the answer to a question on a passage, {level} school (Lai et al. 2017)",
        source=PassageFolders("RACE", (level,)),
        published=(Published("albert-xxlarge-v1, learnt from both levels", "accuracy", test, _TABLE_10),),
    )


TASKS = (RACE, _level("middle", 89.0), _level("high", 85.5))
