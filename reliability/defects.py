"""Deliberate defects of this project's own code (defects.txt): one after the other in a copy of it, a test must fail.

A defect in defects.txt is a name, a definition in src/albert, tests of which one must fail, and the lines it changes:

    # an answer may end before it begins
    at answer_candidates: test_independent_logits_score_all_allowed_spans
    - last = first[:, None] + np.arange(max_tokens)
    + last = first[:, None] - np.arange(max_tokens)

The old lines are searched for in the whole package, its tables in TOML included, at any indentation; they may be a part
of a line. Where they occur more than once, the occurrence in the named definition counts. So code may move to another
file, and what is around the lines may be renamed. Tests are named by function or by file (test_x.py), wherever they
stand below tests/.

A test that fails without any defect proves nothing, so all of them run once on the sound copy first. A defect counts as
caught when a test that ran to its end or to an error of ours says so; not when nothing could be imported, and not when
nothing ends.
"""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from albert.runtime.errors import CheckFailed, InvalidConfiguration
from reliability.report import CHECKOUT, TESTS_CATCH
from reliability.runs import ForkServer
from reliability.trials import Tries, trial


@dataclass(frozen=True)
class Defect:
    """A mistake that somebody could make."""

    name: str  # what it does wrong
    symbol: str  # the function, method ("Class.method") or constant of src/albert that it changes
    tests: tuple[str, ...]  # test functions or files (test_x.py), of which at least one must fail
    old: tuple[str, ...]  # the right lines, without the indentation of the first one
    new: tuple[str, ...]  # the wrong ones

    def put_into(self, source: Path) -> tuple[Path, str]:
        """The file below src/albert that holds the old lines, and its text with the new ones.

        InvalidConfiguration where the old ones are not there, or more than once, or the text cannot be compiled.
        """
        pattern = re.compile(r"\n *".join(re.escape(line.strip()) for line in self.old))
        found = [(path, text, match) for path, text in _texts(source, "py", "toml") for match in pattern.finditer(text)]
        here = found
        if len(found) > 1:
            here = [each for each in found if _symbol(each[0], each[1], each[2].start()) == self.symbol]
        if len(here) != 1:
            why = f"found {len(found)} times, {len(here)} times in {self.symbol}: {self.old[0]!r}"
            raise InvalidConfiguration(f"defect {self.name}", why, "follow the code in reliability/defects.txt")
        path, text, match = here[0]
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        indentation = line[: len(line) - len(line.lstrip())]
        wrong = text[: match.start()] + f"\n{indentation}".join(self.new) + text[match.end() :]
        try:
            if path.suffix == ".py":
                compile(wrong, path.name, "exec")
            else:
                tomllib.loads(wrong)
        except (SyntaxError, tomllib.TOMLDecodeError) as error:
            raise InvalidConfiguration(f"defect {self.name}", f"is not valid Python or TOML: {error}") from error
        return path, wrong

    def test_ids(self, tests: Path) -> list[str]:
        """The tests as pytest names them, below a folder of tests."""
        ids = []
        for name in self.tests:
            if name.endswith(".py"):
                found = [str(path.relative_to(tests)) for path in sorted(tests.rglob(name))]
            else:
                definition = re.compile(rf"^(?:async )?def {name}\(", re.MULTILINE)
                holding = [path for path, text in _texts(tests, "py") if definition.search(text)]
                found = [f"{path.relative_to(tests)}::{name}" for path in holding]
            if not found:
                raise InvalidConfiguration(f"defect {self.name}", f"no test {name}", "name a test of tests/")
            ids += found
        return ids


def read_defects(path: Path) -> tuple[Defect, ...]:
    """The defects of a file, in its order; lines before the first one and those with == are titles."""
    defects = []
    for part in re.split(r"^# ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, place, *lines = [line for line in part.splitlines() if line and not line.startswith("==")]
        at = re.fullmatch(r"at ([\w.]+): (.+)", place)
        old = tuple(line[2:] for line in lines if line.startswith("- "))
        new = tuple(line[2:] for line in lines if line.startswith("+ "))
        if at is None or not old or len(old) + len(new) != len(lines):
            raise InvalidConfiguration(f"{path}: {name}", "needs `at SYMBOL: TESTS`, then lines with - and +")
        defects.append(Defect(name, at[1], tuple(at[2].split()), old, new))
    return tuple(defects)


def _texts(folder: Path, *endings: str) -> list[tuple[Path, str]]:
    return [(path, path.read_text("utf-8")) for end in endings for path in sorted(folder.rglob(f"*.{end}"))]


def _symbol(path: Path, text: str, position: int) -> str:
    """The function, method or constant around a position, by its qualified name; "" where there is none."""
    line = text.count("\n", 0, position) + 1
    name, body = "", ast.parse(text).body if path.suffix == ".py" else []
    while around := [node for node in body if node.lineno <= line <= (node.end_lineno or node.lineno)]:
        (node,) = around
        body = node.body if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name += f".{node.name}" if name else node.name
        elif not name and isinstance(node, ast.Assign | ast.AnnAssign):
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    return name


DEFECTS = read_defects(Path(__file__).with_name("defects.txt"))
"""All of them; the first ones are the quickest to try."""

# ---- the trial -------------------------------------------------------------------------------------------------------

SECONDS, SOUND_SECONDS = 300, 3600
"""After which a defect counts as one that nothing catches, and the tests without any as a failure of the trial."""
_BROKEN = re.compile(
    r'collection failure|(?:failed on \w+ with ")?(?:ImportError|ModuleNotFoundError|SyntaxError|NameError|Unbound)'
)
_ASSERTED = re.compile(r"assert|AssertionError|Failed: ")


@trial(TESTS_CATCH, "deliberate defects", 2, len(DEFECTS))
def mutants(tries: Tries) -> None:
    """Try the first so many defects."""
    chosen = DEFECTS[: tries.count]
    tries.details |= {"by an assertion": 0, "by an error": 0}
    with CopiedProject(tries.folder) as project:
        sound = {test for defect in chosen for test in defect.test_ids(project.place / "tests")}
        unsound = project.not_passed(sound, SOUND_SECONDS)
        if unsound:
            told = "; ".join(f"{test}: {why}" for test, why in unsound)
            raise CheckFailed("tests", f"fail or are skipped without any defect: {told}")
        for defect in chosen:
            survived, way = try_defect(defect, project)
            tries.record([f"{defect.name} (in {defect.symbol}): {survived}"] if survived else [], way)


def try_defect(defect: Defect, project: "CopiedProject") -> tuple[str, str]:
    """Why a defect was not caught ("" where it was), and how it was."""
    path, wrong = defect.put_into(project.place / "src" / "albert")
    sound, before = path.read_bytes(), path.stat()
    try:
        path.write_text(wrong, encoding="utf-8")
        found = project.not_passed(defect.test_ids(project.place / "tests"), SECONDS, defect=True)
    except TimeoutError:
        return f"its tests did not end within {SECONDS} seconds", ""
    finally:
        path.write_bytes(sound)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # what was compiled of it is good again
    if not found:
        return "no test fails", ""
    test, why = found[0]
    if _BROKEN.match(why):
        return f"{test} could not even run: {why}", ""
    return "", "by an assertion" if _ASSERTED.match(why) else "by an error"


# ---- a copy of this project ------------------------------------------------------------------------------------------

COPIED = ("src", "tests", "reliability", "pyproject.toml")
IMPORTED = ("matplotlib", "numpy", "rich.progress", "safetensors.torch", "scipy.stats", "sklearn.metrics",
            "sentencepiece", "torch.distributed", "torch.utils.tensorboard", "tyro", "pytest")  # fmt: skip
"""What tests stand on, imported once: most of what a short test costs. No plug-ins of pytest, which wants to import
those itself, and nothing of the project, which each test imports anew."""
_RAN = (0, 1, 2)
"""pytest's codes for tests that passed, failed or could not be imported; others are for tests that are not there."""


class CopiedProject:
    """A copy of this project, to be changed at will, and a process that runs its tests while the block lasts."""

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
        environment = {"PYTHONPATH": str(self.place / "src"), "CI": "1", "PYTHONWARNINGS": ""}
        words = [sys.executable, "-c", "import albert; print(albert.__file__)"]
        told = subprocess.run(
            words, cwd=self.place, env={**os.environ, **environment}, capture_output=True, text=True, check=True
        ).stdout.strip()
        if not Path(told).is_relative_to(self.place):
            raise CheckFailed("the copy", f"is not what is imported, but {told}")
        self._server = ForkServer(folder, imported=IMPORTED, place=self.place, environment=environment)

    def __enter__(self) -> "CopiedProject":
        return self

    def __exit__(self, *reason: object) -> None:
        self._server.close()

    def not_passed(self, tests: Iterable[str], seconds: float, defect: bool = False) -> list[tuple[str, str]]:
        """Which tests do not pass in the copy, and the first line of why; TimeoutError when they take too long.

        With a defect, the first failure is the end, what is skipped says nothing, and nothing compiled is kept.
        """
        told = self._folder / "tests.xml"
        told.unlink(missing_ok=True)
        words = ["-q", "-p", "no:cacheprovider", f"--junitxml={told}", *(["-x"] if defect else [])]
        words += [f"tests/{test}" for test in sorted(tests)]
        run = self._server.call("pytest:main", [words], {"PYTHONDONTWRITEBYTECODE": "1"} if defect else {})
        try:
            code = run.finish(seconds)
        finally:
            run.signal(signal.SIGKILL)  # what the tests started ends with them
        if code not in _RAN or not told.exists():
            raise CheckFailed("pytest", f"ended with {code}", run.ending)
        kinds = ("failure", "error") if defect else ("failure", "error", "skipped")
        return [
            (f"{case.get('classname')}::{case.get('name')}", (found.get("message") or found.tag).split("\n")[0])
            for case in ElementTree.parse(told).iter("testcase")
            for kind in kinds
            for found in case.findall(kind)
        ]
