"""`albert evaluate`: task scores by model, depth or precision, and pre-training accuracies, as tables."""

import csv
import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.api.options import PRETRAINING, Evaluate
from albert.cli.learnt_task import task_of_model
from albert.cli.options import open_console
from albert.cli.render import table
from albert.experiments.depth_curve import (
    EXACT,
    DepthCurve,
    PrecisionScore,
    depth_curve,
    draw_curve,
    precision_scores,
    write_curve,
)
from albert.finetuning.evaluation import (
    EvaluatedModels,
    evaluate_models,
    published_lines,
    scores_table,
    shortened,
    shown,
    write_predictions,
)
from albert.inference.engine import InferencePrecision, choose_precision, use_fast_encoders
from albert.pretraining.evaluation import CrossEvaluation, Score, evaluate_pretraining
from albert.pretraining.masking import MaskingRecipe
from albert.runtime.devices import pick_device
from albert.runtime.environment import Precision
from albert.runtime.errors import CannotCreate, CheckFailed, UsageError
from albert.runtime.files import write_text
from albert.runtime.json_files import save_json
from albert.tasks.submission import find_task, submission_files
from albert.tasks.task import Task

# --------------------------------------------------------------------------------------------------------------------
# What `albert evaluate` says of a task: one model's scores, or those of several beside what they say together.

TOGETHER = "together"


def show_evaluation(
    console: Console, task: Task, models: tuple[str, ...], found: EvaluatedModels, precision: InferencePrecision
) -> None:
    """Print how the models were opened and computed, what was cut, and the scores."""
    for member in found.members:
        for note in member.notes:
            console.print(note, markup=False)
    evaluation = found.together
    console.print(f"{len(evaluation.predictions):,} examples in {evaluation.seconds:,.1f} s, in {precision}")
    for model, member in zip(models, found.members, strict=True):
        for line in shortened(member.evaluation.counts):
            console.print(line if len(models) == 1 else f"{model}: {line}", markup=False)
    if not evaluation.scores:
        return
    if len(models) == 1:
        for line in scores_table(task, evaluation.scores, evaluation.baseline):
            console.print(line, markup=False)
        return
    for note in evaluation.notes:
        console.print(f"{TOGETHER}: {note}", markup=False)
    for number, model in enumerate(models, start=1):
        console.print(f"{number}: {model}", markup=False)
    console.print(_side_by_side(found))
    for line in published_lines(task):
        console.print(line, markup=False)


def results(
    task: Task, models: tuple[str, ...], split: str, found: EvaluatedModels, precision: InferencePrecision
) -> dict[str, Any]:
    """The scores as `--results` writes them."""
    evaluation = found.together
    named = models[0] if len(models) == 1 else list(models)
    about = {"task": task.name, "model": named, "split": split, "precision": precision}
    scores: dict[str, Any] = {"scores": dict(evaluation.scores), "baseline": evaluation.baseline}
    if len(models) > 1:
        each = zip(models, found.members, strict=True)
        scores["of_each"] = {model: dict(member.evaluation.scores) for model, member in each}
    return about | scores | {"counts": dict(evaluation.counts)}


def write_submission(console: Console, task: Task, split: str, found: EvaluatedModels, directory: Path) -> None:
    """Write the files that are handed in, and say where they are."""
    for name, content in submission_files(task, split, found.together.predictions).items():
        write_text(directory / name, content)
        console.print(f"[bold]{escape(str(directory / name))}[/bold]: {len(found.together.predictions):,} predictions")


def _side_by_side(found: EvaluatedModels) -> Table:
    """Rows of scores; the models have their numbers, whose paths may be long."""
    together, baseline = found.together, found.together.baseline
    numbers = [str(place) for place in range(1, len(found.members) + 1)]
    made = table(None, "score", *numbers, TOGETHER, *([] if baseline is None else ["constant answer"]))
    for name, score in together.scores.items():
        each = (shown(member.evaluation.scores[name]) for member in found.members)
        constant = [] if baseline is None else [shown(baseline[name])]
        if "thresh" not in name:
            made.add_row(name, *each, shown(score), *constant)
    return made


# --------------------------------------------------------------------------------------------------------------------
# One model at several depths and with several patiences: a row each of scores and costs.


def show_curve(console: Console, curve: DepthCurve) -> None:
    """Print how the model was opened, and what it scores in each way."""
    for note in curve.notes:
        console.print(note, markup=False)
    times = "once" if curve.rounds == 1 else f"the median of {curve.rounds} rounds, taking turns"
    console.print(f"{curve.examples:,} examples; trained at depth {curve.trained_depth}; timed {times}")
    metrics = [name for name in curve.points[0].scores if "thresh" not in name]
    made = table(None, "run", "layers", "GFLOPs", "ms", *metrics)
    for point in curve.points:
        run = f"depth {point.depth}" if point.patience is None else f"patience {point.patience}"
        costs = (f"{point.mean_depth:.2f}", f"{point.gflops:.3g}", f"{point.milliseconds:.3g}")
        made.add_row(run, *costs, *(shown(point.scores[name]) for name in metrics))
    if curve.baseline is not None:
        constant = (shown(curve.baseline[name]) for name in metrics)
        made.add_row("constant answer", "-", "-", "-", *constant, style="dim")
    console.print(made)
    console.print("layers, GFLOPs and ms are of an example; GFLOPs are the encoder's matrix products")


def write_files(console: Console, curve: DepthCurve, picture: Path | None, results: Path | None) -> None:
    """Draw the curve with its figures beside it, and write it as JSON, where they are wanted."""
    if results is not None:
        save_json(results, curve.to_json())
    if picture is not None:
        draw_curve(curve, picture)
        write_curve(curve, picture.with_suffix(".csv"))
        console.print(f"[bold]{escape(str(picture))}[/bold], its figures in {picture.with_suffix('.csv').name}")


# --------------------------------------------------------------------------------------------------------------------
# `albert evaluate --precision fp32 bf16 int8`: one table, and a refusal where a score moves.


def precision_table(found: Sequence[PrecisionScore]) -> Table:
    """A row for each precision: every score, the difference in the first, answers that changed, seconds, verdict."""
    names = [name for name in found[0].evaluation.scores if "thresh" not in name]
    made = table(None, "precision", *names, "difference", "answers changed", "seconds", "score holds")
    for row in found:
        scores = [shown(row.evaluation.scores[name]) for name in names]
        compared = ["", "", ""]
        if row.precision != EXACT:
            changed = f"{row.changed:,} of {len(row.evaluation.predictions):,}"
            compared = [f"{row.difference:+.2f}", changed, "yes" if row.holds else "NO"]
        made.add_row(row.precision, *scores, *compared[:2], f"{row.evaluation.seconds:.1f}", compared[2])
    return made


def precision_results(found: Sequence[PrecisionScore], tolerance: float) -> dict[str, Any]:
    """The same as `--results` writes it."""
    rows = {
        row.precision: {
            "scores": dict(row.evaluation.scores),
            "difference": row.difference,
            "answers_changed": row.changed,
            "seconds": row.evaluation.seconds,
            "holds": row.holds,
        }
        for row in found
    }
    return {"score": found[0].name, "tolerance": tolerance, "precisions": rows}


def check_precisions(found: Sequence[PrecisionScore], tolerance: float) -> None:
    """Raises CheckFailed, naming the precisions at which the score does not hold."""
    moved = [f"{row.precision} by {row.difference:+.2f}" for row in found if not row.holds]
    if moved:
        why = f"moves with {' and '.join(moved)}, more than {tolerance:.2f}"
        raise CheckFailed(found[0].name, why, f"use {' or '.join(row.precision for row in found if row.holds)}")


# --------------------------------------------------------------------------------------------------------------------
# What pre-trained models know, as a table for people and as rows for programs.

_HEADINGS = {
    "masked_tokens": "MLM",
    "next_sentence": "NSP",
    "sentence_order": "SOP",
    "reference_order": "SOP of the reference",
}
_CSV_COLUMNS = ("model", "sentence_objective", "test", "accuracy", "low", "high", "baseline", "loss", "count")


def accuracies(found: CrossEvaluation) -> Table:
    """Rows of models, columns of tests, in percent; then what a constant answer scores, and of how many items."""
    made = table(None, "right, %", "head learnt", *(_HEADINGS[test] for test in found.counts), "loss")
    for one in found.models:
        loss = f"{one.scores['masked_tokens'].loss:.3f}"
        made.add_row(escape(one.model), one.learnt, *(_cell(one.scores.get(test)) for test in found.counts), loss)
    baselines = {test: score.baseline for one in found.models for test, score in one.scores.items()}
    shares = (f"{100 * baselines[test]:.1f}" if test in baselines else "-" for test in found.counts)
    made.add_row("a constant answer", "", *shares, "", style="dim")
    made.add_row("of", "", *(f"{count:,}" for count in found.counts.values()), "", style="dim")
    return made


def remarks(found: CrossEvaluation) -> list[str]:
    """What there is to say about the table."""
    masked = "single words" if found.max_ngram == 1 else f"1 to {found.max_ngram} words at a time"
    lines = [
        f"{found.sequences:,} held-out sequences of at most {found.max_length} tokens, {masked} masked, the same for "
        "all; below a share its 95 % interval; loss: of masked tokens, in nats"
    ]
    if not all(found.counts.values()):
        lines.append("none of these sequences has two segments: ask more with --sequences, or longer ones")
    headless = [one.model for one in found.models if one.learnt == "none"]
    if headless and len(found.counts) > 1:
        verb = "has" if len(headless) == 1 else "have"
        lines.append(
            f"-: {', '.join(headless)} {verb} no sentence head; the paper's 52.4 (NSP) and 53.3 (SOP) for such a model "
            "are chance (Table 5)"
        )
    return lines


def as_csv(found: CrossEvaluation) -> str:
    """A line for each model and test; without figures where a model has no head for it."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([*_CSV_COLUMNS, "sequences", "max_length", "max_ngram"])
    for one in found.models:
        for test, count in found.counts.items():
            figures = one.scores[test].to_json() if test in one.scores else {"count": count}
            cells = [figures.get(name, "") for name in _CSV_COLUMNS[3:]]
            writer.writerow([one.model, one.learnt, test, *cells, found.sequences, found.max_length, found.max_ngram])
    return lines.getvalue()


def _cell(score: Score | None) -> str:
    if score is None:
        return "-"
    low, high = score.interval
    return f"{100 * score.accuracy:.1f}\n{100 * low:.1f}–{100 * high:.1f}"


def run(args: Evaluate) -> int:
    """Run `albert evaluate`."""
    console = open_console()
    if not args.model:
        raise UsageError("--model", "names no model", "give a directory, or a Hub id")
    if args.task == PRETRAINING:
        _evaluate_pretraining(args, console)
    elif args.depths.makes_table:
        _evaluate_depths(args, console)
    else:
        _evaluate_task(args, console)
    return 0


def _evaluate_pretraining(args: Evaluate, console: Console) -> None:
    if args.data is None:
        raise UsageError("--data", "is needed: what `albert prepare` wrote", "see albert evaluate --help")
    if args.json and args.csv:
        raise UsageError("--csv", "goes without --json", "choose one of them")
    if args.depths.depth or args.depths.makes_table:
        raise UsageError("--depth, --patience and --curve", "go with a task", f"leave {PRETRAINING} out")
    precision = _one_precision(args)
    found = evaluate_pretraining(
        args.model,
        args.data,
        objectives=args.objective,
        max_length=args.max_length,
        masking=MaskingRecipe(max_ngram=args.max_ngram),
        limit=args.sequences,
        revision=args.revision,
        device=args.device,
        prepare=_computing_in(precision),
        overrides=_overrides(args),
    )
    told = {"precision": precision, **found.to_json()}
    if args.results is not None:
        save_json(args.results, {"task": PRETRAINING, **told})
    if args.json:
        print(json.dumps(told, ensure_ascii=False))
    elif args.csv:
        print(as_csv(found), end="")
    else:
        for one in found.models:
            for note in one.notes:
                console.print(note, markup=False)
        console.print(accuracies(found))
        for line in (f"computed in {precision}", *remarks(found)):
            console.print(line, markup=False)


def _evaluate_task(args: Evaluate, console: Console) -> None:
    for name, given in (("--json", args.json), ("--csv", args.csv)):
        if given:
            raise UsageError(name, f"goes with {PRETRAINING}", "--results writes the scores of a task as JSON")
    task = _task(args)
    splits = (args.split,) if args.split is not None else ("dev",)
    if args.submission is not None and args.split is None and args.dev is None:
        splits = tuple(task.submission) or splits
    for name, path in (("--predictions", args.predictions), ("--results", args.results)):
        if path is not None and len(splits) > 1:
            raise UsageError(name, f"is one file, there are the splits {', '.join(splits)}", "name one with --split")
    if args.submission is not None and args.submission.exists() and not args.submission.is_dir():
        raise CannotCreate(args.submission, "is no directory", "name one for the files to hand in")
    if len(args.precision) != 1 or args.precision == ("int8",):
        _compare_precisions(args, task, splits, console)
        return
    precision = _one_precision(args)
    for split in splits:
        found = evaluate_models(
            task,
            args.model,
            args.data or Path(),
            split,
            device=args.device,
            prepare=_computing_in(precision),
            max_length=args.max_length,
            micro_batch_tokens=args.micro_batch_tokens,
            revision=args.revision,
            overrides=_overrides(args),
            needs_labels=args.submission is None and args.predictions is None,
            depth=args.depths.one_depth,
        )
        show_evaluation(console, task, args.model, found, precision)
        if args.predictions is not None:
            write_predictions(args.predictions, found.together)
        if args.submission is not None:
            write_submission(console, task, split, found, args.submission)
        if args.results is not None:
            save_json(args.results, results(task, args.model, split, found, precision))


def _compare_precisions(args: Evaluate, task: Task, splits: tuple[str, ...], console: Console) -> None:
    for name, path in (("--predictions", args.predictions), ("--submission", args.submission)):
        if path is not None:
            raise UsageError(name, "goes with one precision, fp32 or bf16", "compare precisions without it")
    model, *others = args.model
    if others:
        raise UsageError("--precision", "several are compared for one model", "name one model")
    if args.depths.depth:
        raise UsageError("--depth", "goes with one precision", "name fp32 or bf16")
    if not args.precision:
        raise UsageError("--precision", "names none", "choose among fp32, bf16 and int8")
    found = precision_scores(
        task,
        model,
        args.data or Path(),
        splits[0],
        _precisions(args),
        args.tolerance,
        device=args.device,
        max_length=args.max_length,
        micro_batch_tokens=args.micro_batch_tokens,
        revision=args.revision,
        overrides=_overrides(args),
    )
    console.print(precision_table(found))
    if args.results is not None:
        about = {"task": task.name, "model": model, "split": splits[0]}
        save_json(args.results, about | precision_results(found, args.tolerance))
    check_precisions(found, args.tolerance)


def _precisions(args: Evaluate) -> list[InferencePrecision]:
    """Those that were asked for, with what auto stands for on the device."""
    device = pick_device(args.device)
    return [choose_precision(one, device) for one in args.precision]


def _computing_in(precision: Precision) -> Callable[[Any], None]:
    """Lets a model compute as in `albert predict`: its encoder at the precision, its head in fp32."""
    return lambda model: use_fast_encoders(model, precision)


def _one_precision(args: Evaluate) -> Precision:
    if args.precision != ("int8",):
        match _precisions(args):
            case ["fp32" | "bf16" as precision]:
                return precision
    raise UsageError("--precision", "is one here, fp32 or bf16", "several are compared on a task, for one model")


def _overrides(args: Evaluate) -> dict[str, Any]:
    given = {name: getattr(args, name) for name in ("hidden_act", "num_attention_heads")}
    return {name: value for name, value in given.items() if value is not None}


def _evaluate_depths(args: Evaluate, console: Console) -> None:
    args.depths.check(args.model, predictions=args.predictions, submission=args.submission)
    if len(args.precision) != 1:
        raise UsageError("--precision", "is one here", "compare precisions at one --depth")
    found = depth_curve(
        _task(args),
        args.model[0],
        args.data or Path(),
        args.split or "dev",
        depths=args.depths.depth,
        patiences=args.depths.patience,
        rounds=args.depths.rounds,
        device=args.device,
        precision=next(iter(_precisions(args))),
        max_length=args.max_length,
        revision=args.revision,
        overrides=_overrides(args),
    )
    show_curve(console, found)
    write_files(console, found, args.depths.curve, args.results)


def _task(args: Evaluate) -> Task:
    if args.task is None:
        return task_of_model(args.model[0], args.revision, args.table, args.dev)
    given = args.table.given()
    if given:
        raise UsageError(given[0], f"goes with your own file, the task {args.task} has its own columns")
    if args.data is None and args.dev is None:
        raise UsageError("--data", "is missing; the task's files are looked for there", "see albert evaluate --help")
    task = find_task(args.task)
    return task if args.dev is None else _with_file(task, args)


def _with_file(task: Task, args: Evaluate) -> Task:
    files = {args.split or "dev": args.dev} if args.dev is not None else {}
    return replace(task, source=task.source.with_files(files))
