"""`--help` shows the usual options on one page, `--help-all` all options."""

import dataclasses
import re
import subprocess
import sys
import typing

import pytest

from albert.api.options import options_of
from albert.cli.main import run
from albert.cli.options import COMMON, all_commands, metavar

COMMANDS = {
    "quickstart": "albert quickstart [OPTIONS]",
    "tokenizer train": "[OPTIONS] CORPUS... --output PATH",
    "tokenizer encode": "[OPTIONS] [TEXT...] --tokenizer PATH",
    "tokenizer decode": "[OPTIONS] [ID...] --tokenizer PATH",
    "tokenizer convert": "[OPTIONS] SOURCE --output PATH",
    "prepare": "[OPTIONS] CORPUS... --tokenizer PATH --output PATH",
    "pretrain": "albert pretrain RECIPE [OPTIONS] --data PATH... --output PATH",
    "pretrain base": "albert pretrain base",
    "finetune": "[OPTIONS] [TASK] --model MODEL",
    "sweep": "[OPTIONS] [TASK] --model MODEL --output PATH",
    "evaluate": "[OPTIONS] [TASK] --model MODEL...",
    "predict": "[OPTIONS] MODEL",
    "serve": "[OPTIONS] MODEL",
    "convert": "[OPTIONS] SOURCE --output PATH",
    "export onnx": "[OPTIONS] MODEL --output PATH",
    "export sentence-transformers": "[OPTIONS] MODEL --output PATH",
    "quantize": "[OPTIONS] MODEL --output PATH",
    "push": "[OPTIONS] MODEL REPOSITORY",
    "info": "[WHAT]",
}


def shown(command, flag, capsys):
    """The output of `--help` or `--help-all`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        run([*command.split(), flag])
    assert end.value.code == 0
    return capsys.readouterr().out


def shape_of(command):
    """The dataclass of a command's options."""
    return all_commands()["pretrain" if command == "pretrain base" else command].shape


def every_option(shape, prefix=""):
    """the full names of all options, computed independently of the help."""
    for field in dataclasses.fields(shape):
        hint = typing.get_type_hints(shape, include_extras=True)[field.name]
        markers = getattr(hint, "__metadata__", ())
        inner = typing.get_args(hint)[0] if markers else hint
        name = next((marker.name for marker in markers if getattr(marker, "name", None) is not None), field.name)
        if dataclasses.is_dataclass(inner):
            yield from every_option(inner, f"{prefix}{name}." if name else prefix)
        elif not any(marker.positional for marker in markers):
            yield f"--{prefix}{name}".replace("_", "-")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_at_most_60_lines_that_fit_the_terminal(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(command, "--help", capsys)
    assert COMMANDS[command] in " ".join(text.split("\n\n")[0].split())
    assert len(text.splitlines()) <= 60
    assert text.count("Example") == 1 and "\n  albert " + command.split()[0] in text
    everything = shown(command, "--help-all", capsys)
    for page in (text, everything):
        assert not re.search(r"None|default: *\)|\x1b|MISSING|dataclass", page)
        too_wide = [line for line in page.splitlines() if len(line) > 80 and not line.lstrip().startswith("albert ")]
        assert not [line for line in too_wide if "torchrun" not in line]
        named = [line for line in page.splitlines() if re.match(r" +--", line)]
        assert not [line for line in named if line.startswith("   -") or re.search(r",  |\w-$", line)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_all_lists_every_option_and_help_the_usual_ones(command, capsys):
    everything = re.findall(r"--[a-z][\w.-]*", shown(command, "--help-all", capsys))
    assert set(every_option(shape_of(command))) <= set(everything)
    text = shown(command, "--help", capsys)
    common = COMMON.get(" ".join(["albert", *command.split()]), "").split()
    for option in common:
        assert re.search(rf"^  (--(\[no-\])?{re.escape(option)}\b|\[?{option.upper()}\b)", text, re.MULTILINE), option
    assert len(common) <= 24
    assert [option.name for option in options_of(shape_of(command)) if not option.text] == []


def test_lists_of_commands_have_at_most_60_lines(capsys):
    for words in (["--help"], ["tokenizer", "--help"], ["export", "--help"]):
        assert run(words) == 0
        assert len(capsys.readouterr().out.splitlines()) <= 60


DIFFERENT_VALUES = """
    split labels precision csv sentences text init optimizer words objective pooling columns options recipe"""
"""Options whose values depend on the command: the precisions of a command, the poolings of sentence-transformers."""


def test_an_option_of_several_commands_has_one_help_text_and_one_type_of_value():
    uses = {}
    for command in COMMANDS:
        for option in options_of(shape_of(command)):
            name = "" if option.marks.positional else option.names[0]
            uses.setdefault(name, []).append((command, metavar(option), option.text))
    for name in ("--revision", "--device"):
        assert len({(metavar, doc) for command, metavar, doc in uses[name] if "pretrain" not in command}) == 1, name
    types = {name: {metavar.removesuffix("...") for _, metavar, _ in each} for name, each in uses.items() if name}
    assert {name for name in types if len(types[name]) > 1} <= {f"--{name}" for name in DIFFERENT_VALUES.split()}


def test_help_shows_the_defaults_of_the_named_recipe(capsys):
    for recipe, batch in (("small", 64), ("base", 4096)):
        page = " ".join(shown(f"pretrain {recipe}", "--help", capsys).split())
        assert f"Sequences per update, over all processes. (default: {batch})" in page


HEAVY = ("torch", "matplotlib", "tensorboard", "scipy", "sklearn", "pandas")
LOADED = f"""
import contextlib, io, sys
from albert.cli.main import run
for command in {list(COMMANDS)}:
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown):
            run([*command.split(), "--help"])
    except SystemExit as end:
        loaded = [name for name in {HEAVY} if name in sys.modules]
        if end.code or loaded or not shown.getvalue():
            print(command, end.code, *loaded)
    else:
        print(command, "did not end")
"""


def test_help_does_not_import_slow_libraries():
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
