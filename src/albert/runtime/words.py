"""Numbers in sentences."""


def counted(count: int, what: str) -> str:
    """A count and what is counted, in the plural: `1 sentence dropped`, `2 sentences dropped`, `1 training row`.

    The noun is the first word of `what` that ends in s.
    """
    words = what.split(" ")
    if count == 1:
        at = next(number for number, word in enumerate(words) if word.removesuffix(":").endswith("s"))
        words[at] = _singular(words[at].removesuffix(":")) + (":" if words[at].endswith(":") else "")
    return f"{count:,} {' '.join(words)}"


def _singular(plural: str) -> str:
    return plural.removesuffix("es") if plural.endswith(("sses", "ches")) else plural.removesuffix("s")


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
