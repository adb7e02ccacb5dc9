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
from pathlib import Path
from typing import Any

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
from albert.runtime.files import register_written
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from albert.runtime.progress import progress

# --------------------------------------------------------------------------------------------------------------------
# A released archive, unpacked for a moment: its names, kinds and sizes are checked before anything is written.

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
EXAMPLES_NAME = "examples.json"  # of a fine-tuned model, for the page of `albert serve`
# The files of a model, TensorFlow's or Hugging Face's; nothing else is written.
WANTED = (
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
"""Weights hardly compress: an archive that claims fifty times its size, and more than 64 MiB, wants to fill a disk."""
_PIECE = 2**20
_LARGE = 2**28
_LONGEST_READ = 2**24
"""What is asked for at once; tarfile would take the header of a file into memory at whatever length it claims."""
# ValueError: a name that is no text. RuntimeError: a member under a password.
_BROKEN = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RuntimeError)


@dataclass(frozen=True)
class _Member:
    name: str
    size: int
    open: Callable[[], Any]


def is_archive(path: Path) -> bool:
    """Whether a file's name says that it is an archive of a kind that is read."""
    return path.name.lower().endswith(SUFFIXES) and path.is_file()


@contextmanager
def unpacked(archive: Path) -> Iterator[Path]:
    """Yield a temporary directory with the files of a model that an archive holds; it vanishes with the block."""
    with tempfile.TemporaryDirectory(prefix="albert-") as name:
        directory = Path(name)
        try:
            _unpack(archive, directory)
            yield directory
        except AlbertError as error:  # the user knows the archive, not where it is for the moment
            subject, why = (text.replace(name, str(archive)) for text in (error.subject, error.why))
            raise type(error)(subject, why, error.remedy) from error


def _unpack(archive: Path, directory: Path) -> None:
    try:
        if archive.name.lower().endswith(".zip"):
            with zipfile.ZipFile(archive) as file:
                _write(archive, directory, _zip_members(archive, file))
        else:
            compressed = not archive.name.lower().endswith(".tar")
            with (
                gzip.open(archive) if compressed else open(archive, "rb") as content,
                tarfile.open(fileobj=_InPieces(content), mode="r:") as file,
            ):
                _write(archive, directory, _tar_members(archive, file))
    except _BROKEN as error:
        why = f"is not a whole archive ({' '.join(str(error).split()) or type(error).__name__})"
        raise DamagedData(archive, why, "fetch it again") from error


class _InPieces(io.BufferedIOBase):
    """A file that is never read in one piece that would fill the memory."""

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


def _tar_members(archive: Path, file: tarfile.TarFile) -> Iterator[_Member]:
    for member in file:
        if not (member.isfile() or member.isdir()):
            kind = "a link" if member.issym() or member.islnk() else "a device"
            raise DamagedData(archive, f"holds {kind} ({member.name}), which no model has")
        _refuse_outside(archive, member.name)
        if member.isfile():
            yield _Member(member.name, member.size, lambda member=member: _content(file, member))


def _content(file: tarfile.TarFile, member: tarfile.TarInfo) -> Any:
    content = file.extractfile(member)
    assert content is not None, "it is a file"
    return content


def _zip_members(archive: Path, file: zipfile.ZipFile) -> Iterator[_Member]:
    for member in file.infolist():
        kind = member.external_attr >> 28  # of the file, where Unix wrote it
        if kind not in (0, 4, 8):
            raise DamagedData(archive, f"holds a link or a device ({member.filename}), which no model has")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DamagedData(archive, f"holds {member.filename} packed by method {member.compress_type}", "unpack it")
        _refuse_outside(archive, member.filename)
        if not member.is_dir():
            yield _Member(member.filename, member.file_size, lambda member=member: file.open(member))


def _refuse_outside(archive: Path, name: str) -> None:
    parts = name.replace("\\", "/").split("/")
    if name.startswith("/") or ".." in parts or ":" in parts[0] or "\0" in name:
        raise DamagedData(archive, f"holds {name!r}, a name outside of its own directory", "do not unpack it")


def _write(archive: Path, directory: Path, members: Iterator[_Member]) -> None:
    wanted = _checked(archive, members)
    size = sum(member.size for member in wanted)
    free = shutil.disk_usage(directory).free
    if size > free:
        why = f"unpacks to {size / 1e6:,.0f} MB, {directory.parent} has {free / 1e6:,.0f} MB left"
        raise OutOfResources(archive, why, "set TMPDIR to a place with more room, or unpack it yourself")
    with progress("Unpacking", total=size / 1e6, unit="MB", quiet=size < _LARGE) as bar:
        for member in wanted:
            path = directory.joinpath(*Path(member.name).parts)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                with member.open() as content, open(path, "xb") as file:
                    while piece := content.read(_PIECE):
                        file.write(piece)
                        bar.advance(len(piece) / 1e6)
            except FileExistsError as error:
                raise DamagedData(archive, f"holds {member.name} twice") from error
            except gzip.BadGzipFile:
                raise
            except OSError as error:
                raise WriteFailed(path, error.strerror or str(error), "set TMPDIR to another place") from error
            if path.stat().st_size != member.size:
                raise DamagedData(archive, f"{member.name} has another size than it claims", "fetch it again")


def _checked(archive: Path, members: Iterator[_Member]) -> list[_Member]:
    """The members that are wanted, after all have been looked at."""
    allowed = max(_ALWAYS_ALLOWED, _MOST_EXPANSION * archive.stat().st_size)
    wanted, count, size = [], 0, 0
    for member in members:
        count, size = count + 1, size + member.size
        if count > _MOST_MEMBERS:
            raise DamagedData(archive, f"holds more than {_MOST_MEMBERS:,} files, a model has a few")
        if size > allowed:
            why = f"unpacks to more than {allowed / 1e6:,.0f} MB from {archive.stat().st_size / 1e6:,.3f} MB"
            raise DamagedData(archive, why, "weights do not compress like that: do not unpack it")
        file = member.name.replace("\\", "/").rsplit("/", 1)[-1]
        if not file.startswith(".") and any(fnmatch(file, pattern) for pattern in WANTED):
            wanted.append(member)
    if not wanted:
        raise DamagedData(archive, f"holds no model files among its {count}")
    return wanted


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
]
"""All that a model directory of ours or of transformers consists of; never a pickle, never code."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_REVISION = re.compile(r"(?!.*\.\.)\w[\w./@+-]*")


def model_name(path_or_id: str, revision: str | None) -> str:
    """A model's name in records and cards: a Hub id with its revision, or the last two parts of a path, which say
    nothing of the machine."""
    short = "/".join(Path(path_or_id).parts[-2:])
    return f"{short}@{revision}" if revision else short


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
        MissingInput: neither a directory nor a name that a repository can have, what `albert convert` takes, or a run
            that has not ended.
            Or the repository holds no weights that can be read safely.
        UsageError: a revision of a directory, which has none, or one that is not a valid name.
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
        if not (path / "config.json").is_file() and (saved := sorted(path.glob("checkpoints/step-*/config.json"))):
            raise MissingInput(
                path,
                "is a run that has not ended, so it has no model yet",
                f"start its command again to end it, or take its newest checkpoint, {saved[-1].parent}",
            )
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
        raise MissingInput(
            name,
            f"has no {WEIGHTS_NAME} on the Hub; pytorch_model.bin and the like are pickles, which can run any code, "
            "and are never fetched",
            "where you trust it, let transformers open and save it, and name the directory",
        )
    return directory


def copy_examples(source: Path, directory: Path) -> None:
    """The example rows of a model go along to what is made of it, where it has some."""
    if (source / EXAMPLES_NAME).is_file():
        shutil.copyfile(source / EXAMPLES_NAME, directory / EXAMPLES_NAME)
        register_written(directory / EXAMPLES_NAME)


def _to_convert(path: Path, what: str) -> MissingInput:
    return MissingInput(
        path,
        f"{what}, a model is a directory with config.json",
        f"albert convert {shlex.quote(str(path))} --output MODEL",
    )


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
        of = "" if revision is None else f" of its revision {revision!r}"
        return f"no such directory here, and no copy{of} in the cache while HF_HUB_OFFLINE is set"
    # huggingface_hub tells the cause in the first line, and what it tried and what to check in the next ones.
    cause = str(error).strip().partition("\n")[0].removeprefix("Got: ").split(". ")[0].rstrip(".:")
    return f"no such directory here, and the Hub cannot be reached ({cause or type(error).__name__})"


# --------------------------------------------------------------------------------------------------------------------
# A model to the Hub.

_REFUSALS = {
    401: ("the Hub does not know the token", "make one that may write at huggingface.co/settings/tokens; set HF_TOKEN"),
    403: ("the token has no right to write there", "name a repository of your own, or take a token that may write"),
    409: ("exists already on the Hub", "take another name, or --replace"),
}


@dataclass(frozen=True)
class PushedModel:
    """A model that was put on the Hub: its address, and the names and bytes of its files."""

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
    """Put a model on the Hub: the files of `HUB_FILES` alone, with its card; no journals, checkpoints or other files.

    Args:
        repository: USER/NAME.
        replace: write into a repository that exists; files of a model that are no longer there are deleted.

    Raises:
        UsageError: the name is not USER/NAME.
        MissingInput, DamagedData: there is no such model, or its files are not those of its manifest.
        Unavailable: no token, no right, a name that is taken, or no connection.
    """
    if repository.count("/") != 1 or not _HUB_ID.fullmatch(repository):
        raise UsageError(repository, "is not the name of a repository", "give USER/NAME")
    directory = find_model(path_or_id, revision)
    files = {
        file.name: file.stat().st_size
        for file in sorted(directory.iterdir())
        if file.is_file() and any(fnmatch(file.name, pattern) for pattern in HUB_FILES)
    }
    if "config.json" not in files or not any(name.endswith(".safetensors") for name in files):
        raise MissingInput(
            directory, "is not a model: it lacks config.json or weights", "name a model directory or a run"
        )
    if MANIFEST_NAME in files:
        verify_directory(directory)
    if constants.HF_HUB_OFFLINE:
        raise Unavailable(repository, "cannot be written while HF_HUB_OFFLINE is set", "unset it")
    if huggingface_hub.get_token() is None:
        raise Unavailable(repository, "there is no token for the Hub", "set HF_TOKEN, or run: hf auth login")
    hub = huggingface_hub.HfApi()
    try:
        hub.create_repo(repository, private=private, exist_ok=replace)
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
        cause = str(error).strip().partition("\n")[0].rstrip(".:") or type(error).__name__
        raise Unavailable(
            repository, f"the Hub cannot be written to ({cause})", "try again: the same command"
        ) from error
    return PushedModel(f"{constants.ENDPOINT}/{repository}", files)
