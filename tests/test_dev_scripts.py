"""Every script of dev/ loads with the package as it is, and has --help; its first lines show a whole command."""

import importlib
import runpy
import sys
from pathlib import Path

import pytest

DEV = Path(__file__).resolve().parents[1] / "dev"
FOLDERS = [*sorted(DEV.glob("benchmarks/*.py")), *sorted(DEV.glob("scripts/*.py"))]
SCRIPTS = [path for path in FOLDERS if '\nif __name__ == "__main__":' in path.read_text(encoding="utf-8")]
SCRIPTS += [DEV / "oracle.py", DEV / "reliability" / "__main__.py"]
AS_MODULES = {"figures.py": "dev.scripts.figures", "__main__.py": "dev.reliability.__main__"}
"""Scripts that import others of dev/, and are run with `python -m`."""


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.relative_to(DEV).as_posix())
def test_a_script_loads_and_explains_itself(path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    monkeypatch.syspath_prepend(path.parent)  # scripts import each other
    code: object = None
    try:
        if path.name in AS_MODULES:
            monkeypatch.delitem(sys.modules, AS_MODULES[path.name], raising=False)  # another test may have imported it
            runpy.run_module(AS_MODULES[path.name], run_name="__main__")
        else:
            runpy.run_path(str(path), run_name="__main__")
    except SystemExit as exit_:
        code = exit_.code
    shown = capsys.readouterr().out
    assert not code
    assert len(shown.splitlines()) > 3 and not shown.startswith("Traceback")


def test_every_other_file_is_imported_by_a_script():
    texts = [path.read_text(encoding="utf-8") for path in SCRIPTS]
    for path in {*FOLDERS} - {*SCRIPTS}:
        assert any(f"from {path.stem} import" in text or f"import {path.stem}" in text for text in texts), path


@pytest.mark.parametrize("path", sorted(DEV.glob("reliability/[a-z]*.py")), ids=lambda path: path.stem)
def test_every_module_of_the_trials_loads(path):
    importlib.import_module(f"dev.reliability.{path.stem}")
