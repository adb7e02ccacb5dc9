"""The command table and the error boundary: one line and an exit code for whatever goes wrong.

A command NAME is a function ``NAME_main(arguments: list[str]) -> int | None``. Its module is imported when it is asked
for and not before, so that ``albert --help`` answers at once. It reads the options without torch and then calls
`load_command` for the module that does the work, so that ``albert COMMAND --help`` answers soon too.
"""

import gc
import importlib
import os
import sys
import traceback
from dataclasses import dataclass
from types import ModuleType

from albert import __version__
from albert.cli import follows_another_rank, interrupted_at_once
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
    """The module where a command lives, and what it is for."""

    module: str
    purpose: str


COMMANDS = {
    "quickstart": Command("albert.cli.commands", "every step on the embedded sample, in a few minutes"),
    "tokenizer": Command("albert.cli.data", "train a vocabulary, see what it makes of a text"),
    "prepare": Command("albert.cli.data", "text and a tokenizer to token shards, in parallel"),
    "merge": Command("albert.cli.data", "prepared corpora become one"),
    "show": Command("albert.cli.training", "what a prepared corpus becomes in training: samples, masks, counts"),
    "pretrain": Command("albert.cli.training", "masked language model and sentence order, from shards to a model"),
    "plot": Command("albert.cli.data", "the curves of runs side by side, as a picture and a table"),
    "analyze": Command("albert.cli.commands", "what each layer does to what comes into it, as a picture (Figure 1)"),
    "finetune": Command("albert.cli.training", "train a model on GLUE, SQuAD or your own table"),
    "evaluate": Command("albert.cli.training", "score a model on a task with the task's own metrics"),
    "predict": Command("albert.cli.commands", "text in, answers out"),
    "serve": Command("albert.cli.commands", "a model behind HTTP, and a page to try it in the browser"),
    "convert": Command("albert.cli.commands", "a TensorFlow checkpoint or a Hugging Face model to a model directory"),
    "export": Command("albert.cli.commands", "a model as one ONNX file, or for sentence-transformers"),
    "quantize": Command("albert.cli.commands", "a model with 8-bit integers for matrices, a quarter of the size"),
    "push": Command("albert.cli.training", "a model to the Hugging Face Hub"),
    "tables": Command("albert.cli.training", "the paper's tables and figures, run again, ours beside theirs"),
    "info": Command("albert.cli.commands", "what a model, a dataset or this machine is"),
    "verify": Command("albert.cli.data", "every file checked against its manifest"),
    "completion": Command("albert.cli.options", "completion of commands and options in bash, zsh or fish"),
}
"""Name -> the module that reads the options of a command; its function is called NAME_main."""

EXAMPLE = "Example: albert quickstart"

# Errors that every rank of one machine meets alike: the same arguments, the same files.
_ALIKE_ON_ALL_RANKS = (UsageError, InvalidConfiguration, MissingInput, CannotCreate)


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
            "albert COMMAND --help shows the usual options of a command, --help-all all of them.",
            "albert --version prints the version.",
            EXAMPLE,
        ]
    )


def dispatch(arguments: list[str]) -> int:
    """Run the command that the first argument names; returns its exit code.

    Raises:
        UsageError: the command is unknown.
    """
    if not arguments or arguments[0] in ("-h", "--help", "--help-all", "help"):
        print(overview())
        return 0
    name, *rest = arguments
    if name == "--version":
        print(f"albert {__version__}")
        return 0
    if name not in COMMANDS:
        raise UsageError(name, "no such command", did_you_mean(name, COMMANDS))
    code = getattr(load_command(COMMANDS[name].module), f"{name}_main")(rest)
    return int(code or 0)


def load_command(module: str) -> ModuleType:
    """Import a module of commands: what reads the options, and when they are read, what does the work."""
    is_new = module not in sys.modules
    gc.disable()  # imports make a million objects that stay; searching them for garbage takes 0.1 s with torch
    try:
        with interrupted_at_once():  # libraries take an exception for a failed import
            return importlib.import_module(module)
    finally:
        if is_new:
            gc.freeze()
        gc.enable()


def run(arguments: list[str] | None = None) -> int:
    """The ``albert`` command: `dispatch`, with every failure turned into one line on stderr and an exit code.

    Args:
        arguments: without the program's name; None takes the process's own.
    """
    try:
        code = dispatch(sys.argv[1:] if arguments is None else arguments)
        sys.stdout.flush()
        return code
    except SystemExit:
        raise
    except KeyboardInterrupt:
        if not follows_another_rank():
            _say("interrupted")
        return 130
    except BrokenPipeError:
        # The reader went away (`albert info | head`). 141 is what the shell shows for a program that SIGPIPE ended.
        _drop_what_cannot_be_printed()
        return 141
    except BaseException as error:
        known = translate(error)
        if os.environ.get("ALBERT_DEBUG") == "1":
            traceback.print_exception(error)
        if known is None:
            reason = f"internal error: {type(error).__name__}: {error}"
            _say(f"{reason}; run again with ALBERT_DEBUG=1 for the traceback")
            return 1
        if not (follows_another_rank() and isinstance(known, _ALIKE_ON_ALL_RANKS)):
            _say(str(known))
        if isinstance(error, OSError):  # of standard output perhaps, as on a full disk
            _drop_what_cannot_be_printed()
        return known.exit_code
    finally:
        if arguments is None:
            gc.freeze()  # the process ends, and need not look for garbage first; that would take 0.2 s


def one_line(message: str, limit: int = 500) -> str:
    """The message with control characters escaped, shortened in its middle when it is longer than the limit.

    The end is kept because the remedy stands there.
    """
    safe = printable(message)
    if len(safe) <= limit:
        return safe
    tail = limit // 2
    return safe[: limit - tail - 3] + " … " + safe[-tail:]


def _drop_what_cannot_be_printed() -> None:
    """The interpreter's own flush at exit would fail again, with a traceback and a code of its own."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str) -> None:
    rank = os.environ.get("RANK", "0")
    where = f"[rank {rank}] " if rank != "0" else ""
    # The message may hold half of a character (a file name that is not UTF-8): never fail while failing.
    sys.stderr.write(one_line(f"albert: error: {where}{message}").encode("utf-8", "replace").decode("utf-8") + "\n")
    sys.stderr.flush()
