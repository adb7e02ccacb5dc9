"""Initialising a model from a trained one of equal E, H and F: layers, positions, vocabulary, heads.

Pure functions of tensors under our names. Tensors that the trained model lacks keep their given initial values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from albert.model.sharing import sharing_plan
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import InvalidConfiguration
from albert.text.tokenizer import BLANK, Tokenizer

# --------------------------------------------------------------------------------------------------------------------
# Layers. Depth: layer i of n is initialised with layer ⌊i·k/n⌋ of k, so a deeper model repeats every layer in place and
# a shallower one takes evenly spaced layers; layers of a group stay in their group, as ⌊⌊i·k/n⌋·G/k⌋ = ⌊i·G/n⌋. (Lan et
# al. 2019, App. A.1 warm-start each depth from the previous one; with all layers shared the order does not matter.)
# Sharing: a block that several layers use is initialised with the block that all of their origins use. If these use
# different blocks, it is an error: no single block computes the same, nor does an average.

_BLOCKS = {"attentions": "attention", "feed_forwards": "feed_forward"}
"""The encoder's lists of blocks, and their names in a layer application."""
_PREFIX = "albert.encoder."


def layer_origins(source: EncoderConfig, target: EncoderConfig, kept_layers: Sequence[int] | None = None) -> list[int]:
    """For every layer application of the target, the application of the source that initialises it.

    With `kept_layers` (from 1), these layers of the source, in order.
    """
    k = source.num_hidden_layers
    n = target.num_hidden_layers
    inner = target.inner_group_num
    if kept_layers is not None:
        return [(layer - 1) * inner + j for layer in kept_layers for j in range(inner)]
    if source.inner_group_num == inner:
        return [(layer * k // n) * inner + j for layer in range(n) for j in range(inner)]
    if k * source.inner_group_num == n * inner:
        return list(range(n * inner))
    why = f"is {source.inner_group_num} in the trained model and {inner} here, at another depth"
    raise InvalidConfiguration("inner_group_num", why, "change one of the two, or train from random weights")


def block_origins(
    source: EncoderConfig, target: EncoderConfig, blocks: str, kept_layers: Sequence[int] | None = None
) -> list[list[int]]:
    """For every attention or feed-forward block of the target, the source's blocks that its layers originate from."""
    before, after = ([getattr(layer, _BLOCKS[blocks]) for layer in sharing_plan(each)] for each in (source, target))
    origins: dict[int, dict[int, None]] = {}
    for block, origin in zip(after, layer_origins(source, target, kept_layers), strict=True):
        origins.setdefault(block, {})[before[origin]] = None
    return [list(origins[block]) for block in range(len(origins))]


def warm_start_layers(
    tensors: Mapping[str, Tensor],
    source: EncoderConfig,
    target: EncoderConfig,
    names: Sequence[str],
    kept_layers: Sequence[int] | None = None,
) -> dict[str, Tensor]:
    """The blocks of the target's encoder."""
    result: dict[str, Tensor] = {}
    for blocks in _BLOCKS:
        for block, origins in enumerate(block_origins(source, target, blocks, kept_layers)):
            prefix = f"{_PREFIX}{blocks}.{block}."
            for name in (name for name in names if name.startswith(prefix)):
                first, *others = (tensors[f"{_PREFIX}{blocks}.{o}.{name.removeprefix(prefix)}"] for o in origins)
                if not all(torch.equal(first, other) for other in others):
                    why = f"cannot become {_describe(target)}: layers that differ would have to be one"
                    remedy = "keep the trained model's sharing"
                    raise InvalidConfiguration(_describe(source), why, remedy)
                result[name] = first
    return result


def layers_note(source: EncoderConfig, target: EncoderConfig, kept_layers: Sequence[int] | None = None) -> str | None:
    """A note on a change of depth or sharing; None without a change."""
    if kept_layers is not None:
        return f"layers {', '.join(map(str, kept_layers))} of {source.num_hidden_layers} are kept"
    if _describe(source) == _describe(target):
        return None
    note = f"{_describe(source)} → {_describe(target)}"
    k = source.num_hidden_layers
    n = target.num_hidden_layers
    return note if k == n else f"{note} (layer i begins as layer ⌊i·{k}/{n}⌋)"


def _describe(config: EncoderConfig) -> str:
    words = f"{config.num_hidden_layers} layers with sharing {config.sharing}"
    if config.num_hidden_groups > 1:
        words += f" in {config.num_hidden_groups} groups"
    return words if config.inner_group_num == 1 else f"{words} of {config.inner_group_num} inner layers"


# --------------------------------------------------------------------------------------------------------------------
# Position embeddings for fewer positions than were trained, which are the first ones, or for more: row i of P trained
# ones is row i mod P, as in Longformer (Beltagy et al. 2020, §5), so the results for sequences of up to P tokens do not
# change.


def resize_positions(
    table: Float[Tensor, "positions E"], length: int, trained: int, extend: bool
) -> tuple[Float[Tensor, "length E"], str | None]:
    """A position table of `length` rows (P′) from one whose first `trained` rows (P) were trained, and a note on it.

    The trained rows are repeated if the table is too short, or if untrained rows are to be replaced (`extend`).
    """
    before = len(table)
    change = f"{len(table):,} → {length:,} positions"
    if length <= trained or (not extend and length <= before):
        return table[:length], None if length == before else f"{change}, the first ones"
    return table[torch.arange(length) % trained], f"{change}, {trained:,} trained ones repeated"


def trained_length(extra: Mapping[str, Any]) -> int | None:
    """The number of trained positions according to `config.json`; None if unknown."""
    # The max_sequence_length of a fine-tuned model is that of its task.
    key = "trained_positions" if "finetuning" in extra else "max_sequence_length"
    length = extra.get(key)
    if length is not None and (not isinstance(length, int) or length < 1):
        raise InvalidConfiguration(f"config.json: {key}", f"is {length!r}, a positive integer is expected")
    return length


# --------------------------------------------------------------------------------------------------------------------
# An embedding table for another vocabulary: pieces are matched by their text.
#
# Pieces of both vocabularies and special pieces of the same role keep their rows. A new piece gets the mean of the rows
# of the pieces into which the old tokenizer splits its text; inside words, pieces for the inside of words if it has
# them. A text that the old tokenizer does not know gets a random row.

_ROLES = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")


@dataclass(frozen=True)
class PieceOrigins:
    """The initial embedding of every piece of a vocabulary.

    Args:
        rows: for each piece the rows of the old table whose mean it gets; none: a random row.
        dropped: number of rows of the old table that no piece reuses.
    """

    rows: Sequence[Sequence[int]]
    reused: int
    averaged: int
    dropped: int

    @property
    def random(self) -> int:
        return len(self.rows) - self.reused - self.averaged

    def note(self, before: int) -> str | None:
        """A note on the change of vocabulary; None if every row is reused."""
        if self.reused == len(self.rows) and not self.dropped:
            return None
        return (
            f"{before:,} → {len(self.rows):,} pieces: {self.reused:,} reuse their embedding, "
            f"{self.averaged:,} get the mean of the old pieces of their text, "
            f"{self.random:,} are newly initialised; {self.dropped:,} old ones are dropped"
        )


def same_pieces(old_rows: int, pieces: int) -> PieceOrigins:
    """The origins for the same tokenizer: row by row."""
    reused = min(old_rows, pieces)
    rows = [(row,) if row < old_rows else () for row in range(pieces)]
    return PieceOrigins(rows, reused, 0, old_rows - reused)


def pieces_by_text(old: Tokenizer, old_rows: int, new: Tokenizer) -> PieceOrigins:
    """The origins for another tokenizer."""
    old_pieces = _by_text(old)
    rows: list[Sequence[int]] = [()] * new.vocab_size
    for role in _ROLES:
        rows[getattr(new, role)] = (getattr(old, role),)
    reused = len(_ROLES)
    averaged = 0
    for (text, begins_word), number in _by_text(new).items():
        if (text, begins_word) in old_pieces:
            rows[number] = (old_pieces[text, begins_word],)
            reused += 1
        else:
            rows[number] = _split(text, begins_word, old, old_pieces)
            averaged += bool(rows[number])
    return PieceOrigins(rows, reused, averaged, old_rows - reused)


def rows_of_pieces(
    table: Float[Tensor, "old width"], initial: Float[Tensor, "new width"], origins: PieceOrigins
) -> Float[Tensor, "new width"]:
    """The table of the new vocabulary."""
    counts = torch.tensor([len(rows) for rows in origins.rows])
    numbers = torch.tensor([row for rows in origins.rows for row in rows])
    means = functional.embedding_bag(numbers, table, counts.cumsum(0) - counts, mode="mean")
    return torch.where(counts[:, None] > 0, means, initial)


def _by_text(tokenizer: Tokenizer) -> dict[tuple[str, bool], int]:
    """(text, whether it begins a word) -> piece, without special pieces."""
    pieces = (number for number in range(tokenizer.vocab_size) if number not in tokenizer.special_ids)
    return {tokenizer.surface(number): number for number in pieces}


def _split(text: str, begins_word: bool, old: Tokenizer, old_pieces: dict[tuple[str, bool], int]) -> list[int]:
    """The pieces into which the old tokenizer splits a text, without unknown pieces and single blanks."""
    pieces = old.encode(text)
    if pieces and not begins_word:
        inside = old_pieces.get((old.surface(pieces[0])[0], False))
        pieces[0] = pieces[0] if inside is None else inside
    return [piece for piece in pieces if piece != old.unk_id and old.piece(piece) != BLANK]


_EMBEDDINGS = "albert.embeddings."
_WORDS = _EMBEDDINGS + "word_embeddings.weight"
_POSITIONS = _EMBEDDINGS + "position_embeddings.weight"
_TYPES = _EMBEDDINGS + "token_type_embeddings.weight"
_PROJECTION = (_EMBEDDINGS + "projection.weight", _EMBEDDINGS + "projection.bias")
_DECODER_BIAS = "predictions.bias"
_WIDTHS = ("embedding_size", "hidden_size", "intermediate_size")
_SETTINGS = {
    **dict.fromkeys(
        ("hidden_act", "num_attention_heads", "layer_norm_eps"), " (the same weights compute another function)"
    ),
    "hidden_dropout_prob": "",
    "attention_probs_dropout_prob": "",
}
"""Fields that change no tensor, with a note for users."""


@dataclass(frozen=True)
class WarmStartResult:
    """The target's tensors, and which of them were drawn.

    Args:
        trained_positions: positions that were trained, or made from trained ones.
    """

    tensors: dict[str, Tensor]
    drawn: tuple[str, ...]
    unused: tuple[str, ...]
    trained_positions: int
    notes: tuple[str, ...]


def warm_start(
    tensors: Mapping[str, Tensor],
    source: EncoderConfig,
    initial: Mapping[str, Tensor],
    target: EncoderConfig,
    *,
    origins: PieceOrigins | None = None,
    extend_positions: bool = False,
    trained_positions: int | None = None,
    kept_layers: Sequence[int] | None = None,
) -> WarmStartResult:
    """The target's tensors, initialised from the source's.

    With equal depth, heads and activation, a change of sharing does not change the outputs. Tiled positions and pieces
    that keep their embedding have the same vectors.

    Args:
        tensors: of the trained model, with any head; names begin with `albert.` except those of the head.
        origins: the origins of the target's pieces; None: the same tokenizer.
        extend_positions: whether untrained positions of the source are replaced by copies of the trained ones.
        trained_positions: trained positions of the source; None: all.
        kept_layers: the source's layers that the target has, from 1; None: evenly spaced ones.
    """
    require_equal_widths(source, target)
    trained = min(trained_positions or source.max_position_embeddings, source.max_position_embeddings)
    positions = target.max_position_embeddings
    origins = origins or same_pieces(source.vocab_size, target.vocab_size)
    result = warm_start_layers(tensors, source, target, list(initial), kept_layers)
    result |= _projection(tensors, source, target)
    result[_WORDS] = rows_of_pieces(tensors[_WORDS], initial[_WORDS], origins)
    result[_POSITIONS], resized = resize_positions(tensors[_POSITIONS], positions, trained, extend_positions)
    new_types = initial[_TYPES][len(tensors[_TYPES]) :]
    if target.match_embedding:  # as large as the words that it is added to
        new_types = new_types * (tensors[_WORDS].std() / target.initializer_range)
    result[_TYPES] = torch.cat((tensors[_TYPES], new_types))[: target.type_vocab_size]
    if _DECODER_BIAS in tensors and _DECODER_BIAS in initial:
        columns = (tensors[_DECODER_BIAS][:, None], initial[_DECODER_BIAS][:, None])
        result[_DECODER_BIAS] = rows_of_pieces(*columns, origins)[:, 0]
    result |= {name: tensors[name] for name in initial if name not in result and name in tensors}
    drawn = tuple(name for name in initial if name not in result)
    extended = positions > source.max_position_embeddings or extend_positions
    layers = layers_note(source, target, kept_layers)
    notes = (layers, origins.note(source.vocab_size), resized, *_settings_notes(source, target))
    return WarmStartResult(
        tensors={name: result.get(name, value).clone() for name, value in initial.items()},
        drawn=drawn,
        unused=tuple(name for name in tensors if name not in initial and not name.startswith("albert.")),
        trained_positions=positions if extended else min(positions, trained),
        notes=tuple(note for note in notes if note is not None),
    )


def require_equal_widths(source: EncoderConfig, target: EncoderConfig) -> None:
    """Refuse another embedding, hidden or intermediate size."""
    for name in _WIDTHS:
        before = getattr(source, name)
        after = getattr(target, name)
        if before != after:
            why = f"is {before} in the trained model and {after} here: its matrices have another shape"
            raise InvalidConfiguration(name, why, f"keep {before}, or train from random weights")


def _projection(tensors: Mapping[str, Tensor], source: EncoderConfig, target: EncoderConfig) -> dict[str, Tensor]:
    """The map from E to H; an identity if only the target has one."""
    weight, bias = _PROJECTION
    if source.projects_embeddings == target.projects_embeddings:
        return {name: tensors[name] for name in _PROJECTION if name in tensors}
    width = target.hidden_size
    identity = torch.eye(width, dtype=tensors[_WORDS].dtype)
    zero = torch.zeros(width, dtype=tensors[_WORDS].dtype)
    if target.projects_embeddings:
        return {weight: identity, bias: zero}
    if not (torch.equal(tensors[weight], identity) and torch.equal(tensors[bias], zero)):
        why = "is false, but the trained model's map from E to H is not the identity"
        raise InvalidConfiguration("embedding_projection", why, "set it to true")
    return {}


def _settings_notes(source: EncoderConfig, target: EncoderConfig) -> list[str]:
    pairs = {name: (getattr(source, name), getattr(target, name)) for name in _SETTINGS}
    notes = [
        f"{name} {before} → {after}{_SETTINGS[name]}" for name, (before, after) in pairs.items() if before != after
    ]
    if target.match_embedding and not source.match_embedding:
        notes.append("a new embedding marks the tokens that occur in the other segment (match_embedding)")
    elif source.type_vocab_size != target.type_vocab_size:
        notes.append(f"{source.type_vocab_size} → {target.type_vocab_size} token types")
    return notes
