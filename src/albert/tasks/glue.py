"""The GLUE tasks (Wang et al. 2018): official files, columns and metrics; recipes of the paper's Table 14.

`glue.toml` declares them; a new task of this kind is an entry there.

The answers of the test sets are known to the benchmark's server alone, which takes one file for each."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData
from albert.tasks.examples import SplitFiles, read_rows
from albert.tasks.metrics import accuracy, f1, matthews_correlation, pearson, spearman
from albert.tasks.task import Choice, Pair, Published, Row, Rows, Score, Single, Task, TaskRecipe


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


_METRICS = {metric.__name__: metric for metric in (accuracy, f1, matthews_correlation, pearson, spearman)}
_DECLARED = tomllib.loads((files("albert.tasks") / "glue.toml").read_text(encoding="utf-8"))


def _task(declared: Mapping[str, Any]) -> Task:
    layout: dict[str, Any] = {"columns": tuple(declared["columns"])} if "columns" in declared else {}
    layout |= {name: declared[name] for name in ("numbered", "renamed") if name in declared}
    target: dict[str, Any] = dict(declared["target"])
    target |= {name: tuple(target[name]) for name in ("labels", "names") if name in target}
    recipe: dict[str, Any] = dict(declared["recipe"])
    warmup_share = recipe.pop("warmup") / recipe["steps"]
    others = {name: declared[name] for name in ("submission", "intermediate") if name in declared}
    return Task(
        name=declared["name"],
        description=declared["description"],
        source=TabSeparated(declared["folder"], declared.get("files", _DECLARED["files"]), **layout),
        inputs=(Single if len(declared["texts"]) == 1 else Pair)(*declared["texts"]),
        target=Choice(**target) if "labels" in target else Score(**target),
        metrics=tuple(_METRICS[name] for name in declared["metrics"]),
        recipe=TaskRecipe(warmup_share=warmup_share, head_dropout=0.1, max_length=512, **recipe),
        published=tuple(
            Published(model, metric, score, _DECLARED["sources"][source])
            for metric, source, scores in declared.get("published", ())
            for model, score in scores.items()
        ),
        further_splits=tuple(declared.get("further_splits", ())),
        **others,
    )


TASKS = COLA, SST2, MRPC, STSB, QQP, MNLI, QNLI, RTE, WNLI, AX = tuple(map(_task, _DECLARED["task"]))
