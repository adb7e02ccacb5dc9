"""`--help` is one page: all options, and the keys that are used most."""

import re
import subprocess
import sys

import pytest

from albert.cli.command_line import all_commands
from albert.cli.help_page import USUAL_KEYS
from albert.cli.main import run
from albert.cli.parsing import metavar

COMMANDS = {
    "quickstart": "albert quickstart [OPTIONS]",
    "tokenizer train": "CORPUS... --output PATH [OPTIONS]",
    "tokenizer encode": "[TEXT...] --tokenizer PATH [OPTIONS]",
    "tokenizer decode": "[ID...] --tokenizer PATH [OPTIONS]",
    "tokenizer convert": "SOURCE --output PATH [OPTIONS]",
    "prepare": "CORPUS... --tokenizer PATH --output PATH [OPTIONS]",
    "pretrain": "albert pretrain RECIPE --data PATH... --output PATH [OPTIONS] [KEY=VALUE...]",
    "pretrain base": "albert pretrain base",
    "finetune": "[TASK] --model MODEL [OPTIONS] [KEY=VALUE...]",
    "sweep": "[TASK] --model MODEL --output PATH [OPTIONS] [KEY=VALUE...]",
    "evaluate": "[TASK] --model MODEL... [OPTIONS]",
    "predict": "MODEL [OPTIONS]",
    "serve": "MODEL [OPTIONS]",
    "convert": "SOURCE --output PATH [OPTIONS]",
    "export onnx": "MODEL --output PATH [OPTIONS]",
    "export sentence-transformers": "MODEL --output PATH [OPTIONS]",
    "quantize": "MODEL --output PATH [OPTIONS]",
    "push": "MODEL REPOSITORY [OPTIONS]",
    "info": "[WHAT]",
}


def shown(command, capsys):
    """The output of `--help`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        run([*command.split(), "--help"])
    assert end.value.code == 0
    return capsys.readouterr().out


def options_of(command):
    """A command's options and keys; `pretrain` is called with a recipe."""
    options = all_commands()["pretrain" if command == "pretrain base" else command].options
    return [option for option in options if not (option.is_positional and command.startswith("pretrain"))]


LONGEST = {"evaluate": 146, "sweep": 132, "finetune": 122, "pretrain": 103, "pretrain base": 103, "predict": 106}
"""Lines of the longest pages; others have at most 66."""


def test_the_first_example_of_finetune_is_a_table_of_ones_own(capsys):
    text = " ".join(shown("finetune", capsys).split())
    first = text.partition("albert finetune ")[2]
    examples = re.findall(r"albert finetune (?:--train \S+|[a-z0-9.-]+ --data)", text)
    assert examples and examples[0].startswith("albert finetune --train ") and first


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_a_terminal_of_80_columns(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    text = shown(command, capsys)
    assert COMMANDS[command] in " ".join(text.split("\n\n")[0].split())
    assert len(text.splitlines()) <= LONGEST.get(command, 66)
    assert text.count("Example") == 1 and "\n  albert " + command.split()[0] in text
    assert not re.search(r"None|default: *\)|\x1b|MISSING|dataclass", text)
    too_wide = [line for line in text.splitlines() if len(line) > 80 and not line.lstrip().startswith("albert ")]
    assert not [line for line in too_wide if "torchrun" not in line]
    named = [line for line in text.splitlines() if re.match(r" +--", line)]
    assert not [line for line in named if line.startswith("   -") or re.search(r",  |\w-$", line)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_every_option_and_names_every_key(command, capsys):
    text = shown(command, capsys)
    for option in options_of(command):
        assert option.text, option.name
        if option.is_key:
            assert re.search(rf"(^  |[ ,]|^){re.escape(option.name)}\b", text, re.MULTILINE), option.name
        elif not option.is_positional:
            assert re.search(rf"^  {option.typed}\b", text, re.MULTILINE), option.name
    for name in USUAL_KEYS.get(" ".join(["albert", *command.split()]), "").split():
        assert re.search(rf"^  {re.escape(name)}=", text, re.MULTILINE), name


def test_lists_of_commands_have_at_most_60_lines(capsys):
    for words in (["--help"], ["tokenizer", "--help"], ["export", "--help"]):
        assert run(words) == 0
        assert len(capsys.readouterr().out.splitlines()) <= 60


DIFFERENT_VALUES = """
    split labels precision csv sentences text init optimizer words objective pooling columns options recipe dev pair"""
"""Options whose values depend on the command: the precisions of a command, the poolings of sentence-transformers."""


def test_an_option_of_several_commands_has_one_help_text_and_one_type_of_value():
    uses = {}
    for command in COMMANDS:
        for option in options_of(command):
            name = "" if option.is_positional else option.typed
            uses.setdefault(name, []).append((command, metavar(option), option.text))
    for name in ("--device",):
        assert len({(metavar, doc) for command, metavar, doc in uses[name] if "pretrain" not in command}) == 1, name
    different = {name for each in DIFFERENT_VALUES.split() for name in (each, f"--{each}")}
    types = {name: {metavar.removesuffix("...") for _, metavar, _ in each} for name, each in uses.items() if name}
    assert {name for name in types if len(types[name]) > 1} <= different


def test_help_shows_the_defaults_of_the_named_recipe(capsys):
    for recipe, batch in (("small", 64), ("base", 4096)):
        page = " ".join(shown(f"pretrain {recipe}", capsys).split())
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
