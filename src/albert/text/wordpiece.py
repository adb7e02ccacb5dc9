"""BERT's tokenizer, used by the Chinese ALBERT models: basic words, then WordPiece, with offsets into the text."""

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
    Encoded,
    Tokenizer,
    read_flag,
    refuse_added_tokens,
    wordpiece_fingerprint,
)

# ---- Greedy longest-match WordPiece (Devlin et al. 2018) -----------------------------------------------------------

CONTINUATION_MARK = "##"
LONGEST_WORD = 100
"""Characters; longer words are unknown, as in the tokenizers library."""
LONGEST_WORD_OF_THE_REFERENCE = 200
_LONGEST_CACHED, _CACHE_SIZE = 48, 1 << 19  # longer words rarely recur


class WordPieces(dict[str, Encoded]):
    """From a word to its pieces; filled on demand, and emptied when it is full.

    Args:
        unk_id: for a word that the pieces cannot spell.
        longest_word: in characters; a longer word is unknown.
    """

    def __init__(self, ids: Mapping[str, int], unk_id: int, longest_word: int) -> None:
        super().__init__()
        self._ids, self._unk_id, self._longest_word = ids, unk_id, longest_word
        self._longest_piece = max(map(len, ids))

    def __missing__(self, word: str) -> Encoded:
        pieces = self._match(word)
        if len(word) <= _LONGEST_CACHED:
            if len(self) >= _CACHE_SIZE:
                self.clear()
            self[word] = pieces
        return pieces

    def _match(self, word: str) -> Encoded:
        unknown = [self._unk_id], [(0, len(word))]
        if len(word) > self._longest_word:
            return unknown
        ids, spans = [], []
        start, mark = 0, ""
        while start < len(word):
            end = min(len(word), start + self._longest_piece)
            while (piece := self._ids.get(mark + word[start:end])) is None:
                end -= 1
                if end == start:
                    return unknown
            ids.append(piece)
            spans.append((start, end))
            start, mark = end, CONTINUATION_MARK
        return ids, spans


# --------------------------------------------------------------------------------------------------------------------
# Normalisation and division into words before WordPiece (Devlin et al. 2018, `BasicTokenizer`): control characters are
# removed, letters lower-cased without accents, ideographs and punctuation become words. Every step maps single
# characters, so offsets into the original text are exact.

_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


@dataclass(frozen=True)
class WordPieceNormalization:
    """The normalisation before WordPiece.

    Attributes:
        space_ideographs: whether each ideograph is a word.
    """

    lower_case: bool = True
    keep_accents: bool = False
    space_ideographs: bool = True


def basic_words(text: str, normalization: WordPieceNormalization) -> list[str]:
    """Return the words of a text; each ideograph and each punctuation mark is a word."""
    return text.translate(_character_table(normalization)).split()


def words_with_alignment(text: str, normalization: WordPieceNormalization) -> NormalizedText:
    """Return the words of a text, separated by blanks, with the original position of every character.

    Dropped accents belong to their letter.
    """
    table = _character_table(normalization)
    mapped = [table[ord(character)] for character in text]
    return align_characters(text, mapped, lambda index: unicodedata.category(text[index])[0] == "M")


def _is_removed(character: str) -> bool:
    """Return whether a character is removed: control, format and private characters, lone surrogates, U+FFFD."""
    return character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co")


def _is_punctuation(character: str) -> bool:
    """Return whether a character is Unicode punctuation, or ASCII other than letters, digits and blanks."""
    return not character.isalnum() if "!" <= character <= "~" else unicodedata.category(character)[0] == "P"


def _is_ideograph(code: int) -> bool:
    return any(first <= code <= last for first, last in _IDEOGRAPHS)


@cache
def _character_table(normalization: WordPieceNormalization) -> CharacterTable:
    """Return what each character becomes, with blanks around a character that is a word."""

    def normalized(character: str) -> str:
        if character in "\t\n\r" or unicodedata.category(character)[0] == "Z":
            return " "
        if _is_removed(character):
            return ""
        parts = character
        if not normalization.keep_accents:
            decomposed = unicodedata.normalize("NFD", character)
            parts = "".join(part for part in decomposed if unicodedata.category(part) != "Mn")
        if normalization.lower_case:
            parts = "".join(part.lower() for part in parts)
        parts = "".join(f" {part} " if _is_punctuation(part) else part for part in parts)
        is_word = normalization.space_ideographs and _is_ideograph(ord(character))
        return f" {parts} " if is_word else parts

    return CharacterTable(normalized)


# ---- A WordPiece vocabulary: `vocab.txt`, one piece on each line ---------------------------------------------------

PAD, UNKNOWN, CLS, SEP, MASK = SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MOST_PIECES = 1 << 21
LARGEST_FILE = 1 << 26  # bytes


def read_vocabulary(file: Path) -> list[str]:
    """Read the pieces of `vocab.txt`, in the order of ids. Blank lines at the end are ignored."""
    try:
        with open_input(file) as opened:
            if (size := os.fstat(opened.fileno()).st_size) > LARGEST_FILE:
                raise DamagedData(file, f"has {size:,} bytes, a vocabulary has at most {LARGEST_FILE:,}")
        text = read_input(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedData(file, f"is not text in UTF-8 (byte {error.start:,})") from error
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")


def check_vocabulary(pieces: Sequence[str], source: str) -> None:
    """Raise DamagedData for an invalid WordPiece vocabulary."""
    if len(pieces) > MOST_PIECES:
        raise DamagedData(source, f"has {len(pieces):,} pieces, no model has more than {MOST_PIECES:,}")
    ids: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        if not piece or " " in piece or "\t" in piece or "\n" in piece:
            why = f"line {number + 1:,} is blank" if not piece else f"line {number + 1:,} holds a blank: {piece[:40]!r}"
            raise DamagedData(source, why, "a WordPiece vocabulary has one piece on each line")
        if piece in ids:
            why = f"has {piece[:40]!r} twice, in lines {ids[piece] + 1:,} and {number + 1:,}"
            raise DamagedData(source, why, "remove one; programs disagree on the ids of the pieces that follow")
        ids[piece] = number
    if missing := [piece for piece in SPECIAL_PIECES if piece not in ids]:
        remedy = "it seems to be SentencePiece's; give its spiece.model" if "<unk>" in ids or "▁" in ids else None
        raise DamagedData(source, "is not a WordPiece vocabulary, it lacks " + " ".join(missing), remedy)


_WORD = re.compile("[^ ]+")
_NO_BLANK_BEFORE = (".", "?", "!", ",")


class WordPieceTokenizer(Tokenizer):
    """A WordPiece vocabulary and BERT's normalisation, with the ids of transformers' `BertTokenizer`.

    Args:
        vocabulary: the pieces in the order of their ids. Special pieces are found by their names.
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
        self._ids = {piece: number for number, piece in enumerate(vocabulary)}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._ids[piece] for piece in (PAD, UNKNOWN, CLS, SEP, MASK)
        )
        self._pieces = WordPieces(self._ids, self.unk_id, LONGEST_WORD)

    @property
    def vocab_size(self) -> int:
        return len(self.vocabulary)

    def _fingerprint(self) -> str:
        return wordpiece_fingerprint(self.vocabulary, asdict(self.normalization))

    def normalize(self, text: str) -> str:
        return " ".join(basic_words(text, self.normalization))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        words = (basic_words(text, self.normalization) for text in texts)
        return [[number for word in each for number in self._pieces[word][0]] for each in words]

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        return [self._encode(text) for text in texts]

    def _encode(self, text: str) -> Encoded:
        aligned = words_with_alignment(text, self.normalization)
        starts, ends = aligned.starts.tolist(), aligned.ends.tolist()
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        for word in _WORD.finditer(aligned.text):
            (word_ids, spans), first = self._pieces[word.group()], word.start()
            ids += word_ids
            offsets += [(starts[first + start], ends[first + end - 1]) for start, end in spans]
        return ids, offsets

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of ids as in transformers: words between blanks, but none before `. ? ! ,`."""
        special = self.special_ids if skip_special_tokens else ()
        text = ""
        for piece in (self.piece(int(number)) for number in ids if number not in special):
            if text and piece.startswith(CONTINUATION_MARK):
                text += piece.removeprefix(CONTINUATION_MARK)
            else:
                text += piece if not text or piece in _NO_BLANK_BEFORE else " " + piece
        return text

    def piece(self, number: int) -> str:
        return self.vocabulary[number]

    def piece_to_id(self, piece: str) -> int:
        return self._ids.get(piece, self.unk_id)

    def word_starts(self) -> Bool[np.ndarray, " pieces"]:
        return np.array([not piece.startswith(CONTINUATION_MARK) for piece in self.vocabulary], dtype=np.bool_)

    def save(self, directory: Path) -> None:
        write_text(directory / VOCABULARY_NAME, "".join(piece + "\n" for piece in self.vocabulary))
        specials = {"unk": UNKNOWN, "sep": SEP, "pad": PAD, "cls": CLS, "mask": MASK}
        # None is BERT's default: strip accents if letters are lower-cased
        strips = None if self.keep_accents != self.lower_case else not self.keep_accents
        config = {
            "tokenizer_class": "BertTokenizer",  # else transformers assumes SentencePiece for ALBERT
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
# A WordPiece vocabulary and its settings from `tokenizer.json`, the only vocabulary file that transformers 5 saves.


BERT_CLASSES = ("BertTokenizer", "BertTokenizerFast")
ORIGINAL = "put the vocab.txt that the model was trained with beside it"


def vocabulary_from_json(file: Path, content: dict[str, Any]) -> list[str]:
    """Return the pieces of a WordPiece `tokenizer.json`, in the order of ids."""
    model = content["model"]
    entries = model.get("vocab")
    if not isinstance(entries, dict) or not all(type(number) is int for number in entries.values()):
        raise DamagedData(file, "has no pieces with their ids")
    pieces = sorted(entries, key=lambda piece: entries[piece])
    if [entries[piece] for piece in pieces] != list(range(len(pieces))):
        raise DamagedData(file, "does not number its pieces from 0 without a gap", ORIGINAL)
    if unreadable := next((piece for piece in pieces if any("\ud800" <= c <= "\udfff" for c in piece)), None):
        raise DamagedData(file, f"has a piece that is not text: {unreadable[:40]!r}")
    marks = (model.get("unk_token", UNKNOWN), model.get("continuing_subword_prefix", CONTINUATION_MARK))
    if marks != (UNKNOWN, CONTINUATION_MARK):
        raise DamagedData(file, f"marks unknown words and continuing pieces with {marks}, BERT with [UNK] and ##")
    refuse_added_tokens(file, content, SPECIAL_PIECES, ORIGINAL)
    return pieces


def read_normalization(file: Path, config: dict[str, Any], normalizer: object) -> WordPieceNormalization:
    """Return the normalisation that the files of a tokenizer describe.

    As in transformers, the defaults are in `tokenizer.json` only if `tokenizer_config.json` names no class of BERT.
    """
    path = file.parent / CONFIG_NAME
    defaults: dict[str, Any] = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    class_name = str(config.get("tokenizer_class") or "")
    if class_name.startswith("BertJapanese") or config.get("do_basic_tokenize", True) is not True:
        raise InvalidConfiguration(path, "has other rules for words than BERT", "such tokenizers are not supported")
    if isinstance(normalizer, dict) and class_name not in BERT_CLASSES:
        if normalizer.get("type") != "BertNormalizer" or normalizer.get("clean_text") is not True:
            raise DamagedData(file, "does not normalise as BERT's tokenizer does", ORIGINAL)
        names = zip(defaults, ("lowercase", "strip_accents", "handle_chinese_chars"), strict=True)
        defaults = {name: normalizer.get(other, defaults[name]) for name, other in names}
    lower_case, strip_accents, space_ideographs = (
        read_flag(config, name, default, path, name == "strip_accents") for name, default in defaults.items()
    )
    strip_accents = lower_case if strip_accents is None else strip_accents
    return WordPieceNormalization(lower_case, not strip_accents, space_ideographs)
