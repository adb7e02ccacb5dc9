"""The results of `albert evaluate`: of models on a split of a task, of a model at several depths or precisions, and of
pre-trained models on held-out text. `report` is the content of the file `--results`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albert.report.advice import baseline_name
from albert.report.notes import count_lines, published_lines
from albert.report.result import Result, Shown
from albert.report.tables import Scores, Table, compared_scores, score_in, score_table, without_thresholds
from albert.runtime.words import counted
from albert.tasks.declared import DeclaredTask

TOGETHER = "together"
_TESTS = {
    "masked_tokens": "MLM",
    "next_sentence": "NSP",
    "sentence_order": "SOP",
}


def result_of_split(
    report: Mapping[str, Any],
    task: DeclaredTask,
    predictions: Sequence[dict[str, Any]],
    *,
    about_models: Mapping[str, Sequence[str]],
    notes: Sequence[str],
    seconds: float,
    page: Path | None = None,
    submission: Mapping[Path, int] | None = None,
) -> Result:
    """The scores of one or several models on a split, or its predictions alone.

    Args:
        about_models: what opening each model noticed, and what it cut.
        notes: on the scores of several models together.
        page: where the page of this result is written.
        submission: files for the benchmark's server -> predictions in each.
    """
    precision = report["precision"]
    scores = report["scores"]
    baselines: dict[str, Scores] = {}
    if report["baseline"] is not None:
        baselines[baseline_name(report)] = report["baseline"]
    several = len(about_models) > 1
    lines = []
    tables = []
    for number, (model, said) in enumerate(about_models.items(), start=1):
        lines += [f"{number}: {model}"] if several else []
        lines += [f"{model}: {line}" if several else line for line in said]
    lines += [*report.get("reading", ()), *report.get("warnings", ())]
    if scores:
        lines += [f"{TOGETHER}: {note}" for note in notes if several]
        tables = [compared_scores(scores, baselines, title="Scores")]
    if several and scores:
        members = enumerate(report["of_each"].values(), start=1)
        columns: dict[str, Scores | None] = {str(number): without_thresholds(each) for number, each in members}
        columns |= {TOGETHER: without_thresholds(scores)}
        columns |= {name: without_thresholds(values) for name, values in baselines.items()}
        tables = [score_table(columns, title="Scores", corner="score")]
    examples = counted(len(predictions), "examples")
    written: list[tuple[object, str]] = [
        (path, f": {count:,} predictions") for path, count in (submission or {}).items()
    ]
    shown = Shown(
        heading=f"Evaluation on {task.title}",
        summary=f"{examples} of {report['split']}, scored with {' and '.join(about_models)} in {precision}",
        ended=[f"{examples} in {seconds:,.1f} s, in {precision}"],
        before=lines,
        tables=[table for table in tables if table is not None],
        notes=published_lines([vars(each) for each in task.published]) if scores else [],
        page=page,
        written=written,
    )
    return Result(
        scores=scores,
        baselines=baselines,
        report=report,
        predictions=predictions,
        analysis=report if scores else {},
        shown=shown,
    )


def lines_about_model(notes: Sequence[str], counts: Mapping[str, Any]) -> list[str]:
    """What is said of a model that was scored: how it was opened, and what it cut."""
    return [*notes, *count_lines(counts)]


def result_of_depths(report: Mapping[str, Any], notes: Sequence[str], curve: Path | None) -> Result:
    """The scores and costs of a model at several depths.

    Args:
        notes: on the model.
        curve: the picture that was drawn.
    """
    points = report["points"]
    names = list(without_thresholds(points[0]["scores"]))
    rows = [["depth", "GFLOPs", "ms", *names]]
    for point in points:
        costs = (f"{point['gflops']:.3g}", f"{point['milliseconds']:.3g}")
        rows.append([str(point["depth"]), *costs, *(score_in(point["scores"], name) for name in names)])
    baseline = report["baseline"]
    baselines: dict[str, Scores] = {}
    if baseline is not None:
        baselines[baseline_name(report)] = baseline
        rows.append([baseline_name(report), "-", "-", *(score_in(baseline, name) for name in names)])
    rounds = report["rounds"]
    times = "once" if rounds == 1 else f"the median of {rounds} rounds, taking turns"
    examples = counted(report["examples"], "examples")
    shown = Shown(
        heading=f"Evaluation on {report['task']} at several depths",
        summary=f"{examples}; trained at depth {report['trained_depth']}",
        before=[*notes, f"{examples}; trained at depth {report['trained_depth']}; timed {times}"],
        tables=[Table(rows, minor=len(baselines))],
        notes=["GFLOPs, of the encoder's matrix products, and ms are those of one example"],
        written=[] if curve is None else [(curve, f", its figures in {curve.with_suffix('.csv').name}")],
    )
    return Result(scores=points[0]["scores"], baselines=baselines, report=report, shown=shown)


EXACT = "fp32"
"""The precision that others are compared with."""


def result_of_precisions(report: Mapping[str, Any], baselines: Mapping[str, Scores]) -> Result:
    """The scores of a model at several precisions, fp32 first."""
    precisions = report["precisions"]
    scores = precisions[EXACT]["scores"]
    names = list(without_thresholds(scores))
    rows = [["precision", *names, "difference", "answers changed", "seconds", "score"]]
    for precision, found in precisions.items():
        cells = [score_in(found["scores"], name) for name in names]
        compared = ["", "", f"{found['seconds']:.1f}", ""]
        if precision != EXACT:
            changed = f"{found['answers_changed']:,} of {report['examples']:,}"
            verdict = "ok" if found["holds"] else "lower"
            compared = [f"{found['difference']:+.2f}", changed, f"{found['seconds']:.1f}", verdict]
        rows.append([precision, *cells, *compared])
    shown = Shown(heading=f"Evaluation on {report['task']} at several precisions", tables=[Table(rows)])
    return Result(scores=scores, baselines=baselines, report=report, shown=shown)


# --------------------------------------------------------------------------------------------------------------------
# Pre-trained models.


def result_of_pretrained(report: Mapping[str, Any], counts: Mapping[str, int], notes: Sequence[str]) -> Result:
    """The accuracies of pre-trained models, of masked tokens and of each sentence objective.

    Args:
        counts: test -> number of items.
        notes: on the models.
    """
    models = report["models"]
    rows = [["accuracy, %", "objective", *(_TESTS[test] for test in counts), "loss"]]
    for model in models:
        masked = model["scores"].get("masked_tokens")  # none if all held-out tokens are unknown
        loss = "-" if masked is None else f"{masked['loss']:.3f}"
        accuracies = (_accuracy(model["scores"].get(test)) for test in counts)
        rows.append([model["model"], model["sentence_objective"], *accuracies, loss])
    constants = {test: score["baseline"] for model in models for test, score in model["scores"].items()}
    shares = (f"{100 * constants[test]:.1f}" if test in constants else "-" for test in counts)
    rows.append([baseline_name(report), "", *shares, ""])
    rows.append(["n", "", *(f"{count:,}" for count in counts.values()), ""])
    sequences = counted(report["sequences"], "held-out sequences")
    shown = Shown(
        heading="Evaluation of pre-training",
        summary=f"{sequences}; accuracy in percent",
        before=notes,
        tables=[Table(rows, minor=2)],
        notes=[f"computed in {report['precision']}", *_about_tests(report, counts, sequences)],
    )
    first = models[0]["scores"]
    return Result(
        scores={test: 100 * score["accuracy"] for test, score in first.items()},
        baselines={baseline_name(report): {test: 100 * score["baseline"] for test, score in first.items()}},
        report=report,
        shown=shown,
    )


def _accuracy(score: Mapping[str, Any] | None) -> str:
    """An accuracy, with its 95 % interval on a second line."""
    if score is None:
        return "-"
    return f"{100 * score['accuracy']:.1f}\n{100 * score['low']:.1f}–{100 * score['high']:.1f}"


def _about_tests(report: Mapping[str, Any], counts: Mapping[str, int], sequences: str) -> list[str]:
    """What the figures of pre-trained models are of."""
    masked = "single words" if report["max_ngram"] == 1 else f"1 to {report['max_ngram']} words at a time"
    lines = [
        f"{sequences} of at most {report['max_length']} tokens, {masked} masked, the same for all; below a share its "
        "95 % interval; loss: of masked tokens, in nats",
        "masked tokens are those of unchanged texts; a run and its card count those of its own segment pairs, with its "
        "recipe's masks and length, so their accuracy and baseline differ",
    ]
    if not all(counts.values()):
        lines.append("none of these sequences has two segments: raise --sequences, or --max-length")
    headless = [model["model"] for model in report["models"] if model["sentence_objective"] == "none"]
    if headless and len(counts) > 1:
        verb = "has" if len(headless) == 1 else "have"
        lines.append(
            f"-: {', '.join(headless)} {verb} no sentence head; the paper's 52.4 (NSP) and 53.3 (SOP) for such a model "
            "are chance (Table 5)"
        )
    return lines
