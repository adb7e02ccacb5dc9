"""SIGTERM and SIGINT ask for a checkpoint and an end, not for a corpse."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from albert.runtime.errors import AlbertError


class Stopped(AlbertError):
    """The run was asked to end and saved itself; the same command goes on."""

    def __init__(self, subject: object, number: int | None) -> None:
        number = number or signal.SIGTERM  # another rank heard it
        super().__init__(
            subject, f"stopped by {signal.Signals(number).name} after saving", "run the same command to go on"
        )
        self.exit_code = 128 + number


class _GivenUp(BaseException):
    """A signal came while something ran that is not worth waiting for; no handler of errors may take it for one."""


class Attempt:
    """Something that a signal may have ended."""

    given_up = False


class StopRequest:
    """The first signal that came, or None."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._attempt: Attempt | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """Handler: only set the flag; a second SIGINT stops at once."""
        if number == signal.SIGINT and self.number is not None:
            raise KeyboardInterrupt
        self.number = number
        if self._attempt is not None and not self._attempt.given_up:
            self._attempt.given_up = True
            raise _GivenUp

    @contextmanager
    def giving_up(self) -> Iterator[Attempt]:
        """What runs in the block ends when a signal comes; what follows the block is reached all the same."""
        attempt = Attempt()
        with suppress(_GivenUp):
            try:
                self._attempt = attempt
                yield attempt
            finally:
                self._attempt = None


@contextmanager
def stop_signals() -> Iterator[StopRequest]:
    """Listen for SIGTERM and SIGINT during the block, then put the old handlers back."""
    request = StopRequest()
    old = {number: signal.signal(number, request.note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield request
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
