"""Rows of a benchmark's CSV: where and when it was measured comes first, and what was measured before stays."""

import csv
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from albert.runtime.devices import describe_machine

CIRCUMSTANCES = ("date", "commit", "machine")


def circumstances() -> dict[str, str]:
    """The day, the checkout's commit ("unknown" outside of one), and processor or GPU with threads and torch."""
    machine = describe_machine()
    place = machine.get("gpu", machine["processor"])
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "machine": f"{place}, {machine['threads']} threads, torch {machine['torch']}",
    }


def append_rows(
    path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, object]], same: Sequence[str] = ()
) -> None:
    """Add rows under the circumstances of now; columns that older rows lack stay empty in them.

    Args:
        path: the table, made where there is none.
        columns: behind the circumstances.
        rows: by column.
        same: columns that say what a row is of. A new row takes the place of an older one of the same, which stays
            where nothing in it has changed; none: every row is added.
    """
    older: list[dict[str, str]] = []
    if path.exists():
        with open(path, newline="", encoding="utf-8") as file:
            older = list(csv.DictReader(file))
    here = circumstances()
    for row in rows:
        told = {name: str(row.get(name, "")) for name in columns}
        if any(all(old.get(name) == told[name] for name in columns) for old in older) and same:
            continue
        if same:
            older = [old for old in older if any(old.get(name) != told[name] for name in same)]
        older.append({**here, **told})
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*CIRCUMSTANCES, *columns], restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(older)


def _commit() -> str:
    asked = ["git", "rev-parse", "--short", "HEAD"]
    try:
        done = subprocess.run(asked, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"
