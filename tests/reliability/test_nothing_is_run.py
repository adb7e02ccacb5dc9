"""Opening good models runs no code and reaches no network; one that did would be caught."""

import socket

from reliability.trial import Asked

from albert.cli import commands
from reliability import nothing_is_run


def test_opening_a_model_runs_nothing(tmp_path):
    count = nothing_is_run.TRIAL.counts["quick"]
    outcome = nothing_is_run.run_openings(Asked(count=count, seed=0, folder=tmp_path, report=lambda more: None))
    assert outcome.failures == ()


def test_a_command_that_reaches_out_is_caught(tmp_path, monkeypatch):
    def reaching(arguments):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect_ex("nowhere")
        return 0

    monkeypatch.setattr(commands, "info_main", reaching)
    outcome = nothing_is_run.run_openings(Asked(count=1, seed=0, folder=tmp_path, report=lambda more: None))
    assert "socket.connect" in outcome.failures[0]
