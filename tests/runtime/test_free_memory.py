"""Free memory is what the machine and all control groups above the process still grant."""

from pathlib import Path

import pytest
import torch

from albert.runtime import devices as module
from albert.runtime.devices import free_memory

CPU = torch.device("cpu")


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Writes files of a pretended system."""
    monkeypatch.setattr(module, "ROOT", tmp_path)

    def write(files: dict[str, str]) -> None:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(content)

    return write


def test_on_this_machine_it_is_plausible_or_unknown() -> None:
    free = free_memory(CPU)
    assert free is None or 10_000_000 < free < 10**15


def test_a_system_that_does_not_say_is_unknown(system) -> None:
    assert free_memory(CPU) is None


def test_the_machine_tells_what_is_available(system) -> None:
    system({"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:   4000 kB\n", "proc/self/cgroup": "0::/\n"})
    assert free_memory(CPU) == 4_096_000


@pytest.mark.parametrize(
    ("outer", "inner", "free"),
    [("max", "max", 4_096_000), ("max", "1500", 1500 - 1000 + 300), ("900", "1500", 900 - 600), ("10", "1500", 0)],
)
def test_the_narrowest_group_decides(outer: str, inner: str, free: int, system) -> None:
    groups = "sys/fs/cgroup"
    system(
        {
            "proc/meminfo": "MemAvailable: 4000 kB",
            "proc/self/cgroup": "4:memory:/old\n0::/slurm/job\n",
            f"{groups}/slurm/memory.max": f"{outer}\n",
            f"{groups}/slurm/memory.current": "600\n",
            f"{groups}/slurm/job/memory.max": f"{inner}\n",
            f"{groups}/slurm/job/memory.current": "1000\n",
            f"{groups}/slurm/job/memory.stat": "anon 700\ninactive_file 300\n",
        }
    )
    assert free_memory(CPU) == free
