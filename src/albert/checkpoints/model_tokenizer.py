"""The tokenizer of a model: the one it was trained with, or none."""

from albert.checkpoints.model_directory import FINGERPRINT_KEY, OpenedModel
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
    refuse_foreign_tokenizer(tokenizer, opened)
    return tokenizer


def refuse_foreign_tokenizer(tokenizer: Tokenizer, opened: OpenedModel) -> None:
    """Check that a tokenizer is the one that a model was trained with.

    Raises:
        DamagedData: another fingerprint than `config.json` has, or more pieces than the model has embeddings.
    """
    place = vocabulary_file(opened.directory)
    trained_with = opened.extra.get(FINGERPRINT_KEY)
    if trained_with is not None and not tokenizer.answers_to(str(trained_with)):
        found, wanted = tokenizer.fingerprint[:12], str(trained_with)[:12]
        why = f"has fingerprint {found}, the model was trained with {wanted}"
        raise DamagedData(place, why, "put the tokenizer of the training run beside the model")
    if tokenizer.vocab_size > opened.config.vocab_size:
        why = f"has {tokenizer.vocab_size} pieces, the model has {opened.config.vocab_size} embeddings"
        raise DamagedData(place, why, "use the tokenizer that the model was trained with")
