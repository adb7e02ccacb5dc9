"""The paper's tables as data: copied without a slip, as far as their own arithmetic can tell."""

import pytest

from albert.experiments.published import (
    DOWNSTREAM,
    EMBEDDING_SIZE,
    OVERALL,
    PUBLISHED_TABLES,
    SHARING,
    WIDTH,
    average_of,
)

ROWS = [
    pytest.param(row, id=f"Table {table.name}: {row.arm}")
    for table in PUBLISHED_TABLES.values()
    for row in table.rows
    if row.average is not None and set(DOWNSTREAM) <= set(row.scores)
]


@pytest.mark.parametrize("row", ROWS)
def test_every_average_is_that_of_its_row(row):
    assert average_of(row.scores) == pytest.approx(row.average, abs=0.0501)


def test_all_rows_with_an_average_were_looked_at():
    assert len(ROWS) == 48


def test_rows_that_stand_in_several_tables_agree():
    assert SHARING.row("E = 768, none").scores == EMBEDDING_SIZE.row("not shared, E = 768").scores
    assert SHARING.row("E = 768, all").scores == EMBEDDING_SIZE.row("all shared, E = 768").scores
    assert EMBEDDING_SIZE.row("all shared, E = 128").average == OVERALL.row("albert-base").average
    assert WIDTH.row("1024").scores == PUBLISHED_TABLES["11"].row("3").scores
    sixth, thirteenth = PUBLISHED_TABLES["6"], PUBLISHED_TABLES["13"]
    xxlarge = sixth.row("albert-xxlarge, 125k steps").scores
    assert {name: xxlarge[name] for name in DOWNSTREAM} == thirteenth.row("12").scores


def test_names_are_those_they_are_found_by():
    for name, table in PUBLISHED_TABLES.items():
        assert table.name == name
        assert len({row.arm for row in table.rows}) == len(table.rows)
        assert all(0 <= score <= 100 for row in table.rows for score in row.scores.values())
