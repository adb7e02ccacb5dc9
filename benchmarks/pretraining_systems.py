"""What pretraining_step.py compares: this project's pre-training step and those that users of transformers take.

All have the same architecture, samples, masks, precision and LAMB. Transformers pads a batch to its longest sequence
and computes vocabulary logits everywhere, as `Trainer` with its own collator does; "gathered" is what a careful user
makes of it, who computes them at the masked positions alone.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AlbertConfig as TheirConfig
from transformers import AlbertForPreTraining as TheirModel

from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import collate, pretraining_objective
from albert.pretraining.sampling import Sample
from albert.pretraining.segments import NO_LABEL
from albert.runtime.devices import autocast
from albert.runtime.environment import Precision

OURS, GATHERED = "albert", "gathered"
PADDED = ("sdpa", "eager", "compiled")
"""transformers as it is, by how it computes attention; compiled: the whole model, all batches of one length."""
CPU = torch.device("cpu")


class System(NamedTuple):
    """A model that learns."""

    loss: Callable[[Sequence[Sample]], Tensor]
    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer

    def step(self, samples: Sequence[Sample], precision: Precision) -> None:
        """Forward, backward, clipping, update."""
        with autocast(CPU, precision):
            loss = self.loss(samples)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def build(name: str, config: AlbertConfig, length: int) -> System:
    """One of them, on the CPU, with weights of its own.

    Args:
        name: "albert", "sdpa", "eager", "compiled" or "gathered".
        config: the architecture.
        length: the longest sequence, to which "compiled" pads.
    """
    if name == OURS:
        ours = AlbertForPreTraining(config).train()
        return System(_our_loss(ours), list(ours.parameters()), build_optimizer(OptimizerRecipe(), ours))
    fields = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
              "intermediate_size", "hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob",
              "classifier_dropout_prob")  # fmt: skip
    their_config = TheirConfig(**{field: getattr(config, field) for field in fields})
    attention = "eager" if name == "eager" else "sdpa"
    theirs = TheirModel._from_config(their_config, attn_implementation=attention).train()
    loss = _gathered_loss(theirs) if name == GATHERED else _padded_loss(theirs, length if name == "compiled" else None)
    return System(loss, list(theirs.parameters()), build_optimizer(OptimizerRecipe(), theirs))


def _our_loss(model: AlbertForPreTraining) -> Callable[[Sequence[Sample]], Tensor]:
    def loss(samples: Sequence[Sample]) -> Tensor:
        batch = collate(samples)
        sums = pretraining_objective(model, batch)
        return torch.stack([sums.losses[name] / max(1, batch.counts[name]) for name in sums.losses]).sum()

    return loss


def _padded_loss(model: TheirModel, compiled_length: int | None) -> Callable[[Sequence[Sample]], Tensor]:
    called = model if compiled_length is None else torch.compile(model)
    return lambda samples: called(**padded(samples, compiled_length)).loss


def _gathered_loss(model: TheirModel) -> Callable[[Sequence[Sample]], Tensor]:
    def loss(samples: Sequence[Sample]) -> Tensor:
        rows = padded(samples, None)
        labels, orders = rows.pop("labels"), rows.pop("sentence_order_label")
        hidden, pooled = model.albert(**rows)[:2]
        masked = labels != NO_LABEL
        tokens = functional.cross_entropy(model.predictions(hidden[masked]), labels[masked])
        return tokens + functional.cross_entropy(model.sop_classifier(pooled), orders)

    return loss


def padded(samples: Sequence[Sample], length: int | None) -> dict[str, Tensor]:
    """Samples as transformers takes them, one row each; None: as long as the longest."""
    names = ("input_ids", "token_type_ids", "attention_mask", "labels")
    columns = length or max(len(sample.token_ids) for sample in samples)
    rows = {name: np.zeros((len(samples), columns), dtype=np.int64) for name in names}
    rows["labels"][:] = NO_LABEL
    for row, sample in enumerate(samples):
        real = slice(len(sample.token_ids))
        rows["input_ids"][row, real] = sample.token_ids
        rows["token_type_ids"][row, real] = sample.token_type_ids
        rows["attention_mask"][row, real] = 1
        rows["labels"][row, sample.masked_positions] = sample.masked_labels
    rows["sentence_order_label"] = np.array([sample.order_label for sample in samples])
    return {name: torch.from_numpy(some) for name, some in rows.items()}
