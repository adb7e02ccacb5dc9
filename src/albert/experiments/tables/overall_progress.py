"""A bar over all jobs of some tables, with the time that is left: it follows what lies on the disk.

So it also shows what other processes do below the same root, and starts where an earlier command was stopped.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from albert.experiments.tables.folders import Folders
from albert.experiments.tables.jobs import done_jobs
from albert.experiments.tables.plan import Plan, share_done
from albert.runtime.progress import Bar, progress

LOOK_SECONDS = 5.0


@contextmanager
def overall_progress(plan: Plan, folders: Folders, description: str) -> Iterator[None]:
    """Show how much of a plan is done, counted in minutes of this machine, while the block works on it."""
    begun = _minutes_done(plan, folders)
    total = plan.seconds / 60
    over = threading.Event()
    with progress(description, total, "minutes of work", done=begun) as bar:
        watcher = threading.Thread(target=_follow, args=(plan, folders, bar, begun, over), daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()


def _follow(plan: Plan, folders: Folders, bar: Bar, seen: float, over: threading.Event) -> None:
    ended = False
    while not ended:
        ended = over.wait(LOOK_SECONDS)
        now = _minutes_done(plan, folders)
        if now > seen:
            bar.advance(now - seen)
            seen = now


def _minutes_done(plan: Plan, folders: Folders) -> float:
    done = done_jobs([one.job for one in plan.jobs], folders)
    return sum(share_done(one.job, one.cost, folders, done) * one.cost.seconds for one in plan.jobs) / 60
