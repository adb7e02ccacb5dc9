"""The table of commands, and the handler of errors: one line and an exit code.

A command NAME is a function ``NAME_main(arguments: list[str]) -> int | None``. Its module is imported when the command
is called, so that ``albert --help`` is fast. It parses the options without torch; torch is imported afterwards, by the
body of a command in `albert.commands` or by `load_command`, so that ``albert COMMAND --help`` is fast too.
"""

import gc
import importlib
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from albert import __version__
from albert.cli import exit_on_sigint, is_silent_rank
from albert.runtime.errors import (
    CannotCreate,
    InvalidConfiguration,
    MissingInput,
    UsageError,
    did_you_mean,
    printable,
    translate,
)


@dataclass(frozen=True)
class Command:
    """The module of a command, and its purpose in a few words."""

    module: str
    purpose: str


COMMANDS = {
    "quickstart": Command("albert.commands.quickstart", "every step on the embedded sample, in a few minutes"),
    "tokenizer": Command("albert.commands.tokenizer", "train a vocabulary, encode and decode text"),
    "prepare": Command("albert.commands.prepare", "text and a tokenizer to token shards, in parallel"),
    "pretrain": Command("albert.commands.pretrain", "masked language model and sentence order, from shards to a model"),
    "finetune": Command("albert.commands.finetune", "train a model on your table, or on a task such as SQuAD"),
    "finetune-vectors": Command("albert.commands.finetune_vectors", "train vectors of texts, from pairs or a teacher"),
    "sweep": Command("albert.commands.sweep", "fine-tune with several seeds, folds or learning rates"),
    "evaluate": Command("albert.commands.evaluate", "score a model on a task with the task's own metrics"),
    "predict": Command("albert.commands.predict", "text in, answers out"),
    "serve": Command("albert.commands.serve", "a model behind HTTP, and a page to try it in the browser"),
    "convert": Command("albert.commands.convert", "a TensorFlow checkpoint or Hugging Face model to a model directory"),
    "export": Command("albert.commands.export", "a model as one ONNX file, or for sentence-transformers"),
    "quantize": Command(
        "albert.commands.quantize",
        "a model with 8-bit matrices: half the size of float16, a quarter of float32",
    ),
    "push": Command("albert.commands.push", "a model to the Hugging Face Hub"),
    "info": Command("albert.commands.info", "describe or check a model, a corpus or this machine"),
}
"""Name -> the module that parses the options of a command in its function NAME_main."""

EXAMPLE = "Example: albert quickstart"

# Errors that every rank of one machine has: the same arguments, the same files.
_SAME_ON_ALL_RANKS = (UsageError, InvalidConfiguration, MissingInput, CannotCreate)


def overview() -> str:
    """What ``albert --help`` prints."""
    width = max(map(len, COMMANDS))
    rows = [f"  {name:<{width}}  {command.purpose}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: albert COMMAND [options]",
            "",
            *rows,
            "",
            "albert COMMAND --help explains a command, with an example.",
            "albert --version prints the version.",
            EXAMPLE,
        ]
    )


def dispatch(arguments: list[str]) -> int:
    """Run the command named by the first argument, and return its exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    name, *rest = arguments
    if name == "--version":
        print(f"albert {__version__}")
        return 0
    if name not in COMMANDS:
        raise _unknown_command(name)
    return int(main_of(name)(rest) or 0)


def _unknown_command(name: str) -> UsageError:
    """The error for a first word that is no command."""
    if name in ("train", "training"):
        return UsageError(name, "no such command", "finetune trains on a table, pretrain on plain text")
    of_option = did_you_mean(name.lstrip("-"), ("--version", "--help"))
    if name.startswith("-") and not of_option.startswith("did you mean"):
        return UsageError(name, "no such option", "write albert COMMAND [options]; albert --help lists the commands")
    of_command = did_you_mean(name, COMMANDS)
    is_option = of_option.startswith("did you mean") and not of_command.startswith("did you mean")
    return UsageError(name, "no such command", of_option if is_option else of_command)


def main_of(name: str) -> Any:
    """The function of a command that reads its arguments."""
    return getattr(load_command(COMMANDS[name].module), f"{name.replace('-', '_')}_main")


_RUNS_COMMAND: ContextVar[bool] = ContextVar("whether a command of the command line runs", default=False)


def runs_command() -> bool:
    """Whether a command of the command line runs, and not a function that was called from Python."""
    return _RUNS_COMMAND.get()


@contextmanager
def imports() -> Iterator[None]:
    """A block of imports that may take seconds: in a command no garbage is collected, and SIGINT ends the process.

    The functions of `import albert` run in the process of a caller, such as a notebook, where nothing is changed.
    """
    if not runs_command():
        yield
        return
    known = len(sys.modules)
    gc.disable()  # importing torch makes a million objects that stay; searching them for garbage takes 0.1 s
    try:
        with exit_on_sigint():  # libraries mistake KeyboardInterrupt for a failed import
            yield
    finally:
        if len(sys.modules) > known:
            gc.freeze()
        gc.enable()


def load_command(module: str) -> ModuleType:
    """Import a module of commands."""
    with imports():
        return importlib.import_module(module)


def run(arguments: list[str] | None = None, command: Callable[[list[str]], int | None] = dispatch) -> int:
    """The ``albert`` command, or a script's: every failure is one line on stderr and an exit code.

    Args:
        arguments: without the program's name; those of the process by default.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")  # a locale may lack characters of texts and tables
    outside = _RUNS_COMMAND.set(True)
    try:
        code = command(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return code or 0
    except SystemExit:
        raise
    except KeyboardInterrupt:
        if not is_silent_rank():
            _print_error("interrupted")
        return 130
    except BrokenPipeError:
        # The reader closed the pipe (`albert info | head`). 141 is the shell's code for a program ended by SIGPIPE.
        _discard_output()
        return 141
    except BaseException as error:
        failure = translate(error)
        if os.environ.get("ALBERT_DEBUG") == "1":
            traceback.print_exception(error)
        if failure is None:
            reason = f"internal error: {type(error).__name__}: {error}"
            _print_error(f"{reason}; run again with ALBERT_DEBUG=1 for the traceback")
            return 1
        if not (is_silent_rank() and isinstance(failure, _SAME_ON_ALL_RANKS)):
            _print_error(str(failure))
        if isinstance(error, OSError):  # perhaps standard output is on a full disk
            _discard_output()
        return failure.exit_code
    finally:
        _RUNS_COMMAND.reset(outside)
        if arguments is None:
            gc.freeze()  # the process ends; a search for garbage would take 0.2 s


def one_line(message: str, limit: int = 500) -> str:
    """The message with control characters escaped; a long one is cut in the middle, because it ends with the remedy."""
    safe = printable(message)
    if len(safe) <= limit:
        return safe
    tail = limit // 2
    return safe[: limit - tail - 3] + " … " + safe[-tail:]


def _discard_output() -> None:
    """Redirect standard output to nowhere if it fails: the interpreter's flush at exit would fail with a traceback."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(message: str) -> None:
    rank = os.environ.get("RANK", "0")
    where = f"[rank {rank}] " if rank != "0" else ""
    # The message may contain a surrogate (a file name that is not UTF-8).
    sys.stderr.write(one_line(f"albert: error: {where}{message}").encode("utf-8", "replace").decode("utf-8") + "\n")
    sys.stderr.flush()
