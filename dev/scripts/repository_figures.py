"""Count files, options and tests of a checkout: the table of docs/decisions/third-edition.md.

    python dev/scripts/repository_figures.py            # this checkout
    python dev/scripts/repository_figures.py OTHER      # another one, with the libraries of this environment

Files and bytes are those that git knows (or all files, in a folder without git). Options are the distinct `--names` at
the beginning of a line of `albert COMMAND --help-all`.

A test passes a door if it calls `albert.cli.main.run`, a name of the module `albert`, a process that runs `albert`, or
HTTP; or if it uses a function of its file or a fixture that does (fixtures of a whole session do not count). An inner
name is one that a test file imports from a module below `albert`, other than `albert.cli.main`.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUBCOMMANDS = {
    "tokenizer": ("train", "encode", "decode", "convert"),
    "export": ("onnx", "sentence-transformers"),
    "tables": ("list", "run", "show", "export"),  # of earlier checkouts
    "pretrain": ("base",),
}
HTTP = {"get", "post", "request", "urlopen", "HTTPConnection", "TestClient"}


def files_of(checkout: Path) -> list[Path]:
    """The files that git knows, or all."""
    if (checkout / ".git").exists():
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=checkout, capture_output=True, text=True, check=True)
        return [checkout / name for name in listed.stdout.split("\0") if name and (checkout / name).is_file()]
    return [path for path in checkout.rglob("*") if path.is_file() and "__pycache__" not in path.parts]


def help_of(checkout: Path, *words: str) -> str:
    """The output of `albert …` of a checkout; empty if there is no such command or option."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "COLUMNS": "100"}
    command = [sys.executable, "-m", "albert", *words]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def options_of(checkout: Path) -> dict[str, int]:
    """The number of options of each command; those of its subcommands together."""
    commands = re.findall(r"^  ([a-z-]+)  +\S", help_of(checkout, "--help"), re.MULTILINE)
    counts = {}
    for command in commands:
        options: set[str] = set()
        for sub in SUBCOMMANDS.get(command, ("",)):
            words = [command, *sub.split()]
            page = help_of(checkout, *words, "--help-all") or help_of(checkout, *words, "--help")
            options.update(re.findall(r"^ {0,8}(--[a-z][\w.-]*)", page, re.MULTILINE))
        counts[command] = len(options - {"--help", "--help-all"})
    return counts


# --------------------------------------------------------------------------------------------------------------------
# Tests.


def imports_of(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Module and name of each `from albert… import …` of a file, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "albert":
            for alias in node.names:
                yield node.module, alias.name


def passes_a_door(function: ast.FunctionDef, doors: set[str]) -> bool:
    """Whether the function itself calls one of the doors."""
    for node in ast.walk(function):
        if isinstance(node, ast.Constant) and node.value == "albert":
            return True  # a command of another process
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and (called.id in doors or called.id in HTTP):
            return True
        if isinstance(called, ast.Attribute):
            if isinstance(called.value, ast.Name) and called.value.id == "albert":
                return True
            if called.attr in HTTP and not isinstance(called.value, ast.Constant) and called.attr != "get":
                return True
    return False


def doors_of(tree: ast.Module) -> set[str]:
    """Names of a file that are doors."""
    doors = set()
    for module, name in imports_of(tree):
        if module == "albert" or (module, name) == ("albert.cli.main", "run"):
            doors.add(name)
    return doors


def reached_by(tree: ast.Module, fixtures: set[str]) -> set[str]:
    """The functions of a file that pass a door, also through each other and through fixtures of other files."""
    doors = doors_of(tree)
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    reached = {name for name, function in functions.items() if passes_a_door(function, doors)}
    while True:
        more = set()
        for name, function in functions.items():
            used = names_in(function) | {argument.arg for argument in function.args.args}
            if name not in reached and used & (reached | fixtures):
                more.add(name)
        if not more:
            return reached
        reached |= more


def fixtures_of(folder: Path, tests: Path) -> set[str]:
    """Fixtures of the conftest files that a folder sees and that pass a door, without those of a whole session."""
    found: set[str] = set()
    for place in (tests, *(tests.joinpath(*folder.relative_to(tests).parts[: i + 1]) for i in range(8))):
        file = place / "conftest.py"
        if not file.is_file():
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        reached = reached_by(tree, found)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name in reached:
                decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
                if any("fixture" in text and "session" not in text for text in decorators):
                    found.add(node.name)
    return found


def tests_of(checkout: Path) -> tuple[int, int, set[tuple[str, str]]]:
    """The number of test functions, of those that pass a door, and the inner names that test files import."""
    count, at_doors = 0, 0
    inner: set[tuple[str, str]] = set()
    for path in sorted((checkout / "tests").rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        inner |= {pair for pair in imports_of(tree) if pair[0] not in ("albert", "albert.cli.main")}
        tests = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")}
        count += len(tests)
        at_doors += len(tests & reached_by(tree, fixtures_of(path.parent, checkout / "tests")))
    return count, at_doors, inner


def names_in(function: ast.FunctionDef) -> set[str]:
    """The names that a function uses."""
    return {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}


# --------------------------------------------------------------------------------------------------------------------
# Density of the source.


def density_of(checkout: Path) -> dict[str, int]:
    """Count in `src/` what makes code dense: see the keys. A private function has one call if no other line has its
    name."""
    texts = [path.read_text(encoding="utf-8") for path in sorted((checkout / "src").rglob("*.py"))]
    words = Counter(word for text in texts for word in re.findall(r"\w+", text))
    counts = dict.fromkeys(("parallel assignments", ":=", "functions inside functions", "private, one call"), 0)
    for node in (node for text in texts for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            counts["parallel assignments"] += any(isinstance(target, ast.Tuple) for target in node.targets)
        elif isinstance(node, ast.NamedExpr):
            counts[":="] += 1
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = (ast.FunctionDef, ast.AsyncFunctionDef)
            counts["functions inside functions"] += sum(isinstance(each, inner) for each in ast.walk(node)) - 1
            is_private = node.name.startswith("_") and not node.name.startswith("__")
            is_plain = isinstance(node, ast.FunctionDef)
            counts["private, one call"] += is_private and is_plain and words[node.name] == 2
    return counts


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, nargs="?", default=ROOT)
    checkout = parser.parse_args().checkout.resolve()
    files = files_of(checkout)
    print(f"files: {len(files):,}; {sum(path.stat().st_size for path in files) / 1e6:.1f} MB")
    for name in ("src", "experiments", "tests", "docs", "results", "dev", "benchmarks", "reliability", "scripts"):
        below = [path for path in files if path.is_relative_to(checkout / name)]
        lines = sum(len(path.read_bytes().splitlines()) for path in below if path.suffix == ".py")
        if below:
            print(f"  {name}: {len(below):,} files, {lines:,} lines of Python")
    count, at_doors, inner = tests_of(checkout)
    print(f"test functions: {count:,}, at the doors: {at_doors:,} ({at_doors / count:.0%})")
    print(f"inner names that tests import: {len(inner):,}, of {len({module for module, _ in inner})} modules")
    for name, number in density_of(checkout).items():
        print(f"{name}: {number:,}")
    options = options_of(checkout)
    print(f"options: {sum(options.values())}")
    for command, number in options.items():
        print(f"  {command}: {number}")


if __name__ == "__main__":
    main()
