"""The interface of tokenizers, their fingerprints, and their files in the format of the Hugging Face libraries.

`albert.text.tokenizer_loading.load_tokenizer` opens one."""

import hashlib
import json
import struct
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64

from albert.runtime.errors import DamagedData, InvalidConfiguration

MODEL_NAME = "spiece.model"
VOCABULARY_NAME = "vocab.txt"
JSON_NAME = "tokenizer.json"
BYTE_LEVEL_NAME = "vocab.json"
MERGES_NAME = "merges.txt"
"""Beside `vocab.json`: the pairs of pieces that are joined, in their order."""
BPE_MODEL_NAME = "sentencepiece.bpe.model"
"""The SentencePiece model of XLM-R and CamemBERT, whose pieces have other ids than in the file."""
CONFIG_NAME = "tokenizer_config.json"
ADDED_TOKENS_NAME = "added_tokens.json"
SPECIAL_TOKENS_NAME = "special_tokens_map.json"
SPECIAL_PIECES = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")
BERT_CLASSES = tuple(f"{name}Tokenizer{fast}" for name in ("Bert", "DistilBert", "Electra") for fast in ("", "Fast"))
"""Classes of transformers that normalise as `tokenizer_config.json` says, whatever `tokenizer.json` says."""
MAXIMUM_LENGTH = 512
BLANK = "▁"
Encoded = tuple[list[int], list[tuple[int, int]]]
"""The ids of a text, and for each piece the characters (start, end) that it covers."""


class Tokenizer(ABC):
    """Converts text to ids and back, with the offsets of the pieces in the original text."""

    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    lower_case: bool
    keep_accents: bool
    separators: int = 1
    """Pieces `sep_id` between two texts: 2 for RoBERTa and XLM-R."""
    _arguments: tuple[Any, ...]
    """Hashable arguments of the constructor, for pickling."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _construct, (type(self), *self._arguments)

    @property
    def special_ids(self) -> tuple[int, ...]:
        """The ids of the special pieces, in ascending order; only `unk_id` can come from text."""
        return tuple(sorted((self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id)))

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Number of pieces, specials included."""

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the pieces and the normalisation; tokenizers with equal fingerprints give equal ids."""
        return self._fingerprint()

    @abstractmethod
    def _fingerprint(self) -> str: ...

    @abstractmethod
    def normalize(self, text: str) -> str:
        """Return the text that is divided into pieces."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without special pieces. A literal "[MASK]" is text."""
        return self.encode_batch([text])[0]

    @abstractmethod
    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts."""

    def encode_joined(self, texts: Sequence[str]) -> tuple[Int32[np.ndarray, " pieces"], Int64[np.ndarray, " texts"]]:
        """Return the ids of many texts in one array, and how many each text has."""
        ids = self.encode_batch(texts)
        counts = np.array(list(map(len, ids)), dtype=np.int64)
        return np.fromiter(chain.from_iterable(ids), dtype=np.int32, count=counts.sum()), counts

    def encode_sentences(
        self, sentences: Sequence[str]
    ) -> tuple[Int32[np.ndarray, " pieces"], Int64[np.ndarray, " sentences"]]:
        """`encode_joined` for the preparation of a corpus: the ids that the reference's own preparation gives.

        SentencePiece divides each sentence as a whole. Among divisions of a word whose scores are equal it may take
        another one than `encode`, which divides word by word.
        """
        return self.encode_joined(sentences)

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of words that stand in a text, each after a blank."""
        return self.encode_batch(words)

    def encode_with_offsets(self, text: str) -> Encoded:
        """Return the ids of a text and the offsets of the pieces.

        Returns:
            ids, and for each the characters (start, end) of the original text that it covers, without blanks around
            it, in ascending order. A piece that is only a blank is empty, where the next piece begins. All pieces of
            one decomposed character cover that character. Dropped accents belong to their letter.
        """
        return self.encode_batch_with_offsets([text])[0]

    @abstractmethod
    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[Encoded]:
        """`encode_with_offsets` of many texts."""

    @abstractmethod
    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the normalised text of ids; special pieces are skipped, or written out."""

    @abstractmethod
    def piece(self, number: int) -> str:
        """Return the piece with an id."""

    @abstractmethod
    def piece_to_id(self, piece: str) -> int:
        """Return the id of a piece, or `unk_id`."""

    def surface(self, number: int) -> tuple[str, bool]:
        """Return the text of a piece without its mark, and whether it begins a word."""
        piece = self.piece(number)
        return piece.removeprefix(BLANK), piece.startswith(BLANK)

    @property
    def kind(self) -> str:
        """The kind of vocabulary: SentencePiece, WordPiece, byte-level BPE, ..."""
        return type(self).__name__.removesuffix("Tokenizer")

    def log_probabilities(self) -> Float64[np.ndarray, " pieces"] | None:
        """Return the log-probability of each piece in the training text; None if unknown, as for WordPiece."""
        return None

    @abstractmethod
    def word_starts(self) -> Bool[np.ndarray, " pieces"]:
        """Return which pieces begin a word, for whole-word masking."""

    @abstractmethod
    def save(self, directory: Path) -> None:
        """Write the vocabulary and the files of the Hugging Face libraries into an existing directory."""


def tokenizer_json(
    special: Mapping[int, str],
    *,
    normalizer: Mapping[str, Any],
    pre_tokenizer: Mapping[str, Any],
    decoder: Mapping[str, Any],
    model: Mapping[str, Any],
) -> dict[str, Any]:
    """The content of a `tokenizer.json` with the template `[CLS] A [SEP] B [SEP]`; `special` are ids and pieces."""
    flags = {name: False for name in ("single_word", "lstrip", "rstrip", "normalized")} | {"special": True}
    single = [_special("[CLS]", 0), _sequence("A", 0), _special("[SEP]", 0)]
    template = {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, _sequence("B", 1), _special("[SEP]", 1)],
        "special_tokens": {
            piece: {"id": piece, "ids": [number], "tokens": [piece]}
            for number, piece in special.items()
            if piece in ("[CLS]", "[SEP]")
        },
    }
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": special[number]} | flags for number in sorted(special)],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": template,
        "decoder": decoder,
        "model": model,
    }


def read_flag(config: Mapping[str, Any], name: str, default: Any, path: Path, optional: bool = False) -> Any:
    """Return a boolean of `tokenizer_config.json`, or null if it is optional."""
    value = config.get(name, default)
    if not isinstance(value, bool) and not (optional and value is None):
        raise InvalidConfiguration(f"{path}: {name}", f"is {value!r}, true or false is expected")
    return value


def refuse_added_tokens(file: Path, content: Mapping[str, Any], known: Sequence[str], remedy: str) -> None:
    """Raise DamagedData if a `tokenizer.json` has other added tokens than the special pieces."""
    added = content.get("added_tokens") or []
    for entry in added if isinstance(added, list) else [added]:
        token = entry.get("content") if isinstance(entry, dict) else entry
        if token not in known:
            raise DamagedData(file, f"has added tokens ({token}), which ALBERT's tokenizer does not have", remedy)


def require_cut_at_the_end(subject: str, side: object) -> None:
    """Raise InvalidConfiguration if texts that are too long lose their start, as transformers would do."""
    if side is not None and str(side).lower() != "right":
        why = f"is {side!r}: long texts would lose their start, here they lose their end"
        raise InvalidConfiguration(subject, why, 'write "right" if that is what you want')


def require_stated_cut_at_the_end(file: Path, content: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """The same for `tokenizer.json`, which counts where `tokenizer_config.json` does not say."""
    stated = content.get("truncation")
    if "truncation_side" not in config and isinstance(stated, dict):
        require_cut_at_the_end(f"{file}: truncation", stated.get("direction"))


def _special(piece: str, segment: int) -> dict[str, Any]:
    return {"SpecialToken": {"id": piece, "type_id": segment}}


def _sequence(name: str, segment: int) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": segment}}


@lru_cache(maxsize=4)
def _construct(kind: Callable[..., Tokenizer], *arguments: Any) -> Tokenizer:
    """Unpickle a tokenizer in another process, once, so that it keeps its cache of words."""
    return kind(*arguments)


# --------------------------------------------------------------------------------------------------------------------
# Fingerprints: a hash of everything that decides the ids, in whatever file. Corpora and models record it.

CONTENT_PREFIX = "v2:"


def content_fingerprint(proto: Any, lower_case: bool, keep_accents: bool) -> str:
    """Return a prefix and the SHA-256 of pieces, scores, types and normalisation of a SentencePiece `ModelProto`.

    Other fields, such as the training data, change no id and are not hashed.
    """
    normalizer = proto.normalizer_spec
    trainer = proto.trainer_spec
    settings = {
        "lower_case": lower_case,
        "keep_accents": keep_accents,
        "character_map": hashlib.sha256(normalizer.precompiled_charsmap).hexdigest(),
        "add_dummy_prefix": normalizer.add_dummy_prefix,
        "remove_extra_whitespaces": normalizer.remove_extra_whitespaces,
        "escape_whitespaces": normalizer.escape_whitespaces,
        "treat_whitespace_as_suffix": trainer.treat_whitespace_as_suffix,
        "byte_fallback": trainer.byte_fallback,
    }
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode("ascii"))
    for entry in proto.pieces:
        piece = entry.piece.encode("utf-8")
        digest.update(struct.pack("<IfB", len(piece), entry.score, entry.type) + piece)
    return CONTENT_PREFIX + digest.hexdigest()


def wordpiece_fingerprint(vocabulary: Sequence[str], settings: Mapping[str, bool]) -> str:
    """Return a prefix and the SHA-256 of the pieces, in the order of ids, and of the normalisation."""
    hashed = {"wordpiece": dict(settings)}
    digest = hashlib.sha256(json.dumps(hashed, sort_keys=True).encode("ascii"))
    for piece in vocabulary:
        digest.update(piece.encode("utf-8") + b"\0")
    return CONTENT_PREFIX + digest.hexdigest()


def fingerprint_of_json(content: Mapping[str, Any]) -> str:
    """Return a prefix and the SHA-256 of what decides the ids in a `tokenizer.json`."""
    deciding = {name: content.get(name) for name in ("model", "normalizer", "pre_tokenizer", "added_tokens")}
    return CONTENT_PREFIX + hashlib.sha256(json.dumps(deciding, sort_keys=True).encode("ascii")).hexdigest()


# --------------------------------------------------------------------------------------------------------------------
# Which pieces begin a word, for masking whole words.
#
# By the reference's rule (a piece that starts with "▁", is a single sign, or holds anything beyond ASCII letters and
# punctuation) every accented letter begins a word. Here letters of all alphabets continue words; ideographs and digits
# begin one.

_IDEOGRAPHIC = ("CJK UNIFIED", "CJK COMPATIBILITY", "HIRAGANA", "KATAKANA", "HANGUL SYLLABLE", "YI SYLLABLE")


def begins_word(piece: str) -> bool:
    """Return whether a piece begins a word: "▁the", ".", "7", "語"; not "ing", "'s", "é"."""
    if piece.startswith((BLANK, "<")) or (len(piece) == 1 and not _continues(piece)):
        return True
    return any((not character.isascii() and not _continues(character)) or character.isdigit() for character in piece)


def _continues(character: str) -> bool:
    category = unicodedata.category(character)[0]
    return category == "M" or (category == "L" and not unicodedata.name(character, "").startswith(_IDEOGRAPHIC))
