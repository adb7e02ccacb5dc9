"""Each sequence goes only as deep as it must: it leaves when so many depths in a row say the same.

Patience-based early exit (PABEE: Zhou et al., 2020, §3.1): one head, which has learnt to read the states after several
layers, is asked after each of them. Who is done leaves the packed batch; the others go on without it, so what is saved
is saved in a batch as well, and each sequence gets what it would get alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from albert.inference.engine import BETWEEN_BATCHES, PackedModel
from albert.model.albert import AlbertForMultipleChoice, AlbertForSequenceClassification, stated_exits
from albert.model.packing import PackedSequences, pack
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.metrics import stated_deviation

Decision = Literal["class", "labels", "number", "option"]
"""What has to stay the same: the likeliest class, the set of labels above a half, a number, or the likeliest option."""
TOLERANCE = 0.1
"""Numbers that lie apart by less agree; in standard deviations of the numbers learnt, where `config.json` has it."""


Members = tuple[int, ...]
"""The places of sequences that are decided together: one, or the options of a question."""


class EarlyExit:
    """A model whose sequences leave early; see `early_exit_of`.

    Args:
        packed_model: a model with a classifier on the pooled sequence.
        patience: so many times in a row an exit must agree with the one before it.
        exits: the depths, in layers, after which the head is asked; the last layer of the model is one always.
        decision: what agreeing means.

    Raises:
        InvalidConfiguration: no patience, or a model that says nothing of a sequence as a whole.
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
        if patience < 1:
            raise InvalidConfiguration("patience", f"is {patience}, at least 1 is needed")
        if not isinstance(model, AlbertForSequenceClassification | AlbertForMultipleChoice):
            why = "goes with one decision a sequence, this model decides about tokens"
            raise InvalidConfiguration("patience", why, "leave it out, or choose a depth")
        self.packed_model, self.patience, self.tolerance = packed_model, patience, tolerance
        self.decision: Decision = "option" if isinstance(model, AlbertForMultipleChoice) else decision
        inner = model.config.inner_group_num
        self.depth = len(model.albert.encoder.plan) // inner
        """Of the model as it runs, in layers."""
        self._inner = inner
        self.exits = (*(depth for depth in sorted(set(exits)) if depth < self.depth), self.depth)

    def rows(
        self,
        token_ids: Sequence[np.ndarray],
        token_types: Sequence[np.ndarray],
        sizes: Sequence[int] | None = None,
    ) -> list[tuple[Any, int]]:
        """What the head gives for each sequence (see `output_rows`), and after how many layers, in the order they came.

        `sizes` counts the sequences of each question, which follow each other and leave together; None: one each."""
        ends = np.cumsum([1] * len(token_ids) if sizes is None else sizes).tolist()
        questions = [tuple(range(first, last)) for first, last in zip([0, *ends], ends, strict=False)]
        rows: list[Any] = [None] * len(token_ids)
        for batch in self._batches(questions, [len(ids) for ids in token_ids]):
            BETWEEN_BATCHES.get()()
            with torch.inference_mode():
                for member, row, depth in self._leaving(batch, token_ids, token_types):
                    rows[member] = (row, depth)
        return rows

    def _batches(self, questions: Sequence[Members], lengths: Sequence[int]) -> Iterator[list[Members]]:
        """Questions that go in together, of like length."""
        totals = [sum(lengths[member] for member in members) for members in questions]
        batch: list[Members] = []
        tokens = 0
        for place in sorted(range(len(questions)), key=lambda place: totals[place]):
            if batch and tokens + totals[place] > self.packed_model.micro_batch_tokens:
                yield batch
                batch, tokens = [], 0
            batch.append(questions[place])
            tokens += totals[place]
        if batch:
            yield batch

    def _leaving(
        self, inside: list[Members], token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray]
    ) -> Iterator[tuple[int, np.ndarray, int]]:
        """Sequences as they leave the batch: their place, their logits, and after how many layers."""
        model = self.packed_model.model

        def packed_together() -> PackedSequences:
            members = [member for question in inside for member in question]
            packed = pack([token_ids[m] for m in members], [token_types[m] for m in members])
            return packed.to(self.packed_model.device)

        packed = packed_together()
        states = model.albert.embeddings(packed)
        layers, done = model.albert.encoder.each_layer(states, packed), 0
        said, agreed = None, np.zeros(len(inside), np.int64)
        for depth in self.exits:
            for _ in range(depth * self._inner - done):
                states = next(layers)
            done = depth * self._inner
            logits = model.head_outputs(states, packed).float().cpu()
            sizes = [len(question) for question in inside]
            now = self._decided(logits, sizes)
            if said is not None:
                agreed = np.where(self._agree(said, now).numpy(), agreed + 1, 0)
            leaves = np.full(len(inside), True) if depth == self.depth else agreed >= self.patience
            for question, part, left in zip(inside, logits.split(sizes), leaves.tolist(), strict=True):
                if left:
                    yield from ((member, row.numpy(), depth) for member, row in zip(question, part, strict=True))
            stays = ~leaves
            said, agreed = now[torch.from_numpy(stays)], agreed[stays]
            inside = [question for question, stay in zip(inside, stays.tolist(), strict=True) if stay]
            if not inside:
                return
            if leaves.any():
                tokens = np.repeat(np.repeat(stays, sizes), packed.lengths)
                states = states[torch.from_numpy(tokens).to(states.device)]
                packed = packed_together()
                layers = model.albert.encoder.each_layer(states, packed, done=done)

    def _decided(self, logits: Float[Tensor, "sequences ..."], sizes: list[int]) -> Shaped[Tensor, "questions ..."]:
        """What the logits say of each question."""
        match self.decision:
            case "class":
                return logits.argmax(dim=1)
            case "labels":
                return logits > 0
            case "number":
                return logits[:, 0]
            case "option":
                return torch.stack([part.argmax() for part in logits.split(sizes)])

    def _agree(
        self, one: Shaped[Tensor, "questions ..."], other: Shaped[Tensor, "questions ..."]
    ) -> Bool[Tensor, " questions"]:
        if self.decision == "number":
            return (one - other).abs() < self.tolerance
        return (one == other).reshape(len(one), -1).all(dim=1)


def early_exit_of(packed_model: PackedModel, patience: int, extra: Mapping[str, Any], model: str) -> EarlyExit:
    """Early exit as `config.json` (`extra`) of a model allows it; `model` is how to call it in an error.

    Raises:
        InvalidConfiguration: it did not learn to answer at several depths, or decides about tokens.
    """
    exits = stated_exits(extra, model)
    problem = extra.get("problem_type")
    if problem == "multi_label_classification":
        return EarlyExit(packed_model, patience, exits, "labels")
    head = getattr(packed_model.model, "classifier", None)
    is_number = problem == "regression" or (isinstance(head, nn.Linear) and head.out_features == 1)
    tolerance = TOLERANCE * stated_deviation(extra, model)
    return EarlyExit(packed_model, patience, exits, "number" if is_number else "class", tolerance)
