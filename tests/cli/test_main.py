"""The table of commands, and the handler of errors."""

import errno
import gc
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert import __version__
from albert.cli import main as table
from albert.cli.main import run
from albert.runtime import errors
from albert.runtime.errors import AlbertError, MissingInput, TryAgain


def python(code: str, *arguments: str, without: tuple[str, ...] = (), **environment: str):
    """Run code in a new process."""
    env = {name: value for name, value in os.environ.items() if name not in without} | environment
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60)


def module_with(main) -> ModuleType:
    """A module in which every command is this function."""
    module = ModuleType("command")
    for name in ("fail_main", *(f"{name}_main" for name in table.COMMANDS)):
        vars(module)[name] = main
    return module


@pytest.fixture
def failing_command(monkeypatch):
    """Makes a command ``fail`` that raises an error."""

    def install(error: BaseException) -> None:
        def command(arguments: list[str]) -> int:
            raise error

        monkeypatch.setattr(table.importlib, "import_module", lambda name: module_with(command))
        monkeypatch.setitem(table.COMMANDS, "fail", table.Command("albert.cli.fail", "raises"))

    return install


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command_with_its_purpose(arguments, capsys):
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    for name, command in table.COMMANDS.items():
        assert f"  {name} " in printed and command.purpose in printed


def test_version_is_the_package_version(capsys):
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"albert {__version__}\n"


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ("train", "finetune trains on a table, pretrain on plain text"),
        ("pretrian", "did you mean 'pretrain'?"),
        ("conversion", "did you mean 'convert'?"),
        ("version", "did you mean '--version'?"),
        ("--versoin", "did you mean '--version'?"),
        ("--hlep", "did you mean '--help'?"),
        ("--model", "write albert COMMAND [options]"),
    ],
)
def test_an_unknown_first_word_is_refused_with_what_to_write(typed, remedy, refused):
    refused([typed], 2, typed, remedy)


@pytest.mark.parametrize("argument", ["--help", "--version", "pretrian"])
def test_help_imports_nothing_heavy(argument):
    heavy = "('torch', 'numpy', 'scipy', 'sklearn', 'sentencepiece', 'transformers', 'rich')"
    done = python(
        f"import sys; from albert.cli.main import run; run([{argument!r}]); "
        f"print('LOADED', [name for name in {heavy} if name in sys.modules])"
    )
    assert done.stdout.endswith("LOADED []\n"), done.stderr


@pytest.mark.parametrize(("result", "code"), [(4, 4), (None, 0)])
def test_a_command_gets_the_arguments_after_its_name_and_returns_the_exit_code(result, code, monkeypatch):
    calls = []
    module = module_with(lambda arguments: calls.append(arguments) or result)
    monkeypatch.setattr(table.importlib, "import_module", lambda name: module)
    assert run(["info", "--model", "m"]) == code
    assert calls == [["--model", "m"]]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("UsageError", 2),
        ("Diverged", 3),
        ("CheckFailed", 4),
        ("DamagedData", 65),
        ("MissingInput", 66),
        ("Unavailable", 69),
        ("OutOfResources", 71),
        ("CannotCreate", 73),
        ("WriteFailed", 74),
        ("TryAgain", 75),
        ("InvalidConfiguration", 78),
    ],
)
def test_every_error_for_users_is_one_line_and_its_own_exit_code(kind, code, failing_command, capsys):
    failing_command(getattr(errors, kind)("corpus.txt", "is empty", "give a file with text"))
    assert run(["fail"]) == code
    output = capsys.readouterr()
    assert output.err == "albert: error: corpus.txt: is empty; give a file with text\n" and output.out == ""


class OutOfMemoryError(RuntimeError):
    """Has the name of torch's error."""


class SafetensorError(Exception):
    """Has the name of safetensors' error."""


class PanicException(BaseException):
    """Has the name and base class of panics in Rust libraries."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (MemoryError(), 71),
        (OutOfMemoryError("CUDA out of memory"), 71),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"), 71),
        (PanicException("index out of bounds"), 65),
        (OSError(errno.ENOSPC, "No space left on device", "out/model.safetensors"), 74),
        (OSError(errno.EIO, "Input/output error"), 74),
        (SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)"), 74),
        (SafetensorError("Error while deserializing header: header too large"), 1),
        (OSError(errno.EMFILE, "Too many open files", "shard"), 71),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "corpus.txt"), 66),
        (ZeroDivisionError("division by zero"), 1),
        (RecursionError("too deep"), 1),
    ],
)
def test_failures_of_libraries_are_translated_at_the_boundary(error, code, failing_command, capsys):
    failing_command(error)
    assert run(["fail"]) == code
    stderr = capsys.readouterr().err
    assert stderr.startswith("albert: error: ") and stderr.count("\n") == 1 and "Traceback" not in stderr


def test_an_internal_error_explains_how_to_see_the_traceback(failing_command, capsys, monkeypatch):
    failing_command(ZeroDivisionError("division by zero"))
    assert run(["fail"]) == 1
    assert capsys.readouterr().err == (
        "albert: error: internal error: ZeroDivisionError: division by zero; "
        "run again with ALBERT_DEBUG=1 for the traceback\n"
    )
    monkeypatch.setenv("ALBERT_DEBUG", "1")
    assert run(["fail"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_system_exit_passes_through(failing_command):
    failing_command(SystemExit(2))
    with pytest.raises(SystemExit) as raised:
        run(["fail"])
    assert raised.value.code == 2


@pytest.mark.parametrize(
    "command",
    [["--help"], ["predict", "tiny", "--input", "-", "--task", "embed", "--device", "cpu"]],
)
def test_a_closed_pipe_gives_no_message(command):
    writer = subprocess.Popen(
        [sys.executable, "-m", "albert", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert writer.stdin is not None
    writer.stdin.write("A cat.\n")
    writer.stdin.close()
    assert writer.stdout is not None and writer.stderr is not None
    writer.stdout.close()  # before the interpreter has started
    stderr = writer.stderr.read()
    writer.stderr.close()
    assert writer.wait(timeout=60) == 141 and stderr == ""


def test_characters_that_the_output_lacks_are_replaced_or_escaped_in_json():
    encoding = "latin-1"
    text = "“Ahoj”, řekl Éric."
    for more, expected in ([], "?"), (["--json"], "\\u201c"):
        encode = ["tokenizer", "encode", text, "--tokenizer", "models/tiny", *more]
        done = subprocess.run(
            [sys.executable, "-m", "albert", *encode],
            env={**os.environ, "PYTHONIOENCODING": encoding},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout.decode(encoding)
        if more:
            assert json.loads(done.stdout)["text"] == text


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_standard_output_on_a_full_disk_is_named():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "albert", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 74
    assert done.stderr.startswith("albert: error: standard output or a temporary file: No space left on device; ")
    assert done.stderr.count("\n") == 1


INTERRUPTED_AT_AN_IMPORT = """
import os, runpy, signal, sys

_, module, way = sys.argv
signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it

class Interrupt:
    def find_spec(name, *_):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupt)
if way == "script":
    from albert.cli.main import run
    sys.exit(run(["info"]))
sys.argv = ["albert", "info"]
runpy.run_module("albert", run_name="__main__")
"""


@pytest.mark.parametrize("way", ["script", "module"])
@pytest.mark.parametrize("module", ["albert.cli.main", "albert.runtime.errors", "albert.commands.info_descriptions"])
def test_an_interrupt_while_our_modules_are_imported_is_one_line(module, way):
    done = python(INTERRUPTED_AT_AN_IMPORT, module, way, without=("RANK", "LOCAL_RANK"))
    assert (done.returncode, done.stderr) == (130, "albert: error: interrupted\n")


def test_an_interrupt_that_a_library_would_swallow_is_one_line(tmp_path):
    """Libraries in C turn KeyboardInterrupt into a failed import."""
    (tmp_path / "slow.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    for _ in range(1000): pass\n"
        "except KeyboardInterrupt as error:\n"
        "    raise ImportError('failed') from error\n"
    )
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"  # background jobs ignore it
        "from albert.cli import main; main.COMMANDS['slow'] = main.Command('slow', '');"
        "raise SystemExit(main.run(['slow']))"
    )
    done = python(program, PYTHONPATH=os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    assert (done.returncode, done.stderr) == (130, "albert: error: interrupted\n")


def test_the_imports_of_a_python_function_leave_signals_and_the_garbage_collector_alone():
    """A notebook is interrupted, and goes on."""

    def state(_=None):
        with table.imports():
            states.append((signal.getsignal(signal.SIGINT) is signal.default_int_handler, gc.isenabled()))

    states = []
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        state()
        table.run([], state)
        state()
    finally:
        signal.signal(signal.SIGINT, earlier)
    assert states == [(True, True), (False, False), (True, True)]


def test_importing_the_package_leaves_signals_alone():
    done = python(
        "import signal as s; before = s.getsignal(2); import albert.cli.main, albert; print(s.getsignal(2) is before)"
    )
    assert done.stdout == "True\n", done.stderr


@given(st.text(max_size=2000))
def test_any_message_is_one_printable_line_of_limited_length(message):
    line = table.one_line(message)
    assert line.isprintable() and len(line) <= 500


def test_a_long_message_keeps_its_subject_and_its_remedy():
    line = table.one_line("model.safetensors: " + "x" * 1000 + "; prepare the shards again")
    assert line.startswith("model.safetensors: ") and line.endswith("; prepare the shards again") and len(line) == 500


def test_a_file_name_that_is_not_unicode_can_be_reported(failing_command, capsys):
    failing_command(MissingInput("caf\udce9.txt", "is missing"))
    assert run(["fail"]) == 66
    assert capsys.readouterr().err == "albert: error: caf\\udce9.txt: is missing\n"


def test_an_error_of_all_ranks_is_printed_once_on_each_machine(failing_command, capsys, monkeypatch):
    failing_command(MissingInput("shards", "are missing"))
    for rank, local_rank, line in ((3, 3, ""), (8, 0, "albert: error: [rank 8] shards: are missing\n")):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("LOCAL_RANK", str(local_rank))
        assert run(["fail"]) == 66
        assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    "error", [TryAgain("rank 1", "was lost"), AlbertError("x", "y"), ZeroDivisionError("z"), MemoryError()]
)
def test_an_error_of_one_rank_is_printed_by_it(error, failing_command, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "3")
    failing_command(error)
    assert run(["fail"]) != 0
    assert capsys.readouterr().err.startswith("albert: error: [rank 3] ")
