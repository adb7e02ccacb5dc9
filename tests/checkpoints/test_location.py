"""A model is found on this machine or in the Hub's cache, by the real code of huggingface_hub, or named in one line."""

from pathlib import Path

import pytest
from huggingface_hub import constants

from albert.checkpoints import location
from albert.checkpoints.location import HUB_FILES, find_model
from albert.checkpoints.model_directory import open_model
from albert.runtime.errors import MissingInput, Unavailable

COMMIT = "0" * 40


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


def test_only_files_that_a_model_consists_of_are_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = {}

    def snapshot(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        asked[name] = allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(location, "snapshot_download", snapshot)
    assert find_model("someone/model") == tmp_path
    assert asked == {"someone/model": HUB_FILES}
    assert not any(pattern.endswith(("bin", "py", "h5", "*")) for pattern in HUB_FILES)


def test_a_broken_connection_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def snapshot(name: str, revision: str | None, allow_patterns: list[str]) -> str:
        raise ConnectionError("no route to host.\nMany more words.")

    monkeypatch.setattr(location, "snapshot_download", snapshot)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(Unavailable, match=r"cannot be reached \(no route to host\)"):
        find_model("someone/model")


@pytest.mark.parametrize(
    "name", ["./absent", "a/b/c", "/no/such/place", "~/model", "", "name with blanks", "..", "a//b"]
)
def test_a_path_is_never_looked_up_on_the_hub(cache: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "snapshot_download", lambda *_, **__: pytest.fail("asked the Hub"))
    if Path(name).is_dir():
        assert find_model(name) == Path(name)
    else:
        with pytest.raises(MissingInput, match="no such directory"):
            find_model(name)


def test_a_file_is_not_a_model(directory: Path) -> None:
    with pytest.raises(MissingInput, match="is a file"):
        find_model(directory / "config.json")


def test_a_run_stands_for_the_model_in_it(directory: Path, tmp_path: Path) -> None:
    assert find_model(tmp_path) == directory
    assert find_model(directory) == directory
