"""The plan of a training step on a device: its memory by parts, its work, and the largest micro-batch that fits."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from albert.model.config import AlbertConfig
from albert.model.training_flops import pretraining_flops
from albert.model.training_memory import TrainingMemory, count_training_memory, largest_batch
from albert.runtime.precisions import Precision

MASKED_SHARE = 0.15


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """One micro-batch of an architecture.

    Args:
        batch_size, sequence_length, masked_tokens: the micro-batch: sequences, tokens and masked tokens of each.
        device, precision, optimizer: by what it is computed.
        flops: useful work of forward and backward.
        all_kept, checkpointed: memory without and with activation checkpointing.
        limit: bytes that may be used; None: not known.
        largest_batch, largest_batch_checkpointed: the most sequences within the limit.
    """

    batch_size: int
    sequence_length: int
    masked_tokens: int
    device: Literal["cpu", "cuda"]
    precision: Precision
    optimizer: Literal["lamb", "adamw"]
    flops: int
    all_kept: TrainingMemory
    checkpointed: TrainingMemory
    limit: int | None
    largest_batch: int | None
    largest_batch_checkpointed: int | None

    def to_json(self) -> dict[str, Any]:
        """Plain values under names that stay."""
        peaks = {"all_kept": self.all_kept, "checkpointed": self.checkpointed}
        return {**asdict(self), **{name: {**asdict(some), "peak": some.peak} for name, some in peaks.items()}}


def memory_plan(
    config: AlbertConfig,
    *,
    batch_size: int,
    sequence_length: int,
    device: Literal["cpu", "cuda"],
    precision: Precision,
    optimizer: Literal["lamb", "adamw"],
    limit: int | None,
) -> MemoryPlan:
    """Plan a step.

    Args:
        config: the model.
        batch_size: sequences of a micro-batch.
        sequence_length: tokens of each.
        device: where to compute; it need not be there.
        precision: "bf16" for mixed precision.
        optimizer: whose moments are held.
        limit: bytes that may be used; None: not known.
    """
    masked = max(1, round(MASKED_SHARE * sequence_length))

    def memory(sequences: int, activation_checkpointing: bool) -> TrainingMemory:
        return count_training_memory(
            config,
            batch_size=sequences,
            sequence_length=sequence_length,
            device=device,
            precision=precision,
            optimizer=optimizer,
            activation_checkpointing=activation_checkpointing,
            masked_tokens=masked,
        )

    def largest(activation_checkpointing: bool) -> int | None:
        return None if limit is None else largest_batch(lambda some: memory(some, activation_checkpointing), limit)

    return MemoryPlan(
        batch_size=batch_size,
        sequence_length=sequence_length,
        masked_tokens=masked,
        device=device,
        precision=precision,
        optimizer=optimizer,
        flops=pretraining_flops(config, [sequence_length] * batch_size, masked * batch_size),
        all_kept=memory(batch_size, False),
        checkpointed=memory(batch_size, True),
        limit=limit,
        largest_batch=largest(False),
        largest_batch_checkpointed=largest(True),
    )
