"""Masked tokens: the most likely pieces for each `[MASK]` of a text; the other masks stay masked."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypedDict

import numpy as np

from albert.runtime.errors import UsageError
from albert.tables.records import Record
from albert.tasks.examples import MASK, Example, Features, asked, text_sequences
from albert.tasks.pipeline import (
    ERROR,
    Fields,
    Head,
    Lengths,
    ReplyTooLarge,
    RowPipeline,
    Settings,
    Texts,
    TopK,
    UnansweredTexts,
    text_of,
)
from albert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output

NO_MASK = f'write one, as in "The cat {MASK} on the mat."'
MAX_CANDIDATES = 4096
"""Predictions in a reply, masks times `top_k`; each comes with its whole text."""
DEFAULT_TOP_K = 5


@dataclass(frozen=True)
class FillMaskRequest:
    """Texts with one or more `[MASK]`."""

    texts: Texts
    top_k: Annotated[TopK, "Number of predictions for each mask."] = DEFAULT_TOP_K


class FilledMask(TypedDict):
    """A token for a mask, its probability, and the text with it; named as by transformers."""

    score: float
    token: int
    token_str: str
    sequence: str


@dataclass(frozen=True, kw_only=True)
class MaskFeatures(Features):
    """Texts with masks, and the positions of the masks in each sequence."""

    tokenizer: Tokenizer
    positions: list[np.ndarray]


def mask_features(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> MaskFeatures:
    """A sequence for each text, or pair of texts, in which literal masks are mask tokens."""
    rows = [example.texts for example in examples]
    sequences, cut = text_sequences(rows, tokenizer, max_length, masked=True)
    numbers = range(len(sequences))
    return MaskFeatures(
        sequences=sequences,
        targets=np.zeros(0, np.int64),
        counts={},
        example_of=np.arange(len(sequences)),
        slot_of=np.zeros(len(sequences), np.int64),
        cut=cut,
        tokenizer=tokenizer,
        positions=[np.flatnonzero(sequences.token_ids(number) == tokenizer.mask_id) for number in numbers],
    )


@dataclass(frozen=True)
class FillMask(RowPipeline):
    """The `top_k` most likely tokens for each mask."""

    top_k: int = DEFAULT_TOP_K

    name = "fill-mask"
    about = "The most likely tokens for each `[MASK]`."
    needs = "fill masks"
    heads: ClassVar = {"pretraining": ("predictions.",), "masked_lm": ("predictions.",)}

    @classmethod
    def of_head(cls, head: Head) -> "FillMask | None":
        return cls() if head.is_trained(cls.heads) else None

    # ---- A row of a file --------------------------------------------------------------------------------------------

    file_options = ("--text", "--top-k")
    has_first_tab = True

    def read(self, record: Record, fields: Fields) -> Example:
        return asked(text_of(record, fields.text, "--text"))

    # ---- A request --------------------------------------------------------------------------------------------------

    Request = FillMaskRequest
    request_example: ClassVar = {"texts": ["The captain stood on the [MASK] of the ship."], "top_k": DEFAULT_TOP_K}

    def examples(self, request: FillMaskRequest) -> list[Example]:
        for number, text in enumerate(request.texts):
            if MASK not in text:
                raise UsageError(f"texts.{number}", f"has no {MASK}", NO_MASK)
        masks = sum(text.count(MASK) for text in request.texts)
        candidates = masks * request.top_k
        if candidates > MAX_CANDIDATES:
            total = f"{masks} masks with top_k {request.top_k} are {candidates} candidates"
            remedy = "send fewer texts or masks, or a smaller top_k"
            raise ReplyTooLarge(f"{total}, at most {MAX_CANDIDATES} are allowed; {remedy}")
        return [asked(text) for text in request.texts]

    def with_options_of(self, request: FillMaskRequest) -> "FillMask":
        return replace(self, top_k=request.top_k)

    def with_settings(self, settings: Settings) -> "FillMask":
        return replace(self, top_k=settings.top_k or DEFAULT_TOP_K)

    # ---- From texts to token ids ------------------------------------------------------------------------------------

    runs = "masks"

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, lengths: Lengths) -> MaskFeatures:
        """Raises UnansweredTexts for texts without a mask or with too many tokens."""
        features = mask_features(examples, tokenizer, lengths.max_length)
        reasons: dict[int, tuple[str, str | None]] = {}
        for number, example in enumerate(examples):
            (text,) = example.texts
            if MASK not in text and tokenizer.piece(tokenizer.mask_id) not in text:
                reasons[number] = (f"has no {MASK} to fill", NO_MASK)
            elif features.cut[number]:
                n_tokens = features.sequences.lengths[number] + features.cut[number]
                why = f"has {n_tokens} tokens, the model reads {lengths.max_length}"
                reasons[number] = (why, f"leave only what is near the {MASK}")
        if reasons:
            raise UnansweredTexts("text", reasons)
        return features

    # ---- From the logits at the masks to a reply --------------------------------------------------------------------

    def decode(self, outputs: Iterable[Any], features: Features) -> list[list[list[FilledMask]]]:
        """For each text and each of its masks the most likely tokens; the outputs come in any order."""
        assert isinstance(features, MaskFeatures)
        tokenizer = features.tokenizer
        decoded = cache(partial(_piece_text, tokenizer))
        filled: list[list[list[FilledMask]]] = [[] for _ in features.positions]
        for number, logits, _ in outputs:
            probabilities = logits.float().softmax(dim=-1)[:, : tokenizer.vocab_size]
            scores, tokens = probabilities.topk(min(self.top_k, tokenizer.vocab_size), dim=-1)
            ids = features.sequences.token_ids(number).tolist()
            positions = features.positions[number].tolist()
            for position, *row in zip(positions, tokens.tolist(), scores.tolist(), strict=True):
                left, right, unfilled = _around(tokenizer, ids, position)
                predictions: list[FilledMask] = []
                for token, score in zip(*row, strict=True):
                    special, text, first, later = decoded(token)
                    sequence = unfilled if special else f"{left}{later if left else first}{right}".strip()
                    predictions.append({"score": score, "token": token, "token_str": text, "sequence": sequence})
                filled[number].append(predictions)
        return filled

    Reply = list[list[FilledMask]]
    about_reply = "For each text and each of its masks, the most likely tokens."

    def reply(self, example: Example, decoded: list[list[FilledMask]], cut: Sequence[int]) -> list[list[FilledMask]]:
        return decoded

    def cell_types(self) -> dict[str, Any]:
        return {"masks": [[FilledMask]], ERROR: str}

    def cells(self, reply: list[list[FilledMask]]) -> dict[str, Any]:
        return {"masks": reply}

    # ---- Its output in an ONNX file ---------------------------------------------------------------------------------

    def onnx(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        words = model.albert.embeddings.word_embeddings.weight
        head = model.predictions
        config = model.config
        dense = graph.activation(graph.layer(hidden, "predictions.dense", head.dense), config.hidden_act)
        normal = graph.layer_norm(dense, "predictions.layer_norm", head.layer_norm)
        rows = graph.node("Reshape", normal, [-1, config.embedding_size])
        flat = graph.tied(rows, "embeddings.words", words, head.bias)
        shape = graph.node("Concat", graph.node("Shape", graph.ids), [config.vocab_size], axis=0)
        return [graph.output("logits", graph.node("Reshape", flat, shape), ("batch", "sequence", config.vocab_size))]

    def onnx_expected(self, model: Any, hidden: Any, packed: Any) -> dict[str, Any]:
        return {"logits": model.predictions(hidden, model.albert.embeddings.word_embeddings.weight)}


def _around(tokenizer: Tokenizer, ids: Sequence[int], position: int) -> tuple[str, str, str]:
    """The text before a mask, after it, and both joined.

    Decoded once per mask: decoding the whole text for every candidate took almost all of the time.
    """
    dropped = {*tokenizer.special_ids} - {tokenizer.mask_id}
    before = [piece for piece in ids[:position] if piece not in dropped]
    after = [piece for piece in ids[position + 1 :] if piece not in dropped]
    mask = tokenizer.piece(tokenizer.mask_id)
    left = _decoded(tokenizer, [*before, tokenizer.mask_id]).removesuffix(mask).removesuffix(" ")
    right = _decoded(tokenizer, [tokenizer.mask_id, *after]).removeprefix(mask)
    return left, right, _decoded(tokenizer, [*before, *after])


def _piece_text(tokenizer: Tokenizer, piece: int) -> tuple[bool, str, str, str]:
    """Return whether a piece is special, and its text alone, at the start of a text, and after other words."""
    mask_id = tokenizer.mask_id
    mask = tokenizer.piece(mask_id)
    first = _decoded(tokenizer, [piece, mask_id]).removesuffix(mask).removesuffix(" ")
    later = _decoded(tokenizer, [mask_id, piece, mask_id]).removeprefix(mask).removesuffix(mask).removesuffix(" ")
    return piece in tokenizer.special_ids, _decoded(tokenizer, [piece]), first, later


def _decoded(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The normalised text of some ids, special pieces written out."""
    return tokenizer.decode(ids, skip_special_tokens=False)
