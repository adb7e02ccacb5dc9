"""Tokenizers of the Hugging Face library `tokenizers`: `tokenizer.json` of BERT, RoBERTa, XLM-R and their like, and
WordPiece vocabularies (`vocab.txt`).

Ids are those of the library. Offsets are as for our own tokenizer: without blanks around a piece, and dropped accents
belong to their letter."""

import json
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from jaxtyping import Bool, Int32, Int64
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.files import write_text
from albert.runtime.json_files import read_json_object, save_json
from albert.runtime.manifest import open_input, read_input
from albert.text.sentencepiece import parse_unigram
from albert.text.tokenizer import (
    ADDED_TOKENS_NAME,
    BERT_CLASSES,
    BLANK,
    CONFIG_NAME,
    JSON_NAME,
    MAXIMUM_LENGTH,
    MERGES_NAME,
    SPECIAL_TOKENS_NAME,
    VOCABULARY_NAME,
    Encoded,
    Tokenizer,
    begins_word,
    fingerprint_of_json,
    read_flag,
    require_stated_cut_at_the_end,
    tokenizer_json,
    wordpiece_fingerprint,
)

# One thread for each worker, as everywhere; the library would otherwise start threads, and warn after a fork.
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
MAX_PIECES = 1 << 21
MAX_FILE = 1 << 26  # bytes
CONTINUATION_MARK = "##"
MAX_WORD_LENGTH = 100
"""Characters; WordPiece takes longer words as unknown."""
SPECIAL_PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROLES = ("pad", "unk", "cls", "sep", "mask")
_USUAL = {
    "pad": ("[PAD]", "<pad>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<s>"),
    "sep": ("[SEP]", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
_SURROGATES = re.compile("[\ud800-\udfff]")
_SAVE_AGAIN = "write one with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)"


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of the library `tokenizers`.

    Args:
        content: of `tokenizer.json`.
        config: of `tokenizer_config.json`, as JSON; it names the special pieces.
        fingerprint: None: a hash of the content; WordPiece has one of its pieces and settings.
        source: subject of errors.
    """

    def __init__(self, content: str, config: str, fingerprint: str | None = None, source: str = JSON_NAME) -> None:
        self._arguments = content, config, fingerprint, source
        self.content: dict[str, Any] = json.loads(content)
        self.config: dict[str, Any] = json.loads(config)
        self._own_fingerprint = fingerprint
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(self._with_further_tokens_in_text(content))
        except BaseException as error:  # the library panics for some files, which is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            why = f"is not a tokenizer ({' '.join(str(error).split())[:120]})"
            raise DamagedData(source, why, _SAVE_AGAIN) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # a literal "[MASK]" is text; further special tokens are not
        self._vocab_size = 1 + max(self._tokenizer.get_vocab(True).values(), default=0)
        if self._vocab_size > MAX_PIECES:
            raise DamagedData(source, f"has {self._vocab_size:,} pieces, no model has more than {MAX_PIECES:,}")
        unknown = self.content.get("model", {}).get("unk_token")
        if isinstance(unknown, str) and self._tokenizer.token_to_id(unknown) is None:
            raise DamagedData(source, f"has no piece {unknown!r} for what it does not know", _SAVE_AGAIN)
        special = {role: self._special_piece(role, source) for role in ROLES}
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (special[role] for role in ROLES)
        self.separators = self._separators(source)
        steps = _steps(self.content.get("normalizer"))
        lowers = [step for step in steps if step.get("type") == "Lowercase" or step.get("lowercase") is True]
        self.lower_case = bool(lowers)
        self.keep_accents = not any(
            step.get("type") == "StripAccents"
            or step.get("strip_accents") is True
            or (step.get("type") == "BertNormalizer" and step.get("strip_accents") is None and step.get("lowercase"))
            for step in steps
        )

    def _with_further_tokens_in_text(self, content: str) -> str:
        """The content with special tokens that have none of BERT's roles as usual tokens: texts may hold them."""
        roles = {name for names in _USUAL.values() for name in names}
        for role in (*ROLES, "bos", "eos"):
            stated = self.config.get(f"{role}_token")
            roles.add(str(stated.get("content") if isinstance(stated, dict) else stated))
        stated = self.content.get("added_tokens")
        entries: list[Any] = stated if isinstance(stated, list) else []
        further = [
            entry
            for entry in entries
            if isinstance(entry, dict) and entry.get("special") is True and entry.get("content") not in roles
        ]
        if not further:
            return content
        added = [entry | {"special": False} if entry in further else entry for entry in entries]
        return _as_text(self.content | {"added_tokens": added})

    def _special_piece(self, role: str, source: str) -> int:
        """The id of a special piece: as `tokenizer_config.json` says, else the usual name."""
        stated = self.config.get(f"{role}_token")
        name = stated.get("content") if isinstance(stated, dict) else stated
        names = [name] if isinstance(name, str) else list(_USUAL[role])
        found = [number for piece in names if (number := self._tokenizer.token_to_id(piece)) is not None]
        if not found:
            why = f"has no piece {' or '.join(names)}, which a model of this kind needs"
            raise DamagedData(source, why, _SAVE_AGAIN)
        return found[0]

    def _separators(self, source: str) -> int:
        """The number of separators between two texts, from the template; one before and one after a single text."""
        if self.content.get("post_processor") is None:
            return 1
        first = self._tokenizer.encode("a").ids
        second = self._tokenizer.encode("a", "a").ids
        inner = self.encode("a")
        between = second[1 + len(inner) : len(second) - 1 - len(inner)]
        if first != [self.cls_id, *inner, self.sep_id] or set(between) != {self.sep_id}:
            why = "does not put one special piece before a text and one after it, as BERT does"
            raise DamagedData(source, why, "such tokenizers are not supported")
        return len(between)

    @property
    def kind(self) -> str:
        """The kind of model: WordPiece, byte-level BPE, BPE or Unigram."""
        name = str(self.content.get("model", {}).get("type") or "WordPiece")
        return f"byte-level {name}" if self._is_byte_level else name

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The pieces in the order of their ids."""
        return tuple(self.piece(number) for number in range(self.vocab_size))

    def _fingerprint(self) -> str:
        return self._own_fingerprint or fingerprint_of_json(self.content)

    def normalize(self, text: str) -> str:
        text = _SURROGATES.sub("\ufffd", text)
        normalizer = self._tokenizer.normalizer
        normalized = text if normalizer is None else normalizer.normalize_str(text)
        splitter = self._tokenizer.pre_tokenizer
        if splitter is None or self._is_byte_level:
            return normalized
        words = (word for word, _ in splitter.pre_tokenize_str(normalized))
        return " ".join(words).replace(BLANK, "").strip()

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        encodings = self._tokenizer.encode_batch_fast(_without_surrogates(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encodings]

    def encode_joined(self, texts: Sequence[str]) -> tuple[Int32[np.ndarray, " pieces"], Int64[np.ndarray, " texts"]]:
        ids = self.encode_batch(texts)
        counts = np.array(list(map(len, ids)), dtype=np.int64)
        joined = np.concatenate([np.asarray(each, np.int32) for each in ids]) if ids else np.zeros(0, np.int32)
        return joined, counts

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        before = " " if self._is_byte_level else ""  # byte-level pieces hold the blank before a word
        return self.encode_batch([before + word for word in words])

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        encodings = self._tokenizer.encode_batch(_without_surrogates(texts), add_special_tokens=False)
        encoded: list[Encoded] = []
        for text, encoding in zip(texts, encodings, strict=True):
            offsets = _offsets(text, encoding.offsets)
            for index, number in enumerate(encoding.ids):
                if number in self._blanks:
                    offsets[index] = (offsets[index][0], offsets[index][0])
            encoded.append((encoding.ids, offsets))
        return encoded

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        return self._tokenizer.decode(list(map(int, ids)), skip_special_tokens=skip_special_tokens)

    def piece(self, number: int) -> str:
        return self._tokenizer.id_to_token(int(number)) or ""

    def piece_to_id(self, piece: str) -> int:
        number = self._tokenizer.token_to_id(piece)
        return self.unk_id if number is None else number

    def surface(self, number: int) -> tuple[str, bool]:
        piece = self.piece(number)
        if self._is_byte_level and number not in self.special_ids:
            text = self._tokenizer.decode([number], skip_special_tokens=False)
            return text.removeprefix(" "), text.startswith(" ")
        mark = self._continuation_mark
        if mark:
            return piece.removeprefix(mark), not piece.startswith(mark)
        return piece.removeprefix(BLANK), piece.startswith(BLANK)

    def word_starts(self) -> Bool[np.ndarray, " pieces"]:
        if self._continuation_mark:
            starts = [self.surface(number)[1] for number in range(self.vocab_size)]
        elif self._is_byte_level:
            surfaces = [self.surface(number) for number in range(self.vocab_size)]
            starts = [is_start or begins_word(text or BLANK) for text, is_start in surfaces]
        else:
            starts = [begins_word(piece) for piece in self.vocabulary]
        return np.array(starts, dtype=np.bool_)

    def save(self, directory: Path) -> None:
        content, config, *_ = self._arguments
        write_text(directory / JSON_NAME, content)
        specials = {f"{role}_token": self.piece(getattr(self, f"{role}_id")) for role in ROLES}
        save_json(directory / CONFIG_NAME, json.loads(config) | specials)
        save_json(directory / SPECIAL_TOKENS_NAME, specials)
        if self._continuation_mark:
            write_text(directory / VOCABULARY_NAME, "".join(piece + "\n" for piece in self.vocabulary))

    @cached_property
    def _blanks(self) -> frozenset[int]:
        """The pieces that are only a blank."""
        return frozenset(n for piece in (BLANK, "Ġ") if (n := self._tokenizer.token_to_id(piece)) is not None)

    @cached_property
    def _continuation_mark(self) -> str:
        """Before pieces inside words, for WordPiece; empty for other kinds."""
        model = self.content.get("model", {})
        is_wordpiece = model.get("type", "BPE" if "merges" in model else "WordPiece") == "WordPiece"
        return str(model.get("continuing_subword_prefix", CONTINUATION_MARK)) if is_wordpiece else ""

    @cached_property
    def _is_byte_level(self) -> bool:
        parts = [self.content.get(name) for name in ("pre_tokenizer", "decoder")]
        return any(step.get("type") == "ByteLevel" for part in parts for step in _steps(part))


def _steps(part: Any) -> list[dict[str, Any]]:
    """The steps of a normaliser or pre-tokenizer in `tokenizer.json`, nested sequences included."""
    if not isinstance(part, dict):
        return []
    steps = [part]
    for key in ("normalizers", "pretokenizers", "decoders"):
        if isinstance(part.get(key), list):
            for inner in part[key]:
                steps += _steps(inner)
    return steps


def _without_surrogates(texts: Sequence[str]) -> list[str]:
    """Texts that UTF-8 can encode, of the same length."""
    return [text if text.isascii() else _SURROGATES.sub("\ufffd", text) for text in texts]


def _offsets(text: str, offsets: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Offsets without blanks around the pieces, and with the accents that were dropped after a letter."""
    result: list[tuple[int, int]] = []
    is_ascii = text.isascii()
    for number, (start, end) in enumerate(offsets):
        while start < end and text[start].isspace():
            start += 1
        while end > start and text[end - 1].isspace():
            end -= 1
        if not is_ascii and start < end:
            limit = offsets[number + 1][0] if number + 1 < len(offsets) else len(text)
            while end < limit and unicodedata.category(text[end])[0] == "M":
                end += 1
        result.append((start, end))
    return result


# --------------------------------------------------------------------------------------------------------------------
# WordPiece (Devlin et al. 2018): a vocabulary with one piece on each line, and BERT's normalisation.


@dataclass(frozen=True)
class WordPieceNormalization:
    """The normalisation before WordPiece; `space_ideographs`: whether each ideograph is a word."""

    lower_case: bool = True
    keep_accents: bool = False
    space_ideographs: bool = True


def wordpiece_tokenizer(
    vocabulary: Sequence[str],
    normalization: WordPieceNormalization | None = None,
    source: str = VOCABULARY_NAME,
    config: Mapping[str, Any] | None = None,
) -> HuggingFaceTokenizer:
    """The tokenizer of a WordPiece vocabulary, with the ids of transformers' `BertTokenizer`.

    Args:
        vocabulary: the pieces in the order of their ids. Special pieces are found by their names.
        config: of `tokenizer_config.json`, whose further keys are kept.
    """
    check_vocabulary(vocabulary, source)
    normalization = normalization or WordPieceNormalization()
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    lower_case = normalization.lower_case
    # None is BERT's default: strip accents if letters are lower-cased
    strips = None if normalization.keep_accents != lower_case else not normalization.keep_accents
    content = tokenizer_json(
        {number: piece for piece, number in ids.items() if piece in SPECIAL_PIECES},
        normalizer={
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": normalization.space_ideographs,
            "strip_accents": strips,
            "lowercase": lower_case,
        },
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": CONTINUATION_MARK, "cleanup": True},
        model={**_WORDPIECE, "vocab": ids},
    )
    settings = {
        "tokenizer_class": "BertTokenizer",  # else transformers assumes SentencePiece for ALBERT
        "model_max_length": MAXIMUM_LENGTH,
        **(config or {}),
        "do_lower_case": lower_case,
        "strip_accents": strips,
        "tokenize_chinese_chars": normalization.space_ideographs,
        **{f"{role}_token": piece for role, piece in zip(ROLES, SPECIAL_PIECES, strict=True)},
    }
    fingerprint = wordpiece_fingerprint(tuple(vocabulary), asdict(normalization))
    return HuggingFaceTokenizer(_as_text(content), _as_text(settings), fingerprint, source)


def _as_text(content: Mapping[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False)


def read_vocabulary(file: Path) -> list[str]:
    """Read the pieces of `vocab.txt`, in the order of ids. Blank lines at the end are ignored."""
    try:
        with open_input(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size > MAX_FILE:
                raise DamagedData(file, f"has {size:,} bytes, a vocabulary has at most {MAX_FILE:,}")
        text = read_input(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DamagedData(file, f"is not text in UTF-8 (byte {error.start:,})") from error
    return text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")


def load_wordpiece(file: Path, config: Mapping[str, Any]) -> HuggingFaceTokenizer:
    """The tokenizer of a `vocab.txt`, with the tokens that the files beside it add."""
    refuse_other_word_rules(file, config)
    tokenizer = wordpiece_tokenizer(read_vocabulary(file), read_normalization(file, config), str(file), config)
    content = with_added_tokens(tokenizer.content, file.parent, config)
    if content == tokenizer.content:
        return tokenizer
    return HuggingFaceTokenizer(_as_text(content), _as_text(tokenizer.config), None, str(file))


def check_vocabulary(pieces: Sequence[str], source: str) -> None:
    """Raise DamagedData for an invalid WordPiece vocabulary."""
    if len(pieces) > MAX_PIECES:
        raise DamagedData(source, f"has {len(pieces):,} pieces, no model has more than {MAX_PIECES:,}")
    ids: dict[str, int] = {}
    for number, piece in enumerate(pieces):
        if not piece or " " in piece or "\t" in piece or "\n" in piece:
            why = f"line {number + 1:,} is blank" if not piece else f"line {number + 1:,} holds a blank: {piece[:40]!r}"
            raise DamagedData(source, why, "a WordPiece vocabulary has one piece on each line")
        if piece in ids:
            why = f"has {piece[:40]!r} twice, in lines {ids[piece] + 1:,} and {number + 1:,}"
            raise DamagedData(source, why, "remove one; programs disagree on the ids of the pieces that follow")
        ids[piece] = number
    missing = [piece for piece in SPECIAL_PIECES if piece not in ids]
    if missing:
        remedy = "it seems to be SentencePiece's; give its spiece.model" if "<unk>" in ids or "▁" in ids else None
        raise DamagedData(source, "is not a WordPiece vocabulary, it lacks " + " ".join(missing), remedy)


def read_normalization(file: Path, config: Mapping[str, Any], normalizer: object = None) -> WordPieceNormalization:
    """The normalisation that `tokenizer_config.json` describes, with defaults from the normaliser of
    `tokenizer.json`."""
    path = file.parent / CONFIG_NAME
    defaults: dict[str, Any] = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
    if isinstance(normalizer, dict):
        names = zip(defaults, ("lowercase", "strip_accents", "handle_chinese_chars"), strict=True)
        defaults = {name: normalizer.get(other, defaults[name]) for name, other in names}
    lower_case, strip_accents, space_ideographs = (
        read_flag(config, name, default, path, name == "strip_accents") for name, default in defaults.items()
    )
    strip_accents = lower_case if strip_accents is None else strip_accents
    return WordPieceNormalization(lower_case, not strip_accents, space_ideographs)


_OTHER_CLASSES = ("BertJapanese", "Phobert", "Bertweet", "RoFormer")
"""How the names of classes begin that have a vocab.txt, too."""


def refuse_other_word_rules(file: Path, config: Mapping[str, Any]) -> None:
    """Refuse tokenizers of BERT that divide text into words by other rules (Japanese), or not at all."""
    class_name = str(config.get("tokenizer_class") or "")
    is_other = class_name.startswith(_OTHER_CLASSES) or config.get("word_tokenizer_type") not in (None, "basic")
    if is_other or config.get("do_basic_tokenize", True) is not True:
        path = file.parent / CONFIG_NAME
        what = f"{class_name} has" if class_name.startswith(_OTHER_CLASSES) else "has"
        raise InvalidConfiguration(path, f"{what} other rules for words than BERT", "such tokenizers are not supported")


# --------------------------------------------------------------------------------------------------------------------
# `tokenizer.json`.


def load_tokenizer_json(
    file: Path, content: Mapping[str, Any], config: Mapping[str, Any], changed: bool = False
) -> HuggingFaceTokenizer:
    """The tokenizer of a `tokenizer.json`; as in transformers, a class of BERT normalises as `tokenizer_config.json`
    says.

    Args:
        changed: whether case or accents were set by the caller, which only BERT's normalisation allows.
    """
    refuse_other_word_rules(file, config)
    described = content.get("model")
    if not isinstance(described, dict):
        raise DamagedData(file, "describes no tokenizer", _SAVE_AGAIN)
    require_stated_cut_at_the_end(file, content, config)
    content = with_added_tokens(content, file.parent, config)
    is_wordpiece = described.get("type", "BPE" if "merges" in described else "WordPiece") == "WordPiece"
    normalizer = content.get("normalizer")
    of_bert = is_wordpiece and isinstance(normalizer, dict) and normalizer.get("type") == "BertNormalizer"
    class_of_bert = is_wordpiece and config.get("tokenizer_class") in BERT_CLASSES
    if changed and not (of_bert or class_of_bert):
        why = "has its own setting of case and accents, which cannot be changed"
        raise InvalidConfiguration(file, why)
    if not (of_bert or class_of_bert):
        return HuggingFaceTokenizer(_as_text(content), _as_text(_with_special_tokens(file, config)), None, str(file))
    # A class of another name leaves the normaliser as it is; without a class the settings apply, as in BERT's.
    settings = config if class_of_bert or changed or not config.get("tokenizer_class") else {}
    normalization = read_normalization(file, settings, None if class_of_bert else normalizer)
    entries = described.get("vocab")
    if not isinstance(entries, dict) or not all(type(number) is int for number in entries.values()):
        raise DamagedData(file, "has no pieces with their ids")
    pieces = sorted(entries, key=lambda piece: entries[piece])
    if [entries[piece] for piece in pieces] != list(range(len(pieces))):
        raise DamagedData(file, "does not number its pieces from 0 without a gap", _SAVE_AGAIN)
    unreadable = next((piece for piece in pieces if _SURROGATES.search(piece)), None)
    if unreadable:
        raise DamagedData(file, f"has a piece that is not text: {unreadable[:40]!r}")
    check_vocabulary(pieces, str(file))
    usual = wordpiece_tokenizer(pieces, normalization, str(file), config)
    rules = {**content, "model": _WORDPIECE | described}
    if class_of_bert or (isinstance(normalizer, dict) and normalizer.get("clean_text") is True):
        rules["normalizer"] = usual.content["normalizer"]
    if class_of_bert:
        rules["pre_tokenizer"] = {"type": "BertPreTokenizer"}
    own = HuggingFaceTokenizer(_as_text(rules), _as_text(_with_special_tokens(file, config)), None, str(file))
    return usual if _rules(rules) == _rules(usual.content) and own.separators == usual.separators else own


_WORDPIECE = {
    "type": "WordPiece",
    "unk_token": "[UNK]",
    "continuing_subword_prefix": CONTINUATION_MARK,
    "max_input_chars_per_word": MAX_WORD_LENGTH,
}
"""What older files leave out."""


def _rules(content: Mapping[str, Any]) -> dict[str, Any]:
    """What decides the ids of a WordPiece tokenizer."""
    added = content.get("added_tokens")
    return {
        "model": content["model"],
        "normalizer": content.get("normalizer"),
        "pre_tokenizer": content.get("pre_tokenizer"),
        "added_tokens": sorted(
            str(entry.get("content") if isinstance(entry, dict) else entry)
            for entry in (added if isinstance(added, list) else [])
        )
        or sorted(SPECIAL_PIECES),
    }


def with_added_tokens(content: Mapping[str, Any], directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The content with the tokens that only `added_tokens.json` or `tokenizer_config.json` add, as in transformers.

    Raises:
        DamagedData: an id that is not the next whole number.
    """
    entries = content.get("added_tokens")
    entries = list(entries) if isinstance(entries, list) else []
    known = {str(entry.get("content")) for entry in entries if isinstance(entry, dict)}
    vocabulary: Any = content.get("model", {}).get("vocab")
    pairs = vocabulary if isinstance(vocabulary, list) else []
    listed_pieces = {str(pair[0]) for pair in pairs if isinstance(pair, list) and pair}
    pieces = vocabulary if isinstance(vocabulary, dict) else listed_pieces
    file = directory / ADDED_TOKENS_NAME
    added: dict[str, Any] = {}
    if file.is_file():
        for piece, number in read_json_object(file).items():
            added[piece] = {"id": number, "special": False, "normalized": True}
    decoder = config.get("added_tokens_decoder")
    for number, entry in decoder.items() if isinstance(decoder, dict) else ():
        if isinstance(entry, dict) and isinstance(entry.get("content"), str):
            is_number = str(number).isdecimal()
            added[entry["content"]] = {**entry, "id": int(number) if is_number else number}
    listed = config.get("additional_special_tokens")
    special = set(map(str, listed)) if isinstance(listed, list) else set()
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    new = {piece: entry for piece, entry in added.items() if piece not in known and piece not in pieces}
    for piece, entry in new.items():
        if type(entry["id"]) is not int:
            raise DamagedData(directory, f"gives the added token {piece!r} the id {entry['id']!r}", _SAVE_AGAIN)
    taken = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    free = max([len(pairs), len(pieces), *(number + 1 for number in taken if type(number) is int)])
    for number, (piece, entry) in enumerate(sorted(new.items(), key=lambda item: item[1]["id"]), start=free):
        if entry["id"] != number:
            why = f"gives the added token {piece!r} the id {entry['id']}, {number} is the next one"
            raise DamagedData(directory, why, _SAVE_AGAIN)
        kind = {"special": True, "normalized": False}
        entries.append(flags | kind | entry | {"content": piece} | (kind if piece in special else {}))
    return {**content, "added_tokens": entries}


def _with_special_tokens(file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with the special tokens that only `special_tokens_map.json` names, as older files do."""
    path = file.parent / SPECIAL_TOKENS_NAME
    named = read_json_object(path) if path.is_file() else {}
    return {f"{role}_token": named[f"{role}_token"] for role in ROLES if f"{role}_token" in named} | dict(config)


# --------------------------------------------------------------------------------------------------------------------
# The files of RoBERTa and XLM-R before `tokenizer.json`: the content that transformers would write for them.

_ROBERTA_SPECIALS: dict[str, str] = {
    "bos": "<s>",
    "pad": "<pad>",
    "eos": "</s>",
    "unk": "<unk>",
    "cls": "<s>",
    "sep": "</s>",
    "mask": "<mask>",
}
"""By role; `tokenizer_config.json` may name others."""


def byte_level_json(file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `tokenizer.json` for RoBERTa's `vocab.json` and the `merges.txt` beside it.

    Raises:
        MissingInput: there is no `merges.txt`.
        DamagedData: ids that are not whole numbers, or merges that do not fit the pieces.
        InvalidConfiguration: the files are of another class than RoBERTa's, such as HerBERT's.
    """
    stated = _class_or_type(file, config)
    if stated not in ("", "RobertaTokenizer", "roberta"):
        raise InvalidConfiguration(file, f"is of {stated}; RoBERTa's can be read", _SAVE_AGAIN)
    vocabulary = read_json_object(file)
    if not all(type(number) is int and number >= 0 for number in vocabulary.values()):
        raise DamagedData(file, "is not a piece and its id in each entry", _SAVE_AGAIN)
    merges_file = file.parent / MERGES_NAME
    try:
        lines = read_input(merges_file).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DamagedData(merges_file, f"is not text in UTF-8 (byte {error.start:,})") from error
    merges: list[tuple[str, str]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (number == 1 and line.startswith("#version")):
            continue
        parts = line.rstrip("\r").split(" ")
        if len(parts) != 2 or parts[0] + parts[1] not in vocabulary:
            why = f"line {number:,} is not a pair of pieces that makes a piece of {file.name}: {line[:40]!r}"
            raise DamagedData(merges_file, why, _SAVE_AGAIN)
        merges.append((parts[0], parts[1]))
    specials = _specials(config)
    for role in ("cls", "sep"):
        if specials[role] not in vocabulary:
            raise DamagedData(file, f"has no piece {specials[role]!r}, which RoBERTa needs", _SAVE_AGAIN)
    add_prefix_space = read_flag(config, "add_prefix_space", False, file.parent / CONFIG_NAME)
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    tokenizer.decoder = decoders.ByteLevel()
    separator = (specials["sep"], vocabulary[specials["sep"]])
    first = (specials["cls"], vocabulary[specials["cls"]])
    tokenizer.post_processor = processors.RobertaProcessing(separator, first, True, add_prefix_space)
    return _with_specials(tokenizer, specials)


def sentencepiece_json(file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `tokenizer.json` for the `sentencepiece.bpe.model` of XLM-R or CamemBERT.

    The ids are not those of the file: both families put special pieces of their own before its pieces.

    Raises:
        DamagedData: the file is not a SentencePiece unigram model.
        InvalidConfiguration: the files do not say which family it is.
    """
    family = _family_of_sentencepiece(file, config)
    proto = parse_unigram(read_input(file), str(file))
    pieces = [(entry.piece, entry.score) for entry in proto.pieces]
    specials = _specials(config)
    if family == "CamembertTokenizer":
        first = ["<s>NOTUSED", specials["pad"], "</s>NOTUSED", specials["unk"]]
        vocabulary = [*((piece, 0.0) for piece in first), ("<unk>NOTUSED", -100.0), *pieces[1:]]
    else:
        first = [specials[role] for role in ("bos", "pad", "eos", "unk")]
        vocabulary = [*((piece, 0.0) for piece in first), *pieces[3:]]
    vocabulary.append((specials["mask"], 0.0))
    scheme = "always" if read_flag(config, "add_prefix_space", True, file.parent / CONFIG_NAME) else "never"
    tokenizer = tokenizers.Tokenizer(models.Unigram(vocabulary, unk_id=3, byte_fallback=False))
    if proto.normalizer_spec.precompiled_charsmap:
        tokenizer.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    words = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement=BLANK, prepend_scheme=scheme)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(words)
    tokenizer.decoder = decoders.Metaspace(replacement=BLANK, prepend_scheme=scheme)
    first_piece = specials["cls"]
    last_piece = specials["sep"]
    ids = {piece: tokenizer.token_to_id(piece) for piece in (first_piece, last_piece)}
    if None in ids.values():
        raise DamagedData(file, f"has no pieces {first_piece} and {last_piece}, which a model of this kind needs")
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[first_piece, "$A", last_piece],
        pair=[first_piece, "$A", last_piece, last_piece, "$B", last_piece],
        special_tokens=list(ids.items()),
    )
    return _with_specials(tokenizer, specials)


def _class_or_type(file: Path, config: Mapping[str, Any]) -> str:
    """The class of a tokenizer, without "Fast", or the type of the model beside it; empty if nothing says."""
    stated = str(config.get("tokenizer_class") or "").removesuffix("Fast")
    model_config = file.parent / "config.json"
    if stated or not model_config.is_file():
        return stated
    return str(read_json_object(model_config).get("model_type") or "")


def _family_of_sentencepiece(file: Path, config: Mapping[str, Any]) -> str:
    """The class of the tokenizer: as `tokenizer_config.json` says, else by the type of the model beside it."""
    stated = _class_or_type(file, config)
    stated = {"xlm-roberta": "XLMRobertaTokenizer", "camembert": "CamembertTokenizer"}.get(stated, stated)
    if stated not in ("XLMRobertaTokenizer", "CamembertTokenizer"):
        why = f"is of {stated or 'a model that its files do not name'}"
        raise InvalidConfiguration(file, f"{why}; XLM-R's and CamemBERT's can be read", _SAVE_AGAIN)
    return stated


def _specials(config: Mapping[str, Any]) -> dict[str, str]:
    """The special pieces by their roles: as `tokenizer_config.json` says, else the usual ones."""
    specials: dict[str, str] = dict(_ROBERTA_SPECIALS)
    for role in specials:
        stated = config.get(f"{role}_token")
        name = stated.get("content") if isinstance(stated, dict) else stated
        if isinstance(name, str):
            specials[role] = name
    return specials


def _with_specials(tokenizer: tokenizers.Tokenizer, specials: Mapping[str, str]) -> dict[str, Any]:
    """The content of a tokenizer whose special pieces are marked as such, as far as it has them."""
    for role, piece in specials.items():
        if tokenizer.token_to_id(piece) is not None:
            tokenizer.add_special_tokens([tokenizers.AddedToken(piece, lstrip=role == "mask", special=True)])
    return json.loads(tokenizer.to_str())
