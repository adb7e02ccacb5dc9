"""The GLUE tasks (Wang et al. 2018): official files, columns and metrics; recipes of the paper's Table 14.

`glue.toml` declares them; a new task of this kind is an entry there.

The answers of the test sets are known to the benchmark's server alone, which takes one file for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData
from albert.tasks.examples import SplitFiles, read_rows
from albert.tasks.metrics import accuracy, f1, matthews_correlation, pearson, spearman
from albert.tasks.task import Choice, Pair, Row, Rows, Score, Single, load_tasks


@dataclass(frozen=True)
class TabSeparated(SplitFiles):
    """Tables of a benchmark: tab-separated, no quoting.

    `columns` names the columns of files without a header; those of the splits in `numbered` have one, and a column of
    it numbers their rows. `renamed` maps columns to what they are called in the other files.
    """

    columns: tuple[str, ...] | None = None
    numbered: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    def read(self, data: Path, split: str) -> Rows:
        """Every row of a split; ragged rows are errors, and so are two rows with one number."""
        path = self.path(data, split)
        if split not in self.numbered:
            return read_rows(path, "TSV", self.columns)
        found = read_rows(path, "TSV")
        rows = by_number(found.rows, self.numbered[split])
        named = [{self.renamed.get(name, name): value for name, value in row.fields.items()} for row in rows]
        return Rows([replace(row, fields=fields) for row, fields in zip(rows, named, strict=True)], found.counts)


def by_number(rows: Sequence[Row], column: str) -> list[Row]:
    """The rows, called by the number in a column."""
    seen: dict[str, str] = {}
    for row in rows:
        number = row.text(column)
        if not (number.isascii() and number.isdigit()):
            raise DamagedData(row.where, f"{number!r} in column {column!r} is not a number")
        if number in seen:
            raise DamagedData(row.where, f"a second row has the number {number}", f"the first is at {seen[number]}")
        seen[number] = row.where
    return [replace(row, identifier=row.text(column)) for row in rows]


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
