"""`albert evaluate`: the official metrics of a task, or the intrinsic accuracies of pre-training."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.console import open_console
from albert.cli.cross_evaluation_tables import accuracies, as_csv, remarks
from albert.cli.depth_table import DepthOptions, show_curve, write_files
from albert.cli.evaluation_report import results, show_evaluation, write_submission
from albert.cli.learnt_task import task_of_model
from albert.cli.precision_table import check_precisions, precision_results, precision_table
from albert.cli.table_options import TableOptions
from albert.experiments.depth_curve import depth_curve
from albert.experiments.precision_scores import TOLERANCE, precision_scores
from albert.finetuning.evaluate import evaluate_models, write_predictions
from albert.inference.fast_encoder import use_fast_encoders
from albert.inference.precision import InferencePrecision, PrecisionAsked, choose_precision
from albert.model.config import Activation
from albert.pretraining.cross_evaluation import evaluate_pretraining
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.sentence_order import SentenceObjective
from albert.runtime.devices import Precision, pick_device
from albert.runtime.errors import CannotCreate, UsageError
from albert.runtime.strict_json import save_json
from albert.tasks.declared import DECLARED, find_task
from albert.tasks.task import Task

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
    precision: tuple[PrecisionAsked, ...] = ("auto",)
    """Of matrix products; auto is what albert predict takes, bf16 where the device has instructions for it. Several, or
    int8, are compared in one table, as they answer there; if the score moves by more than the tolerance the command
    fails (exit 4)."""
    tolerance: float = TOLERANCE
    """Points by which another precision may move the first score."""


def main(arguments: list[str]) -> int:
    """Run `albert evaluate`."""
    asked = parse(Evaluate, arguments, "albert evaluate", DESCRIPTION)
    console = open_console()
    if not asked.model:
        raise UsageError("--model", "names no model", "give a directory, or a Hub id")
    if asked.task == PRETRAINING:
        _evaluate_pretraining(asked, console)
    elif asked.depths.makes_table:
        _evaluate_depths(asked, console)
    else:
        _evaluate_task(asked, console)
    return 0


def _evaluate_pretraining(asked: Evaluate, console: Console) -> None:
    if asked.data is None:
        raise UsageError("--data", "is needed: what `albert prepare` wrote", "see albert evaluate --help")
    if asked.json and asked.csv:
        raise UsageError("--csv", "goes without --json", "choose one of them")
    if asked.depths.depth or asked.depths.makes_table:
        raise UsageError("--depth, --patience and --curve", "go with a task", f"leave {PRETRAINING} out")
    precision = _one_precision(asked)
    found = evaluate_pretraining(
        asked.model,
        asked.data,
        objectives=asked.objective,
        max_length=asked.max_length,
        masking=MaskingRecipe(max_ngram=asked.max_ngram),
        limit=asked.sequences,
        revision=asked.revision,
        device=asked.device,
        prepare=_computing_in(precision),
        overrides=_overrides(asked),
    )
    told = {"precision": precision, **found.to_json()}
    if asked.results is not None:
        save_json(asked.results, {"task": PRETRAINING, **told})
    if asked.json:
        print(json.dumps(told, ensure_ascii=False))
    elif asked.csv:
        print(as_csv(found), end="")
    else:
        for one in found.models:
            for note in one.notes:
                console.print(note, markup=False)
        console.print(accuracies(found))
        for line in (f"computed in {precision}", *remarks(found)):
            console.print(line, markup=False)


def _evaluate_task(asked: Evaluate, console: Console) -> None:
    for name, given in (("--json", asked.json), ("--csv", asked.csv)):
        if given:
            raise UsageError(name, f"goes with {PRETRAINING}", "--results writes the scores of a task as JSON")
    task = _task(asked)
    splits = (asked.split,) if asked.split is not None else ("dev",)
    if asked.submission is not None and asked.split is None and asked.dev is None:
        splits = tuple(task.submission) or splits
    for name, path in (("--predictions", asked.predictions), ("--results", asked.results)):
        if path is not None and len(splits) > 1:
            raise UsageError(name, f"is one file, there are the splits {', '.join(splits)}", "name one with --split")
    if asked.submission is not None and asked.submission.exists() and not asked.submission.is_dir():
        raise CannotCreate(asked.submission, "is no directory", "name one for the files to hand in")
    if len(asked.precision) != 1 or asked.precision == ("int8",):
        _compare_precisions(asked, task, splits, console)
        return
    precision = _one_precision(asked)
    for split in splits:
        found = evaluate_models(
            task,
            asked.model,
            asked.data or Path(),
            split,
            device=asked.device,
            prepare=_computing_in(precision),
            max_length=asked.max_length,
            micro_batch_tokens=asked.micro_batch_tokens,
            revision=asked.revision,
            overrides=_overrides(asked),
            needs_labels=asked.submission is None and asked.predictions is None,
            depth=asked.depths.one_depth,
        )
        show_evaluation(console, task, asked.model, found, precision)
        if asked.predictions is not None:
            write_predictions(asked.predictions, found.together)
        if asked.submission is not None:
            write_submission(console, task, split, found, asked.submission)
        if asked.results is not None:
            save_json(asked.results, results(task, asked.model, split, found, precision))


def _compare_precisions(asked: Evaluate, task: Task, splits: tuple[str, ...], console: Console) -> None:
    for name, path in (("--predictions", asked.predictions), ("--submission", asked.submission)):
        if path is not None:
            raise UsageError(name, "goes with one precision, fp32 or bf16", "compare precisions without it")
    model, *others = asked.model
    if others:
        raise UsageError("--precision", "several are compared for one model", "name one model")
    if asked.depths.depth:
        raise UsageError("--depth", "goes with one precision", "name fp32 or bf16")
    if not asked.precision:
        raise UsageError("--precision", "names none", "choose among fp32, bf16 and int8")
    found = precision_scores(
        task,
        model,
        asked.data or Path(),
        splits[0],
        _precisions(asked),
        asked.tolerance,
        device=asked.device,
        max_length=asked.max_length,
        micro_batch_tokens=asked.micro_batch_tokens,
        revision=asked.revision,
        overrides=_overrides(asked),
    )
    console.print(precision_table(found))
    if asked.results is not None:
        about = {"task": task.name, "model": model, "split": splits[0]}
        save_json(asked.results, about | precision_results(found, asked.tolerance))
    check_precisions(found, asked.tolerance)


def _precisions(asked: Evaluate) -> list[InferencePrecision]:
    """Those that were asked for, with what auto stands for on the device."""
    device = pick_device(asked.device)
    return [choose_precision(one, device) for one in asked.precision]


def _computing_in(precision: Precision) -> Callable[[Any], None]:
    """Lets a model compute as in `albert predict`: its encoder at the precision, its head in fp32."""
    return lambda model: use_fast_encoders(model, precision)


def _one_precision(asked: Evaluate) -> Precision:
    if asked.precision != ("int8",):
        match _precisions(asked):
            case ["fp32" | "bf16" as precision]:
                return precision
    raise UsageError("--precision", "is one here, fp32 or bf16", "several are compared on a task, for one model")


def _overrides(asked: Evaluate) -> dict[str, Any]:
    given = {name: getattr(asked, name) for name in ("hidden_act", "num_attention_heads")}
    return {name: value for name, value in given.items() if value is not None}


def _evaluate_depths(asked: Evaluate, console: Console) -> None:
    asked.depths.check(asked.model, predictions=asked.predictions, submission=asked.submission)
    if len(asked.precision) != 1:
        raise UsageError("--precision", "is one here", "compare precisions at one --depth")
    found = depth_curve(
        _task(asked),
        asked.model[0],
        asked.data or Path(),
        asked.split or "dev",
        depths=asked.depths.depth,
        patiences=asked.depths.patience,
        rounds=asked.depths.rounds,
        device=asked.device,
        precision=next(iter(_precisions(asked))),
        max_length=asked.max_length,
        revision=asked.revision,
        overrides=_overrides(asked),
    )
    show_curve(console, found)
    write_files(console, found, asked.depths.curve, asked.results)


def _task(asked: Evaluate) -> Task:
    if asked.task is None:
        return task_of_model(asked.model[0], asked.revision, asked.table, asked.dev)
    given = asked.table.given()
    if given:
        raise UsageError(given[0], f"goes with your own file, the task {asked.task} has its own columns")
    if asked.data is None and asked.dev is None:
        raise UsageError("--data", "is needed to find the task's files", "see albert evaluate --help")
    task = find_task(asked.task)
    return task if asked.dev is None else _with_file(task, asked)


def _with_file(task: Task, asked: Evaluate) -> Task:
    files = {asked.split or "dev": asked.dev} if asked.dev is not None else {}
    return replace(task, source=task.source.with_files(files))
