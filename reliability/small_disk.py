"""A disk of some kilobytes in a name space of its own, filled up so that pre-training meets its end at any byte.

Run by `broken_disks.py` under `unshare`; prints its failures as a JSON list.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

from reliability.broken_disks import what_is_wrong
from reliability.crash_points import SAVES, contents, finished, goes_on
from reliability.killable_runs import ForkServer
from reliability.small_material import small_material

KILOBYTES = 16_000


def fill(folder: Path, count: int, seed: int) -> list[str]:
    """Mount the disk, and leave pre-training less room than it needs."""
    draws = random.Random(seed)
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={KILOBYTES}k", "none", str(disk)], check=True)
    material = small_material(folder / "material")
    server = ForkServer(folder)
    before = room(disk)
    whole = finished(server, material.pretrain(disk / "whole" / "out", SAVES), disk / "whole" / "out")
    expected, needed = contents(whole), before - room(disk)
    failures: list[str] = []
    for number in range(count):
        place = disk / str(number) / "out"
        place.parent.mkdir()
        words = material.pretrain(place, SAVES)
        left = draws.randrange(needed)
        filler = disk / "filler"
        filler.write_bytes(bytes(room(disk) - left))
        hurt = list(what_is_wrong(server.start(words), place))
        filler.unlink()
        wrong = hurt or list(goes_on(server, words, place, expected))
        failures += [f"pretrain with {left:,} of {needed:,} bytes: {each}" for each in wrong[:1]]
        shutil.rmtree(place.parent)
    server.close()
    return failures


def room(disk: Path) -> int:
    """Bytes that are free."""
    found = os.statvfs(disk)
    return found.f_bavail * found.f_frsize


if __name__ == "__main__":
    print(json.dumps(fill(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
