"""A WordPiece vocabulary: `vocab.txt`, one piece on each line, and what BERT asks of one."""

import os
from collections.abc import Sequence
from pathlib import Path

from albert.runtime.errors import DamagedData
from albert.runtime.input_files import open_input, read_input

PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MOST_PIECES = 1 << 21
LARGEST_FILE = 1 << 26  # bytes


def read_vocabulary(file: Path) -> list[str]:
    """The pieces of `vocab.txt`; the place of a line is the id of its piece. Blank lines at the end are none.

    Raises:
        MissingInput: no such file.
        DamagedData: not a vocabulary, or one that two readers would number differently.
    """
    try:
        with open_input(file) as opened:
            if (size := os.fstat(opened.fileno()).st_size) > LARGEST_FILE:
                raise DamagedData(file, f"has {size:,} bytes, a vocabulary has at most {LARGEST_FILE:,}")
        text = read_input(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedData(file, f"is not text in UTF-8 (byte {error.start:,})") from error
    pieces = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")
    check_vocabulary(pieces, str(file))
    return pieces


def check_vocabulary(pieces: Sequence[str], source: str) -> None:
    """Refuse what is no WordPiece vocabulary of BERT's kind.

    Raises:
        DamagedData: a special piece is missing, a piece stands there twice, is empty or holds a blank.
    """
    if len(pieces) > MOST_PIECES:
        raise DamagedData(source, f"has {len(pieces):,} pieces, no model has more than {MOST_PIECES:,}")
    ids: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        if not piece or " " in piece or "\t" in piece or "\n" in piece:
            why = f"line {number + 1:,} is blank" if not piece else f"line {number + 1:,} holds a blank: {piece[:40]!r}"
            raise DamagedData(source, why, "a WordPiece vocabulary has one piece on each line")
        if piece in ids:
            why = f"has {piece[:40]!r} twice, in lines {ids[piece] + 1:,} and {number + 1:,}"
            raise DamagedData(source, why, "what follows would have other ids in other programs")
        ids[piece] = number
    if missing := [piece for piece in SPECIAL_PIECES if piece not in ids]:
        kept = "it seems to be SentencePiece's; give its spiece.model" if "<unk>" in ids or "▁" in ids else None
        raise DamagedData(source, "is not a WordPiece vocabulary, it lacks " + " ".join(missing), kept)
