"""Which option a label means: the name of its column, its letter, its number from 0 or from 1, or its own text."""

from collections.abc import Sequence
from typing import get_args

from albert.runtime.errors import UsageError
from albert.tasks.rows import Row
from albert.tasks.tables.table_task import OptionLabels


def place_of_option(label: str, kind: OptionLabels, names: Sequence[str], texts: Sequence[str]) -> int | None:
    """The place of the option that a label means, None when it means none.

    Args:
        label: what the table has.
        kind: how it is meant.
        names: the options' columns.
        texts: the options of the row.
    """
    match kind:
        case "name":
            return names.index(label) if label in names else None
        case "letter":
            place = ord(label.upper()) - ord("A") if len(label) == 1 and label.isascii() and label.isalpha() else -1
        case "from-0" | "from-1":
            number = label.removesuffix(".0")  # as a column with gaps has whole numbers
            is_place = number.isascii() and number.isdigit() and len(number) < 9
            place = int(number) - (kind == "from-1") if is_place else -1
        case "text":
            return texts.index(label) if texts.count(label) == 1 else None
    return place if 0 <= place < len(names) else None


def infer_option_labels(rows: Sequence[Row], names: tuple[str, ...], column: str) -> OptionLabels:
    """The one way in which the labels of all rows mean an option; where there is none, that in which most do.

    Args:
        rows: rows with options and labels; those without are passed over.
        names: the options' columns.
        column: that of the label.

    Raises:
        UsageError: there are several ways, and they mean different options.
    """
    whole = [row for row in rows if _is_whole(row, names, column)]
    labels = [(row.text(column).strip(), [row.text(name) for name in names]) for row in whole]
    kinds: tuple[OptionLabels, ...] = get_args(OptionLabels)
    found: dict[OptionLabels, list[int | None]] = {
        kind: [place_of_option(label, kind, names, texts) for label, texts in labels] for kind in kinds
    }
    fitting: dict[OptionLabels, list[int | None]] = {
        kind: places for kind, places in found.items() if None not in places
    }
    if not fitting:
        best = kinds[0]
        for kind in kinds:
            best = kind if found[kind].count(None) < found[best].count(None) else best
        return best
    first = next(iter(fitting))
    others = [kind for kind, places in fitting.items() if places != fitting[first]]
    if others:
        why = f"may name an option in two ways, {first} and {others[0]}"
        raise UsageError(f"column {column!r}", why, f"say --option-labels {first} or {others[0]}")
    return first


def _is_whole(row: Row, names: Sequence[str], column: str) -> bool:
    """Whether there are a label and texts to look at."""
    texts = [row.fields.get(name) for name in (column, *names)]
    return all(isinstance(text, str) for text in texts) and bool(str(texts[0]).strip())
