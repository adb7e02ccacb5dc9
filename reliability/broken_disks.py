"""Full and broken disks: an error at any call that changes the disk, writes cut short, and a small disk that fills up.

The errors are the system's own: ENOSPC and EIO in any call, EROFS where something is made, a write that takes half of
its bytes. On a file system of some kilobytes, mounted where the machine permits, writes fail as they do in life, those
of libraries in C and Rust included. Each must end in one line and exit code 74 or 73, or need no word because what was
made is whole; what was whole before stays so; and with room again the same command ends with the same bytes.
"""

import itertools
import os
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from reliability.crash_points import SAVES, Work, contents, damages, finished, goes_on, works
from reliability.durable_calls import Fault
from reliability.killable_runs import ForkServer, Run, fork_server
from reliability.promises import FULL_DISKS_ARE_SAID
from reliability.small_material import Material, small_material
from reliability.trial import Asked, Outcome, Trial

MAKES = ("mkdir", "open", "rename", "replace", "link")
"""What a file system that is mounted to be read refuses."""
SAID = "albert: error: "
IN_WRITING, NOT_CREATABLE = 74, 73
KILOBYTES = 16_000
"""Of the small disk."""
ON_A_SMALL_DISK = 0.25
"""The share of the tries that are made there."""


def run(asked: Asked) -> Outcome:
    """Break calls drawn at random, then fill a small disk."""
    draws = random.Random(asked.seed)
    material = small_material(asked.folder / "material")
    server = fork_server()
    model = finished(server, material.pretrain(asked.folder / "first", SAVES), asked.folder / "first") / "model"
    calls: list[tuple[Work, int, str]] = []
    expected: dict[str, dict[str, str]] = {}
    for work in works(material, model):
        whole, log = asked.folder / work.name / "out", asked.folder / f"{work.name}.calls"
        finished(server, work.words(whole), whole, Fault(below=str(whole.parent), log=str(log)))
        expected[work.name] = contents(whole)
        calls += [(work, number, call) for number, call in enumerate(log.read_text().splitlines())]
    on_small = round(asked.count * ON_A_SMALL_DISK)
    met: Counter[str] = Counter()
    failures: list[str] = []
    for number in range(asked.count - on_small):
        work, call, told = draws.choice(calls)
        what = draws.choice(faults(told.split()[0]))
        place = asked.folder / "broken" / str(number) / "out"
        place.parent.mkdir(parents=True)
        words = work.words(place)
        hurt = server.start(words, fault=Fault(below=str(place.parent), number=call, what=what))
        wrong = itertools.chain(what_is_wrong(hurt, place), goes_on(server, words, place, expected[work.name]))
        failures += [f"{work.name}, {what} at call {call} ({told}): {each}" for each in itertools.islice(wrong, 1)]
        met[what] += 1
        asked.report(1)
    small, told = fill_small_disks(asked.folder / "small", material, on_small, draws)
    failures += small
    asked.report(on_small)
    return Outcome(
        tried=met.total() + (on_small if told == "tried" else 0),
        failed=len(failures),
        what="errors of a disk that met a run, a preparation or a fine-tuning",
        details={"a small disk": f"{on_small} times" if told == "tried" else told, **dict(sorted(met.items()))},
        failures=tuple(failures),
    )


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


def fill_small_disks(folder: Path, material: Material, count: int, draws: random.Random) -> tuple[list[str], str]:
    """Leave pre-training less room than it needs, in a name space with a small disk; failures, "tried" or why not."""
    if count == 0:
        return [], "not asked for"
    if shutil.which("unshare") is None:
        return [], "not tried: there is no unshare"
    disk = folder / "disk"
    disk.mkdir(parents=True)
    mount = f'mount -t tmpfs -o size={KILOBYTES}k none "$0" && exec "$@"'
    small = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(disk)]
    mounted = subprocess.run([*small, "true"], capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        return [], f"not tried: {(mounted.stderr.strip().splitlines() or ['no reason was given'])[-1][:200]}"
    server = ForkServer(folder, small)
    words = material.pretrain(folder / "out", SAVES)  # the file of the recipe lies outside of the small disk
    words[words.index("--output") + 1] = str(disk / "out")
    whole = server.start(words)
    if whole.finish() != 0:
        raise RuntimeError(whole.printed)
    place = server.root / disk.relative_to("/") / "out"  # the disk, which only the server and its children see
    expected, empty = contents(place), room(place.parent)
    shutil.rmtree(place)
    needed = room(place.parent) - empty
    failures: list[str] = []
    for _ in range(count):
        left, filler = draws.randrange(needed), place.with_name("filler")
        filler.write_bytes(bytes(room(place.parent) - left))
        hurt = list(what_is_wrong(server.start(words), place))
        filler.unlink()
        wrong = hurt or list(goes_on(server, words, place, expected))
        failures += [f"pretrain with {left:,} of {needed:,} bytes: {each}" for each in wrong[:1]]
        shutil.rmtree(place, ignore_errors=True)
    server.close()
    return failures, "tried"


def room(disk: Path) -> int:
    """Bytes that are free."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


TRIAL = Trial(
    name="broken-disks",
    guarantee=FULL_DISKS_ARE_SAID,
    counts={"quick": 4, "full": 400, "soak": 4000},
    run=run,
)
