"""A model is found on this machine or in the Hub's cache, by the real code of huggingface_hub, or named in one line."""

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


def test_a_repository_in_the_cache_opens_without_a_connection(cache: Path, directory: Path) -> None:
    repository = cache / "models--someone--tiny-albert"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "snapshots").mkdir()
    directory.rename(repository / "snapshots" / COMMIT)
    opened = open_model("someone/tiny-albert", "pretraining")
    assert opened.directory == repository / "snapshots" / COMMIT
    assert opened.loading_report.missing == ()


@pytest.mark.parametrize("name", ["someone/absent", "albert-base-v2"])
def test_what_is_not_in_the_cache_is_said_in_one_line(cache: Path, name: str) -> None:
    with pytest.raises(Unavailable, match="no copy in the cache while HF_HUB_OFFLINE is set") as refusal:
        find_model(name)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith(f"{name}: ")


@pytest.fixture
def served(directory: Path, tmp_path: Path) -> Iterator[HubServer]:
    """Two commits of a model that differ in one weight, a repository of pickles, and files that nobody may fetch."""
    for unwanted in ("pytorch_model.bin", "modeling.py", "tf_model.h5", "onnx/model.onnx", "old/model.safetensors"):
        (directory / unwanted).parent.mkdir(exist_ok=True)
        (directory / unwanted).write_bytes(b"not to be fetched")
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


def test_the_hub_is_asked_as_the_environment_says(served: HubServer, tmp_path: Path) -> None:
    """The real code of huggingface_hub, in a process with the usual variables, over HTTP; then without the server."""
    asked = [("tiny", None), ("tiny", "v1"), ("tiny", "refs/pr/1"), ("tiny", OLDER), ("tiny", COMMIT), ("tiny", "v2"),
             ("absent", None), ("pickles", None)]  # fmt: skip
    environment = {
        "HF_ENDPOINT": served.endpoint,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    found = _opened_elsewhere(asked, environment | {"HF_HUB_OFFLINE": "0"})
    assert found[:5] == [0.0, 7.0, 7.0, 7.0, 0.0]
    assert found[5] == "someone/tiny: has no revision 'v2' on the Hub; name a model directory, or download it first"
    assert "no such public repository on the Hub" in found[6]
    assert found[7].startswith(
        "someone/pickles: has no model.safetensors on the Hub; pickles such as pytorch_model.bin"
    )
    fetched = {path.rsplit("/", 1)[-1] for path in served.asked if "/resolve/" in path and "/tiny/" in path}
    assert fetched == {"config.json", "model.safetensors", "README.md", "spiece.model", "vocab.txt"}
    assert not any("old/" in path or "onnx" in path for path in served.asked)
    before = len(served.asked)
    offline = _opened_elsewhere([*asked[:5], ("tiny", "v2"), ("absent", None)], environment | {"HF_HUB_OFFLINE": "1"})
    assert offline[:5] == found[:5]
    assert "no copy of its revision 'v2' in the cache while HF_HUB_OFFLINE is set" in offline[5]
    assert "no copy in the cache while HF_HUB_OFFLINE is set" in offline[6]
    assert len(served.asked) == before


def _opened_elsewhere(asked: list[tuple[str, str | None]], environment: dict[str, str]) -> list[float | str]:
    """In a process of its own: for each repository and revision the first bias of its head, or the refusal."""
    code = """
import json, sys
from albert.checkpoints.model_directory import open_model
from albert.runtime.errors import AlbertError
found = []
for name, revision in json.load(sys.stdin):
    try:
        found.append(float(open_model("someone/" + name, "pretraining", revision=revision).model.predictions.bias[0]))
    except AlbertError as error:
        found.append(str(error))
print(json.dumps(found))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(asked),
        env={**os.environ, "NO_PROXY": "127.0.0.1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("revision", ["v1", COMMIT, OLDER])
def test_a_revision_in_the_cache_is_pinned(cache: Path, directory: Path, revision: str) -> None:
    repository = cache / "models--someone--tiny-albert"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    (repository / "refs" / "v1").write_text(OLDER)
    for commit in (COMMIT, OLDER):
        shutil.copytree(directory, repository / "snapshots" / commit)
    commit = OLDER if revision == "v1" else revision
    assert find_model("someone/tiny-albert", revision) == repository / "snapshots" / commit
    assert find_model("someone/tiny-albert") == repository / "snapshots" / COMMIT
    with pytest.raises(Unavailable, match="no copy of its revision 'v3'"):
        find_model("someone/tiny-albert", "v3")


@pytest.mark.parametrize("revision", ["../../secret", "", "a b", "/etc", "v1/../../x"])
def test_a_revision_is_no_path(cache: Path, revision: str) -> None:
    with pytest.raises(UsageError, match="is not a branch, tag or commit"):
        find_model("someone/tiny-albert", revision)


def test_a_directory_or_the_run_around_it_is_the_model_and_has_no_revisions(directory: Path, tmp_path: Path) -> None:
    assert find_model(tmp_path) == find_model(directory) == directory
    with pytest.raises(UsageError, match="is a directory; it goes with a Hub id"):
        find_model(directory, "v1")


def test_a_run_that_has_not_ended_names_its_newest_checkpoint(directory: Path, tmp_path: Path) -> None:
    for step in ("step-00000009", "step-00000010"):
        shutil.copytree(directory, tmp_path / "run" / "checkpoints" / step)
    with pytest.raises(MissingInput, match=r"is an unfinished run.*checkpoints.step-00000010$") as told:
        find_model(tmp_path / "run")
    assert find_model(str(told.value).rpartition(" ")[2]).name == "step-00000010"


@pytest.mark.parametrize(
    "said", ["no route to host.\nMany more words.", "Got: no route to host\nAn error happened while trying. And more."]
)
def test_a_broken_connection_is_one_line(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        raise ConnectionError(said)

    monkeypatch.setattr(location.huggingface_hub, "snapshot_download", snapshot)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(Unavailable, match=r"cannot be reached \(no route to host\)"):
        find_model("someone/model")


@pytest.mark.parametrize(
    "name", ["./absent", "a/b/c", "/no/such/place", "~/model", "", "name with blanks", "..", "a//b"]
)
def test_a_path_is_never_looked_up_on_the_hub(cache: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location.huggingface_hub, "snapshot_download", lambda *_, **__: pytest.fail("asked the Hub"))
    if Path(name).is_dir():
        assert find_model(name) == Path(name)
    else:
        with pytest.raises(MissingInput, match="no such directory"):
            find_model(name)


@pytest.mark.parametrize(
    ("made", "asked", "what"),
    [
        (["model.ckpt-best.index", "albert_config.json"], "", "holds a TensorFlow checkpoint"),
        (["variables/variables.index"], "", "holds a TensorFlow checkpoint"),
        (["model.ckpt-best.index"], "model.ckpt-best", "is a TensorFlow checkpoint"),
        (["model.ckpt-best.index"], "model.ckpt-best.index", "is a TensorFlow checkpoint"),
        (["albert_base_v2.tar.gz"], "albert_base_v2.tar.gz", "is an archive"),
    ],
)
def test_what_is_to_be_converted_first_is_said_with_the_command(
    tmp_path: Path, made: list[str], asked: str, what: str
) -> None:
    place = tmp_path / "a place"
    for name in made:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(b"")
    path = place / asked
    with pytest.raises(MissingInput, match=what) as refusal:
        open_model(path, "pretraining")
    assert str(refusal.value).endswith(f"albert convert '{path}' --output MODEL")
