"""What several tests of the tables ask for."""

import pytest


@pytest.fixture(scope="session")
def all_arms():
    """Every run that a scale's tables ask for, what others begin as included: a function of the scale."""
    from albert.experiments.grids import GRIDS, grid_of

    def arms(scale):
        return list(
            dict.fromkeys(step for table in GRIDS for one in grid_of(table, scale).arms() for step in one.chain())
        )

    return arms
