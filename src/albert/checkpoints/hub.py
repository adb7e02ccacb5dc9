"""Finding a model: a local directory, or a repository of the Hugging Face Hub."""

import hashlib
import json
import os
import re
import shlex
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import huggingface_hub  # loads its parts, and the HTTP library, when they are used: a local model needs neither
from huggingface_hub import constants

from albert.runtime.environment import bundled_model, lazy_import, similar_shipped_model
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, Unavailable, UsageError
from albert.runtime.json_files import read_json_object, read_versioned, save_versioned
from albert.runtime.manifest import (
    MANIFEST_NAME,
    file_hash,
    manifest_bytes,
    read_input,
    read_manifest,
    verify_directory,
)
from albert.runtime.words import kind_of_value

WEIGHTS_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
INT8_WEIGHTS_NAME = "model.int8.safetensors"
MODULES_NAME = "modules.json"
PROMPTS_NAME = "config_sentence_transformers.json"
EXAMPLES_NAME = "examples.json"  # of a fine-tuned model, for the page of `albert serve`
TASK_NAME = "task.json"  # of a run, and of a model derived from one; `push_model` does not upload it
HUB_FILES = [
    "config.json",
    "model*.safetensors",
    INDEX_NAME,
    "spiece.model",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    MANIFEST_NAME,
    EXAMPLES_NAME,
    "README.md",
    MODULES_NAME,
    "sentence_*_config.json",
    PROMPTS_NAME,
    "?_*/config.json",
    "?_*/model*.safetensors",
    "?_*/model.safetensors.index.json",
    "?_*/sentence_*_config.json",
    "?_*/vocab.*",
    "?_*/merges.txt",
    "?_*/sentencepiece.bpe.model",
    "?_*/spiece.model",
    "?_*/tokenizer*.json",
    "?_*/special_tokens_map.json",
]
"""All files of a model directory of ours, of transformers or of sentence-transformers; no pickles and no code."""
_NO_ANSWER = {MANIFEST_NAME, EXAMPLES_NAME, "README.md"}
"""Those that decide no answer."""
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_REVISION = re.compile(r"(?!.*\.\.)\w[\w./@+-]*")


def model_hash(directory: Path) -> str:
    """SHA-256 of the names and contents of the files that decide a model's answers."""
    files = {file for pattern in HUB_FILES for file in directory.glob(pattern) if file.name not in _NO_ANSWER}
    names = "".join(f"{file.relative_to(directory).as_posix()}\n{file_hash(file)}\n" for file in sorted(files))
    return hashlib.sha256(names.encode()).hexdigest()


def model_name(path_or_id: str) -> str:
    """A model's name in records and cards: a Hub id with its revision, or the last two parts of a path."""
    name, revision = split_revision(path_or_id)
    short = "/".join(Path(name).parts[-2:])
    return short if revision is None else f"{short}@{revision}"


def split_revision(path_or_id: str | Path) -> tuple[str, str | None]:
    """A Hub id and its revision, from `OWNER/NAME@REVISION`; None for a path, which may hold the sign @, too."""
    name, at, revision = str(path_or_id).partition("@")
    if not at or isinstance(path_or_id, Path) or not _HUB_ID.fullmatch(name) or Path(path_or_id).exists():
        return str(path_or_id), None
    return name, revision


def name_of(directory: Path) -> str:
    """A model's name by its directory: that of its run, its Hub id in the Hub's cache, else that of the directory."""
    directory = directory.absolute()
    if directory.parent.name == "snapshots":
        return directory.parents[1].name.removeprefix("models--").replace("--", "/")
    return (directory.parent.name if directory.name == "model" else "") or directory.name


def find_model(path_or_id: str | Path) -> Path:
    """The directory of a model, downloaded if given by a Hub id.

    For the directory of a run, the directory of its model, and with `sweep --rates` that of the best rate; for one of
    sentence-transformers that keeps its encoder in a folder (`0_Transformer`), that folder. `HF_HUB_OFFLINE`,
    `HF_HOME`, `HF_ENDPOINT` and `HF_TOKEN` are respected.

    Args:
        path_or_id: in this order a directory, the name of a model that comes with the package ("tiny"), or a Hub id
            such as `albert/albert-base-v2`; `albert/albert-base-v2@v1` is a branch, tag or commit of it.

    Raises:
        UsageError: neither text nor a path, or an empty text.
        MissingInput: no such directory and not a valid id; an input of `albert convert`; an unfinished run; a
            repository without weights in safetensors.
        UsageError: a revision of a model that is here, or an invalid one.
        Unavailable: the repository is unknown or private, or there is no connection and no cached copy.
    """
    local = find_local_model(path_or_id)
    if local is not None:
        return local
    name, revision = split_revision(path_or_id)
    try:
        directory = Path(
            huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=[*HUB_FILES, TASK_NAME])
        )
    except _hub_errors() as error:
        raise Unavailable(
            str(path_or_id), _reason(error, revision), "name a model directory, or download it first"
        ) from error
    directory = transformer_folder(directory) or directory
    if not any((directory / file).is_file() for file in (WEIGHTS_NAME, INDEX_NAME, INT8_WEIGHTS_NAME)):
        why = f"has no {WEIGHTS_NAME} on the Hub; pickles such as pytorch_model.bin can run code and are not downloaded"
        raise MissingInput(name, why, "if you trust it, open and save it with transformers, and name that directory")
    return directory


def find_local_model(path_or_id: str | Path) -> Path | None:
    """As `find_model`, without the Hub: None for what may be a Hub id. It needs no torch."""
    require_name(path_or_id)
    name, revision = split_revision(path_or_id)
    path = Path(name)
    if revision is not None and (path.is_dir() or bundled_model(name) is not None):
        raise UsageError(str(path_or_id), f"{name} is here, and has no revisions", f"leave @{revision} out")
    if path.is_dir():
        folder = transformer_folder(path)  # first: old versions wrote a config.json of another kind beside it
        if folder is not None:
            return folder
        if (path / "config.json").is_file():
            return path
        if (path / "model" / "config.json").is_file():
            return path / "model"
        if _holds_tensorflow(path):
            raise _to_convert(path, "holds a TensorFlow checkpoint")
        checkpoints = sorted(path.glob("checkpoints/step-*/config.json"))
        if checkpoints:
            remedy = f"repeat its command to finish it, or name its newest checkpoint, {checkpoints[-1].parent}"
            raise MissingInput(path, "is an unfinished run without a model", remedy)
        best = _best_of_rates(path)
        if best is not None:
            return best
        _refuse_several_runs(path)
        _refuse_other_models(path)
        return path
    refuse_archive(path)
    if _holds_tensorflow(path):
        raise _to_convert(path, "is a TensorFlow checkpoint")
    if path.exists():
        is_of_model = (path.parent / "config.json").is_file()
        raise MissingInput(path, "is a file, a model is a directory", f"name {path.parent}" if is_of_model else None)
    shipped = bundled_model(name)
    if shipped is not None:
        return shipped
    similar = similar_shipped_model(name)
    if similar is not None and similar != name:
        raise MissingInput(path, "no such directory or model", f"did you mean {similar!r}?")
    if isinstance(path_or_id, Path) or not _HUB_ID.fullmatch(name):
        raise MissingInput(path, "no such directory")
    if revision is not None and not _REVISION.fullmatch(revision):
        raise UsageError(str(path_or_id), f"{revision!r} is not a branch, tag or commit", "give OWNER/NAME@REVISION")
    return None


def require_name(model: object) -> None:
    """Raise UsageError for what cannot be the path or the id of a model."""
    if not isinstance(model, str | os.PathLike):
        why = f"is {kind_of_value(model)}, a path or a name is expected"
    elif model == "":
        why = "is empty"
    else:
        return
    raise UsageError("model", why, "give a model directory, a run, or a Hub id")


def _best_of_rates(path: Path) -> Path | None:
    """The model of the rate that `sweep --rates` chose; None for another directory. MissingInput if it is stopped."""
    summary = path / "summary.json"
    if not summary.is_file() or not any(path.glob("rate-*/recipe.json")):
        return None
    content = read_versioned(summary)
    runs = {str(run.get("name")): str(run.get("directory")) for run in content.get("runs", ())}
    begun = {each.parent.name for each in path.glob("rate-*/recipe.json")}
    chosen = path / runs.get(str(content.get("chosen")), "") / "model"
    if begun - {*runs.values()} or not (chosen / "config.json").is_file():
        example = next(iter(sorted(path.glob("rate-*/model/config.json"))), path / "rate-…/model/config.json")
        remedy = f"repeat its command to finish it, or name one of its runs, such as {example.parents[1]}"
        raise MissingInput(path, "is an unfinished comparison of learning rates", remedy)
    return chosen


def _refuse_several_runs(path: Path) -> None:
    """Raises MissingInput for a directory with the runs of several folds, seeds or tasks."""
    for pattern, of, more in (
        (
            "fold-*",
            "folds, each trained on a part of the rows",
            "; albert finetune trains on all rows",
        ),
        ("seed-*", "seeds", ""),
        ("*/seed-*", "tasks", ""),
    ):
        models = sorted(path.glob(f"{pattern}/model/config.json"))
        if models:
            raise MissingInput(
                path, f"holds the runs of several {of}", f"name one, such as {models[0].parents[1]}{more}"
            )


def _refuse_other_models(path: Path) -> None:
    """Refuse a directory without config.json that holds a model of another kind, and name it.

    Raises:
        InvalidConfiguration: modules of sentence-transformers of which the first is no Transformer.
        MissingInput: an adapter, or a model for llama.cpp.
    """
    if (path / MODULES_NAME).is_file():
        types = [str(module.get("type", "")).rpartition(".")[2] for module in read_modules(path)]
        if types and types[0] != "Transformer":
            why = f"begins with a module {types[0]!r}, which is not supported"
            raise InvalidConfiguration(path / MODULES_NAME, why, "an encoder, Transformer, is expected")
    adapter = path / "adapter_config.json"
    if adapter.is_file():
        base = read_json_object(adapter).get("base_model_name_or_path") or "another model"
        remedy = "merge the two with peft (merge_and_unload, then save_pretrained), and name that directory"
        raise MissingInput(path, f"holds an adapter for {base}, not a model", remedy)
    if any(path.glob("*.gguf")):
        raise MissingInput(path, "holds a GGUF file, for llama.cpp", "name the directory that it was made from")


def transformer_folder(path: Path) -> Path | None:
    """The folder of the encoder in a directory of sentence-transformers that keeps it apart, such as `0_Transformer`.

    None if the encoder is in the directory itself, or there is no `modules.json`.

    Raises:
        DamagedData: `modules.json` is not a list of modules.
    """
    if not (path / MODULES_NAME).is_file():
        return None
    for module in read_modules(path):
        if str(module.get("type", "")).endswith(".Transformer"):
            name = str(module.get("path") or "")
            has_config = bool(name) and Path(name).name == name and (path / name / "config.json").is_file()
            return path / name if has_config else None
    return None


def root_of(directory: Path) -> Path:
    """The directory of sentence-transformers whose `modules.json` names this folder as its encoder, else itself."""
    directory = directory.absolute()
    if not (directory / MODULES_NAME).is_file() and transformer_folder(directory.parent) == directory:
        return directory.parent
    return directory


def read_modules(directory: Path) -> list[dict[str, Any]]:
    """The entries of `modules.json`; each has the path of its folder inside the directory."""
    path = directory / MODULES_NAME
    try:
        modules = json.loads(read_input(path))
    except (ValueError, RecursionError) as error:
        raise DamagedData(path, f"is not JSON ({error})") from error
    if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
        raise DamagedData(path, "is not a list of modules")
    return modules


def _holds_tensorflow(path: Path) -> bool:
    """Return whether the path is a TensorFlow checkpoint; torch is imported only if a file's name looks like one."""
    files = [*path.glob("*"), *path.glob("*/*"), *path.glob("*/*/*")] if path.is_dir() else [*path.parent.glob("*")]
    if not any("ckpt" in file.name or file.suffix in (".index", ".h5", ".hdf5") for file in files):
        return False
    return bool(lazy_import("albert.checkpoints.tensorflow").holds_tensorflow(path))


def copy_examples(source: Path, directory: Path) -> None:
    """Copy the example rows of a model, if it has any, to a model derived from it."""
    if (source / EXAMPLES_NAME).is_file():
        shutil.copyfile(source / EXAMPLES_NAME, directory / EXAMPLES_NAME)


def copy_task(source: Path, directory: Path) -> None:
    """Copy the task that a run saved beside its model, with the names of the columns, to a model derived from it.

    The copy has the names of the run's tables without their folders, because a model may be passed on.
    """
    for folder in (source, source.parent):
        if (folder / TASK_NAME).is_file():
            task = read_versioned(folder / TASK_NAME)
            files = {
                name: Path(task[name]).name for name in ("train", "dev", "test") if isinstance(task.get(name), str)
            }
            save_versioned(directory / TASK_NAME, {**task, **files})
            return


_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst", ".zip", ".7z", ".rar")


def refuse_archive(path: Path) -> None:
    """Raise MissingInput for a file with the name of an archive."""
    if not path.name.lower().endswith(_ARCHIVES) or not path.is_file():
        return
    tool = {".zip": "unzip", ".7z": "7z x", ".rar": "unrar x"}.get(path.suffix.lower(), "tar -xf")
    remedy = f"unpack it ({tool} {shlex.quote(str(path))}), and give the directory"
    raise MissingInput(path, "is an archive; a model is a directory", remedy)


def _to_convert(path: Path, what: str) -> MissingInput:
    remedy = f"albert convert {shlex.quote(str(path))} --output MODEL"
    return MissingInput(path, f"{what}; a model is a directory with config.json", remedy)


def _hub_errors() -> tuple[type[Exception], ...]:
    errors = lazy_import("huggingface_hub.errors")
    return errors.HfHubHTTPError, errors.HFValidationError, errors.HTTPError, OSError


def _reason(error: Exception, revision: str | None) -> str:
    errors = lazy_import("huggingface_hub.errors")
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
    """A model that was uploaded, or would be.

    Args:
        files: the names and sizes in bytes of its files.
        examples: the rows in its `examples.json`, which everyone sees who sees the model.
        uploaded: whether it was; a dry run uploads nothing.
    """

    repository: str
    address: str
    files: dict[str, int]
    examples: tuple[dict[str, Any], ...] = ()
    uploaded: bool = True


def push_model(
    path_or_id: str | Path,
    repository: str,
    *,
    private: bool = False,
    replace: bool = False,
    dry_run: bool = False,
) -> PushedModel:
    """Upload a model with its card to the Hub; only the files of `HUB_FILES`.

    Args:
        repository: USER/NAME.
        private: create a private repository; with `replace` make an existing one private.
        replace: write into an existing repository, and delete its model files that this model does not have.
        dry_run: check the model and list its files, without a token or a connection.

    Raises:
        UsageError: the name is not USER/NAME.
        MissingInput, DamagedData: there is no such model, or its files do not match its manifest.
        Unavailable: no token, no write access, an existing repository, or no connection.
    """
    if repository.count("/") != 1 or not _HUB_ID.fullmatch(repository):
        raise UsageError(repository, "is not the name of a repository", "give USER/NAME")
    directory = root_of(find_model(path_or_id))
    found = {file for pattern in HUB_FILES for file in directory.glob(pattern) if file.is_file()}
    files = {file.relative_to(directory).as_posix(): file.stat().st_size for file in sorted(found)}
    encoder = transformer_folder(directory)
    config = "config.json" if encoder is None else f"{encoder.name}/config.json"
    if config not in files or not any(name.endswith(".safetensors") for name in files):
        if any(directory.glob("*.onnx")):
            why = "holds a model in ONNX, push uploads models that albert opens"
            remedy = shlex.join(["hf", "upload", repository, str(directory)])
            raise MissingInput(directory, why, f"push the model that it was exported from, or upload it: {remedy}")
        why = "is not a model: it lacks config.json or weights"
        raise MissingInput(directory, why, "name a model directory or a run")
    manifest = None
    if MANIFEST_NAME in files:
        verify_directory(directory)
        manifest = manifest_bytes({name: entry for name, entry in read_manifest(directory).items() if name in files})
        files[MANIFEST_NAME] = len(manifest)
    pushed = PushedModel(
        repository, f"{constants.ENDPOINT}/{repository}", files, tuple(example_rows(directory)), uploaded=not dry_run
    )
    if dry_run:
        return pushed
    if constants.HF_HUB_OFFLINE:
        raise Unavailable(repository, "cannot be written while HF_HUB_OFFLINE is set", "unset it")
    if huggingface_hub.get_token() is None:
        raise Unavailable(repository, "there is no token for the Hub", "set HF_TOKEN, or run: hf auth login")
    hub = huggingface_hub.HfApi()
    try:
        hub.create_repo(repository, private=private, exist_ok=replace)
        if private and replace:  # `create_repo` leaves an existing repository as it is
            hub.update_repo_settings(repository, private=True)
        with _uploaded_folder(directory, files, manifest) as folder:
            hub.upload_folder(
                repo_id=repository,
                folder_path=folder,
                delete_patterns=[*HUB_FILES, TASK_NAME] if replace else None,
                commit_message="Upload an ALBERT model",
            )
    except _hub_errors() as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status in _REFUSALS:
            raise Unavailable(repository, *_REFUSALS[status]) from error
        why = f"the Hub cannot be written to ({_cause(error)})"
        raise Unavailable(repository, why, "repeat the command") from error
    return pushed


@contextmanager
def _uploaded_folder(directory: Path, files: Iterable[str], manifest: bytes | None) -> Iterator[Path]:
    """A temporary folder with links to the files that are uploaded, and a manifest of no others."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file in files:
            (folder / file).parent.mkdir(exist_ok=True)
            (folder / file).symlink_to((directory / file).absolute())
        if manifest is not None:
            (folder / MANIFEST_NAME).unlink()
            (folder / MANIFEST_NAME).write_bytes(manifest)
        yield folder


def example_rows(directory: Path) -> list[dict[str, str]]:
    """The rows of texts in a model's `examples.json`, if it has any."""
    path = directory / EXAMPLES_NAME
    rows = read_json_object(path).get("examples") if path.is_file() else None
    valid = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return [row for row in valid if all(isinstance(text, str) for text in row.values())]


def first_example(directory: Path) -> dict[str, str]:
    """The first row in a model's `examples.json`, for cards; empty without one."""
    return next(iter(example_rows(directory)), {})
