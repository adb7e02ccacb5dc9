"""The GLUE tasks (Wang et al. 2018), declared in `glue.toml`: official files, columns, metrics, recipes of Table 14."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData
from albert.tables.split_files import SplitFiles, read_rows
from albert.tables.table import Row, Table
from albert.tasks.declared import load_tasks
from albert.tasks.inputs import Pair, Single
from albert.tasks.metrics import accuracy, f1, matthews_correlation, pearson, spearman
from albert.tasks.regression import Regression
from albert.tasks.single_label import SingleLabel


def _read(path: Path, split: str, entry: Mapping[str, Any]) -> Table:
    """Every row of a split of an entry of `glue.toml`.

    A wrong number of fields, unless the entry says otherwise, and a repeated row number are errors.
    """
    numbered = entry.get("numbered", {})
    renamed = entry.get("renamed", {})
    if split not in numbered:
        return read_rows(path, entry.get("columns"), entry.get("drop_broken", False))
    table = read_rows(path)
    column = numbered[split]
    rows: dict[str, Row] = {}
    for row in table.rows:
        number = row.text(column)
        if not (number.isascii() and number.isdigit()):
            raise DamagedData(row.where, f"{number!r} in column {column!r} is not a number")
        if number in rows:
            raise DamagedData(
                row.where, f"a second row has the number {number}", f"the first is at {rows[number].where}"
            )
        fields = {renamed.get(name, name): value for name, value in row.fields.items()}
        rows[number] = replace(row, identifier=number, fields=fields)
    return Table(list(rows.values()), table.counts)


def _parts(entry: Mapping[str, Any]) -> tuple[SplitFiles, Single | Pair, SingleLabel | Regression]:
    target: dict[str, Any] = dict(entry["target"])
    target |= {name: tuple(target[name]) for name in ("labels", "names") if name in target}
    return (
        SplitFiles(entry["folder"], entry["files"], partial(_read, entry=entry)),
        (Single if len(entry["texts"]) == 1 else Pair)(*entry["texts"]),
        SingleLabel(**target) if "labels" in target else Regression(**target),
    )


TASKS = COLA, SST2, MRPC, STSB, QQP, MNLI, QNLI, RTE, WNLI, AX = load_tasks(
    "glue.toml", (accuracy, f1, matthews_correlation, pearson, spearman), _parts
)
