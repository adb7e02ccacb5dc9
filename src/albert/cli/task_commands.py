"""`albert finetune` and `albert evaluate`: their options and help.

They are parsed without torch; the modules that do the work are imported afterwards."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from albert.api.options import PRETRAINING, Evaluate, Finetune
from albert.cli.main import load_command
from albert.cli.options import ABOUT_RECIPES, flat_parts, given_value, option_file, parse
from albert.runtime.toml_files import to_toml
from albert.tasks.submission import BENCHMARKS, DECLARED

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
  albert finetune sst-2 --model runs/small --data glue --recipe mine.toml --output runs/mine
  albert finetune squad-1.1 --model albert/albert-base-v2 --data squad --output runs/squad \\
    --max-position-embeddings 1024 --max-length 1024"""


@dataclass(frozen=True, kw_only=True)
class FinetuneCommand(Finetune):
    """What to learn, from what, and how; with options from a file."""

    recipe_file: Annotated[Path | None, tyro.conf.arg(name="recipe")] = None
    """A TOML or JSON file with options of this command, by their names with _ for -; flags go before it."""
    print_recipe: bool = False
    """Print the options as a TOML file with comments, for --recipe, and train nothing."""


def finetune_main(arguments: list[str]) -> int:
    """Read the options, and run `albert finetune`."""
    defaults = option_file(FinetuneCommand, arguments)
    if given_value(arguments, "--print-recipe") is not None:
        args = parse(FinetuneCommand, arguments, "albert finetune", FINETUNE_DESCRIPTION, {"model": "", **defaults})
        print(f"# Options of `albert finetune`, from: {shlex.join(['albert', 'finetune', *arguments])}\n")
        print(to_toml(args, inline=flat_parts(FinetuneCommand), leave_out=ABOUT_RECIPES), end="")
        return 0
    args = parse(FinetuneCommand, arguments, "albert finetune", FINETUNE_DESCRIPTION, defaults)
    load_command("albert.cli.finetune").run(args)
    return 0


# --------------------------------------------------------------------------------------------------------------------
# What `albert evaluate` is asked for.

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


def evaluate_main(arguments: list[str]) -> int:
    """Read the options, and run `albert evaluate`."""
    args = parse(Evaluate, arguments, "albert evaluate", EVALUATE_DESCRIPTION)
    load_command("albert.cli.evaluate").run(args)
    return 0
