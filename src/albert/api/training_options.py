"""The keys of `albert finetune` and `albert sweep` for how a model is trained, apart from the task's recipe."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from albert.runtime.environment import Precision
from albert.runtime.errors import UsageError
from albert.runtime.json_files import common_fields
from albert.tasks.declared import ThresholdFrom
from albert.tasks.inputs import PairEncoding
from albert.tasks.span import SpanHeadKind
from albert.tasks.table_task import RecipeChanges
from albert.training.metric_logger import DEFAULT_LOG, Log

if TYPE_CHECKING:
    from albert.finetuning.run_record import FinetuningSettings

Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a model is trained; values that are not set are chosen for the task and the model."""

    encode_pairs: PairEncoding | None = None
    """How the two texts of a pair are encoded: together, as one sequence (a cross-encoder, as in the paper), or
    separately (a bi-encoder, as in sentence-transformers), where the head compares their means. Together when not
    set."""
    match_embedding: bool | None = None
    """Mark the tokens of two texts in one sequence that occur in the other text, by an embedding of their own. When not
    set, for models narrower than ALBERT-base, which do not learn to match words by attention."""
    solve_head: bool | None = None
    """Begin with the best linear head on the model's frozen features, then fine-tune (Kumar et al.
    2022). When not set, for your own tables, unless they have numbers."""
    freeze_encoder: bool = False
    """Train only pooler and head; the encoder's output is computed once for each example, without dropout."""
    temperature: float | None = field(default=None, metadata={"key": "distillation.temperature"})
    """With --teacher: the divisor of both models' logits; 2 when not set."""
    weight: float | None = field(default=None, metadata={"key": "distillation.weight"})
    """With --teacher: its weight in the loss; the labels have the rest. 0.5 when not set."""
    span_head: SpanHeadKind | None = None
    """Span tasks: joint, the paper's head for SQuAD 2.0; or independent start and end, which transformers opens too."""
    null_threshold: ThresholdFrom = "train"
    """For questions without an answer: where the threshold is chosen. train holds out some training questions; dev, as
    in the reference, makes the score on dev too good."""
    threshold: float | None = None
    """Several labels per row: the probability from which on a label is predicted. When not set, the best one for rows
    that are held out of training."""
    optimizer: Literal["adamw", "lamb"] = "adamw"
    """The optimiser."""
    seed: int = 0
    """Seed of the new head, order of the rows and dropout."""
    page_examples: int = 5
    """Number of short development rows, without labels, to save in the model's folder (examples.json) as examples on
    the page of albert serve."""
    select: Literal["last", "best"] | None = None
    """best: the model with the best development score of all evaluations, as in the paper; that score is biased
    upwards, because the same set selects the model. Every summary names the selection. When not set, best for your own
    table with at least 100 development rows, else last."""
    patience: int | None = None
    """End the run after so many evaluations in a row without a better score, and keep the best one; 5 for your own
    table when select is not set."""
    class_weights: Literal["balanced"] | None = None
    """balanced: rare classes, labels or tags count as much in the loss as frequent ones."""
    max_train_examples: int | None = None
    """Train on a sample of the rows, drawn by the seed."""
    evaluate_every: int | None = None
    """Steps between evaluations. When not set, only at the end, or with select=best every 100 as in the paper; for
    your own table up to ten times in a run."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; every ten minutes when not set."""
    micro_batch_tokens: int = 8192
    """Tokens in one pass through the model; fewer need less memory and change no result."""
    precision: Precision | None = None
    """When not set, bf16 on a GPU that supports it, otherwise fp32."""
    workers: int = 0
    """Number of processes that make batches."""
    log: Log = DEFAULT_LOG
    """Where the curves go: TensorBoard's files in OUTPUT, Weights & Biases or trackio (of the extras wandb and trackio;
    the project is that of WANDB_PROJECT or TRACKIO_PROJECT)."""

    def check(self, changes: RecipeChanges, teacher: str | None) -> None:
        """Raise UsageError for keys that contradict each other, or those of the recipe."""
        if self.freeze_encoder and changes.encoder_dropout:
            raise UsageError("encoder_dropout", "has no effect with freeze_encoder", "leave one of them out")
        for name in ("temperature", "weight"):
            if getattr(self, name) is not None and teacher is None:
                raise UsageError(f"distillation.{name}", "requires --teacher", "name a fine-tuned model with it")

    def settings(self, frozen: bool, teacher: str | None, device: Device) -> "FinetuningSettings":
        """The settings of a run with these keys.

        Args:
            frozen: whether only a head on frozen features is learned.
            teacher: a model that is learned from.
        """
        from albert.finetuning.objective import Distillation
        from albert.finetuning.run_record import FinetuningSettings

        distillation = None
        if teacher is not None:
            values = {"temperature": self.temperature, "weight": self.weight}
            given = {name: value for name, value in values.items() if value is not None}
            distillation = Distillation(teacher=teacher, **given)
        values = common_fields(FinetuningSettings, self)
        return FinetuningSettings(**values, frozen=frozen, device=device, distillation=distillation)


USUAL_TRAINING = TrainingOptions()
