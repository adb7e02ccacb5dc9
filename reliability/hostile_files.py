"""Files made to do harm, given to the commands that would meet them: one line, the right exit code, and no act.

The set is fixed. Each is made by code, from the same bytes every time, and given to `albert` as a user would; nothing
may be run, fetched, or written but below the folder of the try.
"""

import contextlib
import importlib
import io
import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from albert.cli.main import COMMANDS
from albert.cli.main import run as albert
from reliability.confined import Broken, Limits, confined
from reliability.hostile_archives import ARCHIVES
from reliability.hostile_case import Hostile, Place
from reliability.hostile_data import DATA
from reliability.hostile_models import MODELS
from reliability.promises import LOADING_RUNS_NOTHING
from reliability.scene import Scene
from reliability.trial import FAILURES_TOLD, Asked, Outcome, Trial

CASES: tuple[Hostile, ...] = (*MODELS, *ARCHIVES, *DATA)
LONGEST_LINE = 300
"""Characters of a refusal, paths left out of the count."""
SECONDS = 20.0


def run(asked: Asked) -> Outcome:
    """The first `count` of the set; a lane with as many takes all."""
    cases = CASES[: asked.count]
    scene = Scene(asked.folder / "scene")
    for part in ("pretrained", "classifier", "tokenizer", "corpus", "text", "table"):
        getattr(scene, part)  # made before anything is watched
    codes, failures = refused(cases, scene, asked.folder, asked.report)
    return Outcome(
        tried=len(cases),
        failed=len(failures),
        what="hostile files, archives and addresses, each given to the command that would meet it",
        details=dict(sorted(codes.items())),
        failures=tuple(failures[:FAILURES_TOLD]),
    )


def refused(
    cases: tuple[Hostile, ...], scene: Scene, folder: Path, report: Callable[[int], None] = lambda more: None
) -> tuple[Counter[str], list[str]]:
    """Give each to its command, in a process below a folder; how those ended that were refused, and what went wrong."""
    codes: Counter[str] = Counter()
    failures: list[str] = []
    for command in {case.command.split()[0] for case in cases}:
        importlib.import_module(COMMANDS[command].module)  # once, not in every process
    work = _meet(cases, scene, folder)
    for number, case in enumerate(cases):  # a process each: none has the memory that another took
        (verdict,) = confined(lambda _, number=number: work(number), 1, Limits(folder / "tries", SECONDS))
        report(1)
        if verdict.failure:
            failures.append(f"{case.name}: {verdict.failure}")
        else:
            codes[verdict.kind] += 1
    return codes, failures


def _meet(cases: tuple[Hostile, ...], scene: Scene, folder: Path) -> Callable[[int], str]:
    def work(number: int) -> str:
        case = cases[number]
        place = Place(folder / "tries" / str(number), scene)
        shutil.rmtree(place.here, ignore_errors=True)
        place.here.mkdir(parents=True)
        case.make(place)
        words = [word.format(here=place.here, **place.parts) for word in case.command.split()]
        shown, said = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(said):
            code = albert(words)
        lines = [line for line in said.getvalue().splitlines() if not _PROGRESS.match(line)]
        if code != case.code:
            raise Broken(f"exit code {code}, {case.code} is expected: {said.getvalue()[:300]!r}")
        if len(lines) != 1 or not lines[0].startswith("albert: error: ") or not lines[0].isprintable():
            raise Broken(f"not one line: {lines!r}"[:300])
        told = lines[0].replace(str(folder), "")
        if len(told) > LONGEST_LINE:
            raise Broken(f"a line of {len(told)} characters: {told}")
        if not re.search(case.says, told):
            raise Broken(f"says something else than {case.says!r}: {told}")
        if left := [name for name in case.absent if (place.here / name).exists()]:
            raise Broken(f"left {left} behind")
        return f"exit_code_{code}"

    return work


_PROGRESS = re.compile(r"(Reading|Preparing|Training|Unpacking|Encoding|Checking)\b")
"""Lines that a slow machine may see before the error."""

TRIAL = Trial("hostile-files", LOADING_RUNS_NOTHING, {"quick": len(CASES), "full": len(CASES), "soak": len(CASES)}, run)
