"""Run notebooks and keep what their cells give: `python scripts/run_notebooks.py examples/*.ipynb`.

All cells run in order in one process, in an empty folder. What a cell prints and the value of its last line are kept as
Jupyter keeps them; progress on standard error is not, as no two runs have the same. Jupyter itself is not needed."""

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def run_notebook(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of a run in the current folder; errors of cells are raised."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell = {**cell, "execution_count": number, "outputs": run_cell("".join(cell["source"]), names, number)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """The outputs of a cell, which may use and change the names."""
    lines = ast.parse(source).body
    last = lines.pop() if lines and isinstance(lines[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(ast.Module(lines, []), f"<cell {number}>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"<cell {number}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        about = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        outputs.append({**about, "data": shown(value)})
    return outputs


def shown(value: Any) -> dict[str, Any]:
    """A value as a notebook shows it: as text, and as HTML where it has that."""
    data: dict[str, Any] = {"text/plain": _lines(repr(value))}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = _lines(value._repr_html_())
    return data


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run the notebooks that are named, and write them with their outputs."""
    for name in sys.argv[1:]:
        place = Path(name).resolve()
        notebook = json.loads(place.read_text(encoding="utf-8"))
        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                done = run_notebook(notebook)
            finally:
                os.chdir(here)
        place.write_text(json.dumps(done, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {sum(cell['cell_type'] == 'code' for cell in done['cells'])} cells")


if __name__ == "__main__":
    main()
