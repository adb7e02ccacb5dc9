"""`albert completion`: scripts that complete commands, options and values, in the shells themselves."""

import shutil
import subprocess
import sys

import pytest

from albert.cli.main import run

OFFERED = {
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
"""Typed words -> completions, in a folder with the file my_model."""


@pytest.fixture
def script(tmp_path, capsys, monkeypatch):
    """Writes the script of a shell in a folder with the file my_model."""

    def write(shell):
        assert run(["completion", shell]) == 0
        (tmp_path / "script").write_text(capsys.readouterr().out, encoding="utf-8")
        (tmp_path / "my_model").touch()
        return tmp_path / "script"

    monkeypatch.chdir(tmp_path)
    return write


def needs(shell):
    return pytest.mark.skipif(shutil.which(shell) is None, reason=f"{shell} is not installed")


@needs("bash")
def test_bash_completes(script):
    lines = [f". {script('bash')}"]
    for typed in OFFERED:
        words = typed.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        lines += [f"COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _albert", 'echo "${COMPREPLY[*]}"']
    done = subprocess.run(["bash", "--norc", "-u"], input="\n".join(lines), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    offered = [set(line.split()) for line in done.stdout.split("\n")[:-1]]
    assert dict(zip(OFFERED, offered, strict=True)) == OFFERED


@needs("fish")
def test_fish_completes(script):
    path = script("fish")
    for typed, expected in OFFERED.items():
        command = f"source {path}; complete -C '{typed}'"
        done = subprocess.run(["fish", "--no-config", "-c", command], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert expected <= {line.split("\t")[0] for line in done.stdout.splitlines()}, typed


@needs("zsh")
def test_zsh_completes(script):
    lines = [f"source {script('zsh')}", "print $_comps[albert]"]
    for typed in OFFERED:
        words = typed.split(" ")
        quoted = " ".join(f"'{word}'" for word in words)
        lines += [
            f"() {{ emulate -L sh; setopt ksharrays; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _albert;",
            '    print -r -- "${COMPREPLY[*]}"; }',
        ]
    done = subprocess.run(["zsh", "-f"], input="\n".join(lines), capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "_bash_complete" in done.stdout.split("\n")[0], done.stderr
    offered = [set(line.split()) for line in done.stdout.split("\n")[1:-1]]  # zsh filters by the prefix later
    assert all(expected <= found for expected, found in zip(OFFERED.values(), offered, strict=True))


def test_the_script_is_written_without_torch():
    code = "import sys; from albert.cli.main import run; run(['completion', 'bash']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
