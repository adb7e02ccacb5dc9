"""The fork server of the trials ends with the tests."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def trials_fork():
    from reliability.killable_runs import close_fork_server

    yield
    close_fork_server()
