"""The GLUE tasks (Wang et al. 2018), declared in `glue.toml`: official files, columns, metrics, recipes of Table 14."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData
from albert.tasks.examples import SplitFiles, read_rows
from albert.tasks.metrics import accuracy, f1, matthews_correlation, pearson, spearman
from albert.tasks.task import Choice, Pair, Row, Rows, Score, Single, load_tasks


@dataclass(frozen=True)
class TabSeparated(SplitFiles):
    """Tab-separated files of a benchmark, without quoting.

    Attributes:
        columns: names for files without a header.
        numbered: splits whose files have a header -> its column with the number of the row.
        renamed: in these splits, columns -> their names in the other files.
    """

    columns: tuple[str, ...] | None = None
    numbered: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    def read(self, data: Path, split: str) -> Rows:
        """Every row of a split; a wrong number of fields and a repeated row number are errors."""
        path = self.path(data, split)
        if split not in self.numbered:
            return read_rows(path, "TSV", self.columns)
        table, column = read_rows(path, "TSV"), self.numbered[split]
        rows: list[Row] = []
        seen: dict[str, str] = {}
        for row in table.rows:
            number = row.text(column)
            if not (number.isascii() and number.isdigit()):
                raise DamagedData(row.where, f"{number!r} in column {column!r} is not a number")
            if number in seen:
                raise DamagedData(row.where, f"a second row has the number {number}", f"the first is at {seen[number]}")
            seen[number] = row.where
            fields = {self.renamed.get(name, name): value for name, value in row.fields.items()}
            rows.append(replace(row, identifier=number, fields=fields))
        return Rows(rows, table.counts)


def _parts(entry: Mapping[str, Any]) -> tuple[TabSeparated, Single | Pair, Choice | Score]:
    layout: dict[str, Any] = {"columns": tuple(entry["columns"])} if "columns" in entry else {}
    layout |= {name: entry[name] for name in ("numbered", "renamed") if name in entry}
    target: dict[str, Any] = dict(entry["target"])
    target |= {name: tuple(target[name]) for name in ("labels", "names") if name in target}
    return (
        TabSeparated(entry["folder"], entry["files"], **layout),
        (Single if len(entry["texts"]) == 1 else Pair)(*entry["texts"]),
        Choice(**target) if "labels" in target else Score(**target),
    )


TASKS = COLA, SST2, MRPC, STSB, QQP, MNLI, QNLI, RTE, WNLI, AX = load_tasks(
    "glue.toml", (accuracy, f1, matthews_correlation, pearson, spearman), _parts
)
