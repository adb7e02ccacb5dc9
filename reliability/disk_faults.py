"""Crashes and errors at every call that changes the disk, in pre-training, preparation and fine-tuning; full disks.

A first process does the work and writes down its calls (see durable_calls.py). Then a process does the same work and
meets a fault at one of them. What lies under a final name must be whole; the same command must then end with the bytes
of the undisturbed work, and leave nothing behind.
"""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from reliability.durable_calls import NOT_COUNTED, Fault, Moment
from reliability.material import SAVES, Material, differences, sums
from reliability.report import FULL_DISKS_ARE_SAID, KILL_IT_ANY_TIME
from reliability.runs import ForkServer, Run, damages, fork_server, output_of
from reliability.trials import Tries, trial

FINISHED = "out.unfinished"
"""Beside a corpus that became whole in the very last moment, the work that it was made of; for a user to remove."""
_WITH_A_CLOCK = {"journal.jsonl", "README.md", "MANIFEST.json", "training_state.json", ".lock", "results.json"}
_CLOCK = re.compile(r'"(seconds|time|[a-z]+_per_second)": [0-9.e+-]+')


@dataclass(frozen=True)
class Work:
    """A command that makes something."""

    name: str
    words: Callable[[Path], list[str]]  # for an output
    calls: list[str]  # by which the undisturbed work changed the disk
    expected: dict[str, str]  # what it left

    def meets(
        self, server: ForkServer, fault: Fault, place: Path, judged: Callable[[Run, Path], Iterable[str]]
    ) -> Iterator[str]:
        """The first thing that is wrong after a fault."""
        place.parent.mkdir(parents=True)
        words = self.words(place)
        hurt = server.start(words, fault=fault)
        hurt.finish()
        wrong = [*judged(hurt, place)] or [*goes_on(server, words, place, self.expected)]
        told = f"{self.name}, {fault.what} {fault.moment} call {fault.number} ({self.calls[fault.number]})"
        yield from (f"{told}: {what}" for what in wrong[:1])


def rehearsed(folder: Path, material: Material, server: ForkServer) -> list[Work]:
    """What is done, once undisturbed."""
    model = folder / "first" / "model"
    server.finished(material.pretrain(model.parent, SAVES), model.parent)
    works = []
    for name, words in (
        ("pretrain", lambda output: material.pretrain(output, SAVES)),
        ("prepare", material.prepare),
        ("finetune", lambda output: material.finetune(model, output)),
    ):
        whole, log = folder / name / "out", folder / f"{name}.calls"
        server.finished(words(whole), whole, Fault(below=str(whole.parent), log=str(log)))
        works.append(Work(name, words, log.read_text().splitlines(), contents(whole)))
    return works


def goes_on(server: ForkServer, words: list[str], place: Path, expected: dict[str, str]) -> Iterator[str]:
    """What the same command leaves otherwise than the undisturbed work; a corpus that is whole is refused, not made."""
    again = server.start(words)
    if again.finish() != 0 and "exists already" not in again.printed:
        yield f"when it went on, {again.ending}"
    elif different := differences(expected, contents(place)):
        yield f"differs from the undisturbed work in {', '.join(different[:4])}"
    hidden = [path for path in place.parent.rglob(".*") if path.name != ".lock" and FINISHED not in path.parts]
    if hidden:
        yield f"left behind: {', '.join(path.name for path in hidden)}"


def contents(output: Path) -> dict[str, str]:
    """What work leaves, without what its clock said."""
    found = sums(output, lambda name: Path(name).name not in _WITH_A_CLOCK and NOT_COUNTED not in Path(name).parts)
    for path in output.rglob("results.json"):
        found[path.relative_to(output).as_posix()] = _CLOCK.sub("", path.read_text(encoding="utf-8"))
    return found


# ---- crashes ---------------------------------------------------------------------------------------------------------


@trial(KILL_IT_ANY_TIME, "crashes before and after the calls that change the disk", 3, 600, 4000)
def crash_points(tries: Tries) -> None:
    """Die before and after every call; of more points than are asked for, at those spread evenly over all."""
    server = fork_server()
    works = rehearsed(tries.folder, Material(tries.folder / "material"), server)
    points: list[tuple[Work, int, Moment]]
    points = [(work, n, moment) for work in works for n in range(len(work.calls)) for moment in ("before", "after")]
    tries.details["points there are"] = len(points)
    for place in sorted({i * len(points) // tries.count for i in range(tries.count)}):
        work, number, moment = points[place]
        output = tries.folder / "crashed" / str(place) / "out"
        fault = Fault(below=str(output.parent), number=number, moment=moment)
        tries.record(work.meets(server, fault, output, wrong_after_a_crash), f"crashes of {work.name}")


def wrong_after_a_crash(died: Run, place: Path) -> Iterator[str]:
    """What breaks the promise about a process that was killed at a call."""
    if died.code != -9:
        yield f"did not die there, {died.ending}"
    yield from damages(place)


# ---- full and broken disks -------------------------------------------------------------------------------------------

MAKES = ("mkdir", "open", "rename", "replace", "link")
"""What a file system that is mounted to be read refuses."""
SAID = "albert: error: "
IN_WRITING, NOT_CREATABLE = 74, 73
KILOBYTES = 16_000
"""Of the small disk."""
ON_A_SMALL_DISK = 0.25
"""The share of the tries that are made there."""


@trial(FULL_DISKS_ARE_SAID, "errors of a disk that met a run, a preparation or a fine-tuning", 4, 400, 4000)
def broken_disks(tries: Tries) -> None:
    """The system's own errors at calls drawn at random, then a small disk that fills up.

    ENOSPC and EIO in any call, EROFS where something is made, a write that takes half of its bytes. On a file system of
    some kilobytes, mounted where the machine permits, writes fail as they do in life, those of libraries in C and Rust
    included. Each must end in one line and exit code 74 or 73, or need no word because what was made is whole.
    """
    draws = random.Random(tries.seed)
    material, server = Material(tries.folder / "material"), fork_server()
    works = rehearsed(tries.folder, material, server)
    calls = [(work, number, call) for work in works for number, call in enumerate(work.calls)]
    on_small = round(tries.count * ON_A_SMALL_DISK)
    for number in range(tries.count - on_small):
        work, call, told = draws.choice(calls)
        what = draws.choice(faults(told.split()[0]))
        place = tries.folder / "broken" / str(number) / "out"
        fault = Fault(below=str(place.parent), number=call, what=what)
        tries.record(work.meets(server, fault, place, what_is_wrong), what)
    told = fill_small_disks(tries, material, on_small, draws)
    tries.details["a small disk"] = f"{on_small} times" if told == "tried" else told


def faults(call: str) -> tuple[str, ...]:
    """What can befall a call."""
    if call == "write":
        return ("ENOSPC", "EIO", "short")
    return ("ENOSPC", "EIO", "EROFS") if call in MAKES else ("EIO",)


def what_is_wrong(hurt: Run, place: Path) -> Iterator[str]:
    """What breaks the promise about a process that met an error."""
    code, printed = hurt.finish(), hurt.printed
    said = printed.count(SAID)
    if code not in (0, IN_WRITING, NOT_CREATABLE):
        yield f"exit code {code}: {printed[-200:]!r}"
    if said != (code != 0) or "Traceback" in printed:
        yield f"{said} lines of error: {printed[-300:]!r}"
    yield from (f"damaged: {damage}" for damage in damages(place))


def fill_small_disks(tries: Tries, material: Material, count: int, draws: random.Random) -> str:
    """Leave pre-training less room than it needs, in a name space with a small disk; "tried", or why it was not."""
    if count == 0:
        return "not asked for"
    if shutil.which("unshare") is None:
        return "not tried: there is no unshare"
    folder, disk = tries.folder / "small", tries.folder / "small" / "disk"
    disk.mkdir(parents=True)
    mount = f'mount -t tmpfs -o size={KILOBYTES}k none "$0" && exec "$@"'
    small = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(disk)]
    mounted = subprocess.run([*small, "true"], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        return f"not tried: {(mounted.stderr.strip().splitlines() or ['no reason was given'])[-1][:200]}"
    server = ForkServer(folder, small)
    words = material.pretrain(folder / "out", SAVES)  # the file of the recipe lies outside of the small disk
    words[words.index(str(output_of(words)))] = str(disk / "out")
    server.finished(words, folder / "out")
    place = server.root / disk.relative_to("/") / "out"  # the disk, which only the server and its children see
    expected, empty = contents(place), room(place.parent)
    shutil.rmtree(place)
    needed = room(place.parent) - empty
    for _ in range(count):
        left, filler = draws.randrange(needed), place.with_name("filler")
        filler.write_bytes(bytes(room(place.parent) - left))
        wrong = list(what_is_wrong(server.start(words), place))
        filler.unlink()
        wrong = wrong or list(goes_on(server, words, place, expected))
        tries.record(f"pretrain with {left:,} of {needed:,} bytes: {each}" for each in wrong[:1])
        shutil.rmtree(place, ignore_errors=True)
    server.close()
    return "tried"


def room(disk: Path) -> int:
    """Bytes that are free."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize
