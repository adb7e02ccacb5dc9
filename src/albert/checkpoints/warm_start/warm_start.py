"""A trained model begins another: weights move between two configurations of equal E, H and F.

Pure functions of tensors by our names. What the trained model does not have keeps the initial value it is given, so
that nothing is drawn here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from albert.checkpoints.warm_start.warm_start_layers import layers_note, warm_start_layers
from albert.checkpoints.warm_start.warm_start_positions import positions_note, resize_positions
from albert.checkpoints.warm_start.warm_start_vocabulary import PieceOrigins, rows_of_pieces, same_pieces
from albert.model.config import AlbertConfig, Extension
from albert.runtime.errors import InvalidConfiguration

_EMBEDDINGS = "albert.embeddings."
_WORDS = _EMBEDDINGS + "word_embeddings.weight"
_POSITIONS = _EMBEDDINGS + "position_embeddings.weight"
_TYPES = _EMBEDDINGS + "token_type_embeddings.weight"
_PROJECTION = (_EMBEDDINGS + "projection.weight", _EMBEDDINGS + "projection.bias")
_DECODER_BIAS = "predictions.bias"
_WIDTHS = ("embedding_size", "hidden_size", "intermediate_size")
_SETTINGS = {
    "hidden_act": "the same weights compute another function",
    "num_attention_heads": "the same weights compute another function",
    "layer_norm_eps": "the same weights compute another function",
    "attention_window": "what fits into the narrower window is computed as before",
    "hidden_dropout_prob": "",
    "attention_probs_dropout_prob": "",
}
"""Fields that change no tensor, and what has to be known about them."""


@dataclass(frozen=True)
class WarmStarted:
    """What became of the weights.

    Args:
        tensors: the target's, all of them.
        drawn: names of those that the source does not have: they are the initial values given.
        unused: names of the source's that the target has no place for.
        trained_positions: positions that training reached, or that were made of such.
        notes: every change, in words.
    """

    tensors: dict[str, Tensor]
    drawn: tuple[str, ...]
    unused: tuple[str, ...]
    trained_positions: int
    notes: tuple[str, ...]


def warm_start(
    tensors: Mapping[str, Tensor],
    source: AlbertConfig,
    initial: Mapping[str, Tensor],
    target: AlbertConfig,
    *,
    origins: PieceOrigins | None = None,
    extend_positions: Extension | None = None,
    trained_positions: int | None = None,
) -> WarmStarted:
    """The target's tensors, made of the source's.

    What stays exact: with equal depth, heads and activation, every change of sharing that is possible gives the same
    outputs. Positions that are tiled, and pieces that keep their embedding, give the same vectors.

    Args:
        tensors: of the trained model, with any head; names begin with `albert.` but for the head's.
        source: its architecture.
        initial: the target as it would be without a warm start.
        target: the architecture wanted.
        origins: what the target's pieces begin as; None: the tokenizer stays.
        extend_positions: how positions beyond the trained ones are made; None: tiled where the source has none.
        trained_positions: positions that the source's training reached; None: all.

    Raises:
        InvalidConfiguration: E, H or F differ, layers that differ would have to become one, or an E→H map would
            have to vanish.
    """
    refuse_other_widths(source, target)
    trained = min(trained_positions or source.max_position_embeddings, source.max_position_embeddings)
    positions = target.max_position_embeddings
    origins = origins or same_pieces(source.vocab_size, target.vocab_size)
    made = warm_start_layers(tensors, source, target, list(initial)) | _projection(tensors, source, target)
    made[_WORDS] = rows_of_pieces(tensors[_WORDS], initial[_WORDS], origins)
    made[_POSITIONS] = resize_positions(tensors[_POSITIONS], positions, trained, extend_positions)
    made[_TYPES] = torch.cat((tensors[_TYPES], initial[_TYPES][len(tensors[_TYPES]) :]))[: target.type_vocab_size]
    if _DECODER_BIAS in tensors and _DECODER_BIAS in initial:
        columns = (tensors[_DECODER_BIAS][:, None], initial[_DECODER_BIAS][:, None])
        made[_DECODER_BIAS] = rows_of_pieces(*columns, origins)[:, 0]
    for name in initial:
        if name not in made and name in tensors:
            made[name] = tensors[name]
    drawn = tuple(name for name in initial if name not in made)
    extended = positions > source.max_position_embeddings or extend_positions is not None
    notes = (
        layers_note(source, target),
        origins.note(source.vocab_size),
        positions_note(source.max_position_embeddings, positions, trained, extend_positions),
        *_settings_notes(source, target),
    )
    return WarmStarted(
        tensors={name: made.get(name, value).clone() for name, value in initial.items()},
        drawn=drawn,
        unused=tuple(name for name in tensors if name not in initial and not name.startswith("albert.")),
        trained_positions=positions if extended else min(positions, trained),
        notes=tuple(note for note in notes if note is not None),
    )


def refuse_other_widths(source: AlbertConfig, target: AlbertConfig) -> None:
    """Check that weights can move at all.

    Raises:
        InvalidConfiguration: E, H or F differ.
    """
    for name in _WIDTHS:
        before, wanted = getattr(source, name), getattr(target, name)
        if before != wanted:
            why = f"is {before} in the trained model and {wanted} here: its matrices have another shape"
            raise InvalidConfiguration(name, why, f"keep {before}, or train from random weights")


def _projection(tensors: Mapping[str, Tensor], source: AlbertConfig, target: AlbertConfig) -> dict[str, Tensor]:
    """The map from E to H: an identity where only the target has one."""
    weight, bias = _PROJECTION
    if source.projects_embeddings == target.projects_embeddings:
        return {name: tensors[name] for name in _PROJECTION if name in tensors}
    width = target.hidden_size
    identity, zero = torch.eye(width, dtype=tensors[_WORDS].dtype), torch.zeros(width, dtype=tensors[_WORDS].dtype)
    if target.projects_embeddings:
        return {weight: identity, bias: zero}
    if not (torch.equal(tensors[weight], identity) and torch.equal(tensors[bias], zero)):
        why = "is off here, and the trained model's map from E to H is not the identity"
        raise InvalidConfiguration("embedding_projection", why, "set it to true")
    return {}


def _settings_notes(source: AlbertConfig, target: AlbertConfig) -> list[str]:
    notes = []
    for name, meaning in _SETTINGS.items():
        before, wanted = getattr(source, name), getattr(target, name)
        if before != wanted:
            notes.append(f"{name} {before} → {wanted}" + (f" ({meaning})" if meaning else ""))
    if source.type_vocab_size != target.type_vocab_size:
        notes.append(f"{source.type_vocab_size} → {target.type_vocab_size} token types")
    return notes
