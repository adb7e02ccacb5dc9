"""Opening valid models runs no code and uses no network, and network access is detected."""

import socket

from dev.reliability.hostile_files import nothing_is_run
from dev.reliability.trials import Tries

from albert.commands import info


def test_opening_a_model_runs_nothing(tmp_path):
    outcome = Tries(nothing_is_run.counts["quick"], 0, tmp_path)
    nothing_is_run.run(outcome)
    assert outcome.failures == []


def test_network_access_is_detected(tmp_path, monkeypatch):
    def reaching(arguments):
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect_ex("nowhere")
        return 0

    monkeypatch.setattr(info, "info_main", reaching)
    outcome = Tries(1, 0, tmp_path)
    nothing_is_run.run(outcome)
    assert "socket.connect" in outcome.failures[0]
