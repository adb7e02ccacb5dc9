"""A disk that loses its cache: what may lie there after the power went, when only what was flushed is sure.

Modelled after what file systems promise and no more (Pillai et al. 2014, "All file systems are not created equal"):
without `fsync` of a file its content may be nothing, a beginning, zeros, or all; without `fsync` of a directory each
change to its entries may have happened or not, whatever became of the others; a rename happens or does not.
"""

import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class File:
    """A file: what is sure, and what was last seen."""

    durable: bytes = b""
    content: bytes = b""

    @property
    def is_sure(self) -> bool:
        """Whether nothing of it can be lost."""
        return self.durable == self.content

    def possible(self) -> list[bytes]:
        """Contents it may have."""
        if self.is_sure:
            return [self.content]
        kept = self.durable if self.content.startswith(self.durable) else b""  # what was appended to stays
        tail = self.content[len(kept) :]
        return [self.durable, kept + tail[: len(tail) // 2], kept + bytes(len(tail)), self.content]


@dataclass
class Directory:
    """A directory: entries that are sure, and changes that are not; one change may move several entries at once."""

    durable: dict[str, int] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    pending: list[Mapping[str, int | None]] = field(default_factory=list)


class Disk:
    """Watches a folder through the calls of `durable_calls.watch`, and makes what may be left of it.

    Args:
        folder: what is there when this is made is sure.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers: dict[int, int] = {}
        self._files: dict[int, File] = {}
        self._directories: dict[int, Directory] = {}
        self._next = 0
        self.moments = 0
        self._root = self._number(os.stat(folder).st_ino)
        self._directories[self._root] = Directory()
        self._look(at_once=False)
        for directory in self._directories.values():
            directory.durable, directory.pending = dict(directory.entries), []
        for file in self._files.values():
            file.durable = file.content

    def saw(self, moment: str, name: str, place: str) -> None:
        """A call is about to happen, or has happened; the same words as a watcher is told."""
        self._look(at_once=moment == "after" and name in ("rename", "replace"))
        if moment == "after" and name == "fsync":
            number = self._number(os.stat(place).st_ino)
            if number in self._files:
                self._files[number].durable = self._files[number].content
            elif number in self._directories:
                directory = self._directories[number]
                directory.durable, directory.pending = dict(directory.entries), []
        self.moments += 1

    @property
    def unsure(self) -> int:
        """Files and changes of directories that may be lost."""
        reachable = self._reachable()
        changes = sum(len(self._directories[n].pending) for n in reachable if n in self._directories)
        return changes + sum(not self._files[n].is_sure for n in reachable if n in self._files)

    def possible(self, draws: random.Random, most: int) -> Iterator["Possibility"]:
        """At most so many of what may be left, in any order.

        Nothing of what is unsure, all of it, each change alone lost or kept; beyond those by chance.
        """
        if not self.unsure:
            yield from [Possibility(self, lambda _: True, 0)][:most]
            return
        keys = [(n, i) for n in self._reachable() if n in self._directories for i in self._pending(n)]
        plain = [Possibility(self, lambda _: False, 0), *(Possibility(self, lambda _: True, n) for n in range(4))]
        for key in keys:
            plain.append(Possibility(self, lambda each, key=key: each == key, draws.randrange(4)))
            plain.append(Possibility(self, lambda each, key=key: each != key, draws.randrange(4)))
        draws.shuffle(plain)
        yield from plain[:most]
        for _ in range(most - len(plain)):
            kept = {key: draws.random() < 0.5 for key in keys}
            yield Possibility(self, lambda each, kept=kept: kept[each], None, random.Random(draws.random()))

    def _pending(self, number: int) -> range:
        return range(len(self._directories[number].pending))

    def _reachable(self) -> list[int]:
        """Everything that some possibility may show."""
        found, waiting = [], [self._root]
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.append(number)
            if number in self._directories:
                directory = self._directories[number]
                changed = [n for change in directory.pending for n in change.values() if n is not None]
                waiting += [*directory.durable.values(), *changed]
        return found

    def _number(self, inode: int) -> int:
        if inode not in self._numbers:
            self._numbers[inode], self._next = self._next, self._next + 1
        return self._numbers[inode]

    def _look(self, at_once: bool) -> None:
        """Take in what changed since the last look."""
        seen: set[int] = set()
        self._look_at(self._folder, self._root, at_once, seen)
        for inode in set(self._numbers) - seen:  # the number may be given to another file
            del self._numbers[inode]

    def _look_at(self, place: Path, number: int, at_once: bool, seen: set[int]) -> None:
        directory = self._directories[number]
        seen.add(os.stat(place).st_ino)
        entries: dict[str, int] = {}
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            inode = entry.inode()
            is_new = inode not in self._numbers
            entries[entry.name] = child = self._number(inode)
            seen.add(inode)
            if entry.is_dir(follow_symlinks=False):
                if is_new:
                    self._directories[child] = Directory()
                self._look_at(place / entry.name, child, at_once, seen)
            else:
                file = self._files.setdefault(child, File()) if not is_new else File()
                self._files[child] = file
                file.content = Path(entry.path).read_bytes()
        gone = {name: None for name in directory.entries if name not in entries}
        changed = {name: child for name, child in entries.items() if directory.entries.get(name) != child}
        change: dict[str, int | None] = {**gone, **changed}
        if change:
            directory.pending += [change] if at_once else [{name: child} for name, child in change.items()]
            directory.entries = entries


class Possibility:
    """One way the disk may look after the power went.

    Args:
        disk: as it is now.
        kept: whether a change, by directory and place, has happened.
        which: of the contents that an unflushed file may have; None draws one for each.
        draws: for that.
    """

    def __init__(
        self,
        disk: Disk,
        kept: Callable[[tuple[int, int]], bool],
        which: int | None,
        draws: random.Random | None = None,
    ) -> None:
        self._disk, self._kept, self._which, self._draws = disk, kept, which, draws

    def write(self, place: Path) -> None:
        """Make it in an absent folder."""
        self._write(self._disk._root, place)

    def _write(self, number: int, place: Path) -> None:
        if number in self._disk._files:
            contents = self._disk._files[number].possible()
            which = self._draws.randrange(4) if self._draws is not None else self._which or 0
            place.write_bytes(contents[min(which, len(contents) - 1)])
            return
        place.mkdir()
        directory = self._disk._directories[number]
        entries = dict(directory.durable)
        for position, change in enumerate(directory.pending):
            if self._kept((number, position)):
                for name, child in change.items():
                    if child is None:
                        entries.pop(name, None)
                    else:
                        entries[name] = child
        for name, child in entries.items():
            self._write(child, place / name)
