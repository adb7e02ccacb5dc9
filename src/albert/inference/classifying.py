"""Texts, or pairs of texts, to the probabilities of labels, or to numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from albert.inference.abilities import Prediction, is_number
from albert.inference.early_exit import EarlyExit
from albert.inference.encoding import encode_texts, said_of_cut
from albert.inference.packed_model import PackedModel
from albert.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Classified:
    """What a head says of many texts.

    Attributes:
        scores: probabilities, or the numbers of a regression.
        cut: tokens of each text that did not fit.
        depths: layers that each went through; None where all go through all.
    """

    scores: Float[np.ndarray, "texts labels"]
    cut: list[int]
    depths: list[int] | None


def classify_texts(
    model: PackedModel | EarlyExit,
    tokenizer: Tokenizer,
    max_length: int,
    parts: Sequence[Sequence[str]],
    n_labels: int,
    problem_type: str | None,
) -> Classified:
    """Judge every text, or pair of texts.

    Args:
        model: a classifier, or one that ends early.
        tokenizer: its tokenizer.
        max_length: tokens of a sequence, special ones included.
        parts: one list of texts, or two equally long ones.
        n_labels: outputs of the head.
        problem_type: as in `config.json`: labels that exclude each other, independent ones, or a number.
    """
    encoded = encode_texts(tokenizer, parts, max_length)
    depths = None
    if isinstance(model, EarlyExit):
        found = model.rows(encoded.ids, encoded.token_types)
        rows, depths = [row for row, _ in found], [depth for _, depth in found]
    else:
        rows = model.rows(encoded.ids, encoded.token_types)
    logits = torch.from_numpy(np.stack(rows) if rows else np.zeros((0, n_labels), np.float32))
    if problem_type == "multi_label_classification":
        logits = logits.sigmoid()
    elif not is_number(n_labels, problem_type):
        logits = logits.softmax(dim=-1)
    return Classified(logits.numpy(), encoded.cut, depths)


def ranked_labels(found: Classified, names: Sequence[str]) -> list[list[Prediction]]:
    """The labels of each text, the likeliest first, with what else is to be said of it."""
    orders = np.argsort(-found.scores, axis=1, kind="stable").tolist()
    results = []
    for number, (order, row) in enumerate(zip(orders, found.scores.tolist(), strict=True)):
        said = said_of_cut(found.cut[number])
        if found.depths is not None:
            said["depth"] = found.depths[number]
        results.append([{"label": names[label], "score": row[label], **said} for label in order])
    return results
