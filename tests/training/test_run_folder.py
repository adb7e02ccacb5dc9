import os
import signal

import pytest
from tests.training.conftest import steps_kept

from albert.runtime.errors import CannotCreate
from albert.runtime.files import new_directory
from albert.runtime.manifest import verify_directory
from albert.training.run_folder import RunFolder


def test_the_oldest_goes_only_after_the_newest_is_whole(run, tmp_path):
    def write(directory):
        (directory / "file").touch()

    for step in (1, 2):
        run.save_checkpoint(step, write, keep=2)

    def fail(directory):
        write(directory)
        assert steps_kept(run) == [1, 2]
        raise KeyError

    with pytest.raises(KeyError):
        run.save_checkpoint(3, fail, keep=2)
    assert steps_kept(run) == [1, 2]
    run.save_checkpoint(3, write, keep=2)
    assert steps_kept(run) == [2, 3]


def test_a_checkpoint_that_was_damaged_is_written_anew(run):
    path = run.save_checkpoint(1, lambda directory: (directory / "file").touch(), keep=2)
    (path / "file").write_text("damage")
    run.save_checkpoint(1, lambda directory: (directory / "file").write_text("good"), keep=2)
    assert run.newest_checkpoint() == (1, path) and (path / "file").read_text() == "good"


def test_steps_are_numbers_however_many_digits_they_have(run):
    for step in (99_999_998, 99_999_999, 100_000_000):
        run.save_checkpoint(step, lambda directory: (directory / "file").touch(), keep=2)
    assert steps_kept(run) == [99_999_999, 100_000_000]
    assert run.newest_checkpoint() == (100_000_000, run.checkpoints_path / "step-100000000")


# ---- the lock --------------------------------------------------------------------------------------------------------


def in_a_child(run: RunFolder) -> int:
    """The exit code of another process that wants to work in the run."""
    child = os.fork()
    if child == 0:
        try:
            with run.locked():
                os._exit(0)
        except CannotCreate as refusal:
            os._exit(refusal.exit_code)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_lock_dies_with_its_owner_although_its_workers_live_on(run):
    """Workers of a killed process linger for seconds; the same command must not have to wait for them."""
    reading, writing = os.pipe()
    owner = os.fork()
    if owner == 0:
        with run.locked():
            worker = os.fork()
            if worker == 0:
                os.close(writing)
                os.read(reading, 1)  # lives until the test ends it
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(owner, 0)
    code = in_a_child(run)
    os.close(writing)
    os.close(reading)
    assert code == 0


def test_the_lock_removes_what_the_dead_left(run):
    for place in (run.path, run.checkpoints_path):
        (place / ".out.tmp-0123abcd").mkdir(parents=True)
        (place / ".out.tmp-999999999-4567abcd").mkdir()  # by an earlier version
    with run.locked():
        assert [entry.name for entry in run.path.rglob("*")] == [".lock", "checkpoints"]


def test_a_place_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CannotCreate), RunFolder(tmp_path / "file" / "run").locked():
        pytest.fail("the block must not run")


def test_a_directory_that_is_whole_is_no_place_for_a_run(tmp_path):
    with new_directory(tmp_path / "corpus") as directory:
        (directory / "tokens.bin").write_bytes(b"1")
    with pytest.raises(CannotCreate, match="not a run"), RunFolder(tmp_path / "corpus").locked():
        pass
    verify_directory(tmp_path / "corpus")
