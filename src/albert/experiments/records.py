"""What is kept of a run in `results/`: a row for each figure, and a folder with recipe, journal and curves."""

import csv
import io
import json
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albert.experiments.figures import draw_pretraining_curves
from albert.runtime.durable_files import new_directory, write_text
from albert.runtime.errors import MissingInput
from albert.runtime.journal import read_journal
from albert.runtime.strict_json import read_json_object
from albert.training.run_folder import RunFolder

TABLE_NAME = "results.csv"
KEPT_LINES = 250
"""Training lines kept of a journal; evaluations are all kept."""


@dataclass(frozen=True, kw_only=True)
class ResultRow:
    """One figure of one run."""

    date: str
    run: str
    commit: str
    machine: str
    figure: str
    value: float | int
    baseline: float | str = ""
    """What a constant answer scores on the same data, where that makes sense."""
    command: str = ""


def record_pretraining(run: Path, results: Path, name: str, commit: str, machine: str, command: str) -> list[ResultRow]:
    """Keep a finished pre-training run: `results/NAME/` and rows for its last evaluation and its throughput.

    Raises:
        MissingInput: the run was never evaluated.
        CannotCreate: `results/NAME` exists.
    """
    folder = RunFolder(run)
    records = read_journal(folder.journal_path)
    steps = [record for record in records if record["event"] == "train"]
    evaluations = [record for record in records if record["event"] == "evaluation"]
    if not evaluations or not steps:
        raise MissingInput(folder.journal_path, "holds no evaluation", "let the run finish first")
    last = evaluations[-1]
    rows = []
    for task in ("masked_tokens", "sentence_order"):
        if f"{task}_accuracy" in last:
            accuracy, constant = last[f"{task}_accuracy"], last[f"{task}_baseline"]
            rows.append(_row(name, commit, machine, command, f"{task}_accuracy", accuracy, constant))
            rows.append(_row(name, commit, machine, command, f"{task}_loss", last[f"{task}_loss"]))
    speeds = sorted(record["tokens_per_second"] for record in steps)
    rows.append(_row(name, commit, machine, command, "tokens_per_second_median", speeds[len(speeds) // 2]))
    rows.append(_row(name, commit, machine, command, "tokens", last["tokens"]))
    with new_directory(results / name) as directory:
        shutil.copyfile(folder.recipe_path, directory / "recipe.json")
        thinned = steps[:: max(1, len(steps) // KEPT_LINES)] + evaluations
        thinned.sort(key=lambda record: record["step"])
        lines = (json.dumps(record) for record in thinned)
        (directory / "journal.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        draw_pretraining_curves(
            folder.journal_path, directory / "curves.png", f"{name}: {last['tokens'] / 1e6:.1f} million tokens"
        )
    append_rows(results / TABLE_NAME, rows)
    return rows


def record_finetuning(run: Path, results: Path, name: str, commit: str, machine: str, command: str) -> list[ResultRow]:
    """Keep the scores of a finished fine-tuning run: rows, and its `results.json` as `results/NAME.json`.

    Raises:
        MissingInput, DamagedData: the run has no readable results.
    """
    report: dict[str, Any] = read_json_object(run / "results.json")
    baseline: Mapping[str, float] = report.get("baseline") or {}
    rows = [
        _row(name, commit, machine, command, metric, value, baseline.get(metric, ""))
        for metric, value in report["scores"].items()
        if value is not None
    ]
    write_text(results / f"{name}.json", json.dumps(report, indent=1) + "\n")
    append_rows(results / TABLE_NAME, rows)
    return rows


def append_rows(table: Path, rows: Iterable[ResultRow]) -> None:
    """Add rows to a CSV table, which gets its header with the first."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(ResultRow.__dataclass_fields__), lineterminator="\n")
    old = table.read_text(encoding="utf-8") if table.exists() else ""
    if not old:
        writer.writeheader()
    writer.writerows(asdict(row) for row in rows)
    write_text(table, old + text.getvalue())


def _row(
    name: str, commit: str, machine: str, command: str, figure: str, value: float | int, baseline: float | str = ""
) -> ResultRow:
    return ResultRow(
        date=time.strftime("%Y-%m-%d"),
        run=name,
        commit=commit,
        machine=machine,
        figure=figure,
        value=round(value, 5),
        baseline=round(baseline, 5) if isinstance(baseline, float) else baseline,
        command=command,
    )
