"""`albert evaluate`: task scores by model, depth or precision, and pre-training accuracies, as tables."""

import csv
import io
import json
from collections.abc import Sequence
from functools import partial

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from albert.api.options import Evaluate
from albert.api.results import ComparedPrecisions, EvaluateResult, PretrainedScores, ScoredSplit
from albert.api.tasks import run_evaluate
from albert.cli.options import open_console
from albert.cli.render import table
from albert.experiments.depth_curve import EXACT, DepthCurve, PrecisionScore
from albert.finetuning.evaluation import EvaluatedModels, published_lines, scores_table, shortened, shown
from albert.inference.engine import InferencePrecision
from albert.pretraining.evaluation import CrossEvaluation, Score
from albert.runtime.environment import Precision
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


def run(args: Evaluate) -> None:
    """Run `albert evaluate`."""
    run_evaluate(args, partial(_show, open_console(), args))


def _show(console: Console, args: Evaluate, result: EvaluateResult) -> None:
    """Print a result, and which files hold it."""
    match result.found:
        case PretrainedScores(found=found, precision=precision):
            _show_pretrained(console, args, found, precision)
        case ComparedPrecisions(found=found):
            console.print(precision_table(found))
        case DepthCurve() as found:
            show_curve(console, found)
            if (picture := args.depths.curve) is not None:
                figures = picture.with_suffix(".csv").name
                console.print(f"[bold]{escape(str(picture))}[/bold], its figures in {figures}")
        case ScoredSplit(task=task, models=models, found=found, precision=precision, submission=submission):
            show_evaluation(console, task, models, found, precision)
            for path, count in submission.items():
                console.print(f"[bold]{escape(str(path))}[/bold]: {count:,} predictions")


def _show_pretrained(console: Console, args: Evaluate, found: CrossEvaluation, precision: Precision) -> None:
    if args.json:
        print(json.dumps({"precision": precision, **found.to_json()}, ensure_ascii=False))
    elif args.csv:
        print(as_csv(found), end="")
    else:
        for one in found.models:
            for note in one.notes:
                console.print(note, markup=False)
        console.print(accuracies(found))
        for line in (f"computed in {precision}", *remarks(found)):
            console.print(line, markup=False)
