"""How much memory can still be had: of the device, and of what a container or a batch system grants."""

from collections.abc import Iterator
from pathlib import Path

import torch

ROOT = Path("/")


def free_memory(device: torch.device) -> int | None:
    """Bytes that can still be had on a device; None where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min((*_left_on_the_machine(), *_left_to_the_group()), default=None)


def _left_on_the_machine() -> Iterator[int]:
    kibibytes = _named_numbers(ROOT / "proc/meminfo").get("MemAvailable:")
    if kibibytes is not None:
        yield 1024 * kibibytes


def _left_to_the_group() -> Iterator[int]:
    """By the control groups (version 2) that this process is in; what they hold of files is given back on demand."""
    own = ROOT / "proc/self/cgroup"
    names = own.read_text(encoding="utf-8").splitlines() if own.is_file() else []
    for name in (line.removeprefix("0::/") for line in names if line.startswith("0::/")):
        for group in (Path(name), *Path(name).parents):
            folder = ROOT / "sys/fs/cgroup" / group
            limit, used = folder / "memory.max", folder / "memory.current"
            if limit.is_file() and used.is_file() and (most := limit.read_text(encoding="utf-8").strip()) != "max":
                files = _named_numbers(folder / "memory.stat").get("inactive_file", 0)
                yield max(0, int(most) - int(used.read_text(encoding="utf-8")) + files)


def _named_numbers(table: Path) -> dict[str, int]:
    """The lines "name number …" of a table of the system; nothing where it is not there."""
    if not table.is_file():
        return {}
    lines = (line.split() for line in table.read_text(encoding="utf-8").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
