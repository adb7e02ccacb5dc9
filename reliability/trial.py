"""One trial: what is done to the system, how often, and which promise it puts to the proof."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Lane = Literal["quick", "full", "soak"]
"""quick: seconds, inside the tests; full: the evidence that docs/promises.md shows; soak: hours, before a release."""
FAILURES_TOLD = 20
Checks = Iterator[tuple[str, str]]
"""What was tried, and what was wrong about it, or nothing."""


@dataclass(frozen=True)
class Asked:
    """What one run of a trial is asked for.

    Args:
        count: how many tries; a trial of a fixed set (every mutant, say) takes the first so many of it.
        seed: where all its draws come from; the same seed tries the same things.
        folder: an empty folder of its own, removed afterwards unless something failed.
        report: called with how many more tries are done.
    """

    count: int
    seed: int
    folder: Path
    report: Callable[[int], None]


@dataclass(frozen=True)
class Outcome:
    """What came of it.

    Args:
        tried: how many tries there were.
        failed: how many of them broke the promise.
        what: what one try is, in the plural ("kills of a run in any phase").
        details: counts worth telling beside, by name.
        failures: the first failures, a line each, enough to try one again; `FAILURES_TOLD` are kept.
    """

    tried: int
    failed: int
    what: str
    details: dict[str, int | float | str] = field(default_factory=dict)
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class Trial:
    """A trial, declared.

    Args:
        name: as `--only` takes it ("random-kills").
        guarantee: the promise, in a sentence; trials of one promise say the same one (see promises.py).
        counts: how many tries each lane asks for.
        run: does it. What it raises counts as a failure of the trial.
    """

    name: str
    guarantee: str
    counts: Mapping[Lane, int]
    run: Callable[[Asked], Outcome]
