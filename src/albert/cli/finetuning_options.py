"""The options of `albert finetune`, and what they make of a task's recipe."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.main import load_command
from albert.cli.table_options import TableOptions
from albert.finetuning.architecture_changes import ArchitectureChanges
from albert.finetuning.held_out_threshold import ThresholdFrom
from albert.runtime.errors import UsageError
from albert.runtime.precisions import Precision
from albert.tasks.averages import BENCHMARKS
from albert.tasks.declared import DECLARED
from albert.tasks.tables.table_task import RecipeChanges
from albert.tasks.task import SpanHeadKind

AS_IT_IS = ArchitectureChanges()
NOTHING_SAID = TableOptions()
DESCRIPTION = f"""Fine-tune a model on a declared task or on your own table, and evaluate it.

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
  albert finetune race --model albert/albert-base-v2 --second-release --data . --output runs/race
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
    table: Annotated[TableOptions, tyro.conf.arg(name="")] = NOTHING_SAID
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
    second_release: bool = False
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


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert finetune`."""
    asked = parse(Finetune, arguments, "albert finetune", DESCRIPTION)
    return load_command("albert.cli.finetune").run(asked)
