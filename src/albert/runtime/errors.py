"""Errors for users: subject, reason, remedy on one line, and a documented exit code.

The codes follow sysexits where one fits: a scheduler can tell "retry" (75, 130, 143) from "fix something first".
"""

import copy
import difflib
import errno
import functools
import inspect
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar

from albert.runtime.words import plain

P = ParamSpec("P")
R = TypeVar("R")

MAX_LISTED = 160
"""Characters of valid names that an error lists; help and docs list all."""


class AlbertError(Exception):
    """An error that a user can understand and fix."""

    exit_code = 1

    def __init__(self, subject: object, why: str, remedy: str | None = None) -> None:
        self.subject = str(subject)
        self.why = why
        self.remedy = remedy
        super().__init__(printable(f"{subject}: {why}" + (f"; {remedy}" if remedy else "")))

    def about(self, subject: str) -> "AlbertError":
        """The same error with another name of its subject."""
        renamed = copy.copy(self)
        renamed.subject = subject
        renamed.args = (printable(subject + str(self).removeprefix(printable(self.subject))),)
        return renamed

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle with all attributes, whatever arguments the class takes, to pass between processes."""
        return Exception.__new__, (type(self), *self.args), self.__dict__


class UsageError(AlbertError):
    """The command line does not say what to do."""

    exit_code = 2


class Diverged(AlbertError):
    """Training produced a non-finite number."""

    exit_code = 3


class CheckFailed(AlbertError):
    """A check that the user requested failed."""

    exit_code = 4


class DamagedData(AlbertError):
    """A file is damaged, or does not match the other files."""

    exit_code = 65


class MissingInput(AlbertError):
    """An input is absent, empty or unreadable."""

    exit_code = 66


class Unavailable(AlbertError):
    """A device, a hub or a service is not available."""

    exit_code = 69


class OutOfResources(AlbertError):
    """Memory or another resource of the machine ran out."""

    exit_code = 71


class CannotCreate(AlbertError):
    """An output exists already, is in use, or its folder is not writable."""

    exit_code = 73


class WriteFailed(AlbertError):
    """Writing failed half-way: a full disk, a broken device."""

    exit_code = 74


class TryAgain(AlbertError):
    """A peer process was lost; the same command may succeed."""

    exit_code = 75


class InvalidConfiguration(AlbertError):
    """A setting is unknown, impossible, or contradicts another."""

    exit_code = 78


_RANGES: dict[str, Callable[[float], bool]] = {
    "at least 8": lambda number: number >= 8,
    "at least 1": lambda number: number >= 1,
    "at least 0": lambda number: number >= 0,
    "a number above 0": lambda number: number > 0,
    "a finite number above 0": lambda number: 0 < number < float("inf"),
    "a share above 0 and up to 1": lambda number: 0 < number <= 1,
    "a share above 0 and below 1": lambda number: 0 < number < 1,
    "a share from 0 to 1": lambda number: 0 <= number <= 1,
    "a share from 0 to below 1": lambda number: 0 <= number < 1,
}


def require_range(settings: object, needed: str, *names: str, prefix: str = "") -> None:
    """Refuse numbers outside a range of `_RANGES`; None is allowed.

    Raises:
        InvalidConfiguration: the first of the named attributes that is out of range.
    """
    for name in names:
        number = getattr(settings, name)
        if number is not None and not _RANGES[needed](number):
            raise InvalidConfiguration(prefix + name, f"is {plain(number)}, {needed} is needed")


def printable(message: str) -> str:
    """The message with line ends, control and other invisible characters escaped; it may quote a file."""
    if message.isprintable():
        return message
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in message
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``did you mean 'x'?`` for the most similar known word, else a list of the known words."""
    known = list(known)
    word = "cuda" if word == "gpu" else word
    same = [each for each in known if each.casefold() == word.casefold()]
    close = same or difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    lengths = itertools.accumulate(len(each) + 2 for each in known)
    shown = sum(length <= MAX_LISTED for length in lengths)
    if len(known) - shown <= 3:
        shown = len(known)
    more = f" and {len(known) - shown} more" if shown < len(known) else ""
    return f"known: {', '.join(known[:shown])}{more}" if known else ""


# --------------------------------------------------------------------------------------------------------------------
# Failures of the system and of libraries, as errors for users.

_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG, errno.EROFS}
_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
_RUST_OS_ERROR = re.compile(r"I/O error: .*\(os error (\d+)\)")
_READING = (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError)


def translate(error: BaseException) -> AlbertError | None:
    """The error for users that an exception stands for; None for a defect of this package.

    Exceptions of libraries are recognised by name, because this file imports none of them.
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
        subject = error.filename or "file"
        why = error.strerror or str(error)
        if error.errno in _WRITING:
            if error.filename is None and error.errno != errno.EIO:  # writers of our files set the name
                subject = "standard output or a temporary file"
            return WriteFailed(subject, why, "free space or choose another disk")
        if error.errno in _RESOURCES:
            return OutOfResources(subject, why)
        if isinstance(error, _READING):
            return MissingInput(subject, why)
    return None


def system_error(error: BaseException, *name: str) -> OSError | None:
    """The `OSError` behind an error of a Rust library (safetensors), by the number in its message."""
    number = None if isinstance(error, OSError) else _RUST_OS_ERROR.search(str(error))
    return None if number is None else OSError(int(number[1]), os.strerror(int(number[1])), *name)


def without_inner_frames(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a public function: errors for users have no frames of this package, except with ALBERT_DEBUG=1.

    A call with wrong arguments is an error for users, too.

    Args:
        name: as users call the function: "albert.load".
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                user_error = translate(error)
                if isinstance(error, TypeError):
                    user_error = _wrong_arguments(name, function, args, kwargs)
                if user_error is None or os.environ.get("ALBERT_DEBUG") == "1":
                    raise
            raise user_error.with_traceback(None) from None

        return wrapper

    return decorate


def _wrong_arguments(
    name: str, function: Callable[..., Any], args: Sequence[object], kwargs: Mapping[str, object]
) -> UsageError | None:
    """Why a function cannot be called with these arguments; None if it can."""
    signature = inspect.signature(function)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        unknown = next((each for each in kwargs if each not in signature.parameters), None)
        if unknown is None:
            return UsageError(name, str(error))
        known = [each for each in signature.parameters if each != "self"]
        return UsageError(f"{name}: {unknown}", "unknown keyword", did_you_mean(unknown, known))
    return None
