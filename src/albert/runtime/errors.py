"""Errors for users: subject, reason, remedy on one line, and a documented exit code.

The codes follow sysexits where one fits: a scheduler can tell "retry" (75, 130, 143) from "fix something first".
"""

import difflib
import errno
import functools
import os
import re
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

MOST_LISTED = 160
"""Characters of the known words that an error lists; help and docs have them all."""


class AlbertError(Exception):
    """Something a user can understand and mend."""

    exit_code = 1

    def __init__(self, subject: object, why: str, remedy: str | None = None) -> None:
        self.subject, self.why, self.remedy = str(subject), why, remedy
        super().__init__(printable(f"{subject}: {why}" + (f"; {remedy}" if remedy else "")))

    def __reduce__(self) -> tuple[Any, ...]:
        """An error that crosses processes arrives whole, whatever its class takes to be made."""
        return Exception.__new__, (type(self), *self.args), self.__dict__


class UsageError(AlbertError):
    """The command line does not say what to do."""

    exit_code = 2


class Diverged(AlbertError):
    """Training produced a number that is not finite."""

    exit_code = 3


class CheckFailed(AlbertError):
    """A check that the user asked for did not hold."""

    exit_code = 4


class DamagedData(AlbertError):
    """A file is damaged, or does not belong with the others."""

    exit_code = 65


class MissingInput(AlbertError):
    """An input is absent, empty or unreadable."""

    exit_code = 66


class Unavailable(AlbertError):
    """A device, a hub or a service cannot be had."""

    exit_code = 69


class OutOfResources(AlbertError):
    """Memory or another resource of the machine ran out."""

    exit_code = 71


class CannotCreate(AlbertError):
    """An output exists already, is in use, or its place cannot be written."""

    exit_code = 73


class WriteFailed(AlbertError):
    """Writing failed half-way: a full disk, a broken device."""

    exit_code = 74


class TryAgain(AlbertError):
    """A peer was lost; the same command may succeed."""

    exit_code = 75


class InvalidConfiguration(AlbertError):
    """A setting is unknown, impossible, or contradicts another."""

    exit_code = 78


def printable(message: str) -> str:
    """The message with every line end, control and other invisible character escaped: it may quote a file."""
    if message.isprintable():
        return message
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in message
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` for the closest known word, or a list of what is known."""
    known = list(known)
    word = "cuda" if word == "gpu" else word
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {_abridged(known)}" if known else ""


def _abridged(words: list[str]) -> str:
    """As many words as find room in a line beside what is wrong."""
    shown: list[str] = []
    length = 0
    for word in words:
        length += len(word) + 2
        if length > MOST_LISTED:
            return f"{', '.join(shown)} and {len(words) - len(shown)} more"
        shown.append(word)
    return ", ".join(shown)


# --------------------------------------------------------------------------------------------------------------------
# Failures of the system and of libraries, as errors for users.

_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS}
_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
_SAID_BY_RUST = re.compile(r"I/O error: .*\(os error (\d+)\)")
_READING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def translate(error: BaseException) -> AlbertError | None:
    """What a failure means to the user; None when it can only be a mistake of ours.

    Errors of libraries are known by name, because this file imports none of them.
    """
    if isinstance(error, AlbertError):
        return error
    kind = type(error).__name__
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or "can't allocate memory" in str(error):
        return OutOfResources("memory", "not enough for this", "take a smaller batch or a smaller model")
    if kind == "PanicException":  # a Rust library gave up on its input
        return DamagedData("input", f"a library cannot read it ({error})")
    error = system_error(error) or error
    if isinstance(error, OSError):
        subject, why = error.filename or "file", error.strerror or str(error)
        if error.errno in _WRITING:
            if error.filename is None and error.errno != errno.EIO:  # who writes a file of ours gives its name
                subject = "standard output or a temporary file"
            return WriteFailed(subject, why, "free space or choose another disk")
        if error.errno in _RESOURCES:
            return OutOfResources(subject, why)
        if isinstance(error, _READING):
            return MissingInput(subject, why)
    return None


def system_error(error: BaseException, *name: str) -> OSError | None:
    """The operating system's error that a Rust library met (safetensors), by the number in its message."""
    number = None if isinstance(error, OSError) else _SAID_BY_RUST.search(str(error))
    return None if number is None else OSError(int(number[1]), os.strerror(int(number[1])), *name)


def without_inner_frames(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose known errors come from the call itself: with their one line, and no frames of ours to read.

    ALBERT_DEBUG=1 keeps them.
    """

    @functools.wraps(function)
    def called(*arguments: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*arguments, **keywords)
        except Exception as error:
            known = translate(error)
            if known is None or os.environ.get("ALBERT_DEBUG") == "1":
                raise
        raise known.with_traceback(None) from None

    return called
