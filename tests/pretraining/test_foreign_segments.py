"""A foreign segment is of another document, and as long as the one in whose place it comes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from albert.pretraining.segments import SecondSegments, SequenceTable

sequences = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 9)), min_size=2, max_size=30
).filter(lambda rows: len({document for document, _, _ in rows}) > 1)


def table_of(rows):
    """(document, tokens of the first segment, tokens of the second) one after the other."""
    rows = np.array(sorted(rows))
    begin = np.cumsum(rows[:, 1] + rows[:, 2]) - rows[:, 1] - rows[:, 2]
    split = begin + rows[:, 1]
    return SequenceTable(begin, split, split + rows[:, 2], rows[:, 0])


@given(sequences, st.integers(0, 2**32))
def test_it_is_a_whole_segment_of_another_document_or_cut_where_nothing_fits(rows, seed):
    table = table_of(rows)
    two = np.flatnonzero(table.split < table.end)
    if len(two) == 0:
        return
    length, room = (table.end - table.split)[two], np.full(len(two), 6)
    length = np.minimum(length, room)
    found = SecondSegments(table).foreign(table.document[two], length, room, two.astype(np.uint64) + np.uint64(seed))
    sequence = np.searchsorted(table.begin, found.begin, side="right") - 1
    assert (table.document[sequence] != table.document[two]).all()
    assert ((found.length > 0) & (found.length <= 6)).all()
    starts = np.where(table.split < table.end, table.split, table.begin)
    assert (found.begin == starts[sequence]).all()
    assert (found.length == np.minimum(table.end[sequence] - found.begin, 6)).all()


def test_it_is_exactly_as_long_where_another_document_has_one_of_that_length():
    draws = np.random.default_rng(0)
    table = table_of([(document, 5, draws.integers(1, 20)) for document in range(50) for _ in range(40)])
    length = table.end - table.split
    found = SecondSegments(table).foreign(
        table.document, length, np.full(len(table), 60), np.arange(len(table)).astype(np.uint64)
    )
    assert (found.length == length).mean() > 0.999
    assert len(np.unique(found.begin)) > 0.5 * len(table)


def test_the_only_other_document_is_found_beside_a_huge_one():
    table = table_of([(0, 5, 7)] * 200_000 + [(1, 5, 9)])
    chosen = np.arange(0, 200_000, 20)
    found = SecondSegments(table).foreign(
        table.document[chosen], np.full(len(chosen), 7), np.full(len(chosen), 8), chosen.astype(np.uint64)
    )
    assert (found.begin == table.split[-1]).all() and (found.length == 8).all()
