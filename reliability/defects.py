"""Mutation testing: for each deliberate defect of the code (defects.txt), one of its tests must fail.

A defect in defects.txt is a name, a definition in src/albert, tests of which one must fail, and the changed lines:

    # an answer may end before it begins
    at answer_candidates: test_independent_logits_score_all_allowed_spans
    - last = first[:, None] + np.arange(max_tokens)
    + last = first[:, None] - np.arange(max_tokens)

The old lines, or parts of lines, are searched for in the whole package including TOML files, at any indentation. If
they occur more than once, the occurrence in the named definition counts. So code may move to another file. Tests are
named by function or by file (test_x.py), anywhere below tests/.

All tests are first run without any defect. A defect is caught if a test fails by an assertion or an error of the code,
but not if nothing can be imported or a test does not end."""

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
    """A deliberate defect."""

    name: str  # the wrong behaviour
    symbol: str  # the changed function, method ("Class.method") or constant of src/albert
    tests: tuple[str, ...]  # functions or files (test_x.py), at least one of which must fail
    old: tuple[str, ...]  # the correct lines, without the indentation of the first one
    new: tuple[str, ...]  # the wrong lines

    def put_into(self, source: Path) -> tuple[Path, str]:
        """The file below src/albert with the old lines, and its text with the new ones.

        InvalidConfiguration if the old lines are missing or ambiguous, or the new text cannot be compiled.
        """
        pattern = re.compile(r"\n *".join(re.escape(line.strip()) for line in self.old))
        found = [(path, text, match) for path, text in _texts(source, "py", "toml") for match in pattern.finditer(text)]
        matches = found
        if len(found) > 1:
            matches = [item for item in found if _symbol(item[0], item[1], item[2].start()) == self.symbol]
        if len(matches) != 1:
            why = f"found {len(found)} times, {len(matches)} times in {self.symbol}: {self.old[0]!r}"
            raise InvalidConfiguration(f"defect {self.name}", why, "update reliability/defects.txt")
        path, text, match = matches[0]
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
        """The pytest ids of the tests, relative to a folder of tests."""
        ids = []
        for name in self.tests:
            if name.endswith(".py"):
                found = [str(path.relative_to(tests)) for path in sorted(tests.rglob(name))]
            else:
                definition = re.compile(rf"^(?:async )?def {name}\(", re.MULTILINE)
                paths = [path for path, text in _texts(tests, "py") if definition.search(text)]
                found = [f"{path.relative_to(tests)}::{name}" for path in paths]
            if not found:
                raise InvalidConfiguration(f"defect {self.name}", f"no test {name}", "name a test of tests/")
            ids += found
        return ids


def read_defects(path: Path) -> tuple[Defect, ...]:
    """The defects of a file in order; lines before the first one and those with == are titles."""
    defects = []
    for part in re.split(r"^# ", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        name, target, *lines = [line for line in part.splitlines() if line and not line.startswith("==")]
        at = re.fullmatch(r"at ([\w.]+): (.+)", target)
        old = tuple(line[2:] for line in lines if line.startswith("- "))
        new = tuple(line[2:] for line in lines if line.startswith("+ "))
        if at is None or not old or len(old) + len(new) != len(lines):
            raise InvalidConfiguration(f"{path}: {name}", "needs `at SYMBOL: TESTS`, then lines with - and +")
        defects.append(Defect(name, at[1], tuple(at[2].split()), old, new))
    return tuple(defects)


def _texts(folder: Path, *endings: str) -> list[tuple[Path, str]]:
    return [(path, path.read_text("utf-8")) for end in endings for path in sorted(folder.rglob(f"*.{end}"))]


def _symbol(path: Path, text: str, position: int) -> str:
    """The qualified name of the function, method or constant at a position, or \"\"."""
    line = text.count("\n", 0, position) + 1
    name, body = "", ast.parse(text).body if path.suffix == ".py" else []
    while nodes := [node for node in body if node.lineno <= line <= (node.end_lineno or node.lineno)]:
        (node,) = nodes
        body = node.body if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name += f".{node.name}" if name else node.name
        elif not name and isinstance(node, ast.Assign | ast.AnnAssign):
            name = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
    return name


DEFECTS = read_defects(Path(__file__).with_name("defects.txt"))
"""All defects; the first ones have the fastest tests."""

# ---- the trial -------------------------------------------------------------------------------------------------------

SECONDS, SOUND_SECONDS = 300, 3600
"""Time limits of the tests of a defect, and of all tests without a defect."""
_BROKEN = re.compile(
    r'collection failure|(?:failed on \w+ with ")?(?:ImportError|ModuleNotFoundError|SyntaxError|NameError|Unbound)'
)
_ASSERTED = re.compile(r"assert|AssertionError|Failed: ")


@trial(TESTS_CATCH, "deliberate defects", 2, len(DEFECTS))
def mutants(tries: Tries) -> None:
    """Try the first `count` defects."""
    chosen = DEFECTS[: tries.count]
    tries.details |= {"by an assertion": 0, "by an error": 0}
    with CopiedProject(tries.folder) as project:
        sound = {test for defect in chosen for test in defect.test_ids(project.root / "tests")}
        failing = project.not_passed(sound, SOUND_SECONDS)
        if failing:
            listed = "; ".join(f"{test}: {why}" for test, why in failing)
            raise CheckFailed("tests", f"fail or are skipped without any defect: {listed}")
        for defect in chosen:
            survived, way = try_defect(defect, project)
            tries.record([f"{defect.name} (in {defect.symbol}): {survived}"] if survived else [], way)


def try_defect(defect: Defect, project: "CopiedProject") -> tuple[str, str]:
    """Why a defect was not caught (\"\" if it was), and how it was caught."""
    path, wrong = defect.put_into(project.root / "src" / "albert")
    sound, before = path.read_bytes(), path.stat()
    try:
        path.write_text(wrong, encoding="utf-8")
        failing = project.not_passed(defect.test_ids(project.root / "tests"), SECONDS, defect=True)
    except TimeoutError:
        return f"its tests did not end within {SECONDS} seconds", ""
    finally:
        path.write_bytes(sound)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # keeps the compiled file valid
    if not failing:
        return "no test fails", ""
    test, why = failing[0]
    if _BROKEN.match(why):
        return f"{test} could not even run: {why}", ""
    return "", "by an assertion" if _ASSERTED.match(why) else "by an error"


# ---- a copy of this project ------------------------------------------------------------------------------------------

COPIED = ("src", "tests", "reliability", "pyproject.toml")
IMPORTED = ("matplotlib", "numpy", "rich.progress", "safetensors.torch", "scipy.stats", "sklearn.metrics",
            "sentencepiece", "torch.distributed", "torch.utils.tensorboard", "pytest")  # fmt: skip
"""Imported once, as this takes most of the time of a short test. Without plug-ins of pytest, which imports them itself,
and without the project, which each test imports again."""
_RAN = (0, 1, 2)
"""pytest's exit codes for passed tests, failed tests and import errors; other codes mean missing tests."""


class CopiedProject:
    """A copy of this project to change, and a process that runs its tests; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.root, self._folder = folder / "project", folder
        self.root.mkdir()
        for name in COPIED:
            original, copy = CHECKOUT / name, self.root / name
            if original.is_dir():
                shutil.copytree(original, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy2(original, copy)
        # The copy takes precedence over the installed package; with CI, Hypothesis uses fixed examples.
        environment = {"PYTHONPATH": str(self.root / "src"), "CI": "1", "PYTHONWARNINGS": ""}
        words = [sys.executable, "-c", "import albert; print(albert.__file__)"]
        imported = subprocess.run(
            words, cwd=self.root, env={**os.environ, **environment}, capture_output=True, text=True, check=True
        ).stdout.strip()
        if not Path(imported).is_relative_to(self.root):
            raise CheckFailed("the copy", f"is not imported, but {imported}")
        self._server = ForkServer(folder, imported=IMPORTED, directory=self.root, environment=environment)

    def __enter__(self) -> "CopiedProject":
        return self

    def __exit__(self, *reason: object) -> None:
        self._server.close()

    def not_passed(self, tests: Iterable[str], seconds: float, defect: bool = False) -> list[tuple[str, str]]:
        """Run tests in the copy: those that do not pass, with the first line of the reason; may raise TimeoutError.

        With a defect, stop at the first failure, ignore skipped tests, and write no compiled files.
        """
        report = self._folder / "tests.xml"
        report.unlink(missing_ok=True)
        words = ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", *(["-x"] if defect else [])]
        words += [f"tests/{test}" for test in sorted(tests)]
        run = self._server.call("pytest:main", [words], {"PYTHONDONTWRITEBYTECODE": "1"} if defect else {})
        try:
            code = run.finish(seconds)
        finally:
            run.signal(signal.SIGKILL)  # also ends processes of the tests
        if code not in _RAN or not report.exists():
            raise CheckFailed("pytest", f"ended with {code}", run.ending)
        kinds = ("failure", "error") if defect else ("failure", "error", "skipped")
        return [
            (f"{case.get('classname')}::{case.get('name')}", (found.get("message") or found.tag).split("\n")[0])
            for case in ElementTree.parse(report).iter("testcase")
            for kind in kinds
            for found in case.findall(kind)
        ]
