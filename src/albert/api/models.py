"""Opening models from Python: to be asked, or as a module of PyTorch for a loop of one's own."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
from torch import nn

from albert.checkpoints.huggingface import Kind
from albert.checkpoints.model_directory import open_model as open_directory
from albert.checkpoints.model_directory import tokenizer_of
from albert.inference.predictor import Predictor
from albert.inference.tasks import encode_texts
from albert.model.packing import PackedSequences
from albert.model.packing import pack as pack_sequences
from albert.runtime.errors import InvalidConfiguration, UsageError, did_you_mean, without_inner_frames
from albert.text.tokenizer import Tokenizer

load = without_inner_frames(Predictor.open)
for _name, _method in [*vars(Predictor).items()]:  # what a loaded model is asked, too
    if callable(_method) and not _name.startswith("_"):
        setattr(Predictor, _name, without_inner_frames(_method))


@without_inner_frames
def open_model(
    model: str | os.PathLike[str],
    kind: Kind = "encoder",
    num_labels: int | None = None,
    *,
    revision: str | None = None,
    new_head: bool = False,
    overrides: Mapping[str, Any] | None = None,
) -> tuple[nn.Module, Tokenizer]:
    """A model as a module of PyTorch, and its tokenizer, for a training loop of one's own.

    The module takes what `albert.pack` gives. It is in evaluation mode, in fp32, on the CPU; `train()` and `to()`
    change that.

    Args:
        model: a model directory, a run, a Hub id, or `tiny`.
        kind: the head that is wanted: "classification" (one number a label and sequence), "token_classification" (a
            label and token), "multiple_choice" (one a sequence), "question_answering", "masked_lm", "pretraining", or
            "encoder", the states alone (float [tokens, H]). A head that the model lacks is drawn at random.
        num_labels: outputs of a (token) classification head; as many as the model has when not set.
        revision: a branch, tag or commit, when it is a Hub id.
        new_head: draw the head anew in any case.
        overrides: fields of the configuration to set anew, `{"hidden_dropout_prob": 0.1}` say.

    Raises:
        MissingInput, Unavailable, DamagedData: the model is missing, cannot be downloaded, or is damaged.
        InvalidConfiguration: a shape or a setting does not fit, or there is no such kind.
    """
    if kind not in (kinds := get_args(Kind)):
        raise InvalidConfiguration("albert.open_model: kind", f"{kind!r} is not a choice", did_you_mean(kind, kinds))
    opened = open_directory(
        os.fspath(model), kind, num_labels, revision=revision, new_head=new_head, overrides=overrides
    )
    return opened.model, tokenizer_of(opened)


@without_inner_frames
def pack(
    tokenizer: Tokenizer,
    texts: Sequence[str],
    pairs: Sequence[str] | None = None,
    *,
    max_length: int = 512,
    device: str | torch.device = "cpu",
) -> PackedSequences:
    """Texts as the batch that a model takes: encoded, with [CLS] and [SEP], one after the other, without padding.

    Args:
        tokenizer: the model's.
        texts: one or more; a text that is too long is cut at its end, of a pair the longer one first.
        pairs: a second text for each.
        max_length: tokens of a sequence at most, special ones included.
        device: where the batch is to lie.

    Raises:
        UsageError: no texts, or another number of pairs; one text in place of a list.
        InvalidConfiguration: `max_length` leaves no room for text.
    """
    if isinstance(texts, str) or isinstance(pairs, str):
        raise UsageError("albert.pack", "takes a list of texts, one text is given", "put it in a list")
    if not texts or (pairs is not None and len(pairs) != len(texts)):
        why = "there are no texts" if not texts else f"there are {len(texts)} texts and {len(pairs or ())} pairs"
        raise UsageError("albert.pack", why)
    parts = (texts,) if pairs is None else (texts, pairs)
    if max_length < 1 + 2 * len(parts):
        raise InvalidConfiguration("max_length", f"{max_length} leaves no room for text", "use a larger value")
    encoded = encode_texts(tokenizer, parts, max_length)
    return pack_sequences(encoded.ids, encoded.token_types).to(torch.device(device))
