"""A lane: the trials in this folder, one after another, each in a scratch folder of its own."""

import importlib
import pkgutil
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import reliability
from albert.runtime.errors import InvalidConfiguration, did_you_mean
from albert.runtime.progress import progress
from reliability.report import Entry, commit
from reliability.trial import FAILURES_TOLD, Asked, Lane, Outcome, Trial


def find_trials() -> dict[str, Trial]:
    """Every trial that a file of this folder declares as `TRIAL`, by name."""
    names = sorted(found.name for found in pkgutil.iter_modules(reliability.__path__) if found.name != "__main__")
    modules = [importlib.import_module(f"reliability.{name}") for name in names]
    return {module.TRIAL.name: module.TRIAL for module in modules if hasattr(module, "TRIAL")}


def chosen(trials: dict[str, Trial], only: Sequence[str]) -> list[Trial]:
    """Those named, in that order, or all.

    Raises:
        InvalidConfiguration: a name is none of a trial.
    """
    for name in only:
        if name not in trials:
            raise InvalidConfiguration(f"--only {name}", "no such trial", did_you_mean(name, trials))
    return [trials[name] for name in only] if only else list(trials.values())


def run_trial(
    trial: Trial, lane: Lane, seed: int, scratch: Path | None = None, report: Callable[[int], None] | None = None
) -> Entry:
    """Run one trial with the count of a lane.

    Whatever it raises is told with its traceback and counts as a failure: the trials behind it still run. The scratch
    folder stays where something failed.

    Args:
        trial: which.
        lane: how many tries.
        seed: where its draws come from.
        scratch: where its scratch folder is made; the system's temporary folder by default.
        report: called with how many more tries are done; a bar is shown by default.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"reliability-{trial.name}-", dir=scratch))
    count = trial.counts[lane]
    started = time.monotonic()
    with progress(trial.name, count, "tries", quiet=report is not None) as bar:
        try:
            outcome = trial.run(Asked(count=count, seed=seed, folder=folder, report=report or bar.advance))
        except Exception as error:
            traceback.print_exception(error)
            broken = f"the trial itself broke off: {type(error).__name__}: {error}"
            outcome = Outcome(tried=0, failed=1, what="tries", failures=(broken,))
    if not outcome.failed:
        shutil.rmtree(folder)
    else:
        print(f"{trial.name}: what it left is kept in {folder}", file=sys.stderr)
    return Entry(
        name=trial.name,
        guarantee=trial.guarantee,
        what=outcome.what,
        tried=outcome.tried,
        failed=outcome.failed,
        seconds=round(time.monotonic() - started, 1),
        date=time.strftime("%Y-%m-%d"),
        commit=commit(),
        details=dict(outcome.details),
        failures=outcome.failures[:FAILURES_TOLD],
    )


def has_failed(entry: Entry) -> bool:
    """Whether a promise was broken, or nothing was tried."""
    return entry.failed > 0 or entry.tried == 0


def told(entries: Iterable[Entry]) -> str:
    """A line for each trial, and its failures below it."""
    lines = []
    for entry in entries:
        lines.append(f"{entry.name}: {entry.tried:,} {entry.what}, {entry.failed:,} failed, {entry.seconds:,.0f} s")
        lines += [f"    {failure}" for failure in entry.failures]
    return "\n".join(lines)
