"""The tokenizer: ALBERT's normalisation, then SentencePiece unigram; offsets into the original text."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
from jaxtyping import Bool

from albert.runtime.durable_files import write_bytes, write_text
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.strict_json import read_json_object
from albert.text.fingerprints import CONTENT_PREFIX, byte_fingerprint, content_fingerprint
from albert.text.normalization import normalize, normalize_with_alignment, normalized_words
from albert.text.sentencepiece_model import is_rebuilt, parse_model, without_digit_comma_pieces
from albert.text.tokenizer_files import special_tokens_map, tokenizer_config, tokenizer_json
from albert.text.tokenizer_json import model_from_tokenizer_json
from albert.text.vocabulary_training import (
    TrainingReport,
    VocabularySettings,
    sample_documents,
    train_model,
)
from albert.text.word_cache import WordIds, WordSpans
from albert.text.word_starts import begins_word

MODEL_NAME = "spiece.model"
CONFIG_NAME = "tokenizer_config.json"
JSON_NAME = "tokenizer.json"


class Tokenizer:
    """A SentencePiece model and the normalisation before it.

    Args:
        model: the serialised SentencePiece model (`spiece.model`).
        lower_case: whether letters are lower-cased.
        keep_accents: whether accents stay; the released English models drop them.

    Raises:
        DamagedData: not a SentencePiece model, or not one for ALBERT.
    """

    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)
    special_ids = (0, 1, 2, 3, 4)

    def __init__(self, model: bytes, lower_case: bool = True, keep_accents: bool = False, source: str = MODEL_NAME):
        proto = parse_model(model, source)
        self.model = without_digit_comma_pieces(proto, model)
        self.lower_case, self.keep_accents = lower_case, keep_accents
        self._character_map: bytes = proto.normalizer_spec.precompiled_charsmap
        self._normalization = (lower_case, keep_accents, bool(self._character_map))
        self._vocabulary: list[tuple[str, float]] = [(entry.piece, entry.score) for entry in proto.pieces]
        try:
            self._processor = sentencepiece.SentencePieceProcessor(model_proto=self.model)
        except RuntimeError as error:
            raise DamagedData(source, "SentencePiece cannot read it") from error
        self._word_ids, self._word_spans = WordIds(self._processor), WordSpans(self._processor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.model, self.lower_case, self.keep_accents)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """Open `spiece.model` or `tokenizer.json`, or a directory that holds either; `spiece.model` goes first.

        `tokenizer_config.json` beside it is respected. A `tokenizer.json` that transformers wrote gives its ids.

        Raises:
            MissingInput: no such file.
            DamagedData: the file is not an ALBERT vocabulary.
            InvalidConfiguration: a setting of `tokenizer_config.json` is not one of ALBERT's.
        """
        file = vocabulary_file(path)
        config_file = file.parent / CONFIG_NAME
        config = read_json_object(config_file) if config_file.is_file() else {}
        flags = {"do_lower_case": True, "keep_accents": False}
        for name in flags:
            flags[name] = config.get(name, flags[name])
            if not isinstance(flags[name], bool):
                raise InvalidConfiguration(f"{config_file}: {name}", f"is {flags[name]!r}, true or false is expected")
        if file.suffix == ".json":
            model = model_from_tokenizer_json(file, config)
        else:
            try:
                model = file.read_bytes()
            except OSError as error:
                reason = error.strerror or "cannot be read"
                raise MissingInput(file, reason, "`albert tokenizer train` makes a vocabulary") from error
        return cls(model, flags["do_lower_case"], flags["keep_accents"], str(file))

    @property
    def vocab_size(self) -> int:
        """Number of pieces, specials included."""
        return len(self._vocabulary)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the pieces and the normalisation: equal fingerprints give equal ids, whatever the file."""
        return content_fingerprint(parse_model(self.model, MODEL_NAME), self.lower_case, self.keep_accents)

    def answers_to(self, fingerprint: str) -> bool:
        """Whether a recorded fingerprint is that of this tokenizer.

        Older corpora and models recorded a hash over the bytes of `spiece.model`. A tokenizer rebuilt from
        `tokenizer.json` has not got those bytes: nothing can be said against it then, and it answers to all of them.
        """
        if fingerprint.startswith(CONTENT_PREFIX):
            return fingerprint == self.fingerprint
        if is_rebuilt(parse_model(self.model, MODEL_NAME)):
            return True
        return fingerprint == byte_fingerprint(self.model, self.lower_case, self.keep_accents)

    def normalize(self, text: str) -> str:
        """The text that SentencePiece sees."""
        return normalize(text, *self._normalization)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without specials. A literal "[MASK]" in it is text."""
        known = self._word_ids
        words = normalized_words(text, *self._normalization)
        return [number for word in words for number in known[word]]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts."""
        return [self.encode(text) for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of a text and where each piece stands in it.

        Returns:
            ids, and for each the characters (start, end) of the original text that it covers, without
            blanks around it. Offsets never go back. A piece that is only a blank covers nothing and stands
            where the next one begins; all pieces of one decomposed character cover that character.
        """
        normalized = normalize_with_alignment(text, *self._normalization)
        starts, ends = normalized.starts.tolist(), normalized.ends.tolist()
        starts.append(len(text))
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        first = 0
        for word in normalized.text.split():
            pieces = self._word_spans[word]
            ids += pieces.ids
            for start, end in pieces.spans:
                place = starts[first + start]
                if end > start:
                    offsets.append((place, ends[first + end - 1]))
                else:  # a blank, which can also be part of a decomposed character
                    offsets.append((place, max(place, offsets[-1][1]) if offsets else place))
            first += len(word) + 1
        return ids, offsets

    def decode(self, ids: Sequence[int]) -> str:
        """The normalised text of some ids; specials vanish."""
        return self._processor.decode([int(number) for number in ids])

    def piece(self, number: int) -> str:
        """The piece with an id."""
        return self._vocabulary[number][0]

    def piece_to_id(self, piece: str) -> int:
        """The id of a piece, `unk_id` if there is none."""
        return self._processor.piece_to_id(piece)

    def save(self, directory: Path) -> None:
        """Write `spiece.model` and the files of the Hugging Face libraries into an existing directory."""
        write_bytes(directory / MODEL_NAME, self.model)
        files = {
            JSON_NAME: tokenizer_json(self._vocabulary, self._character_map, self.lower_case, self.keep_accents),
            CONFIG_NAME: tokenizer_config(self.lower_case, self.keep_accents),
            "special_tokens_map.json": special_tokens_map(),
        }
        for name, content in files.items():
            write_text(directory / name, json.dumps(content, ensure_ascii=False, indent=2) + "\n")


def vocabulary_file(path: Path) -> Path:
    """The file that `Tokenizer.load` opens, whether or not it is there."""
    if not path.is_dir():
        return path
    model, description = path / MODEL_NAME, path / JSON_NAME
    return description if description.is_file() and not model.exists() else model


def train_tokenizer(
    texts: Iterable[str],
    vocab_size: int = 30_000,
    *,
    settings: VocabularySettings | None = None,
    report: TrainingReport | None = None,
) -> Tokenizer:
    """Train a vocabulary on documents. The same documents in any order give the same tokenizer.

    Args:
        texts: documents; their paragraphs and sentences are found here.
        vocab_size: number of pieces, the five special ones included; it overrides that of the settings.
        settings: everything else; None are those of the released English vocabulary.
        report: filled with what was read and used.

    Raises:
        InvalidConfiguration: the text does not support the vocabulary size (the largest one is named).
        MissingInput: no text.
    """
    settings = replace(settings or VocabularySettings(), vocab_size=vocab_size)
    report = report if report is not None else TrainingReport()
    return train_on_documents(sample_documents(texts, settings, report), settings, report)


def train_on_documents(documents: Sequence[str], settings: VocabularySettings, report: TrainingReport) -> Tokenizer:
    """`train_tokenizer` on a sample that was drawn before."""
    model = train_model(documents, settings, report)
    return Tokenizer(model, settings.lower_case, settings.keep_accents)


def word_starts(tokenizer: Tokenizer) -> Bool[np.ndarray, " pieces"]:
    """Which pieces begin a word, for whole-word masking (see `albert.text.word_starts`)."""
    pieces = [tokenizer.piece(number) for number in range(tokenizer.vocab_size)]
    starts = np.array([begins_word(piece) for piece in pieces], dtype=np.bool_)
    starts[list(tokenizer.special_ids)] = True
    return starts


@lru_cache(maxsize=4)
def _reopened(model: bytes, lower_case: bool, keep_accents: bool) -> Tokenizer:
    """A tokenizer sent to another process is opened there once, and remembers the words it met."""
    return Tokenizer(model, lower_case, keep_accents)
