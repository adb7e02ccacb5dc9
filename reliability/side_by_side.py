"""Trials beside one another, each in a process of its own: two cores do a lane in little more than half the time."""

from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue

from albert.runtime.errors import TryAgain
from albert.runtime.progress import progress
from reliability.lanes import find_trials, run_trial
from reliability.report import Entry
from reliability.trial import Lane, Trial

SECONDS_BETWEEN_LOOKS = 0.5

_tries: SimpleQueue[tuple[str, int]] | None = None
"""Where a process of the pool says how many more tries of a trial are done."""


def run_side_by_side(trials: Sequence[Trial], lane: Lane, seed: int, jobs: int) -> Iterator[Entry]:
    """Run trials, so many at a time; what came of each, in the order in which they end.

    Args:
        trials: which; each is looked up by its name in its process.
        lane: how many tries.
        seed: where the draws of each come from: the same as when it runs alone.
        jobs: processes.

    Raises:
        TryAgain: a process died, as it does when the memory is full.
    """
    context = get_context("spawn")
    tries: SimpleQueue[tuple[str, int]] = context.SimpleQueue()
    done = {trial.name: 0 for trial in trials}
    counts = {trial.name: trial.counts[lane] for trial in trials}
    with (
        ProcessPoolExecutor(jobs, context, initializer=_tell_here, initargs=(tries,)) as pool,
        progress(f"Trials, {jobs} at a time", len(trials), "trials") as bar,
    ):
        waiting = {pool.submit(_run, trial.name, lane, seed): trial.name for trial in trials}
        try:
            while waiting:
                ended, _ = wait(waiting, SECONDS_BETWEEN_LOOKS, FIRST_COMPLETED)
                while not tries.empty():
                    name, more = tries.get()
                    done[name] += more
                    bar.advance(more / counts[name])
                for future in ended:
                    name = waiting.pop(future)
                    bar.advance(1 - done.pop(name) / counts[name])
                    yield entry_of(future, name)
                bar.note(", ".join(f"{name} {n:,}/{counts[name]:,}" for name, n in done.items() if n))
        finally:  # an interrupt does not wait for the trials that have not begun
            pool.shutdown(wait=False, cancel_futures=True)


def entry_of(future: Future[Entry], name: str) -> Entry:
    """What came of a trial.

    Raises:
        TryAgain: its process died, or another one of the pool.
    """
    try:
        return future.result()
    except BrokenProcessPool as error:
        why = "did not end: a process of --jobs died, and the others with it"
        raise TryAgain(name, why, "run what is left with --only, fewer at a time") from error


def _tell_here(tries: SimpleQueue[tuple[str, int]]) -> None:
    global _tries
    _tries = tries


def _run(name: str, lane: Lane, seed: int) -> Entry:
    tries = _tries
    assert tries is not None
    return run_trial(find_trials()[name], lane, seed, report=lambda more: tries.put((name, more)))
