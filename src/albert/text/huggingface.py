"""Tokenizers of the Hugging Face library `tokenizers`, as `tokenizer.json` describes them, and the content of that file
for the older files of RoBERTa (`vocab.json`, `merges.txt`) and XLM-R (`sentencepiece.bpe.model`).

Ids are those of the library. Offsets are as for our own tokenizer: without blanks around a piece, and dropped accents
belong to their letter. `albert.text.wordpiece` reads `tokenizer.json` and `vocab.txt`."""

import json
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
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
from albert.runtime.manifest import read_input
from albert.text.sentencepiece import parse_unigram
from albert.text.tokenizer import (
    ADDED_TOKENS_NAME,
    BLANK,
    CONFIG_NAME,
    JSON_NAME,
    MERGES_NAME,
    SPECIAL_TOKENS_NAME,
    VOCABULARY_NAME,
    Encoded,
    Tokenizer,
    begins_word,
    fingerprint_of_json,
    read_flag,
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
SURROGATES = re.compile("[\ud800-\udfff]")
SAVE_AGAIN = "write one with transformers: AutoTokenizer.from_pretrained(...).save_pretrained(...)"


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
            raise DamagedData(source, why, SAVE_AGAIN) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # a literal "[MASK]" is text; further special tokens are not
        self._vocab_size = 1 + max(self._tokenizer.get_vocab(True).values(), default=0)
        if self._vocab_size > MAX_PIECES:
            raise DamagedData(source, f"has {self._vocab_size:,} pieces, no model has more than {MAX_PIECES:,}")
        unknown = self.content.get("model", {}).get("unk_token")
        if isinstance(unknown, str) and self._tokenizer.token_to_id(unknown) is None:
            raise DamagedData(source, f"has no piece {unknown!r} for what it does not know", SAVE_AGAIN)
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
        return as_text(self.content | {"added_tokens": added})

    def _special_piece(self, role: str, source: str) -> int:
        """The id of a special piece: as `tokenizer_config.json` says, else the usual name."""
        stated = self.config.get(f"{role}_token")
        name = stated.get("content") if isinstance(stated, dict) else stated
        names = [name] if isinstance(name, str) else list(_USUAL[role])
        found = [number for piece in names if (number := self._tokenizer.token_to_id(piece)) is not None]
        if not found:
            why = f"has no piece {' or '.join(names)}, which a model of this kind needs"
            raise DamagedData(source, why, SAVE_AGAIN)
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
        text = SURROGATES.sub("\ufffd", text)
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
    return [text if text.isascii() else SURROGATES.sub("\ufffd", text) for text in texts]


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


def as_text(content: Mapping[str, Any]) -> str:
    """A value as JSON, as this class takes it."""
    return json.dumps(content, ensure_ascii=False)


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
            raise DamagedData(directory, f"gives the added token {piece!r} the id {entry['id']!r}", SAVE_AGAIN)
    taken = [entry.get("id") for entry in entries if isinstance(entry, dict)]
    free = max([len(pairs), len(pieces), *(number + 1 for number in taken if type(number) is int)])
    for number, (piece, entry) in enumerate(sorted(new.items(), key=lambda item: item[1]["id"]), start=free):
        if entry["id"] != number:
            why = f"gives the added token {piece!r} the id {entry['id']}, {number} is the next one"
            raise DamagedData(directory, why, SAVE_AGAIN)
        kind = {"special": True, "normalized": False}
        entries.append(flags | kind | entry | {"content": piece} | (kind if piece in special else {}))
    return {**content, "added_tokens": entries}


def with_special_tokens(file: Path, config: Mapping[str, Any]) -> dict[str, Any]:
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
        raise InvalidConfiguration(file, f"is of {stated}; RoBERTa's can be read", SAVE_AGAIN)
    vocabulary = read_json_object(file)
    if not all(type(number) is int and number >= 0 for number in vocabulary.values()):
        raise DamagedData(file, "is not a piece and its id in each entry", SAVE_AGAIN)
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
            raise DamagedData(merges_file, why, SAVE_AGAIN)
        merges.append((parts[0], parts[1]))
    specials = _specials(config)
    for role in ("cls", "sep"):
        if specials[role] not in vocabulary:
            raise DamagedData(file, f"has no piece {specials[role]!r}, which RoBERTa needs", SAVE_AGAIN)
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
        raise InvalidConfiguration(file, f"{why}; XLM-R's and CamemBERT's can be read", SAVE_AGAIN)
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
