"""Processes: results in order, and a killed one is said so."""

import multiprocessing
import os

import pytest

from albert.runtime.errors import OutOfResources
from albert.text.executors import in_order


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_the_order_of_the_jobs(workers):
    assert list(in_order(abs, range(-9, 0), workers)) == list(range(9, 0, -1))
    assert list(in_order(abs, [], workers)) == []


def test_jobs_are_drawn_only_as_results_are_taken():
    drawn = []
    results = in_order(abs, (drawn.append(number) or number for number in range(100)), 2)
    next(results)
    assert len(drawn) <= 4
    results.close()
    assert multiprocessing.active_children() == []


def test_a_killed_process_is_named():
    with pytest.raises(OutOfResources, match="worker process: was killed"):
        list(in_order(os._exit, range(3), 2))


def test_what_fails_in_a_process_fails_here():
    with pytest.raises(ValueError, match="invalid literal"):
        list(in_order(int, ["1", "2", "x", "4"], 2))
    assert multiprocessing.active_children() == []
