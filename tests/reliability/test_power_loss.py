"""The model of a disk that loses its cache, and the trial of power loss."""

import os
import random

import pytest
from dev.reliability.durable_calls import watched
from dev.reliability.power_loss import Disk, power_loss
from dev.reliability.trials import run_trial


@pytest.mark.trial
def test_power_loss_breaks_no_promise(tmp_path):
    entry = run_trial(power_loss, "quick", seed=0, scratch=tmp_path)
    assert entry.failures == ()
    assert entry.tried > power_loss.counts["quick"] / 2
    assert entry.details["deliberate defects caught"] == "5 of 5"


@pytest.fixture
def left(tmp_path):
    """What may be left of a folder after a function wrote into it, as {name: content}."""

    def left(write, most=40) -> set[tuple]:
        place = tmp_path / "disk"
        place.mkdir()
        disk = Disk(place)
        with watched(place, disk.observe):
            write(place)
        disk.observe("after", "end", str(place))
        found = set()
        for number, make in enumerate(disk.possible(random.Random(0), most)):
            make(tmp_path / f"state-{number}")
            files = sorted((tmp_path / f"state-{number}").iterdir())
            found.add(tuple((file.name, file.read_bytes()) for file in files))
        return found

    return left


def flush(place):
    descriptor = os.open(place, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def test_an_unflushed_file_may_be_absent_truncated_zeros_or_complete(left):
    assert left(lambda place: (place / "a").write_bytes(b"12")) == {
        (),
        (("a", b""),),
        (("a", b"1"),),
        (("a", b"\0\0"),),
        (("a", b"12"),),
    }


def test_a_flushed_file_may_only_lose_its_name(left):
    def write(place):
        (place / "a").write_bytes(b"12")
        flush(place / "a")

    assert left(write) == {(), (("a", b"12"),)}


def test_a_flushed_file_with_a_flushed_name_is_kept(left):
    def write(place):
        (place / "a").write_bytes(b"12")
        flush(place / "a")
        flush(place)

    assert left(write) == {(("a", b"12"),)}


def test_appending_keeps_the_flushed_content(left):
    def write(place):
        with open(place / "a", "ab", buffering=0) as file:
            file.write(b"12")
            flush(place / "a")
            flush(place)
            file.write(b"34")

    assert left(write) == {(("a", content),) for content in (b"12", b"123", b"12\0\0", b"1234")}


def test_a_name_given_before_the_bytes_were_flushed_may_be_empty(left):
    def write(place):
        (place / "a").write_bytes(b"12")
        os.rename(place / "a", place / "b")
        flush(place)

    states = left(write)
    assert (("b", b""),) in states
    assert all([name for name, _ in state] == ["b"] for state in states)


def test_a_rename_happens_or_does_not(left):
    def write(place):
        (place / "a").write_bytes(b"12")
        flush(place / "a")
        flush(place)
        os.rename(place / "a", place / "b")

    assert left(write) == {(("a", b"12"),), (("b", b"12"),)}
