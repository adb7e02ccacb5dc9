"""Commands where matplotlib and tensorboard are not installed, and commands that name the program."""

import sys

import pytest
from tests.cli.conftest import TINY

import albert
from albert.cli.main import run
from albert.training import metric_logger


@pytest.fixture
def without_plots(monkeypatch):
    for module in [name for name in sys.modules if name.split(".")[0] == "matplotlib" or name.endswith("_pictures")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.delitem(sys.modules, "albert.report.pictures", raising=False)
    for missing in ("matplotlib", "tensorboard", "torch.utils.tensorboard"):
        monkeypatch.setitem(sys.modules, missing, None)
    metric_logger._note_once.cache_clear()


def test_training_goes_on_with_one_note(scene, tmp_path, without_plots, caplog, capsys):
    for number in (1, 2):
        output = str(tmp_path / f"run-{number}")
        assert not run(["pretrain", "quickstart", "--data", str(scene.corpus), "--output", output, *TINY])
    assert sum("[plots]" in record.message for record in caplog.records) == 1
    assert "tensorboard" not in capsys.readouterr().out
    made, usual = tmp_path / "run-1", scene.run
    assert not (made / "tensorboard").exists()
    assert (made / "model" / "model.safetensors").read_bytes() == (usual / "model" / "model.safetensors").read_bytes()


@pytest.mark.parametrize(
    "command",
    [
        "evaluate --model {classifier} --dev {tables}/dev.csv --text review --label stars --depth 1 2 "
        "--curve {here}/curve.png",
    ],
)
def test_a_picture_names_the_extra(scene, tmp_path, without_plots, command, capsys):
    with pytest.raises(SystemExit) as ended:
        sys.exit(run([scene.fill(word, tmp_path) for word in command.split()]))
    assert ended.value.code == 69
    said = capsys.readouterr().err.strip()
    assert "matplotlib" in said and "[plots]" in said and said.count("\n") == 0


def test_a_result_in_a_notebook_has_curves_all_the_same(scene, tmp_path, without_plots):
    result = albert.finetune(
        train=scene.tables / "train.csv",
        dev=scene.tables / "dev.csv",
        text="review",
        label="stars",
        model=str(scene.pretrained),
        output=tmp_path / "run",
        epochs=3,
        batch_size=2,
    )
    assert "<svg" in result._repr_html_()


def test_the_next_command_is_one_that_the_shell_finds(tmp_path, monkeypatch):
    from albert.runtime.environment import command_name

    monkeypatch.chdir(tmp_path)
    scripts = tmp_path / ".venv" / "bin"
    scripts.mkdir(parents=True)
    for name in ("python", "albert"):
        (scripts / name).touch(mode=0o755)
    monkeypatch.setattr(sys, "executable", str(scripts / "python"))
    monkeypatch.setenv("PATH", "/usr/bin")
    assert command_name() == ".venv/bin/albert"
    monkeypatch.setenv("PATH", f"{scripts}:/usr/bin")
    assert command_name() == "albert"
    other = tmp_path / "other"
    other.mkdir()
    (other / "albert").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(other))
    assert command_name() == ".venv/bin/albert"  # the shell would start another installation
    (scripts / "albert").unlink()
    monkeypatch.setenv("PATH", "/usr/bin")
    assert command_name() == f"{scripts}/python -m albert"
