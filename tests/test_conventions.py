"""What holds for the package as a whole: checked annotations, no pickle, levels, help, pinned dependencies."""

import ast
import re
import tomllib
from collections.abc import Callable, Iterable
from pathlib import Path

import jaxtyping
import pytest
import torch
from beartype import beartype
from beartype.roar import BeartypeCallHintViolation
from experiments.jobs import Folders

from albert.cli import main as table
from albert.model.heads import streamed_cross_entropy
from albert.recipes.architecture import EncoderConfig
from albert.runtime.devices import pick_device
from albert.runtime.environment import DISTRIBUTION
from albert.runtime.progress import Position

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "albert"
FILES = sorted(PACKAGE.rglob("*.py"))
SUBPACKAGES = sorted(folder.name for folder in PACKAGE.iterdir() if (folder / "__init__.py").is_file())


def places(rule: Callable[[Path, ast.Module], Iterable[int]]) -> list[str]:
    """Where a rule is broken in the package, as "file:line"."""
    return [
        f"{path.relative_to(ROOT)}:{line}"
        for path in FILES
        for line in rule(path, ast.parse(path.read_text(encoding="utf-8")))
    ]


def test_annotations_are_checked_while_tests_run():
    """Of shapes, which may depend on one another, of plain types, of what is returned, of fields, of experiments."""
    words, labels = torch.zeros(5, 3), torch.zeros(2, dtype=torch.long)
    for error, wrong in (
        (jaxtyping.TypeCheckError, lambda: streamed_cross_entropy(torch.zeros(2, 4), words, torch.zeros(5), labels)),
        (BeartypeCallHintViolation, lambda: pick_device(0)),
        (BeartypeCallHintViolation, lambda: Position(None, least="one")),
        (BeartypeCallHintViolation, lambda: EncoderConfig(vocab_size="many")),
        (BeartypeCallHintViolation, lambda: Folders("runs/tables")),
        (BeartypeCallHintViolation, lambda: jaxtyping.jaxtyped(typechecker=beartype)(returns_text)()),
    ):
        with pytest.raises(error):
            wrong()


def returns_text() -> str:
    return 3


def test_nothing_is_unpickled():
    """No pickle is ever loaded: a model file cannot run code."""

    def unpickles(path: Path, tree: ast.Module) -> Iterable[int]:
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if {"pickle", "cloudpickle", "dill", "joblib"} & {name.split(".")[0] for name in names}:
                yield node.lineno
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                yield node.lineno

    assert places(unpickles) == []


def test_every_subpackage_has_a_level():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    levels = settings["tool"]["importlinter"]["contracts"][0]["layers"]
    assert sorted(name for level in levels for name in level.split(" | ")) == SUBPACKAGES


def test_every_subpackage_has_a_flat_folder_of_tests():
    """Beside them are tests of what is not installed. The server, a folder within a subpackage, has one within."""
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    others = {"", "experiments", "reliability", "inference/server"}
    assert folders == {Path(name) for name in (*SUBPACKAGES, *others)}


@pytest.mark.parametrize("name", SUBPACKAGES)
def test_the_map_of_the_architecture_shows_every_subpackage(name):
    assert re.search(rf"\b{name}/", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("command", list(table.COMMANDS))
def test_every_command_explains_itself_with_an_example(command, capsys):
    try:
        code = table.run([command, "--help"])
    except SystemExit as exit_:
        code = exit_.code
    help_text = capsys.readouterr().out
    assert not code
    assert "example" in help_text.lower() and f"albert {command}" in help_text


def test_the_tour_names_files_that_exist():
    names = {path.name for folder in ("src", "experiments", "dev") for path in (ROOT / folder).rglob("*.py")}
    named = re.findall(r"`(?:[a-z_]+/)*([a-z_]+\.py)`", (ROOT / "docs" / "tour.md").read_text(encoding="utf-8"))
    assert len(named) > 40 and set(named) <= names


def test_every_direct_dependency_is_pinned_once():
    """And without a build tag, an index or a host, so that the pins hold on every machine."""
    pins = re.findall(r"^([\w.-]+)==([\w.]+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    names = [name.lower().replace("_", "-") for name, _ in pins]
    assert len(set(names)) == len(names)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *(one for extra in project["optional-dependencies"].values() for one in extra)]
    for requirement in wanted:
        match = re.match(r"[\w.-]+", requirement)
        assert match and (match[0] == DISTRIBUTION or match[0].lower().replace("_", "-") in names), requirement
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert len([line for line in lines if line and not line.startswith("#")]) == len(pins)
