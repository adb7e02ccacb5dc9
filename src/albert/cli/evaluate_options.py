"""What `albert evaluate` is asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.depth_options import DepthOptions
from albert.cli.main import load_command
from albert.cli.table_options import TableOptions
from albert.model.config import Activation
from albert.pretraining.sentence_order import SentenceObjective
from albert.tasks.declared import DECLARED

PRETRAINING = "pretraining"

NOTHING_SAID = TableOptions()

AS_TRAINED = DepthOptions()

DESCRIPTION = f"""Score a model, or several together, with the official metrics of a task, beside a constant answer.

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
    table: Annotated[TableOptions, tyro.conf.arg(name="")] = NOTHING_SAID
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
    depths: Annotated[DepthOptions, tyro.conf.arg(name="")] = AS_TRAINED
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


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert evaluate`."""
    asked = parse(Evaluate, arguments, "albert evaluate", DESCRIPTION)
    return load_command("albert.cli.evaluate").run(asked)
