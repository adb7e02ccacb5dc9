"""Random numbers are a pure function of name, seed and position; whole arrays have the published sequence."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from albert.runtime.random_streams import bounded, draw, high_bits, item_keys, low_bits, stream, stream_key, uniform

ONE_IN_A_THOUSAND = 0.001


def is_uniform(values, bins):
    """Chi-square test of integers below `bins`."""
    return stats.chisquare(np.bincount(values, minlength=bins)).pvalue > ONE_IN_A_THOUSAND


def test_the_numbers_are_those_of_splitmix64():
    """The first five for the key 1234567, as other implementations give them."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423,
                4593380528125082431, 16408922859458223821]  # fmt: skip
    assert draw(np.uint64(1234567), np.arange(5)).tolist() == expected


def test_a_number_depends_only_on_its_key_and_counter():
    keys, places = item_keys("masks", 1, 2, np.arange(40)), np.arange(40)[::-1].copy()
    together = draw(keys, places)
    for i in (0, 7, 39):
        assert draw(keys[i], int(places[i]))[0] == together[i]
    assert (draw(keys[:, None], places)[3] == draw(keys[3], places)).all()
    assert places.tolist() == list(range(39, -1, -1))  # the argument is unchanged


def test_purposes_seeds_epochs_items_and_counters_give_different_numbers():
    items = np.arange(1000)
    different = [item_keys("masks", 0, 0, items), item_keys("swap", 0, 0, items), item_keys("masks", 1, 0, items),
                 item_keys("masks", 0, 1, items), draw(item_keys("masks", 0, 0, items), 0),
                 draw(item_keys("masks", 0, 0, items), 1), draw(np.uint64(5), items, items),
                 draw(np.uint64(5), items, items + 1), draw(np.uint64(5), items + 1, items)]  # fmt: skip
    assert len(set(np.concatenate(different).tolist())) == 1000 * len(different)


@pytest.mark.parametrize("half", [high_bits, low_bits])
def test_both_halves_are_uniform_along_counters_and_items(half):
    along_places = half(draw(np.uint64(77), np.arange(200_000)))
    along_items = half(draw(item_keys("masks", 0, 0, np.arange(200_000)), 3))
    for bits in (along_places, along_items):
        for bins in (2, 37, 1024):
            assert is_uniform(bounded(bits, bins), bins)
        assert is_uniform((bits & np.uint64(255)).astype(np.int64), 256)
        assert stats.kstest(uniform(bits), "uniform").pvalue > ONE_IN_A_THOUSAND


def test_neighbours_and_halves_are_independent():
    grid = draw(item_keys("masks", 0, 0, np.arange(600))[:, None], np.arange(600))
    pairs = [(grid[:, :-1], grid[:, 1:]), (grid[:-1], grid[1:]), (grid[:-1, :-1], grid[1:, 1:])]
    for first, second in pairs:
        together = bounded(high_bits(first), 16) * 16 + bounded(high_bits(second), 16)
        assert is_uniform(together.ravel(), 256)
    assert is_uniform((bounded(high_bits(grid), 16) * 16 + bounded(low_bits(grid), 16)).ravel(), 256)


def test_bounded_stays_below_its_bound():
    ends = np.array([0, 2**32 - 1], dtype=np.uint64)
    assert bounded(ends, 7).tolist() == [0, 6]
    assert bounded(ends, np.array([1, 2**31])).tolist() == [0, 2**31 - 1]
    assert uniform(ends).tolist() == [0.0, 1 - 2**-32]


# ---- streams -------------------------------------------------------------------------------------------------------

KEY = 145043176869390874847682470718460623467


def first_draws(*args) -> list[float]:
    return stream(*args).random(8).tolist()


def test_draws_do_not_depend_on_earlier_draws():
    expected = first_draws("masking", 3, 1, 2)
    stream("masking", 3, 1, 1).random(1000)
    np.random.seed(5)
    other = stream("order", 3)
    other.random()
    assert first_draws("masking", 3, 1, 2) == expected
    assert stream("order", 3).random(2)[1] == other.random()


def test_another_name_seed_or_position_gives_other_draws():
    positions = [(), (0,), (1,), (0, 1), (1, 0), (11,), (1, 1), (-1,)]
    streams = [("order", 0), ("masking", 1), *(("masking", 0, *position) for position in positions)]
    assert len({tuple(first_draws(*args)) for args in streams}) == len(streams)


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_keys_are_equal_in_every_process_and_version(hash_seed):
    """A run that is resumed on another machine must see the same data."""
    program = "from albert.runtime.random_streams import *; print(stream_key('order', 7, 1, 2))"
    command = [sys.executable, "-c", program]
    result = subprocess.run(command, env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True)
    assert int(result.stdout) == stream_key("order", 7, 1, 2) == KEY
