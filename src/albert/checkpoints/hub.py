"""Finding a model: a local directory, a repository of the Hugging Face Hub, or a released archive."""

import gzip
import io
import re
import shlex
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import huggingface_hub  # loads its parts, and the HTTP library, when they are used: a local model needs neither
from huggingface_hub import constants

from albert.checkpoints.loading import INDEX_NAME, INT8_WEIGHTS_NAME, WEIGHTS_NAME
from albert.checkpoints.tensorflow import holds_tensorflow
from albert.runtime.environment import load_by_name, shipped_model
from albert.runtime.errors import (
    AlbertError,
    DamagedData,
    MissingInput,
    OutOfResources,
    Unavailable,
    UsageError,
    WriteFailed,
)
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from albert.runtime.progress import progress

# --------------------------------------------------------------------------------------------------------------------
# A released archive, unpacked temporarily. Names, types and sizes of all members are checked before one is written.

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
EXAMPLES_NAME = "examples.json"  # of a fine-tuned model, for the page of `albert serve`
# The files of a model, TensorFlow's or Hugging Face's; no others are written.
MODEL_FILES = (
    "*.index",
    "*.data-?????-of-?????",
    "checkpoint",
    "*config*.json",
    "*.model",
    "vocab*.txt",
    "*.safetensors",
    "*.safetensors.index.json",
    "tokenizer.json",
    EXAMPLES_NAME,
)
_MOST_MEMBERS = 10_000
_MOST_EXPANSION, _ALWAYS_ALLOWED = 50, 2**26
"""Weights hardly compress: an archive that expands fifty times, to more than 64 MiB, is made to fill a disk."""
_CHUNK = 2**20
_LARGE = 2**28
_LONGEST_READ = 2**24
"""Bytes per read; tarfile would read a header of any length that it claims into memory."""
# ValueError: a name that cannot be decoded. RuntimeError: an encrypted member.
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RuntimeError)


class _Member(NamedTuple):
    name: str
    size: int
    is_plain: bool
    """Neither a link nor a device, and not compressed in a rare way."""
    is_folder: bool
    open: Callable[[], Any]


def is_archive(path: Path) -> bool:
    """Whether a file has the name of a supported archive."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """Yield a temporary directory with the model files of an archive."""
    with tempfile.TemporaryDirectory(prefix="albert-") as name:
        directory = Path(name)
        try:
            _unpack(archive, directory)
            yield directory
        except AlbertError as error:  # name the archive, not the temporary directory
            subject, why = (text.replace(name, str(archive)) for text in (error.subject, error.why))
            raise type(error)(subject, why, error.remedy) from error


def _unpack(archive: Path, directory: Path) -> None:
    suffix = archive.suffix.lower()
    try:
        if suffix == ".zip":
            with zipfile.ZipFile(archive) as file:
                _write(archive, directory, _model_files(archive, _zip_members(file)))
        else:
            with (
                open(archive, "rb") if suffix == ".tar" else gzip.open(archive) as content,
                tarfile.open(fileobj=_BoundedReads(content), mode="r:") as file,
            ):
                _write(archive, directory, _model_files(archive, _tar_members(file)))
    except _BROKEN as error:
        why = f"is not a complete archive ({' '.join(str(error).split()) or type(error).__name__})"
        raise DamagedData(archive, why, "download it again") from error


class _BoundedReads(io.BufferedIOBase):
    """A file that refuses reads of more than `_LONGEST_READ` bytes."""

    def __init__(self, content: io.BufferedIOBase) -> None:
        super().__init__()
        self._content = content

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _LONGEST_READ:
            raise tarfile.ReadError(f"a header of {size} bytes")
        return self._content.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._content.seek(offset, whence)

    def tell(self) -> int:
        return self._content.tell()


def _tar_members(file: tarfile.TarFile) -> Iterator[_Member]:
    for info in file:
        is_plain = info.isfile() or info.isdir()
        yield _Member(info.name, info.size, is_plain, info.isdir(), partial(file.extractfile, info))


def _zip_members(file: zipfile.ZipFile) -> Iterator[_Member]:
    for info in file.infolist():
        kind = info.external_attr >> 28  # the file type, if written on Unix
        is_plain = kind in (0, 4, 8) and info.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        yield _Member(info.filename, info.file_size, is_plain, info.is_dir(), partial(file.open, info))


def _model_files(archive: Path, members: Iterator[_Member]) -> list[_Member]:
    """The model files among the members, once all members are checked."""
    allowed = max(_ALWAYS_ALLOWED, _MOST_EXPANSION * archive.stat().st_size)
    model_files, count, size = [], 0, 0
    for count, member in enumerate(members, 1):
        parts = member.name.replace("\\", "/").split("/")
        if not member.is_plain:
            raise DamagedData(archive, f"holds a link, a device or a rare compression ({member.name}): no model does")
        if not parts[0] or ".." in parts or ":" in parts[0] or "\0" in member.name:
            raise DamagedData(
                archive, f"holds {member.name!r}, a name outside of its own directory", "do not unpack it"
            )
        if count > _MOST_MEMBERS:
            raise DamagedData(archive, f"holds more than {_MOST_MEMBERS:,} files, a model has a few")
        size += 0 if member.is_folder else member.size
        if size > allowed:
            why = f"unpacks to more than {allowed / 1e6:,.0f} MB from {archive.stat().st_size / 1e6:,.3f} MB"
            raise DamagedData(archive, why, "weights do not compress that much: do not unpack it")
        is_model_file = any(fnmatch(parts[-1], pattern) for pattern in MODEL_FILES)
        if is_model_file and not member.is_folder and not parts[-1].startswith("."):
            model_files.append(member)
    if not model_files:
        raise DamagedData(archive, f"has {count} files, none of which belongs to a model")
    return model_files


def _write(archive: Path, directory: Path, model_files: list[_Member]) -> None:
    size, free = sum(member.size for member in model_files), shutil.disk_usage(directory).free
    if size > free:
        why = f"unpacks to {size / 1e6:,.0f} MB, {directory.parent} has {free / 1e6:,.0f} MB left"
        raise OutOfResources(archive, why, "set TMPDIR to a larger disk, or unpack it yourself")
    with progress("Unpacking", total=size / 1e6, unit="MB", quiet=size < _LARGE) as bar:
        for member in model_files:
            path = directory.joinpath(*Path(member.name).parts)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with member.open() as content, open(path, "xb") as file:
                    shutil.copyfileobj(content, file, _CHUNK)
            except FileExistsError as error:
                raise DamagedData(archive, f"holds {member.name} twice") from error
            except gzip.BadGzipFile:
                raise
            except OSError as error:
                raise WriteFailed(path, error.strerror or str(error), "set TMPDIR to another disk") from error
            if path.stat().st_size != member.size:
                raise DamagedData(archive, f"{member.name} does not have its stated size", "download it again")
            bar.advance(member.size / 1e6)


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
    EXAMPLES_NAME,
    "README.md",
    "modules.json",
    "sentence_bert_config.json",
    "?_*/config.json",
]
"""All files of a model directory of ours, of transformers or of sentence-transformers; no pickles and no code."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_REVISION = re.compile(r"(?!.*\.\.)\w[\w./@+-]*")


def model_name(path_or_id: str, revision: str | None) -> str:
    """A model's name in records and cards: a Hub id with its revision, or the last two parts of a path."""
    short = "/".join(Path(path_or_id).parts[-2:])
    return f"{short}@{revision}" if revision else short


def name_of(directory: Path) -> str:
    """A model's name by its directory: that of its run, its Hub id in the Hub's cache, else that of the directory."""
    directory = directory.absolute()
    if directory.parent.name == "snapshots":
        return directory.parents[1].name.removeprefix("models--").replace("--", "/")
    return (directory.parent.name if directory.name == "model" else "") or directory.name


def find_model(path_or_id: str | Path, revision: str | None = None) -> Path:
    """The directory of a model, downloaded if given by a Hub id.

    For the directory of a run, the directory of its model. `HF_HUB_OFFLINE`, `HF_HOME`, `HF_ENDPOINT` and `HF_TOKEN`
    are respected.

    Args:
        path_or_id: in this order a directory, the name of a model that comes with the package ("tiny"), or a Hub id
            such as `albert/albert-base-v2`.
        revision: a branch, tag or commit of the Hub repository; None: its main branch.

    Raises:
        MissingInput: no such directory and not a valid id; an input of `albert convert`; an unfinished run; a
            repository without weights in safetensors.
        UsageError: a revision of a directory, or an invalid one.
        Unavailable: the repository is unknown or private, or there is no connection and no cached copy.
    """
    path = Path(path_or_id)
    if path.is_dir():
        if revision is not None:
            raise UsageError("revision", f"{revision!r} of {path}, which is a directory", "it goes with a Hub id")
        if (path / "config.json").is_file():
            return path
        if (path / "model" / "config.json").is_file():
            return path / "model"
        if holds_tensorflow(path):
            raise _to_convert(path, "holds a TensorFlow checkpoint")
        if checkpoints := sorted(path.glob("checkpoints/step-*/config.json")):
            remedy = f"repeat its command to finish it, or name its newest checkpoint, {checkpoints[-1].parent}"
            raise MissingInput(path, "is an unfinished run without a model", remedy)
        if seeds := sorted(path.glob("seed-*/model/config.json")):
            raise MissingInput(path, "holds the runs of several seeds", f"name one, such as {seeds[0].parents[1]}")
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
        raise UsageError("revision", f"{revision!r} is not a branch, tag or commit")
    try:
        directory = Path(huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=HUB_FILES))
    except _hub_errors() as error:
        raise Unavailable(name, _reason(error, revision), "name a model directory, or download it first") from error
    if not any((directory / file).is_file() for file in (WEIGHTS_NAME, INDEX_NAME, INT8_WEIGHTS_NAME)):
        why = f"has no {WEIGHTS_NAME} on the Hub; pickles such as pytorch_model.bin can run code and are not downloaded"
        raise MissingInput(name, why, "if you trust it, open and save it with transformers, and name that directory")
    return directory


def copy_examples(source: Path, directory: Path) -> None:
    """Copy the example rows of a model, if it has any, to a model derived from it."""
    if (source / EXAMPLES_NAME).is_file():
        shutil.copyfile(source / EXAMPLES_NAME, directory / EXAMPLES_NAME)


def _to_convert(path: Path, what: str) -> MissingInput:
    remedy = f"albert convert {shlex.quote(str(path))} --output MODEL"
    return MissingInput(path, f"{what}; a model is a directory with config.json", remedy)


def _hub_errors() -> tuple[type[Exception], ...]:
    errors = load_by_name("huggingface_hub.errors")
    return errors.HfHubHTTPError, errors.HFValidationError, errors.HTTPError, OSError


def _reason(error: Exception, revision: str | None) -> str:
    errors = load_by_name("huggingface_hub.errors")
    if isinstance(error, errors.GatedRepoError):
        return "no such directory here, and access to it on the Hub is restricted (set HF_TOKEN)"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"has no revision {revision!r} on the Hub"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "no such directory here, and no such public repository on the Hub"
    if constants.HF_HUB_OFFLINE:
        of_revision = "" if revision is None else f" of its revision {revision!r}"
        return f"no such directory here, and no copy{of_revision} in the cache while HF_HUB_OFFLINE is set"
    return f"no such directory here, and the Hub cannot be reached ({_cause(error).split('. ')[0]})"


def _cause(error: Exception) -> str:
    """The first line of a message of huggingface_hub; the next ones are advice."""
    return str(error).strip().partition("\n")[0].removeprefix("Got: ").rstrip(".:") or type(error).__name__


# --------------------------------------------------------------------------------------------------------------------
# Uploading a model to the Hub.

_REFUSALS = {
    401: ("the Hub does not know the token", "make a write token at huggingface.co/settings/tokens and set HF_TOKEN"),
    403: ("the token may not write there", "name a repository of your own, or use a token with write access"),
    409: ("exists already on the Hub", "choose another name, or add --replace"),
}


@dataclass(frozen=True)
class PushedModel:
    """An uploaded model: its address, and the names and sizes in bytes of its files."""

    address: str
    files: dict[str, int]


def push_model(
    path_or_id: str | Path,
    repository: str,
    *,
    private: bool = False,
    replace: bool = False,
    revision: str | None = None,
) -> PushedModel:
    """Upload a model with its card to the Hub; only the files of `HUB_FILES`.

    Args:
        repository: USER/NAME.
        private: create a private repository; with `replace` make an existing one private.
        replace: write into an existing repository, and delete its model files that this model does not have.

    Raises:
        UsageError: the name is not USER/NAME.
        MissingInput, DamagedData: there is no such model, or its files do not match its manifest.
        Unavailable: no token, no write access, an existing repository, or no connection.
    """
    if repository.count("/") != 1 or not _HUB_ID.fullmatch(repository):
        raise UsageError(repository, "is not the name of a repository", "give USER/NAME")
    directory = find_model(path_or_id, revision)
    files = {
        file.relative_to(directory).as_posix(): file.stat().st_size
        for file in sorted({file for pattern in HUB_FILES for file in directory.glob(pattern)})
        if file.is_file()
    }
    if "config.json" not in files or not any(name.endswith(".safetensors") for name in files):
        why = "is not a model: it lacks config.json or weights"
        raise MissingInput(directory, why, "name a model directory or a run")
    if MANIFEST_NAME in files:
        verify_directory(directory)
    if constants.HF_HUB_OFFLINE:
        raise Unavailable(repository, "cannot be written while HF_HUB_OFFLINE is set", "unset it")
    if huggingface_hub.get_token() is None:
        raise Unavailable(repository, "there is no token for the Hub", "set HF_TOKEN, or run: hf auth login")
    hub = huggingface_hub.HfApi()
    try:
        hub.create_repo(repository, private=private, exist_ok=replace)
        if private and replace:  # `create_repo` leaves an existing repository as it is
            hub.update_repo_settings(repository, private=True)
        hub.upload_folder(
            repo_id=repository,
            folder_path=directory,
            allow_patterns=list(files),
            delete_patterns=HUB_FILES if replace else None,
            commit_message="Upload an ALBERT model",
        )
    except _hub_errors() as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in _REFUSALS:
            raise Unavailable(repository, *_REFUSALS[status]) from error
        why = f"the Hub cannot be written to ({_cause(error)})"
        raise Unavailable(repository, why, "repeat the command") from error
    return PushedModel(f"{constants.ENDPOINT}/{repository}", files)
