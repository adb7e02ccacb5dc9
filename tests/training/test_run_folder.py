"""The folder of a run: checkpoints are complete or absent, and one process at a time works in it."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.refusals import refusal
from tests.training.conftest import checkpoint_steps

from albert.runtime.errors import CannotCreate
from albert.runtime.files import new_directory
from albert.runtime.manifest import verify_directory
from albert.training.run_folder import STOPPING_SIGNALS, RunFolder, stop_signals


def touch_file(directory):
    (directory / "file").touch()


def test_the_oldest_checkpoint_is_removed_after_the_newest_is_complete(run):
    for step in (1, 2):
        run.save_checkpoint(step, touch_file, keep=2)

    def fail(directory):
        touch_file(directory)
        assert checkpoint_steps(run) == [1, 2]
        raise KeyError

    with pytest.raises(KeyError):
        run.save_checkpoint(3, fail, keep=2)
    assert checkpoint_steps(run) == [1, 2]
    run.save_checkpoint(3, touch_file, keep=2)
    assert checkpoint_steps(run) == [2, 3]


def test_a_damaged_checkpoint_is_saved_again(run):
    path = run.save_checkpoint(1, touch_file, keep=2)
    (path / "file").write_text("damage")
    run.save_checkpoint(1, lambda directory: (directory / "file").write_text("good"), keep=2)
    assert run.newest_checkpoint() == (1, path) and (path / "file").read_text() == "good"


def test_checkpoints_are_sorted_by_number(run):
    for step in (99_999_998, 99_999_999, 100_000_000):
        run.save_checkpoint(step, touch_file, keep=2)
    assert checkpoint_steps(run) == [99_999_999, 100_000_000]
    assert run.newest_checkpoint() == (100_000_000, run.checkpoints_path / "step-100000000")


# ---- the lock --------------------------------------------------------------------------------------------------------


def test_the_lock_ends_with_its_owner_although_its_workers_live_on(run):
    """Workers of a killed process live on for seconds; the same command must not wait for them."""
    reading, writing = os.pipe()
    owner = os.fork()
    if owner == 0:
        with run.locked():
            if os.fork() == 0:  # a worker, which lives until the end of the test
                os.close(writing)
                os.read(reading, 1)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(owner, 0)
    with run.locked():
        pass
    os.close(writing)
    os.close(reading)


def test_locking_removes_temporary_directories_of_dead_processes(run):
    for directory in (run.path, run.checkpoints_path):
        (directory / ".out.tmp-0123abcd").mkdir(parents=True)
    with run.locked():
        assert [entry.name for entry in run.path.rglob("*")] == [".lock", "checkpoints"]


def test_a_run_in_another_thread_leaves_signals_alone():
    def handlers_inside():
        with stop_signals():
            return handlers()

    def handlers():
        return [signal.getsignal(number) for number in STOPPING_SIGNALS]

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(handlers_inside).result() == handlers()
    assert handlers_inside() != handlers()


def test_a_path_that_is_not_a_run_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CannotCreate), RunFolder(tmp_path / "file" / "run").locked():
        pytest.fail("the block must not run")
    with new_directory(tmp_path / "corpus") as directory:
        (directory / "tokens.bin").write_bytes(b"1")
    with refusal(CannotCreate, tmp_path / "corpus"), RunFolder(tmp_path / "corpus").locked():
        pass
    verify_directory(tmp_path / "corpus")
