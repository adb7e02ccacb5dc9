"""What the server takes on at most; every limit is on unless told otherwise."""

from dataclasses import dataclass, fields

from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True)
class Limits:
    """Sizes, counts and seconds.

    Raises:
        InvalidConfiguration: one of them is not above zero, or a request could ask for more than the queue holds.
    """

    body_bytes: int = 1_000_000
    """Bytes of a request's body (413)."""
    texts: int = 32
    """Texts in a request; of a question with options, each option is one (413)."""
    text_characters: int = 100_000
    """Characters of a text (413)."""
    header_bytes: int = 16_384
    """Bytes of a request's header (431)."""
    connections: int = 256
    """Connections at a time; beyond them, who has not yet asked anything makes room (503 when nobody can)."""
    header_seconds: float = 10.0
    """Until a header must have come (408)."""
    body_seconds: float = 30.0
    """Until a body must have come, and until a reply must have been read (408)."""
    queue_texts: int = 256
    """Texts that may wait; a request is taken as a whole or not at all (429)."""
    queue_seconds: float = 4.0
    """Seconds that a text may have to wait, at the pace of late; where nothing waits, any request is taken (429)."""
    request_seconds: float = 30.0
    """Until a request is answered, the time in the queue included (504)."""
    batch_tokens: int = 8192
    """Tokens, as estimated from the characters, that are computed together for all callers."""
    layer_tokens: int = 64
    """Tokens of a text whose layers are shown, the rest being cut; the reply grows with their square."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise InvalidConfiguration(f"limits.{field.name} {value}", "a limit is a number above zero")
        if self.texts > self.queue_texts:
            why = f"a request of {self.texts} texts would never find room in a queue of {self.queue_texts}"
            raise InvalidConfiguration("limits.queue_texts", why, "raise it, or lower limits.texts")
