"""Processes that train together must have been started alike: compared once, before the first number is computed."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
import torch.distributed as torch_distributed

import albert
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.world import World


def refuse_differences(facts: Mapping[str, str], here: World, device: torch.device) -> None:
    """Compare what the ranks were given. Only hashes travel.

    Args:
        facts: what must be alike, by name; the same names on all ranks.
        here: this process among all.
        device: where the process group computes.

    Raises:
        InvalidConfiguration: on every rank, when one was given something else than the first.
    """
    if here.size == 1:
        return
    digests = [list(hashlib.sha256(value.encode()).digest()) for value in facts.values()]
    mine = torch.tensor(digests, dtype=torch.uint8, device=device)
    of_all = [torch.empty_like(mine) for _ in range(here.size)]
    torch_distributed.all_gather(of_all, mine)
    for number, name in enumerate(facts):
        others = [str(rank) for rank, theirs in enumerate(of_all) if not torch.equal(theirs[number], of_all[0][number])]
        if others:
            remedy = "start all with the same command, and let all see the same files"
            raise InvalidConfiguration(f"rank {', '.join(others)}", f"has another {name} than rank 0", remedy)


def code_fingerprint() -> str:
    """A hash of this package's sources: machines of a cluster may hold different versions."""
    root = Path(albert.__file__).parent
    sums = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        sums.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return sums.hexdigest()
