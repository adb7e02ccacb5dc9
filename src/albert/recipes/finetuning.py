"""The recipe of fine-tuning: the values of a task, the keys that a user may set, and the settings of a run."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from albert.recipes.optimizer import OptimizerRecipe, refuse_implausible_rate
from albert.runtime.environment import DEFAULT_LOG, Log, Precision
from albert.runtime.errors import InvalidConfiguration, UsageError, require_range
from albert.runtime.json_files import common_fields, to_json

ThresholdFrom = Literal["train", "dev"]
"""The questions that choose the no-answer threshold: some held out of training, or the scored ones."""
PairEncoding = Literal["together", "separately"]
"""together: both texts in one sequence (a cross-encoder); separately: one sequence each, whose mean states the head
compares (a bi-encoder)."""
SpanHeadKind = Literal["joint", "independent"]
"""joint: the end given the start, and a separate no-answer logit (the paper's SQuAD 2.0 models); independent: start and
end logits, both at [CLS] for no answer (question answering in transformers)."""
SelectedBy = Literal["last", "best"]
Device = Literal["auto", "cpu", "cuda"]
EVALUATION_INTERVAL = 100
"""Steps between evaluations, as in the paper."""


@dataclass(frozen=True, kw_only=True)
class TaskRecipe:
    """Settings of fine-tuning. Lengths are in tokens, special tokens included; dropouts are probabilities.

    Exactly one of `steps` and `epochs` is set. `examples` is the training set size that `steps` was chosen for: with
    another number of examples the number of epochs stays the same, not the number of steps.
    """

    learning_rate: float
    batch_size: int
    steps: int | None = None
    examples: int | None = None
    epochs: float | None = None
    warmup_share: float = 0.1
    weight_decay: float = 0.01
    max_length: int = 512
    encoder_dropout: float | None = None
    head_dropout: float = 0.1
    question_length: int = 64
    stride: int = 128

    def total_steps(self, training_examples: int) -> int:
        """Optimiser updates for this number of examples; InvalidConfiguration unless one of steps and epochs is set."""
        if (self.steps is None) == (self.epochs is None):
            why = "exactly one of steps and epochs must be set"
            raise InvalidConfiguration("recipe", why, "give steps or epochs")
        if self.epochs is not None:
            return max(1, round(self.epochs * training_examples / self.batch_size))
        assert self.steps is not None
        if self.examples is not None and training_examples != self.examples:
            return max(1, round(self.steps * training_examples / self.examples))
        return self.steps

    def within(self, positions: int, asked: int | None = None) -> "TaskRecipe":
        """The recipe with its length limited to the position embeddings of the model.

        Raises:
            InvalidConfiguration: the length that was asked for is larger.
        """
        if asked is not None and asked > positions:
            why = f"is {asked}, the model has {positions} positions"
            raise InvalidConfiguration("max_length", why, f"choose at most {positions}")
        return replace(self, max_length=min(self.max_length, positions))

    def check(self) -> None:
        """Raise InvalidConfiguration, naming the field, if a value is out of range."""
        require_range(self, "a number above 0", "learning_rate", "epochs")
        require_range(self, "at least 1", "batch_size", "steps", "question_length", "stride")
        require_range(self, "at least 8", "max_length")
        require_range(self, "at least 0", "weight_decay")
        refuse_implausible_rate(self.learning_rate)
        require_range(self, "a share from 0 to below 1", "warmup_share", "encoder_dropout", "head_dropout")
        self.total_steps(1)


def recipe_of_vectors(recipe: TaskRecipe) -> dict[str, Any]:
    """The values of a recipe that have a part in learning vectors: a run has no head, question or window then."""
    unused = ("head_dropout", "question_length", "stride")
    return {name: value for name, value in to_json(recipe).items() if name not in unused}


# --------------------------------------------------------------------------------------------------------------------
# The keys of `albert finetune` and `albert sweep`.


@dataclass(frozen=True, kw_only=True)
class RecipeChanges:
    """Changes of the default recipe of a kind; None is unchanged. At most one of `epochs` and `steps`."""

    learning_rate: float | None = None
    """Peak learning rate. When not set, the recipe's, times (768/H)^2.3 for models narrower than ALBERT-base, at most
    25 times and at most 1e-3."""
    batch_size: int | None = None
    """Sequences per step over all processes; 16 for your table of fewer than 5,000 rows when not set, else the
    recipe's."""
    epochs: float | None = None
    """Passes over the rows. When not set, the recipe's; for your table at least 750 steps, or 24 for each class,
    but at most 50 epochs."""
    steps: int | None = None
    """Optimiser updates, instead of epochs."""
    warmup_share: float | None = None
    """Share of the steps during which the learning rate rises."""
    weight_decay: float | None = None
    """Weight decay, not applied to biases and layer norms; the recipe's when not set."""
    max_length: int | None = None
    """Maximum tokens of a sequence; longer ones are cut and counted."""
    question_length: int | None = None
    """Maximum tokens of a question on a text; with options, of question and option."""
    stride: int | None = None
    """Span tasks: tokens between the windows of a long context."""
    encoder_dropout: float | None = None
    """Dropout inside the encoder; the recipe's when not set."""
    head_dropout: float | None = None
    """Dropout before the head; the recipe's when not set."""

    def applied_to(self, recipe: TaskRecipe) -> TaskRecipe:
        changes: dict[str, Any] = {name: value for name, value in to_json(self).items() if value is not None}
        if "steps" in changes or "epochs" in changes:
            if "steps" in changes and "epochs" in changes:
                raise InvalidConfiguration("recipe", "both steps and epochs are set", "give one of them")
            changes = {"steps": None, "epochs": None, "examples": None, **changes}
        return replace(recipe, **changes)


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
    2022). When not set, for your tables, unless they have numbers."""
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
    your table up to ten times in a run."""
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

    def check(self, changes: RecipeChanges, teacher: str | None, frozen: bool) -> None:
        """Raise UsageError for keys that contradict each other, or those of the recipe, or that have no effect."""
        if frozen:
            self._check_frozen(changes, teacher)
        if self.freeze_encoder and changes.encoder_dropout:
            raise UsageError("encoder_dropout", "has no effect with freeze_encoder", "leave one of them out")
        for name in ("temperature", "weight"):
            if getattr(self, name) is not None and teacher is None:
                raise UsageError(f"distillation.{name}", "requires --teacher", "name a fine-tuned model with it")

    def _check_frozen(self, changes: RecipeChanges, teacher: str | None) -> None:
        """Raise UsageError for what only updates of the encoder or the head would use."""
        given = [name for name in KEYS_OF_UPDATES if getattr(changes, name) is not None]
        given += [name for name in OPTIONS_OF_UPDATES if getattr(self, name) != getattr(USUAL_TRAINING, name)]
        if teacher is not None:
            given.append("--teacher")
        if self.solve_head is False:
            given.append("solve_head")
        if given:
            raise UsageError(given[0], "has no effect with --frozen, whose head is solved", "leave one of them out")

    def settings(self, frozen: bool, teacher: str | None, device: Device) -> "FinetuningSettings":
        """The settings of a run with these keys.

        Args:
            frozen: whether only a head on frozen features is learned.
            teacher: a model that is learned from.
        """
        distillation = None
        if teacher is not None:
            values = {"temperature": self.temperature, "weight": self.weight}
            given = {name: value for name, value in values.items() if value is not None}
            distillation = Distillation(teacher=teacher, **given)
        values = common_fields(FinetuningSettings, self)
        return FinetuningSettings(**values, frozen=frozen, device=device, distillation=distillation)


USUAL_TRAINING = TrainingOptions()
KEYS_OF_UPDATES = (
    "learning_rate",
    "batch_size",
    "epochs",
    "steps",
    "warmup_share",
    "weight_decay",
    "encoder_dropout",
    "head_dropout",
)
OPTIONS_OF_UPDATES = ("freeze_encoder", "optimizer", "select", "patience", "evaluate_every", "checkpoint_every")
"""Keys that have no effect on a head that is solved."""


# --------------------------------------------------------------------------------------------------------------------
# The settings of a run, apart from the task's recipe.


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """A teacher and its part in the loss.

    Attributes:
        teacher: a fine-tuned model directory, a run, or a Hub id.
        temperature: the divisor of both models' logits; higher values give more weight to improbable labels.
        weight: of the teacher in the loss; the rest is that of the labels.
    """

    teacher: str
    temperature: float = 2.0
    weight: float = 0.5

    def __post_init__(self) -> None:
        require_range(self, "a number above 0", "temperature", prefix="distillation.")
        require_range(self, "a share above 0 and up to 1", "weight", prefix="distillation.")


@dataclass(frozen=True, kw_only=True)
class FinetuningSettings:
    """How a run computes, apart from the task's recipe.

    Attributes:
        null_threshold: the questions that choose the no-answer threshold: some held out of training, or, as in the
            reference, the scored ones.
        select: the model that is the result: the last one, or the best of all evaluations; None: the best for a user's
            table with enough development rows, else the last.
        evaluate_every, checkpoint_every: in steps.
        patience: the run ends after so many evaluations in a row without a better score; None: five where
            `select` is best by default, else the run never ends before its last step.
        class_weights: "balanced" weights each class, label or tag in the loss by its inverse frequency.
        optimizer: complete, or a name that takes rate and weight decay from the recipe.
        precision: None: bf16 on a GPU, fp32 on a CPU.
        log: where the curves go, beside the journal.
        freeze_encoder: train only pooler and head.
        distillation: a teacher.
        page_examples: at most so many rows of the development set are written to `examples.json`.
        encode_pairs: how the two texts of a pair are encoded; None: as suits the model.
        match_embedding: mark tokens that occur in the other segment; None: for narrow models.
        solve_head: solve a new head on frozen features first; None: for a user's table, unless it has numbers.
        frozen: the solved head is the result, nothing is fine-tuned.
        threshold: with several labels per example, the probability from which on a label is predicted, or "train" to
            choose it on rows held out of training; None: "train". Tags of entities have a shift of `O` in its place,
            which is always chosen so.
    """

    seed: int = 0
    null_threshold: ThresholdFrom = "train"
    max_train_examples: int | None = None
    select: SelectedBy | None = None
    evaluate_every: int | None = None
    checkpoint_every: int | None = None
    patience: int | None = None
    class_weights: Literal["balanced"] | None = None
    micro_batch_tokens: int = 8192
    optimizer: OptimizerRecipe | Literal["adamw", "lamb"] = "adamw"
    device: str = "auto"
    precision: Precision | None = None
    workers: int = 0
    log: Log = DEFAULT_LOG
    freeze_encoder: bool = False
    distillation: Distillation | None = None
    page_examples: int = 5
    encode_pairs: PairEncoding | None = None
    match_embedding: bool | None = None
    solve_head: bool | None = None
    frozen: bool = False
    threshold: float | Literal["train"] | None = None

    def __post_init__(self) -> None:
        counts = ("max_train_examples", "evaluate_every", "patience", "checkpoint_every", "micro_batch_tokens")
        require_range(self, "at least 1", *counts)
        require_range(self, "at least 0", "seed", "workers", "page_examples")
        if self.threshold != "train":
            require_range(self, "a share above 0 and below 1", "threshold")

    @property
    def evaluation_interval(self) -> int | None:
        """Steps between evaluations; None: no evaluation before the end."""
        return self.evaluate_every or (EVALUATION_INTERVAL if self.select == "best" else None)
