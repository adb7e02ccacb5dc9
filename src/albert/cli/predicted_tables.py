"""What a model answered to one question, as a table or as JSON."""

import json
import sys
from typing import Any

from rich.markup import escape
from rich.table import Column, Table

from albert.cli.console import open_console


def show(found: list[Any], columns: tuple[str, ...], as_json: bool) -> None:
    """A table, or JSON: a line for each prediction, or for each mask a line with all of its predictions."""
    if as_json:
        sys.stdout.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in found)
        return
    if not found:
        print("note: the text holds no words", file=sys.stderr)
        return
    console = open_console()
    for group in found if isinstance(found[0], list) else [found]:
        table = Table(*(Column(name, overflow="fold") for name in columns))
        for entry in group:
            table.add_row(*(_cell(entry[column]) for column in columns))
        console.print(table)
        if "tokens_cut" in group[0]:
            print(f"note: {group[0]['tokens_cut']:,} tokens did not fit and were not read", file=sys.stderr)


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else escape(str(value))
