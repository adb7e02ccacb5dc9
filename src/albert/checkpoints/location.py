"""Where a model is: a directory of this machine, or a repository of the Hugging Face Hub."""

import re
from pathlib import Path

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,  # pyright: ignore[reportPrivateImportUsage] (httpx's, whichever httpx it is)
    RepositoryNotFoundError,
)

from albert.runtime.errors import MissingInput, Unavailable, UsageError

# Everything that a model directory of ours or of transformers consists of; never a pickle, never code.
HUB_FILES = ["*.json", "*.safetensors", "*.model", "README.md"]
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_HUB_ERRORS = (HfHubHTTPError, HFValidationError, HTTPError, OSError)


def find_model(path_or_id: str | Path, revision: str | None = None) -> Path:
    """The directory of a model, fetched first when a Hub id is given.

    The directory of a run stands for the model in it.
    `HF_HUB_OFFLINE`, `HF_HOME`, `HF_ENDPOINT` and `HF_TOKEN` are honoured as everywhere.

    Args:
        path_or_id: a directory, or a Hub id such as `albert/albert-base-v2`.
        revision: a branch, tag or commit of the Hub repository; None: its main branch.

    Raises:
        MissingInput: neither a directory nor a name that a repository can have.
        UsageError: a revision of a directory, which has none.
        Unavailable: the repository cannot be had: unknown, private, or there is no connection and no copy.
    """
    path = Path(path_or_id)
    if path.is_dir():
        if revision is not None:
            raise UsageError("revision", f"{revision!r} of {path}, which is a directory", "it goes with a Hub id")
        inside = path / "model"
        is_a_run = not (path / "config.json").is_file() and (inside / "config.json").is_file()
        return inside if is_a_run else path
    if path.exists():
        raise MissingInput(path, "is a file, a model is a directory", f"name {path.parent} if that is the model")
    name = str(path_or_id)
    if isinstance(path_or_id, Path) or not _HUB_ID.fullmatch(name):
        raise MissingInput(path, "no such directory")
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=HUB_FILES))
    except _HUB_ERRORS as error:
        raise Unavailable(name, _reason(error), "name a model directory, or download it first") from error


def _reason(error: Exception) -> str:
    if isinstance(error, GatedRepoError):
        return "no such directory here, and access to it on the Hub is restricted (set HF_TOKEN)"
    if isinstance(error, RepositoryNotFoundError):
        return "no such directory here, and no such public repository on the Hub"
    if constants.HF_HUB_OFFLINE:
        return "no such directory here, and no copy in the cache while HF_HUB_OFFLINE is set"
    first_sentence = " ".join(str(error).split()).split(". ")[0].rstrip(".:")
    return f"no such directory here, and the Hub cannot be reached ({first_sentence or type(error).__name__})"
