"""Inputs are checked before anything is printed or computed."""

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
    ],
)
def test_what_is_missing_is_said_before_any_output(command, subject, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("text,label\na,b\n")
    assert run(command.split()) == 66
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and subject in error
    assert [path.name for path in tmp_path.iterdir()] == ["table.csv"]


def test_statistics_only_refuses_what_training_refuses_and_a_changed_setting_is_named(tmp_path, capsys):
    table, output = tmp_path / "table.csv", tmp_path / "run"
    rows = [f"{word} film {number},{word}" for number in range(10) for word in ("good", "bad")]
    table.write_text("\n".join(["text,label", *rows, "no label,"]))
    command = ["finetune", "--model", "tiny", "--train", str(table), "--text", "text", "--label", "label"]
    command += ["--device", "cpu", "--epochs", "1"]
    assert run([*command, "--statistics-only"]) == 65
    assert "table.csv:22" in capsys.readouterr().err
    table.write_text("\n".join(["text,label", *rows]))
    assert run([*command, "--output", str(output)]) == 0
    assert "prove nothing" in capsys.readouterr().out
    assert (output / "curves.png").is_file()
    assert run([*command, "--output", str(output), "--learning-rate", "3e-4"]) == 73
    assert "learning_rate (" in capsys.readouterr().err
