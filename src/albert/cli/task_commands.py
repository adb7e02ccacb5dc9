"""Options of `albert finetune` and `albert evaluate`.

They are parsed without torch; the modules that do the work are imported afterwards."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.main import load_command
from albert.cli.options import NO_TABLE_OPTIONS, DepthOptions, TableOptions, parse
from albert.finetuning.options import ArchitectureChanges, ThresholdFrom
from albert.model.config import Activation
from albert.pretraining.segments import SentenceObjective
from albert.runtime.environment import Precision
from albert.runtime.errors import UsageError
from albert.tasks.submission import BENCHMARKS, DECLARED
from albert.tasks.table_task import RecipeChanges
from albert.tasks.task import SpanHeadKind

AS_IT_IS = ArchitectureChanges()
FINETUNE_DESCRIPTION = f"""Fine-tune a model on a declared task or on your own table, and evaluate it.

TASK is one of {", ".join(DECLARED)}, or {" or ".join(BENCHMARKS)} for a whole benchmark beside the paper's row. Without
TASK, --train names your own file (.csv, .tsv, .jsonl, .parquet; .conll or .txt with a word and its tag a line);
its columns are named by --text and --label. What kind of task it is, and its labels, are inferred from the rows and
shown first, with the flags that say otherwise. The same command goes on with a run that was stopped.

The model's encoder learns with a new head. Its architecture may change before it does: other depth or sharing, more
positions; what became of the weights is told.

Examples:
  albert finetune sst-2 --model runs/small --data glue --output runs/sst-2
  albert finetune --train my.csv --text review --label stars --model runs/small --output runs/stars
  albert finetune --train my.csv --text review --label stars --model runs/small --statistics-only
  albert finetune --train ner.conll --dev dev.conll --model runs/small --output runs/ner
  albert finetune --train exam.jsonl --text passage --question q --options a b c d --label answer \\
    --model runs/small --output runs/exam
  albert finetune --train qa.parquet --question question --context context --answer answers.text \\
    --answer-start answers.answer_start --model runs/small --output runs/qa
  albert finetune --task-file my_task.json --model runs/small --output runs/mine
  albert finetune rte --model runs/mnli --data glue --output runs/rte --seeds 5 --select best
  albert finetune glue --model albert/albert-base-v2 --data glue --output runs/glue --seeds 5
  albert finetune squad-2.0 --model albert/albert-base-v2 --data squad --output runs/squad2
  albert finetune sst-2 --model runs/small --data glue --output runs/half --depth 6 --teacher runs/sst-2
  albert finetune sst-2 --model runs/small --data glue --output runs/any-depth --exits every
  albert finetune race --model albert/albert-base-v2 --v2-recipe --data . --output runs/race
  albert finetune squad-1.1 --model albert/albert-base-v2 --data squad --output runs/squad \\
    --max-position-embeddings 1024 --max-length 1024"""


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
    held_out_share: float | None = None
    """Your own tables without --dev: the share of the training rows that is kept back for it; 0.1 when not set."""
    statistics_only: bool = False
    """Show how the rows are read, how long and how balanced they are, and stop there."""
    table: Annotated[TableOptions, tyro.conf.arg(name="")] = NO_TABLE_OPTIONS
    architecture: Annotated[ArchitectureChanges, tyro.conf.arg(name="")] = AS_IT_IS
    depth: int | None = None
    """Layers to apply, in place of as many as the model was trained with: half of them are half of the work."""
    exits: Literal["every"] | tuple[int, ...] | None = None
    """Depths at which the head learns to answer, `every` or `3 6 9`: the model can then be run at each of them, or end
    early by patience (albert predict --patience). Only the last layer when not set."""
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
    """At its peak. When not set, the recipe's, times (768/H)^1.8 for a model that is narrower than ALBERT-base,
    1e-3 at most."""
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
    head_dropout: float | None = None
    optimizer: Literal["adamw", "lamb"] = "adamw"
    seed: int = 0
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
    """bf16 on a GPU and fp32 on a CPU when not set."""
    workers: int = 0
    """Processes that make batches."""

    def recipe(self) -> RecipeChanges:
        """What of the recipe is to be another than the default.

        Raises:
            UsageError: it contradicts itself.
        """
        if self.steps is not None and self.epochs is not None:
            raise UsageError("--steps", "and --epochs say the same thing twice", "give one of them")
        return RecipeChanges(**{each.name: getattr(self, each.name) for each in fields(RecipeChanges)})


def finetune_main(arguments: list[str]) -> int:
    """Read the options, and run `albert finetune`."""
    args = parse(Finetune, arguments, "albert finetune", FINETUNE_DESCRIPTION)
    return load_command("albert.cli.finetune").run(args)


# --------------------------------------------------------------------------------------------------------------------
# What `albert evaluate` is asked for.

PRETRAINING = "pretraining"


AS_SAVED = DepthOptions()

EVALUATE_DESCRIPTION = f"""Score a model, or several together, with a task's official metrics, beside a constant answer.

TASK is one of {", ".join(DECLARED)}, or {PRETRAINING} for what one model or several know of masked tokens, next
sentences and sentence order on the held-out part of what `albert prepare` wrote. Without TASK the model is asked what
it learnt from your own table: its columns and labels stand in the task.json beside it, --dev names another file, and
flags other columns.

Examples:
  albert evaluate sst-2 --model runs/sst-2 --data glue
  albert evaluate --model runs/stars
  albert evaluate --model runs/stars --dev new.csv
  albert evaluate --model some/model --dev dev.csv --text review --label stars
  albert evaluate rte --model runs/rte/seed-0 runs/rte/seed-1 runs/deep --data glue
  albert evaluate mnli --model runs/mnli --data glue --submission to-hand-in
  albert evaluate sst-2 --model runs/sst-2 --data glue --precision fp32 bf16 int8
  albert evaluate sst-2 --model runs/any-depth --data glue --depth 3 6 9 12 --patience 1 2 3 --curve curve.png
  albert evaluate {PRETRAINING} --model runs/small --data corpus
  albert evaluate {PRETRAINING} --model tiny runs/mine --data corpus --max-ngram 1 --max-length 128
  albert evaluate {PRETRAINING} --model runs/sop runs/nsp runs/none --data corpus --csv > table5.csv"""


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
    depths: Annotated[DepthOptions, tyro.conf.arg(name="")] = AS_SAVED
    micro_batch_tokens: int = 8192
    """Tokens that go through the model at once."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    hidden_act: Activation | None = None
    """The activation, in place of config.json's: gelu_new is the tanh form that Google trained with."""
    num_attention_heads: int | None = None
    """The number of heads, in place of config.json's; the shapes of the weights do not show it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: tuple[Literal["auto", "fp32", "bf16", "int8"], ...] = ("auto",)
    """Of matrix products; auto is what albert predict takes, bf16 where the device has instructions for it. Several, or
    int8, are compared in one table, as they answer there; if the score moves by more than the tolerance the command
    fails (exit 4)."""
    tolerance: float = 0.5
    """Points by which another precision may move the first score."""


def evaluate_main(arguments: list[str]) -> int:
    """Read the options, and run `albert evaluate`."""
    args = parse(Evaluate, arguments, "albert evaluate", EVALUATE_DESCRIPTION)
    return load_command("albert.cli.evaluate").run(args)
