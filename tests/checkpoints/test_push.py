"""`albert push` with the real code of huggingface_hub over HTTP, to a Hub on this machine."""

import json
import shutil
from pathlib import Path

import pytest
from huggingface_hub import constants
from huggingface_hub.utils import filter_repo_objects
from tests.checkpoints.hub_server import HubServer, hub_server

import albert
from albert.checkpoints.hub import HUB_FILES
from albert.cli.main import run
from albert.runtime.json_files import save_versioned

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def hub():
    with hub_server({}) as server:
        yield server


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A copy of the small model in the folder of a run."""
    directory = tmp_path / "run" / "model"
    shutil.copytree(ROOT / "models" / "tiny", directory)
    (tmp_path / "run" / "journal.jsonl").write_text("{}\n")
    return directory


@pytest.fixture
def push(hub: HubServer, tmp_path: Path, monkeypatch, capfd):
    """Runs the command and returns exit code, standard output and standard error."""
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


def test_push_uploads_only_the_model_of_a_run_with_its_card(hub, model, push):
    code, output, error = push(str(model.parent), "someone/mine", "--private")
    assert code == 0 and "error" not in error
    assert f"{hub.endpoint}/someone/mine is ready" in output
    assert hub.private == {"someone/mine": True}
    expected = {file.name: file.read_bytes() for file in model.iterdir() if not file.name.startswith(".")}
    assert hub.written["someone/mine"] == expected and "README.md" in expected
    code, _, error = push(str(model), "someone/mine")
    assert code == 69 and error.count("\n") == 1
    assert "someone/mine" in error and "--replace" in error


def test_push_uploads_example_rows(hub, model, push):
    (model / "MANIFEST.json").unlink()
    (model / "examples.json").write_text('{"examples": [{"text": "the ship"}]}')
    assert push(str(model), "someone/mine")[0] == 0
    assert "examples.json" in hub.written["someone/mine"]


def test_a_dry_run_lists_the_files_and_the_examples_and_uploads_nothing(hub, model, push):
    (model / "MANIFEST.json").unlink()
    rows = [{"text": "the ship"}, {"text": "[a] storm", "pair": "at sea"}]
    (model / "examples.json").write_text(json.dumps({"examples": rows}))
    code, output, _ = push(str(model.parent), "someone/mine", "--dry-run", token=None)
    assert (code, hub.written, hub.requests) == (0, {}, [])
    for name in ("config.json", "model.safetensors", "README.md", "examples.json"):
        assert name in output
    assert "2" in output and "text: the ship" in output and "text: [a] storm, pair: at sea" in output
    assert "nothing was uploaded" in output and "is ready" not in output
    pushed = albert.push(model, "someone/mine", dry_run=True)
    assert not pushed.uploaded and pushed.examples == tuple(rows)
    assert push(str(model), "someone/mine")[0] == 0
    assert set(pushed.files) == set(hub.written["someone/mine"])
    (model / "config.json").unlink()
    assert push(str(model), "someone/mine", "--dry-run")[0] != 0


def test_export_for_sentence_transformers_opens_again_from_the_hub(hub, model, push, tmp_path):
    exported = tmp_path / "vectors"
    export = ["export", "sentence-transformers", str(model), "--output", str(exported), "--normalize"]
    assert run(export) == 0
    assert push(str(exported), "someone/vectors")[0] == 0
    assert {"modules.json", "1_Pooling/config.json", "2_Normalize/config.json"} <= set(hub.written["someone/vectors"])
    listed = json.loads((exported / "MANIFEST.json").read_text())["files"]
    assert set(hub.written["someone/vectors"]) == {*listed, "MANIFEST.json"}
    assert set(filter_repo_objects(listed, allow_patterns=HUB_FILES)) == set(listed)


@pytest.mark.parametrize(
    "words", [(), ("quantize",), ("convert",), ("export", "sentence-transformers")], ids=lambda words: " ".join(words)
)
def test_the_files_that_push_lists_open_after_a_download(words, hub, model, push, tmp_path, capfd):
    """The task stays on the machine of its user, also where it lies beside the derived model."""
    save_versioned(model.parent / "task.json", {"name": "stars", "train": "/home/me/train.csv", "text": "review"})
    pushed = model.parent
    if words:
        pushed = tmp_path / "derived"
        assert run([*words, str(model.parent), "--output", str(pushed)]) == 0
    listed = albert.push(pushed, "someone/mine", dry_run=True).files
    assert push(str(pushed), "someone/mine")[0] == 0
    written = hub.written["someone/mine"]
    assert listed == {name: len(content) for name, content in written.items()}
    downloaded = tmp_path / "downloaded"
    for name, content in written.items():
        (downloaded / name).parent.mkdir(parents=True, exist_ok=True)
        (downloaded / name).write_bytes(content)
    capfd.readouterr()
    assert run(["info", str(downloaded), "--verify"]) == 0, capfd.readouterr().err
    assert len(albert.load(downloaded).embed(["the ship"])) == 1
    assert not any(b"task.json" in content or b"/home/me" in content for content in written.values())


def test_a_directory_with_an_onnx_file_is_refused_with_the_command_that_uploads_it(hub, model, push, tmp_path):
    exported = tmp_path / "on nx"
    assert run(["export", "onnx", str(model), "--output", str(exported)]) == 0
    for flags in ((), ("--dry-run",)):
        code, _, error = push(str(exported), "someone/mine", *flags)
        assert code == 66 and error.count("\n") == 1
        assert "ONNX" in error and f"hf upload someone/mine '{exported}'" in error
    assert hub.written == {}
    (exported / "model.onnx").unlink()
    assert "it lacks config.json or weights" in push(str(exported), "someone/mine")[2]


def test_push_from_python_and_replace(hub, model, push, refused):
    push(str(model), "someone/other")  # sets the environment
    pushed = albert.push(model.parent, "someone/mine", private=True)
    assert pushed.address == f"{hub.endpoint}/someone/mine" and hub.private["someone/mine"]
    assert hub.written["someone/mine"] == hub.written["someone/other"]
    assert set(pushed.files) == set(hub.written["someone/mine"])
    refused(lambda: albert.push(model, "someone/mine"), 69, "someone/mine", "replace")
    for replace in (
        lambda: albert.push(model=model, repository="someone/mine", replace=True),
        lambda: push(str(model), "someone/mine", "--replace"),
    ):
        hub.written["someone/mine"]["README.md"] = b"an older card"
        replace()
        assert hub.written["someone/mine"] == hub.written["someone/other"]
    assert not hub.private["someone/other"]
    push(str(model), "someone/other", "--replace", "--private")
    assert hub.private["someone/other"]


@pytest.mark.parametrize(
    ("repository", "token", "code", "line"),
    [
        ("someone/mine", None, 69, "HF_TOKEN"),
        ("someone/mine", "hf_wrong", 69, "token"),
        ("another/mine", "hf_right", 69, "another/mine"),
        ("mine", "hf_right", 2, "mine: "),
        ("a/b/c", "hf_right", 2, "a/b/c: "),
    ],
)
def test_refusal_of_the_hub_is_one_line(repository, token, code, line, hub, model, push):
    actual, _, error = push(str(model), repository, token=token)
    assert (actual, error.count("\n"), hub.written) == (code, 1, {}) and line in error


def test_push_without_a_connection_is_one_line(model, push, monkeypatch):
    words = (str(model), "someone/mine")
    code, _, error = push(*words, endpoint="http://127.0.0.1:9")
    assert (code, error.count("\n")) == (69, 1) and "someone/mine" in error
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    code, _, error = push(*words)
    assert (code, error.count("\n")) == (69, 1) and "HF_HUB_OFFLINE" in error


def test_damaged_model_is_not_pushed(hub, model, push):
    with open(model / "model.safetensors", "ab") as file:
        file.write(b"\0")
    code, _, error = push(str(model), "someone/mine")
    assert (code, error.count("\n"), hub.requests) == (65, 1, []) and "model.safetensors" in error
