"""A tokenizer from its files, of whichever kind they are."""

from pathlib import Path

from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.strict_json import read_json_object
from albert.text.sentencepiece_tokenizer import SentencePieceTokenizer
from albert.text.tokenizer import CONFIG_NAME, JSON_NAME, MODEL_NAME, Tokenizer
from albert.text.tokenizer_json import model_from_tokenizer_json


def load_tokenizer(path: Path) -> Tokenizer:
    """Open `spiece.model` or `tokenizer.json`, or a directory that holds either; `spiece.model` goes first.

    `tokenizer_config.json` beside it is respected. A `tokenizer.json` that transformers wrote gives its ids.

    Raises:
        MissingInput: no such file.
        DamagedData: the file is not an ALBERT vocabulary.
        InvalidConfiguration: a setting of `tokenizer_config.json` is not one of ALBERT's.
    """
    file = vocabulary_file(path)
    config_file = file.parent / CONFIG_NAME
    config = read_json_object(config_file) if config_file.is_file() else {}
    flags = {"do_lower_case": True, "keep_accents": False}
    for name in flags:
        flags[name] = config.get(name, flags[name])
        if not isinstance(flags[name], bool):
            raise InvalidConfiguration(f"{config_file}: {name}", f"is {flags[name]!r}, true or false is expected")
    if file.suffix == ".json":
        model = model_from_tokenizer_json(file, config)
    else:
        try:
            model = file.read_bytes()
        except OSError as error:
            reason = error.strerror or "cannot be read"
            raise MissingInput(file, reason, "`albert tokenizer train` makes a vocabulary") from error
    return SentencePieceTokenizer(model, flags["do_lower_case"], flags["keep_accents"], str(file))


def vocabulary_file(path: Path) -> Path:
    """The file that `load_tokenizer` opens, whether or not it is there."""
    if not path.is_dir():
        return path
    model, description = path / MODEL_NAME, path / JSON_NAME
    return description if description.is_file() and not model.exists() else model
