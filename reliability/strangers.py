"""On a stranger's machine, beside strangers' work: other surroundings, containers on one volume, callers, odd files.

One round does all of it: a part of the test-suite under drawn surroundings, two commands that write in one folder and
do not see each other's processes, a server whose callers ask too much, go away or come from elsewhere, and inputs that
wait for ever, lead to themselves, grow when they are read, or changed while the command was away.
"""

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
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path

from albert.runtime.errors import AlbertError
from albert.runtime.files import FileLock, lock_file
from albert.runtime.manifest import verify_directory
from reliability.disk_faults import what_is_wrong
from reliability.durable_calls import Fault
from reliability.hostile_files import ASK, CONVERT, ENCODE, FINETUNE, PRETRAIN, Hostile, Make, Place, met, pipe
from reliability.material import Material
from reliability.report import ANY_MACHINE, CHECKOUT
from reliability.runs import ForkServer, fork_server, fresh_process
from reliability.trials import Tries, trial

MODEL = str(CHECKOUT / "models" / "tiny")
Checks = Iterator[tuple[str, str]]
"""What was tried, and what was wrong about it, or nothing."""


@trial(ANY_MACHINE, "checks in other surroundings, beside other containers and callers, and with odd files", 1, 4, 40)
def strangers(tries: Tries) -> None:
    """All of it, `count` times."""
    draws = random.Random(tries.seed)
    material = Material(tries.folder / "material")
    tries.details["rounds"] = tries.count
    for number in range(tries.count):
        folder = tries.folder / str(number)
        folder.mkdir()
        for part in (
            odd_files(folder, material, draws),  # first: it forks, and later there were threads
            neighbours(folder / "volume", tries, plain=tries.count > 1),
            threads_and_locks(folder / "lock"),
            surroundings(folder, draws, tries),
            callers(draws, tries),
        ):
            for what, wrong in part:
                tries.record([f"round {number}, {what}: {wrong}"] if wrong else [], done=0)
        tries.report(1)


# ---- other surroundings ----------------------------------------------------------------------------------------------

PART = (
    *("tests/cli/test_warm_start.py", "tests/cli/test_verify.py", "tests/cli/test_show.py"),
    "tests/runtime/test_durable_files.py",
)
"""Of the tests, those that print tables with paths and those that write."""


def surroundings(folder: Path, draws: random.Random, tries: Tries) -> Checks:
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
    tries.add("tests passed", int(passed[1]) if passed else 0)
    failed = " ".join(re.findall(r"^(?:FAILED|ERROR) .*", done.stdout, re.MULTILINE)) or done.stderr[-300:]
    yield f"tests with {drawn}", "" if done.returncode == 0 and passed else failed[:600] or done.stdout[-300:]


# ---- containers on one volume ----------------------------------------------------------------------------------------

IN_A_CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
THREADS = 16


def neighbours(folder: Path, tries: Tries, plain: bool = True) -> Checks:
    """One command stands still in the middle of its writing while another, which cannot see it, writes beside it.

    Where there may be containers, processes that see each other are tried only when `plain`.
    """
    permitted = (
        shutil.which("unshare") and not subprocess.run([*IN_A_CONTAINER, "true"], capture_output=True).returncode
    )
    tries.details["containers"] = "tried" if permitted else "not tried: this user may not make name spaces"
    pairs = [("processes", ())] * (plain or not permitted) + [("containers", IN_A_CONTAINER)] * bool(permitted)
    for name, before in pairs:
        foreign = folder / name / ".second.tmp-999999999-0123abcd"  # as written elsewhere, where there are no locks
        foreign.mkdir(parents=True)
        wrong = "; ".join(_what_neighbours_did(foreign.parent, before, foreign.name))
        yield f"two {name} that write in one folder", wrong


def _what_neighbours_did(place: Path, before: tuple[str, ...], foreign: str) -> Iterator[str]:
    def converting(name: str) -> "subprocess.Popen[str]":
        return fresh_process(["convert", MODEL, "--output", str(place / name)], before)

    first = converting("first")
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
        if said := _said(converting("second")):
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
    if left != {foreign}:
        yield f"there should be nothing left but {foreign}, there is {sorted(left)}"


def _said(process: "subprocess.Popen[str]") -> str:
    """Nothing where it ends well."""
    _, told = process.communicate(timeout=300)
    return "" if process.returncode == 0 else f"exit code {process.returncode}: {told[-300:]!r}"


def threads_and_locks(path: Path) -> Checks:
    """Threads that want a lock at the same moment: one gets it."""
    together = threading.Barrier(THREADS)

    def take(_: int) -> FileLock | None:
        together.wait()
        return lock_file(path)

    with ThreadPoolExecutor(THREADS) as pool:
        got = list(pool.map(take, range(THREADS)))
    locks = [lock for lock in got if lock]
    for lock in locks:
        lock.remove()
    yield f"{THREADS} threads that want one lock", "" if len(locks) == 1 else f"{len(locks)} of them got it"


# ---- callers who come from elsewhere, ask for too much or for all there is, or go away -------------------------------

SMALL = {"texts": ["It was a [MASK] day."], "top_k": 3}
LARGEST = {"texts": ["[MASK] " * 120] * 32, "top_k": 1}
"""As many candidates as a request may ask for; with `top_k` 100 they are too many."""
LONGEST_WAIT = 10.0
"""Seconds that another caller may wait for its answer meanwhile, on a machine that is busy with other work, too."""
CANCELLATIONS = 10
REQUESTS = (
    *(
        (method, address, {"Host": host}, status)
        for host, status in (("localhost", 200), ("evil.example", 421), ("127.0.0.1.evil.example", 421))
        for method, address in (("GET", "/model"), ("POST", "/fill-mask"))
    ),
    *(("HEAD", address, {}, 200) for address in ("/", "/docs", "/model", "/healthz", "/readyz")),
    ("DELETE", "/fill-mask", {}, 405),
)
"""Method, address, headers, and the status of the answer."""


def callers(draws: random.Random, tries: Tries) -> Checks:
    """A server that is asked by pages from elsewhere, for too much, for as much as it gives, and in vain."""
    server = fork_server().start(["serve", MODEL, "--port", "0", "--device", "cpu", "--threads", "1"])
    server.wait_until(lambda: "ready:" in server.printed)
    try:
        port = int(re.search(r"listening at \S+:(\d+)", server.printed)[1])  # type: ignore[index]
        for method, address, headers, expected in REQUESTS:
            status, allowed, content = _ask(port, method, address, SMALL if method == "POST" else None, headers)
            wrong = _unlike(expected, status) or ("it has a body" if method == "HEAD" and content else "")
            allows = method != "DELETE" or allowed == "POST"
            yield f"{method} {address} {headers or ''}", wrong or ("" if allows else f"Allow: {allowed}")
        too_many = _ask(port, "POST", "/fill-mask", {**LARGEST, "top_k": 100})[0]
        yield "fill-mask of too many candidates", _unlike(413, too_many)
        yield "callers beside the largest request", _beside_the_largest(port, tries)
        yield f"{CANCELLATIONS} callers who go away", _after_cancellations(port, draws)
    finally:
        server.signal(signal.SIGTERM)
        code = server.finish()
    ended_well = code in (0, 128 + signal.SIGTERM) and "Traceback" not in server.printed
    yield "the end of the server", "" if ended_well else server.ending


def _unlike(expected: int, status: int) -> str:
    return "" if status == expected else f"status {status}, {expected} is expected"


def _connection(port: int, method: str, address: str, body: object, headers: dict[str, str]) -> HTTPConnection:
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    content = None if body is None else json.dumps(body).encode()
    connection.request(method, address, content, {"Content-Type": "application/json", **headers})
    return connection


def _ask(
    port: int, method: str, address: str, body: object = None, headers: dict[str, str] | None = None
) -> tuple[int, str | None, bytes]:
    """The status of the answer, the methods that it allows, and its body."""
    with contextlib.closing(_connection(port, method, address, body, headers or {})) as connection:
        reply = connection.getresponse()
        return reply.status, reply.getheader("Allow"), reply.read()


def _beside_the_largest(port: int, tries: Tries) -> str:
    began = time.monotonic()
    waits: list[float] = []
    with ThreadPoolExecutor(1) as pool:
        large = pool.submit(_ask, port, "POST", "/fill-mask", LARGEST)
        while not large.done():
            asked = time.monotonic()
            status = _ask(port, "POST", "/fill-mask", SMALL)[0]
            if status not in (200, 429):  # a slow machine may say that it has too much to do
                return f"another caller was answered with status {status}"
            if not large.done():
                waits.append(time.monotonic() - asked)
    took, longest = time.monotonic() - began, max(waits, default=0.0)
    tries.most("longest wait beside the largest request, seconds", longest, 2)
    tries.add("callers answered meanwhile", len(waits))
    if longest > LONGEST_WAIT or (took > LONGEST_WAIT and not waits):
        return f"{len(waits)} others were answered in {took:.1f} s, the longest wait was {longest:.1f} s"
    return _unlike(200, large.result()[0])


def _after_cancellations(port: int, draws: random.Random) -> str:
    for _ in range(CANCELLATIONS):
        with contextlib.closing(_connection(port, "POST", "/fill-mask", LARGEST, {})):
            time.sleep(draws.uniform(0, 0.1))
    ends = time.monotonic() + 60
    while b"\nalbert_queue_texts 0.0\n" not in _ask(port, "GET", "/metrics")[2]:
        if time.monotonic() > ends:
            return "their texts are still in the queue after 60 s"
        time.sleep(0.05)
    return _unlike(200, _ask(port, "POST", "/fill-mask", SMALL)[0])


# ---- files that wait for ever, lead to themselves, grow when read, or changed meanwhile ------------------------------

ROWS = 10_000
GROWING = "\ufdfa" * 10**6
"""One character of it becomes 18 when it is normalised."""
MEGABYTES = 300


def _pipe_at(name: str) -> Make:
    def make(place: Place) -> None:
        place.write("text/a.txt", "It was a day.")
        if name.startswith("m/"):
            place.model({name.removeprefix("m/"): None})
        pipe(name)(place)

    return make


_PREPARE = "prepare {here}/text --tokenizer {m.tokenizer} --output {here}/out"
_TABLES = (
    "finetune --train {here}/a.csv --dev {here}/a.csv --text a --label b --model {m.pretrained} --output {here}/out"
)
DOORS = tuple(
    Hostile(f"a pipe as {what}", _pipe_at(name), command, 66, says)
    for what, name, command, says in (
        ("the input of predict", "in.jsonl", ASK, "is a pipe"),
        ("text", "text/b.txt", _PREPARE, "is a pipe"),
        ("a table", "a.csv", _TABLES, "is a pipe"),
        ("a task file", "task.json", FINETUNE, "is a pipe"),
        ("a recipe", "r.json", PRETRAIN, "is a pipe"),
        ("a vocabulary", "t/tokenizer.json", ENCODE, "is a pipe"),
        ("a configuration", "m/config.json", CONVERT, "is a pipe"),
        ("weights", "m/model.safetensors", CONVERT, "holds no model.safetensors"),
    )
)
"""Where files are read, each with a pipe in the place of one; nobody writes to it."""


def odd_files(folder: Path, material: Material, draws: random.Random) -> Checks:
    """Pipes, a folder that leads to itself, a text that grows, a full disk, and files that changed meanwhile."""
    for case, verdict in met(DOORS, material, folder):
        yield case.name, verdict.failure
    for what, check in ODD_FILES.items():
        place = folder / what.replace(" ", "-")
        place.mkdir()
        yield what, check(fork_server(), place, material, draws)


def _growing_text(forks: ForkServer, place: Path, material: Material, draws: random.Random) -> str:
    (place / "in.txt").write_text(GROWING, encoding="utf-8")
    words = [
        "predict",
        str(material.pretrained),
        "--task",
        "embed",
        "--input",
        str(place / "in.txt"),
        "--device",
        "cpu",
    ]
    done = forks.start([*words, "--output", str(place / "out.jsonl")])
    pages = int(Path(f"/proc/{done.process}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (MEGABYTES << 20)
    resource.prlimit(done.process, resource.RLIMIT_AS, (most, most))
    return "" if done.finish() == 0 else done.ending


def _circle(forks: ForkServer, place: Path, material: Material, draws: random.Random) -> str:
    shutil.copytree(material.text, place / "text")
    (place / "text" / "self").symlink_to(".")
    words = ["prepare", str(place / "text"), "--tokenizer", str(material.tokenizer), "--output", str(place / "out")]
    done = forks.start([*words, "--workers", "1"])
    if done.finish() != 0:
        return done.ending
    return "" if "met again by another path" in done.printed else "the link is not counted"


def _full_disk(forks: ForkServer, place: Path, material: Material, draws: random.Random) -> str:
    log, whole, output = place / "calls", place / "whole" / "out", place / "full" / "out"
    words = ["convert", MODEL, "--output"]
    forks.finished([*words, str(whole)], whole, Fault(below=str(whole.parent), log=str(log)))
    writes = [number for number, call in enumerate(log.read_text().splitlines()) if call.startswith("write ")]
    output.parent.mkdir()
    fault = Fault(below=str(output.parent), number=draws.choice(writes), what="ENOSPC")
    met = forks.start([*words, str(output)], fault=fault)
    wrong = "; ".join(what_is_wrong(met, output))
    named = re.search(rf"albert: error: {re.escape(str(output))}/[\w.]+: No space left", met.printed)
    return wrong or ("" if named and met.code == 74 else f"call {fault.number}, {met.ending}")


def _changed_digit(forks: ForkServer, place: Path, material: Material, draws: random.Random) -> str:
    given, whole, output = place / "in.jsonl", place / "whole.jsonl", place / "out.jsonl"
    given.write_text("".join(f'{{"id": {n}, "text": "The ship saw {"it " * (n % 9)}."}}\n' for n in range(ROWS)))
    words = ["predict", str(material.classifier), "--input", str(given), "--device", "cpu", "--precision", "fp32"]
    words.append("--output")
    rows = place / "out.jsonl.partial" / "rows"
    forks.finished([*words, str(whole)], whole)
    dies = Fault(below=str(place), call=f"link {rows}")  # all rows are there, and have not got their name
    forks.start([*words, str(output)], fault=dies).finish()
    if not rows.exists():
        return "it died without rows that could be changed"
    content = rows.read_bytes()
    digit = re.search(rb"0\.(\d)", content)
    assert digit is not None
    rows.write_bytes(content[: digit.start(1)] + b"%d" % ((int(digit[1]) + 1) % 10) + content[digit.end(1) :])
    again = forks.start([*words, str(output)])
    if again.finish() != 0 or "predicted anew" not in again.printed:
        return f"nothing is said of the digit, {again.ending}"
    return "" if output.read_bytes() == whole.read_bytes() else "the rows are not those of the undisturbed command"


def _other_dev_set(forks: ForkServer, place: Path, material: Material, draws: random.Random) -> str:
    for table in material.tables.glob("*.jsonl"):
        shutil.copyfile(table, place / table.name)
    words = Material(place, tables=place).finetune(material.pretrained, place / "run")
    stopped = forks.start(words, stand_still="after-save 1")
    stopped.wait_for("after-save")
    stopped.kill()
    dev = place / "dev.jsonl"
    dev.write_text("".join(dev.read_text().splitlines(keepends=True)[:-1]))
    again = forks.start(words)
    refused = again.finish() == 78 and "another development set" in again.printed
    return "" if refused else again.ending


ODD_FILES: dict[str, Callable[[ForkServer, Path, Material, random.Random], str]] = {
    "a text that grows 18-fold": _growing_text,
    "a folder that leads to itself": _circle,
    "a full disk": _full_disk,
    "a changed digit in rows so far": _changed_digit,
    "a changed development set": _other_dev_set,
}
