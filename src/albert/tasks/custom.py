"""The user's own task: a table in CSV, TSV or JSON lines (plain or `.gz`), declared by naming its columns.

CSV has quoting (RFC 4180); TSV has none, a tab always ends a field. JSON lines hold one object a line.
"""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError, did_you_mean
from albert.tasks.metrics import accuracy, f1, macro_f1, mean_absolute_error, pearson, spearman
from albert.tasks.sources import is_unicode, lines_of, read_tab_separated, read_text
from albert.tasks.task import Choice, Pair, Row, Rows, Score, Single, Task, TaskRecipe

csv.field_size_limit(2**31 - 1)  # a field is as long as a text may be; the module's own limit is 131,072 characters

CUSTOM_RECIPE = TaskRecipe(learning_rate=2e-5, batch_size=32, epochs=3.0, warmup_share=0.1, max_length=512)


@dataclass(frozen=True)
class OwnFiles:
    """One file per split, of whatever format its name ends in. The data folder is not looked at."""

    files: Mapping[str, Path]

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits given."""
        return tuple(self.files)

    def with_files(self, files: Mapping[str, Path]) -> "OwnFiles":
        """The same source with other files for some splits."""
        return OwnFiles({**self.files, **files})

    def read(self, data: Path, split: str) -> Rows:
        """Every row of a split."""
        if split not in self.files:
            raise InvalidConfiguration(f"split {split}", "no file was given for it", did_you_mean(split, self.files))
        return read_table(self.files[split])


def declare_custom_task(
    files: Mapping[str, Path],
    text: str,
    label: str,
    pair: str | None = None,
    regression: bool = False,
    labels: tuple[str, ...] | None = None,
    recipe: TaskRecipe = CUSTOM_RECIPE,
) -> Task:
    """A task from columns: classification of `text` (or of `text` and `pair`) by `label`, or regression.

    Args:
        files: split to file; "train" is needed unless `labels` says what the labels are.
        text, label, pair: column names.
        regression: `label` is a number to predict.
        labels: the known labels; None takes those of the training file, sorted (as numbers when all are
            numbers).
        recipe: how to train.

    Raises:
        MissingInput, DamagedData: see `read_table`.
        InvalidConfiguration: no such column, or fewer than two labels.
    """
    inputs = Single(text) if pair is None else Pair(text, pair)
    if regression:
        target, metrics = Score(label), (pearson, spearman, mean_absolute_error)
    else:
        if labels is None:
            if "train" not in files:
                raise UsageError("labels", "a training file is needed to know them", "give --train")
            labels = _labels_in(files["train"], label)
        target = Choice(labels, label)
        metrics = (accuracy, f1) if len(labels) == 2 else (accuracy, macro_f1)
    return Task(name="custom", source=OwnFiles(files), inputs=inputs, target=target, metrics=metrics, recipe=recipe)


def read_table(path: Path) -> Rows:
    """Every row of a `.csv`, `.tsv` or `.jsonl` file (or the same with `.gz`).

    Raises:
        UsageError: another file ending.
        MissingInput: absent or without rows.
        DamagedData: a ragged row, broken quoting, or a line that is no JSON object, with file and line.
    """
    match Path(path.stem if path.suffix == ".gz" else path.name).suffix.lower():
        case ".tsv":
            return read_tab_separated(path)
        case ".csv":
            return _read_comma_separated(path)
        case ".jsonl":
            return _read_json_lines(path)
    raise UsageError(path, "unknown kind of file", "use .csv, .tsv or .jsonl, plain or with .gz")


def sort_labels(labels: set[str]) -> tuple[str, ...]:
    """Labels in the order of their ids: by value when every label is a number, else as text."""
    try:
        return tuple(sorted(labels, key=lambda label: (float(label), label)))
    except ValueError:
        return tuple(sorted(labels))


def _labels_in(path: Path, column: str) -> tuple[str, ...]:
    labels = set()
    for row in read_table(path).rows:
        label = row.text(column)
        if not label.strip():
            raise DamagedData(row.where, f"empty label in column {column!r}")
        labels.add(label)
    if len(labels) == 1:
        raise InvalidConfiguration(path, f"every row has the label {labels.pop()!r}", "at least two are needed")
    return sort_labels(labels)


def _read_comma_separated(path: Path) -> Rows:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    rows: list[Row] = []
    columns: list[str] | None = None
    line = 1
    try:
        for fields in reader:
            where, line = f"{path}:{line}", reader.line_num + 1
            if columns is None:
                columns = fields
                if len(set(columns)) != len(columns):
                    raise DamagedData(where, "two columns have the same name")
            elif len(fields) != len(columns):
                raise DamagedData(where, f"has {len(fields)} fields where the header has {len(columns)}")
            else:
                rows.append(Row(str(len(rows)), where, dict(zip(columns, fields, strict=True))))
    except csv.Error as error:
        raise DamagedData(f"{path}:{line}", f"broken CSV ({error})", "check the quotes of this row") from error
    return _counted(path, rows)


def _read_json_lines(path: Path) -> Rows:
    rows: list[Row] = []
    for number, line in enumerate(lines_of(path), start=1):
        where = f"{path}:{number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DamagedData(where, f"not JSON ({error})") from error
        if not isinstance(value, dict):
            raise DamagedData(where, "is not a JSON object")
        rows.append(Row(str(len(rows)), where, _scalars_as_text(value, where)))
    return _counted(path, rows)


def _scalars_as_text(value: dict, where: str) -> dict[str, str]:
    """The fields that can be read as text or label; null, lists and objects cannot and are as if absent."""
    fields = {key: item for key, item in value.items() if isinstance(item, str)}
    for key, item in value.items():
        if isinstance(item, bool | int | float):
            fields[key] = json.dumps(item)
    for key, item in fields.items():
        if not is_unicode(item):
            raise DamagedData(where, f"{key!r} holds half of a surrogate pair", "write the file as UTF-8 again")
    return fields


def _counted(path: Path, rows: list[Row]) -> Rows:
    if not rows:
        raise MissingInput(path, "has no rows")
    return Rows(rows, {"rows": len(rows)})
