"""Declares, runs and counts trials, one after the other or in parallel."""

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

import dev.reliability
from dev.reliability.report import Entry, Lane, commit

from albert.runtime.errors import TryAgain
from albert.runtime.progress import progress

REPORTED_FAILURES = 20


@dataclass
class Tries:
    """One run of a trial: what to do, and the results so far."""

    count: int  # number of tries; a trial of a fixed set (damaged files, say) takes its first `count` elements
    seed: int  # of all random draws
    folder: Path  # empty; removed afterwards unless something failed
    report: Callable[[int], None] = lambda more: None  # called with the number of further tries done
    what: str = ""  # describes the tries, in the plural ("kills of a run in any phase")
    tried: int = 0
    details: dict[str, int | float | str] = field(default_factory=dict)  # additional counts
    failures: list[str] = field(default_factory=list)  # one line each, with what is needed to repeat the try

    def record(self, failures: Iterable[str] = (), kind: str = "", tries: int = 1, done: int | None = None) -> None:
        """Count tries with their failures and kind; `done` is their share of `count`, by default all of them."""
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
    """A declared trial."""

    name: str  # as `--only` takes it ("random-kills")
    guarantee: str  # the promise it tests, a sentence of report.py
    what: str  # describes the tries
    counts: Mapping[Lane, int]  # number of tries per lane
    run: Callable[[Tries], None]  # makes the tries; an exception counts as a failure


def trial(guarantee: str, what: str, quick: int, full: int = 0, soak: int = 0) -> Callable[..., Trial]:
    """Declare a function as a trial. A lane without a number of tries has that of the next shorter lane."""
    counts: dict[Lane, int] = {"quick": quick, "full": full or quick, "soak": soak or full or quick}
    return lambda run: Trial(run.__name__.replace("_", "-"), guarantee, what, counts, run)


def find_trials() -> dict[str, Trial]:
    """The trials that the modules of this package declare, by name."""
    names = sorted(info.name for info in pkgutil.iter_modules(dev.reliability.__path__) if info.name != "__main__")
    modules = [importlib.import_module(f"dev.reliability.{name}") for name in names]
    trials = [value for module in modules for value in vars(module).values() if isinstance(value, Trial)]
    return {trial.name: trial for trial in sorted(trials, key=lambda trial: trial.name)}


def run_trial(
    trial: Trial, lane: Lane, seed: int, scratch: Path | None = None, report: Callable[[int], None] | None = None
) -> Entry:
    """Run one trial with the count of a lane.

    An exception is printed with its traceback and counts as a failure. The scratch folder, by default in the system's
    temporary folder, is kept if something failed. A progress bar is shown unless `report` is given.
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
            tries.failures.append(f"the trial raised {type(error).__name__}: {error}")
    if not tries.failures:
        shutil.rmtree(folder)
    else:
        print(f"{trial.name}: its files are kept in {folder}", file=sys.stderr)
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
        failures=tuple(tries.failures[:REPORTED_FAILURES]),
    )


def run_side_by_side(trials: Sequence[Trial], lane: Lane, seed: int, jobs: int) -> Iterator[Entry]:
    """Run trials in `jobs` parallel processes; yields their entries as they end."""
    with (
        ProcessPoolExecutor(jobs, get_context("spawn")) as pool,
        progress(f"Trials, {jobs} at a time", len(trials), "trials") as bar,
    ):
        names = {pool.submit(_run, trial.name, lane, seed): trial.name for trial in trials}
        try:
            for future in as_completed(names):
                bar.advance(1)
                bar.note(f"{names[future]} is done")
                yield entry_of(future, names[future])
        finally:  # an interrupt does not wait for trials that have not started
            pool.shutdown(wait=False, cancel_futures=True)


def entry_of(future: Future[Entry], name: str) -> Entry:
    """The entry of a trial; TryAgain if a process of the pool died."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        why = "did not end: a process of --jobs died, and the others with it"
        raise TryAgain(name, why, "run what is left with --only, fewer at a time") from error


def _run(name: str, lane: Lane, seed: int) -> Entry:
    return run_trial(find_trials()[name], lane, seed, report=lambda more: None)
