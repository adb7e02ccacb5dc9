"""Where a model is: a directory of this machine, or a repository of the Hugging Face Hub."""

import re
import shlex
from pathlib import Path

from huggingface_hub import constants, snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    HTTPError,  # pyright: ignore[reportPrivateImportUsage] (httpx's, whichever httpx it is)
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from albert.checkpoints.archives import is_archive
from albert.checkpoints.int8_weights import INT8_WEIGHTS_NAME
from albert.checkpoints.tensor_files import INDEX_NAME, WEIGHTS_NAME
from albert.checkpoints.tensorflow.tensorflow_files import holds_tensorflow
from albert.runtime.errors import MissingInput, Unavailable, UsageError
from albert.runtime.manifests import MANIFEST_NAME
from albert.runtime.package import shipped_model

HUB_FILES = [
    "config.json",
    "model*.safetensors",
    INDEX_NAME,
    "spiece.model",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    MANIFEST_NAME,
    "README.md",
]
"""All that a model directory of ours or of transformers consists of; never a pickle, never code."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_REVISION = re.compile(r"(?!.*\.\.)\w[\w./@+-]*")
_HUB_ERRORS = (HfHubHTTPError, HFValidationError, HTTPError, OSError)


def find_model(path_or_id: str | Path, revision: str | None = None) -> Path:
    """The directory of a model, fetched first when a Hub id is given.

    The directory of a run stands for the model in it. A directory goes before a model that comes with the package, and
    that before a Hub id.
    `HF_HUB_OFFLINE`, `HF_HOME`, `HF_ENDPOINT` and `HF_TOKEN` are honoured as everywhere.

    Args:
        path_or_id: a directory, the name of a model that comes with the package ("tiny"), or a Hub id such as
            `albert/albert-base-v2`.
        revision: a branch, tag or commit of the Hub repository; None: its main branch.

    Raises:
        MissingInput: neither a directory nor a name that a repository can have, or what `albert convert` takes.
            Or the repository holds no weights that can be read safely.
        UsageError: a revision of a directory, which has none, or one that is no name of any.
        Unavailable: the repository cannot be had: unknown, private, or there is no connection and no copy.
    """
    path = Path(path_or_id)
    if path.is_dir():
        if revision is not None:
            raise UsageError("revision", f"{revision!r} of {path}, which is a directory", "it goes with a Hub id")
        inside = path / "model"
        if not (path / "config.json").is_file() and (inside / "config.json").is_file():
            return inside
        if not (path / "config.json").is_file() and holds_tensorflow(path):
            raise _to_convert(path, "holds a TensorFlow checkpoint")
        return path
    if path.is_file() and is_archive(path):
        raise _to_convert(path, "is an archive")
    if holds_tensorflow(path):
        raise _to_convert(path, "is a TensorFlow checkpoint")
    if path.exists():
        raise MissingInput(path, "is a file, a model is a directory", f"name {path.parent} if that is the model")
    name = str(path_or_id)
    if revision is None and (shipped := shipped_model(name)) is not None:
        return shipped
    if isinstance(path_or_id, Path) or not _HUB_ID.fullmatch(name):
        raise MissingInput(path, "no such directory")
    if revision is not None and not _REVISION.fullmatch(revision):
        raise UsageError("revision", f"{revision!r} is no branch, tag or commit")
    try:
        directory = Path(snapshot_download(name, revision=revision, allow_patterns=HUB_FILES))
    except _HUB_ERRORS as error:
        raise Unavailable(name, _reason(error, revision), "name a model directory, or download it first") from error
    if not any((directory / file).is_file() for file in (WEIGHTS_NAME, INDEX_NAME, INT8_WEIGHTS_NAME)):
        raise MissingInput(
            name,
            f"has no {WEIGHTS_NAME} on the Hub; pytorch_model.bin and the like are pickles, which can run any code, "
            "and are never fetched",
            "where you trust it, let transformers open and save it, and name the directory",
        )
    return directory


def _to_convert(path: Path, what: str) -> MissingInput:
    return MissingInput(
        path,
        f"{what}, a model is a directory with config.json",
        f"albert convert {shlex.quote(str(path))} --output MODEL",
    )


def _reason(error: Exception, revision: str | None) -> str:
    if isinstance(error, GatedRepoError):
        return "no such directory here, and access to it on the Hub is restricted (set HF_TOKEN)"
    if isinstance(error, RevisionNotFoundError):
        return f"has no revision {revision!r} on the Hub"
    if isinstance(error, RepositoryNotFoundError):
        return "no such directory here, and no such public repository on the Hub"
    if constants.HF_HUB_OFFLINE:
        of = "" if revision is None else f" of its revision {revision!r}"
        return f"no such directory here, and no copy{of} in the cache while HF_HUB_OFFLINE is set"
    # huggingface_hub tells the cause in the first line, and what it tried and what to check in the next ones.
    cause = str(error).strip().partition("\n")[0].removeprefix("Got: ").split(". ")[0].rstrip(".:")
    return f"no such directory here, and the Hub cannot be reached ({cause or type(error).__name__})"
