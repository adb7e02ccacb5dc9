"""What disks, copies and hands do to a directory: each a function on a folder and a generator of random numbers."""

import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from albert.runtime.manifest import MANIFEST_NAME, files_below

PAGE = 4096
BLOCK = 512
"""Of small files, which have no two pages, this stands for one."""


class Victim:
    """A copy of a directory, damaged again and again, and whole in between.

    Args:
        original: the directory; it stays as it is.
        others: directories of the same kind: other steps, other runs.
        path: where the copy is.
    """

    def __init__(self, original: Path, others: Sequence[Path], path: Path) -> None:
        self.original, self.others, self.path = original, others, path
        self.files = sorted(files_below(original))
        shutil.copytree(original, path, symlinks=True)

    def restore(self) -> None:
        """Make the copy whole again, whatever was done to it."""
        if self.path.is_symlink() or not self.path.is_dir():
            self.path.unlink()
            shutil.copytree(self.original, self.path)
            return
        for folder, names, files in os.walk(self.path, topdown=False):
            for name in (*names, *files):
                place = Path(folder, name)
                known = place.relative_to(self.path).as_posix() in self.files
                if place.is_symlink() or not (place.is_dir() or place.is_file()):
                    place.unlink()
                elif place.is_dir():
                    if known or not any(place.iterdir()):
                        shutil.rmtree(place)
                elif not known:
                    place.unlink()
        for name in self.files:
            source, place = self.original / name, self.path / name
            if not _same(source, place):
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, place)

    def file(self, numbers: random.Random) -> Path:
        """One of its files; every one has the same chance."""
        return self.path / numbers.choice(self.files)


def _same(source: Path, place: Path) -> bool:
    return place.is_file() and source.read_bytes() == place.read_bytes()


Damage = Callable[[Victim, random.Random], str]
"""Does something to a victim, and says what."""


def empty(victim: Victim, numbers: random.Random) -> str:
    """A file of no bytes, as a full disk leaves it."""
    file = victim.file(numbers)
    file.write_bytes(b"")
    return f"empty {file.name}"


def cut(victim: Victim, numbers: random.Random) -> str:
    """The end is missing, from anywhere or from a page's beginning."""
    file = victim.file(numbers)
    size = file.stat().st_size
    pages = range(0, size, PAGE)
    length = numbers.choice(pages) if numbers.random() < 0.3 and size else numbers.randrange(max(size, 1))
    os.truncate(file, length)
    return f"cut {file.name} at {length} of {size}"


def append(victim: Victim, numbers: random.Random) -> str:
    """Bytes that do not belong there stand behind the end."""
    file = victim.file(numbers)
    more = numbers.choice([b"\0", b"\n", b"}", numbers.randbytes(7), bytes(PAGE)])
    with open(file, "ab") as stream:
        stream.write(more)
    return f"append {len(more)} bytes to {file.name}"


def flip_bit(victim: Victim, numbers: random.Random) -> str:
    """One bit is another."""
    return _changed(victim, numbers, lambda data, place: bytes([data[place] ^ 1 << numbers.randrange(8)]), "flip bit")


def set_byte(victim: Victim, numbers: random.Random) -> str:
    """One byte is another."""
    return _changed(victim, numbers, lambda data, place: numbers.randbytes(1), "set byte")


def drop_byte(victim: Victim, numbers: random.Random) -> str:
    """One byte is missing, and what follows stands in its place."""
    return _changed(victim, numbers, lambda data, place: b"", "drop byte")


def zero_page(victim: Victim, numbers: random.Random) -> str:
    """A page of zeros, as a power cut leaves it."""
    file = victim.file(numbers)
    data = bytearray(file.read_bytes())
    unit = PAGE if len(data) >= 2 * PAGE else BLOCK
    begin = numbers.randrange(0, max(len(data), 1), unit)
    data[begin : begin + unit] = bytes(len(data[begin : begin + unit]))
    file.write_bytes(data)
    return f"zero {unit} bytes of {file.name} at {begin}"


def swap_pages(victim: Victim, numbers: random.Random) -> str:
    """Two pages have changed places."""
    file = victim.file(numbers)
    data = file.read_bytes()
    unit = PAGE if len(data) >= 2 * PAGE else BLOCK
    pages = [data[begin : begin + unit] for begin in range(0, len(data), unit)]
    if len(pages) > 1:
        first, second = numbers.sample(range(len(pages)), 2)
        pages[first], pages[second] = pages[second], pages[first]
    file.write_bytes(b"".join(pages))
    return f"swap pages of {file.name}"


def swap_files(victim: Victim, numbers: random.Random) -> str:
    """Two files have changed names."""
    first, second = (victim.path / name for name in numbers.sample(victim.files, 2))
    aside = victim.path / "aside"
    os.rename(first, aside)
    os.rename(second, first)
    os.rename(aside, second)
    return f"swap {first.name} and {second.name}"


def mix(victim: Victim, numbers: random.Random) -> str:
    """One file, or several, of another step or run with the same shapes; its manifest with them, now and then."""
    other = numbers.choice(victim.others)
    shared = [name for name in victim.files if (other / name).is_file()]
    taken = numbers.sample(shared, numbers.randint(1, max(1, len(shared) - 1)))
    for name in taken:
        shutil.copyfile(other / name, victim.path / name)
    return f"mix in {', '.join(sorted(taken))} of {other.name}"


def exchange(victim: Victim, numbers: random.Random) -> str:
    """All of another run of the same shapes, under this one's name."""
    other = numbers.choice(victim.others)
    shutil.rmtree(victim.path)
    shutil.copytree(other, victim.path)
    return f"all of {other.name}"


def remove(victim: Victim, numbers: random.Random) -> str:
    """A file is gone."""
    file = victim.file(numbers)
    file.unlink()
    return f"remove {file.name}"


def add(victim: Victim, numbers: random.Random) -> str:
    """A file that nobody wrote."""
    name = numbers.choice(["notes.txt", "model-00001-of-00002.safetensors", "pytorch_model.bin", "vocab.txt"])
    if (victim.path / name).exists():
        return f"{name} is there"
    (victim.path / name).write_bytes(numbers.randbytes(40))
    return f"add {name}"


def loop(victim: Victim, numbers: random.Random) -> str:
    """A link that leads to itself in the place of a file."""
    file = _gone(victim, numbers)
    file.symlink_to(file.name)
    return f"{file.name} is a link to itself"


def dangle(victim: Victim, numbers: random.Random) -> str:
    """A link that leads to nothing."""
    file = _gone(victim, numbers)
    file.symlink_to("nowhere")
    return f"{file.name} is a link to nothing"


def pipe(victim: Victim, numbers: random.Random) -> str:
    """A pipe that nobody writes to: whoever reads it waits for ever."""
    file = _gone(victim, numbers)
    os.mkfifo(file)
    return f"{file.name} is a pipe"


def device(victim: Victim, numbers: random.Random) -> str:
    """A link to a device that never ends."""
    file = _gone(victim, numbers)
    file.symlink_to("/dev/zero")
    return f"{file.name} is a link to /dev/zero"


def folder(victim: Victim, numbers: random.Random) -> str:
    """A directory in the place of a file."""
    file = _gone(victim, numbers)
    file.mkdir()
    return f"{file.name} is a directory"


def unlist(victim: Victim, numbers: random.Random) -> str:
    """An entry of the manifest is gone, its own hash as it was."""
    manifest = victim.path / MANIFEST_NAME
    if not manifest.is_file():
        return "no manifest"
    lines = manifest.read_bytes().split(b"\n")
    begin = 2 + 4 * numbers.randrange((len(lines) - 5) // 4)
    manifest.write_bytes(b"\n".join(lines[:begin] + lines[begin + 4 :]))
    return f"unlist entry {begin // 4}"


DAMAGES: tuple[Damage, ...] = (
    *(flip_bit, flip_bit, flip_bit, set_byte, drop_byte, cut, cut, append, empty, zero_page, swap_pages),
    *(swap_files, mix, mix, exchange, remove, add, loop, dangle, pipe, device, folder, unlist),
)
"""All of them; those of single bytes come more often, there being more bytes than files."""


def _gone(victim: Victim, numbers: random.Random) -> Path:
    file = victim.file(numbers)
    file.unlink()
    return file


def _changed(victim: Victim, numbers: random.Random, instead: Callable[[bytes, int], bytes], what: str) -> str:
    """One byte replaced; half of the time near the beginning, where headers are."""
    file = victim.file(numbers)
    data = file.read_bytes()
    if not data:
        return f"{file.name} is empty"
    place = numbers.randrange(len(data) if numbers.random() < 0.5 else min(len(data), 400))
    file.write_bytes(data[:place] + instead(data, place) + data[place + 1 :])
    return f"{what} {place} of {file.name}"
