"""Opening models from Python: for predictions, or as a PyTorch module for your own training loop."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
from torch import nn

from albert.checkpoints.hub import require_name
from albert.checkpoints.huggingface import Kind
from albert.checkpoints.model_directory import open_model as open_directory
from albert.checkpoints.model_directory import tokenizer_of
from albert.inference.predictor import Predictor
from albert.inference.texts import check_pairs, check_texts, note_cut
from albert.model.packing import PackedSequences
from albert.model.packing import pack as pack_sequences
from albert.runtime.errors import InvalidConfiguration, UsageError, did_you_mean, without_inner_frames
from albert.runtime.words import kind_of_value
from albert.tasks.examples import text_sequences
from albert.text.tokenizer import Tokenizer

load = without_inner_frames("albert.load")(Predictor.open)
_OF_THE_SERVER = ("replies", "replies_or_errors")  # which looks at errors itself
for _name, _method in [*vars(Predictor).items()]:  # errors of its methods, too, come without inner frames
    if callable(_method) and not _name.startswith("_") and _name not in _OF_THE_SERVER:
        setattr(Predictor, _name, without_inner_frames(_name)(_method))


@without_inner_frames("albert.open_model")
def open_model(
    model: str | os.PathLike[str],
    kind: Kind = "encoder",
    num_labels: int | None = None,
    *,
    new_head: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[nn.Module, Tokenizer]:
    """Open a model as a PyTorch module, with its tokenizer, for your own training loop.

    The module takes batches from `albert.pack`. It is in evaluation mode, in fp32, on the CPU; `train()` and `to()`
    change that.

    Args:
        model: a model directory, a run, a Hub id, or `tiny`.
        kind: the head: "classification" (output [sequences, labels]), "token_classification" ([tokens, labels]),
            "multiple_choice" ([sequences]), "question_answering", "masked_lm", "pretraining", or "encoder" for the
            hidden states alone (float [tokens, H]). A head that the model lacks is initialised at random.
        num_labels: outputs of a (token) classification head; as many as the model has when not set.
        new_head: initialise the head at random in any case.
        overrides: fields of the configuration to change, such as `{"hidden_dropout_prob": 0.1}`.

    Raises:
        MissingInput, Unavailable, DamagedData: the model is missing, cannot be downloaded, or is damaged.
        InvalidConfiguration: a shape or a setting does not fit, or the kind is unknown.
    """
    if kind not in (kinds := get_args(Kind)):
        raise InvalidConfiguration("albert.open_model: kind", f"{kind!r} is not a choice", did_you_mean(kind, kinds))
    require_name(model)
    opened = open_directory(os.fspath(model), kind, num_labels, new_head=new_head, overrides=overrides)
    return opened.model, tokenizer_of(opened)


@without_inner_frames("albert.pack")
def pack(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    max_length: int = 512,
    device: str | torch.device = "cpu",
) -> PackedSequences:
    """Encode texts as one batch for a model, with [CLS] and [SEP] and without padding.

    Args:
        tokenizer: the model's.
        texts: one or more; a text that is too long is cut at its end, of a pair the longer one first; a note counts
            them.
        pairs: a second text for each.
        max_length: maximum tokens of a sequence, including special ones.
        device: the device of the batch.

    Raises:
        UsageError: no texts, another number of pairs, or one text instead of a list.
        InvalidConfiguration: `max_length` leaves no room for text.
    """
    if not isinstance(tokenizer, Tokenizer):
        why = f"is {kind_of_value(tokenizer)}, a tokenizer is expected"
        raise UsageError("albert.pack: tokenizer", why, "give the one that albert.open_model returns")
    if pairs is None:
        check_texts("albert.pack: texts", texts)
    else:
        check_pairs("albert.pack: pairs", pairs, "texts", texts)
    if len(texts) == 0:
        raise UsageError("albert.pack", "there are no texts")
    parts = (texts,) if pairs is None else (texts, pairs)
    if max_length < 1 + 2 * len(parts):
        raise InvalidConfiguration("max_length", f"{max_length} leaves no room for text", "use a larger value")
    sequences, cut = text_sequences(list(zip(*parts, strict=True)), tokenizer, max_length)
    note_cut(cut.tolist(), max_length, "max_length can be as large as the model's max_position_embeddings")
    numbers = range(len(sequences))
    ids = [sequences.token_ids(number) for number in numbers]
    return pack_sequences(ids, [sequences.token_type_ids(number) for number in numbers]).to(device)
