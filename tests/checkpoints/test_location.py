"""Finding models: directories, runs, the Hub and its cache, with the real code of huggingface_hub."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from tests.checkpoints.hub_server import HubServer, Repository, hub_server

import albert
from albert.checkpoints import hub as location
from albert.checkpoints.hub import find_model

COMMIT, OLDER = "0" * 40, "1" * 40


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub, offline."""
    path = tmp_path / "hub"
    path.mkdir()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(path))
    assert constants.HF_HUB_OFFLINE
    return path


@pytest.fixture
def served(directory: Path, tmp_path: Path) -> Iterator[HubServer]:
    """Two commits of a model that differ in one weight, a repository of pickles, and files not to be downloaded."""
    for unwanted in ("pytorch_model.bin", "modeling.py", "tf_model.h5", "onnx/model.onnx", "old/model.safetensors"):
        (directory / unwanted).parent.mkdir(exist_ok=True)
        (directory / unwanted).write_bytes(b"not to be downloaded")
    (directory / "spiece.model").write_bytes(b"a vocabulary")
    (directory / "vocab.txt").write_text("another")
    (directory / "task.json").write_text("{}")  # uploaded by another tool, with the manifest that lists it
    older, pickles = tmp_path / "older", tmp_path / "pickles"
    shutil.copytree(directory, older)
    held = load_file(older / "model.safetensors")
    held["predictions.bias"][0] = held["predictions.decoder.bias"][0] = 7.0
    save_file(held, older / "model.safetensors")
    pickles.mkdir()
    shutil.copy(directory / "config.json", pickles)
    (pickles / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    repositories = {
        "someone/tiny": Repository(
            {COMMIT: directory, OLDER: older}, {"main": COMMIT, "v1": OLDER, "refs/pr/1": OLDER}
        ),
        "someone/pickles": Repository({COMMIT: pickles}, {"main": COMMIT}),
    }
    with hub_server(repositories) as hub:
        yield hub


def test_hub_environment_variables_are_respected(served, tmp_path):
    """In a process with the usual variables over HTTP, then offline."""
    models = [("tiny", None), ("tiny", "v1"), ("tiny", "refs/pr/1"), ("tiny", OLDER), ("tiny", COMMIT), ("tiny", "v2"),
              ("absent", None), ("pickles", None)]  # fmt: skip
    environment = {"HF_ENDPOINT": served.endpoint, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
    results = _open_in_process(models, environment | {"HF_HUB_OFFLINE": "0"})
    assert results[:5] == [0.0, 7.0, 7.0, 7.0, 0.0]
    assert results[5].startswith("someone/tiny@v2: ") and "'v2'" in results[5]
    assert results[6].startswith("someone/absent: ")
    assert results[7].startswith("someone/pickles: ") and "pickles such as" in results[7]
    fetched = {path.rsplit("/", 1)[-1] for path in served.requests if "/resolve/" in path and "/tiny/" in path}
    assert fetched == {"config.json", "model.safetensors", "README.md", "spiece.model", "vocab.txt", "task.json"}
    assert not any("old/" in path or "onnx" in path for path in served.requests)
    before = len(served.requests)
    offline = _open_in_process(models[:7], environment | {"HF_HUB_OFFLINE": "1"})
    assert offline[:5] == results[:5]
    assert "'v2'" in offline[5]
    assert "HF_HUB_OFFLINE" in offline[5] and "HF_HUB_OFFLINE" in offline[6]
    assert len(served.requests) == before


def _open_in_process(models: list[tuple[str, str | None]], environment: dict[str, str]) -> list[float | str]:
    """For each repository and revision the first bias of its head, or the error message."""
    code = """
import json, sys
from albert.checkpoints.model_directory import open_model
from albert.runtime.errors import AlbertError
results = []
for name, revision in json.load(sys.stdin):
    try:
        name += f"@{revision}" if revision else ""
        results.append(float(open_model("someone/" + name, "pretraining").model.predictions.bias[0]))
    except AlbertError as error:
        results.append(str(error))
print(json.dumps(results))
"""
    result = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(models),
        env={**os.environ, "NO_PROXY": "127.0.0.1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize("revision", ["../../secret", "", "a b", "/etc", "v1/../../x"])
def test_revision_must_not_be_a_path(cache, revision, refused):
    refused(lambda: albert.load(f"someone/tiny-albert@{revision}"), 2, "someone/tiny-albert@", repr(revision))


def test_directory_of_a_model_or_its_run_is_found(directory, tmp_path, refused):
    assert find_model(tmp_path) == find_model(directory) == directory
    refused(lambda: albert.load(f"{directory}@v1"), 66, f"{directory}@v1")


@pytest.mark.parametrize(
    ("directory", "name"),
    [
        ("runs/reviews/model", "reviews"),
        ("models/vectors", "vectors"),
        ("/model", "model"),
        (f"/hub/models--albert--albert-base-v2/snapshots/{COMMIT}", "albert/albert-base-v2"),
    ],
)
def test_name_is_that_of_the_run_or_the_hub_id(directory, name):
    assert location.name_of(Path(directory)) == name


def test_runs_of_several_seeds_are_named(directory, tmp_path, refused):
    shutil.copytree(directory, tmp_path / "runs" / "seed-3" / "model")
    refused(lambda: albert.load(tmp_path / "runs"), 66, tmp_path / "runs" / "seed-3")


def test_unfinished_run_names_its_newest_checkpoint(directory, tmp_path, refused):
    for step in ("step-00000009", "step-00000010"):
        shutil.copytree(directory, tmp_path / "run" / "checkpoints" / step)
    message = refused(lambda: albert.load(tmp_path / "run"), 66, tmp_path / "run", "unfinished")
    assert find_model(message.rpartition(" ")[2]).name == "step-00000010"


@pytest.mark.parametrize(
    "message",
    ["no route to host.\nMany more words.", "Got: no route to host\nAn error happened while trying. And more."],
)
def test_connection_error_is_one_line(message, refused, monkeypatch):
    def snapshot(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        raise ConnectionError(message)

    monkeypatch.setattr(location.huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    refused(lambda: albert.load("someone/model"), 69, "someone/model", "(no route to host)")


@pytest.mark.parametrize("name", ["./absent", "a/b/c", "/no/such/place", "~/model", "name with blanks", "..", "a//b"])
def test_paths_are_not_looked_up_on_the_hub(cache, name, refused, monkeypatch):
    monkeypatch.setattr(location.huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("Hub contacted"))
    if Path(name).is_dir():
        assert find_model(name) == Path(name)
    else:
        refused(lambda: albert.load(name), 66, Path(name))


@pytest.mark.parametrize(
    ("files", "argument"),
    [
        (["model.ckpt-best.index", "albert_config.json"], ""),
        (["variables/variables.index"], ""),
        (["model.ckpt-best.index"], "model.ckpt-best"),
        (["model.ckpt-best.index"], "model.ckpt-best.index"),
    ],
)
def test_models_to_convert_are_refused_with_the_command(tmp_path, files, argument, refused):
    folder = tmp_path / "a folder"
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    path = folder / argument
    message = refused(lambda: albert.load(path), 66, path)
    assert message.endswith(f"albert convert '{path}' --output MODEL")


@pytest.mark.parametrize("name", ["albert_base_v2.tar.gz", "model.zip", "model.7z"])
def test_archives_are_refused_with_what_to_do(tmp_path, name, refused):
    (tmp_path / name).touch()
    refused(lambda: albert.load(str(tmp_path / name)), 66, tmp_path / name, "unpack it")
