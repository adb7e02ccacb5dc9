"""The table of docs/promises.md, written from a report: each promise, what was tried against it, and what failed."""

import re
from pathlib import Path

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.files import write_text
from reliability.promises import IN_ORDER
from reliability.report import Entry, Report

MARKER = "<!-- guarantees -->"
_BETWEEN = re.compile(f"(?<={re.escape(MARKER)}\n).*?(?=^{re.escape(MARKER)}$)", re.DOTALL | re.MULTILINE)


def table_of(report: Report) -> str:
    """The table and a line of where it comes from, in Markdown.

    Promises come in the order of promises.py; the trials of one promise stand below each other.
    """
    order = {promise: place for place, promise in enumerate(IN_ORDER)}
    entries = sorted(report.trials, key=lambda entry: (order.get(entry.guarantee, len(order)), entry.name))
    rows = ["| promise | tried | failed |", "|---|---|---|"]
    shown = ""
    for entry in entries:
        promise = "" if entry.guarantee == shown else entry.guarantee
        shown = entry.guarantee
        rows.append(f"| {_cell(promise)} | {entry.tried:,} {_cell(entry.what)} | {entry.failed:,} |")
    return "\n".join([*rows, "", _origin(report, entries)]) + "\n"


def write_table(page: Path, report: Report) -> None:
    """Put the table between the two markers of a page.

    Raises:
        InvalidConfiguration: the two markers are not there.
    """
    text = page.read_text(encoding="utf-8")
    write_text(page, text[: (place := _place(page, text)).start()] + table_of(report) + text[place.end() :])


def written_table(page: Path) -> str:
    """What stands between the markers.

    Raises:
        InvalidConfiguration: the two markers are not there.
    """
    return _place(page, page.read_text(encoding="utf-8"))[0]


def _place(page: Path, text: str) -> re.Match[str]:
    found = _BETWEEN.search(text)
    if found is None:
        raise InvalidConfiguration(page, f"has no two lines {MARKER}", "put them where the table is to stand")
    return found


def _origin(report: Report, entries: list[Entry]) -> str:
    commits = sorted({entry.commit for entry in entries})
    days = sorted({entry.date for entry in entries})
    seconds: dict[str, float] = {}
    for entry in entries:
        processor = entry.processor or str(report.machine["processor"])
        seconds[processor] = seconds.get(processor, 0.0) + entry.seconds
    spent = ", ".join(f"{round(each / 60):,} minutes of {processor}" for processor, each in sorted(seconds.items()))
    return (
        f"`make reliability` (lane {report.lane}, seed {report.seed}), {' to '.join(sorted({days[0], days[-1]}))}, "
        f"commit{'s' if len(commits) > 1 else ''} {', '.join(commits)}, {spent}."
        if entries
        else "Nothing was tried."
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
