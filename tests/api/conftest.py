"""A small table, a clock that both doors see alike, and folders compared byte for byte."""

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
    for place in range(number):
        stars, words = ("up", GOOD) if place % 2 else ("down", BAD)
        rows.append({"review": f"film {place} is {numbers.choice(words)} and {numbers.choice(words)}", "stars": stars})
    return rows


@pytest.fixture
def reviews(tmp_path) -> Path:
    """A CSV file."""
    place = tmp_path / "reviews.csv"
    place.write_text("review,stars\n" + "".join(f"{row['review']},{row['stars']}\n" for row in make_reviews()))
    return place


REAL = {name: getattr(time, name) for name in ("time", "monotonic", "perf_counter")}


def tell(real: Callable[[], float], ticks: Iterator[int]) -> float:
    """The time: for albert's own modules it goes on a hundredth of a second a call, for curves it stands still."""
    caller = str(sys._getframe(1).f_globals["__name__"])
    if caller.startswith("albert."):
        return next(ticks) / 100
    return 10_000.0 if "tensorboard" in caller else real()


@pytest.fixture
def clock(monkeypatch):
    """A function that sets the clocks back to the same start: equal work then takes equal time."""

    def start() -> None:
        for name, real in REAL.items():
            monkeypatch.setattr(time, name, partial(tell, real, count(1_000_000)))
        usage = resource.getrusage(resource.RUSAGE_SELF)
        monkeypatch.setattr(resource, "getrusage", lambda who: usage)
        monkeypatch.setattr(socket, "gethostname", lambda: "machine")
        monkeypatch.setattr("albert.pretraining.run.measured_matmul_rate", lambda *about: 1e10)
        writer = pytest.importorskip("tensorboard.summary.writer.event_file_writer")
        monkeypatch.setattr(writer, "_global_uid", writer.AtomicCounter(0))

    return start


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its path from there."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
