"""`--replace` begins a fine-tuning run anew; without it an existing run is refused and the option is named."""

import shutil

import pytest

import albert
from albert.checkpoints.hub import find_model
from albert.cli.main import run


@pytest.fixture
def command(tmp_path):
    table = tmp_path / "table.csv"
    rows = [f"{word} film {number},{word}" for number in range(10) for word in ("good", "bad")]
    table.write_text("\n".join(["text,label", *rows]))
    return [
        *("finetune", "--model", "tiny", "--train", str(table), "--text", "text", "--label", "label"),
        *("--device", "cpu", "steps=2", "--output", str(tmp_path / "run")),
    ]


def test_a_run_with_other_settings_is_refused_and_replaced(command, tmp_path, capsys):
    assert run(command) == 0
    first = (tmp_path / "run" / "results.json").read_text()
    assert run([*command, "seed=1"]) == 73
    assert "--replace" in capsys.readouterr().err
    assert (tmp_path / "run" / "results.json").read_text() == first
    assert run([*command, "seed=1", "--replace"]) == 0
    assert '"seed": 1' in (tmp_path / "run" / "results.json").read_text()
    sweep = ["sweep", *command[1:], "--seeds", "2"]
    assert run(sweep) == 73
    assert run([*sweep, "--replace"]) == 0
    assert not (tmp_path / "run" / "results.json").exists()
    assert (tmp_path / "run" / "seed-1" / "results.json").exists()


def test_another_metric_or_test_file_is_another_run(command, tmp_path, capsys):
    """The first metric selects the model, and a finished run would show no score of another test file."""
    test = str(tmp_path / "test.csv")
    (tmp_path / "test.csv").write_text((tmp_path / "table.csv").read_text())
    assert run([*command, "--test", test]) == 0
    first = (tmp_path / "run" / "results.json").read_text()
    capsys.readouterr()
    assert run([*command, "--test", test, "--metrics", "macro_f1"]) == 73
    assert "metrics (" in capsys.readouterr().err
    assert run(command) == 73
    assert "another test: " in capsys.readouterr().err
    lines = (tmp_path / "table.csv").read_text().splitlines(keepends=True)
    (tmp_path / "test.csv").write_text("".join(lines[:-1]))
    assert run([*command, "--test", test]) == 73
    assert "another test: " in capsys.readouterr().err
    assert (tmp_path / "run" / "results.json").read_text() == first


def test_a_run_is_replaced_after_all_checks(command, tmp_path, capsys):
    assert run(command) == 0
    first = (tmp_path / "run" / "results.json").read_text()
    assert run([*command, "--replace", "encode_pairs=separately"]) == 78
    assert "needs pairs of texts" in capsys.readouterr().err
    assert (tmp_path / "run" / "results.json").read_text() == first


def test_what_is_not_a_run_is_not_removed(command, tmp_path, capsys):
    output = tmp_path / "run"
    output.mkdir()
    (output / "letter.txt").write_text("keep me")
    assert run([*command, "--replace"]) == 73
    assert (output / "letter.txt").read_text() == "keep me"
    (output / "letter.txt").rename(output / "table.csv")
    (output / "recipe.json").write_text("{}")
    (output / "table.csv").write_text((tmp_path / "table.csv").read_text())
    inside = [str(output / "table.csv") if word.endswith("table.csv") else word for word in command]
    assert run([*inside, "--replace"]) == 73
    assert "table.csv" in capsys.readouterr().err
    assert (output / "table.csv").exists()


def test_rows_from_memory_are_replaced(tmp_path):
    rows = [{"text": f"{word} film {number}", "label": word} for number in range(10) for word in ("good", "bad")]
    common = {"text": "text", "label": "label", "model": "tiny", "output": tmp_path / "run", "device": "cpu"}
    albert.finetune(train=rows, steps=2, **common)
    with pytest.raises(albert.AlbertError, match="replace"):
        albert.finetune(train=rows, steps=3, **common)
    result = albert.finetune(train=rows, steps=3, replace=True, **common)
    assert result.report["training"]["steps"] == 3


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A model whose weights cannot be read, which is noticed when it is opened."""
    model = tmp_path_factory.mktemp("broken") / "model"
    shutil.copytree(find_model("tiny"), model)
    (model / "MANIFEST.json").unlink()
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    return model


@pytest.mark.parametrize(
    "words",
    ["finetune", "sweep --seeds 2", "sweep --folds 2", "sweep --rates 1e-4 2e-4", "finetune-vectors"],
)
def test_nothing_is_removed_before_everything_was_checked(words, command, broken, tmp_path, refused):
    name, *more = words.split()
    options = [word for word in command[1:] if word not in ("tiny", "--model")]
    if name == "finetune-vectors":
        options[options.index("--label")] = "--pair"
        pairs = [f"question {number},answer {number}" for number in range(20)]
        (tmp_path / "table.csv").write_text("\n".join(["text,label", *pairs]))
    begun = [name, *options, *more, "--model", "tiny"]
    assert run(begun) == 0
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()}
    refused([name, *options, *more, "--model", broken, "--replace"], 65, "model.safetensors")
    key = "keep_layers=99" if name == "finetune-vectors" else "architecture.keep_layers=99"
    refused([name, *options, *more, "--model", "tiny", "--replace", key], 78, "keep_layers")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    assert run([*begun, "--replace"]) == 0
    assert (tmp_path / "run").is_dir()
