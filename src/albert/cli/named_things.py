"""What a name on the command line stands for: a preset, a model, a prepared corpus or a tokenizer."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from albert.checkpoints.hub import find_model
from albert.checkpoints.model_directory import CONFIG_NAME, read_config
from albert.model.config import OTHER_NAMES, PRESETS, AlbertConfig, preset_name
from albert.runtime.errors import AlbertError, did_you_mean
from albert.text.shards import DESCRIPTION_NAME
from albert.text.tokenizer_loading import vocabulary_file


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a name stands for.

    Args:
        kind: what it is.
        name: the preset's own name, or the name as it was typed.
        directory: where it is, of all but presets.
        config: the architecture, of presets and models.
    """

    kind: Literal["preset", "model", "corpus", "tokenizer"]
    name: str
    directory: Path = Path()
    config: AlbertConfig | None = None


def find(what: str, revision: str | None = None) -> Found:
    """What a name stands for: what is here goes before a preset, a preset before a repository of the Hub.

    Raises:
        MissingInput, Unavailable: it is nothing.
        InvalidConfiguration: it is a model, but not an ALBERT.
    """
    here = Path(what)
    preset = None if here.is_dir() else preset_name(what)
    if preset is not None:
        return Found(kind="preset", name=preset, config=PRESETS[preset])
    if (here / DESCRIPTION_NAME).is_file():
        return Found(kind="corpus", name=what, directory=here)
    try:
        directory = find_model(what, revision)
    except AlbertError as error:
        if here.exists():
            raise
        nearest = did_you_mean(what, [*PRESETS, *OTHER_NAMES])
        remedy = nearest if nearest.startswith("did") else "`albert info` lists the presets"
        raise type(error)(error.subject, f"is no preset; {error.why}", remedy) from error
    if not (directory / CONFIG_NAME).is_file() and vocabulary_file(directory).is_file():
        return Found(kind="tokenizer", name=what, directory=directory)
    return Found(kind="model", name=what, directory=directory, config=read_config(directory)[0])
