"""Initialising a model from a trained one of equal E, H and F: layers, positions, vocabulary, heads.

Pure functions of tensors by our names. What the trained model does not have keeps the initial value it is given, so
that nothing is drawn here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from albert.model.config import AlbertConfig, Extension, LayerApplication, sharing_plan
from albert.runtime.errors import InvalidConfiguration
from albert.text.tokenizer import BLANK, Tokenizer
from albert.text.wordpiece import CONTINUATION_MARK, WordPieceTokenizer

# --------------------------------------------------------------------------------------------------------------------
# Which layer of a trained model each layer of another begins as.
#
# Depth: layer i of n takes layer ⌊i·k/n⌋ of k, so that a deeper model repeats every layer in place and a shallower
# one takes layers evenly spaced; layers of a group stay in their group, for ⌊⌊i·k/n⌋·G/k⌋ = ⌊i·G/n⌋. (Lan et al.
# 2019, App. A.1 warm-start each depth from the one before; with everything shared any order is the same.) Sharing:
# a block that several layers use begins as the one block that all of their origins use. Where their origins use
# different ones there is none: no single block computes what several do, and an average computes none of it.

ROOMS = {"attentions": "attention", "feed_forwards": "feed_forward"}
"""Where the encoder keeps its blocks, and what a layer application calls them."""
_PREFIX = "albert.encoder."


def layer_origins(source: AlbertConfig, target: AlbertConfig) -> list[int]:
    """For every layer application of the target, the application of the source that it begins as."""
    k, n = source.num_hidden_layers, target.num_hidden_layers
    inner = target.inner_group_num
    if source.inner_group_num == inner:
        return [(layer * k // n) * inner + j for layer in range(n) for j in range(inner)]
    if k * source.inner_group_num == n * inner:
        return list(range(n * inner))
    why = f"is {source.inner_group_num} in the trained model and {inner} here, at another depth"
    raise InvalidConfiguration("inner_group_num", why, "change one of the two, or train from random weights")


def block_origins(source: AlbertConfig, target: AlbertConfig, room: str) -> list[list[int]]:
    """For every block of one room of the target, the source's blocks that its layers begin as, each once."""

    def used(application: LayerApplication) -> int:
        return getattr(application, ROOMS[room])

    before, now = sharing_plan(source), sharing_plan(target)
    found: dict[int, dict[int, None]] = {}
    for application, origin in zip(now, layer_origins(source, target), strict=True):
        found.setdefault(used(application), {})[used(before[origin])] = None
    return [list(found[block]) for block in range(len(found))]


def warm_start_layers(
    tensors: Mapping[str, Tensor], source: AlbertConfig, target: AlbertConfig, names: Sequence[str]
) -> dict[str, Tensor]:
    """The blocks of the target's encoder."""
    made: dict[str, Tensor] = {}
    for room in ROOMS:
        for block, origins in enumerate(block_origins(source, target, room)):
            start = f"{_PREFIX}{room}.{block}."
            for name in (name for name in names if name.startswith(start)):
                first, *others = (tensors[f"{_PREFIX}{room}.{o}.{name.removeprefix(start)}"] for o in origins)
                if not all(torch.equal(first, other) for other in others):
                    why = f"cannot become {_described(target)}: layers that differ would have to be one"
                    remedy = "no shared layer computes what different ones do; keep the trained model's sharing"
                    raise InvalidConfiguration(_described(source), why, remedy)
                made[name] = first
    return made


def layers_note(source: AlbertConfig, target: AlbertConfig) -> str | None:
    """The change in words; None when there is none."""
    if _described(source) == _described(target):
        return None
    note = f"{_described(source)} → {_described(target)}"
    k, n = source.num_hidden_layers, target.num_hidden_layers
    return note if k == n else f"{note} (layer i begins as layer ⌊i·{k}/{n}⌋)"


def _described(config: AlbertConfig) -> str:
    words = f"{config.num_hidden_layers} layers with sharing {config.sharing}"
    if config.num_hidden_groups > 1:
        words += f" in {config.num_hidden_groups} groups"
    return words if config.inner_group_num == 1 else f"{words} of {config.inner_group_num} inner layers"


# --------------------------------------------------------------------------------------------------------------------
# Position embeddings for more positions than were trained, or for fewer.
#
# Fewer are the first ones. More are made of the trained ones in one of two ways, with P trained and P′ wanted:
#
# tile           row i is row i mod P: sequences no longer than P are computed as before (Beltagy et al. 2020, §5,
#                initialise Longformer so).
# interpolate    row i is read at i·(P − 1)/(P′ − 1) of the trained table, linearly between its two neighbours, as
#                vision transformers do (Dosovitskiy et al. 2021, §3.2): the order stays, short sequences change too.


def resize_positions(
    table: Float[Tensor, "positions E"], wanted: int, trained: int, how: Extension | None
) -> Float[Tensor, "wanted E"]:
    """A position table of another length.

    Args:
        wanted: rows of the result, P′.
        trained: rows that training ever reached, P; the rest of the table is what it was drawn as.
        how: how rows behind the trained ones are made; None: tiled where the table has none, else left as they are.
    """
    if how is None and wanted <= len(table):
        return table[:wanted]
    if wanted <= trained:
        return table[:wanted]
    if how == "interpolate":
        places = torch.arange(wanted, dtype=torch.float64) * (trained - 1) / (wanted - 1)
        left = places.floor().long().clamp(max=trained - 1)
        right = (left + 1).clamp(max=trained - 1)
        share = (places - left).to(table.dtype)[:, None]
        return torch.lerp(table[left], table[right], share)
    return table[torch.arange(wanted) % trained]


def positions_note(before: int, wanted: int, trained: int, how: Extension | None) -> str | None:
    """The change in words; None when there is none."""
    if wanted <= trained or (how is None and wanted <= before):
        return None if wanted == before else f"{before:,} → {wanted:,} positions, the first ones"
    return f"{before:,} → {wanted:,} positions, {trained:,} trained ones extended by {how or 'tile'}"


def trained_length(extra: Mapping[str, Any]) -> int | None:
    """The positions that a model's training reached; None where its `config.json` does not say.

    A pre-trained model says it as `max_sequence_length`. In a fine-tuned one that is the length of its task, and
    `trained_positions` is what it started with.
    """
    key = "trained_positions" if "finetuning" in extra else "max_sequence_length"
    kept = extra.get(key)
    if kept is not None and (not isinstance(kept, int) or kept < 1):
        raise InvalidConfiguration(f"config.json: {key}", f"is {kept!r}, a length is needed")
    return kept


# --------------------------------------------------------------------------------------------------------------------
# An embedding table for another vocabulary: pieces are matched by their text.
#
# A piece that both vocabularies have keeps its row, and so does each special piece by its role. A new piece begins
# as the mean of the rows of the pieces into which the old tokenizer cuts its text; a piece inside words begins as
# what the old tokenizer has for the inside of words where it has it. A text that the old tokenizer does not know is
# drawn at random.

_ROLES = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")


@dataclass(frozen=True)
class PieceOrigins:
    """What every piece of a vocabulary begins as.

    Args:
        rows: for each piece the rows of the old table of which it is the mean; none: it is drawn at random.
        left_out: rows of the old table that no piece keeps.
    """

    rows: Sequence[Sequence[int]]
    kept: int
    composed: int
    left_out: int

    @property
    def drawn(self) -> int:
        return len(self.rows) - self.kept - self.composed

    def note(self, before: int) -> str | None:
        """The change in words; None when every row stays where it was."""
        if self.kept == len(self.rows) and not self.left_out:
            return None
        return (
            f"{before:,} → {len(self.rows):,} pieces: {self.kept:,} keep their embedding, "
            f"{self.composed:,} begin as the mean of the pieces they were cut into, "
            f"{self.drawn:,} are drawn at random; {self.left_out:,} old ones are left out"
        )


def same_pieces(old_rows: int, pieces: int) -> PieceOrigins:
    """The origins where the tokenizer stays: row by row; rows without a piece are left out."""
    kept = min(old_rows, pieces)
    rows = [(row,) if row < old_rows else () for row in range(pieces)]
    return PieceOrigins(rows, kept, 0, old_rows - kept)


def pieces_by_text(old: Tokenizer, old_rows: int, new: Tokenizer) -> PieceOrigins:
    """The origins of another tokenizer's pieces."""
    known = _by_text(old)
    rows: list[Sequence[int]] = [()] * new.vocab_size
    for role in _ROLES:
        rows[getattr(new, role)] = (getattr(old, role),)
    kept, composed = len(_ROLES), 0
    for (text, begins_word), number in _by_text(new).items():
        if (text, begins_word) in known:
            rows[number] = (known[text, begins_word],)
            kept += 1
        else:
            rows[number] = _cut(text, begins_word, old, known)
            composed += bool(rows[number])
    return PieceOrigins(rows, kept, composed, old_rows - kept)


def rows_of_pieces(
    table: Float[Tensor, "old width"], fresh: Float[Tensor, "new width"], origins: PieceOrigins
) -> Float[Tensor, "new width"]:
    """The table of the new vocabulary."""
    counts = torch.tensor([len(rows) for rows in origins.rows])
    numbers = torch.tensor([row for rows in origins.rows for row in rows])
    means = functional.embedding_bag(numbers, table, counts.cumsum(0) - counts, mode="mean")
    return torch.where(counts[:, None] > 0, means, fresh)


def _by_text(tokenizer: Tokenizer) -> dict[tuple[str, bool], int]:
    """(text, whether a word begins with it) -> piece, without the special ones.

    SentencePiece marks the beginnings of words, WordPiece their inside.
    """
    marks_inside = isinstance(tokenizer, WordPieceTokenizer)
    mark = CONTINUATION_MARK if marks_inside else BLANK
    pieces = {n: tokenizer.piece(n) for n in range(tokenizer.vocab_size) if n not in tokenizer.special_ids}
    return {
        (piece.removeprefix(mark), piece.startswith(mark) != marks_inside): number for number, piece in pieces.items()
    }


def _cut(text: str, begins_word: bool, old: Tokenizer, known: dict[tuple[str, bool], int]) -> list[int]:
    """The pieces into which the old tokenizer cuts a text; a blank alone says nothing, the unknown piece neither."""
    pieces = old.encode(text)
    if pieces and not begins_word:
        inside = known.get((old.piece(pieces[0]).removeprefix(BLANK), False))
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
        trained_positions: positions that training reached, or that were made of such.
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
        origins: what the target's pieces begin as; None: the tokenizer stays.
        extend_positions: how positions beyond the trained ones are made; None: tiled where the source has none.
        trained_positions: positions that the source's training reached; None: all.
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
    """Check that weights can move at all."""
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


def outputs_by_name(id2label: Mapping[int, str] | None, spellings: Sequence[Sequence[str]], model: str) -> list[int]:
    """For each label, the output of the kept head that has its name.

    Args:
        spellings: the labels as files have them, and as people read them; one of the two must fit as a whole.
    """
    names = [id2label[index] for index in sorted(id2label)] if id2label else []
    for labels in spellings:
        if sorted(names) == sorted(labels):
            return [names.index(label) for label in labels]
    why = f"has a head for {', '.join(names) or 'nothing that has a name'}, not for {', '.join(spellings[-1])}"
    raise InvalidConfiguration(model, why, "leave --keep-head out: a new head is drawn, the rest of the model stays")
