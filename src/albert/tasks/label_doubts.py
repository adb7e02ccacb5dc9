"""Values of a column that are hardly classes: several labels in one text, dates, numbers as people write them."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from albert.runtime.errors import UsageError
from albert.tables.fields import as_number
from albert.tasks.numbers import looks_like_a_written_number, refuse_comma_numbers

MANY_VALUES = 20
"""Up to this number of different numbers may be classes."""
MANY_ROWS = 20
OF_ITS_OWN = 0.8
"""If more of the values are different, in as many rows as `MANY_ROWS`, nearly every row has a label of its own."""
SEPARATORS = ("|", ";", ",", "/", "+", "#", " ")
_DATE = re.compile(r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2}))([T ]\d{1,2}:|\Z)")


def separator_of(values: Iterable[str]) -> str | None:
    """The separator of several labels that leaves the fewest different labels; None if no value has one."""
    values = list(values)
    best = None
    fewest = len(values)
    for separator in SEPARATORS:
        if any(separator in value.strip() for value in values):
            parts = {part.strip() for value in values for part in value.split(separator)} - {""}
            if len(parts) < fewest or (best is None and len(parts) == fewest and separator in "|;,"):
                best = separator
                fewest = len(parts)
    return best


def refuse_doubtful_classes(values: Sequence[str], label: str) -> None:
    """Raise UsageError for values that are hardly classes: numbers as people write them, several labels in one text, or
    a value of its own in nearly every row."""
    counts = Counter(values)
    _refuse_several_labels(counts, label)
    refuse_comma_numbers(counts, label)
    subject = f"column {label!r}"
    few = len(counts) <= MANY_VALUES and len(values) >= 2 * len(counts)
    dates = sum(_DATE.match(value) is not None for value in counts)
    if not few and dates > 0.9 * len(counts):
        why = f"holds {len(counts):,} different dates such as {values[0]!r}, which are no classes"
        raise UsageError(subject, why, "name another --label, or say --kind classification")
    written = [value for value in counts if looks_like_a_written_number(value)]
    if not few and len(written) > 0.95 * len(counts):
        example = next(value for value in written if as_number(value) is None)
        why = f"holds {len(counts):,} different values such as {example!r}: are they numbers?"
        raise UsageError(subject, why, "write plain numbers (1164.5), or say --kind classification")
    if len(values) >= MANY_ROWS and len(counts) > OF_ITS_OWN * len(values):
        why = f"has {len(counts):,} different values in {len(values):,} rows, nearly every row has a label of its own"
        raise UsageError(subject, why, "name another --label, or say --kind classification")


def _refuse_several_labels(counts: Counter[str], label: str) -> None:
    """Raise UsageError for texts that have a separator, whose parts occur alone, too, or which most rows have."""
    separator = separator_of(counts)
    if separator is not None:
        several = [value for value in counts if separator in value]
        parts = {part.strip() for value in several for part in value.split(separator)}
        if len(several) > 1 and parts <= set(counts):
            raise _are_several(label, f"holds {several[0]!r}, and its parts alone", separator)
    for separator in "|;":
        several = [value for value in counts if separator in value]
        rows_of_part = Counter(part.strip() for value in counts for part in {*value.split(separator)})
        share = sum(counts[value] for value in several) / counts.total()
        if len(several) > 1 and share >= 0.5 and max(rows_of_part.values()) > 1:
            why = f"holds {separator!r} in {share:.0%} of its rows, such as {several[0]!r}"
            raise _are_several(label, why, separator)


def _are_several(label: str, why: str, separator: str) -> UsageError:
    remedy = f"say --kind multi-label --separator {separator!r}, or --kind classification"
    return UsageError(f"column {label!r}", f"{why}: are they several labels?", remedy)
