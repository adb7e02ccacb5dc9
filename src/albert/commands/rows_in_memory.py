"""Rows in memory, data frames and dicts, which Python functions take in place of a file."""

import json
import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from albert.runtime.errors import (
    DamagedData,
    MissingInput,
    UsageError,
)
from albert.runtime.words import kind_of_value


def rows_as_json_lines(value: Any, name: str) -> str:
    """The rows of a data frame, or dicts, as JSON lines; missing values (None, NaN) are null."""
    if hasattr(value, "to_dicts"):  # polars
        value = value.to_dicts()
    elif hasattr(value, "to_dict") and hasattr(value, "columns"):  # pandas
        if len({*map(str, value.columns)}) < len(value.columns):
            raise DamagedData(name, "two columns have the same name")
        value = value.astype(object).where(value.notna(), None).to_dict("records")
    is_array = hasattr(value, "dtype")  # or a single column of a data frame
    if isinstance(value, Mapping) or not isinstance(value, Iterable) or is_array:
        is_one = isinstance(value, Mapping)
        why = "is one dict, rows are a list of dicts" if is_one else f"is {kind_of_value(value)}, not rows"
        raise UsageError(name, why, "give a file, a data frame, or a list of dicts")
    lines = []
    for number, row in enumerate(value, start=1):
        if not isinstance(row, Mapping):
            why = f"is {kind_of_value(row)}, not a row with its columns"
            raise UsageError(f"{name}:{number}", why, "give a data frame, or a list of dicts")
        cells = {str(key): None if isinstance(item, Real) and math.isnan(item) else item for key, item in row.items()}
        lines.append(_json_line(cells, f"{name}:{number}"))
    if not lines:
        raise MissingInput(name, "has no rows")
    return "".join(lines)


def _json_line(cells: Mapping[str, Any], where: str) -> str:
    try:
        line = json.dumps(cells, ensure_ascii=False, allow_nan=False, default=_json_value) + "\n"
        line.encode()  # refuses half of a surrogate pair
    except (TypeError, ValueError) as error:
        for column in cells if len(cells) > 1 else ():
            _json_line({column: cells[column]}, where)
        why = f"column {next(iter(cells))!r} cannot be written as JSON ({error})"
        raise UsageError(where, why, "drop the column if it is not used") from error
    return line


def _json_value(value: Any) -> Any:
    if hasattr(value, "tolist"):  # an array, or a number of NumPy
        return value.tolist()
    if hasattr(value, "isoformat"):
        return str(value)
    raise TypeError(f"{type(value).__name__} is neither text, number, truth value nor list")
