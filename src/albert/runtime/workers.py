"""Workers of one thread: independent pieces of work dealt out to the cores of this process.

torch splits every operation over its threads and waits for the slowest of them, some hundreds of times in a batch. When
another process takes one of the cores, every wait is for a thread that does not run. Here the threads meet once, at the
end of all pieces. torch releases the interpreter's lock inside its operations, so the pieces run at the same time."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from functools import lru_cache
from threading import Barrier, Event
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def share_out(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`[work(item) for item in items]`, by as many workers as torch has threads; each takes the next item when free.

    Context variables have the caller's values; torch's modes (`inference_mode`) belong to a thread, so `work` sets
    them. What a worker raises is raised here, once the others have finished what they hold; nothing further is begun.
    """
    workers = torch.get_num_threads()
    if workers == 1:
        return [work(item) for item in items]
    done: dict[int, Result] = {}
    failed = Event()
    waiting = iter(list(enumerate(items)))  # two threads never get the same element of a list's iterator

    def take() -> None:
        for number, item in waiting:
            if failed.is_set():
                return
            try:
                done[number] = work(item)
            except BaseException:
                failed.set()
                raise

    pool = _pool(workers)
    taken = [pool.submit(copy_context().run, take) for _ in range(min(workers, len(items)))]
    wait(taken)
    for future in taken:
        future.result()
    return [done[number] for number in range(len(items))]


@lru_cache(maxsize=1)
def _pool(workers: int) -> ThreadPoolExecutor:
    everyone = Barrier(workers)

    def begin(_: int) -> None:
        torch.get_num_threads()  # a thread's first question sets its number to the default; so ask before setting it
        torch.set_num_threads(1)  # the number of this thread, and the default of those to come
        everyone.wait()

    pool = ThreadPoolExecutor(workers, "albert-worker")
    list(pool.map(begin, range(workers)))
    torch.set_num_threads(workers)  # the default again
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
