"""The output of `albert finetune`."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType
from rich.table import Table

from albert.api.results import (
    Analysed,
    DataReport,
    FinetuneResult,
    score_rows,
    shown_if_known,
)
from albert.checkpoints.hub import EXAMPLES_NAME
from albert.cli.render import (
    LABELS,
    bold_prefix,
    next_line,
    print_lines,
    show,
    styled,
    table,
    table_of_rows,
    titled_tables,
)
from albert.finetuning import seeds
from albert.finetuning.comparisons import Comparison
from albert.finetuning.evaluation import counts_of_rows, format_score, published_lines, run_notes
from albert.finetuning.options import FULL_WIDTH
from albert.finetuning.report_page import REPORT_NAME, advice_lines
from albert.finetuning.run import HEAD_NOT_SOLVED
from albert.finetuning.run_record import FinetuningResult
from albert.runtime.devices import default_precision, pick_device
from albert.runtime.environment import world
from albert.runtime.json_files import read_json_object
from albert.runtime.words import counted, in_epochs
from albert.tables.fields import as_number
from albert.tables.table import Field
from albert.tables.table import Table as RowsOfTable
from albert.tasks.custom import ReadTask
from albert.tasks.declared import DeclaredTask, Published
from albert.tasks.inputs import Pair, QuestionInContext, Words
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.table_task import COLUMNS, SplitStatistics, TableTask

# --------------------------------------------------------------------------------------------------------------------
# How a table is read, and statistics of its rows, shown before training.

SHOWN_LABELS = 100
SHOWN_LABELS_OF_RUN = 6
SHOWN_COLUMNS = 24
SHOWN_UNUSED = 8
SHOWN_CHARACTERS = 40
EXAMPLE_CHARACTERS = 80


def show_data(console: Console, report: DataReport) -> None:
    """Print columns and their use, what was inferred and the flag that changes it, lengths and labels."""
    if (read := report.read) is not None:
        split, rows = next(iter(read.raw.items()))
        _show_reading(console, read)
        console.print(_columns_table(f"The columns of {split}", rows, read.table_task))
        if read.inferred:
            console.print()
            console.print(_inferred_table(read))
        console.print(f"scored by {', '.join(read.table_task.metrics or ())}\n")
    show(console, _rows_table(report.statistics, report.max_length))
    if any(statistics.labels for statistics in report.statistics.values()):
        names = report.read.table_task.label_names if report.read is not None else None
        show(console, _labels_table(report.statistics, names or {}, SHOWN_LABELS))
    _show_warnings(console, report)


def show_data_of_run(console: Console, report: DataReport) -> None:
    """Print what was inferred, the number of rows, and the most frequent labels: half a screen before training."""
    if (read := report.read) is not None:
        rows = next(iter(read.raw.values()))
        _show_reading(console, read)
        uses = _uses(read.table_task)
        unused = [name for name in rows.columns if name not in uses]
        if unused:
            more = f" and {len(unused) - SHOWN_UNUSED} more" if len(unused) > SHOWN_UNUSED else ""
            console.print(f"not used: {', '.join(unused[:SHOWN_UNUSED])}{more}")
        if read.inferred:
            console.print(_inferred_table(read))
    for split, statistics in report.statistics.items():
        console.print(_rows_line(split, statistics, report.max_length))
    if any(statistics.labels for statistics in report.statistics.values()):
        names = report.read.table_task.label_names if report.read is not None else None
        console.print(_labels_table(report.statistics, names or {}, SHOWN_LABELS_OF_RUN))
    for line in report.warnings:
        console.print(line)


def _show_reading(console: Console, read: ReadTask) -> None:
    notes = [(name, note) for name, each in read.raw.items() for note in each.notes]
    if notes:
        print_lines(console, *(f"{name}: {note}" for name, note in notes))


def _inferred_table(read: ReadTask) -> Table:
    inferred = [(item.what, item.value, item.why, item.override) for item in read.inferred]
    return table(None, ("inferred", "is", "because", "to change it"), inferred, words=range(4))


def _show_warnings(console: Console, report: DataReport) -> None:
    for split, statistics in report.statistics.items():
        if statistics.unlabelled is not None:
            count = statistics.counts["missing labels"]
            rows = "1 row has" if count == 1 else f"{count:,} rows have"
            first = f"the first is {statistics.unlabelled}; reading.drop_unlabelled=true leaves them out"
            console.print(f"{split}: {rows} no label, {first}")
    for line in report.warnings:
        console.print(line)


def _rows_line(split: str, statistics: SplitStatistics, max_length: int) -> str:
    """The number of rows, what is special about some, their lengths and numbers."""
    parts = [counted(statistics.rows, "rows")]
    parts += [f"{n:,} {label}" for name, label in LABELS["rows"].items() if (n := statistics.counts.get(name))]
    if statistics.numbers:
        smallest, mean, largest = statistics.numbers
        parts.append(f"numbers from {smallest:,.4g} to {largest:,.4g}, mean {mean:,.4g}")
    if (lengths := statistics.lengths) is not None:
        parts.append(f"{lengths.median:,.0f} tokens at the median, {lengths.longest:,} at most")
        if lengths.cut:
            parts.append(f"{lengths.cut:.1%} longer than {max_length:,}")
    return f"{split}: {', '.join(parts)}"


def _uses(task: TableTask) -> dict[str, list[str]]:
    """What the columns that are used are used as."""
    uses: dict[str, list[str]] = {}
    for name in (*COLUMNS, "id"):
        value = getattr(task, name)
        columns = value if isinstance(value, tuple) else (value,)
        for column in columns if value is not None else ():
            uses.setdefault(column, []).append(name.replace("_", " ").removesuffix("s" if name == "options" else " "))
    return uses


def _columns_table(title: str, rows: RowsOfTable, task: TableTask) -> Table:
    uses = _uses(task)
    names = rows.columns
    used_first = sorted(names, key=lambda name: name not in uses)
    lines = []
    for name in used_first[:SHOWN_COLUMNS]:
        values = [value for value in rows.values(name) if value is not None]
        first = next((value for value in values if value), "")
        first = first if isinstance(first, str) else " ".join(first)
        lines.append((name, _content(values, len(rows.rows)), shortened(first), ", ".join(uses.get(name, ["-"]))))
    if len(names) > SHOWN_COLUMNS:
        lines.append((f"and {len(names) - SHOWN_COLUMNS} more", "", "", "-"))
    return table(title, ("column", "content", "first", "used as"), lines, words=range(4))


def _content(values: Sequence[Field], n_rows: int) -> str:
    """Counts of lists, numbers, texts and empty fields in a column."""
    lists = [value for value in values if isinstance(value, tuple)]
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    different = set(texts)
    numbers = sum(as_number(value) is not None for value in different)
    counts = {
        f"lists of {min(map(len, lists), default=0)} to {max(map(len, lists), default=0):,}": len(lists),
        "different numbers": numbers,
        "different texts": len(different) - numbers,
        "empty": n_rows - len(lists) - len(texts),
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count > 0)


def _rows_table(statistics: Mapping[str, SplitStatistics], max_length: int) -> Table:
    splits = list(statistics.values())
    lengths = [split.lengths for split in statistics.values()]
    rows: list[Sequence[object]] = [("rows", *(split.rows for split in splits))]
    for name, label in LABELS["rows"].items():
        if any(split.counts.get(name) for split in splits):
            rows.append((label, *(split.counts.get(name, "") for split in splits)))
    if any(split.numbers for split in splits):
        for index, label in enumerate(("smallest number", "mean", "largest")):
            rows.append((label, *(f"{split.numbers[index]:,.4g}" if split.numbers else "" for split in splits)))
    if any(lengths):
        rows += [
            ("tokens, median", *(f"{each.median:,.0f}" if each else "" for each in lengths)),
            ("95 % have at most", *(f"{each.high:,.0f}" if each else "" for each in lengths)),
            ("longest", *(each.longest if each else "" for each in lengths)),
            (f"longer than {max_length:,}", *(f"{each.cut:.1%}" if each else "" for each in lengths)),
        ]
        if any(split.lengths is not None and split.lengths.measured < split.rows for split in splits):
            rows.append(("rows measured", *(each.measured if each else "" for each in lengths)))
    return table("Rows", ("", *statistics), rows)


def _labels_table(statistics: Mapping[str, SplitStatistics], names: Mapping[str, str], shown: int) -> Table:
    """Counts and shares of labels with an example of each; labels beyond those `shown` are summed. The shares are of
    all labels (of the words, for tags); of the rows if a row may have several labels."""
    splits = list(statistics.values())
    labels = list(dict.fromkeys(label for split in splits for label in split.labels))
    may_be_several = any(split.without_labels is not None for split in splits)
    totals = [max(1, split.rows if may_be_several else sum(split.labels.values())) for split in splits]
    examples = {label: text for split in reversed(splits) for label, text in split.examples.items()}

    def row(name: str, members: list[str]) -> tuple[object, ...]:
        counts = [sum(split.labels.get(label, 0) for label in members) for split in splits]
        shares = (cell for n, total in zip(counts, totals, strict=True) for cell in (n, f"{n / total:.1%}"))
        return (name, *shares, shortened(examples.get(name, "")) if len(members) == 1 else "")

    rows = []
    for label in labels[:shown]:
        _, *cells = row(label, [label])
        rows.append((f"{label} ({names[label]})" if label in names else label, *cells))
    if len(labels) > shown:
        others = row(counted(len(labels) - shown, "others"), labels[shown:])
        if may_be_several:  # a row can have two of these labels, and would be counted twice in their share
            others = tuple("" if index % 2 == 0 and index > 0 else cell for index, cell in enumerate(others))
        rows.append(others)
    if may_be_several:
        counts = [split.without_labels or 0 for split in splits]
        shares = (cell for n, total in zip(counts, totals, strict=True) for cell in (n, f"{n / total:.1%}"))
        rows.append(("(no label)", *shares, ""))
    share = "of the rows" if may_be_several else "share"
    headings = (heading for split in statistics for heading in (split, share))
    return table(None, ("label", *headings, "for example"), rows, words=(0, 1 + 2 * len(splits)))


def shortened(text: str) -> str:
    """The beginning of a text, on one line."""
    text = " ".join(text.split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


# --------------------------------------------------------------------------------------------------------------------
# `albert finetune`: the settings of a run, and its result.


def show_settings(console: Console, figures: Mapping[str, Any]) -> None:
    """Print the settings of a run; for the figures see `announce` of `albert.finetuning.run.finetune`."""
    for line in figures.get("before_training", ()):
        console.print(line)
    if figures.get("frozen"):
        where = f"{figures['precision']} on {figures['device']}"
        console.print(f"only the linear head is learned; at most {figures['max_length']:,} tokens, {where}")
        console.file.flush()
        return
    factor = figures["rate_factor"]
    workers = f", {figures['workers']} workers" if figures["workers"] > 1 else ""
    why = "" if factor == 1 else f" ({factor:.3g} times the recipe's, as the model is narrower than {FULL_WIDTH})"
    console.print(
        f"learning rate {figures['learning_rate']:.3g}{why}, batch size {figures['batch_size']:,}, "
        f"{in_epochs(figures['epochs'])} of {counted(figures['examples'], 'examples')}: "
        f"{counted(figures['steps'], 'updates')}; "
        f"at most {figures['max_length']:,} tokens, {figures['precision']} on {figures['device']}{workers}"
    )
    console.file.flush()


_LEFT_OUT = {
    "windows_left_out": "windows dropped (no answer)",
    "held_out": "rows held out to tune on",
    "repeated_texts": "texts left out, because an earlier one is equal",
    "truncated_for_teacher": "texts cut for the teacher",
    "rows_without_negative": "rows without a negative kept",
    "rows_that_share_a_text_with_dev": "rows left out, because dev has the same text",
    "rows_not_scored": "rows beyond the first 1,000 not scored",
}


COUNTED_BEFORE = ("rows_without_text", "rows_without_label", "broken_lines")
"""Counts of a table that are shown before training."""


def show_result(console: Console, result: FinetuneResult, found: FinetuningResult) -> None:
    """Print the scores of a run beside the baselines, and what was cut or left out."""
    report = found.report
    task = result.task
    training = report["training"]
    linear = report.get("linear_baseline")
    counts_of = {"training": training, "development set": report["evaluation"]}
    lines: list[RenderableType] = []
    if found.already_complete:
        lines.append(f"{found.model_directory.parent} is complete already; nothing was trained")
    examples = "texts" if report["task"] == "vectors" else "pairs"
    rows = counted(training["rows"], "training rows") if task is not None else counted(training["examples"], examples)
    steps = counted(training["steps"], "steps")
    done = f"{steps} over {training['examples']:,} of {rows} ({in_epochs(training['epochs'])})"
    seconds = training["seconds"]
    if report.get("settings", {}).get("frozen"):
        done = f"head solved on {training['examples']:,} of {rows}"
        seconds = report["frozen_head"]["seconds"]
    lines.append(f"{done} in {seconds:,.0f} s")
    if task is None:
        lines.append(f"scored on {counted(report['evaluation']['examples'], examples)} that are not trained on")
    if "selection" in report:
        lines.append(report["selection"]["note"])
    lines.append(table_of_rows(result.rows()))
    for split, scores in report.get("further_scores", {}).items():
        compared = report.get("further_baselines", {}).get(split, {})
        first, *rest = score_rows(scores, compared)
        lines.append(table_of_rows([(split, *first[1:]), *rest]))
    said_before: list[str | None] = []
    if not found.already_complete:
        said_before = [HEAD_NOT_SOLVED, (report.get("frozen_head") or {}).get("line")]
        said_before += counts_of_rows(report, COUNTED_BEFORE) if task is not None else []
    lines += [note for note in run_notes(report) if note not in said_before]
    lines += [
        f"{part}: {counted(counts[name], what)}"
        for part, counts in counts_of.items()
        for name, what in _LEFT_OUT.items()
        if counts.get(name)
    ]
    if linear is not None and linear["left_out"] is not None:
        lines.append(f"{linear['method']} is left out: {linear['left_out']}")
    lines += [] if task is None else published_lines(task)
    lines += titled_tables(result.tables())
    computed_in = report.get("computed_in")
    usual = default_precision(pick_device())
    if computed_in not in (None, usual):
        others = f"albert evaluate, predict and serve compute in {usual}"
        lines.append(f"scores computed in {computed_in}; {others}, with --precision {computed_in} as here")
    lines += advice_lines(report)
    page = found.model_directory.parent / REPORT_NAME
    if page.exists():
        lines.append(bold_prefix("report: ", str(page)))
    directory = shlex.quote(str(found.model_directory))
    use = f"export sentence-transformers {directory} --output vectors"
    if task is not None:
        use = f"predict {directory} {_example_flags(task, _saved_example(found.model_directory))}"
    print_lines(console, *lines, bold_prefix(found.model_directory, " is ready"), next_line(use))


def _analysis_of_run(result: Analysed, run: Path, why: str) -> list[RenderableType]:
    """Where one of several runs is right and wrong, and its page."""
    tables = titled_tables(result.tables())
    if not tables:
        return []
    page = run / REPORT_NAME
    return ["", f"of {run.name}, {why}:", *tables, *([bold_prefix("report: ", str(page))] if page.exists() else [])]


def _scores(scores: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {format_score(value)}" for name, value in scores.items())


def _saved_example(model: Path) -> Mapping[str, str]:
    """The first row that was saved for the page, by field; empty if there is none."""
    file = model / EXAMPLES_NAME
    rows = read_json_object(file)["examples"] if file.is_file() else []
    return rows[0] if rows else {}


def _example_flags(task: DeclaredTask, row: Mapping[str, str]) -> str:
    """The options of `albert predict` for a row, or for words that stand for one."""

    def quoted(field: str) -> str:
        text = " ".join(row.get(field, field.upper()).split())
        if len(text) > EXAMPLE_CHARACTERS:
            text = text[:EXAMPLE_CHARACTERS].rpartition(" ")[0] or text[:EXAMPLE_CHARACTERS]
        if "'" in text:
            return f'"{text}"' if not set(text) & set('"$`!\\') else shlex.quote(text)
        return f"'{text}'"

    match task.inputs:
        case QuestionInContext():
            question = f"--question {quoted('question')} " if row.get("question", "QUESTION") else ""
            options = row.get("options", "OPTION 1\nOPTION 2").split("\n")
            choices = f" --choose {shlex.join(options)}" if isinstance(task.target, MultipleChoice) else ""
            return f"{question}--context {quoted('context')}{choices}"
        case Pair():
            return f"--classify {quoted('text')} --pair {quoted('pair')}"
        case Words():
            return f"--tag {quoted('text')}"
        case _:
            return f"--classify {quoted('text')}"


# --------------------------------------------------------------------------------------------------------------------
# A benchmark as one table: every score beside the majority baseline's and the paper's, and the average.


def show_benchmark(console: Console, result: seeds.BenchmarkResult, output: Path) -> None:
    """Print the table, missing tasks, failed runs, and the sources of the paper's figures."""
    rows: list[tuple[str, ...]] = []
    for outcome in result.outcomes:
        for score in result.average.parts[outcome.task.name]:
            rows.append((outcome.task.name, score, *_figures(outcome, score)))
    average = result.average.of(result.scores)
    published = next(iter(result.average.published), None)
    shown_average = "-" if average is None else f"{average:.1f}"
    rows.append(("Avg", "", shown_average, "", "", "", "-" if published is None else f"{published.score:g}"))
    columns = ("task", "score", "median", "all runs", "runs", "majority", "paper")
    print_lines(console, table(None, columns, rows), *_remarks(result), *_sources(result))
    print_lines(console, bold_prefix(output / seeds.SUMMARY_NAME, " has all of it"))


def _figures(outcome: seeds.TaskOutcome, score: str) -> tuple[str, ...]:
    paper = _published(outcome, score)
    last = "-" if paper is None else f"{paper.score:g}"
    spread = None if outcome.result is None else outcome.result.spreads.get(score)
    if outcome.result is None or spread is None:
        return ("-", "-", "-", "-", last)
    runs = f"{spread.runs}" if not spread.undefined else f"{spread.runs} of {spread.runs + spread.undefined}"
    lowest_to_highest = f"{spread.lowest:.2f}–{spread.highest:.2f}"
    return (format_score(spread.median), lowest_to_highest, runs, shown_if_known(outcome.result.baseline, score), last)


def _published(outcome: seeds.TaskOutcome, score: str) -> Published | None:
    return next((published for published in outcome.task.published if published.metric == score), None)


def _remarks(result: seeds.BenchmarkResult) -> Iterator[str]:
    for outcome in result.outcomes:
        if outcome.started_from is not None:
            yield f"{outcome.task.name} starts from {outcome.started_from}"
        elif outcome.result is not None and outcome.task.intermediate is not None:
            yield f"{outcome.task.name} starts from the model itself: {outcome.task.intermediate} was not trained"
        if outcome.result is not None:
            for run in outcome.result.failed:
                yield f"{outcome.task.name}, seed {run.seed} failed: {run.failure}"
        elif not any(line.startswith(f"{outcome.task.name}: ") for line in result.missing_files):
            yield f"{outcome.task.name} is left out: {outcome.missing}"
    for line in result.missing_files:
        yield f"missing: {line}"
    for name, diagnosed in result.diagnostics.items():
        for split, scores in diagnosed["scores"].items():
            yield f"{name}, {split}: {_scores(scores) or 'answered, not scored'} (by {diagnosed['model']})"
        yield from (f"missing: {name}: {line}" for line in diagnosed["missing"])
    if result.missing_tasks:
        yield f"Avg is of all {len(result.average.parts)} tasks; it lacks {', '.join(result.missing_tasks)}"
    yield from dict.fromkeys(o.result.selection for o in result.outcomes if o.result is not None)


def _sources(result: seeds.BenchmarkResult) -> Iterator[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for outcome in result.outcomes:
        for score in result.average.parts[outcome.task.name]:
            if (paper := _published(outcome, score)) is not None:
                groups.setdefault((paper.model, paper.source), []).append(outcome.task.name)
    for paper in result.average.published[:1]:
        groups.setdefault((paper.model, paper.source), []).append("Avg")
    for (model, source), names in groups.items():
        yield f"paper: {model}, {source}: {', '.join(names)}"


# --------------------------------------------------------------------------------------------------------------------
# Runs with several seeds as tables: the scores of each, then the distribution of every score.


def show_seeds(
    console: Console, task: DeclaredTask, result: seeds.SeedsResult, output: Path, tables: Sequence[RenderableType]
) -> None:
    """Print the runs, the spread of their scores, failed runs, published scores, and the tables of the best run."""
    rows: list[tuple[object, ...]] = [
        (name, *(shown_if_known(run.scores, name) for run in result.runs)) for name in result.spreads
    ]
    if any(run.step is not None for run in result.runs):
        rows.append(styled("dim", "after step", *("-" if run.step is None else run.step for run in result.runs)))
    runs = table(None, ("score", *(run.directory.name for run in result.runs)), rows)
    distribution = []
    for name, spread in result.spreads.items():
        quartiles = f"{spread.lower_quartile:.2f}–{spread.upper_quartile:.2f}"
        median, lowest, highest = map(format_score, (spread.median, spread.lowest, spread.highest))
        compared = (shown_if_known(scores, name) for scores in result.simpler.values())
        distribution.append((name, median, lowest, quartiles, highest, spread.runs, *compared))
    columns = ["score", "median", "lowest", "quartiles", "highest", "runs", *result.simpler]
    spreads = table(None, columns, distribution)
    lines = [f"seed {run.seed} failed: {run.failure}" for run in result.failed]
    if result.failed:
        lines.append("medians include failed runs")
    if result.baseline is None:
        lines.append("there is no majority baseline for this task, so failed runs are not detected")
    lines += advice_lines(result.to_json())
    print_lines(console, *result.notes, result.selection, runs, spreads, *lines, *published_lines(task))
    print_lines(console, *tables, bold_prefix(output / seeds.SUMMARY_NAME, " has all of it"))


def show_finetuned(console: Console, result: FinetuneResult) -> None:
    """Print the scores of a run, or of several; nothing if the rows were only looked at."""
    if not world().is_first or result.output is None:
        return
    match result.found, result.task:
        case seeds.BenchmarkResult() as found, _:
            show_benchmark(console, found, result.output)
        case Comparison() as found, _:
            failures = [f"{run.name}: {run.divergence}" for run in found.runs if run.divergence is not None]
            further = advice_lines(found.to_json())
            print_lines(console, table_of_rows(result.rows()), *failures, found.conclusion, *further)
            print_lines(console, *_analysis_of_run(result, found.typical.directory, found.why_typical))
            if result.model is not None:
                print_lines(console, bold_prefix(result.model, " is ready"))
        case seeds.SeedsResult() as found, DeclaredTask() as task:
            show_seeds(
                console, task, found, result.output, _analysis_of_run(result, found.best.directory, "the best run")
            )
        case FinetuningResult() as found, _:
            show_result(console, result, found)
