"""The tokenizer as the reference's own code is under Python 3, to compare with models and data that it made.

Four things differ from `SentencePieceTokenizer`, which follows transformers: ``` `` ``` and ``''`` stay as they are; a
piece such as "5000," is chosen, then spelled anew without its comma, and where it continues a word a stray "▁" comes
with it (text is compared with bytes there, which under Python 2 took the "▁" away); a sigma that ends a word is written
as such; and a text is cut as a whole, so that sums of scores can break ties otherwise than word by word.
"""

import json
import unicodedata
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import sentencepiece

from albert.runtime.errors import DamagedData
from albert.runtime.files import write_bytes, write_text
from albert.text.normalization import REPLACEMENT_CHARACTER
from albert.text.sentencepiece import DIGIT_COMMA_PENALTY, SentencePieceTokenizer, is_digit_comma, parse_model
from albert.text.tokenizer import (
    BLANK,
    CONFIG_NAME,
    CONTENT_PREFIX,
    MODEL_NAME,
    REFERENCE,
    Tokenizer,
    content_fingerprint,
    tokenizer_config,
)

Placed = tuple[str, int, int]  # a character, and where in the text its source begins and ends


class ReferenceSentencePieceTokenizer(SentencePieceTokenizer):
    """A SentencePiece model as the reference's `preprocess_text` and `encode_pieces` use it.

    Args:
        model: the serialised SentencePiece model as it was released, every piece with its own score.
        keep_accents: whether accents stay; the reference always drops them.

    Raises:
        DamagedData: not a model for ALBERT, or one whose pieces such as "2010," can no longer be chosen.
    """

    reference = True

    def __init__(self, model: bytes, lower_case: bool = True, keep_accents: bool = False, source: str = MODEL_NAME):
        super().__init__(model, lower_case, keep_accents, source)
        proto = parse_model(model, source)
        for entry in proto.pieces:
            if is_digit_comma(entry.piece) and entry.score <= -DIGIT_COMMA_PENALTY:
                why = f"has lost the scores of pieces such as {entry.piece!r}, which the reference chooses"
                raise DamagedData(source, why, "give the spiece.model of the release")
        self.model = model
        self._original = sentencepiece.SentencePieceProcessor(model_proto=model)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.model, self.lower_case, self.keep_accents)

    @cached_property
    def _fingerprint(self) -> str:
        proto = parse_model(self.model, MODEL_NAME)
        return content_fingerprint(proto, self.lower_case, self.keep_accents, reference=True)

    def answers_to(self, fingerprint: str) -> bool:
        """Whether a recorded fingerprint is that of this tokenizer; those of before know no reference mode."""
        return fingerprint.startswith(CONTENT_PREFIX) and fingerprint == self.fingerprint

    def normalize(self, text: str) -> str:
        """The text that SentencePiece sees."""
        return "".join(character for character, _, _ in self._placed(text))

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without specials. A literal "[MASK]" in it is text."""
        return self.encode_with_offsets(text)[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of many texts."""
        return Tokenizer.encode_batch(self, texts)

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids of a text and where each piece stands in it (see `Tokenizer.encode_with_offsets`)."""
        placed = self._placed(text)
        normalized = "".join(character for character, _, _ in placed)
        found: Any = self._original.encode(normalized, return_type="offset_mapping")
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        for number, piece, (start, end) in zip(found["ids"], found["pieces"], found["offsets"], strict=True):
            while start < end and normalized[start].isspace():
                start += 1
            if is_digit_comma(piece):
                self._spell_anew(piece, start, end, ids, spans)
            else:
                ids.append(number)
                spans.append((start, start if piece == BLANK else max(start, end)))
        return ids, _in_the_text(spans, placed, len(text))

    def encode_batch_with_offsets(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """`encode_with_offsets` of many texts."""
        return Tokenizer.encode_batch_with_offsets(self, texts)

    def save(self, directory: Path) -> None:
        """Write `spiece.model`, and the files of the Hugging Face libraries, which know no such mode."""
        super().save(directory)
        write_bytes(directory / MODEL_NAME, self.model)
        config = tokenizer_config(self.lower_case, self.keep_accents) | REFERENCE
        write_text(directory / CONFIG_NAME, json.dumps(config, ensure_ascii=False, indent=2) + "\n")

    def _spell_anew(self, piece: str, start: int, end: int, ids: list[int], spans: list[tuple[int, int]]) -> None:
        """The pieces of "5000," without its comma, then the comma."""
        number = piece[:-1].replace(BLANK, "")
        found: Any = self._original.encode(number, return_type="offset_mapping")
        ids += found["ids"]
        same = len(number) == end - 1 - start
        spans += [(start + a, start + b) if same else (start, end - 1) for a, b in found["offsets"]]
        ids.append(self._original.piece_to_id(","))
        spans.append((end - 1, end))

    def _placed(self, text: str) -> list[Placed]:
        """The characters that SentencePiece sees, blanks collapsed before anything else, each with its place."""
        placed: list[Placed] = []
        for place, character in enumerate(text):
            if character.isspace():
                if placed and placed[-1][0] != " ":
                    placed.append((" ", place, place + 1))
                continue
            parts = self._parts(character)
            if placed and not parts and unicodedata.category(character)[0] == "M":
                last, start, end = placed[-1]
                placed[-1] = (last, start, place + 1 if end == place else end)
            placed += [(part, place, place + 1) for part in parts]
        while placed and placed[-1][0] == " ":
            placed.pop()
        if not self.lower_case:
            return placed
        lowered = "".join(character for character, _, _ in placed).lower()
        return [(letter, start, end) for letter, (_, start, end) in zip(lowered, placed, strict=True)]

    def _parts(self, character: str) -> str:
        if "\ud800" <= character <= "\udfff":
            return REPLACEMENT_CHARACTER
        if self.keep_accents:
            # SentencePiece composes by itself; what grows is expanded here, where its place is known.
            composed = unicodedata.normalize("NFKC", character)
            parts = composed if len(composed) > 1 else character
            return parts.replace("İ", "i\u0307") if self.lower_case else parts
        decomposed = unicodedata.normalize("NFKD", character)
        return "".join(part for part in decomposed if not unicodedata.combining(part))


def _in_the_text(spans: list[tuple[int, int]], placed: list[Placed], length: int) -> list[tuple[int, int]]:
    """Spans of normalised characters as spans of the original text."""
    starts = [start for _, start, _ in placed] + [length]
    offsets: list[tuple[int, int]] = []
    for start, end in spans:
        place = starts[start]
        if end > start:
            offsets.append((place, placed[end - 1][2]))
        else:
            offsets.append((place, max(place, offsets[-1][1]) if offsets else place))
    return offsets


@lru_cache(maxsize=4)
def _reopened(model: bytes, lower_case: bool, keep_accents: bool) -> ReferenceSentencePieceTokenizer:
    """A tokenizer sent to another process is opened there once."""
    return ReferenceSentencePieceTokenizer(model, lower_case, keep_accents)
