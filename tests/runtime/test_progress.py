"""Progress as plain lines, on a terminal and in a notebook."""

import io
import re
import sys
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


@pytest.mark.parametrize(
    ("options", "seconds", "amount", "line"),
    [
        ({"total": 1000}, 20, 100, "Work: 100/1,000 steps, 5/s, 0:03:00 left  loss 2.1"),
        ({"total": None}, 20, 3, "Work: 3 steps, 0.15/s  loss 2.1"),
        ({"total": None}, 20, 1, "Work: 1 step, 0.05/s  loss 2.1"),
        (
            {"total": 1000, "done": 900},
            20,
            10,
            "Work: 910/1,000 steps, 0.5/s, 0:03:00 left  loss 2.1",
        ),  # speed since a resume
        ({"total": 125_000}, 20, 10, "Work: 10/125,000 steps, 0.5/s, 2 days, 21:26:20 left  loss 2.1"),
        ({"total": 10}, 0, 10, None),  # too short
        ({"total": 10, "quiet": True}, 100, 10, None),
    ],
)
def test_plain_line(clock, capsys, options, seconds, amount, line):
    with progress("Work", unit="steps", **options) as bar:
        clock.now += seconds
        bar.note("loss 2.1")
        bar.advance(amount)
    printed = capsys.readouterr()
    assert printed.err.splitlines()[:1] == ([] if line is None else [line]) and printed.out == ""


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
    assert capsys.readouterr().err == "Encoding: 4/10 documents, 0.8/s, 0:00:08 left\n"


def replace_by_terminal(monkeypatch):
    """Replace standard error; returns what it shows, without control sequences."""
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", terminal)
    for name, value in {"TERM": "xterm", "COLUMNS": "120", "LINES": "25"}.items():
        monkeypatch.setenv(name, value)
    return lambda: re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", terminal.getvalue())


def test_terminal_shows_bars_and_removes_nested_ones(clock, monkeypatch):
    screen = replace_by_terminal(monkeypatch)
    with progress("Pre-training", total=20, unit="steps", done=10) as outer:
        clock.now += 2
        outer.advance(5)
        assert re.search("━ Pre-training: 15/20 steps, 2.5/s, 0:00:02 left", screen())
        with progress("Evaluating [bold]", total=5, unit="batches") as inner:
            clock.now += 1
            inner.advance(2)
            assert "━ Evaluating [bold]: 2/5 batches" in screen()
        outer.note("loss 2.1")
    last = screen().rsplit("Evaluating", 1)[1]
    assert "Pre-training: 15/20 steps, 1.67/s, 0:00:03 left  loss 2.1" in last


def test_terminal_shows_no_bar_for_short_work(clock, monkeypatch):
    screen = replace_by_terminal(monkeypatch)
    with progress("Encoding", total=10, unit="documents") as bar:
        bar.advance(10)
    assert "Encoding" not in screen()


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
    assert shown[4]["text/plain"] == "Encoding: 5/10 documents, 1/s, 0:00:05 left"
    assert shown[4]["text/html"].startswith('<progress value="0.5000"></progress>')
    assert capsys.readouterr().err == ""
    del shell.kernel  # IPython in a terminal
    with progress("Encoding", total=1, unit="documents") as bar:
        clock.now += 20
        bar.advance()
    assert "Encoding: 1/1" in capsys.readouterr().err
