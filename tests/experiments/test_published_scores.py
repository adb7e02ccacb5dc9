"""The paper's scores in `paper.toml` are consistent with each other."""

import pytest
from experiments.grids import DOWNSTREAM, GRIDS, PAPER, grid_of
from experiments.results import paper_average

TABLES = {name: grid_of(name, PAPER) for name in GRIDS}
ROWS = [
    pytest.param(row, id=f"Table {table.table}: {row.name}")
    for table in TABLES.values()
    for row in table.rows
    if {*DOWNSTREAM, "average"} <= set(row.scores)
]
assert len(ROWS) == 48


@pytest.mark.parametrize("row", ROWS)
def test_averages_are_consistent(row):
    assert paper_average(row.scores) == pytest.approx(row.scores["average"], abs=0.0501)


def test_rows_of_several_tables_agree():
    def scores(table, row):
        return TABLES[table].row(row).scores

    assert scores("4", "E = 768, none") == scores("3", "not shared, E = 768")
    assert scores("4", "E = 768, all") == scores("3", "all shared, E = 768")
    assert scores("3", "all shared, E = 128")["average"] == scores("2", "albert-base")["average"]
    assert scores("12", "1024") == scores("11", "3")
    xxlarge = scores("6", "albert-xxlarge, 125k steps")
    assert {name: xxlarge[name] for name in (*DOWNSTREAM, "average")} == scores("13", "12")


def test_scores_are_points_of_100():
    for table in TABLES.values():
        assert all(0 <= score <= 100 for row in table.rows for score in row.scores.values())
