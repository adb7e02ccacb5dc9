"""What each layer does to a text: attention, how far it moves every token, what a head would predict there.

The heads were trained on the last layer's output. Read after an earlier one they show how a prediction comes about
(the "logit lens"); ALBERT's layers share their parameters, so that every layer speaks the same language."""

import base64
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from albert.inference.abilities import CLASSIFYING, FILLING, MASK, ORDERING
from albert.inference.predictor import Predictor
from albert.inference.tasks import order_labels
from albert.model.albert import AlbertModel
from albert.model.packing import PackedSequences, pack
from albert.tasks.examples import keep_longest_first
from albert.text.tokenizer import Tokenizer

# --------------------------------------------------------------------------------------------------------------------
# How far a layer moves a token, as the paper's Figure 1 measures it (Lan et al. 2019, §3.1).

_SHORTEST = 1e-12
"""Length below which a vector has no direction."""


def layer_movement(
    before: Float[Tensor, "tokens H"], after: Float[Tensor, "tokens H"]
) -> tuple[Float[Tensor, " tokens"], Float[Tensor, " tokens"]]:
    """L2 distance and angle (degrees) between what goes into a layer and what comes out, of each token.

    The angle is 2 atan2(‖u − v‖, ‖u + v‖) of the unit vectors, which is exact for small angles, where the arc cosine
    of a cosine next to 1 is not.
    """
    before, after = before.double(), after.double()
    distance = (after - before).norm(dim=-1)
    u, v = (state / state.norm(dim=-1, keepdim=True).clamp_min(_SHORTEST) for state in (before, after))
    angle = 2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1))
    return distance.float(), angle.rad2deg().float()


LIKELIEST = 5
"""Pieces that are told for a mask after each layer."""


def show_layers(predictor: Predictor, text: str, pair: str | None, most_tokens: int) -> dict[str, Any]:
    """What every layer does to one text, or pair.

    Args:
        predictor: any model.
        text: it may hold `[MASK]`.
        pair: a second text.
        most_tokens: what is longer is cut, and said to be.

    Returns:
        Plain values: `tokens` and `tokens_cut`; `attention`, one byte for each [layer, head, from, to], 255 standing
        for 1, in base64; `distance`, `angle` (degrees) and `token_distance` between input and output of each layer, as
        in the paper's Figure 1; `masks` and `labels` with `label_scores`: what the model's head says after each layer,
        the first of them being what goes into the first layer.
    """
    tokenizer = predictor.tokenizer
    model: Any = predictor.network
    texts = (text,) if pair is None else (text, pair)
    ids, types, cut = _encode(tokenizer, texts, min(most_tokens, predictor.max_length))
    packed = pack([ids], [types]).to(predictor.device)
    body: AlbertModel = getattr(model, "albert", model)
    with torch.inference_mode():
        states = [state.float() for state in body.hidden_states(packed)]
        attention = np.stack([rows.cpu().numpy() for rows in attention_probabilities(body, states[:-1])])
        pairs = [layer_movement(before, after) for before, after in pairwise(states)]
        moved, angles = (torch.stack(each) for each in zip(*pairs, strict=True))
        return {
            "tokens": [tokenizer.piece(int(piece)) for piece in ids],
            "tokens_cut": cut,
            "heads": attention.shape[1],
            "attention": base64.b64encode((attention * 255).round().astype(np.uint8).tobytes()).decode("ascii"),
            "distance": moved.mean(dim=1).tolist(),
            "angle": angles.mean(dim=1).tolist(),
            "token_distance": moved.tolist(),
            "masks": _masks(predictor, model, states, ids) if FILLING in predictor.abilities else [],
            **_decisions(predictor, model, body, states, packed, pair is not None),
        }


def attention_probabilities(
    body: AlbertModel, inputs: Sequence[Float[Tensor, "tokens H"]]
) -> Iterable[Float[Tensor, "heads tokens tokens"]]:
    """Of each layer, from what goes into it: how one sequence's tokens (rows) share their attention among all.

    Args:
        body: the model without its head.
        inputs: one sequence's tokens, for each layer.
    """
    for application, hidden in zip(body.encoder.plan, inputs, strict=True):
        block: Any = body.encoder.attentions[application.attention]
        query, key = (
            linear(hidden).unflatten(1, (block.heads, -1)).transpose(0, 1) for linear in (block.query, block.key)
        )
        scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
        if block.window is not None:
            places = torch.arange(len(hidden), device=hidden.device)
            seen = (places[:, None] - places).abs() <= block.window
            seen[0], seen[:, 0] = True, True
            scores = scores.masked_fill(~seen, float("-inf"))
        yield scores.softmax(dim=-1)


def _encode(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> tuple[np.ndarray, np.ndarray, int]:
    """`[CLS] A [SEP]` or `[CLS] A [SEP] B [SEP]` with the masks of both, cut longest-first."""
    runs = []
    for text in texts:
        first, *others = (tokenizer.encode(part) for part in text.split(MASK))
        runs.append([*first, *(piece for part in others for piece in (tokenizer.mask_id, *part))])
    kept = keep_longest_first([len(run) for run in runs], most - 1 - len(runs))
    ids = [tokenizer.cls_id]
    for run, count in zip(runs, kept, strict=True):
        ids += [*run[:count], tokenizer.sep_id]
    types = np.arange(len(ids)) >= kept[0] + 2
    return np.array(ids, np.int64), types.astype(np.int64), sum(map(len, runs)) - sum(kept)


def _masks(predictor: Predictor, model: Any, states: Sequence[Tensor], ids: np.ndarray) -> list[dict[str, Any]]:
    tokenizer = predictor.tokenizer
    words = model.albert.embeddings.word_embeddings.weight
    found = []
    for place in np.flatnonzero(ids == tokenizer.mask_id).tolist():
        logits = model.predictions(torch.stack([state[place] for state in states]), words)
        scores, pieces = logits.float().softmax(dim=-1)[:, : tokenizer.vocab_size].topk(LIKELIEST, dim=-1)
        layers = [
            [{"piece": tokenizer.piece(piece), "score": score} for piece, score in zip(*row, strict=True)]
            for row in zip(pieces.tolist(), scores.tolist(), strict=True)
        ]
        found.append({"position": place, "layers": layers})
    return found


def _decisions(
    predictor: Predictor, model: Any, body: AlbertModel, states: Sequence[Tensor], packed: PackedSequences, paired: bool
) -> dict[str, Any]:
    """The classifier's probabilities after each layer, or of the order of a pair."""
    if CLASSIFYING in predictor.abilities:
        head, labels = model.classifier, predictor.labels
    elif ORDERING in predictor.abilities and paired:
        head, labels = model.sop_classifier, list(order_labels(predictor.extra.get("sentence_objective")))
    else:
        return {"labels": [], "label_scores": []}
    logits = torch.cat([head(body.pool(state, packed)) for state in states]).float()
    independent = predictor.extra.get("problem_type") == "multi_label_classification"
    scores = logits.sigmoid() if independent else logits.softmax(dim=-1)
    return {"labels": labels, "label_scores": scores.tolist()}
