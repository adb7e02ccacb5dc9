"""What the journal of a run tells a table: how far it is, and how long it took."""

import json
from collections.abc import Iterator
from pathlib import Path

from albert.runtime.journal import read_journal
from albert.training.run_folder import RunFolder

_TAIL_BYTES = 1 << 14


def hours_of(run: RunFolder) -> float | None:
    """Hours that a run which has ended has trained; None: it has not."""
    ends = (
        [one for one in read_journal(run.journal_path) if one["event"] == "end"] if run.journal_path.is_file() else []
    )
    return ends[-1]["seconds"] / 3600 if ends else None


def last_step(run: RunFolder) -> int:
    """The last update that a run's journal tells of, read from its end: a bar asks for it every few seconds."""
    return next((record["step"] for record in _last_records(run.journal_path) if "step" in record), 0)


def _last_records(journal: Path) -> Iterator[dict]:
    """Events from the newest on; a line that is just being written is passed over."""
    if not journal.is_file():
        return
    with open(journal, "rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _TAIL_BYTES))
        lines = file.read().split(b"\n")
    for line in reversed(lines[:-1] if size <= _TAIL_BYTES else lines[1:-1]):
        yield json.loads(line)
