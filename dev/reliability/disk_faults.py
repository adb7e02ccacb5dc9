"""Crashes and errors at every call that changes the disk, in pre-training, preparation and fine-tuning; full disks.

A first process runs a command and logs its calls (see durable_calls.py). Then the command is run with a fault at one
of them. No final directory may be incomplete, and the same command must then give the expected bytes and leave no
temporary files."""

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dev.reliability.durable_calls import NOT_COUNTED, Fault, Moment
from dev.reliability.material import SAVES, Material, differences, sums
from dev.reliability.report import FULL_DISKS, KILL_IT_ANY_TIME
from dev.reliability.runs import BEFORE_FORKS, ForkServer, Run, find_damage, fork_server, output_of
from dev.reliability.trials import Tries, trial

FINISHED = "out.unfinished"
"""Work files beside a corpus that was completed just before the crash; a user may remove them."""
_WITH_TIMINGS = {"journal.jsonl", "README.md", "MANIFEST.json", "training_state.json", ".lock", "results.json"}
_TIMING = re.compile(r'"(seconds|time|[a-z]+_per_second)": [0-9.e+-]+')


@dataclass(frozen=True)
class Work:
    """A command to disturb."""

    name: str
    words: Callable[[Path], list[str]]  # for an output path
    calls: list[str]  # that change the disk, if undisturbed
    expected: dict[str, str]  # the files of an undisturbed run

    def disturb(
        self, server: ForkServer, fault: Fault, output: Path, check: Callable[[Run, Path], Iterable[str]]
    ) -> Iterator[str]:
        """Run the command with a fault, then again; yields the first failure."""
        output.parent.mkdir(parents=True)
        words = self.words(output)
        run = server.start(words, fault=fault)
        run.finish()
        failures = [*check(run, output)] or [*check_second_run(server, words, output, self.expected)]
        described = f"{self.name}, {fault.what} {fault.moment} call {fault.number} ({self.calls[fault.number]})"
        yield from (f"{described}: {failure}" for failure in failures[:1])


def undisturbed(folder: Path, material: Material, server: ForkServer) -> list[Work]:
    """The commands, after one undisturbed run of each."""
    model = folder / "first" / "model"
    server.run_to_end(material.pretrain(model.parent, SAVES), model.parent)
    works = []
    for name, words in (
        ("pretrain", lambda output: material.pretrain(output, SAVES)),
        ("prepare", material.prepare),
        ("finetune", lambda output: material.finetune(model, output)),
    ):
        output, log = folder / name / "out", folder / f"{name}.calls"
        server.run_to_end(words(output), output, Fault(below=str(output.parent), log=str(log)))
        works.append(Work(name, words, log.read_text().splitlines(), contents(output)))
    return works


def check_second_run(server: ForkServer, words: list[str], output: Path, expected: dict[str, str]) -> Iterator[str]:
    """Run the command again and compare its files; a corpus that is complete already is refused."""
    again = server.start(words)
    if again.finish() != 0 and "exists already" not in again.printed:
        yield f"run again, {again.ending}"
    elif different := differences(expected, contents(output)):
        yield f"differs from the undisturbed run in {', '.join(different[:4])}"
    hidden = [path for path in output.parent.rglob(".*") if path.name != ".lock" and FINISHED not in path.parts]
    if hidden:
        yield f"left behind: {', '.join(path.name for path in hidden)}"


def contents(output: Path) -> dict[str, str]:
    """The files of an output, without timings."""
    hashes = sums(output, lambda name: Path(name).name not in _WITH_TIMINGS and NOT_COUNTED not in Path(name).parts)
    for path in output.rglob("results.json"):
        hashes[path.relative_to(output).as_posix()] = _TIMING.sub("", path.read_text(encoding="utf-8"))
    return hashes


# ---- crashes ---------------------------------------------------------------------------------------------------------


@trial(KILL_IT_ANY_TIME, "crashes before and after the calls that change the disk", 3, 600, 4000)
def crash_points(tries: Tries) -> None:
    """Crash before and after calls, evenly spread over all calls."""
    server = fork_server()
    works = undisturbed(tries.folder, Material(tries.folder / "material"), server)
    points: list[tuple[Work, int, Moment]]
    points = [(work, n, moment) for work in works for n in range(len(work.calls)) for moment in ("before", "after")]
    tries.details["points there are"] = len(points)
    for index in sorted({i * len(points) // tries.count for i in range(tries.count)}):
        work, number, moment = points[index]
        output = tries.folder / "crashed" / str(index) / "out"
        fault = Fault(below=str(output.parent), number=number, moment=moment)
        tries.record(work.disturb(server, fault, output, check_crash), f"crashes of {work.name}")


def check_crash(run: Run, output: Path) -> Iterator[str]:
    """Failures of a process that was killed at a call."""
    if run.code != -9:
        yield f"was not killed there, {run.ending}"
    yield from find_damage(output)


# ---- full and broken disks -------------------------------------------------------------------------------------------

MAKES = ("mkdir", "open", "rename", "replace", "link")
"""Calls that a read-only file system refuses."""
ERROR_PREFIX = "albert: error: "
WRITE_ERROR, CANNOT_CREATE = 74, 73
KILOBYTES = 16_000
"""The size of the small disk."""
ON_A_SMALL_DISK = 0.25
"""The share of tries on the small disk."""


@trial(FULL_DISKS, "disk errors during pre-training, preparation or fine-tuning", 4, 400, 4000)
def broken_disks(tries: Tries) -> None:
    """Errors of the system at random calls, then a small disk that fills up.

    ENOSPC and EIO in any call, EROFS where something is created, and writes of half of the bytes. On a file system of
    some kilobytes, mounted if the machine permits it, writes of C and Rust libraries fail too. Each command must end
    with one line and exit code 74 or 73, or succeed with complete outputs.
    """
    rng = random.Random(tries.seed)
    material, server = Material(tries.folder / "material"), fork_server()
    works = undisturbed(tries.folder, material, server)
    calls = [(work, number, call) for work in works for number, call in enumerate(work.calls)]
    on_small = round(tries.count * ON_A_SMALL_DISK)
    for number in range(tries.count - on_small):
        work, call, logged = rng.choice(calls)
        what = rng.choice(faults(logged.split()[0]))
        output = tries.folder / "broken" / str(number) / "out"
        fault = Fault(below=str(output.parent), number=call, what=what)
        tries.record(work.disturb(server, fault, output, check_error), what)
    status = fill_small_disks(tries, material, on_small, rng)
    tries.details["a small disk"] = f"{on_small} times" if status == "tried" else status


def faults(call: str) -> tuple[str, ...]:
    """Errors that a call can have."""
    if call == "write":
        return ("ENOSPC", "EIO", "short")
    return ("ENOSPC", "EIO", "EROFS") if call in MAKES else ("EIO",)


def check_error(run: Run, output: Path) -> Iterator[str]:
    """Failures of a process that had an error of the disk."""
    code, printed = run.finish(), run.printed
    lines = printed.count(ERROR_PREFIX)
    if code not in (0, WRITE_ERROR, CANNOT_CREATE):
        yield f"exit code {code}: {printed[-200:]!r}"
    if lines != (code != 0) or "Traceback" in printed:
        yield f"{lines} lines of error: {printed[-300:]!r}"
    yield from (f"damaged: {damage}" for damage in find_damage(output))


def fill_small_disks(tries: Tries, material: Material, count: int, rng: random.Random) -> str:
    """Pre-train on a small disk in a mount namespace, with less space than needed; "tried", or why not."""
    if count == 0:
        return "not requested"
    if shutil.which("unshare") is None:
        return "not tried: there is no unshare"
    folder, disk = tries.folder / "small", tries.folder / "small" / "disk"
    disk.mkdir(parents=True)
    mount = f'mount -t tmpfs -o size={KILOBYTES}k none "$0" && exec "$@"'
    small = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(disk)]
    mounted = subprocess.run([*small, "true"], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        return f"not tried: {(mounted.stderr.strip().splitlines() or ['no reason was given'])[-1][:200]}"
    # Its own server, which imports no more than pre-training needs, because that takes longer than a run.
    server = ForkServer(folder, small, ["albert.commands.pretrain", "torch._dynamo", *BEFORE_FORKS[1:]])
    words = material.pretrain(folder / "out", SAVES)  # the recipe file is not on the small disk
    words[words.index(str(output_of(words)))] = str(disk / "out")
    server.run_to_end(words, folder / "out")
    output = server.root / disk.relative_to("/") / "out"  # only the server and its children see the disk
    expected, free = contents(output), free_bytes(output.parent)
    shutil.rmtree(output)
    needed = free_bytes(output.parent) - free
    for _ in range(count):
        left, filler = rng.randrange(needed), output.with_name("filler")
        filler.write_bytes(bytes(free_bytes(output.parent) - left))
        failures = list(check_error(server.start(words), output))
        filler.unlink()
        failures = failures or list(check_second_run(server, words, output, expected))
        tries.record(f"pretrain with {left:,} of {needed:,} bytes: {failure}" for failure in failures[:1])
        shutil.rmtree(output, ignore_errors=True)
    server.close()
    return "tried"


def free_bytes(disk: Path) -> int:
    """The free bytes of a file system."""
    status = os.statvfs(disk)
    return status.f_bavail * status.f_frsize
