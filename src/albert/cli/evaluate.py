"""`albert evaluate`: the official metrics of a task, or the intrinsic accuracies of pre-training."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from albert.cli.console import open_console
from albert.cli.cross_evaluation_tables import accuracies, as_csv, remarks
from albert.cli.depth_table import show_curve, write_files
from albert.cli.evaluate_options import PRETRAINING, Evaluate
from albert.cli.evaluation_report import results, show_evaluation, write_submission
from albert.cli.learnt_task import task_of_model
from albert.cli.precision_table import check_precisions, precision_results, precision_table
from albert.experiments.depth_curve import depth_curve
from albert.experiments.precision_scores import precision_scores
from albert.finetuning.evaluate import evaluate_models, write_predictions
from albert.inference.fast_encoder import use_fast_encoders
from albert.inference.precision import InferencePrecision, choose_precision
from albert.pretraining.cross_evaluation import evaluate_pretraining
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.runtime.devices import pick_device
from albert.runtime.errors import CannotCreate, UsageError
from albert.runtime.precisions import Precision
from albert.runtime.strict_json import save_json
from albert.tasks.declared import find_task
from albert.tasks.task import Task


def run(asked: Evaluate) -> int:
    """Run `albert evaluate`."""
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
