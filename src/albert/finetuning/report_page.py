"""The page of a fine-tuning run: one HTML file without scripts or external resources, for a phone and a screen.

It is made from `results.json` and the journal alone, without times, so that equal runs have equal pages.
"""

import html
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from albert.finetuning.evaluation import FROZEN, MAJORITY, format_score, run_notes
from albert.runtime.files import write_text
from albert.runtime.json_files import read_journal, read_versioned
from albert.runtime.words import counted, in_epochs
from albert.tasks.declared import UNNAMED
from albert.training.run_folder import RESULTS_NAME, RunFolder

REPORT_NAME = "report.html"
MATRIX_CLASSES = 30
"""Classes of the matrix on the page; of more, those with the most errors."""
SHOWN_CONFUSIONS = 10
CURVE_POINTS = 400
Rows = Sequence[Sequence[str]]


def write_report(run: RunFolder) -> Path:
    """Write `report.html` of a finished run."""
    results = read_versioned(run.path / RESULTS_NAME)
    journal = read_journal(run.journal_path) if run.journal_path.is_file() else []
    path = run.path / REPORT_NAME
    write_text(path, report_page(results, journal))
    return path


def report_page(results: Mapping[str, Any], journal: Sequence[Mapping[str, Any]]) -> str:
    """The page as HTML."""
    task = "your table" if results["task"] == UNNAMED else str(results["task"])
    training = results["training"]
    examples = results["evaluation"]["examples"]
    summary = f"{counted(training['examples'], 'training rows')}, {counted(examples, 'rows')} of the development set"
    if training["steps"]:
        summary += f", {counted(training['steps'], 'updates')} ({in_epochs(training['epochs'])})"
    parts = [f"<h1>Fine-tuning on {_text(task)}</h1>", f"<p>{_text(summary)}, from {_text(results['start'])}.</p>"]
    parts += [f'<p class="advice">{_text(line)}</p>' for line in advice_lines(results)]
    parts += _scores(results)
    parts += _curves(results, journal)
    parts += _per_class(results)
    parts += _confusion(results)
    parts += _errors(results)
    parts += _calibration(results)
    parts += _notes(results)
    return _page(f"Fine-tuning on {task}", parts)


def evaluation_page(report: Mapping[str, Any], examples: int) -> str:
    """The page of an evaluation as HTML; `report` is what `albert evaluate --results` writes, of so many examples."""
    task = "your table" if report["task"] == UNNAMED else str(report["task"])
    models = [report["model"]] if isinstance(report["model"], str) else report["model"]
    scored = counted(examples, "examples")
    summary = f"{scored} of {report['split']}, scored with {' and '.join(models)} in {report['precision']}."
    compared = {"this model": report["scores"], **report.get("of_each", {}), MAJORITY: report["baseline"]}
    if len(models) > 1:
        compared["the models together"] = compared.pop("this model")
    parts = [f"<h1>Evaluation on {_text(task)}</h1>", f"<p>{_text(summary)}</p>"]
    parts += ["<h2>Scores</h2>", _scores_table(compared)]
    parts += _per_class(report)
    parts += _confusion(report)
    parts += _errors(report)
    parts += _calibration(report)
    lines = report.get("warnings", ())
    if lines:
        parts += ["<h2>Notes</h2>", f"<ul>{''.join(f'<li>{_text(line)}</li>' for line in lines)}</ul>"]
    return _page(f"Evaluation on {task}", parts)


def _page(title: str, parts: Sequence[str]) -> str:
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{_text(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


# --------------------------------------------------------------------------------------------------------------------
# The sections of the page; each is a list of pieces of HTML, empty if the run has nothing to show.


def advice_lines(results: Mapping[str, Any]) -> list[str]:
    """Why something should change, and what to try."""
    advice = results.get("advice")
    step = results.get("next_step")
    lines = []
    if step:
        lines.append(step["why"] if advice else f"{step['why']}: try {step['try']}")
    if advice:
        lines.append(advice)
    return lines


def compared_scores(results: Mapping[str, Any]) -> dict[str, Mapping[str, float | None]]:
    """The scores of this model and of the simpler ones, by name."""
    compared = {"this model": results["scores"], MAJORITY: results.get("baseline")}
    linear = results.get("linear_baseline")
    if linear is not None:
        compared[linear["method"]] = linear["scores"]
    frozen = results.get("frozen_head")
    if frozen is not None and not results.get("settings", {}).get("frozen"):
        compared[FROZEN] = frozen["scores"]
    training = results.get("training_scores")
    if training is not None:
        compared[f"this model, on {training['examples']:,} training rows"] = training["scores"]
    return {name: scores for name, scores in compared.items() if scores}


def _scores(results: Mapping[str, Any]) -> list[str]:
    parts = ["<h2>Scores on the development set</h2>", _scores_table(compared_scores(results))]
    for split, scores in results.get("further_scores", {}).items():
        further = {"this model": scores, **results.get("further_baselines", {}).get(split, {})}
        parts += [f"<h2>Scores on {_text(split)}</h2>", _scores_table(further)]
    return parts


def _scores_table(compared: Mapping[str, Mapping[str, float | None] | None]) -> str:
    """A row for each model; the scores of entity types are in the table of classes."""
    models = {name: scores for name, scores in compared.items() if scores}
    metrics = [name for scores in models.values() for name in scores if not name.startswith("entity_f1_")]
    metrics = list(dict.fromkeys(metrics))
    rows = [
        (name, *(format_score(scores[metric]) if metric in scores else "" for metric in metrics))
        for name, scores in models.items()
    ]
    return f'<div class="scores">{_table(("", *metrics), rows)}</div>'


def _curves(results: Mapping[str, Any], journal: Sequence[Mapping[str, Any]]) -> list[str]:
    metric = next(iter(results["scores"]), "")
    pictures = []
    for event, name, title in (
        ("train", "loss", "training loss"),
        ("evaluation", metric, f"{metric}, development set"),
    ):
        records = [record for record in journal if record["event"] == event]
        values = [(record["step"], record.get(name)) for record in records]
        points = [(float(x), float(y)) for x, y in values if isinstance(y, int | float) and math.isfinite(y)]
        if len(points) > 1:
            pictures.append(_curve(title, points))
    return ["<h2>Curves</h2>", '<div class="curves">', *pictures, "</div>"] if pictures else []


def _per_class(results: Mapping[str, Any]) -> list[str]:
    rows = class_rows(results.get("per_class"))
    return ["<h2>Classes</h2>", _table(rows[0], rows[1:])] if rows else []


def class_rows(per_class: Sequence[Mapping[str, Any]] | None, most: int | None = None) -> list[tuple[str, ...]]:
    """A row for each class with headings first; empty without classes. `most` keeps those with the lowest F1."""
    if not per_class:
        return []
    chosen = list(per_class)
    if most is not None and len(chosen) > most:
        chosen = sorted(chosen, key=lambda row: row["f1"])[:most]
    rows: list[tuple[str, ...]] = [("class", "precision", "recall", "F1", "count")]
    for row in chosen:
        points = (f"{row[name]:.1f}" for name in ("precision", "recall", "f1"))
        rows.append((row["class"], *points, f"{row['count']:,}"))
    return rows


def confusion_rows(confusion: Mapping[str, Any] | None, most: int) -> list[tuple[str, ...]]:
    """The largest confusions with headings first; empty if there are none."""
    if not confusion or not confusion["largest"]:
        return []
    rows: list[tuple[str, ...]] = [("right answer", "predicted", "count")]
    for each in confusion["largest"][:most]:
        rows.append((each["gold"] or NOTHING, each["predicted"] or NOTHING, f"{each['count']:,}"))
    return rows


NOTHING = "(none)"


def _confusion(results: Mapping[str, Any]) -> list[str]:
    confusion = results.get("confusion")
    rows = confusion_rows(confusion, SHOWN_CONFUSIONS)
    parts = ["<h2>Largest confusions</h2>", _table(rows[0], rows[1:], words=2)] if rows else []
    if not confusion or not confusion["counts"] or isinstance(confusion["counts"][0][0], list):
        return parts
    labels = confusion["labels"]
    counts = confusion["counts"]
    shown = list(range(len(labels)))
    title = "Confusion matrix"
    if len(labels) > MATRIX_CLASSES:
        wrong = [sum(counts[i]) + sum(row[i] for row in counts) - 2 * counts[i][i] for i in shown]
        shown = sorted(sorted(shown, key=lambda index: -wrong[index])[:MATRIX_CLASSES])
        title = f"Confusion matrix of the {MATRIX_CLASSES} classes with the most errors"
    head = "".join(f'<th scope="col"><span>{_text(labels[index] or NOTHING)}</span></th>' for index in shown)
    lines = [f'<tr><th class="corner">right \\ predicted</th>{head}</tr>']
    for row in shown:
        total = sum(counts[row])
        cells = []
        for column in shown:
            share = counts[row][column] / total if total else 0.0
            colour = "right" if row == column else "wrong"
            text = f"{counts[row][column]:,}" if counts[row][column] else ""
            cells.append(f'<td class="{colour}" style="--share:{share:.2f}">{text}</td>')
        lines.append(f'<tr><th scope="row">{_text(labels[row] or NOTHING)}</th>{"".join(cells)}</tr>')
    about = "A line is a right class, a column a prediction; colours are shares of the line."
    table = f'<div class="wide"><table class="matrix">{"".join(lines)}</table></div>'
    return [*parts, f"<h2>{title}</h2>", f"<p>{about}</p>", table]


def _errors(results: Mapping[str, Any]) -> list[str]:
    errors = results.get("errors")
    if not errors:
        return []
    of_numbers = "difference" in errors[0]
    parts = [f"<h2>{'Largest errors' if of_numbers else 'Most confident errors'}</h2>"]
    for error in errors:
        right, predicted, score = error_cells(error)
        words = f"<b>{_text(error['words'])}</b>: " if "words" in error else ""
        verdict = f"{words}predicted <b>{_text(predicted)}</b> ({_text(score)}), right is <b>{_text(right)}</b>"
        text = _text(error["text"]).replace("\n", "<br>")
        parts.append(f'<div class="error"><p>{verdict}</p><p class="text">{text}</p></div>')
    return parts


def error_cells(error: Mapping[str, Any]) -> tuple[str, str, str]:
    """The right answer, the prediction, and its probability or the difference of the numbers, as text."""
    right, predicted = (_answer(error[name]) for name in ("gold", "predicted"))
    if "difference" in error:
        return right, predicted, f"{error['difference']:+.4g}"
    of_label = f" for {error['label']}" if "label" in error else ""
    return right, predicted, f"{error['probability']:.2f}{of_label}"


def _answer(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(value) or NOTHING
    return f"{value:.4g}" if isinstance(value, float) else value or NOTHING


def _calibration(results: Mapping[str, Any]) -> list[str]:
    rows = calibration_rows(results.get("calibration"))
    if not rows:
        return []
    line = calibration_line(results["calibration"])
    return ["<h2>Calibration</h2>", f"<p>{_text(line)}.</p>", _table(rows[0], rows[1:])]


def calibration_rows(calibration: Mapping[str, Any] | None) -> list[tuple[str, ...]]:
    """A row for each bin of probability that is not empty, headings first."""
    if not calibration:
        return []
    rows: list[tuple[str, ...]] = [("probability", "predictions", "mean probability, %", "accuracy, %")]
    for each in calibration["bins"]:
        edges = f"{each['from']:.1f}–{each['to']:.1f}"
        rows.append((edges, f"{each['count']:,}", f"{each['probability']:.1f}", f"{each['right']:.1f}"))
    return rows


def calibration_line(calibration: Mapping[str, Any]) -> str:
    """The calibration in one line."""
    difference = calibration["difference"]
    verdict = "neither too high nor too low"
    if abs(difference) >= 1:
        verdict = f"{abs(difference):.1f} points too {'high' if difference > 0 else 'low'}"
    error = calibration["expected_calibration_error"]
    return f"Expected calibration error {error:.1f} points; on average the probabilities are {verdict}"


def _notes(results: Mapping[str, Any]) -> list[str]:
    lines = [*run_notes(results), results.get("selection", {}).get("note")]
    recipe = results["recipe"]
    settings = (
        f"learning rate {recipe['learning_rate']:.3g}, batch size {recipe['batch_size']:,}, "
        f"at most {recipe['max_length']:,} tokens, seed {results['seed']}"
    )
    if results.get("settings", {}).get("frozen"):
        settings = f"only the linear head was learned, at most {recipe['max_length']:,} tokens"
    lines = [settings, *(re.sub(r" after [\d,]+ s\b", "", line) for line in lines if line)]
    items = "".join(f"<li>{_text(line)}</li>" for line in lines)
    return ["<h2>Notes</h2>", f"<ul>{items}</ul>"]


# --------------------------------------------------------------------------------------------------------------------
# Tables, curves and style.


def _text(value: object) -> str:
    return html.escape(str(value))


def _table(head: Sequence[str], rows: Rows, words: int = 1) -> str:
    """A table; the first `words` columns are words, the others numbers."""
    lines = []
    for tag, row in [("th", head), *(("td", row) for row in rows)]:
        cells = [
            f"<{tag}{'' if column < words else ' class=number'}>{_text(cell)}</{tag}>"
            for column, cell in enumerate(row)
        ]
        lines.append(f"<tr>{''.join(cells)}</tr>")
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


WIDTH = 360
HEIGHT = 190
LEFT = 52
RIGHT = 12
TOP = 26
BOTTOM = 26


def _axis_number(value: float) -> str:
    """A number of at most seven characters, which is what the margin has room for: 0.709, 12.3, 7.1e-4."""
    text = f"{value:.3g}"
    if len(text) <= 6:
        return text
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _curve(title: str, points: Sequence[tuple[float, float]]) -> str:
    """A curve as SVG with the lowest and highest values at its axes; of many points, a part at equal distances."""
    every = math.ceil(len(points) / CURVE_POINTS)
    points = [*points[:-1:every], points[-1]]
    first = points[0][0]
    last = points[-1][0]
    low = min(y for _, y in points)
    high = max(y for _, y in points)
    across = (WIDTH - LEFT - RIGHT) / (last - first or 1.0)
    up = (HEIGHT - TOP - BOTTOM) / (high - low or 1.0)
    bottom = HEIGHT - BOTTOM
    path = " ".join(f"{LEFT + (x - first) * across:.1f},{bottom - (y - low) * up:.1f}" for x, y in points)
    axes = f"M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"
    labels = (
        (LEFT - 6, TOP + 8, "end", _axis_number(high)),
        (LEFT - 6, bottom, "end", _axis_number(low)),
        (LEFT, HEIGHT - 8, "start", f"update {first:,.0f}"),
        (WIDTH - RIGHT, HEIGHT - 8, "end", f"{last:,.0f}"),
        (LEFT, 16, "start", title),
    )
    texts = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}">{_text(text)}</text>' for x, y, anchor, text in labels
    )
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_text(title)}">'
        f'<path class="axes" d="{axes}"/><polyline points="{path}"/>{texts}</svg>'
    )


STYLE = """\
:root { --back: #fff; --ink: #1c2430; --soft: #5b6675; --line: #d9dee5; --box: #f4f6f8; --curve: #2457c5; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14181e; --ink: #e6e9ee; --soft: #9aa5b4; --line: #343c47; --box: #1d232b; --curve: #86a8ff; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: .5rem 0; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .3rem .7rem .3rem 0; text-align: left; vertical-align: bottom; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; }
.scores th:first-child, .scores td:first-child { min-width: 9rem; }
.number { text-align: right; }
.advice, .error { background: var(--box); border-radius: .5rem; padding: .6rem .8rem; margin: .6rem 0; }
.advice { border-left: 4px solid var(--curve); }
.error p { margin: .1rem 0; }
.text { color: var(--soft); }
.curves { display: flex; flex-wrap: wrap; gap: 1rem; }
svg { flex: 1 1 20rem; max-width: 30rem; width: 100%; }
svg text { fill: var(--soft); font-size: 12px; }
.axes { fill: none; stroke: var(--line); }
polyline { fill: none; stroke: var(--curve); stroke-width: 2; stroke-linejoin: round; }
.matrix { font-size: .85rem; }
.matrix td { text-align: center; padding: .3rem .4rem; min-width: 2.2rem; border: 1px solid var(--line); }
.matrix th[scope=col] { padding: .3rem .1rem; text-align: center; }
.matrix th[scope=col] span { writing-mode: vertical-rl; transform: rotate(180deg); max-height: 10rem; }
.matrix th[scope=row] { position: sticky; left: 0; background: var(--back); max-width: 10rem; vertical-align: middle; }
.corner { font-weight: 400; }
.right { background: rgb(36 87 197 / calc(var(--share) * .6)); }
.wrong { background: rgb(214 64 43 / calc(var(--share) * .8)); }
"""
