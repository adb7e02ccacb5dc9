"""Whether two segments are in their order, or the second one follows the first: what pre-training's head says."""

from collections.abc import Sequence

import numpy as np

from albert.inference.abilities import Prediction
from albert.inference.encoding import encode_texts, said_of_cut
from albert.inference.packed_model import PackedModel
from albert.text.tokenizer import Tokenizer

_ORDERS = {
    "sop": ("in order", "swapped", "probability_in_order"),
    "nsp": ("next", "foreign", "probability_next"),
}


def order_labels(objective: object) -> tuple[str, str]:
    """The names of the head's two classes; `objective` is what it learnt, "nsp" or sentence order."""
    return _ORDERS["nsp" if objective == "nsp" else "sop"][:2]


def judge_orders(
    model: PackedModel,
    tokenizer: Tokenizer,
    max_length: int,
    firsts: Sequence[str],
    seconds: Sequence[str],
    objective: object,
) -> list[Prediction]:
    """For each pair what the head says: `label`, its `score`, the probability of the head's first class.

    `objective` is what the head learnt, "nsp" or sentence order.
    """
    encoded = encode_texts(tokenizer, (firsts, seconds), max_length)
    nowhere = [np.zeros(0, np.int64)] * len(firsts)
    yes, no, key = _ORDERS["nsp" if objective == "nsp" else "sop"]
    found: list[Prediction] = [{}] * len(firsts)
    for number, _, order in model.at(encoded.ids, encoded.token_types, nowhere):
        assert order is not None, "built without a head for the order"
        first_class = float(order.float().softmax(dim=-1)[0])
        label, score = (yes, first_class) if first_class >= 0.5 else (no, 1 - first_class)
        found[number] = {"label": label, "score": score, key: first_class, **said_of_cut(encoded.cut[number])}
    return found
