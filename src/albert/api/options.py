"""Options of the commands that have a Python function: fields with types, defaults and help.

A field is an option of the command line and a keyword argument in Python. This module does not import torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from albert.api.keywords import GROUP, Positional
from albert.api.table_options import NO_TABLE, TableOptions
from albert.model.config import Activation, ArchitectureChanges, Extension
from albert.pretraining.recipe import RECIPES, PretrainingRecipe
from albert.pretraining.segments import SentenceObjective
from albert.runtime.environment import Precision
from albert.runtime.errors import UsageError
from albert.runtime.json_files import common_fields
from albert.tasks.inputs import PairEncoding
from albert.tasks.kinds.span import SpanHeadKind
from albert.tasks.table_task import RecipeChanges
from albert.tasks.task import ThresholdFrom
from albert.training.record import Head

# --------------------------------------------------------------------------------------------------------------------
# The options of `albert evaluate` about the depth of a model.


@dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """How many layers of a model to apply."""

    depth: tuple[int, ...] = ()
    """Number of layers to apply; as many as in training when not set. Several give a table of scores and costs."""
    patience: tuple[int, ...] = ()
    """Early exit: an example is decided as soon as this many depths in a row agree with the one before. For models of
    `albert finetune --exits`; each patience is a row of the table as well."""
    curve: Path | None = None
    """Draw that table, score against compute, as a PNG; the figures are written beside it as .csv."""
    rounds: int = 1
    """Number of timings of each row of that table."""

    @property
    def makes_table(self) -> bool:
        """Whether several depths, or costs, are asked for."""
        return len(self.depth) > 1 or bool(self.patience) or self.curve is not None


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Data, output, starting point, and the values of the recipe."""

    data: tuple[Path, ...]
    """A corpus from `albert prepare`; several are mixed (--mixture 0.7 0.3)."""
    output: Path
    """The run's directory, resumed if it exists."""
    replace: bool = False
    """Remove an earlier run in OUTPUT, and begin anew."""
    init: str | None = None
    """Start from a trained model instead of random weights: a model directory, a run, or a Hub id. A resumed run does
    not need it."""
    revision: str | None = None
    """With --init: a branch, tag or commit of a Hub repository."""
    resize_vocabulary: bool = False
    """With --init: the corpus has another tokenizer; pieces with the same text keep their embedding."""
    extend_positions: Extension | None = None
    """With --init: how embeddings of new positions are made; tile if the model has none and this is not set."""
    drop_heads: tuple[Head, ...] = ()
    """With --init: heads to initialise at random, masked_tokens or sentence_order or both."""
    scale_batch: int | None = None
    """Use another batch size, with the learning rate scaled by the square root of the ratio; other flags are
    applied afterwards."""
    wandb: str | None = None
    """Also send the curves to this project at Weights & Biases (needs the extra wandb)."""
    change_dropout: float | None = None
    """Resume an unfinished run with another dropout, from its newest checkpoint."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    recipe: Annotated[PretrainingRecipe, GROUP] = RECIPES["small"]


# --------------------------------------------------------------------------------------------------------------------
# `albert finetune` and `albert evaluate`.


NO_CHANGES = ArchitectureChanges()
ALL_LAYERS = DepthOptions()


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """Task, data, model and recipe. Values that are not set come from the task's recipe."""

    task: Positional[str | None] = None
    """A declared task, or a benchmark; leave it out for your own files."""
    model: str
    """A model directory, a run that made one, a Hub id, or small-vectors, small or tiny, which come with the package
    (English)."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    output: Path | None = None
    """The run's directory, resumed if it exists."""
    replace: bool = False
    """Remove an earlier run in OUTPUT, and begin anew."""
    data: Path | None = None
    """The task's data folder: files in DATA/TASK/ or in DATA itself."""
    init: Literal["pretrained", "random"] = "pretrained"
    """random: the same architecture with random weights, as a control."""
    keep_head: bool = False
    """Start from the model's own head, with outputs matched to labels by name; otherwise a new head is initialised."""
    train: Path | None = None
    """The training file; with TASK, a replacement of the official file in its layout."""
    dev: Path | None = None
    """The development file; for your own tables a part of the training rows when not set."""
    test: Path | None = None
    """Your own tables: a file that is scored once, at the end, and chooses nothing."""
    held_out: float | None = None
    """Your own tables without --dev: the share of the training rows that is held out as dev; 0.1 when not set."""
    statistics_only: bool = False
    """Show how the rows are read, their lengths and labels, and do not train."""
    table: Annotated[TableOptions, GROUP] = NO_TABLE
    architecture: Annotated[ArchitectureChanges, GROUP] = NO_CHANGES
    depth: int | None = None
    """Number of layers to apply; as many as in training when not set. Half of the layers are half of the work."""
    exits: Literal["every"] | tuple[int, ...] | None = None
    """Depths at which the head is trained, `every` or `3 6 9`: the model can then be run at each of them, or exit
    early by patience (albert predict --patience). Only the last layer when not set."""
    objective: Literal["contrastive", "vectors"] | None = None
    """Learn text embeddings (albert.load(MODEL).embed) instead of a task. contrastive: the rows of your own table are
    pairs of related texts (--text, --pair); the second texts of the other rows in a batch are the negatives, and those
    of --negative. vectors: the rows are texts (--text), whose vectors by --teacher are learned."""
    negative: tuple[str, ...] | None = None
    """With --objective contrastive: the columns of hard negatives, texts that do not belong to the first one although
    they look like it; columns called negative, negative_1 and so on when not set."""
    temperature: float | None = None
    """With --objective contrastive: the divisor of cosines; 0.05 when not set."""
    encode_pairs: PairEncoding | None = None
    """How the two texts of a pair are encoded: together, as one sequence (a cross-encoder, as in the paper), or
    separately (a bi-encoder, as in sentence-transformers), where the head compares their means. Together when not
    set."""
    match_embedding: bool | None = None
    """Mark the tokens of two texts in one sequence that occur in the other text, by an embedding of their own. When not
    set, for models narrower than ALBERT-base, which do not learn to match words by attention."""
    solve_head: bool | None = None
    """Begin with the best linear head on the model's frozen features, which takes seconds, then fine-tune (Kumar et al.
    2022). When not set, for your own tables."""
    frozen: bool = False
    """Only the linear head, on frozen features, with the best regularisation by cross-validation; takes seconds."""
    freeze_encoder: bool = False
    """Train only pooler and head; the encoder's output is computed once for each example, without dropout."""
    teacher: str | None = None
    """A model fine-tuned on the same task, for distillation: a directory, a run, or a Hub id. With --objective vectors
    any model that gives vectors of texts."""
    teacher_revision: str | None = None
    """A branch, tag or commit of the teacher's Hub repository."""
    teacher_vectors: Path | None = None
    """With --objective vectors: the directory where the teacher's vectors are kept, computed once, for this run and
    others; in the run's directory when not set."""
    distillation_temperature: float | None = None
    """The divisor of both models' logits; 2 when not set."""
    distillation_weight: float | None = None
    """Weight of the teacher in the loss; the labels have the rest. 0.5 when not set."""
    learning_rate: float | None = None
    """Peak learning rate. When not set, the recipe's, times (768/H)^2.3 for models narrower than ALBERT-base, at most
    25 times and at most 1e-3."""
    batch_size: int | None = None
    """Sequences per step over all processes; 16 for your own table of fewer than 5,000 rows when not set, else the
    recipe's."""
    epochs: float | None = None
    """Passes over the rows. When not set, the recipe's; for your own table at least 750 steps, or 24 for each class,
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
    span_head: SpanHeadKind | None = None
    """Span tasks: joint, the paper's head for SQuAD 2.0; or independent start and end, which transformers opens too."""
    null_threshold: ThresholdFrom = "train"
    """For questions without an answer: where the threshold is chosen. train holds out some training questions; dev, as
    in the reference, makes the score on dev too good."""
    threshold: float | None = None
    """Several labels per row: the probability from which on a label is predicted. When not set, the best one for rows
    that are held out of training."""
    v2_recipe: bool = False
    """Use the recipe for the models of ALBERT's second release if it differs (RACE)."""
    encoder_dropout: float | None = None
    """Dropout inside the encoder; the recipe's when not set."""
    head_dropout: float | None = None
    """Dropout before the head; the recipe's when not set."""
    optimizer: Literal["adamw", "lamb"] = "adamw"
    """The optimiser."""
    seed: int = 0
    """Seed of the new head, order of the rows and dropout."""
    page_examples: int = 5
    """Number of short development rows, without labels, to save in the model's folder (examples.json) as examples on
    the page of albert serve."""
    seeds: int | None = None
    """Number of runs, with seeds from --seed on, in OUTPUT/seed-0 and so on; their median and spread are reported."""
    folds: int | None = None
    """Your own tables: divide the rows into so many parts, and score each by a model that is trained on the others. For
    small tables."""
    try_rates: tuple[float, ...] | None = None
    """Your own tables: train with each of these learning rates, and keep the one with the best development score."""
    intermediate: str | None = None
    """A benchmark: a model fine-tuned on the intermediate task from which other tasks start (of GLUE, MNLI for three
    small tasks); the one trained here when not set."""
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

    def recipe(self) -> RecipeChanges:
        """Changes of the default recipe; raises UsageError if both steps and epochs are set."""
        if self.steps is not None and self.epochs is not None:
            raise UsageError("--steps", "and --epochs say the same thing twice", "give one of them")
        return RecipeChanges(**common_fields(RecipeChanges, self))


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Models, task and data."""

    task: Positional[str | None] = None
    """A declared task, or pretraining; leave it out for your own file."""
    model: tuple[str, ...]
    """A model directory, a run that made one, or a Hub id. Several are scored each and together: the mean of their
    predictions, for spans over the models that proposed them. With pretraining, several are compared on the same
    texts, and a running run is evaluated at its newest checkpoint."""
    data: Path | None = None
    """The task's data folder; for pretraining a prepared corpus."""
    split: str | None = None
    """The split of a declared task; when not set dev, or with --submission the splits that its server scores."""
    dev: Path | None = None
    """Your own file, the one that the model was scored on when not set; with TASK a file in its layout."""
    table: Annotated[TableOptions, GROUP] = NO_TABLE
    predictions: Path | None = None
    """Write one JSON object for each example."""
    submission: Path | None = None
    """A directory for files in the format of a benchmark's server: GLUE's tables of labels, SQuAD's answers as JSON.
    Files without labels are answered and not scored."""
    results: Path | None = None
    """Write the scores as JSON, with those of each class, confusions, errors and calibration."""
    report: Path | None = None
    """Write the same as a page: one HTML file, like the report of a run."""
    threshold: float | None = None
    """Several labels per row: the probability from which on a label is predicted; the model's own when not set."""
    max_length: int | None = None
    """Maximum tokens of a sequence; when not set the length used in training, of several models the shortest."""
    objective: tuple[SentenceObjective, ...] | None = None
    """For pretraining: which sentence tasks to score, whatever the model was trained on; none: masked tokens alone.
    When not set, nsp and sop, or sop alone if a single document is held out."""
    sequences: int = 2000
    """For pretraining: maximum number of sequences."""
    max_ngram: int = 3
    """For pretraining: maximum number of words that are masked together; 1 masks single words, as for tiny's card."""
    json: bool = False
    """For pretraining: print a JSON object instead of the table."""
    depths: Annotated[DepthOptions, GROUP] = ALL_LAYERS
    micro_batch_tokens: int = 8192
    """Tokens in one pass through the model; depths are compared with those of `albert predict`."""
    revision: str | None = None
    hidden_act: Activation | None = None
    num_attention_heads: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: tuple[Literal["auto", "fp32", "bf16", "int8"], ...] = ("auto",)
    """Precision of matrix products; auto is that of albert predict, bf16 if the device has instructions for it.
    Several, or int8, are compared in one table; if the score moves by more than the tolerance the command fails
    (exit 4)."""
    tolerance: float = 0.5
    """Points by which another precision may move the first score."""
