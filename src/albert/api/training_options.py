"""The options of `albert finetune` and `albert sweep` for how a model is trained, apart from the task's recipe."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from albert.api.options import option_name
from albert.model.config import ArchitectureChanges
from albert.runtime.environment import Precision
from albert.runtime.errors import UsageError
from albert.runtime.json_files import common_fields
from albert.tasks.declared import ThresholdFrom
from albert.tasks.inputs import PairEncoding
from albert.tasks.span import SpanHeadKind
from albert.tasks.table_task import RecipeChanges
from albert.training.metric_logger import DEFAULT_LOG, Log

if TYPE_CHECKING:
    from albert.finetuning.objective import Distillation
    from albert.finetuning.run_record import FinetuningSettings


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a model is trained; values that are not set are chosen for the task and the model."""

    depth: int | None = None
    """Number of layers to apply; as many as in training when not set. Half of the layers are half of the work."""
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
    frozen: bool = False
    """Only the linear head, on frozen features, with the best regularisation by cross-validation."""
    freeze_encoder: bool = False
    """Train only pooler and head; the encoder's output is computed once for each example, without dropout."""
    teacher: str | None = None
    """A model fine-tuned on the same task, for distillation: a directory, a run, or a Hub id."""
    teacher_revision: str | None = None
    """A branch, tag or commit of the teacher's Hub repository."""
    distillation_temperature: float | None = None
    """The divisor of both models' logits; 2 when not set."""
    distillation_weight: float | None = None
    """Weight of the teacher in the loss; the labels have the rest. 0.5 when not set."""
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
    table when --select is not set."""
    class_weights: Literal["balanced"] | None = None
    """balanced: rare classes, labels or tags count as much in the loss as frequent ones."""
    max_train_examples: int | None = None
    """Train on a sample of the rows, drawn by the seed."""
    evaluate_every: int | None = None
    """Steps between evaluations. When not set, only at the end, or with --select best every 100 as in the paper; for
    your own table up to ten times in a run."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; every ten minutes when not set."""
    micro_batch_tokens: int = 8192
    """Tokens in one pass through the model; fewer need less memory and change no result."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Precision | None = None
    """When not set, bf16 on a GPU that supports it, otherwise fp32."""
    workers: int = 0
    """Number of processes that make batches."""
    log: Log = DEFAULT_LOG
    """Where the curves go: TensorBoard's files in OUTPUT, Weights & Biases or trackio (of the extras wandb and trackio;
    the project is that of WANDB_PROJECT or TRACKIO_PROJECT)."""

    def check(self, architecture: ArchitectureChanges, changes: RecipeChanges) -> None:
        """Raise UsageError for options that contradict each other, or those of the model's shape or of the recipe."""
        if self.freeze_encoder and changes.encoder_dropout:
            remedy = "leave it or --freeze-encoder out"
            raise UsageError("--encoder-dropout", "has no effect with --freeze-encoder", remedy)
        for name in ("distillation_temperature", "distillation_weight", "teacher_revision"):
            if getattr(self, name) is not None and self.teacher is None:
                raise UsageError(option_name(name), "requires --teacher", "name a fine-tuned model with it")
        if self.depth is not None and architecture.num_hidden_layers not in (None, self.depth):
            raise UsageError("--depth", "and --num-hidden-layers are the same thing", "give one of them")

    def settings(self) -> "FinetuningSettings":
        """The settings of a run with these options."""
        from albert.finetuning.run_record import FinetuningSettings

        values = common_fields(FinetuningSettings, self)
        return FinetuningSettings(**values, distillation=self._distillation())

    def _distillation(self) -> "Distillation | None":
        """The teacher, if there is one; what is not given has its usual value."""
        from albert.finetuning.objective import Distillation

        if self.teacher is None:
            return None
        values = {
            "revision": self.teacher_revision,
            "temperature": self.distillation_temperature,
            "weight": self.distillation_weight,
        }
        given = {name: value for name, value in values.items() if value is not None}
        return Distillation(teacher=self.teacher, **given)


USUAL_TRAINING = TrainingOptions()
