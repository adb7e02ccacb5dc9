"""What waits and how long it will: texts, which bound the memory, and tokens, which take the time.

A queue that is bounded in texts alone suits one model: what a small one computes in a second takes a large one minutes,
and a text that is accepted only to miss its deadline was better refused.
"""

import math
from collections.abc import Iterable, Sequence

from albert.inference.server.limits import Limits

BATCH_SECONDS = 1.0
"""As long as computing one batch may take, by estimate; who comes next waits for it."""
LEAST_TOKENS = 64
"""What the smallest batch counts for: its time goes into everything but tokens. Were it more, texts that come one by
one would promise a pace that batches do not keep."""
FIRST_TOKENS = 512
"""As many go together before any pace is known."""
KEPT = 0.9
"""How much of what earlier batches told counts when another one has been computed."""

Size = tuple[int, int]
"""Texts, and tokens as estimated."""


class Backlog:
    """Counts of what waits, and the pace of late.

    Args:
        limits: of texts and seconds.

    Attributes:
        texts: that wait.
        tokens: that wait or are being computed, as estimated.
    """

    def __init__(self, limits: Limits) -> None:
        self._most_texts, self._batch_tokens = limits.queue_texts, limits.batch_tokens
        self._most_seconds = min(limits.queue_seconds, limits.request_seconds)
        self.texts, self.tokens = 0, 0
        self._computed_tokens, self._computing_seconds = 0.0, 0.0

    @property
    def seconds(self) -> float:
        """Until what was accepted is computed, at the pace of late; 0 before any pace is known."""
        return self.tokens * self._seconds_per_token

    @property
    def is_full(self) -> bool:
        """Whether not even one text finds room."""
        return self.texts >= self._most_texts or (self.texts > 0 and self.seconds >= self._most_seconds)

    @property
    def retry_after(self) -> int:
        """Whole seconds in which what waits now will have been computed."""
        return max(1, math.ceil(self.seconds))

    @property
    def batch_tokens(self) -> int:
        """Tokens that may be computed together now."""
        if not self._seconds_per_token:
            return min(self._batch_tokens, FIRST_TOKENS)
        return min(self._batch_tokens, int(BATCH_SECONDS / self._seconds_per_token))

    def has_room(self, sizes: Sequence[Size]) -> bool:
        """Whether so much may come to what waits; where nothing does, time is no reason to refuse."""
        texts, tokens = (sum(size[place] for size in sizes) for place in range(2))
        seconds = (self.tokens + tokens) * self._seconds_per_token
        return self.texts + texts <= self._most_texts and (not self.texts or seconds <= self._most_seconds)

    def add(self, sizes: Iterable[Size]) -> None:
        """Something waits from now on."""
        for texts, tokens in sizes:
            self.texts += texts
            self.tokens += tokens

    def remove(self, sizes: Iterable[Size]) -> None:
        """Something no longer waits, and will not be computed."""
        self.add((-texts, -tokens) for texts, tokens in sizes)

    def begin(self, texts: int) -> None:
        """So many texts no longer wait, but are being computed: others wait for them until `note`."""
        self.texts -= texts

    def give_up(self, tokens: int) -> None:
        """What was begun will not be computed to its end."""
        self.tokens -= tokens

    def note(self, tokens: int, seconds: float) -> None:
        """What was begun has been computed."""
        self.tokens -= tokens
        self._computed_tokens = KEPT * self._computed_tokens + max(tokens, LEAST_TOKENS)
        self._computing_seconds = KEPT * self._computing_seconds + seconds

    @property
    def _seconds_per_token(self) -> float:
        return self._computing_seconds / self._computed_tokens if self._computed_tokens else 0.0
