"""`albert completion`: scripts that complete commands, options and values, in the shells themselves."""

import shutil
import subprocess
import sys

import pytest

from albert.cli.main import run

ASKED = {
    "albert fine": {"finetune"},
    "albert tokenizer ": {"train", "encode", "decode", "convert"},
    "albert export o": {"onnx"},
    "albert pretrain qui": {"quickstart"},
    "albert finetune sst-2 --learning-r": {"--learning-rate"},
    "albert finetune sst-2 --select ": {"last", "best"},
    "albert pretrain small --hidden-s": {"--hidden-size"},
    "albert pretrain small --objective n": {"nsp", "none"},
    "albert tokenizer train --no-lower": {"--no-lower-case"},
    "albert export onnx --precision ": {"fp32", "int8"},
    "albert evaluate pre": {"pretraining"},
    "albert predict my_m": {"my_model"},
    "albert predict model --output my_m": {"my_model"},
}
"""What is typed -> what is offered, in a folder with my_model."""


@pytest.fixture
def script(tmp_path, capsys, monkeypatch):
    """Writes the script of a shell, and goes to a folder with my_model in it."""

    def write(shell):
        assert run(["completion", shell]) == 0
        (tmp_path / "script").write_text(capsys.readouterr().out, encoding="utf-8")
        (tmp_path / "my_model").touch()
        return tmp_path / "script"

    monkeypatch.chdir(tmp_path)
    return write


def test_bash_completes(script):
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    place = script("bash")
    lines = [f". {place}"]
    for typed in ASKED:
        words = typed.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        lines += [f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _albert", 'echo "${COMPREPLY[*]}"']
    done = subprocess.run(["bash", "--norc", "-u"], input="\n".join(lines), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    offered = [set(line.split()) for line in done.stdout.split("\n")[:-1]]
    assert dict(zip(ASKED, offered, strict=True)) == ASKED


def test_fish_completes(script):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    place = script("fish")
    for typed, expected in ASKED.items():
        command = f"source {place}; complete -C '{typed}'"
        done = subprocess.run(["fish", "--no-config", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert expected <= {line.split("\t")[0] for line in done.stdout.splitlines()}, typed


def test_zsh_reads_the_script(script):
    if shutil.which("zsh") is None:
        pytest.skip("zsh is not installed")
    lines = [f"source {script('zsh')}", "print $_comps[albert]"]
    for typed in ASKED:
        words = typed.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        lines += [
            f"() {{ emulate -L sh; setopt ksharrays; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _albert;",
            '    print -r -- "${COMPREPLY[*]}"; }',
        ]
    done = subprocess.run(["zsh", "-f"], input="\n".join(lines), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "_bash_complete" in done.stdout.split("\n")[0], done.stderr
    offered = [set(line.split()) for line in done.stdout.split("\n")[1:-1]]  # zsh filters by the prefix afterwards
    assert all(expected <= found for expected, found in zip(ASKED.values(), offered, strict=True))


def test_the_script_is_written_without_torch():
    code = "import sys; from albert.cli.main import run; run(['completion', 'bash']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
