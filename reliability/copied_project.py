"""A copy of this project, to be changed at will, and its tests run in it."""

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from pathlib import Path

from albert.runtime.errors import CheckFailed
from reliability.report import CHECKOUT

COPIED = ("src", "tests", "reliability", "pyproject.toml")
_RAN = (0, 1, 2)
"""pytest's codes for tests that passed, failed or could not be imported; others are for tests that are not there."""


class CopiedProject:
    """A copy, and a process that runs tests in it while the block lasts.

    Args:
        folder: an empty one, for the copy and what pytest reports.

    Attributes:
        place: the copy.

    Raises:
        CheckFailed: a process that is to import the copy imports another.
    """

    def __init__(self, folder: Path) -> None:
        self.place, self._folder = folder / "project", folder
        self.place.mkdir()
        for name in COPIED:
            original, copy = CHECKOUT / name, self.place / name
            if original.is_dir():
                shutil.copytree(original, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(original, copy)
        # The copy before what is installed, and Hypothesis's fixed examples.
        self._environment = {**os.environ, "PYTHONPATH": str(self.place / "src"), "OMP_NUM_THREADS": "1", "CI": "1"}
        words = [sys.executable, "-c", "import albert; print(albert.__file__)"]
        told = subprocess.run(
            words, cwd=self.place, env=self._environment, capture_output=True, text=True, check=True
        ).stdout.strip()
        if not Path(told).is_relative_to(self.place):
            raise CheckFailed("the copy", f"is not what is imported, but {told}")

    def __enter__(self) -> "CopiedProject":
        self._tests = subprocess.Popen(
            [sys.executable, "-m", "reliability.forked_tests"],
            cwd=self.place,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # or a line that was read ahead would be waited for
        )
        return self

    def __exit__(self, *reason: object) -> None:
        self._tests.kill()
        self._tests.communicate()

    def not_passed(self, tests: Iterable[str], seconds: float, defect: bool = False) -> list[tuple[str, str]]:
        """Which tests do not pass in the copy, and the first line of why.

        Args:
            tests: below tests/, as pytest names them.
            seconds: how long they may take.
            defect: whether there is one: then the first failure is the end, what is skipped says nothing, and nothing
                compiled is kept.

        Raises:
            TimeoutError: they took longer; none of their processes is left.
            CheckFailed: pytest could not report.
        """
        told, log = self._folder / "tests.xml", self._folder / "tests.log"
        told.unlink(missing_ok=True)
        words = ["-q", "-p", "no:cacheprovider", f"--junitxml={told}", *(["-x"] if defect else [])]
        words += [f"tests/{test}" for test in sorted(tests)]
        code = self._run({"words": words, "printed": str(log), "keep_compiled": not defect}, seconds)
        if code not in _RAN or not told.exists():
            raise CheckFailed("pytest", f"ended with {code}", f"see {log}")
        kinds = ("failure", "error") if defect else ("failure", "error", "skipped")
        return [
            (f"{case.get('classname')}::{case.get('name')}", (found.get("message") or found.tag).split("\n")[0])
            for case in ElementTree.parse(told).iter("testcase")
            for kind in kinds
            for found in case.findall(kind)
        ]

    def _run(self, request: dict[str, object], seconds: float) -> int:
        """Have a child run pytest; its exit code."""
        assert self._tests.stdin is not None and self._tests.stdout is not None
        self._tests.stdin.write(json.dumps(request).encode() + b"\n")
        child = int(self._tests.stdout.readline())
        try:
            ended, _, _ = select.select([self._tests.stdout], [], [], seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):  # what the tests started ends with them
                os.killpg(child, signal.SIGKILL)
        code = int(self._tests.stdout.readline())
        if not ended:
            raise TimeoutError(f"tests ran for more than {seconds:.0f} seconds")
        return code
