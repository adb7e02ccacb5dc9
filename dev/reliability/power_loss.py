"""Power loss: after each call that changes the disk, possible states of a disk that lost its unflushed data.

SIGKILL keeps the system's cache, so kills cannot reveal a missing `fsync`; this can. Whatever was written completely
before the power loss must be there, and final files must be complete. Five deliberate defects are tested in the same
way; each must be detected.

The model of the disk assumes only what file systems guarantee (Pillai et al. 2014, "All file systems are not created
equal"): without `fsync` of a file its content may be empty, truncated, zeros, or complete; without that of a directory
each change of its entries may be lost independently; a rename is atomic."""

import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from unittest.mock import patch

from dev.reliability.durable_calls import watched
from dev.reliability.material import SAVES, Material
from dev.reliability.report import KILL_IT_ANY_TIME
from dev.reliability.trials import Tries, trial

from albert.pretraining.run import pretrain
from albert.recipes.pretraining import PretrainingRecipe
from albert.runtime import files as durable_files
from albert.runtime.errors import AlbertError
from albert.runtime.files import new_directory, remove_leftovers, write_text
from albert.runtime.json_files import Journal, load_versioned, read_journal
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.tokenizer_loading import load_tokenizer
from albert.training.run_folder import RunFolder


@trial(KILL_IT_ANY_TIME, "states of a disk after a loss of power", 300, 5000, 50_000)
def power_loss(tries: Tries) -> None:
    """Lose power at every call of every work."""
    rng = random.Random(tries.seed)
    for work in works(Material(tries.folder / "material")):
        most = max(1, round(tries.count * work.share))
        for number, broken in enumerate(states(work, tries.folder / work.name, most, rng)):
            failures = [f"{work.name}, state {number}: {what}" for what in broken]
            tries.record(failures, f"states of {work.name}")
    caught = 0
    for name, defect in DEFECTS.items():
        with defect():
            folder = tries.folder / name.replace(" ", "-")
            detected = any(states(CHECKPOINTS, folder, 400, random.Random(tries.seed), True))
        caught += detected
        tries.failures += [] if detected else [f"the deliberate defect was not detected: {name}"]
    tries.details["deliberate defects caught"] = f"{caught} of {len(DEFECTS)}"


@dataclass
class Promised:
    """What was written completely so far: the newest version, and the content of each."""

    version: int = 0
    contents: dict[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """Something that is written, and a check of what remains."""

    name: str
    do: Callable[[Path, Promised], None]  # writes into a folder and records what is complete
    broken: Callable[[Path, Promised], Iterator[str]]  # failures in a state of that folder; may raise AlbertError
    share: float  # of the states


def states(work: Work, folder: Path, most: int, rng: random.Random, until_broken: bool = False) -> Iterator[list[str]]:
    """Do the work and check about `most` states after a power loss, or all up to the first failure."""
    calls = 0

    def count(*_: str) -> None:
        nonlocal calls
        calls += 1

    rehearsal, place, state = folder / "rehearsal", folder / "disk", folder / "state"
    rehearsal.mkdir(parents=True)
    place.mkdir()
    with watched(rehearsal, count):
        work.do(rehearsal, Promised())
    disk, promised = Disk(place), Promised()
    found: list[list[str]] = []
    seen = 0

    def observe(moment: str, name: str, path: str) -> None:
        nonlocal seen
        disk.observe(moment, name, path)
        seen += 1
        wanted = 0 if until_broken and any(found) else round(most * seen / calls) - len(found)
        for write in disk.possible(rng, wanted):
            shutil.rmtree(state, ignore_errors=True)
            write(state)
            found.append(_check(work, state, promised))  # no lock is held, as the writer is dead

    with watched(place, observe):
        work.do(place, promised)
    yield from found


def _check(work: Work, state: Path, promised: Promised) -> list[str]:
    try:
        return list(work.broken(state, promised))
    except AlbertError as error:
        return [f"{error} (written: {promised.version})"]


# ---- what is written -------------------------------------------------------------------------------------------------


def save_checkpoints(folder: Path, promised: Promised) -> None:
    """Save three checkpoints, keeping one."""
    run = RunFolder(folder / "runs" / "mine")
    with run.locked():
        for step in (2, 4, 6):
            promised.contents[step] = bytes([step]) * 64

            def write(directory: Path, step: int = step) -> None:
                (directory / "tensors").write_bytes(promised.contents[step])
                write_text(directory / "text" / "card.md", f"after {step}")

            run.save_checkpoint(step, write, keep=1)
            promised.version = step


def broken_checkpoints(folder: Path, promised: Promised) -> Iterator[str]:
    """Checks by finding the newest checkpoint, as a resumed run does."""
    run = RunFolder(folder / "runs" / "mine")
    with run.locked():
        newest = run.newest_checkpoint()
        for _, path in run.checkpoints():
            verify_directory(path)
    step = 0 if newest is None else newest[0]
    if step < promised.version:
        yield f"checkpoint {promised.version} was saved, {step} is found"
    if newest is not None and (newest[1] / "tensors").read_bytes() != promised.contents[step]:
        yield f"checkpoint {step} differs from what was saved"


def replace_directory(folder: Path, promised: Promised) -> None:
    """Replace a directory twice."""
    for version in (1, 2, 3):
        with new_directory(folder / "models" / "mine", replace=True) as directory:
            (directory / "model").write_bytes(bytes([version]) * 64)
            (directory / "deep" / "deeper").mkdir(parents=True)
            (directory / "deep" / "deeper" / "file").write_bytes(b"deep")
        promised.version = version


def broken_directory(folder: Path, promised: Promised) -> Iterator[str]:
    """Checks after removing temporary files, as the next writer does."""
    path = folder / "models" / "mine"
    if path.parent.is_dir():
        remove_leftovers(path.parent)
    if is_left(path, promised) and (path / "model").read_bytes()[0] < promised.version:
        yield "an older version is found"


def replace_file(folder: Path, promised: Promised) -> None:
    """Write a file three times."""
    for version in (1, 2, 3):
        promised.contents[version] = f"version {version}\n".encode() * 20
        write_text(folder / "made" / "for" / "it" / "record", promised.contents[version].decode())
        promised.version = version


def broken_file(folder: Path, promised: Promised) -> Iterator[str]:
    """Checks that the file is the last complete version or a newer one."""
    path = folder / "made" / "for" / "it" / "record"
    if path.exists() or promised.version:
        content = path.read_bytes() if path.exists() else b"nothing"
        if content not in [data for version, data in promised.contents.items() if version >= promised.version]:
            yield f"version {promised.version} was written, {content[:40]!r} is found"


def is_left(path: Path, promised: Promised) -> bool:
    """Whether a directory exists; AlbertError if it is incomplete, or missing though it was written."""
    if not path.exists() and not promised.version:
        return False
    verify_directory(path)
    return True


CHECKPOINTS = Work("checkpoints", save_checkpoints, broken_checkpoints, 0.4)


def works(material: Material) -> list[Work]:
    """All works: checkpoints, directories, files, and the two long commands."""

    def pretrain_here(folder: Path, promised: Promised) -> None:
        pretrain(SAVES, material.corpus, folder / "run", "cpu")
        promised.version = 1

    def broken_pretraining(folder: Path, promised: Promised) -> Iterator[str]:
        run = RunFolder(folder / "run")
        if not run.path.exists():
            return
        with run.locked():
            newest = run.newest_checkpoint()
            Journal(run.journal_path).close()
        if newest is not None:
            load_versioned(PretrainingRecipe, run.recipe_path)
            steps = {record["step"] for record in read_journal(run.journal_path) if record["event"] == "train"}
            if missing := set(range(2, newest[0] + 1, 2)) - steps:
                yield f"checkpoint {newest[0]} is found, the journal lost steps {sorted(missing)}"
        is_left(run.model_path, promised)

    def prepare_here(folder: Path, promised: Promised) -> None:
        settings = PreparationSettings(held_out=0.2, shard_bytes=12_000)
        prepare([material.text], load_tokenizer(material.tokenizer), folder / "corpus", settings, workers=1)
        promised.version = 1

    def broken_corpus(folder: Path, promised: Promised) -> Iterator[str]:
        is_left(folder / "corpus", promised)
        yield from ()

    return [
        CHECKPOINTS,
        Work("directories", replace_directory, broken_directory, 0.2),
        Work("files", replace_file, broken_file, 0.1),
        Work("pre-training", pretrain_here, broken_pretraining, 0.2),
        Work("preparation", prepare_here, broken_corpus, 0.1),
    ]


# ---- deliberate defects ----------------------------------------------------------------------------------------------

_sync_file, sync_directory = durable_files._sync_file, durable_files.sync_directory
_write_manifest = durable_files._write_manifest
patched = partial(patch.multiple, durable_files)


def _name_first(temporary: Path, old: Path, path: Path, replace: bool) -> None:
    temporary.rename(path)
    _write_manifest(path, {})
    sync_directory(path.parent)


DEFECTS = {
    "no file is flushed": lambda: patched(_sync_file=lambda path: None),
    "the manifest is not flushed": lambda: patched(
        _sync_file=lambda path: None if path.name == MANIFEST_NAME else _sync_file(path)
    ),
    "a new directory's entries are not flushed": lambda: patched(
        sync_directory=lambda path: None if path.name.startswith(".") else sync_directory(path)
    ),
    "the parent of a new name is not flushed": lambda: patched(
        sync_directory=lambda path: sync_directory(path) if path.name.startswith(".") else None
    ),
    "the name comes before the manifest": lambda: patched(
        _write_manifest=lambda directory, known: None, _put_in_place=_name_first
    ),
}


# ---- a disk that loses its cache -------------------------------------------------------------------------------------


@dataclass(eq=False)
class File:
    """A file: its flushed and its present content."""

    durable: bytes = b""
    content: bytes = b""

    def possible(self) -> list[bytes]:
        """Possible contents after a power loss."""
        if self.durable == self.content:
            return [self.content]
        kept = self.durable if self.content.startswith(self.durable) else b""  # appending keeps the flushed beginning
        tail = self.content[len(kept) :]
        return [self.durable, kept + tail[: len(tail) // 2], kept + bytes(len(tail)), self.content]

    def flush(self) -> None:
        self.durable = self.content


@dataclass(eq=False)
class Directory:
    """A directory: flushed entries, and unflushed changes; one change (a rename) may move several entries."""

    durable: dict[str, "Node"] = field(default_factory=dict)
    entries: dict[str, "Node"] = field(default_factory=dict)
    pending: list[Mapping[str, "Node | None"]] = field(default_factory=list)

    def flush(self) -> None:
        self.durable, self.pending = dict(self.entries), []


Node = File | Directory
Write = Callable[[Path], None]
"""Creates one possible state in a new folder."""


class Disk:
    """Follows a folder by `durable_calls.watched`, and creates its possible states after a power loss."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._root = folder, Directory()
        self._nodes: dict[int, Node] = {}  # by inode
        self._update(at_once=False)
        for node in self._nodes.values():
            node.flush()

    def observe(self, moment: str, name: str, place: str) -> None:
        """Before or after a call; the arguments of a `Watcher`."""
        self._update(at_once=moment == "after" and name in ("rename", "replace"))
        if moment == "after" and name == "fsync" and (node := self._nodes.get(os.stat(place).st_ino)):
            node.flush()

    def possible(self, rng: random.Random, most: int) -> Iterator[Write]:
        """Up to `most` possible states: no unflushed change, all changes, each single change lost or kept, then random
        ones."""
        reachable = self._reachable()
        keys = [(node, i) for node in reachable if isinstance(node, Directory) for i in range(len(node.pending))]
        if not keys and all(len(node.possible()) == 1 for node in reachable if isinstance(node, File)):
            yield from [self._state(lambda _: True, lambda: 0)][:most]
            return
        plain = [self._state(lambda _: False, lambda: 0)]
        plain += [self._state(lambda _: True, lambda n=n: n) for n in range(4)]
        for key in keys:
            one, other = rng.randrange(4), rng.randrange(4)
            plain.append(self._state(lambda each, key=key: each == key, lambda one=one: one))
            plain.append(self._state(lambda each, key=key: each != key, lambda other=other: other))
        rng.shuffle(plain)
        yield from plain[:most]
        for _ in range(most - len(plain)):
            kept = {key: rng.random() < 0.5 for key in keys}
            contents = random.Random(rng.random())
            yield self._state(kept.__getitem__, lambda contents=contents: contents.randrange(4))

    def _state(self, kept: Callable[[tuple[Directory, int]], bool], which: Callable[[], int]) -> Write:
        """A state with the changes `kept` (by directory and index); `which` chooses contents of unflushed files."""

        def write(place: Path, node: Node = self._root) -> None:
            if isinstance(node, File):
                contents = node.possible()
                place.write_bytes(contents[min(which(), len(contents) - 1)])
                return
            place.mkdir()
            entries: dict[str, Node | None] = dict(node.durable)
            for position, change in enumerate(node.pending):
                if kept((node, position)):
                    entries.update(change)
            for name, child in entries.items():
                if child is not None:
                    write(place / name, child)

        return write

    def _reachable(self) -> list[Node]:
        """All nodes that occur in a possible state."""
        found: list[Node] = []
        waiting: list[Node] = [self._root]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.append(node)
                if isinstance(node, Directory):
                    changed = [child for change in node.pending for child in change.values() if child is not None]
                    waiting += [*node.durable.values(), *changed]
        return found

    def _update(self, at_once: bool) -> None:
        """Update the nodes from the folder; the inode of a removed file may be reused."""
        seen: dict[int, Node] = {os.stat(self._folder).st_ino: self._root}
        self._update_directory(self._folder, self._root, at_once, seen)
        self._nodes = seen

    def _update_directory(self, place: Path, directory: Directory, at_once: bool, seen: dict[int, Node]) -> None:
        entries: dict[str, Node] = {}
        for entry in sorted(os.scandir(place), key=lambda entry: entry.name):
            known = seen.get(entry.inode()) or self._nodes.get(entry.inode())
            node = known or (Directory() if entry.is_dir(follow_symlinks=False) else File())
            entries[entry.name] = seen[entry.inode()] = node
            if isinstance(node, Directory):
                self._update_directory(Path(entry.path), node, at_once, seen)
            else:
                node.content = Path(entry.path).read_bytes()
        gone = {name: None for name in directory.entries if name not in entries}
        changed = {name: child for name, child in entries.items() if directory.entries.get(name) is not child}
        change: dict[str, Node | None] = {**gone, **changed}
        if change:
            directory.pending += [change] if at_once else [{name: child} for name, child in change.items()]
            directory.entries = entries
