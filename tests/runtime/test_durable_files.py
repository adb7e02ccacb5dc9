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

from albert.runtime.errors import CannotCreate, DamagedData, MissingInput, WriteFailed
from albert.runtime.files import (
    FileLock,
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

# --------------------------------------------------------------------------------------------------------------------


def fill(directory: Path, content: str = "new") -> None:
    (directory / "weights.bin").write_bytes(bytes(range(64)))
    (directory / "text").mkdir()
    (directory / "text" / "card.md").write_text(content, encoding="utf-8")
    (directory / "empty").touch()


@pytest.fixture
def whole(tmp_path):
    with new_directory(tmp_path / "whole") as directory:
        fill(directory)
    return tmp_path / "whole"


def names_in(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


# ---- files ---------------------------------------------------------------------------------------------------------


def test_a_file_is_written_with_its_parents_and_replaced_whole(tmp_path):
    write_text(tmp_path / "a" / "b.txt", "ä\n")
    write_bytes(tmp_path / "a" / "b.txt", b"second")
    assert (tmp_path / "a" / "b.txt").read_bytes() == b"second"
    assert names_in(tmp_path / "a") == ["b.txt"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path, monkeypatch, call):
    path = tmp_path / "state.json"
    write_text(path, "old")
    monkeypatch.setattr(os, call, disk_full)
    with pytest.raises(WriteFailed, match="No space left") as failure:
        write_text(path, "new")
    assert failure.value.exit_code == 74
    assert path.read_text() == "old" and names_in(tmp_path) == ["state.json"]


@pytest.mark.parametrize("write", [write_text, lambda path, _: new_directory(path).__enter__()])
def test_a_place_below_a_file_cannot_be_created(tmp_path, write):
    (tmp_path / "file").touch()
    with pytest.raises(CannotCreate) as refusal:
        write(tmp_path / "file" / "below", "text")
    assert refusal.value.exit_code == 73


@pytest.fixture
def order(monkeypatch):
    """What is flushed, renamed and removed, in order: ("fsync", inode), ("rename", name), ("rmdir", name)."""
    events = []

    def recorded(name, plain, what):
        def call(*arguments, **options):
            events.append((name, what(*arguments)))
            return plain(*arguments, **options)

        return call

    for name, what in (
        ("fsync", lambda descriptor: os.fstat(descriptor).st_ino),
        ("rename", lambda source, target: Path(target).name),
        ("replace", lambda source, target: Path(target).name),
        ("rmdir", lambda path: Path(path).name),
    ):
        monkeypatch.setattr(os, name, recorded(name, getattr(os, name), what))
    return events


def flushed(*paths: Path) -> list[tuple[str, int]]:
    return [("fsync", path.stat().st_ino) for path in paths]


def test_a_file_is_on_the_disk_before_its_name_and_its_name_at_the_end(tmp_path, order):
    path = tmp_path / "state.json"
    write_text(path, "new")
    assert order == [*flushed(path), ("replace", path.name), *flushed(tmp_path)]


# ---- directories ---------------------------------------------------------------------------------------------------


def test_a_directory_is_described_by_its_manifest(whole):
    verify_directory(whole)
    listed = json.loads((whole / MANIFEST_NAME).read_text())["files"]
    assert sorted(listed) == ["empty", "text/card.md", "weights.bin"]
    assert listed["weights.bin"] == {"bytes": 64, "sha256": file_hash(whole / "weights.bin")}


def test_an_existing_path_is_refused_before_anything_is_written(whole):
    before = file_hash(whole / MANIFEST_NAME)
    with pytest.raises(CannotCreate, match="exists already") as refusal, new_directory(whole):
        pytest.fail("the block must not run")
    assert refusal.value.exit_code == 73
    assert file_hash(whole / MANIFEST_NAME) == before and names_in(whole.parent) == ["whole"]


def test_a_path_that_appears_meanwhile_is_not_replaced(tmp_path):
    with pytest.raises(CannotCreate), new_directory(tmp_path / "out") as directory:
        fill(directory)
        with new_directory(tmp_path / "out") as faster:
            fill(faster, "faster")
    verify_directory(tmp_path / "out")
    assert (tmp_path / "out" / "text" / "card.md").read_text() == "faster" and names_in(tmp_path) == ["out"]


def test_a_file_may_give_way_to_a_directory(tmp_path):
    (tmp_path / "out").touch()
    with new_directory(tmp_path / "out", replace=True) as directory:
        fill(directory)
    verify_directory(tmp_path / "out")
    assert names_in(tmp_path) == ["out"]


def test_replacing_swaps_whole_for_whole(whole):
    with new_directory(whole, replace=True) as directory:
        fill(directory, "second")
        assert (whole / "text" / "card.md").read_text() == "new"
    verify_directory(whole)
    assert (whole / "text" / "card.md").read_text() == "second" and names_in(whole.parent) == ["whole"]


def test_an_error_in_the_block_leaves_nothing(tmp_path):
    with pytest.raises(KeyError), new_directory(tmp_path / "out") as directory:
        fill(directory)
        raise KeyError
    assert names_in(tmp_path) == []


def test_everything_is_on_the_disk_before_the_name_appears(tmp_path, order):
    out = tmp_path / "out"
    with new_directory(out) as directory:
        fill(directory)
    name = order.index(("rename", "out"))
    before, after = order[:name], order[name + 1 :]
    assert set(flushed(out, *out.rglob("*"))) <= set(before)
    first, last = (before.index(*flushed(out / each)) for each in ("weights.bin", MANIFEST_NAME))
    assert first < last
    assert after == flushed(tmp_path)


def test_an_old_directory_goes_when_the_new_one_s_name_is_on_the_disk(whole, order):
    with new_directory(whole, replace=True) as directory:
        fill(directory, "second")
    last = max(place for place, event in enumerate(order) if event == ("rename", whole.name))
    assert order[last + 1 : last + 2] == flushed(whole.parent)
    assert [kind for kind, _ in order[last + 2 :]] == ["rmdir"] * 2  # the old one, and the folder in it


def test_a_removed_directory_s_name_is_gone_for_good_before_its_files(whole, order):
    remove_directory(whole)
    assert [kind for kind, _ in order] == ["rename", "fsync", "rmdir", "rmdir"] and order[1:2] == flushed(whole.parent)


def test_the_parents_that_are_made_are_on_the_disk_before_what_they_hold(tmp_path, order):
    write_text(tmp_path / "a" / "b" / "c.txt", "new")
    assert order[:2] == flushed(tmp_path, tmp_path / "a") and len(order) == 5


# ---- damage --------------------------------------------------------------------------------------------------------


def test_a_flipped_bit_in_any_byte_is_refused(whole):
    for name in ("weights.bin", "text/card.md", MANIFEST_NAME):
        path = whole / name
        content = path.read_bytes()
        for place in range(len(content)):
            damaged = bytearray(content)
            damaged[place] ^= 1 << place * 5 % 8
            path.write_bytes(damaged)
            with pytest.raises(DamagedData):
                verify_directory(whole)
        path.write_bytes(content)
    verify_directory(whole)


def test_every_truncation_is_refused(whole):
    for name in ("weights.bin", "text/card.md", MANIFEST_NAME):
        content = (whole / name).read_bytes()
        for length in range(len(content)):
            (whole / name).write_bytes(content[:length])
            with pytest.raises(DamagedData):
                verify_directory(whole)
        (whole / name).write_bytes(content)
    verify_directory(whole)


@pytest.mark.parametrize("name", ["weights.bin", "empty"])
@pytest.mark.parametrize("kind", ["loop", "nothing", "pipe", "device"])
def test_what_is_no_file_is_refused_and_not_waited_for(whole, name, kind):
    """A pipe has no bytes either, as the file that is empty."""
    file = whole / name
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to({"loop": name, "nothing": "nowhere", "device": "/dev/zero"}[kind])
    with pytest.raises((DamagedData, MissingInput), match=name):
        verify_directory(whole)


def test_a_missing_file_is_named(whole):
    (whole / "text" / "card.md").unlink()
    with pytest.raises(DamagedData, match=r"card\.md: is listed in MANIFEST\.json but missing") as damage:
        verify_directory(whole)
    assert damage.value.exit_code == 65


@pytest.mark.parametrize("name", ["extra.txt", "text/extra.txt"])
def test_an_extra_file_is_named(whole, name):
    (whole / name).touch()
    with pytest.raises(DamagedData, match="is not listed"):
        verify_directory(whole)


@pytest.mark.parametrize("name", [".gitattributes", ".cache/huggingface/lock", "text/.DS_Store"])
def test_a_hidden_file_that_others_left_is_none_of_our_business(whole, name):
    (whole / name).parent.mkdir(parents=True, exist_ok=True)
    (whole / name).touch()
    verify_directory(whole)


def test_a_hidden_file_of_ours_is_checked(tmp_path):
    with new_directory(tmp_path / "out") as directory:
        (directory / ".hidden").write_text("content")
    (tmp_path / "out" / ".hidden").write_text("CONTENT")
    with pytest.raises(DamagedData, match="SHA-256 differs"):
        verify_directory(tmp_path / "out")


def test_an_edited_manifest_is_refused(whole):
    manifest = whole / MANIFEST_NAME
    content = json.loads(manifest.read_text())
    (whole / "weights.bin").write_bytes(b"other")
    content["files"]["weights.bin"] = {"bytes": 5, "sha256": file_hash(whole / "weights.bin")}
    manifest.write_text(json.dumps(content, indent=1) + "\n")
    with pytest.raises(DamagedData, match=MANIFEST_NAME):
        verify_directory(whole)


@pytest.mark.parametrize("content", ["", "[]", "null", '{"files": []}', '{"files": {"a": 3}, "self": ""}', "[" * 9999])
def test_what_is_no_manifest_is_refused(whole, content):
    (whole / MANIFEST_NAME).write_text(content)
    with pytest.raises(DamagedData, match=MANIFEST_NAME):
        verify_directory(whole)
    assert not is_intact(whole)


def test_a_directory_without_a_manifest_was_not_written_whole(whole):
    (whole / MANIFEST_NAME).unlink()
    with pytest.raises(MissingInput, match="holds no MANIFEST") as refusal:
        verify_directory(whole)
    assert refusal.value.exit_code == 66
    with pytest.raises(MissingInput, match="no such directory"):
        verify_directory(whole / "nowhere")


# ---- failures and deaths ---------------------------------------------------------------------------------------------


def disk_full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fail_at(monkeypatch, turn: int) -> list[str]:
    """Let the call number `turn` of those that make things durable fail as on a full disk; all calls are listed."""
    calls: list[str] = []

    def counted(name):
        real = getattr(os, name)

        def call(*arguments, **settings):
            calls.append(name)
            return disk_full() if len(calls) == turn else real(*arguments, **settings)

        return call

    for name in ("fsync", "rename", "replace", "mkdir"):
        monkeypatch.setattr(os, name, counted(name))
    return calls


@pytest.mark.parametrize("replace", [False, True])
def test_a_disk_that_fills_up_at_any_call_leaves_what_was_there(tmp_path, replace):
    path = tmp_path / "out"
    if replace:
        with new_directory(path) as directory:
            fill(directory, "old")
    turn, done = 0, False
    while not done:
        turn += 1
        with pytest.MonkeyPatch.context() as monkeypatch:
            calls = fail_at(monkeypatch, turn)
            try:
                with new_directory(path, replace=replace) as directory:
                    fill(directory)
                done = turn > len(calls)
            except WriteFailed as failure:
                assert failure.exit_code == 74
            except OSError as error:
                assert error.errno == errno.ENOSPC, "of `fill` itself"
        assert done or turn <= len(calls)
        if path.exists():
            verify_directory(path)  # the last call of all only makes a name durable that is there already
            if not replace:
                remove_directory(path)
        else:
            assert not replace
        assert names_in(tmp_path) == (["out"] if path.exists() else [])
    assert turn > 8


DIE_EVERYWHERE = """
import builtins, os, shutil, sys
from pathlib import Path
from albert.runtime import files as durable_files
from albert.runtime import manifest as manifests

kind, place = sys.argv[1], Path(sys.argv[2])
path = place / "out"

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

def count_down(turn):
    left = [turn]
    def dying(function):
        def call(*arguments, **settings):
            left[0] -= 1
            if left[0] < 0:
                os._exit(77)
            return function(*arguments, **settings)
        return call
    for name in ("fsync", "rename", "replace", "mkdir", "rmdir", "unlink", "open", "scandir", "truncate"):
        setattr(os, name, dying(getattr(os, name)))
    builtins.open = durable_files.open = manifests.open = dying(open)

turn, status = 0, None
while status != 0:
    if kind != "directory":
        write("old")
    child = os.fork()
    if child == 0:
        count_down(turn)
        write("new")
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 77), status
    check(may_be_absent=kind != "file")
    durable_files.remove_leftovers(place)
    check(may_be_absent=kind == "directory")
    assert [entry.name for entry in place.iterdir()] in ([], ["out"]), list(place.iterdir())
    if kind == "directory" and path.exists():
        durable_files.remove_directory(path)
    turn += 1
print(turn)
"""


@pytest.mark.parametrize(("kind", "least"), [("file", 5), ("directory", 12), ("replaced directory", 15)])
def test_a_directory_is_whole_or_absent_wherever_its_writer_dies(tmp_path, kind, least):
    """A child dies at every call in turn; it leaves nothing but names that the next writer removes.

    Where it died with the old directory out of the way and the new one not yet in its place, the old one comes back.
    """
    place = tmp_path / "place"
    place.mkdir()
    command = [sys.executable, "-c", DIE_EVERYWHERE, kind, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= least


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
    """Another process in the middle of writing `path`, and the temporary name there."""
    command = [sys.executable, "-c", WRITER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process, path.parent / process.stdout.readline().strip()
        process.kill()


def dead_writer(path: Path) -> Path:
    """What a writer left that was killed."""
    with writer(path) as (process, left):
        process.kill()
        process.wait()
    assert left.is_dir()
    return left


def token_of(temporary: Path) -> str:
    return temporary.name.rpartition("-")[2]


def test_the_next_writer_removes_what_the_dead_left_and_nothing_of_the_living(tmp_path):
    dead_writer(tmp_path / "out")
    (tmp_path / "state.json.lock-0123abcd").touch()
    (tmp_path / ".state.json.tmp-0123abcd").touch()
    (tmp_path / ".state.json.lock-4567abcd").touch()
    (tmp_path / ".mine-0123abcd").touch()
    with writer(tmp_path / "second") as (process, living):
        with new_directory(tmp_path / "out") as directory:
            fill(directory)
        lock = f".second.lock-{token_of(living)}"
        left = [".mine-0123abcd", lock, living.name, "out", "state.json.lock-0123abcd"]
        assert names_in(tmp_path) == sorted(left)
        process.communicate("")
    assert process.returncode == 0
    verify_directory(tmp_path / "second")
    assert names_in(tmp_path) == [".mine-0123abcd", "out", "second", "state.json.lock-0123abcd"]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_dead_writer_leaves_the_old_directory_or_the_new_one(whole, replaced):
    left = dead_writer(whole)
    (left if replaced else whole).rename(whole.parent / f".{whole.name}.old-{token_of(left)}")
    remove_leftovers(whole.parent)
    verify_directory(whole)
    assert names_in(whole.parent) == [whole.name]


@pytest.mark.parametrize("is_locked", [False, True])
def test_names_without_a_lock_go_only_where_a_lock_keeps_everybody_out(tmp_path, is_locked):
    """As earlier versions wrote them: a process number that is not there may be alive in another container."""
    (tmp_path / ".out.tmp-999999999-0123abcd").mkdir()
    (tmp_path / ".second.old-999999999-0123abcd").mkdir()
    remove_leftovers(tmp_path, is_locked)
    assert len(names_in(tmp_path)) == (1 if is_locked else 2)
    assert (tmp_path / "second").exists() == is_locked


def remove_as_a_leftover(temporary: Path) -> None:
    """As whoever gets the lock, the server having lost it."""
    (temporary.parent / temporary.name.replace(".tmp-", ".lock-")).unlink()
    shutil.rmtree(temporary)
    temporary.mkdir()


def remove_a_file(temporary: Path) -> None:
    (temporary / "card.md").unlink()


def remove_a_tensor_file(temporary: Path) -> None:
    (temporary / "tensors").unlink()


@pytest.mark.parametrize("remove", [remove_as_a_leftover, remove_a_file, remove_a_tensor_file])
def test_a_directory_that_lost_a_file_while_it_was_written_is_refused(whole, remove):
    with pytest.raises(WriteFailed, match="another program removed it") as failure:  # noqa: SIM117 (what is refused)
        with new_directory(whole, replace=True) as directory:
            write_text(directory / "card.md", "second")
            with library_writes(directory / "tensors"):
                (directory / "tensors").write_bytes(b"1")
            remove(directory)
            (directory / "last").touch()
    assert failure.value.exit_code == 74
    verify_directory(whole)
    assert names_in(whole.parent) == ["whole"]


def test_a_file_that_was_removed_while_it_was_written_is_refused(tmp_path):
    with (
        pytest.raises(WriteFailed, match=r"state\.json: another program removed it"),
        new_file(tmp_path / "state.json"),
    ):
        for entry in tmp_path.iterdir():
            entry.unlink()


def test_a_full_disk_names_the_file_under_its_final_name(tmp_path):
    for error in (
        OSError(errno.ENOSPC, "No space left", str(tmp_path / "source"), None, str(tmp_path / ".a.tmp-0123abcd" / "b")),
        OSError(errno.ENOSPC, "No space left", str(tmp_path / ".a.tmp-0123abcd" / "b")),
    ):
        with pytest.raises(WriteFailed) as failure, new_directory(tmp_path / "a"):
            raise error
        assert str(failure.value) == f"{tmp_path / 'a' / 'b'}: No space left; free space or choose another disk"


def test_a_full_disk_that_a_library_meets_is_told_with_the_file(tmp_path):
    with pytest.raises(WriteFailed, match=r"a/tensors: No space left"), new_directory(tmp_path / "a") as directory:  # noqa: SIM117
        with library_writes(directory / "tensors"):
            raise ValueError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_a_link_to_elsewhere_is_removed_but_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (tmp_path / ".out.tmp-0123abcd").symlink_to(elsewhere)
    remove_leftovers(tmp_path)
    assert names_in(tmp_path) == ["elsewhere"] and names_in(elsewhere) == ["kept"]


# --------------------------------------------------------------------------------------------------------------------


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


def test_of_threads_that_want_a_lock_at_the_same_moment_one_gets_it(tmp_path):
    together = threading.Barrier(16)
    with ThreadPoolExecutor(16) as pool:
        locks = list(pool.map(lambda _: together.wait() >= 0 and lock_file(tmp_path / "lock"), range(16)))
    (lock,) = filter(None, locks)
    lock.remove()


def test_two_threads_do_not_both_work_in_a_directory(tmp_path):
    with locked(tmp_path, "this run"), try_locked(tmp_path) as again:
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
    with pytest.raises(CannotCreate, match="its file system has no locks .*; choose another disk"):
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
