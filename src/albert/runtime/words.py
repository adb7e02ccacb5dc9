"""Numbers in sentences."""


def counted(count: int, what: str) -> str:
    """A count and what is counted, whose first word is in the plural: `1 sentence dropped`, `2 sentences dropped`."""
    first, blank, rest = what.partition(" ")
    if count == 1:
        colon = ":" if first.endswith(":") else ""
        first = first.removesuffix(colon).removesuffix("s") + colon
    return f"{count:,} {first}{blank}{rest}"


def in_epochs(epochs: float) -> str:
    """A number of epochs in three digits: `1 epoch`, `2.25 epochs`."""
    shown = f"{epochs:.3g}"
    return f"{shown} epoch" if shown == "1" else f"{shown} epochs"
