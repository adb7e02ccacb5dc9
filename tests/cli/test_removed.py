"""A user of a removed command, option or value gets one line with what to do instead, at both doors."""

import pytest

import albert
from albert.api.option_names import canonical_name
from albert.api.options import options_of
from albert.cli.main import COMMANDS, run
from albert.cli.options import Subcommand, all_commands
from albert.runtime import removed


@pytest.fixture
def removed_things(monkeypatch):
    monkeypatch.setitem(removed.COMMANDS, "knead", "albert prepare does it")
    monkeypatch.setitem(removed.OPTIONS, "prepare", removed.OPTIONS.get("prepare", {}) | {"--knead": "leave it out"})
    monkeypatch.setitem(removed.VALUES, "sourdough", "take processes")


def test_the_command_line_says_what_to_do_instead(removed_things, capsys):
    prepare = ["prepare", "text.txt", "--tokenizer", "tokenizer", "--output", "corpus"]
    for arguments, remedy in (
        (["knead", "x", "--output", "y"], "albert prepare does it"),
        ([*prepare, "--knead"], "leave it out"),
        ([*prepare, "--no-knead"], "leave it out"),
        ([*prepare, "--engine", "sourdough"], "take processes"),
    ):
        assert run(arguments) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert remedy in error


def test_python_says_what_to_do_instead(removed_things, refused):
    files = {"tokenizer": "tokenizer", "output": "corpus"}
    refused(lambda: albert.prepare("text.txt", **files, knead=True), 2, "albert.prepare: knead", "leave it out")
    refused(lambda: albert.prepare("text.txt", **files, engine="sourdough"), 78, "take processes")


def test_what_is_removed_is_known_to_no_command():
    commands = all_commands()
    assert not removed.COMMANDS.keys() & COMMANDS.keys()
    for name, options in removed.OPTIONS.items():
        command = commands[name]
        assert isinstance(command, Subcommand)
        known = {each for option in options_of(command.shape) for each in option.names}
        assert [option for option in options if canonical_name(option, known)] == []


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        ("merge a b --output c", "albert pretrain --data A B"),
        ("prepare text --tokenizer t --output c --append", "albert pretrain --data OLD NEW"),
        ("prepare text --tokenizer t --output c --plan", "prepare a part of the text first"),
        ("pretrain small --data c --output r --objective sop-reference", "sop is the sentence order of the paper"),
        ("tokenizer convert a --output b --preprocessing reference", "as transformers reads it"),
        ("show c --objective sop-reference", "sop is the sentence order of the paper"),
        ("pretrain small --data c --output r --spike-deviations 20", "--on-divergence"),
    ],
)
def test_removed_on_the_command_line(command, instead, capsys):
    assert run(command.split()) == 2
    assert instead in capsys.readouterr().err


def test_removed_in_python(refused):
    files = {"tokenizer": "tokenizer", "output": "corpus"}
    refused(lambda: albert.prepare("text.txt", **files, append=True), 2, "append", "albert pretrain")
    run_of = {"data": "corpus", "output": "run"}
    refused(lambda: albert.pretrain("small", **run_of, spike_deviations=20.0), 2, "--on-divergence")
    refused(lambda: albert.pretrain({"spike_deviations": 20.0}, **run_of), 78, "spike_deviations")
