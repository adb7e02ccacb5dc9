"""Claims are about rows and columns that there are, and the paper's own figures bear them out."""

import pytest

from albert.experiments.grids import GRIDS, PAPER, SCALES, grid_of

CLAIMS = [table for table in GRIDS if grid_of(table, PAPER).claims]


@pytest.mark.parametrize("table", CLAIMS)
def test_claims_name_rows_and_columns_that_there_are(table):
    for scale in SCALES.values():
        grid = grid_of(table, scale)
        columns = frozenset(column.name for column in grid.columns)
        for claim in grid.claims:
            for contrast in claim.contrasts:
                names = [contrast.first, contrast.second] if contrast.second else [contrast.first]
                assert names[0] != names[-1] or not contrast.second
                for name in names:
                    assert grid.row(name)
            if scale is PAPER:
                assert claim.column(columns) == claim.columns[0]
            if claim.equal is not None:
                assert claim.equal in columns
            assert claim.smallest > 0 and claim.sentence.endswith(".")


@pytest.mark.parametrize("table", [table for table in CLAIMS if not table.startswith("figure")])
def test_the_papers_own_figures_bear_its_claims_out(table):
    grid = grid_of(table, PAPER)
    rows = {row.name: row for row in grid.rows}
    names = {column.name: column.published or column.name for column in grid.columns}
    for claim in grid.claims:
        for contrast in claim.contrasts:
            column = claim.columns[0]

            def figure(name, column=column):
                return rows[name].scores[names[column]]

            gain = figure(contrast.first) - (50.0 if contrast.second is None else figure(contrast.second))
            held = {
                "higher": gain > 0,
                "not higher": gain < claim.smallest,
                "alike": abs(gain) < claim.smallest,
            }
            assert held[contrast.relation], (claim.sentence, contrast, gain)
