"""What `--help` shows: names for what is given by its place, no None, paragraphs that fit the terminal."""

import re
import subprocess
import sys

import pytest

from albert.cli.main import run

COMMANDS = {
    "quickstart": "--output PATH",
    "tokenizer train": "[OPTIONS] CORPUS...",
    "tokenizer encode": "albert tokenizer encode",
    "tokenizer decode": "albert tokenizer decode",
    "tokenizer convert": "albert tokenizer convert",
    "prepare": "[OPTIONS] CORPUS...",
    "merge": "CORPUS... --output PATH",
    "show": "albert show",
    "plot": "RUN...",
    "analyze layers": "MODEL...",
    "pretrain": "albert pretrain RECIPE",
    "pretrain base": "albert pretrain base",
    "finetune": "[OPTIONS] [TASK]",
    "evaluate": "[OPTIONS] [TASK]",
    "predict": "[OPTIONS] MODEL",
    "serve": "[OPTIONS] MODEL",
    "convert": "[OPTIONS] SOURCE",
    "export onnx": "[OPTIONS] MODEL",
    "export sentence-transformers": "[OPTIONS] MODEL",
    "quantize": "MODEL --output PATH",
    "tables list": "albert tables list",
    "tables plan": "TABLE...",
    "tables run": "TABLE...",
    "tables show": "TABLE...",
    "info": "[WHAT]",
    "verify": "PATH...",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_terminal_and_speaks_of_words_not_types(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as end:
        run([*command.split(), "--help"])
    assert end.value.code == 0
    shown = capsys.readouterr().out
    assert COMMANDS[command] in shown.split("\n\n")[0]
    assert "Example" in shown
    assert not re.search(r"\{None\}|default: *\)|default:[\s│]*None\)|\x1b", shown)
    too_wide = [line for line in shown.splitlines() if len(line) > 80 and not line.lstrip().startswith("albert ")]
    assert not [line for line in too_wide if "torchrun" not in line]


def test_help_shows_the_defaults_of_the_recipe_that_is_named(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    for recipe, batch in (("small", 32), ("base", 4096)):
        with pytest.raises(SystemExit):
            run(["pretrain", recipe, "--help"])
        assert f"Sequences per update, over all processes. (default: {batch})" in capsys.readouterr().out


HEAVY = ("torch", "matplotlib", "tensorboard", "scipy", "sklearn", "pandas")
LOADED = f"""
import os, sys
from albert.cli import options
from albert.cli.main import run
for command in {list(COMMANDS)}:
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        try:
            run([*command.split(), "--help"])
        except SystemExit as end:
            loaded = [name for name in {HEAVY} if name in sys.modules]
            if end.code or loaded:
                print(command, end.code, *loaded, file=sys.stderr, flush=True)
            os._exit(7)
        os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 7:
        print(command, "did not show its help", file=sys.stderr)
"""


def test_help_loads_no_library_that_only_the_work_needs():
    """Each of them takes a second or more of processor time."""
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
