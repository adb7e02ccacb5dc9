"""`albert serve` where it cannot begin: one line that says why, and the exit code of its kind."""

import socket

import pytest

from albert.cli.main import run

CASES = {
    "a model that is not there": (["./no-such-model"], 66, "no-such-model"),
    "a port that does not exist": (["m", "--port", "70000"], 78, "port 70000"),
    "a limit of nothing": (["m", "--limits.queue-texts", "0"], 78, "limits.queue_texts 0"),
    "requests larger than the queue": (["m", "--limits.texts", "300"], 78, "would never find room"),
    "no time to end": (["m", "--drain-timeout", "0"], 78, "above zero"),
    "an address of somebody else": (["m", "--host", "192.0.2.1"], 69, "192.0.2.1:8000"),
    "a depth that is no number": (["m", "--depth", "deep"], 2, "--depth"),
}


@pytest.mark.parametrize("case", CASES)
def test_it_says_why(case, capsys):
    arguments, code, why = CASES[case]
    assert run(["serve", *arguments, *([] if "--port" in arguments or code != 66 else ["--port", "0"])]) == code
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("albert: error: ") and why in last


def test_a_port_in_use_is_said(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert run(["serve", "m", "--port", str(taken.getsockname()[1])]) == 69
    assert "in use" in capsys.readouterr().err
