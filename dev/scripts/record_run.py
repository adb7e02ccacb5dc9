"""Record the results of a finished run.

    python dev/scripts/record_run.py --run RUN --name NAME --command "albert pretrain …"

Writes rows to results/results.csv and the run's recipe, thinned journal and curves to results/NAME.
"""

import csv
import io
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albert.cli.command_line import parse
from albert.cli.main import run
from albert.report.curves import read_runs
from albert.report.pictures import draw_runs
from albert.runtime.devices import describe_machine
from albert.runtime.errors import MissingInput
from albert.runtime.files import new_directory, write_text
from albert.runtime.json_files import read_journal, read_json_object
from albert.training.run_folder import RunFolder

TABLE_NAME = "results.csv"
KEPT_LINES = 250
"""Training lines kept of a journal; all evaluations are kept."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """Record the results of a finished run.

    Example: python dev/scripts/record_run.py --run runs/small --name small-en --command "albert pretrain small"
    """

    run: Path
    """The finished run."""
    name: str
    """Its name in the table and of its folder."""
    command: str
    """The command of the run."""
    commit: str | None = None
    """The commit of the run; None: the current one."""
    results: Path = Path("results")


def main(arguments: list[str]) -> None:
    """Record one run."""
    args = parse(Record, arguments, "record_run.py")
    commit = args.commit or subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    machine = describe_machine()
    machine_name = f"{machine['processor']}, {machine['cores']} cores, torch {machine['torch']}"
    is_finetuned = "scores" in read_json_object(args.run / "results.json")
    record = record_finetuning if is_finetuned else record_pretraining
    for row in record(args.run, args.results, args.name, commit, machine_name, args.command):
        print(f"{row.figure}: {row.value}" + (f" (constant answer {row.baseline})" if row.baseline != "" else ""))


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
    """The score of a constant answer on the same data, if there is one."""
    command: str = ""


def record_pretraining(run: Path, results: Path, name: str, commit: str, machine: str, command: str) -> list[ResultRow]:
    """Record a finished pre-training run: `results/NAME/` and rows for its last evaluation and its throughput.

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
        thin_journal = steps[:: max(1, len(steps) // KEPT_LINES)] + evaluations
        thin_journal.sort(key=lambda record: record["step"])
        lines = (json.dumps(record) for record in thin_journal)
        (directory / "journal.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        draw_runs(read_runs([run]), directory / "curves.png", "tokens")
    append_rows(results / TABLE_NAME, rows)
    return rows


def record_finetuning(run: Path, results: Path, name: str, commit: str, machine: str, command: str) -> list[ResultRow]:
    """Record the scores of a finished fine-tuning run: rows, and its `results.json` as `results/NAME.json`.

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
    report.pop("errors", None)  # texts of other people
    write_text(results / f"{name}.json", json.dumps(report, indent=1) + "\n")
    append_rows(results / TABLE_NAME, rows)
    return rows


def append_rows(table: Path, rows: Iterable[ResultRow]) -> None:
    """Add rows to a CSV table; a new table gets a header."""
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


if __name__ == "__main__":
    sys.exit(run(command=main))
