"""`albert push`: the real code of huggingface_hub over HTTP, to a Hub on this machine; its refusals in one line."""

import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants
from tests.checkpoints.hub_server import HubServer, hub_server

import albert
from albert.cli.main import run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hub():
    with hub_server({}) as server:
        yield server


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the small model, with files beside it that are nobody else's business."""
    directory = tmp_path / "run" / "model"
    shutil.copytree(ROOT / "models" / "tiny", directory)
    (tmp_path / "run" / "journal.jsonl").write_text("{}\n")
    return directory


@pytest.fixture
def push(hub: HubServer, tmp_path: Path, monkeypatch, capfd):
    """Runs the command: exit code, standard output and standard error."""
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)

    def call(*words: str, token: str | None = "hf_right", endpoint: str = hub.endpoint) -> tuple[int, str, str]:
        monkeypatch.setattr(constants, "ENDPOINT", endpoint)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        if token is not None:
            monkeypatch.setenv("HF_TOKEN", token)
        capfd.readouterr()
        code = run(["push", *words])
        return code, *capfd.readouterr()

    return call


def test_a_run_s_model_is_put_on_the_hub_with_its_card_and_nothing_else(hub, model, push):
    code, shown, said = push(str(model.parent), "someone/mine", "--private")
    assert code == 0 and "error" not in said
    assert f"{hub.endpoint}/someone/mine is ready" in shown
    assert hub.private == {"someone/mine": True}
    expected = {file.name: file.read_bytes() for file in model.iterdir() if not file.name.startswith(".")}
    assert hub.written["someone/mine"] == expected and "README.md" in expected
    code, _, said = push("--model", str(model), "--repository", "someone/mine")
    assert code == 69 and said.count("\n") == 1
    assert "someone/mine: exists already on the Hub; choose another name, or add --replace" in said


def test_the_example_rows_of_a_model_go_with_it(hub, model, push):
    (model / "MANIFEST.json").unlink()
    (model / "examples.json").write_text('{"examples": [{"text": "the ship"}]}')
    assert push(str(model), "someone/mine")[0] == 0
    assert "examples.json" in hub.written["someone/mine"]


def test_a_model_is_put_on_the_hub_from_python_and_replaced(hub, model, push):
    push(str(model), "someone/other")  # sets the environment
    pushed = albert.push(model.parent, "someone/mine", private=True)
    assert pushed.address == f"{hub.endpoint}/someone/mine" and hub.private["someone/mine"]
    assert hub.written["someone/mine"] == hub.written["someone/other"]
    assert set(pushed.files) == set(hub.written["someone/mine"])
    with pytest.raises(albert.AlbertError, match="exists already on the Hub; choose another name, or add replace"):
        albert.push(model, "someone/mine")
    for replace in (
        lambda: albert.push(model=model, repository="someone/mine", replace=True),
        lambda: push(str(model), "someone/mine", "--replace"),
    ):
        hub.written["someone/mine"]["README.md"] = b"an older card"
        replace()
        assert hub.written["someone/mine"] == hub.written["someone/other"]


@pytest.mark.parametrize(
    ("repository", "token", "code", "line"),
    [
        ("someone/mine", None, 69, "there is no token for the Hub; set HF_TOKEN, or run: hf auth login"),
        ("someone/mine", "hf_wrong", 69, "the Hub does not know the token; "),
        ("another/mine", "hf_right", 69, "the token may not write there; "),
        ("mine", "hf_right", 2, "mine: is not the name of a repository; give USER/NAME"),
        ("a/b/c", "hf_right", 2, "a/b/c: is not the name of a repository; give USER/NAME"),
    ],
)
def test_what_the_hub_refuses_is_one_line(repository, token, code, line, hub, model, push):
    found, _, said = push(str(model), repository, token=token)
    assert (found, said.count("\n"), hub.written) == (code, 1, {}) and line in said


def test_without_a_network_and_offline(model, push, monkeypatch):
    words = (str(model), "someone/mine")
    code, _, said = push(*words, endpoint="http://127.0.0.1:9")
    assert (code, said.count("\n")) == (69, 1) and "the Hub cannot be written to (" in said
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    code, _, said = push(*words)
    assert (code, said.count("\n")) == (69, 1) and "while HF_HUB_OFFLINE is set; unset it" in said


def test_a_damaged_model_is_not_put_on_the_hub(hub, model, push):
    with open(model / "model.safetensors", "ab") as file:
        file.write(b"\0")
    code, _, said = push(str(model), "someone/mine")
    assert (code, said.count("\n"), hub.asked) == (65, 1, []) and "model.safetensors" in said
