"""What a trial is, how one is run and counted, and how several run at a time."""

import importlib
import pkgutil
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path

import reliability
from albert.runtime.errors import TryAgain
from albert.runtime.progress import progress
from reliability.report import Entry, Lane, commit

FAILURES_TOLD = 20


@dataclass
class Tries:
    """The tries of one run of a trial: what is asked for, and what came of those that are done."""

    count: int  # how many; a trial of a fixed set (every mutant, say) takes the first so many of it
    seed: int  # where all draws come from; the same seed tries the same things
    folder: Path  # empty at first, and removed afterwards unless something failed
    report: Callable[[int], None] = lambda more: None  # called with how many more are done
    what: str = ""  # what one try is, in the plural ("kills of a run in any phase")
    tried: int = 0
    details: dict[str, int | float | str] = field(default_factory=dict)  # counts worth telling beside
    failures: list[str] = field(default_factory=list)  # a line each, enough to try one again

    def record(self, failures: Iterable[str] = (), kind: str = "", tries: int = 1, done: int | None = None) -> None:
        """Count tries: what broke a promise in them, which kind they were of, how many of those asked for are done."""
        self.failures += failures
        self.tried += tries
        if kind:
            self.add(kind, tries)
        self.report(tries if done is None else done)

    def add(self, detail: str, more: int = 1) -> None:
        self.details[detail] = int(self.details.get(detail, 0)) + more

    def most(self, detail: str, value: float, digits: int = 3) -> None:
        self.details[detail] = max(round(value, digits), float(self.details.get(detail, 0.0)))


@dataclass(frozen=True)
class Trial:
    """A trial, declared."""

    name: str  # as `--only` takes it ("random-kills")
    guarantee: str  # the promise that it tries to break, a sentence of report.py
    what: str  # what one try is
    counts: Mapping[Lane, int]  # how many tries each lane asks for
    run: Callable[[Tries], None]  # makes the tries; what it raises counts as a failure of the trial


def trial(guarantee: str, what: str, quick: int, full: int = 0, soak: int = 0) -> Callable[..., Trial]:
    """Declare a function a trial of its name, with the number of tries of each lane; that of a shorter one where none
    is given."""
    counts: dict[Lane, int] = {"quick": quick, "full": full or quick, "soak": soak or full or quick}
    return lambda run: Trial(run.__name__.replace("_", "-"), guarantee, what, counts, run)


def find_trials() -> dict[str, Trial]:
    """Every trial that a module of this package declares, by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(reliability.__path__) if found.name != "__main__")
    modules = [importlib.import_module(f"reliability.{name}") for name in names]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Trial)]
    return {each.name: each for each in sorted(found, key=lambda each: each.name)}


def run_trial(
    trial: Trial, lane: Lane, seed: int, scratch: Path | None = None, report: Callable[[int], None] | None = None
) -> Entry:
    """Run one trial with the count of a lane.

    Whatever it raises is printed with its traceback and counts as a failure: the trials after it still run. The
    scratch folder, made in the system's temporary folder by default, stays where something failed. A bar is shown
    unless `report` is given.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"reliability-{trial.name}-", dir=scratch))
    count = trial.counts[lane]
    started = time.monotonic()
    with progress(trial.name, count, "tries", quiet=report is not None) as bar:
        tries = Tries(count, seed, folder, report or bar.advance, trial.what)
        try:
            trial.run(tries)
        except Exception as error:
            traceback.print_exception(error)
            tries.failures.append(f"the trial itself broke off: {type(error).__name__}: {error}")
    if not tries.failures:
        shutil.rmtree(folder)
    else:
        print(f"{trial.name}: what it left is kept in {folder}", file=sys.stderr)
    return Entry(
        name=trial.name,
        guarantee=trial.guarantee,
        what=tries.what,
        tried=tries.tried,
        failed=len(tries.failures),
        seconds=round(time.monotonic() - started, 1),
        date=time.strftime("%Y-%m-%d"),
        commit=commit(),
        details=tries.details,
        failures=tuple(tries.failures[:FAILURES_TOLD]),
    )


def run_side_by_side(trials: Sequence[Trial], lane: Lane, seed: int, jobs: int) -> Iterator[Entry]:
    """Run trials, so many at a time and each in a process, which looks it up by its name; in the order they end."""
    with (
        ProcessPoolExecutor(jobs, get_context("spawn")) as pool,
        progress(f"Trials, {jobs} at a time", len(trials), "trials") as bar,
    ):
        names = {pool.submit(_run, trial.name, lane, seed): trial.name for trial in trials}
        try:
            for future in as_completed(names):
                bar.advance(1)
                bar.note(f"{names[future]} has ended")
                yield entry_of(future, names[future])
        finally:  # an interrupt does not wait for the trials that have not begun
            pool.shutdown(wait=False, cancel_futures=True)


def entry_of(future: Future[Entry], name: str) -> Entry:
    """What came of a trial; TryAgain where its process died, or another one of the pool."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        why = "did not end: a process of --jobs died, and the others with it"
        raise TryAgain(name, why, "run what is left with --only, fewer at a time") from error


def _run(name: str, lane: Lane, seed: int) -> Entry:
    return run_trial(find_trials()[name], lane, seed, report=lambda more: None)
