"""Durable files and locks."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.refusals import refusal

from albert.runtime.errors import CannotCreate, DamagedData, MissingInput, WriteFailed
from albert.runtime.files import (
    library_writes,
    lock_file,
    locked,
    new_directory,
    new_file,
    remove_directory,
    remove_leftovers,
    try_locked,
    write_bytes,
    write_text,
)
from albert.runtime.manifest import MANIFEST_NAME, file_hash, is_intact, verify_directory


def fill(directory: Path, content: str = "new") -> None:
    (directory / "weights.bin").write_bytes(bytes(range(64)))
    (directory / "text").mkdir()
    (directory / "text" / "card.md").write_text(content, encoding="utf-8")
    (directory / "empty").touch()


@pytest.fixture
def out(tmp_path):
    """A directory written by `new_directory`."""
    with new_directory(tmp_path / "out") as directory:
        fill(directory)
    return tmp_path / "out"


def names_in(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def disk_full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# ---- files ---------------------------------------------------------------------------------------------------------


def test_file_is_written_with_its_parents_and_replaced(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "ä\n")
    write_bytes(tmp_path / "a" / "b.txt", b"second")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"second"
    assert names_in(tmp_path / "a") == ["b.txt"]


@pytest.mark.parametrize("write", [write_text, lambda path, _: new_directory(path).__enter__()])
def test_path_below_a_file_cannot_be_created(tmp_path, write):
    (tmp_path / "file").touch()
    with pytest.raises(CannotCreate) as error:
        write(tmp_path / "file" / "below", "text")
    assert error.value.exit_code == 73


def test_a_link_is_followed_and_a_pipe_a_device_or_a_directory_is_not_replaced(tmp_path):
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "text"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-a-device").symlink_to(os.devnull)
    (tmp_path / "directory").mkdir()
    for name in ("pipe", "to-a-device", "directory"):
        with refusal(CannotCreate):
            write_text(tmp_path / name, "text")
    assert names_in(tmp_path) == ["directory", "file", "link", "pipe", "to-a-device"]


@pytest.fixture
def events(monkeypatch):
    """Calls of fsync, rename and rmdir in order: ("fsync", inode), ("rename", name), ("rmdir", name)."""
    events = []

    def record(name, function, value):
        def call(*args, **kwargs):
            events.append((name, value(*args)))
            return function(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    record("fsync", os.fsync, lambda descriptor: os.fstat(descriptor).st_ino)
    record("rename", os.rename, lambda source, target: Path(target).name)
    record("replace", os.replace, lambda source, target: Path(target).name)
    record("rmdir", os.rmdir, lambda path: Path(path).name)
    return events


def flushes(*paths: Path) -> list[tuple[str, int]]:
    return [("fsync", path.stat().st_ino) for path in paths]


def test_file_is_flushed_before_its_rename_and_its_folder_after(tmp_path, events):
    path = tmp_path / "state.json"
    write_text(path, "new")
    assert events == [*flushes(path), ("replace", path.name), *flushes(tmp_path)]


# ---- directories ---------------------------------------------------------------------------------------------------


def test_manifest_lists_size_and_hash_of_every_file(out):
    verify_directory(out)
    listed = json.loads((out / MANIFEST_NAME).read_text())["files"]
    assert sorted(listed) == ["empty", "text/card.md", "weights.bin"]
    assert listed["weights.bin"] == {"bytes": 64, "sha256": file_hash(out / "weights.bin")}


def test_existing_path_is_refused_before_writing(out):
    before = file_hash(out / MANIFEST_NAME)
    with refusal(CannotCreate, out) as error, new_directory(out):
        pytest.fail("the block must not run")
    assert error.value.exit_code == 73
    assert file_hash(out / MANIFEST_NAME) == before and names_in(out.parent) == ["out"]


def test_path_created_meanwhile_is_not_replaced(tmp_path):
    with pytest.raises(CannotCreate), new_directory(tmp_path / "out") as directory:
        fill(directory)
        with new_directory(tmp_path / "out") as faster:
            fill(faster, "faster")
    verify_directory(tmp_path / "out")
    assert (tmp_path / "out" / "text" / "card.md").read_text() == "faster" and names_in(tmp_path) == ["out"]


@pytest.mark.parametrize("before", ["file", "directory"])
def test_directory_replaces_what_was_there_at_the_end(out, before):
    if before == "file":
        shutil.rmtree(out)
        out.touch()
    with new_directory(out, replace=True) as directory:
        fill(directory, "second")
        assert before == "file" or (out / "text" / "card.md").read_text() == "new"
    verify_directory(out)
    assert (out / "text" / "card.md").read_text() == "second" and names_in(out.parent) == ["out"]


def test_error_in_the_block_leaves_nothing(tmp_path):
    with pytest.raises(KeyError), new_directory(tmp_path / "out") as directory:
        fill(directory)
        raise KeyError
    assert names_in(tmp_path) == []


def test_directory_is_flushed_before_its_rename_and_its_parent_after(tmp_path, events):
    out = tmp_path / "out"
    with new_directory(out) as directory:
        fill(directory)
    rename = events.index(("rename", "out"))
    before, after = events[:rename], events[rename + 1 :]
    assert set(flushes(out, *out.rglob("*"))) <= set(before)
    assert before.index(*flushes(out / "weights.bin")) < before.index(*flushes(out / MANIFEST_NAME))
    assert after == flushes(tmp_path)


def test_old_directory_is_removed_after_the_rename_is_flushed(out, events):
    with new_directory(out, replace=True) as directory:
        fill(directory, "second")
    last = max(index for index, event in enumerate(events) if event == ("rename", out.name))
    assert events[last + 1 : last + 2] == flushes(out.parent)
    assert [name for name, _ in events[last + 2 :]] == ["rmdir"] * 2  # the old one, and the folder in it


def test_removed_directory_is_renamed_and_flushed_before_its_files_are_removed(out, events):
    remove_directory(out)
    assert [name for name, _ in events] == ["rename", "fsync", "rmdir", "rmdir"]
    assert events[1:2] == flushes(out.parent)


def test_new_parents_are_flushed_before_the_file(tmp_path, events):
    write_text(tmp_path / "a" / "b" / "c.txt", "new")
    assert events[:2] == flushes(tmp_path, tmp_path / "a") and len(events) == 5


# ---- damage --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["weights.bin", "text/card.md", MANIFEST_NAME])
def test_a_flipped_bit_in_any_byte_and_every_truncation_is_refused(out, name):
    content = (out / name).read_bytes()
    for index, byte in enumerate(content):
        flipped = bytes([byte ^ 1 << index * 5 % 8])
        for damaged in (content[:index], content[:index] + flipped + content[index + 1 :]):
            (out / name).write_bytes(damaged)
            with pytest.raises(DamagedData):
                verify_directory(out)
    (out / name).write_bytes(content)
    verify_directory(out)


@pytest.mark.parametrize("kind", ["loop", "dangling", "pipe", "device"])
def test_special_files_are_refused_without_blocking(out, kind):
    (out / "empty").unlink()
    if kind == "pipe":
        os.mkfifo(out / "empty")
    else:
        (out / "empty").symlink_to({"loop": "empty", "dangling": "nowhere", "device": "/dev/zero"}[kind])
    with refusal((DamagedData, MissingInput), "empty"):
        verify_directory(out)


def test_unlisted_file_is_named(out):
    for name in (".gitattributes", ".cache/huggingface/lock", "text/.DS_Store"):  # hidden ones are ignored
        write_text(out / name, "")
    verify_directory(out)
    (out / "text" / "extra.txt").touch()
    with refusal(DamagedData, "text/extra.txt"):
        verify_directory(out)


@pytest.mark.parametrize(
    ("name", "content", "subjects"),
    [
        ("text/card.md", None, "card.md MANIFEST.json"),
        (".hidden", "changed", ".hidden SHA-256"),
        *((MANIFEST_NAME, content, MANIFEST_NAME) for content in ("", "[]", "null", '{"files": []}', "[" * 9999)),
        (MANIFEST_NAME, '{"layout": 1, "files": {"a": 3}, "self": ""}', MANIFEST_NAME),
        (MANIFEST_NAME, None, "MANIFEST"),
        ("", None, "out directory"),
    ],
)
def test_damaged_and_missing_files_are_named(tmp_path, name, content, subjects):
    out = tmp_path / "out"
    with new_directory(out) as directory:
        fill(directory)
        (directory / ".hidden").write_text("content")
    if content is not None:
        (out / name).write_text(content)
    else:
        (out / name).rename(tmp_path / "moved")
    with refusal((DamagedData, MissingInput), *subjects.split()) as error:
        verify_directory(out)
    assert error.value.exit_code == (66 if subjects in ("MANIFEST", "out directory") else 65)
    assert not is_intact(out)


def test_an_edited_manifest_is_refused(out):
    manifest = out / MANIFEST_NAME
    content = json.loads(manifest.read_text())
    (out / "weights.bin").write_bytes(b"other")
    content["files"]["weights.bin"] = {"bytes": 5, "sha256": file_hash(out / "weights.bin")}
    manifest.write_text(json.dumps(content, indent=1) + "\n")
    with refusal(DamagedData, MANIFEST_NAME):
        verify_directory(out)


# ---- full disks and killed writers -----------------------------------------------------------------------------------


def fail_at(monkeypatch, number: int) -> list[str]:
    """Make call `number` of fsync, rename, replace and mkdir fail as on a full disk; return the list of calls."""
    calls: list[str] = []

    def counted(name):
        function = getattr(os, name)

        def call(*args, **kwargs):
            calls.append(name)
            return disk_full() if len(calls) == number else function(*args, **kwargs)

        return call

    for name in ("fsync", "rename", "replace", "mkdir"):
        monkeypatch.setattr(os, name, counted(name))
    return calls


@pytest.mark.parametrize("kind", ["file", "directory", "replaced directory"])
def test_full_disk_at_any_call_leaves_the_old_or_the_new_directory(tmp_path, kind):
    path = tmp_path / "out"

    def write(content: str) -> None:
        if kind == "file":
            write_text(path, content)
            return
        with new_directory(path, replace=kind == "replaced directory") as directory:
            fill(directory, content)

    if kind != "directory":
        write("old")
    turn, done = 0, False
    while not done:
        turn += 1
        with pytest.MonkeyPatch.context() as monkeypatch:
            calls = fail_at(monkeypatch, turn)
            try:
                write("new")
                done = turn > len(calls)
            except WriteFailed as failure:
                assert failure.exit_code == 74 and "No space left" in str(failure)
        assert done or turn <= len(calls)
        assert names_in(tmp_path) == (["out"] if path.exists() else [])
        assert path.exists() or kind == "directory"
        if kind == "file":
            assert path.read_text() in ("old", "new")
        elif path.exists():
            verify_directory(path)  # the last call of all only makes a name durable that is there already
            if kind == "directory":
                remove_directory(path)
    assert turn > (3 if kind == "file" else 8)


KILL_AT_EVERY_CALL = """
import builtins, os, shutil, sys
from pathlib import Path
from albert.runtime import files as durable_files
from albert.runtime import manifest as manifests

kind, folder = sys.argv[1], Path(sys.argv[2])
path = folder / "out"

def write(content):
    if kind == "file":
        durable_files.write_text(path, content)
        return
    with durable_files.new_directory(path, replace=kind == "replaced directory") as directory:
        (directory / "inner").mkdir()
        (directory / "inner" / "file").write_text(content)
        (directory / "other").write_text(content)

def check(may_be_absent):
    if not path.exists():
        assert may_be_absent
    elif kind == "file":
        assert path.read_text() in ("old", "new"), path.read_text()
    else:
        manifests.verify_directory(path)

def exit_at(number):
    left = [number]
    def dying(function):
        def call(*args, **kwargs):
            left[0] -= 1
            if left[0] < 0:
                os._exit(77)
            return function(*args, **kwargs)
        return call
    for name in ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink", "open", "scandir", "truncate"):
        setattr(os, name, dying(getattr(os, name)))
    builtins.open = durable_files.open = manifests.open = dying(open)

number, status = 0, None
while status != 0:
    if kind != "directory":
        write("old")
    child = os.fork()
    if child == 0:
        exit_at(number)
        write("new")
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 77), status
    check(may_be_absent=kind != "file")
    durable_files.remove_leftovers(folder)
    check(may_be_absent=kind == "directory")
    assert [entry.name for entry in folder.iterdir()] in ([], ["out"]), list(folder.iterdir())
    if kind == "directory" and path.exists():
        durable_files.remove_directory(path)
    number += 1
print(number)
"""


@pytest.mark.parametrize(("kind", "least"), [("file", 5), ("directory", 12), ("replaced directory", 15)])
def test_output_is_complete_or_absent_when_its_writer_is_killed_at_any_call(tmp_path, kind, least):
    command = [sys.executable, "-c", KILL_AT_EVERY_CALL, kind, str(tmp_path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) >= least


# ---- leftovers -----------------------------------------------------------------------------------------------------


WRITER = """
import sys
from pathlib import Path
from albert.runtime.files import new_directory

with new_directory(Path(sys.argv[1]), replace=True) as directory:
    (directory / "first").write_text("first")
    print(directory.name, flush=True)
    sys.stdin.read()
    (directory / "second").write_text("second")
"""


@contextmanager
def writer(path: Path):
    """A process that is writing `path`, and its temporary directory."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, path.parent / process.stdout.readline().strip()
        process.kill()


def test_leftovers_of_killed_writers_are_removed_and_files_of_running_ones_kept(tmp_path):
    with writer(tmp_path / "out") as (process, killed):
        process.kill()
        process.wait()
    assert killed.is_dir()
    for leftover in (".state.json.tmp-0123abcd", ".state.json.lock-4567abcd"):
        (tmp_path / leftover).touch()
    for other in (kept := [".mine-0123abcd", "state.json.lock-0123abcd", ".old.tmp-9-0123abcd"]):
        (tmp_path / other).touch()
    with writer(tmp_path / "second") as (process, temporary):
        with new_directory(tmp_path / "out") as directory:
            fill(directory)
        lock = temporary.name.replace(".tmp-", ".lock-")
        assert names_in(tmp_path) == sorted([*kept, lock, temporary.name, "out"])
        process.communicate("")
    assert process.returncode == 0
    verify_directory(tmp_path / "second")
    assert names_in(tmp_path) == sorted([*kept, "out", "second"])


@pytest.mark.parametrize("write", [new_file, new_directory])
def test_what_another_program_removed_is_refused(tmp_path, write):
    """As after a file server lost the lock."""
    with refusal(WriteFailed, tmp_path / "out") as failure, write(tmp_path / "out"):
        for entry in tmp_path.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    assert failure.value.exit_code == 74
    assert names_in(tmp_path) == []


def test_full_disk_error_names_the_final_path(tmp_path):
    for error in (
        OSError(errno.ENOSPC, "No space left", str(tmp_path / "source"), None, str(tmp_path / ".a.tmp-0123abcd" / "b")),
        OSError(errno.ENOSPC, "No space left", str(tmp_path / ".a.tmp-0123abcd" / "b")),
    ):
        with pytest.raises(WriteFailed) as failure, new_directory(tmp_path / "a"):
            raise error
        assert str(failure.value) == f"{tmp_path / 'a' / 'b'}: No space left; free space or choose another disk"


def test_full_disk_error_of_a_library_names_the_file(tmp_path):
    with refusal(WriteFailed, "a/tensors"), new_directory(tmp_path / "a") as directory:  # noqa: SIM117
        with library_writes(directory / "tensors"):
            raise ValueError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_leftover_symlink_is_removed_but_not_followed(tmp_path):
    folder = tmp_path / "folder"
    write_text(folder / "kept", "")
    (tmp_path / ".out.tmp-0123abcd").symlink_to(folder)
    remove_leftovers(tmp_path)
    assert names_in(tmp_path) == ["folder"] and names_in(folder) == ["kept"]


# ---- locks ---------------------------------------------------------------------------------------------------------


def process_can_lock(path: Path) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if lock_file(path) else 3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def thread_can_lock(path: Path) -> bool:
    with ThreadPoolExecutor(1) as pool:
        lock = pool.submit(lock_file, path).result()
    if lock:
        lock.release()
    return lock is not None


def test_lock_excludes_other_threads_and_processes(tmp_path):
    path = tmp_path / "lock"
    lock = lock_file(path)
    assert not thread_can_lock(path)
    assert not process_can_lock(path), "the second thread's attempt released the lock"
    lock.release()
    lock.release()
    assert thread_can_lock(path)
    assert process_can_lock(path)


def test_one_of_many_concurrent_threads_gets_the_lock(tmp_path):
    barrier = threading.Barrier(16)
    with ThreadPoolExecutor(16) as pool:
        locks = list(pool.map(lambda _: barrier.wait() >= 0 and lock_file(tmp_path / "lock"), range(16)))
    (lock,) = filter(None, locks)
    lock.remove()


def test_locked_directory_excludes_other_threads_and_processes(tmp_path):
    with locked(tmp_path, "this run") as release, try_locked(tmp_path) as again:
        assert again is None
        with refusal(CannotCreate):
            locked(tmp_path, "this run").__enter__()
        assert not process_can_lock(tmp_path / ".lock")
        release()
        assert process_can_lock(tmp_path / ".lock")


def test_lock_of_a_killed_process_is_free(tmp_path):
    path = tmp_path / "lock"
    child = os.fork()
    if child == 0:
        lock_file(path)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    lock_file(path).remove()
    assert not path.exists()


def test_lock_file_removed_between_open_and_lock_is_locked_anew(tmp_path, monkeypatch):
    """Otherwise the next process would lock another file of the same name."""
    path, lockf, calls = tmp_path / "lock", fcntl.lockf, []

    def remove_first(*args):
        if not calls:
            path.unlink()
        calls.append(lockf(*args))

    monkeypatch.setattr(fcntl, "lockf", remove_first)
    lock = lock_file(path)
    assert len(calls) == 2 and lock.is_in_place()
    assert not process_can_lock(path)
    lock.remove()


@pytest.fixture
def no_locks(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)


def test_directory_on_a_file_system_without_locks_is_refused(tmp_path, no_locks):
    with refusal(CannotCreate, "locks"):
        locked(tmp_path, "this run").__enter__()


def test_leftovers_on_a_file_system_without_locks_are_kept(tmp_path, no_locks):
    with new_directory(tmp_path / "first") as first:
        (first / "file").write_text("first")
        with new_directory(tmp_path / "second") as second:
            (second / "file").write_text("second")
        remove_leftovers(tmp_path)
        write_text(tmp_path / "third", "third")
    verify_directory(tmp_path / "first")
    assert names_in(tmp_path) == ["first", "second", "third"]
