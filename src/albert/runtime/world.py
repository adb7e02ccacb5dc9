"""The processes that torchrun started, as the environment describes them; this needs no torch."""

import os
from dataclasses import dataclass

PEER_TIMEOUT_MINUTES = 30.0
"""A peer that died is noticed at once; this is for one that hangs. The first checks, evaluates and saves meanwhile."""


@dataclass(frozen=True)
class World:
    """The processes that train together."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this process writes files and shows progress."""
        return self.rank == 0


def world() -> World:
    """The world torchrun described in the environment, or a single process."""
    if "RANK" not in os.environ:
        return World()
    return World(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ.get("LOCAL_RANK", "0")))
