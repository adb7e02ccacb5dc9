"""Early exit: a sequence stops at the layer where its prediction has agreed for `patience` exits in a row.

Patience-based early exit (PABEE: Zhou et al., 2020, §3.1): one head, trained on the states after several layers, is
applied after each of them. A finished sequence is removed from the packed batch, so that batches save time too, and
each result is the same as for its sequence alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from albert.inference.engine import PackedModel
from albert.model.albert import AlbertForMultipleChoice, AlbertForSequenceClassification, read_exit_depths
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.metrics import saved_deviation

Decision = Literal["class", "labels", "number", "option"]
"""What consecutive exits must agree on: the top class, the set of labels above 0.5, a number, or the top option."""
TOLERANCE = 0.1
"""Numbers that differ by less agree; in standard deviations of the training labels, if `config.json` has it."""
Members = tuple[int, ...]  # Indices of sequences that are decided together: one, or the options of a question


class EarlyExit:
    """A model with early exit; see `early_exit_of`.

    Args:
        packed_model: a model with a classifier on the pooled sequence.
        patience: how many times in a row an exit must agree with the previous one.
        exits: layers after which the head is applied; the last layer is always one.
        decision: what exits must agree on.
    """

    def __init__(
        self,
        packed_model: PackedModel,
        patience: int,
        exits: Sequence[int],
        decision: Decision = "class",
        tolerance: float = TOLERANCE,
    ) -> None:
        model = packed_model.model
        if not isinstance(patience, int | np.integer) or patience < 1:
            raise InvalidConfiguration("patience", f"is {patience!r}, a whole number of at least 1 is needed")
        if not isinstance(model, AlbertForSequenceClassification | AlbertForMultipleChoice):
            why = "needs a sequence-level head, this model classifies tokens"
            raise InvalidConfiguration("patience", why, "leave it out, or choose a depth")
        self.packed_model = packed_model
        self.patience = patience
        self.tolerance = tolerance
        self.decision: Decision = "option" if isinstance(model, AlbertForMultipleChoice) else decision
        self._inner = model.config.inner_group_num
        self.depth = len(model.albert.encoder.plan) // self._inner  # Layers that the model is set to run
        self.exits = (*(depth for depth in sorted(set(exits)) if depth < self.depth), self.depth)

    def rows(
        self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray], sizes: Sequence[int] | None = None
    ) -> list[tuple[Any, int]]:
        """The head's output for each sequence (see `output_rows`) and the layers computed for it, in input order.

        `sizes` has the number of (consecutive) sequences of each question, which exit together; None: one each."""
        bounds = accumulate([1] * len(token_ids) if sizes is None else sizes, initial=0)
        questions = [tuple(range(first, last)) for first, last in pairwise(bounds)]
        totals = [sum(len(token_ids[member]) for member in members) for members in questions]
        rows: list[Any] = [None] * len(token_ids)

        def run(batch: Sequence[int]) -> list[tuple[int, np.ndarray, int]]:
            return list(self._run_batch([questions[index] for index in batch], token_ids, token_types))

        for _, exits in self.packed_model.compute(run, totals):
            for member, row, depth in exits:
                rows[member] = (row, depth)
        return rows

    def _run_batch(
        self, active: list[Members], token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray]
    ) -> Iterator[tuple[int, np.ndarray, int]]:
        """Sequences as they exit: index, logits, and number of layers."""
        model = self.packed_model.model
        packed = self.packed_model.pack(token_ids, token_types, list(chain(*active)))
        states = model.albert.embeddings(packed)
        layers = model.albert.encoder.each_layer(states, packed)
        done = 0
        previous = None
        agreed = np.zeros(len(active), np.int64)
        for depth in self.exits:
            for _ in range(depth * self._inner - done):
                states = next(layers)
            done = depth * self._inner
            logits = model.head_outputs(states, packed).float().cpu()
            sizes = [len(question) for question in active]
            current = self._decisions(logits, sizes)
            if previous is not None:
                if self.decision == "number":
                    agrees = (previous - current).abs() < self.tolerance
                else:
                    agrees = (previous == current).reshape(len(previous), -1).all(dim=1)
                agreed = np.where(agrees.numpy(), agreed + 1, 0)
            exits = np.full(len(active), True) if depth == self.depth else agreed >= self.patience
            for question, part, is_done in zip(active, logits.split(sizes), exits.tolist(), strict=True):
                if is_done:
                    yield from ((member, row.numpy(), depth) for member, row in zip(question, part, strict=True))
            stays = ~exits
            previous = current[torch.from_numpy(stays)]
            agreed = agreed[stays]
            active = [question for question, stay in zip(active, stays.tolist(), strict=True) if stay]
            if not active:
                return
            if exits.any():
                tokens = np.repeat(np.repeat(stays, sizes), packed.lengths)
                states = states[torch.from_numpy(tokens).to(states.device)]
                packed = self.packed_model.pack(token_ids, token_types, list(chain(*active)))
                layers = model.albert.encoder.each_layer(states, packed, done=done)

    def _decisions(self, logits: Float[Tensor, "sequences ..."], sizes: list[int]) -> Shaped[Tensor, "questions ..."]:
        """The decision for each question."""
        match self.decision:
            case "class":
                return logits.argmax(dim=1)
            case "labels":
                return logits > 0
            case "number":
                return logits[:, 0]
            case "option":
                return torch.stack([part.argmax() for part in logits.split(sizes)])


def early_exit_of(packed_model: PackedModel, patience: int, extra: Mapping[str, Any], model: str) -> EarlyExit:
    """Early exit with the exits that `config.json` (`extra`) lists; `model` is the model's name in errors."""
    exits = read_exit_depths(extra, model)
    problem = extra.get("problem_type")
    if problem == "multi_label_classification":
        return EarlyExit(packed_model, patience, exits, "labels")
    head = getattr(packed_model.model, "classifier", None)
    is_number = problem == "regression" or (isinstance(head, nn.Linear) and head.out_features == 1)
    tolerance = TOLERANCE * saved_deviation(extra, model)
    return EarlyExit(packed_model, patience, exits, "number" if is_number else "class", tolerance)
