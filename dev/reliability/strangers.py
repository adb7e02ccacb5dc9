"""Other environments: tests with random settings, containers on one volume, demanding callers of a server.

One round runs a part of the test suite in a random environment, two commands that write to one folder without seeing
each other's processes, a server whose callers send the largest requests or disconnect, and a text that grows when it is
normalised."""

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from dev.reliability.material import Material
from dev.reliability.report import ANY_MACHINE, CHECKOUT
from dev.reliability.runs import fork_server, fresh_process
from dev.reliability.trials import Tries, trial

from albert.runtime.errors import AlbertError
from albert.runtime.manifest import verify_directory

MODEL = str(CHECKOUT / "models" / "tiny")
Checks = Iterator[tuple[str, str]]
"""Pairs of a description and an error, empty if there is none."""


@trial(ANY_MACHINE, "checks in other environments, beside other containers and callers", 1, 4, 40)
def strangers(tries: Tries) -> None:
    """Run `count` rounds."""
    draws = random.Random(tries.seed)
    material = Material(tries.folder / "material")
    tries.details["rounds"] = tries.count
    for number in range(tries.count):
        folder = tries.folder / str(number)
        folder.mkdir()
        for part in (
            growing_text(folder, material),
            neighbours(folder / "volume", tries, plain=tries.count > 1),
            surroundings(folder, draws, tries),
            callers(draws, tries),
        ):
            for what, wrong in part:
                tries.record([f"round {number}, {what}: {wrong}"] if wrong else [], done=0)
        tries.report(1)


# ---- environments ----------------------------------------------------------------------------------------------------

PART = (
    *("tests/cli/test_warm_start.py", "tests/cli/test_info_verify.py", "tests/cli/test_info_samples.py"),
    "tests/runtime/test_durable_files.py",
)
"""Tests that print tables with paths, and tests that write files."""


def surroundings(folder: Path, draws: random.Random, tries: Tries) -> Checks:
    """A part of the tests with an empty home, a random temporary folder and terminal width, and the C locale."""
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
    tries.add("tests passed", int(passed[1]) if passed else 0)
    failed = " ".join(re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)) or done.stderr[-300:]
    yield f"tests with {drawn}", "" if done.returncode == 0 and passed else failed[:600] or done.stdout[-300:]


# ---- containers on one volume ----------------------------------------------------------------------------------------

IN_A_CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")


def neighbours(folder: Path, tries: Tries, plain: bool = True) -> Checks:
    """One command is stopped while it writes, and another one, in another container, writes to the same folder.

    If containers are permitted, plain processes are tried only if `plain`.
    """
    permitted = (
        shutil.which("unshare") and not subprocess.run([*IN_A_CONTAINER, "true"], capture_output=True).returncode
    )
    tries.details["containers"] = "tried" if permitted else "not tried: this user may not make name spaces"
    pairs = [("processes", ())] * (plain or not permitted) + [("containers", IN_A_CONTAINER)] * bool(permitted)
    for name, before in pairs:
        foreign = folder / name / ".second.tmp-999999999-0123abcd"  # as left by another host, without a lock
        foreign.mkdir(parents=True)
        wrong = "; ".join(_check_neighbours(foreign.parent, before, foreign.name))
        yield f"two {name} that write in one folder", wrong


def _check_neighbours(folder: Path, before: tuple[str, ...], foreign: str) -> Iterator[str]:
    def convert(name: str) -> "subprocess.Popen[str]":
        return fresh_process(["convert", MODEL, "--output", str(folder / name)], before)

    first = convert("first")
    try:
        while first.poll() is None and not any(name.startswith(".first.tmp-") for name in os.listdir(folder)):
            time.sleep(0.001)
        found = list(folder.glob(".first.tmp-*"))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGSTOP)
        if not found:
            yield f"the first did not write: {_error_of(first)}"
            return
        files = {path.name for path in found[0].iterdir()}
        if error := _error_of(convert("second")):
            yield f"the second: {error}"
        if not found[0].is_dir() or files - {path.name for path in found[0].iterdir()}:
            yield "the second removed what the first was writing"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(first.pid, signal.SIGCONT)
        error = _error_of(first)
    if error:
        yield f"the first: {error}"
    for name in ("first", "second"):
        try:
            verify_directory(folder / name)
        except AlbertError as error:
            yield str(error)
    left = {path.name for path in folder.iterdir()} - {"first", "second"}
    if left != {foreign}:
        yield f"there should be nothing left but {foreign}, there is {sorted(left)}"


def _error_of(process: "subprocess.Popen[str]") -> str:
    _, stderr = process.communicate(timeout=300)
    return "" if process.returncode == 0 else f"exit code {process.returncode}: {stderr[-300:]!r}"


# ---- callers with the largest requests, or that disconnect -----------------------------------------------------------

SMALL = {"texts": ["It was a [MASK] day."], "top_k": 3}
LARGEST = {"texts": ["[MASK] " * 120] * 32, "top_k": 1}
"""The largest number of candidates of a request."""
LONGEST_WAIT = 10.0
"""Seconds that another caller may wait meanwhile, on a busy machine."""
CANCELLATIONS = 10


def callers(draws: random.Random, tries: Tries) -> Checks:
    """A server with the largest requests, and with callers that disconnect."""
    server = fork_server().start(["serve", MODEL, "--port", "0", "--device", "cpu", "--threads", "1"])
    server.wait_until(lambda: "ready:" in server.printed)
    try:
        port = int(re.search(r"listening at \S+:(\d+)", server.printed)[1])  # type: ignore[index]
        yield "callers beside the largest request", _beside_the_largest(port, tries)
        yield f"{CANCELLATIONS} callers who go away", _after_cancellations(port, draws)
    finally:
        server.signal(signal.SIGTERM)
        code = server.finish()
    ended_well = code in (0, 128 + signal.SIGTERM) and "Traceback" not in server.printed
    yield "the end of the server", "" if ended_well else server.ending


def _connection(port: int, method: str, address: str, body: object) -> HTTPConnection:
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    connection.request(method, address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    return connection


def _ask(port: int, method: str, address: str, body: object = None) -> tuple[int, bytes]:
    with contextlib.closing(_connection(port, method, address, body)) as connection:
        reply = connection.getresponse()
        return reply.status, reply.read()


def _beside_the_largest(port: int, tries: Tries) -> str:
    started = time.monotonic()
    waits: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(_ask, port, "POST", "/fill-mask", LARGEST)
        while not large.done():
            requested = time.monotonic()
            status = _ask(port, "POST", "/fill-mask", SMALL)[0]
            if status not in (200, 429):  # a slow machine may refuse with 429
                return f"another caller was answered with status {status}"
            if not large.done():
                waits.append(time.monotonic() - requested)
    took, longest = time.monotonic() - started, max(waits, default=0.0)
    tries.most("longest wait beside the largest request, seconds", longest, 2)
    tries.add("callers answered meanwhile", len(waits))
    if longest > LONGEST_WAIT or (took > LONGEST_WAIT and not waits):
        return f"{len(waits)} others were answered in {took:.1f} s, the longest wait was {longest:.1f} s"
    status = large.result()[0]
    return "" if status == 200 else f"it was answered with status {status}"


def _after_cancellations(port: int, draws: random.Random) -> str:
    for _ in range(CANCELLATIONS):
        with contextlib.closing(_connection(port, "POST", "/fill-mask", LARGEST)):
            time.sleep(draws.uniform(0, 0.1))
    ends = time.monotonic() + 60
    while b"\nalbert_queue_texts 0.0\n" not in _ask(port, "GET", "/metrics")[1]:
        if time.monotonic() > ends:
            return "their texts are still in the queue after 60 s"
        time.sleep(0.05)
    status = _ask(port, "POST", "/fill-mask", SMALL)[0]
    return "" if status == 200 else f"the next one was answered with status {status}"


# ---- a text that grows when it is read -------------------------------------------------------------------------------

GROWING = "\ufdfa" * 10**6
"""Normalisation turns each of its characters into 18."""
MEGABYTES = 300


def growing_text(folder: Path, material: Material) -> Checks:
    """The text is embedded with little memory in addition to that of the started command."""
    text = folder / "in.txt"
    text.write_text(GROWING, encoding="utf-8")
    words = ["predict", str(material.pretrained), "--task", "embed", "--input", str(text), "--device", "cpu"]
    done = fork_server().start([*words, "--output", str(folder / "out.jsonl")])
    pages = int(Path(f"/proc/{done.process}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (MEGABYTES << 20)
    resource.prlimit(done.process, resource.RLIMIT_AS, (most, most))
    yield "a text that grows 18-fold", "" if done.finish() == 0 else done.ending
