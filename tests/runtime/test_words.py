"""Counts and sizes in sentences."""

import pytest

from albert.runtime.words import bytes_of, counted, in_epochs


@pytest.mark.parametrize(
    ("what", "one"),
    [
        ("rows without text left out", "1 row without text left out"),
        ("training rows", "1 training row"),
        ("held-out sequences", "1 held-out sequence"),
        ("documents dropped: equal to another one", "1 document dropped: equal to another one"),
        ("runs:", "1 run:"),
        ("files: no header", "1 file: no header"),
        ("data set read at commit 1a: stories", "1 data set read at commit 1a: stories"),
        ("classes", "1 class"),
        ("batches", "1 batch"),
        ("questions whose passage was cut", "1 question whose passage was cut"),
    ],
)
def test_a_count_of_one_is_singular(what, one):
    assert counted(1, what) == one
    assert counted(1200, what) == f"1,200 {what}"


def test_sizes_have_a_unit_that_fits():
    assert [bytes_of(size) for size in (0, 999, 4100, 46_700_000)] == ["0 B", "999 B", "4.10 kB", "46.7 MB"]


def test_epochs_have_three_digits():
    assert [in_epochs(epochs) for epochs in (1.0, 6, 0.9999, 2.25)] == ["1 epoch", "6 epochs", "1 epoch", "2.25 epochs"]
