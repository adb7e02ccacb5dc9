"""The command table and the error boundary."""

import errno
import importlib.util
import os
import subprocess
import sys
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert import __version__
from albert.cli import main as table
from albert.runtime.errors import (
    AlbertError,
    CannotCreate,
    CheckFailed,
    DamagedData,
    Diverged,
    InvalidConfiguration,
    MissingInput,
    OutOfResources,
    TryAgain,
    Unavailable,
    UsageError,
    WriteFailed,
)


def in_a_new_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
    )


def module_with(main) -> ModuleType:
    """A module of a command."""
    module = ModuleType("command")
    for name in ("fail_main", *(f"{name}_main" for name in table.COMMANDS)):
        vars(module)[name] = main
    return module


@pytest.fixture
def failing_command(monkeypatch):
    """A command ``fail`` that raises what the test gives it."""

    def install(error: BaseException) -> None:
        def command(arguments: list[str]) -> int:
            raise error

        monkeypatch.setattr(table.importlib, "import_module", lambda name: module_with(command))
        monkeypatch.setitem(table.COMMANDS, "fail", table.Command("albert.cli.fail", "raises"))

    return install


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_all_commands_with_its_purpose(arguments, capsys):
    assert table.run(arguments) == 0
    shown = capsys.readouterr().out
    for name, command in table.COMMANDS.items():
        assert f"  {name} " in shown and command.purpose in shown


def test_version_is_the_package_version(capsys):
    assert table.run(["--version"]) == 0
    assert capsys.readouterr().out == f"albert {__version__}\n"


@pytest.mark.parametrize("arguments", ["--help", "--version", "pretrian"])
def test_help_imports_nothing_heavy(arguments):
    heavy = "('torch', 'numpy', 'scipy', 'sklearn', 'sentencepiece', 'transformers', 'tyro', 'rich')"
    done = in_a_new_process(
        f"import sys; from albert.cli.main import run; run([{arguments!r}]); "
        f"print('LOADED', [name for name in {heavy} if name in sys.modules])"
    )
    assert done.stdout.endswith("LOADED []\n"), done.stderr


def test_an_unknown_command_is_one_line_with_the_nearest_name(capsys):
    assert table.run(["pretrian"]) == 2
    assert capsys.readouterr().err == "albert: error: pretrian: no such command; did you mean 'pretrain'?\n"


def test_a_command_gets_the_arguments_after_its_name_and_gives_the_exit_code(monkeypatch):
    seen = []
    module = module_with(lambda arguments: seen.append(arguments) or 4)
    monkeypatch.setattr(table.importlib, "import_module", lambda name: module)
    assert table.run(["info", "--model", "m"]) == 4
    assert seen == [["--model", "m"]]


def test_a_command_that_returns_nothing_has_succeeded(monkeypatch):
    monkeypatch.setattr(table.importlib, "import_module", lambda name: module_with(lambda arguments: None))
    assert table.run(["info"]) == 0


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (UsageError, 2),
        (Diverged, 3),
        (CheckFailed, 4),
        (DamagedData, 65),
        (MissingInput, 66),
        (Unavailable, 69),
        (OutOfResources, 71),
        (CannotCreate, 73),
        (WriteFailed, 74),
        (TryAgain, 75),
        (InvalidConfiguration, 78),
    ],
)
def test_every_error_for_users_is_one_line_and_its_own_exit_code(kind, code, failing_command, capsys):
    failing_command(kind("corpus.txt", "is empty", "give a file with text"))
    assert table.run(["fail"]) == code
    shown = capsys.readouterr()
    assert shown.err == "albert: error: corpus.txt: is empty; give a file with text\n" and shown.out == ""


class OutOfMemoryError(RuntimeError):
    """Named as torch names it."""


class SafetensorError(Exception):
    """Named as safetensors names it."""


class PanicException(BaseException):
    """Named and derived as Rust libraries' panics are."""


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
    assert table.run(["fail"]) == code
    shown = capsys.readouterr().err
    assert shown.startswith("albert: error: ") and shown.count("\n") == 1 and "Traceback" not in shown


def test_a_mistake_of_ours_says_so_and_how_to_see_the_traceback(failing_command, capsys, monkeypatch):
    failing_command(ZeroDivisionError("division by zero"))
    assert table.run(["fail"]) == 1
    assert capsys.readouterr().err == (
        "albert: error: internal error: ZeroDivisionError: division by zero; "
        "run again with ALBERT_DEBUG=1 for the traceback\n"
    )
    monkeypatch.setenv("ALBERT_DEBUG", "1")
    assert table.run(["fail"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def test_an_exit_asked_for_by_a_command_passes_through(failing_command):
    failing_command(SystemExit(2))
    with pytest.raises(SystemExit) as raised:
        table.run(["fail"])
    assert raised.value.code == 2


def test_a_reader_that_went_away_is_no_error_message():
    writer = subprocess.Popen(
        [sys.executable, "-m", "albert", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None and writer.stderr is not None
    writer.stdout.close()  # long before the interpreter has started
    shown = writer.stderr.read()
    writer.stderr.close()
    assert writer.wait(timeout=60) == 141 and shown == ""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_behind_standard_output_is_named():
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "albert", "--help"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 74
    assert done.stderr.startswith("albert: error: standard output or a temporary file: No space left on device; ")
    assert done.stderr.count("\n") == 1


INTERRUPTED_AT_AN_IMPORT = """
import os, runpy, signal, sys

_, asked, way = sys.argv
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

class Interrupted:
    def find_spec(name, *_):
        if name == asked:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupted)
if way == "script":
    from albert.cli.main import run
    sys.exit(run(["info"]))
sys.argv = ["albert", "info"]
runpy.run_module("albert", run_name="__main__")
"""


@pytest.mark.parametrize("way", ["script", "module"])
@pytest.mark.parametrize("name", ["albert.cli.main", "albert.runtime.errors", "albert.cli.info"])
def test_an_interrupt_during_start_up_is_one_line(name, way):
    """Wherever it comes while ours is imported: in the command's entry point, what that needs, the command itself."""
    command = [sys.executable, "-c", INTERRUPTED_AT_AN_IMPORT, name, way]
    environment = {key: value for key, value in os.environ.items() if key not in ("RANK", "LOCAL_RANK")}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert (done.returncode, done.stderr) == (130, "albert: error: interrupted\n")


def test_importing_the_package_leaves_signals_alone():
    code = (
        "import signal as s; before = s.getsignal(2); import albert.cli.main, albert; print(s.getsignal(2) is before)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


@given(st.text(max_size=2000))
def test_any_message_is_one_printable_line_of_limited_length(message):
    line = table.one_line(message)
    assert line.isprintable() and len(line) <= 500


def test_control_characters_cannot_forge_a_second_line():
    assert table.one_line("a\nalbert: done\x1b[2J\r") == "a\\nalbert: done\\x1b[2J\\r"


def test_a_long_message_keeps_its_subject_and_its_remedy():
    line = table.one_line("model.safetensors: " + "x" * 1000 + "; prepare the shards again")
    assert line.startswith("model.safetensors: ") and line.endswith("; prepare the shards again") and len(line) == 500


def test_a_file_name_that_is_not_unicode_can_be_reported(failing_command, capsys):
    failing_command(MissingInput("caf\udce9.txt", "is missing"))
    assert table.run(["fail"]) == 66
    assert capsys.readouterr().err == "albert: error: caf\\udce9.txt: is missing\n"


def test_what_all_ranks_meet_is_said_once_per_machine(failing_command, capsys, monkeypatch):
    failing_command(MissingInput("shards", "are missing"))
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert table.run(["fail"]) == 66
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("RANK", "8")
    monkeypatch.setenv("LOCAL_RANK", "0")  # first rank of a second machine: its disk may differ from the first's
    assert table.run(["fail"]) == 66
    assert capsys.readouterr().err == "albert: error: [rank 8] shards: are missing\n"


def test_what_one_rank_met_is_said_by_that_rank(failing_command, capsys, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("LOCAL_RANK", "3")
    for error in (
        TryAgain("rank 1", "was lost"),
        AlbertError("x", "y"),
        ZeroDivisionError("z"),
        MemoryError(),
    ):
        failing_command(error)
        assert table.run(["fail"]) != 0
        assert capsys.readouterr().err.startswith("albert: error: [rank 3] ")


@pytest.mark.parametrize("name", list(table.COMMANDS))
def test_all_commands_of_the_table_has_a_module(name):
    assert importlib.util.find_spec(table.COMMANDS[name].module) is not None


def test_an_interrupt_during_imports_ends_at_once_with_one_line(tmp_path):
    """Libraries in C turn the exception into a failed import; here it would be swallowed."""
    (tmp_path / "slow.py").write_text(
        "import os, signal\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    for _ in range(1000): pass\n"
        "except KeyboardInterrupt as error:\n"
        "    raise ImportError('failed') from error\n"
    )
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"  # a shell's job may ignore it
        "from albert.cli import main; main.COMMANDS['slow'] = main.Command('slow', '');"
        "raise SystemExit(main.run(['slow']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "albert: error: interrupted\n")
