"""What cannot be exported or quantised: one line that says why, its exit code, and nothing left behind."""

import re
import shutil
from pathlib import Path

import pytest

from albert.cli.main import run

CASES = {
    "unknown format": ("export tflite {pretrained} --output {here}/out", 2, r"tflite: no such format"),
    "no model": ("export onnx {here}/none --output {here}/out", 66, r"none: no such directory"),
    "no output": ("export onnx {pretrained}", 2, r"output"),
    "old opset": ("export onnx {pretrained} --output {here}/out --opset 11", 78, r"opset: is 11, .*17 to 24"),
    "unknown precision": ("export onnx {pretrained} --output {here}/out --precision int4", 2, r"int4.*fp32.*int8"),
    "no depth": ("export onnx {pretrained} --output {here}/out --depth 0", 78, r"depth: is 0, .*choose one from 1"),
    "directory exists": ("export onnx {pretrained} --output {here}", 73, r"exists already"),
    "file exists": ("export onnx {pretrained} --output {here}/there.onnx", 73, r"there\.onnx: exists already"),
    "a corpus": ("export onnx {corpus} --output {here}/out", 66, r"config\.json"),
    "vectors of no model": ("export sentence-transformers {here}/none --output {here}/out", 66, r"none: no such dir"),
    "vectors of a corpus": ("export sentence-transformers {corpus} --output {here}/out", 66, r"config\.json"),
    "vectors exist": ("export sentence-transformers {pretrained} --output {here}", 73, r"exists already"),
    "no such pooling": ("export sentence-transformers {pretrained} --output {here}/out --pooling max", 2, r"max.*cls"),
    "quantise a corpus": ("quantize {corpus} --output {here}/out", 66, r"config\.json"),
    "quantise no model": ("quantize {here}/none --output {here}/out", 66, r"none: no such directory"),
    "quantised output exists": ("quantize {pretrained} --output {here}", 73, r"exists already"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_line_and_an_exit_code(name: str, scene, tmp_path: Path, capsys):
    command, code, says = CASES[name]
    (tmp_path / "there.onnx").write_bytes(b"mine")
    assert run([scene.fill(argument, tmp_path) for argument in command.split()]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("albert: error: ") and re.search(says, line)
    assert [path.name for path in tmp_path.iterdir()] == ["there.onnx"]
    assert (tmp_path / "there.onnx").read_bytes() == b"mine"


def test_a_damaged_quantised_directory_is_refused(scene, tmp_path: Path, capsys):
    assert run(["quantize", str(scene.pretrained), "--output", str(tmp_path / "int8")]) == 0
    with open(tmp_path / "int8/model.int8.safetensors", "r+b") as file:
        file.seek(-10, 2)
        file.write(b"\xff")
    capsys.readouterr()
    for command in (["info", str(tmp_path / "int8")], ["verify", str(tmp_path / "int8")]):
        assert run(command) == 65
        assert "SHA-256 differs" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "int8")


def test_an_onnx_directory_is_no_model_to_predict_with(scene, tmp_path: Path, capsys):
    assert run(["export", "onnx", str(scene.classifier), "--output", str(tmp_path / "onnx")]) == 0
    capsys.readouterr()
    assert run(["predict", str(tmp_path / "onnx"), "--classify", "It was a day."]) == 66
    assert "holds no model.safetensors" in capsys.readouterr().err
