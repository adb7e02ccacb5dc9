"""Numbers in sentences."""


def counted(count: int, what: str) -> str:
    """A count and what is counted, whose first word is in the plural: `1 sentence dropped`, `2 sentences dropped`."""
    first, blank, rest = what.partition(" ")
    return f"{count:,} {first.removesuffix('s') if count == 1 else first}{blank}{rest}"
