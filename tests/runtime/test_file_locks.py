import errno
import fcntl
import os
import signal
import threading
from pathlib import Path

import pytest

from albert.runtime.errors import CannotCreate
from albert.runtime.files import FileLock, claimed, lock_file, locked, new_directory, remove_leftovers, write_text
from albert.runtime.manifest import verify_directory


def taken(path: Path) -> FileLock:
    lock = lock_file(path)
    assert lock is not None
    return lock


def another_process_gets(path: Path) -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if lock_file(path) else 3)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def another_thread_gets(path: Path) -> bool:
    found = []

    def ask() -> None:
        if lock := lock_file(path):
            found.append(lock)
            lock.release()

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return bool(found)


def test_two_threads_of_a_process_do_not_both_get_a_lock(tmp_path):
    path = tmp_path / "lock"
    lock = taken(path)
    assert not another_thread_gets(path)
    assert not another_process_gets(path), "the second thread's attempt gave the lock up"
    lock.release()
    lock.release()
    assert another_thread_gets(path)
    assert another_process_gets(path)


def test_two_threads_do_not_both_work_in_a_directory(tmp_path):
    with locked(tmp_path, "this run"), claimed(tmp_path) as again:
        assert again is None
        with pytest.raises(CannotCreate, match="another process or thread is working in this run"):
            locked(tmp_path, "this run").__enter__()
        assert not another_process_gets(tmp_path / ".lock")
    assert another_process_gets(tmp_path / ".lock")


def test_a_lock_is_free_when_its_owner_was_killed(tmp_path):
    path = tmp_path / "lock"
    child = os.fork()
    if child == 0:
        taken(path)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    taken(path).remove()
    assert not path.exists()


def test_a_lock_that_was_given_up_inside_of_the_block_is_free(tmp_path):
    with locked(tmp_path, "this run") as release:
        release()
        assert another_process_gets(tmp_path / ".lock")


def test_a_file_that_its_owner_removed_meanwhile_is_not_a_lock(tmp_path, monkeypatch):
    """Its owner removes it between our opening and our locking it: the next one would lock another file."""
    path, lockf, calls = tmp_path / "lock", fcntl.lockf, []

    def owner_ends_first(*arguments):
        if not calls:
            path.unlink()
        calls.append(lockf(*arguments))

    monkeypatch.setattr(fcntl, "lockf", owner_ends_first)
    lock = taken(path)
    assert len(calls) == 2 and lock.is_in_place()
    assert not another_process_gets(path)
    lock.remove()


@pytest.fixture
def no_locks(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)


def test_a_file_system_without_locks_is_no_place_for_a_run(tmp_path, no_locks):
    with pytest.raises(CannotCreate, match="its file system keeps no locks .*; choose another disk"):
        locked(tmp_path, "this run").__enter__()


def test_a_file_system_without_locks_keeps_what_may_be_of_the_living(tmp_path, no_locks):
    with new_directory(tmp_path / "first") as first:
        (first / "file").write_text("first")
        with new_directory(tmp_path / "second") as second:
            (second / "file").write_text("second")
        remove_leftovers(tmp_path)
        write_text(tmp_path / "third", "third")
    verify_directory(tmp_path / "first")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["first", "second", "third"]
