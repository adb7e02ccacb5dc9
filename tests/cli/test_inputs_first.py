"""Inputs are checked before anything is printed or computed."""

import subprocess
import sys

import pytest

from albert.cli.main import run


@pytest.mark.parametrize(
    ("command", "subject"),
    [
        ("finetune --model tiny --train none.csv --output out", "none.csv"),
        ("finetune --model tiny --train table.csv --dev none.csv --output out", "none.csv"),
        ("pretrain small --data nowhere --output out", "nowhere"),
        ("evaluate --model tiny --dev none.csv", "none.csv"),
        ("predict tiny --input none.csv", "none.csv"),
        ("predict smal --fill-mask [MASK]", "small"),
        ("info smal", "small"),
        ("finetune --model smal --train table.csv --output out", "small"),
        ("finetune --model . --train table.csv --output out", "config.json"),
        ("finetune sst-2 --model tiny --data nowhere --output out", "nowhere"),
        ("finetune --model tiny --teacher tinny --train table.csv --output out", "tiny"),
        ("evaluate sst-2 --model tiny --data nowhere", "nowhere"),
        ("evaluate pretraining --model tiny --data .", "corpus.json"),
        ("pretrain small --data . --output out", "corpus.json"),
        ("pretrain continue --init smal --data . --output out", "small"),
        ("serve smal", "small"),
        ("quantize smal --output out", "small"),
        ("export onnx . --output out", "config.json"),
        ("info . --samples 3", "corpus.json"),
    ],
)
def test_what_is_missing_is_said_before_any_output(command, subject, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("text,label\na,b\n")
    assert run(command.split()) == 66
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and subject in error
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_an_output_that_is_a_file_is_refused_first(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    table = tmp_path / "table.csv"
    table.write_text("text,label\na,b\n")
    assert run(["finetune", "--model", "tiny", "--train", "table.csv", "--output", "table.csv"]) == 73
    out, error = capsys.readouterr()
    assert out == "" and "table.csv" in error
    assert table.read_text() == "text,label\na,b\n"


def test_refusals_need_no_torch(tmp_path):
    """One process for many commands: none of them imports torch, which takes most of a second or more."""
    (tmp_path / "table.csv").write_text("text,label\na,b\n")
    commands = [
        "predict smal --classify x",
        "predict tiny",
        "predict tiny --tag a --classify b",
        "predict tiny --input table.csv --output table.csv",
        "serve smal",
        "serve tiny --port 99999",
        "finetune --model smal --train table.csv --output out",
        "finetune --model tiny",
        "finetune sst-3 --model tiny --data . --output out",
        "finetune sst-2 --model tiny --output out",
        "evaluate sst-2 --model tiny --data nowhere",
        "pretrain small --data . --output out",
        "export onnx smal --output out",
        "quantize tiny --output table.csv",
        "info smal",
    ]
    code = (
        "import sys\nfrom albert.cli.main import run\n"
        f"codes = [run(command.split()) for command in {commands}]\n"
        "print(all(codes), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"], done.stderr
    assert done.stderr.count("\n") == len(commands)


def test_a_text_without_its_option_is_recognised(capsys):
    assert run(["predict", "tiny", "A [MASK]."]) == 2
    assert "--fill-mask 'A [MASK].'" in capsys.readouterr().err


def test_statistics_only_refuses_what_training_refuses_and_a_changed_setting_is_named(tmp_path, capsys):
    table, output = tmp_path / "table.csv", tmp_path / "run"
    rows = [f"{word} film {number},{word}" for number in range(10) for word in ("good", "bad")]
    table.write_text("\n".join(["text,label", *rows, "no label,"]))
    command = ["finetune", "--model", "tiny", "--train", str(table), "--text", "text", "--label", "label"]
    command += ["--device", "cpu", "epochs=1"]
    assert run([*command]) == 65
    assert "table.csv:22" in capsys.readouterr().err
    table.write_text("\n".join(["text,label", *rows]))
    assert run([*command, "--output", str(output)]) == 0
    assert "prove nothing" in capsys.readouterr().out
    assert (output / "curves.png").is_file()
    assert run([*command, "--output", str(output), "learning_rate=3e-4"]) == 73
    assert "learning_rate (" in capsys.readouterr().err
