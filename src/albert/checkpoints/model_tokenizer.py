"""The tokenizer of a model: the one it was trained with, or none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albert.checkpoints.model_directory import FINGERPRINT_KEY, OpenedModel
from albert.model.config import AlbertConfig
from albert.runtime.errors import DamagedData
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_directory import load_tokenizer, vocabulary_file


def tokenizer_of(opened: OpenedModel) -> Tokenizer:
    """Load the tokenizer that lies beside an opened model.

    Raises:
        MissingInput: there is none.
        DamagedData: it is not the one the model was trained with.
    """
    tokenizer = load_tokenizer(opened.directory)
    refuse_foreign_tokenizer(tokenizer, opened.directory, opened.config, opened.extra)
    return tokenizer


def refuse_foreign_tokenizer(
    tokenizer: Tokenizer, directory: Path, config: AlbertConfig, extra: Mapping[str, Any]
) -> None:
    """Check that a tokenizer is the one that a model was trained with.

    Args:
        tokenizer: what lies beside the model.
        directory: the model's.
        config, extra: what `read_config` gives of it.

    Raises:
        DamagedData: another fingerprint than `config.json` has, or more pieces than the model has embeddings.
    """
    place = vocabulary_file(directory)
    trained_with = extra.get(FINGERPRINT_KEY)
    if trained_with is not None and not tokenizer.answers_to(str(trained_with)):
        found, wanted = tokenizer.fingerprint[:12], str(trained_with)[:12]
        why = f"has fingerprint {found}, the model was trained with {wanted}"
        raise DamagedData(place, why, "put the tokenizer of the training run beside the model")
    if tokenizer.vocab_size > config.vocab_size:
        why = f"has {tokenizer.vocab_size} pieces, the model has {config.vocab_size} embeddings"
        raise DamagedData(place, why, "use the tokenizer that the model was trained with")
