"""The check of an error: its class and its subject, not its wording."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def refusal(error: type[Exception] | tuple[type[Exception], ...], *subjects: object) -> Iterator[pytest.ExceptionInfo]:
    """The block raises this error, whose message is one line with each subject: a file, an option, a value."""
    with pytest.raises(error) as caught:
        yield caught
    message = str(caught.value)
    assert "\n" not in message
    for subject in subjects:
        assert str(subject) in message
