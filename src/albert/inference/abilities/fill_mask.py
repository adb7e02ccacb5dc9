"""Masked tokens: the most likely pieces for each `[MASK]` of a text; the other masks stay masked."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, TypedDict

import numpy as np

from albert.inference.abilities.base import (
    ERROR,
    Ability,
    Fields,
    Settings,
    Texts,
    TopK,
    UnansweredTexts,
    text_of,
)
from albert.inference.texts import MASK, check_texts, check_top_k, encode_texts
from albert.runtime.errors import UsageError
from albert.tables.records import Record

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output
    from albert.inference.predictor import Predictor
    from albert.text.tokenizer import Tokenizer

NO_MASK = f'write one, as in "The cat {MASK} on the mat."'
MAX_CANDIDATES = 4096
"""Predictions in a reply, masks times `top_k`; each comes with its whole text."""
DEFAULT_TOP_K = 5


class MaskedText(NamedTuple):
    """An input: a text with one mask or several."""

    text: str


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


class FillMask(Ability):
    """The most likely tokens for each mask."""

    name = "fill-mask"
    about = "The most likely tokens for each `[MASK]`."
    needs = "fill masks"
    heads: ClassVar = {"pretraining": ("predictions.",), "masked_lm": ("predictions.",)}

    # ---- A row of a file -------------------------------------------------------------------------------------------

    options = ("--text", "--top-k")
    has_first_tab = True

    def read(self, record: Record, fields: Fields) -> MaskedText:
        return MaskedText(text_of(record, fields.text, "--text"))

    # ---- A request -------------------------------------------------------------------------------------------------

    request = FillMaskRequest
    example: ClassVar = {"texts": ["The captain stood on the [MASK] of the ship."], "top_k": DEFAULT_TOP_K}

    def inputs(self, request: FillMaskRequest) -> list[MaskedText]:
        for number, text in enumerate(request.texts):
            if MASK not in text:
                raise UsageError(f"texts.{number}", f"has no {MASK}", NO_MASK)
        return [MaskedText(text) for text in request.texts]

    def settings(self, request: FillMaskRequest) -> Settings:
        return Settings(top_k=request.top_k)

    def too_much(self, request: FillMaskRequest) -> str | None:
        masks = sum(text.count(MASK) for text in request.texts)
        candidates = masks * request.top_k
        if candidates <= MAX_CANDIDATES:
            return None
        total = f"{masks} masks with top_k {request.top_k} are {candidates} candidates"
        remedy = "send fewer texts or masks, or a smaller top_k"
        return f"{total}, at most {MAX_CANDIDATES} are allowed; {remedy}"

    # ---- How it is computed ----------------------------------------------------------------------------------------

    def compute(
        self, predictor: "Predictor", inputs: Sequence[MaskedText], settings: Settings
    ) -> list[list[list[FilledMask]]]:
        return fill_masks(predictor, [text for (text,) in inputs], settings.top_k or DEFAULT_TOP_K)

    # ---- The reply -------------------------------------------------------------------------------------------------

    reply = list[list[FilledMask]]
    about_reply = "For each text and each of its masks, the most likely tokens."

    # ---- The column of a file --------------------------------------------------------------------------------------

    def columns(self, predictor: "Predictor", settings: Settings) -> dict[str, Any]:
        return {"masks": [[FilledMask]], ERROR: str}

    def row(self, predictor: "Predictor", result: list[list[FilledMask]]) -> dict[str, Any]:
        return {"masks": result}

    # ---- Its outputs in an ONNX file -------------------------------------------------------------------------------

    def onnx_outputs(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        from albert.inference.onnx_graph import Output

        words = model.albert.embeddings.word_embeddings.weight
        head = model.predictions
        config = model.config
        dense = graph.activation(graph.layer(hidden, "predictions.dense", head.dense), config.hidden_act)
        normal = graph.layer_norm(dense, "predictions.layer_norm", head.layer_norm)
        rows = graph.node("Reshape", normal, [-1, config.embedding_size])
        flat = graph.tied(rows, "embeddings.words", words, head.bias)
        shape = graph.node("Concat", graph.node("Shape", graph.ids), [config.vocab_size], axis=0)
        return [Output("logits", graph.node("Reshape", flat, shape), ("batch", "sequence", config.vocab_size))]

    def head_outputs(self, model: Any, hidden: Any, packed: Any) -> dict[str, list[Any]]:
        from albert.model.albert import output_rows

        logits = model.predictions(hidden, model.albert.embeddings.word_embeddings.weight)
        return {"logits": output_rows(logits, packed.lengths)}


FILL_MASK = FillMask()


def fill_masks(
    predictor: "Predictor", texts: Sequence[str], top_k: int = DEFAULT_TOP_K
) -> list[list[list[FilledMask]]]:
    """What `Predictor.fill_mask_batch` gives."""
    predictor.require(FILL_MASK)
    check_texts("texts", texts)
    check_top_k(top_k)
    tokenizer = predictor.tokenizer
    ids = encode_with_masks(tokenizer, texts, predictor.max_length)
    masked = [np.flatnonzero(row == tokenizer.mask_id) for row in ids]
    decoded = cache(partial(_piece_text, tokenizer))
    filled: list[list[list[FilledMask]]] = [[] for _ in texts]
    for number, logits, _ in predictor.packed_model.at(ids, [np.zeros_like(row) for row in ids], masked):
        probabilities = logits.float().softmax(dim=-1)[:, : tokenizer.vocab_size]
        scores, tokens = probabilities.topk(min(top_k, tokenizer.vocab_size), dim=-1)
        for position, *row in zip(masked[number].tolist(), tokens.tolist(), scores.tolist(), strict=True):
            left, right, unfilled = _around(tokenizer, ids[number].tolist(), position)
            predictions: list[FilledMask] = []
            for token, score in zip(*row, strict=True):
                special, text, first, later = decoded(token)
                sequence = unfilled if special else f"{left}{later if left else first}{right}".strip()
                predictions.append({"score": score, "token": token, "token_str": text, "sequence": sequence})
            filled[number].append(predictions)
    return filled


def encode_with_masks(tokenizer: "Tokenizer", texts: Sequence[str], max_length: int) -> list[np.ndarray]:
    """Ids (int64 [length]) of texts; raises UnansweredTexts for those without a mask or with too many tokens."""
    encoded = encode_texts(tokenizer, (texts,), max_length, masked=True)
    reasons: dict[int, tuple[str, str | None]] = {}
    for number, text in enumerate(texts):
        if MASK not in text and tokenizer.piece(tokenizer.mask_id) not in text:
            reasons[number] = (f"has no {MASK} to fill", NO_MASK)
        elif encoded.cut[number]:
            why = f"has {len(encoded.ids[number]) + encoded.cut[number]} tokens, the model reads {max_length}"
            reasons[number] = (why, f"leave only what is near the {MASK}")
    if reasons:
        raise UnansweredTexts("text", reasons)
    return encoded.ids


def _around(tokenizer: "Tokenizer", ids: Sequence[int], position: int) -> tuple[str, str, str]:
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


def _piece_text(tokenizer: "Tokenizer", piece: int) -> tuple[bool, str, str, str]:
    """Return whether a piece is special, and its text alone, at the start of a text, and after other words."""
    mask_id = tokenizer.mask_id
    mask = tokenizer.piece(mask_id)
    first = _decoded(tokenizer, [piece, mask_id]).removesuffix(mask).removesuffix(" ")
    later = _decoded(tokenizer, [mask_id, piece, mask_id]).removeprefix(mask).removesuffix(mask).removesuffix(" ")
    return piece in tokenizer.special_ids, _decoded(tokenizer, [piece]), first, later


def _decoded(tokenizer: "Tokenizer", ids: Sequence[int]) -> str:
    """The normalised text of some ids, special pieces written out."""
    return tokenizer.decode(ids, skip_special_tokens=False)
