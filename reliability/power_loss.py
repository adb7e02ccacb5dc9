"""Power loss: after each call that changes the disk, every legal state of a disk that lost what was not flushed.

SIGKILL leaves the system's cache alone, so kills cannot show that an `fsync` is missing; this can (see
`disk_model.py`). What was promised before the power went must be there, and what bears a final name must be whole. The
same states are shown to five deliberate defects, of which each must break a promise in one of them.
"""

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from albert.runtime import files as durable_files
from albert.runtime.manifest import MANIFEST_NAME
from reliability.disk_model import Disk
from reliability.durable_calls import unwatch, watch
from reliability.promised_writes import CHECKPOINTS, Promised, Work, works
from reliability.promises import KILL_IT_ANY_TIME
from reliability.small_material import small_material
from reliability.trial import Asked, Outcome, Trial


def run(asked: Asked) -> Outcome:
    """Lose the power everywhere."""
    draws = random.Random(asked.seed)
    material = small_material(asked.folder / "material")
    failures: list[str] = []
    states: Counter[str] = Counter()
    for work in works(material):
        most = max(1, round(asked.count * work.share))
        for number, broken in enumerate(lost(work, asked.folder / work.name, most, draws)):
            states[work.name] += 1
            failures += [f"{work.name}, state {number}: {what}" for what in broken]
            asked.report(1)
    caught = []
    for name, defect in DEFECTS.items():
        place = asked.folder / name.replace(" ", "-")
        with defect():
            found = any(broken for broken in lost(CHECKPOINTS, place, 400, random.Random(asked.seed), True))
        caught += [name] if found else []
        failures += [] if found else [f"the deliberate defect was not noticed: {name}"]
    return Outcome(
        tried=states.total(),
        failed=len(failures),
        what="states of a disk whose power went",
        details={
            "deliberate defects caught": f"{len(caught)} of {len(DEFECTS)}",
            **{f"states of {name}": count for name, count in states.items()},
        },
        failures=tuple(failures),
    )


def lost(work: Work, folder: Path, most: int, draws: random.Random, until_broken: bool = False) -> Iterator[list[str]]:
    """Do work, and judge about `most` of the states in which the power may leave it, or those to the first failure."""
    calls = 0

    def count(*_: str) -> None:
        nonlocal calls
        calls += 1

    rehearsal = folder / "rehearsal"
    rehearsal.mkdir(parents=True)
    with watched(rehearsal, count):
        work.do(rehearsal, Promised())
    place, state = folder / "disk", folder / "state"
    place.mkdir()
    disk, promised = Disk(place), Promised()
    found: list[list[str]] = []
    seen = 0

    def saw(moment: str, name: str, where: str) -> None:
        nonlocal seen
        disk.saw(moment, name, where)
        seen += 1
        wanted = 0 if until_broken and any(found) else round(most * seen / calls) - len(found)
        unwatch()
        for possibility in disk.possible(draws, wanted):
            shutil.rmtree(state, ignore_errors=True)
            possibility.write(state)
            found.append(list(work.broken(state, promised)))  # no lock is held there: the writer is dead
        watch(str(place), saw)

    with watched(place, saw):
        work.do(place, promised)
    yield from found


@contextmanager
def watched(place: Path, watcher: Callable[[str, str, str], None]) -> Iterator[None]:
    """`watch` for a block."""
    watch(str(place), watcher)
    try:
        yield
    finally:
        unwatch()


# ---- deliberate defects --------------------------------------------------------------------------------------------


@contextmanager
def instead(**others: Any) -> Iterator[None]:
    """Give `durable_files` other functions and values."""
    before = {name: getattr(durable_files, name) for name in others}
    try:
        for name, value in others.items():
            setattr(durable_files, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(durable_files, name, value)


_sync_file, _sync_directory = durable_files._sync_file, durable_files._sync_directory
_write_manifest = durable_files._write_manifest


def _name_first(temporary: Path, old: Path, path: Path, replace: bool) -> None:
    temporary.rename(path)
    _write_manifest(path, {})
    _sync_directory(path.parent)


DEFECTS = {
    "no file is flushed": lambda: instead(_sync_file=lambda path: None),
    "the manifest is not flushed": lambda: instead(
        _sync_file=lambda path: None if path.name == MANIFEST_NAME else _sync_file(path)
    ),
    "a new directory's entries are not flushed": lambda: instead(
        _sync_directory=lambda path: None if path.name.startswith(".") else _sync_directory(path)
    ),
    "the parent of a new name is not flushed": lambda: instead(
        _sync_directory=lambda path: _sync_directory(path) if path.name.startswith(".") else None
    ),
    "the name comes before the manifest": lambda: instead(
        _write_manifest=lambda directory, known: None, _put_in_place=_name_first
    ),
}


TRIAL = Trial(
    name="power-loss",
    guarantee=KILL_IT_ANY_TIME,
    counts={"quick": 300, "full": 5000, "soak": 50_000},
    run=run,
)
