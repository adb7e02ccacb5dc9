"""Run notebooks and save the outputs of their cells: `python dev/scripts/run_notebooks.py examples/*.ipynb`.

All cells run in order in one process, in an empty folder. Printed text and the value of the last line are saved in
Jupyter's format; standard error is not, because it varies between runs. Jupyter itself is not needed."""

import argparse
import ast
import contextlib
import io
import json
import os
import tempfile
from pathlib import Path
from typing import Any


def run_notebook(notebook: dict[str, Any]) -> dict[str, Any]:
    """Run a notebook in the current folder: the notebook with its outputs. Errors of cells are raised."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, number = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell = {**cell, "execution_count": number, "outputs": run_cell("".join(cell["source"]), names, number)}
        cells.append(cell)
    return {**notebook, "cells": cells}


def run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Run a cell, which may use and change the names: its outputs."""
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
        result = {"output_type": "execute_result", "execution_count": number, "metadata": {}}
        outputs.append({**result, "data": shown(value)})
    return outputs


def shown(value: Any) -> dict[str, Any]:
    """A value as text, and as HTML if it has such a representation."""
    data: dict[str, Any] = {"text/plain": _lines(repr(value))}
    if hasattr(value, "_repr_html_"):
        data["text/html"] = _lines(value._repr_html_())
    return data


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    """Run the notebooks that are named, and write them with their outputs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="+")
    for name in parser.parse_args().notebooks:
        path = Path(name).resolve()
        notebook = json.loads(path.read_text(encoding="utf-8"))
        original_folder = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                finished = run_notebook(notebook)
            finally:
                os.chdir(original_folder)
        path.write_text(json.dumps(finished, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(f"{name}: {sum(cell['cell_type'] == 'code' for cell in finished['cells'])} cells")


if __name__ == "__main__":
    main()
