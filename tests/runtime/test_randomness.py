"""Streams are a pure function of name, seed and position."""

import subprocess
import sys

import numpy as np
import pytest

from albert.runtime.random_streams import stream, stream_key

KEY = 145043176869390874847682470718460623467


def draws(*args) -> list[float]:
    return stream(*args).random(8).tolist()


def test_draws_do_not_depend_on_earlier_draws():
    expected = draws("masking", 3, 1, 2)
    stream("masking", 3, 1, 1).random(1000)
    np.random.seed(5)
    other = stream("order", 3)
    other.random()
    assert draws("masking", 3, 1, 2) == expected
    assert stream("order", 3).random(2)[1] == other.random()


def test_another_name_seed_or_position_gives_other_draws():
    positions = [(), (0,), (1,), (0, 1), (1, 0), (11,), (1, 1), (-1,)]
    streams = [("order", 0), ("masking", 1), *(("masking", 0, *position) for position in positions)]
    assert len({tuple(draws(*args)) for args in streams}) == len(streams)


def test_neighbouring_streams_are_uncorrelated():
    table = np.array([stream("sample", 0, n).random(4) for n in range(2000)])
    correlations = np.corrcoef(np.concatenate([table[:-1], table[1:]], axis=1).T) - np.eye(8)
    assert np.abs(correlations).max() < 0.1
    assert abs(table.mean() - 0.5) < 0.02


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_keys_are_equal_in_every_process_and_version(hash_seed):
    """A run that is resumed on another machine must see the same data."""
    program = "from albert.runtime.random_streams import *; print(stream_key('order', 7, 1, 2))"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True)
    assert int(result.stdout) == stream_key("order", 7, 1, 2) == KEY
