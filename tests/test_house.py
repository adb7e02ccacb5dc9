"""The rules of the house, checked: what a file may be called, how long it may be, what it may not contain."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from albert.cli import main as table

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "albert"
FILES = sorted(PACKAGE.rglob("*.py"))
ROOMS = sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file())
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "misc", "base", "manager", "managers"}
LONGEST_FILE = 300


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT))


each_file = pytest.mark.parametrize("path", FILES, ids=shown)


@each_file
def test_a_file_can_be_read_in_one_sitting(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LONGEST_FILE


@each_file
def test_a_file_is_named_after_its_one_idea(path):
    assert path.stem not in FORBIDDEN_NAMES and path.parent.name not in FORBIDDEN_NAMES


@each_file
def test_a_file_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@each_file
def test_imports_stand_at_the_top(path):
    """Only the command table imports late, and it does so by name, so that `albert --help` stays light."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    late = [
        inner.lineno
        for outer in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(outer, functions)
        for inner in ast.walk(outer)
        if isinstance(inner, ast.Import | ast.ImportFrom)
        or (path != PACKAGE / "cli" / "main.py" and _imports_by_name(inner))
    ]
    assert late == []


def _imports_by_name(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in ("import_module", "__import__")


@each_file
def test_no_failure_is_swallowed(path):
    silent = [
        handler.lineno
        for handler in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(handler, ast.ExceptHandler) and all(isinstance(line, ast.Pass) for line in handler.body)
    ]
    bare = [
        handler.lineno
        for handler in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(handler, ast.ExceptHandler) and handler.type is None
    ]
    assert (silent, bare) == ([], [])


@each_file
def test_nothing_is_left_for_later(path):
    text = path.read_text(encoding="utf-8")
    assert re.findall(r"\b(?:TODO|FIXME|XXX|HACK)\b|NotImplementedError", text) == []


@each_file
def test_nothing_is_unpickled(path):
    modules = [
        name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""] if isinstance(node, ast.ImportFrom) else [n.name for n in node.names]
        )
    ]
    assert {"pickle", "cloudpickle", "dill", "joblib"}.isdisjoint(name.split(".")[0] for name in modules)
    assert "torch.load(" not in path.read_text(encoding="utf-8")


def test_every_room_stands_on_a_floor():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    floors = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert sorted(room for floor in floors for room in floor.split(" | ")) == ROOMS


def test_tests_mirror_the_rooms():
    rooms_of_tests = {folder.name for folder in (ROOT / "tests").iterdir() if any(folder.glob("test_*.py"))}
    assert rooms_of_tests <= set(ROOMS)
    assert set(ROOMS) <= rooms_of_tests


@pytest.mark.parametrize("room", ROOMS)
def test_the_map_of_the_readme_shows_every_room(room):
    readme = ROOT / "README.md"
    if not readme.is_file():
        pytest.skip("there is no README.md yet")
    assert re.search(rf"\b{room}/", readme.read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", list(table.COMMANDS))
def test_every_command_explains_itself_with_an_example(command, capsys):
    try:
        code = table.run([command, "--help"])
    except SystemExit as exit_:
        code = exit_.code
    help_text = capsys.readouterr().out
    assert not code
    assert "example" in help_text.lower() and f"albert {command}" in help_text


def test_every_direct_dependency_is_pinned_once():
    """And without a build tag, an index or a host, so that the pins hold on every machine."""
    pins = re.findall(
        r"^([\w.-]+)==([\w.]+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    names = [name.lower().replace("_", "-") for name, _ in pins]
    assert len(set(names)) == len(names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["dependencies"] + project["optional-dependencies"]["dev"]
    for requirement in wanted:
        match = re.match(r"[\w.-]+", requirement)
        assert match and match[0].lower().replace("_", "-") in names
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line and not line.startswith("#")]) == len(pins)
