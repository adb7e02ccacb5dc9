"""Work for several processes: results in order, bounded memory, nobody left behind."""

import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from albert.runtime.errors import OutOfResources

Job = TypeVar("Job")
Result = TypeVar("Result")


def in_order(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """The results of jobs in their order, from `workers` processes.

    At most twice as many jobs as processes are in memory at a time. One worker, or one job, needs no second process.
    When anything fails, or the caller stops asking, the processes end at once.

    Raises:
        OutOfResources: a process was killed from outside.
    """
    jobs = iter(jobs)
    first = list(itertools.islice(jobs, 2))
    jobs = itertools.chain(first, jobs)
    if workers == 1 or len(first) < 2:
        yield from map(work, jobs)
        return
    waiting: deque[Future[Result]] = deque()
    others = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_follow_parent)
    try:
        for job in jobs:
            waiting.append(pool.submit(work, job))
            if len(waiting) >= 2 * workers:  # one each in work, one each at hand
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        why = "was killed, probably because memory ran out"
        raise OutOfResources("worker process", why, "use fewer --workers") from error
    except BaseException:
        for child in set(multiprocessing.active_children()) - others:
            child.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _follow_parent() -> None:
    """A worker leaves the interrupt key to its parent, and does not outlive it, however the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:

        def follow() -> None:
            parent.join()
            os._exit(1)

        threading.Thread(target=follow, daemon=True).start()
