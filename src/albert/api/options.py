"""Options of the commands that have a Python function: fields with types, defaults and help.

A field is an option of the command line and a keyword argument in Python. Nothing here loads torch."""

import shlex
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from albert.api.keywords import flags_of, option_name
from albert.model.config import Activation, ArchitectureChanges, Extension
from albert.pretraining.recipe import RECIPES, Head, PretrainingRecipe
from albert.pretraining.segments import SentenceObjective
from albert.runtime.environment import Precision
from albert.runtime.errors import UsageError
from albert.runtime.json_files import common_fields
from albert.tasks.table_task import Kind, OptionLabels, RecipeChanges, TableTask, load_table_task
from albert.tasks.task import PairEncoding, SpanHeadKind, ThresholdFrom
from albert.text.executors import SHARD_BYTES, Duplicates, Engine, SlurmSettings
from albert.text.readers import BadUtf8, DocumentBoundary, Reading

# --------------------------------------------------------------------------------------------------------------------
# The options of every command that reads a corpus.


@dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """Which text, and how it is read."""

    corpus: Annotated[Positional[tuple[str, ...]], tyro.conf.arg(metavar="CORPUS...")]
    """Files, folders or patterns: .txt, .jsonl, .csv, .tsv, .parquet, a Wikipedia dump (.xml), packed as .gz, .bz2, .xz
    or .zst; a folder that `datasets` saved; or hf://OWNER/NAME[/CONFIG][@REVISION]:SPLIT on the Hub."""
    text_field: str = Reading.text_field
    """The key of a JSON line, or the column of a table, that holds the text."""
    documents: DocumentBoundary = Reading.documents
    """What a document is in a .txt file: the whole file, what stands between blank lines, or every line."""
    sentences_as_lines: bool = False
    """Take every line for a sentence, and look for no others."""
    language: str = "en"
    """Language of the sentence splitter (ISO 639 code)."""
    bad_utf8: BadUtf8 = Reading.bad_utf8
    """What is done about text that is not UTF-8: stop there, put U+FFFD in place of it, or skip the document."""
    max_document_megabytes: float = Reading.max_document_bytes / 1e6
    """Longer documents are divided at the end of a paragraph, a line or a sentence."""

    @property
    def words(self) -> str:
        """The same options as words of a command line, for another command that reads the same text."""
        flags = []
        for option in fields(CorpusOptions):
            value = getattr(self, option.name)
            if option.default is not MISSING and value != option.default:
                flags += [option_name(option.name), *([] if value is True else [str(value)])]
        return shlex.join([*self.corpus, *flags])

    @property
    def paths(self) -> list[Path]:
        """The places of the corpus."""
        return [Path(place) for place in self.corpus]

    @property
    def reading(self) -> dict[str, Any]:
        """The fields of `Reading`."""
        return {
            "text_field": self.text_field,
            "documents": self.documents,
            "bad_utf8": self.bad_utf8,
            "max_document_bytes": round(self.max_document_megabytes * 1e6),
        }


# --------------------------------------------------------------------------------------------------------------------
# The options of `albert evaluate` about the depth of a model.


@dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """How deep a model runs, where it is not as deep as it was trained."""

    depth: tuple[int, ...] = ()
    """Layers to apply, in place of as many as the model was trained with. Several make a table of scores and costs."""
    patience: tuple[int, ...] = ()
    """Early exit: an example leaves when so many depths in a row agree with the one before. For models of
    `albert finetune --exits`; each patience is a row of the table, too."""
    curve: Path | None = None
    """Draw that table, score against compute, as a PNG; the figures go beside it as .csv."""
    rounds: int = 1
    """How often each row of that table is timed."""

    @property
    def makes_table(self) -> bool:
        """Whether a model is run in several ways, or its costs are wanted."""
        return len(self.depth) > 1 or bool(self.patience) or self.curve is not None

    @property
    def one_depth(self) -> int | None:
        """The depth that was asked for where there is no table."""
        return next(iter(self.depth), None)


# --------------------------------------------------------------------------------------------------------------------
# Options about the user's own tables, the same for `albert finetune` and `albert evaluate`.


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Your own tables: their columns, and what is not to be inferred from the rows."""

    task_file: Path | None = None
    """Your own tables: a JSON file that says what these flags say, e.g. {"train": "my.csv", "text": "review", "label":
    "stars"}. Flags go before it. A run writes a complete one, its task.json."""
    text: str | None = None
    """Your own tables: the column of the text; of a multiple choice, the passage."""
    pair: str | None = None
    """Your own tables: the column of a second text."""
    label: str | None = None
    """Your own tables: the column of the label or number; with lists, or --multi-label, of several labels."""
    words: str | None = None
    """Token classification: the column of lists of words."""
    tags: str | None = None
    """Token classification: the column of lists of tags, one a word."""
    options: tuple[str, ...] | None = None
    """Multiple choice: the columns of the options, or one column of lists; --label is the right one's column, letter,
    number or text."""
    question: str | None = None
    """Questions on a text, or a multiple choice: the column of the question."""
    context: str | None = None
    """Questions on a text: the column of the text that holds the answer."""
    answer: str | None = None
    """Questions on a text: the column of the answer, or of lists of right ones; an empty one: there is none."""
    answer_start: str | None = None
    """Questions on a text: the column of the place where the answer begins, in characters from 0."""
    id: str | None = None
    """Your own tables: the column of a name for each row, for the predictions; its number when not set."""
    classes: bool = False
    """Your own tables: the labels are classes, though they are numbers."""
    regression: bool = False
    """Your own tables: the label is a number to predict."""
    multi_label: bool = False
    """Your own tables: any number of labels is right at once."""
    separator: str | None = None
    """What stands between several labels in a text."""
    labels: tuple[str, ...] | None = None
    """All labels, in their order; those of the training file when not set."""
    option_labels: OptionLabels | None = None
    """What the label of a multiple choice is, where that is not plain."""
    metrics: tuple[str, ...] | None = None
    """What your own task is scored by, the first one decides; the usual ones of its kind when not set."""

    def given(self) -> list[str]:
        """The flags that were used."""
        return flags_of(self)

    def task(self, base: TableTask | None = None, train: Path | None = None, dev: Path | None = None) -> TableTask:
        """The task that the flags describe; what they leave out comes from the task file, or from `base`.

        Raises:
            UsageError: flags contradict each other.
            MissingInput, DamagedData, InvalidConfiguration: the task file cannot be read.
        """
        if self.task_file is not None:
            base = load_table_task(self.task_file)
        base = base or TableTask()
        said = {name: value for name, value in common_fields(TableTask, self).items() if value is not None}
        kinds: dict[str, Kind] = {"classes": "classification", "regression": "regression", "multi_label": "multi-label"}
        chosen = [kind for name, kind in kinds.items() if getattr(self, name)]
        if len(chosen) > 1:
            raise UsageError("--classes, --regression, --multi-label", "contradict each other", "give one of them")
        if chosen and chosen[0] != base.kind:  # complete for another kind does not mean complete for this one
            base = replace(base, kind=chosen[0], metrics=None, labels=None)
        files = {name: path for name, path in (("train", train), ("dev", dev)) if path is not None}
        return replace(base, **files, **said)


NO_TABLE_OPTIONS = TableOptions()


# --------------------------------------------------------------------------------------------------------------------
# `albert tokenizer train` and `albert prepare`.


@dataclass(frozen=True, kw_only=True)
class TrainTokenizer(CorpusOptions):
    """Train a SentencePiece vocabulary (unigram, the settings of the released English models).

    The result holds spiece.model and tokenizer.json; transformers.AutoTokenizer opens it.

    Example: albert tokenizer train corpus/ --output tokenizer --vocab-size 30000
    """

    output: Path
    """The directory to make."""
    vocab_size: int = 30_000
    """Number of pieces, the five special ones included."""
    lower_case: bool = True
    """Lower-case letters, as the released models do."""
    keep_accents: bool = False
    """Keep accents, for languages that need them; the released English models drop them, and vowel signs with them."""
    character_coverage: float = 0.99995
    """Share of the characters' occurrences that gets pieces of its own; the rest is unknown."""
    megabytes: float = 100.0
    """Text used at most, in millions of bytes; of a larger corpus a sample of documents is drawn."""
    sentences: int = 2_000_000
    """Sentences used at most; memory grows with them."""
    seed: int = 0
    """Seed of both draws."""
    replace: bool = False


@dataclass(frozen=True, kw_only=True)
class Prepare(CorpusOptions):
    """Turn text into token shards for pre-training, in parallel.

    Sentences and documents keep their boundaries; a share of the documents is held out for evaluation. The
    result does not depend on who does the work. Stopped, the same command goes on.

    Example: albert prepare corpus/ --tokenizer tokenizer --output data
    """

    tokenizer: Path
    """A directory with a tokenizer, a spiece.model or a vocab.txt: `albert tokenizer train` makes one."""
    output: Path
    """The directory to make."""
    held_out: float = 0.01
    """Share of the documents kept for evaluation, selected by a hash of their text: one at least, or the last sentences
    of a single one, unless the share is 0."""
    workers: int | None = None
    """Processes; one per processor by default."""
    seed: int = 0
    """Seed of the selection."""
    shard_megabytes: float = SHARD_BYTES / 1e6
    """Text of one shard, in millions of bytes; each worker holds one in memory."""
    replace: bool = False
    append: bool = False
    """Add to the corpus that OUTPUT is; its shards are linked, not written again."""
    duplicates: Duplicates = "keep"
    """Leave out documents that repeat an earlier one of CORPUS: `exact` but for white space, or `near`, 80 % of it.
    The text is read twice then; what --append adds to is not compared."""
    engine: Engine = "processes"
    """Who does the work: processes of this machine, or datatrove (here, on Ray, on Slurm); the bytes are the same."""
    plan: bool = False
    """Say what it will take and give, from a sample of the text, and write nothing."""
    slurm: SlurmSettings = field(default_factory=SlurmSettings)


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Where the data are, where to write, what to start from, and the recipe's values."""

    data: tuple[Path, ...]
    """What `albert prepare` wrote; several corpora are mixed (--mixture 0.7 0.3)."""
    output: Path
    """The run's directory; the same one again goes on with the run."""
    init: str | None = None
    """Start from a trained model in place of random weights: a model directory, a run, or a Hub id. A run that has
    begun needs it no more."""
    revision: str | None = None
    """With --init: a branch, tag or commit of a Hub repository."""
    resize_vocabulary: bool = False
    """With --init: the corpus has another tokenizer; pieces keep their embedding by their text."""
    extend_positions: Extension | None = None
    """With --init: how positions beyond the trained ones are made; tile where the model has none and nothing is
    said."""
    drop_heads: tuple[Head, ...] = ()
    """With --init: heads to draw anew, masked_tokens or sentence_order or both."""
    scale_batch: int | None = None
    """The recipe at another batch size, its learning rate scaled by the square root of the ratio; other flags are
    applied afterwards."""
    wandb: str | None = None
    """Send the curves to this project at Weights & Biases as well (pip install 'albert-encoder[wandb]')."""
    change_dropout: float | None = None
    """Go on with an unfinished run with another dropout, from its newest checkpoint on."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    recipe: Annotated[PretrainingRecipe, tyro.conf.arg(name="")] = RECIPES["small"]


# --------------------------------------------------------------------------------------------------------------------
# `albert finetune` and `albert evaluate`.


NO_CHANGES = ArchitectureChanges()
ALL_LAYERS = DepthOptions()
PRETRAINING = "pretraining"
"""The task that `albert evaluate` asks of pre-trained models."""


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """What to learn, from what, and how. What is not set comes from the task's own recipe."""

    task: Positional[str | None] = None
    """A declared task, or a benchmark; leave it out for your own files."""
    model: str
    """A model directory, a run that made one, or a Hub id."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    output: Path | None = None
    """The run's directory."""
    data: Path | None = None
    """The task's data folder: files in DATA/TASK/ or in DATA itself."""
    init: Literal["pretrained", "random"] = "pretrained"
    """random: the same architecture without its weights, as a control."""
    keep_head: bool = False
    """Go on with the model's own head, its outputs matched to the task's labels by name; else a new one is drawn."""
    train: Path | None = None
    """The training file; with TASK, instead of the official one and in its layout."""
    dev: Path | None = None
    """The development file; for your own tables a part of the training rows when not set."""
    held_out: float | None = None
    """Your own tables without --dev: the share of the training rows that is kept back for it; 0.1 when not set."""
    statistics_only: bool = False
    """Show how the rows are read, how long and how balanced they are, and stop there."""
    table: Annotated[TableOptions, tyro.conf.arg(name="")] = NO_TABLE_OPTIONS
    architecture: Annotated[ArchitectureChanges, tyro.conf.arg(name="")] = NO_CHANGES
    depth: int | None = None
    """Layers to apply, in place of as many as the model was trained with: half of them are half of the work."""
    exits: Literal["every"] | tuple[int, ...] | None = None
    """Depths at which the head learns to answer, `every` or `3 6 9`: the model can then be run at each of them, or end
    early by patience (albert predict --patience). Only the last layer when not set."""
    objective: Literal["contrastive"] | None = None
    """contrastive: learn vectors of texts (albert.load(MODEL).embed) and no task. The rows of your own table hold
    pairs of texts that belong together (--text, --pair), and the second texts of the other rows of a batch are the
    wrong ones."""
    temperature: float | None = None
    """With --objective contrastive: by which cosines are divided; 0.05 when not set."""
    encode_pairs: PairEncoding | None = None
    """How the two texts of a pair are read: together, as one sequence (a cross-encoder, as in the paper), or separately
    (a bi-encoder, as in sentence-transformers), where the head compares their means. When not set, separately for
    models narrower than ALBERT-base, else together."""
    freeze_encoder: bool = False
    """Only pooler and head learn; what the encoder gives is computed once an example, its dropout off."""
    teacher: str | None = None
    """A fine-tuned model for the same task to learn from as well (distillation): a directory, a run, or a Hub id."""
    teacher_revision: str | None = None
    """A branch, tag or commit of the teacher's Hub repository."""
    distillation_temperature: float | None = None
    """By which the logits of both are divided; 2 when not set."""
    distillation_weight: float | None = None
    """Of the teacher in the loss, the rest is that of the labels; 0.5 when not set."""
    learning_rate: float | None = None
    """Peak learning rate. When not set, the recipe's, times (768/H)^2.3 for a model that is narrower than ALBERT-base,
    at most 25 times and at most 1e-3."""
    batch_size: int | None = None
    """Sequences per step over all processes; 16 for your own table of fewer than 5,000 rows when not set, else the
    recipe's."""
    epochs: float | None = None
    """How often each row is learnt. When not set, the recipe's; for your own table at least 750 steps, or 50 epochs."""
    steps: int | None = None
    """Optimiser updates, instead of epochs."""
    warmup_share: float | None = None
    """Share of the steps in which the learning rate rises."""
    weight_decay: float | None = None
    """Weight decay, not applied to biases and layer norms; the recipe's when not set."""
    max_length: int | None = None
    """Tokens of a sequence; longer ones are cut and counted."""
    question_length: int | None = None
    """Tokens of a question on a text; with options, of question and option."""
    stride: int | None = None
    """Span tasks: tokens between the windows of a long context."""
    span_head: SpanHeadKind | None = None
    """Span tasks: joint, the paper's head for SQuAD 2.0; or independent start and end, which transformers opens too."""
    null_threshold: ThresholdFrom = "train"
    """Where a question may have no answer, the questions on which the threshold for that is chosen: some kept back from
    train, or as the reference does it dev, which is then no fair score."""
    v2_recipe: bool = False
    """The recipe for the models of ALBERT's second release where it differs (RACE)."""
    encoder_dropout: float | None = None
    """Dropout inside the encoder; the recipe's when not set."""
    head_dropout: float | None = None
    """Dropout before the head; the recipe's when not set."""
    optimizer: Literal["adamw", "lamb"] = "adamw"
    """The optimiser."""
    seed: int = 0
    """Seed of the new head, order of the rows and dropout."""
    page_examples: int = 5
    """Short rows of the development set that are kept, without their labels, in the model's folder (examples.json), as
    examples on the page of albert serve; 0 keeps none."""
    seeds: int | None = None
    """So many runs with the seeds from --seed on, in OUTPUT/seed-0 and so on: their median and spread are told."""
    intermediate: str | None = None
    """A benchmark: a model fine-tuned before on the task from whose model others start (of GLUE the large one of
    natural language inference, for three small ones); the one learnt here when not set."""
    select: Literal["last", "best"] = "last"
    """best: the model with the best development score of all evaluations, as in the paper; that score is somewhat
    high, being chosen on the set it is reported on. Every summary says which it was."""
    max_train_examples: int | None = None
    """Learn from a sample of the training rows, drawn by the seed."""
    evaluate_every: int | None = None
    """Steps between evaluations; when not set, at the end only, or with --select best every 100 as in the paper."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; every ten minutes when not set."""
    micro_batch_tokens: int = 8192
    """Tokens that go through the model at once; less needs less memory and changes no result."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Precision | None = None
    """bf16 on a GPU that multiplies it, else fp32, when not set."""
    workers: int = 0
    """Processes that make batches."""

    def recipe(self) -> RecipeChanges:
        """What of the recipe is to be another than the default.

        Raises:
            UsageError: it contradicts itself.
        """
        if self.steps is not None and self.epochs is not None:
            raise UsageError("--steps", "and --epochs say the same thing twice", "give one of them")
        return RecipeChanges(**common_fields(RecipeChanges, self))


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """What to evaluate on what."""

    task: Positional[str | None] = None
    """A declared task, or pretraining; leave it out for your own file."""
    model: tuple[str, ...]
    """A model directory, a run that made one, or a Hub id. Several are scored each and together: the mean of what they
    predict, of spans over the models that proposed them. For pretraining several are compared on the same texts; of a
    run under way it is the newest checkpoint."""
    data: Path | None = None
    """The task's data folder, or for pretraining what `albert prepare` wrote."""
    split: str | None = None
    """Which split of a declared task: dev, or with --submission those that its server scores, when not set."""
    dev: Path | None = None
    """Your own file, the one that the model was scored on when not set; or with TASK a file in its layout."""
    table: Annotated[TableOptions, tyro.conf.arg(name="")] = NO_TABLE_OPTIONS
    predictions: Path | None = None
    """Write one JSON object per example."""
    submission: Path | None = None
    """A directory for what the server of a benchmark takes: GLUE's tables of labels, SQuAD's answers as JSON. Files
    without labels are answered and not scored."""
    results: Path | None = None
    """Write the scores as JSON."""
    max_length: int | None = None
    """Tokens of a sequence; the length that the model was trained with when not set, of several the shortest."""
    objective: tuple[SentenceObjective, ...] = ("nsp", "sop")
    """For pretraining: which sentence tasks to ask, whatever the model was trained on; none: masked tokens alone."""
    sequences: int = 2000
    """For pretraining: most sequences."""
    max_ngram: int = 3
    """For pretraining: most words that are masked together; 1 masks single words, as for the card of tiny."""
    json: bool = False
    """For pretraining: print a JSON object in place of the table."""
    csv: bool = False
    """For pretraining: print a line of CSV for each model and task in place of the table."""
    depths: Annotated[DepthOptions, tyro.conf.arg(name="")] = ALL_LAYERS
    micro_batch_tokens: int = 8192
    """Tokens that go through the model at once."""
    revision: str | None = None
    hidden_act: Activation | None = None
    num_attention_heads: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: tuple[Literal["auto", "fp32", "bf16", "int8"], ...] = ("auto",)
    """Of matrix products; auto is what albert predict takes, bf16 where the device has instructions for it. Several, or
    int8, are compared in one table, as they answer there; if the score moves by more than the tolerance the command
    fails (exit 4)."""
    tolerance: float = 0.5
    """Points by which another precision may move the first score."""


@dataclass(frozen=True, kw_only=True)
class Push:
    """Put a model on the Hugging Face Hub: weights, configuration, tokenizer and card, and no other file.

    It needs a token that may write, in HF_TOKEN or from `hf auth login`. A name that is taken is refused without
    --replace. albert and transformers open the result under its name.

    Example: albert push runs/stars/model someone/stars --private
    """

    model: Positional[str]
    """A model directory, a run, or a Hub id."""
    repository: Positional[str]
    """USER/NAME, which is made where it does not exist."""
    private: bool = False
    """Make a repository that only its owner sees."""
    revision: str | None = None
    replace: bool = False
    """Write into a repository that exists."""
