"""Texts and labels in two files of equally many lines: `train_text.txt` and `train_labels.txt`, `train.txt` and
`train.labels`, `seq.in`, `seq.out` and `label`; also JSON lines whose labels are in a file beside them."""

import re
from pathlib import Path

from albert.runtime.errors import DamagedData
from albert.tasks.reading.encodings import lines_of, recognise_encoding
from albert.text.readers import input_file

_TEXTS = re.compile(r"(?<![a-z])(texts?|sentences?|sents?|tweets?|documents?|docs?|data|inputs?|x)(?![a-z])", re.I)
_LABELS = ("labels", "label", "y")
_ENDINGS = (".labels", ".label", "_labels.txt", "-labels.txt", ".labels.txt", "_labels.lst", "-labels.lst")


def labels_beside(path: Path) -> Path | None:
    """The file with the labels of the lines of another one, by its name; None if there is none."""
    if path.name == "seq.in":
        candidates = ["label", "labels"]
    else:
        found = _TEXTS.search(path.name)
        candidates = []
        if found is not None and not path.name.lower().endswith((".jsonl", ".ndjson")):
            for word in _LABELS:
                written = word.capitalize() if found[0][0].isupper() and word != "y" else word
                candidates.append(path.name[: found.start()] + written + path.name[found.end() :])
        candidates += [path.stem + ending for ending in _ENDINGS]
    for name in candidates:
        if name != path.name and (path.parent / name).is_file():
            return path.parent / name
    return None


def tags_beside(path: Path) -> Path | None:
    """The tags of the words of `seq.in`."""
    beside = path.parent / "seq.out"
    return beside if path.name == "seq.in" and beside.is_file() else None


def read_lines(path: Path, encoding: str | None) -> tuple[list[str], tuple[str, ...]]:
    """The lines of a file without the blank ones at its end, and a line about its encoding if it is not UTF-8."""
    file = input_file(path, "text")
    encoding, notes = recognise_encoding(file, encoding)
    lines = [line.removeprefix("\ufeff") if number == 1 else line for number, line in lines_of(file, encoding)]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines, notes


def check_equal_lines(path: Path, n_lines: int, beside: Path, n_beside: int, what: str = "lines") -> None:
    """Raise DamagedData if the file of the labels has another number of lines."""
    if n_lines != n_beside:
        why = f"has {n_beside:,} lines where {path.name} has {n_lines:,} {what}"
        raise DamagedData(beside, why, "each line is the label of one text; rename the file if it holds something else")
