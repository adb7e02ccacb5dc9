"""Where the files of a TensorFlow checkpoint are, in all the ways in which people have them.

A release (`model.ckpt-best.*`, `albert_config.json`, `30k-clean.model` or `vocab_chinese.txt`), a TF-Hub module or
SavedModel (`variables/`, `assets/`), a training run (`checkpoint` names the newest of many), or one prefix.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from albert.checkpoints.tensorflow.leveldb_table import is_table
from albert.checkpoints.tensorflow.tensor_bundle import INDEX_SUFFIX
from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.input_files import open_input

STATE_NAME = "checkpoint"
CONFIG_PATTERNS = ("*albert_config*.json",)
TOKENIZER_PATTERNS = ("*.model", "vocab*.txt")
_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_NEWEST = re.compile(r'^model_checkpoint_path: *"(.+)"\s*$', re.MULTILINE)
_KERAS = b"\x89HDF\r\n\x1a\n"


@dataclass(frozen=True)
class CheckpointFiles:
    """What was found.

    Args:
        prefix: what the names of the tensors' files begin with.
        config: `albert_config.json`, when there is one.
        tokenizer: a SentencePiece model or a WordPiece vocabulary, when there is one.
        steps: how many checkpoints lie there; the state file chose this one when there are several.
    """

    prefix: Path
    config: Path | None
    tokenizer: Path | None
    steps: int = 1


def holds_tensorflow(path: Path) -> bool:
    """Whether `find_checkpoint` has something to look at: a checkpoint, a part of one, or one of an old format."""
    if path.is_dir():
        return bool(_prefixes(path)) or bool(_old_checkpoints(path))
    return _index_of(path).is_file() or (path.is_file() and _is_old(path))


def find_checkpoint(path: Path, config: Path | None = None, tokenizer: Path | None = None) -> CheckpointFiles:
    """The files of the checkpoint that a path means.

    Args:
        path: a directory, a prefix, or one file of a checkpoint.
        config: the `albert_config.json` to take, wherever it is.
        tokenizer: the vocabulary to take.

    Raises:
        MissingInput: no checkpoint there, or several and nothing that chooses.
        DamagedData: a checkpoint of a format that is not read here.
    """
    if path.is_dir():
        prefix, steps = _in_directory(path)
    else:
        prefix, steps = _prefix_of(path), 1
    places = _places_beside(prefix, path)
    return CheckpointFiles(
        prefix,
        config if config is not None else _only(places, CONFIG_PATTERNS, "configurations", "--config"),
        tokenizer if tokenizer is not None else _only(places, TOKENIZER_PATTERNS, "vocabularies", "--tokenizer"),
        steps,
    )


def _in_directory(directory: Path) -> tuple[Path, int]:
    prefixes = _prefixes(directory)
    if not prefixes:
        for file in _old_checkpoints(directory):
            _refuse_old(file)
        raise MissingInput(directory, "holds no TensorFlow checkpoint", "it needs a file that ends with .index")
    if len(prefixes) == 1:
        return prefixes[0], 1
    chosen = _chosen_by_state_file(prefixes)
    if chosen is None:
        names = ", ".join(sorted(str(prefix.relative_to(directory)) for prefix in prefixes))
        raise MissingInput(directory, f"holds {len(prefixes)} checkpoints: {names}", "name one of them")
    return chosen, len(prefixes)


def _prefixes(directory: Path) -> list[Path]:
    """Of the checkpoints in a directory, in its `variables`, or in what an archive unpacked into it."""
    for pattern in ("*", "variables/*", "*/*", "*/variables/*"):
        found = [_without_part(file) for file in _visible(directory.glob(pattern + INDEX_SUFFIX))]
        if found:
            return sorted(found)
    return []


def _chosen_by_state_file(prefixes: Iterable[Path]) -> Path | None:
    """What the state file beside the checkpoints calls the newest; only its last name counts, for runs are moved."""
    for directory in {prefix.parent for prefix in prefixes}:
        state = directory / STATE_NAME
        if state.is_file() and (newest := _NEWEST.search(state.read_text(encoding="utf-8", errors="replace"))):
            name = re.split(r"[/\\]", newest[1])[-1]
            return next((prefix for prefix in prefixes if prefix == directory / name), None)
    return None


def _prefix_of(path: Path) -> Path:
    if _index_of(path).is_file():
        return _without_part(path)
    if path.is_file():
        _refuse_old(path)
    if path.exists():
        raise MissingInput(path, "is no part of a TensorFlow checkpoint", "name its directory, or its .index file")
    raise MissingInput(_index_of(path), "no such file")


def _without_part(path: Path) -> Path:
    return path.with_name(_PART.sub("", path.name))


def _index_of(path: Path) -> Path:
    prefix = _without_part(path)
    return prefix.with_name(prefix.name + INDEX_SUFFIX)


def _old_checkpoints(directory: Path) -> list[Path]:
    candidates = [*directory.glob("*ckpt*"), *directory.glob("*.h5"), *directory.glob("*.hdf5")]
    return sorted(file for file in _visible(candidates) if file.is_file() and _is_old(file))


def _is_old(file: Path) -> bool:
    return is_table(file) or _is_keras(file)


def _is_keras(file: Path) -> bool:
    with open_input(file) as stream:
        return stream.read(len(_KERAS)) == _KERAS


def _refuse_old(file: Path) -> None:
    if _is_keras(file):
        why = "is an HDF5 file of Keras, not a TensorFlow checkpoint"
        raise DamagedData(file, why, "take the .index and .data files of the release")
    if not _PART.search(file.name) and is_table(file):
        raise DamagedData(
            file,
            "is a checkpoint of TensorFlow's first format, which is not read here",
            "tf.compat.v1.train.Saver().save(...) of any TensorFlow since 0.12 writes the second one",
        )


def _places_beside(prefix: Path, asked: Path) -> list[Path]:
    """Directories where configuration and vocabulary may be, the nearest first."""
    here = prefix.parent
    places = [here, here / "assets"]
    if here.name == "variables" or here.parent == asked:
        places += [here.parent, here.parent / "assets"]
    return [place for place in places if place.is_dir()]


def _only(places: Iterable[Path], patterns: Iterable[str], what: str, flag: str) -> Path | None:
    for place in places:
        for pattern in patterns:
            found = sorted(file for file in _visible(place.glob(pattern)) if file.is_file())
            if len(found) > 1:
                names = ", ".join(file.name for file in found)
                raise MissingInput(place, f"holds {len(found)} {what}: {names}", f"choose with {flag}")
            if found:
                return found[0]
    return None


def _visible(files: Iterable[Path]) -> list[Path]:
    """Without the `._` files that archives of a Mac bring."""
    return [file for file in files if not file.name.startswith(".")]
