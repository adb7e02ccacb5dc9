"""BERT's tokenizer, used by the Chinese ALBERT models: basic words, then WordPiece; offsets into the original text.

Normalisation, the longest-match algorithm, the vocabulary file, the tokenizer itself, and its Hugging Face files in
both directions."""

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.files import write_text
from albert.runtime.manifest import open_input, read_input
from albert.text.normalization import CharacterTable, NormalizedText, align_characters
from albert.text.tokenizer import (
    CONFIG_NAME,
    MAXIMUM_LENGTH,
    VOCABULARY_NAME,
    Tokenizer,
    read_flag,
    wordpiece_fingerprint,
)

# --------------------------------------------------------------------------------------------------------------------
# Greedy longest-match WordPiece: a word to the longest pieces that spell it, from its front (Devlin et al. 2018).

CONTINUATION_MARK = "##"
LONGEST_WORD = 100
"""Characters; `WordPiece` of the tokenizers library takes longer words for unknown."""
LONGEST_WORD_OF_THE_REFERENCE = 200
_LONGEST_CACHED, _CACHE_SIZE = 48, 1 << 19  # longer words are hardly ever met again


MatchedPieces = tuple[list[int], list[tuple[int, int]]]
"""The ids of one word, and the characters of the word that each piece covers."""


class WordPieces(dict[str, MatchedPieces]):
    """From a word to its pieces; fills itself, and starts anew when it is full.

    Args:
        unk_id: what a word becomes, as a whole, that the pieces cannot spell.
        longest_word: characters; a longer word is unknown.
    """

    def __init__(self, ids: Mapping[str, int], unk_id: int, longest_word: int) -> None:
        super().__init__()
        self._ids, self._unk_id, self._longest_word = ids, unk_id, longest_word
        self._longest_piece = max(map(len, ids))

    def __missing__(self, word: str) -> MatchedPieces:
        pieces = self._matched(word)
        if len(word) <= _LONGEST_CACHED:
            if len(self) >= _CACHE_SIZE:
                self.clear()
            self[word] = pieces
        return pieces

    def _matched(self, word: str) -> MatchedPieces:
        unknown = [self._unk_id], [(0, len(word))]
        if len(word) > self._longest_word:
            return unknown
        found, spans = [], []
        start, mark = 0, ""
        while start < len(word):
            end = min(len(word), start + self._longest_piece)
            while (piece := self._ids.get(mark + word[start:end])) is None:
                end -= 1
                if end == start:
                    return unknown
            found.append(piece)
            spans.append((start, end))
            start, mark = end, CONTINUATION_MARK
        return found, spans


# --------------------------------------------------------------------------------------------------------------------
# BERT's way from text to words, before WordPiece: the Chinese models' (Devlin et al. 2018, `BasicTokenizer`).
#
# Control characters vanish, letters are lower-cased and lose their accents, ideographs and punctuation stand alone.
# Every step maps single characters, so each character of a word knows where it came from.

_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)
_IDEOGRAPHS_OF_THE_REFERENCE_ONLY = (0x2B820, 0x2B91F)
_LETTER = r"(?:\S|[\x0b\x0c\x1c-\x1f\x85])"  # the signs in brackets vanish, they separate no words
_WORD_WITH_SIGMA = re.compile(f"{_LETTER}*Σ{_LETTER}*")


@dataclass(frozen=True)
class WordPieceNormalization:
    """What happens to text before it is cut into pieces.

    Attributes:
        space_ideographs: whether each ideograph is a word of its own.
        reference: do as BERT's own code does where transformers does otherwise: characters for private use stay, a
            sigma that ends a word is written as such, and 256 rare ideographs (2B820 to 2B91F) are words too.
    """

    lower_case: bool = True
    keep_accents: bool = False
    space_ideographs: bool = True
    reference: bool = False


def basic_words(text: str, normalization: WordPieceNormalization) -> list[str]:
    """The words of a text: what stands between blanks and punctuation, each ideograph, each sign of punctuation."""
    return _prepared(text, normalization).translate(_characters(normalization)).split()


def words_with_alignment(text: str, normalization: WordPieceNormalization) -> NormalizedText:
    """The words of a text with one blank or several between them, and the original place of every character.

    An accent that is dropped belongs to the place of its letter.
    """
    table = _characters(normalization)
    mapped = [table[ord(character)] for character in _prepared(text, normalization)]
    return align_characters(text, mapped, lambda place: unicodedata.category(text[place])[0] == "M")


def _prepared(text: str, normalization: WordPieceNormalization) -> str:
    """The text, for the reference with each sigma that ends a word written as Python's `str.lower` does."""
    if normalization.reference and normalization.lower_case and "Σ" in text:
        return _WORD_WITH_SIGMA.sub(_with_final_sigmas, text)
    return text


def _with_final_sigmas(found: re.Match[str]) -> str:
    word = found.group()
    kept = [place for place, character in enumerate(word) if not _vanishes(character, reference=True)]
    # The dotted capital becomes two letters, which would shift the places.
    lowered = "".join(word[place] for place in kept).replace("İ", "I").lower()
    final = {place for place, letter in zip(kept, lowered, strict=True) if letter == "ς"}
    return "".join("ς" if place in final else character for place, character in enumerate(word))


def _vanishes(character: str, reference: bool) -> bool:
    """Whether cleaning removes a character: control and format characters, halves of surrogate pairs, U+FFFD."""
    kind = unicodedata.category(character)
    return character == "\ufffd" or kind in ("Cc", "Cf", "Cs") or (kind == "Co" and not reference)


def _is_punctuation(character: str) -> bool:
    """Whether a sign stands alone: Unicode's punctuation, and ASCII other than letters, digits and blanks."""
    if "!" <= character <= "~":
        return not character.isalnum()
    return unicodedata.category(character)[0] == "P"


def _is_ideograph(code: int, reference: bool) -> bool:
    first, last = _IDEOGRAPHS_OF_THE_REFERENCE_ONLY
    return any(low <= code <= high for low, high in _IDEOGRAPHS) or (reference and first <= code <= last)


@cache
def _characters(rules: WordPieceNormalization) -> CharacterTable:
    """What a single character becomes, with blanks around what stands alone."""

    def normalized(character: str) -> str:
        if character in "\t\n\r" or unicodedata.category(character)[0] == "Z":
            return " "
        if _vanishes(character, rules.reference):
            return ""
        parts = character
        if not rules.keep_accents:
            decomposed = unicodedata.normalize("NFD", character)
            parts = "".join(part for part in decomposed if unicodedata.category(part) != "Mn")
        if rules.lower_case:
            parts = "".join(part.lower() for part in parts)
        parts = "".join(f" {part} " if _is_punctuation(part) else part for part in parts)
        alone = rules.space_ideographs and _is_ideograph(ord(character), rules.reference)
        return f" {parts} " if alone else parts

    return CharacterTable(normalized)


# --------------------------------------------------------------------------------------------------------------------
# A WordPiece vocabulary: `vocab.txt`, one piece on each line, and what BERT asks of one.

PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MOST_PIECES = 1 << 21
LARGEST_FILE = 1 << 26  # bytes


def read_vocabulary(file: Path) -> list[str]:
    """The pieces of `vocab.txt`; the place of a line is the id of its piece. Blank lines at the end do not count."""
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
    """Refuse what is no WordPiece vocabulary of BERT's kind."""
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


_WORD = re.compile("[^ ]+")
_ATTACHED = (".", "?", "!", ",")


class WordPieceTokenizer(Tokenizer):
    """A WordPiece vocabulary and BERT's normalisation before it. The ids are those of transformers' `BertTokenizer`.

    In reference mode they are those of BERT's own code, in which words of 101 to 200 characters are not unknown, and
    whose normalisation differs in rarities (see `WordPieceNormalization`).

    Args:
        vocabulary: the pieces in the order of their ids. The special ones are found by their names.
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
        self._arguments = self.vocabulary, self.normalization
        self.lower_case, self.keep_accents = self.normalization.lower_case, self.normalization.keep_accents
        self.reference = self.normalization.reference
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._ids[piece] for piece in (PAD, UNKNOWN, CLS, SEP, MASK)
        )
        longest = LONGEST_WORD_OF_THE_REFERENCE if self.reference else LONGEST_WORD
        self._pieces = WordPieces(self._ids, self.unk_id, longest)

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    def _fingerprint(self) -> str:
        return wordpiece_fingerprint(self.vocabulary, asdict(self.normalization))

    def normalize(self, text: str) -> str:
        return " ".join(basic_words(text, self.normalization))

    def encode(self, text: str) -> list[int]:
        known = self._pieces
        return [number for word in basic_words(text, self.normalization) for number in known[word][0]]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        aligned = words_with_alignment(text, self.normalization)
        starts, ends = aligned.starts.tolist(), aligned.ends.tolist()
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        for word in _WORD.finditer(aligned.text):
            (found, spans), first = self._pieces[word.group()], word.start()
            ids += found
            offsets += [(starts[first + start], ends[first + end - 1]) for start, end in spans]
        return ids, offsets

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of some ids as transformers writes it: words between blanks, `. ? ! ,` without one before them."""
        special = self.special_ids if skip_special_tokens else ()
        text = ""
        for piece in (self.piece(int(number)) for number in ids if number not in special):
            if text and piece.startswith(CONTINUATION_MARK):
                text += piece.removeprefix(CONTINUATION_MARK)
            else:
                text += piece if not text or piece in _ATTACHED else " " + piece
        return text

    def piece(self, number: int) -> str:
        return self.vocabulary[number]

    def piece_to_id(self, piece: str) -> int:
        return self._ids.get(piece, self.unk_id)

    def word_starts(self) -> Bool[np.ndarray, " pieces"]:
        """Which pieces begin a word: all but those that continue one."""
        return np.array([not piece.startswith(CONTINUATION_MARK) for piece in self.vocabulary], dtype=np.bool_)

    def save(self, directory: Path) -> None:
        write_text(directory / VOCABULARY_NAME, "".join(piece + "\n" for piece in self.vocabulary))
        specials = {"unk": UNKNOWN, "sep": SEP, "pad": PAD, "cls": CLS, "mask": MASK}
        # None is BERT's rule: accents go where capitals go.
        strips = None if self.keep_accents != self.lower_case else not self.keep_accents
        config = {
            "tokenizer_class": "BertTokenizer",  # or transformers takes an ALBERT's vocabulary for SentencePiece's
            "model_max_length": MAXIMUM_LENGTH,
            "do_lower_case": self.lower_case,
            "strip_accents": strips,
            "tokenize_chinese_chars": self.normalization.space_ideographs,
        }
        normalizer = {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": self.normalization.space_ideographs,
            "strip_accents": strips,
            "lowercase": self.lower_case,
        }
        model = {
            "type": "WordPiece",
            "unk_token": UNKNOWN,
            "continuing_subword_prefix": CONTINUATION_MARK,
            "max_input_chars_per_word": LONGEST_WORD,
            "vocab": self._ids,
        }
        self._save_hugging_face_files(
            directory,
            config,
            {f"{name}_token": piece for name, piece in specials.items()},
            normalizer=normalizer,
            pre_tokenizer={"type": "BertPreTokenizer"},
            decoder={"type": "WordPiece", "prefix": CONTINUATION_MARK, "cleanup": True},
            model=model,
        )


# --------------------------------------------------------------------------------------------------------------------
# A WordPiece vocabulary and its settings from `tokenizer.json`: what transformers 5 leaves of a BERT tokenizer.

BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
ORIGINAL = "put the vocab.txt that the model was trained with beside it"


def vocabulary_from_json(file: Path, content: dict[str, Any]) -> list[str]:
    """The pieces in a `tokenizer.json` whose model is WordPiece, in the order of their ids."""
    model = content["model"]
    entries = model.get("vocab")
    if not isinstance(entries, dict) or not all(type(number) is int for number in entries.values()):
        raise DamagedData(file, "has no pieces with their ids")
    pieces = sorted(entries, key=lambda piece: entries[piece])
    if [entries[piece] for piece in pieces] != list(range(len(pieces))):
        raise DamagedData(file, "does not number its pieces from 0 without a gap", ORIGINAL)
    check_vocabulary(pieces, str(file))
    if unreadable := next((piece for piece in pieces if any("\ud800" <= c <= "\udfff" for c in piece)), None):
        raise DamagedData(file, f"has a piece that is not text: {unreadable[:40]!r}")
    stated = (model.get("unk_token", UNKNOWN), model.get("continuing_subword_prefix", CONTINUATION_MARK))
    if stated != (UNKNOWN, CONTINUATION_MARK):
        raise DamagedData(file, f"marks unknown words and continuing pieces with {stated}, BERT with [UNK] and ##")
    added = content.get("added_tokens") or []
    for entry in added if isinstance(added, list) else [added]:
        token = entry.get("content") if isinstance(entry, dict) else entry
        if token not in SPECIAL_PIECES:
            why = f"cuts added tokens out of the text ({token}), which ALBERT's tokenizer does not"
            raise DamagedData(file, why, ORIGINAL)
    return pieces


def read_normalization(
    file: Path, config: dict[str, Any], normalizer: object, reference: bool
) -> WordPieceNormalization:
    """What the files say of the text.

    BERT's classes of transformers take it from `tokenizer_config.json` alone; where that names none of them, the
    normaliser of `tokenizer.json` says it.
    """
    place = file.parent / CONFIG_NAME
    stated: dict[str, Any] = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    named = str(config.get("tokenizer_class") or "")
    if named.startswith("BertJapanese") or config.get("do_basic_tokenize", True) is not True:
        raise InvalidConfiguration(place, "asks for another way to find words than BERT's", "it cannot be opened here")
    if isinstance(normalizer, dict) and named not in BERT_CLASSES:
        if normalizer.get("type") != "BertNormalizer" or normalizer.get("clean_text") is not True:
            raise DamagedData(file, "does not normalise as BERT's tokenizer does", ORIGINAL)
        names = zip(stated, ("lowercase", "strip_accents", "handle_chinese_chars"), strict=True)
        stated = {ours: normalizer.get(theirs, stated[ours]) for ours, theirs in names}
    lower_case, strip_accents, space_ideographs = (
        read_flag(config, name, usual, place, name == "strip_accents") for name, usual in stated.items()
    )
    strip_accents = lower_case if strip_accents is None else strip_accents
    return WordPieceNormalization(lower_case, not strip_accents, space_ideographs, reference)
