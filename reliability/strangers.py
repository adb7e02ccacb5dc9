"""On a stranger's machine, beside strangers' work: other surroundings, containers on one volume, callers, odd files.

One round does all of it: a part of the test-suite under drawn surroundings, two commands that write in one folder and
do not see each other's processes, a server whose callers ask too much, go away or come from elsewhere, and inputs that
wait for ever, lead to themselves, grow when they are read, or changed while the command was away.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from albert.runtime.errors import AlbertError
from albert.runtime.files import FileLock, lock_file
from albert.runtime.manifest import verify_directory
from reliability.killable_runs import fork_server
from reliability.odd_files import odd_files
from reliability.promises import ANY_MACHINE
from reliability.report import CHECKOUT
from reliability.strange_callers import callers
from reliability.trial import FAILURES_TOLD, Asked, Checks, Outcome, Trial

PART = tuple(
    f"tests/{name}.py"
    for name in (
        "cli/test_warm_start",
        "cli/test_verify",
        "cli/test_show",
        "runtime/test_durable_files",
    )
)
"""Of the tests, those that print tables with paths and those that write."""
MODEL = str(CHECKOUT / "models" / "tiny")
IN_A_CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
THREADS = 16


def run(asked: Asked) -> Outcome:
    """All of it, `count` times."""
    draws = random.Random(asked.seed)
    tried, failures, details = 0, [], {}
    forks = fork_server()
    for number in range(asked.count):
        folder = asked.folder / str(number)
        folder.mkdir()
        parts = (
            odd_files(forks, folder / "files", draws),  # first: it forks, and later there were threads
            neighbours(folder / "volume", details, plain=asked.count > 1),
            threads_and_locks(folder / "lock"),
            surroundings(folder, draws, details),
            callers(forks, draws, details),
        )
        for part in parts:
            for what, wrong in part:
                tried += 1
                failures += [f"round {number}, {what}: {wrong}"] if wrong else []
        asked.report(1)
    return Outcome(
        tried=tried,
        failed=len(failures),
        what="checks in other surroundings, beside other containers and callers, and with odd files",
        details={"rounds": asked.count, **details},
        failures=tuple(failures[:FAILURES_TOLD]),
    )


# ---- other surroundings ----------------------------------------------------------------------------------------------


def surroundings(folder: Path, draws: random.Random, details: dict) -> Checks:
    """A part of the tests with an empty home, a temporary folder and a width drawn at random, and the C locale."""
    length, width = draws.randint(1, 30), draws.choice(("unset", str(draws.randint(40, 200))))
    home, temporary = folder / "home", folder / ("t" * length)
    home.mkdir()
    temporary.mkdir()
    around = {"HOME": str(home), "TMPDIR": str(temporary), "LANG": "C", "LC_ALL": "C", "OMP_NUM_THREADS": "1"}
    around |= {} if width == "unset" else {"COLUMNS": width}
    foreign = ("COLUMNS", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "PYTEST_ADDOPTS")
    drawn = f"TMPDIR={temporary} COLUMNS={width} LANG=C"
    print(f"strangers: tests with {drawn}", flush=True)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PART]
    environment = {name: value for name, value in os.environ.items() if name not in foreign} | around
    done = subprocess.run(words, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False)
    passed = re.search(r"(\d+) passed", done.stdout)
    details["tests passed"] = details.get("tests passed", 0) + (int(passed[1]) if passed else 0)
    failed = " ".join(re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)) or done.stderr[-300:]
    yield f"tests with {drawn}", "" if done.returncode == 0 and passed else failed[:600] or done.stdout[-300:]


# ---- containers on one volume ----------------------------------------------------------------------------------------


def neighbours(folder: Path, details: dict, plain: bool = True) -> Checks:
    """One command stands still in the middle of its writing while another, which cannot see it, writes beside it.

    Args:
        folder: where they write.
        details: gets whether containers were tried.
        plain: whether processes are tried that see each other, also where there may be containers.
    """
    permitted = (
        shutil.which("unshare") and not subprocess.run([*IN_A_CONTAINER, "true"], capture_output=True).returncode
    )
    details["containers"] = "tried" if permitted else "not tried: this user may not make name spaces"
    plain = plain or not permitted
    pairs = [("processes", ())] * plain + [("containers", IN_A_CONTAINER)] * bool(permitted)
    for name, before in pairs:
        place = folder / name
        foreign = place / ".second.tmp-999999999-0123abcd"  # as written elsewhere, where there are no locks
        foreign.mkdir(parents=True)
        yield f"two {name} that write in one folder", "; ".join(_what_neighbours_did(place, before, foreign))


def _what_neighbours_did(place: Path, before: tuple[str, ...], foreign: Path) -> Iterator[str]:
    first = _converting(place / "first", before)
    try:
        while first.poll() is None and not any(name.startswith(".first.tmp-") for name in os.listdir(place)):
            time.sleep(0.001)
        found = list(place.glob(".first.tmp-*"))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGSTOP)
        if not found:
            yield f"the first was never seen to write: {_said(first)}"
            return
        begun = {path.name for path in found[0].iterdir()}
        second = _converting(place / "second", before)
        if said := _said(second):
            yield f"the second: {said}"
        if not found[0].is_dir() or begun - {path.name for path in found[0].iterdir()}:
            yield "the second removed what the first was writing"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGCONT)
        said = _said(first)
    if said:
        yield f"the first: {said}"
    for name in ("first", "second"):
        try:
            verify_directory(place / name)
        except AlbertError as error:
            yield str(error)
    left = {path.name for path in place.iterdir()} - {"first", "second"}
    if left != {foreign.name}:
        yield f"there should be nothing left but {foreign.name}, there is {sorted(left)}"


def _converting(output: Path, before: tuple[str, ...]) -> "subprocess.Popen[str]":
    words = [*before, sys.executable, "-m", "albert", "convert", MODEL, "--output", str(output)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, cwd=CHECKOUT, env=environment, start_new_session=True, **streams)


def _said(process: "subprocess.Popen[str]") -> str:
    """Nothing where it ends well."""
    _, told = process.communicate(timeout=300)
    return "" if process.returncode == 0 else f"exit code {process.returncode}: {told[-300:]!r}"


def threads_and_locks(path: Path) -> Checks:
    """Threads that want a lock at the same moment: one gets it."""
    got: list[FileLock | None] = []
    together = threading.Barrier(THREADS)

    def take() -> None:
        together.wait()
        got.append(lock_file(path))

    threads = [threading.Thread(target=take) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    locks = [lock for lock in got if lock]
    for lock in locks:
        lock.remove()
    yield f"{THREADS} threads that want one lock", "" if len(locks) == 1 else f"{len(locks)} of them got it"


TRIAL = Trial("strangers", ANY_MACHINE, {"quick": 1, "full": 4, "soak": 40}, run)
