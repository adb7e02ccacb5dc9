"""BERT's tokenizer, which the Chinese ALBERT models have: basic words, then WordPiece; offsets into the original."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from albert.runtime.durable_files import write_text
from albert.text.fingerprints import wordpiece_fingerprint
from albert.text.tokenizer import CONFIG_NAME, JSON_NAME, REFERENCE, SPECIAL_TOKENS_NAME, VOCABULARY_NAME, Tokenizer
from albert.text.wordpiece.wordpiece_files import (
    wordpiece_special_tokens_map,
    wordpiece_tokenizer_config,
    wordpiece_tokenizer_json,
)
from albert.text.wordpiece.wordpiece_matching import CONTINUES, LONGEST_WORD, LONGEST_WORD_OF_THE_REFERENCE, WordPieces
from albert.text.wordpiece.wordpiece_normalization import WordPieceNormalization, basic_words, words_with_alignment
from albert.text.wordpiece.wordpiece_vocabulary import CLS, MASK, PAD, SEP, UNKNOWN, check_vocabulary

_WORD = re.compile("[^ ]+")
_ATTACHED = (".", "?", "!", ",")


class WordPieceTokenizer(Tokenizer):
    """A WordPiece vocabulary and BERT's normalisation before it. The ids are those of transformers' `BertTokenizer`.

    In reference mode they are those of BERT's own code, in which words of 101 to 200 characters are not unknown, and
    whose normalisation differs in rarities (see `WordPieceNormalization`).

    Args:
        vocabulary: the pieces in the order of their ids. The special ones are found by their names.
        normalization: what happens to text first.

    Raises:
        DamagedData: a special piece is missing, or a piece stands there twice.
    """

    def __init__(
        self,
        vocabulary: Sequence[str],
        normalization: WordPieceNormalization | None = None,
        source: str = VOCABULARY_NAME,
    ) -> None:
        check_vocabulary(vocabulary, source)
        self.vocabulary = tuple(vocabulary)
        self.normalization = normalization or WordPieceNormalization()
        self.lower_case, self.keep_accents = self.normalization.lower_case, self.normalization.keep_accents
        self.reference = self.normalization.reference
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._ids[piece] for piece in (PAD, UNKNOWN, CLS, SEP, MASK)
        )
        longest = LONGEST_WORD_OF_THE_REFERENCE if self.reference else LONGEST_WORD
        self._pieces = WordPieces(self._ids, self.unk_id, longest)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, ("\n".join(self.vocabulary), self.normalization)

    @property
    def vocab_size(self) -> int:
        """Number of pieces, specials included."""
        return len(self.vocabulary)

    @property
    def fingerprint(self) -> str:
        """A hash of the pieces and the normalisation: equal fingerprints give equal ids, whatever the file."""
        return self._fingerprint

    @cached_property
    def _fingerprint(self) -> str:
        return wordpiece_fingerprint(self.vocabulary, asdict(self.normalization))

    def answers_to(self, fingerprint: str) -> bool:
        """Whether a recorded fingerprint is that of this tokenizer."""
        return fingerprint == self.fingerprint

    def normalize(self, text: str) -> str:
        """The words of a text with single blanks between them; each ideograph and sign of punctuation is a word."""
        return " ".join(basic_words(text, self.normalization))

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without specials. A literal "[MASK]" in it is text."""
        known = self._pieces
        return [number for word in basic_words(text, self.normalization) for number in known[word].ids]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of a text and where each piece stands in it.

        Returns:
            ids, and for each the characters (start, end) of the original text that it covers. Accents that were dropped
            belong to their letter. Offsets never go back; all pieces of one decomposed character cover it.
        """
        aligned = words_with_alignment(text, self.normalization)
        starts, ends = aligned.starts.tolist(), aligned.ends.tolist()
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        for word in _WORD.finditer(aligned.text):
            pieces, first = self._pieces[word.group()], word.start()
            ids += pieces.ids
            offsets += [(starts[first + start], ends[first + end - 1]) for start, end in pieces.spans]
        return ids, offsets

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of some ids as transformers writes it: words between blanks, `. ? ! ,` without one before them."""
        special = self.special_ids if skip_special_tokens else ()
        text = ""
        for piece in (self.piece(int(number)) for number in ids if number not in special):
            if text and piece.startswith(CONTINUES):
                text += piece.removeprefix(CONTINUES)
            else:
                text += piece if not text or piece in _ATTACHED else " " + piece
        return text

    def piece(self, number: int) -> str:
        """The piece with an id."""
        return self.vocabulary[number]

    def piece_to_id(self, piece: str) -> int:
        """The id of a piece, `unk_id` if there is none."""
        return self._ids.get(piece, self.unk_id)

    def word_starts(self) -> Bool[np.ndarray, " pieces"]:
        """Which pieces begin a word: all but those that continue one."""
        return np.array([not piece.startswith(CONTINUES) for piece in self.vocabulary], dtype=np.bool_)

    def save(self, directory: Path) -> None:
        """Write `vocab.txt` and the files of the Hugging Face libraries into an existing directory."""
        write_text(directory / VOCABULARY_NAME, "".join(piece + "\n" for piece in self.vocabulary))
        files = {
            JSON_NAME: wordpiece_tokenizer_json(self.vocabulary, self.normalization),
            CONFIG_NAME: wordpiece_tokenizer_config(self.normalization) | (REFERENCE if self.reference else {}),
            SPECIAL_TOKENS_NAME: wordpiece_special_tokens_map(),
        }
        for name, content in files.items():
            write_text(directory / name, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


@lru_cache(maxsize=4)
def _reopened(vocabulary: str, normalization: WordPieceNormalization) -> WordPieceTokenizer:
    """A tokenizer sent to another process is opened there once, and remembers the words it met."""
    return WordPieceTokenizer(vocabulary.split("\n"), normalization)
