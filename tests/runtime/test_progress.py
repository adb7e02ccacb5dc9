"""Progress as plain lines, on a terminal and in a notebook."""

import io
import re
import sys
import time
import types

import pytest

from albert.runtime import progress as module
from albert.runtime.progress import progress


@pytest.fixture
def clock(monkeypatch):
    """A clock that tests advance by its attribute `now`."""
    clock = types.SimpleNamespace(now=100.0, monotonic=lambda: clock.now)
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_plain_line_has_amount_rate_and_time_left(clock, capsys):
    with progress("Encoding", total=1000, unit="documents") as bar:
        clock.now += 20
        bar.note("loss 2.1")
        bar.advance(100)
        assert capsys.readouterr().err == "Encoding: 100/1,000 documents, 5/s, 3:00 left  loss 2.1\n"
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("options", "seconds", "amount", "line"),
    [
        ({"total": None}, 20, 3, "Work: 3 steps, 0.15/s"),
        ({"total": 1000, "done": 900}, 20, 10, "Work: 910/1,000 steps, 0.5/s, 3:00 left"),  # speed since a resume
        ({"total": 125_000}, 20, 10, "Work: 10/125,000 steps, 0.5/s, 69:26:20 left"),
        ({"total": 10}, 0, 10, None),  # too short
        ({"total": 10, "quiet": True}, 100, 10, None),
    ],
)
def test_plain_line(clock, capsys, options, seconds, amount, line):
    with progress("Work", unit="steps", **options) as bar:
        clock.now += seconds
        bar.advance(amount)
    assert capsys.readouterr().err.splitlines()[:1] == ([] if line is None else [line])


def test_plain_lines_are_printed_every_15_seconds(clock, capsys):
    with progress("Encoding", total=100, unit="documents") as bar:
        for _ in range(100):
            clock.now += 1
            bar.advance()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 100 // 15 + 1
    assert lines[-1] == "Encoding: 100/100 documents, 1/s"


def test_last_amount_is_printed_when_the_block_fails(clock, capsys):
    with pytest.raises(KeyError), progress("Encoding", total=10, unit="documents") as bar:
        clock.now += 5
        bar.advance(4)
        raise KeyError
    assert capsys.readouterr().err == "Encoding: 4/10 documents, 0.8/s, 0:08 left\n"


@pytest.fixture
def terminal(monkeypatch):
    """Replaces standard error by a terminal that records its output."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

        def wait_for(self, pattern: str) -> str:
            deadline = time.monotonic() + 10
            while not (match := re.search(pattern, re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.getvalue()))):
                assert time.monotonic() < deadline, self.getvalue()
                time.sleep(0.01)
            return match[0]

    def make() -> Terminal:
        monkeypatch.setattr(sys, "stderr", Terminal())
        for name, value in {"TERM": "xterm", "COLUMNS": "120", "LINES": "25"}.items():
            monkeypatch.setenv(name, value)
        return sys.stderr

    return make


def test_terminal_shows_a_bar_with_rate_and_note(terminal, monkeypatch):
    monkeypatch.setattr(module, "APPEARS_AFTER_SECONDS", 0)
    screen = terminal()
    with progress("Pre-training", total=20, unit="steps", done=10) as bar:
        bar.advance(5)
        bar.note("loss 2.1")
        screen.wait_for(r"Pre-training .*15/20 steps [\d.,]+(e\+\d+)?/s .*loss 2\.1")


def test_nested_bar_disappears_when_it_is_done(terminal, monkeypatch):
    monkeypatch.setattr(module, "APPEARS_AFTER_SECONDS", 0)
    screen = terminal()
    with progress("Pre-training", total=20, unit="steps") as outer:
        with progress("Evaluating", total=5, unit="batches") as inner:
            inner.advance(2)
            screen.wait_for(r"Evaluating .*2/5 batches")
        outer.advance(7)
        screen.wait_for(r"Pre-training .*7/20 steps")
    last = screen.getvalue().rsplit("Pre-training", 1)[1]
    assert "Evaluating" not in last


def test_terminal_shows_no_bar_for_short_work(terminal):
    screen = terminal()
    with progress("Encoding", total=10, unit="documents") as bar:
        bar.advance(10)
    assert "Encoding" not in screen.getvalue()


def test_notebook_bar_is_updated_in_place(clock, capsys, monkeypatch):
    """IPython's `display` of a bundle returns a handle, whose `update` takes another bundle."""
    shown: list[dict[str, str]] = []

    def display(bundle, raw, display_id=None):
        shown.append(bundle)
        return types.SimpleNamespace(update=display)

    shell = types.SimpleNamespace(kernel=object())
    ipython = types.SimpleNamespace(get_ipython=lambda: shell, display=types.SimpleNamespace(display=display))
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    with progress("Encoding", total=10, unit="documents") as bar:
        for _ in range(10):
            clock.now += 1
            bar.advance()
    assert len(shown) == 11
    assert shown[4]["text/plain"] == "Encoding: 5/10 documents, 1/s, 0:05 left"
    assert shown[4]["text/html"].startswith('<progress value="0.5000"></progress>')
    assert capsys.readouterr().err == ""
    del shell.kernel  # IPython in a terminal
    with progress("Encoding", total=1, unit="documents") as bar:
        clock.now += 20
        bar.advance()
    assert "Encoding: 1/1" in capsys.readouterr().err
