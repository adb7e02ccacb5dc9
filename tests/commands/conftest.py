"""A small table, a reproducible clock, and the bytes of folders."""

import random
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path

import pytest

GOOD, BAD = ("good", "fine", "lovely"), ("bad", "dull", "awful")


def make_reviews(number: int = 40) -> list[dict[str, str]]:
    """Rows of `review` and `stars`."""
    numbers = random.Random(0)
    rows = []
    for index in range(number):
        stars, words = ("up", GOOD) if index % 2 else ("down", BAD)
        rows.append({"review": f"film {index} is {numbers.choice(words)} and {numbers.choice(words)}", "stars": stars})
    return rows


@pytest.fixture
def reviews(tmp_path) -> Path:
    """A CSV file."""
    path = tmp_path / "reviews.csv"
    path.write_text("review,stars\n" + "".join(f"{row['review']},{row['stars']}\n" for row in make_reviews()))
    return path


REAL = {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter")}


def read_clock(real: Callable[[], float], ticks: Iterator[int]) -> float:
    """The time: a hundredth of a second later at each call from albert, and constant for TensorBoard."""
    caller = str(sys._getframe(1).f_globals["__name__"])
    if caller.startswith("albert."):
        return next(ticks) / 100
    return 10_000.0 if "tensorboard" in caller else real()


@pytest.fixture
def clock(monkeypatch):
    """A function that resets the clocks, so that equal work takes equal time."""

    def start() -> None:
        for name, real in REAL.items():
            monkeypatch.setattr(time, name, partial(read_clock, real, count(1_000_000)))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        monkeypatch.setattr(resource, "getrusage", lambda who: usage)
        monkeypatch.setattr(socket, "gethostname", lambda: "machine")
        monkeypatch.setattr("albert.pretraining.task.measured_matmul_rate", lambda *about: 1e10)
        writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
        monkeypatch.setattr(writer, "_global_uid", writer.AtomicCounter(0))

    return start


def files_of(folder: Path) -> dict[str, bytes]:
    """Relative path -> content of every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
