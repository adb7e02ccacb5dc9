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
from albert.checkpoints.model_directory import open_model
from albert.runtime.errors import MissingInput, Unavailable, UsageError

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
    assert results[5] == "someone/tiny: has no revision 'v2' on the Hub; name a model directory, or download it first"
    assert "no such public repository on the Hub" in results[6]
    assert results[7].startswith("someone/pickles: has no model.safetensors on the Hub; pickles such as")
    fetched = {path.rsplit("/", 1)[-1] for path in served.requests if "/resolve/" in path and "/tiny/" in path}
    assert fetched == {"config.json", "model.safetensors", "README.md", "spiece.model", "vocab.txt"}
    assert not any("old/" in path or "onnx" in path for path in served.requests)
    before = len(served.requests)
    offline = _open_in_process(models[:7], environment | {"HF_HUB_OFFLINE": "1"})
    assert offline[:5] == results[:5]
    assert "no copy of its revision 'v2' in the cache while HF_HUB_OFFLINE is set" in offline[5]
    assert "no copy in the cache while HF_HUB_OFFLINE is set" in offline[6]
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
        results.append(float(open_model("someone/" + name, "pretraining", revision=revision).model.predictions.bias[0]))
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
def test_revision_must_not_be_a_path(cache, revision):
    with pytest.raises(UsageError, match="is not a branch, tag or commit"):
        find_model("someone/tiny-albert", revision)


def test_directory_of_a_model_or_its_run_is_found(directory, tmp_path):
    assert find_model(tmp_path) == find_model(directory) == directory
    with pytest.raises(UsageError, match="is a directory; it goes with a Hub id"):
        find_model(directory, "v1")


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


def test_runs_of_several_seeds_are_named(directory, tmp_path):
    shutil.copytree(directory, tmp_path / "runs" / "seed-3" / "model")
    with pytest.raises(MissingInput, match=r"runs: holds the runs of several seeds; name one, such as .*runs.seed-3$"):
        find_model(tmp_path / "runs")


def test_unfinished_run_names_its_newest_checkpoint(directory, tmp_path):
    for step in ("step-00000009", "step-00000010"):
        shutil.copytree(directory, tmp_path / "run" / "checkpoints" / step)
    with pytest.raises(MissingInput, match=r"is an unfinished run.*checkpoints.step-00000010$") as refusal:
        find_model(tmp_path / "run")
    assert find_model(str(refusal.value).rpartition(" ")[2]).name == "step-00000010"


@pytest.mark.parametrize(
    "message",
    ["no route to host.\nMany more words.", "Got: no route to host\nAn error happened while trying. And more."],
)
def test_connection_error_is_one_line(message, monkeypatch):
    def snapshot(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        raise ConnectionError(message)

    monkeypatch.setattr(location.huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(Unavailable, match=r"cannot be reached \(no route to host\)"):
        find_model("someone/model")


@pytest.mark.parametrize(
    "name", ["./absent", "a/b/c", "/no/such/place", "~/model", "", "name with blanks", "..", "a//b"]
)
def test_paths_are_not_looked_up_on_the_hub(cache, name, monkeypatch):
    monkeypatch.setattr(location.huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("Hub contacted"))
    if Path(name).is_dir():
        assert find_model(name) == Path(name)
    else:
        with pytest.raises(MissingInput, match="no such directory"):
            find_model(name)


@pytest.mark.parametrize(
    ("files", "argument", "message"),
    [
        (["model.ckpt-best.index", "albert_config.json"], "", "holds a TensorFlow checkpoint"),
        (["variables/variables.index"], "", "holds a TensorFlow checkpoint"),
        (["model.ckpt-best.index"], "model.ckpt-best", "is a TensorFlow checkpoint"),
        (["model.ckpt-best.index"], "model.ckpt-best.index", "is a TensorFlow checkpoint"),
    ],
)
def test_models_to_convert_are_refused_with_the_command(tmp_path, files, argument, message):
    folder = tmp_path / "a folder"
    for name in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"")
    path = folder / argument
    with pytest.raises(MissingInput, match=message) as refusal:
        open_model(path, "pretraining")
    assert str(refusal.value).endswith(f"albert convert '{path}' --output MODEL")


@pytest.mark.parametrize("name", ["albert_base_v2.tar.gz", "model.zip", "model.7z"])
def test_archives_are_refused_with_what_to_do(tmp_path, name):
    (tmp_path / name).touch()
    with pytest.raises(MissingInput, match="unpack it") as refusal:
        albert.load(str(tmp_path / name))
    assert refusal.value.subject == str(tmp_path / name)
