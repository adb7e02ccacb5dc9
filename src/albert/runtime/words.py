"""Numbers and values in sentences."""

from collections.abc import Mapping


def counted(count: int, what: str) -> str:
    """A count and what is counted, in the plural: `1 sentence dropped`, `2 sentences dropped`, `1 training row`.

    The noun is the first or the second word of `what`, that which ends in s; without one, `what` stays as it is.
    """
    words = what.split(" ")
    for number, word in enumerate(words[:2]):
        noun = word.removesuffix(":")
        if noun.endswith("s"):
            if count == 1:
                words[number] = _singular(noun) + word.removeprefix(noun)
            break
    return f"{count:,} {' '.join(words)}"


def _singular(plural: str) -> str:
    return plural.removesuffix("es") if plural.endswith(("sses", "ches")) else plural.removesuffix("s")


def plain(number: float) -> str:
    """A number as it is typed: `0` and not `0.0`."""
    is_whole = isinstance(number, float) and number.is_integer() and abs(number) < 1e15
    return str(int(number) if is_whole else number)


def kind_of_value(value: object) -> str:
    """What a value is, for an error: a number or a short text as it is, and other values by their kind."""
    if value is None:
        return "None (null)"
    if isinstance(value, str):
        return repr(value if len(value) <= 40 else f"{value[:40]}…")
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "a table of keys {...}"
    if isinstance(value, list | tuple):
        return "a list"
    return f"an object of type {type(value).__name__}"


def in_epochs(epochs: float) -> str:
    """A number of epochs in three digits: `1 epoch`, `2.25 epochs`."""
    shown = f"{epochs:.3g}"
    return f"{shown} epoch" if shown == "1" else f"{shown} epochs"


def bytes_of(number: int | float) -> str:
    """Bytes with a decimal unit: 46.7 MB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:,.{2 if number < 10 * size else 1}f} {unit}"
    return f"{number:,} B"
