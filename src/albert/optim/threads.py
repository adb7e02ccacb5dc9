"""Work shared out among threads, each of which runs torch's operations alone.

torch itself splits every operation over its threads and waits for the slowest: a thousand times in an update that goes
through the caches in chunks, and each time for a core that other processes may have taken. Here the threads meet once.
torch releases the interpreter's lock inside its operations, so they do run at the same time.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from threading import Barrier
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def share_out(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`[work(item) for item in items]`, by as many threads as torch has; each takes the next item when it is free."""
    threads = torch.get_num_threads()
    if threads == 1:
        return [work(item) for item in items]
    done: dict[int, Result] = {}
    waiting = iter(list(enumerate(items)))  # two threads never get the same element of a list's iterator

    def take() -> None:
        for number, item in waiting:
            done[number] = work(item)

    pool = _pool(threads)
    for taken in [pool.submit(take) for _ in range(min(threads, len(items)))]:
        taken.result()
    return [done[number] for number in range(len(items))]


@lru_cache(maxsize=1)
def _pool(threads: int) -> ThreadPoolExecutor:
    everyone = Barrier(threads)

    def begin(_: int) -> None:
        torch.get_num_threads()  # a thread's first question sets its number to the default; so ask before setting it
        torch.set_num_threads(1)  # the number of this thread, and the default of those to come
        everyone.wait()

    pool = ThreadPoolExecutor(threads, "lamb")
    list(pool.map(begin, range(threads)))
    torch.set_num_threads(threads)  # the default again
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
