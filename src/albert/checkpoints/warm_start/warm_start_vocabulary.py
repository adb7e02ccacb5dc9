"""An embedding table for another vocabulary: pieces are matched by their text.

A piece that both vocabularies have keeps its row, and so does each special piece by its role. A new piece begins as the
mean of the rows of the pieces into which the old tokenizer cuts its text; a piece inside words begins as what the old
tokenizer has for the inside of words where it has it. A text that the old tokenizer does not know is drawn at random.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from albert.text.tokenizer import Tokenizer
from albert.text.unigram.tokenizer_files import BLANK
from albert.text.wordpiece.wordpiece_matching import CONTINUES
from albert.text.wordpiece.wordpiece_tokenizer import WordPieceTokenizer

_ROLES = ("pad_id", "unk_id", "cls_id", "sep_id", "mask_id")


@dataclass(frozen=True)
class PieceOrigins:
    """What every piece of a vocabulary begins as.

    Args:
        rows: for each piece the rows of the old table of which it is the mean; none: it is drawn at random.
        kept: pieces that keep their row.
        composed: pieces that begin as a mean.
        left_out: rows of the old table that no piece keeps.
    """

    rows: Sequence[Sequence[int]]
    kept: int
    composed: int
    left_out: int

    @property
    def drawn(self) -> int:
        """Pieces drawn at random."""
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
    """The origins of another tokenizer's pieces.

    Args:
        old: the tokenizer of the trained model.
        old_rows: rows of its table, at least as many as the tokenizer has pieces.
        new: the tokenizer that it gets.
    """
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
    """The table of the new vocabulary.

    Args:
        table: of the old one.
        fresh: initial values, kept where a piece has no origin.
        origins: of the new pieces.
    """
    counts = torch.tensor([len(rows) for rows in origins.rows])
    numbers = torch.tensor([row for rows in origins.rows for row in rows])
    means = functional.embedding_bag(numbers, table, counts.cumsum(0) - counts, mode="mean")
    return torch.where(counts[:, None] > 0, means, fresh)


def _by_text(tokenizer: Tokenizer) -> dict[tuple[str, bool], int]:
    """(text, whether a word begins with it) -> piece, without the special ones.

    SentencePiece marks the beginnings of words, WordPiece their inside.
    """
    marks_inside = isinstance(tokenizer, WordPieceTokenizer)
    mark = CONTINUES if marks_inside else BLANK
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
