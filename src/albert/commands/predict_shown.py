"""What `albert predict` prints beside the answers, and the answers to one input."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from albert.cli.render import open_console, table
from albert.text.unknown import unknown_warning

if TYPE_CHECKING:
    from albert.inference.predictor import Predictor


def show_predictions(predictions: list[Any], columns: tuple[str, ...]) -> None:
    """Print a table, or one for each mask."""
    if not predictions:
        note("the text has no words")
        return
    console = open_console()
    for group in predictions if isinstance(predictions[0], list) else [predictions]:
        rows = [[cell(row.get(column)) for column in columns] for row in group]
        console.print(table(None, columns, rows, words=range(len(columns)), boxed=True))
        if "tokens_cut" in group[0]:
            lost = group[0]["tokens_cut"]
            what = "token did not fit and was not read" if lost == 1 else "tokens did not fit and were not read"
            note(f"{lost:,} {what}")


def cell(value: Any) -> str:
    """A value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def note(text: str) -> None:
    """Print a note beside the answers."""
    print(f"albert: note: {text}", file=sys.stderr)


def print_model(predictor: "Predictor") -> None:
    """Print which model answered, and how it computed."""
    layers = "1 layer" if predictor.depth == 1 else f"{predictor.depth} layers"
    how = f"{predictor.precision} on {predictor.device.type}, {layers}"
    print(f"{predictor.name}: {how}", file=sys.stderr)


def print_warning_of_unknown(predictor: "Predictor", texts: Iterable[str]) -> None:
    """Print a line if the model's vocabulary does not know many pieces of the texts."""
    warning = unknown_warning(predictor.tokenizer, texts, predictor.name)
    if warning is not None:
        print(f"albert: {warning}", file=sys.stderr)
