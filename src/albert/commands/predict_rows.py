"""`albert predict --input`: the rows of a file with their answers."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as with_values
from itertools import islice
from pathlib import Path
from typing import Any

from albert.checkpoints.config_json import read_config
from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import kind_of
from albert.columns.read import for_other_file
from albert.commands.checks import check_options_of_task
from albert.commands.columns import ReadingKeys
from albert.commands.predict_shown import note, print_model, print_warning_of_unknown
from albert.inference.files import FilePrediction, FileSummary, opened_input, predict_file
from albert.inference.predictor import Predictor
from albert.inference.texts import MEANINGLESS_ANSWER, MEANINGLESS_VECTOR, check_second_texts
from albert.runtime.errors import DamagedData, UsageError, did_you_mean
from albert.tables.records import Record
from albert.tables.rows import records_of, sentences_of_lines
from albert.tables.table import WORDS
from albert.tables.table_file import Layout, TableFile
from albert.tasks.pipeline import Fields, RowPipeline, Settings
from albert.tasks.table_task import TableTask, table_task_of


@dataclass(frozen=True, kw_only=True)
class RowsToPredict:
    """What is asked of the rows of a file.

    Attributes:
        input: its path; - for standard input.
        output: None: JSON lines on standard output.
        task: of the rows; that of the model's head when None.
        text, pair, question, context, options: the columns; those of the training file when not named.
        given: an option of `predict` -> whether it was given.
        parameters: what decides a row of the output, for a repeated call, which continues.
    """

    model: str
    input: str
    output: Path | None
    task: str | None
    text: str | None
    pair: str | None
    question: str | None
    context: str | None
    options: tuple[str, ...]
    group: str | None
    reading: ReadingKeys
    settings: Settings
    prefix: str
    replace: bool
    given: Mapping[str, bool]
    parameters: Mapping[str, Any]


def predict_rows(asked: RowsToPredict, open_predictor: Callable[[], Predictor]) -> None:
    """Check all rows, predict them one batch after the other, and print what was counted."""
    trained = trained_task(asked)
    fields = fields_of_rows(asked, trained)
    layout = layout_of_rows(asked, trained)
    others = [name for name in (fields.pair, fields.question, fields.context, *fields.options) if name]
    with opened_input(asked.input, layout, fields.text, asked.text is not None, others) as file:
        for line in file.notes:
            note(line)
        fields = Fields(
            name_of(fields.text, file),
            name_of(fields.pair, file),
            name_of(fields.question, file),
            name_of(fields.context, file),
            tuple(name_of(option, file) for option in fields.options),
        )
        predictor = open_predictor()
        settings = with_values(asked.settings, option_labels=trained.option_labels if trained is not None else None)
        pipeline = pipeline_of_rows(predictor, asked.task).with_settings(settings)
        check_options_of_task(pipeline.name, asked.given)
        if pipeline.takes_pair and predictor.reads_pairs is False:
            check_second_texts("--pair", asked.pair is not None, False)
            fields = without_pair(fields, file)
        if pipeline.reads_words:
            file, fields = rows_of_words(asked, file, fields, layout)
        if file.format == "text":
            refuse_columns(asked)
        if pipeline.reads_words:
            file = grouped(file, asked.input, fields.text, asked.group, trained)
        prediction = FilePrediction(file, asked.output, pipeline, fields, asked.prefix, asked.replace, asked.parameters)
        summary = predict_file(predictor, prediction)
        examples = map(prediction.example, islice(records_of(file), 1_000))
        texts = (text for example in examples for text in (*example.texts, *example.options))
        print_warning_of_unknown(predictor, texts)
    print_model(predictor)
    print_summary(asked, predictor, pipeline, summary)


# --------------------------------------------------------------------------------------------------------------------
# Columns and format of the rows: those that are named, else those of the file that the model was trained on.


def trained_task(asked: RowsToPredict) -> TableTask | None:
    """The task that the model was trained on, with the format of this file; None for other models."""
    trained = table_task_of(find_model(asked.model))
    if trained is not None and asked.input != "-":
        trained = for_other_file(trained, Path(asked.input))
    return trained


def pipeline_of_rows(predictor: Predictor, task: str | None) -> RowPipeline:
    """The pipeline of this name, or the one of the model's head; raises UsageError if it has several."""
    if task is not None:
        return predictor.pipeline(task)
    of_head: list[Any] = [pipeline for pipeline in predictor.pipelines if pipeline.needs is not None]
    if len(of_head) > 1:
        known = " or ".join(pipeline.name for pipeline in of_head)
        raise UsageError("--task", f"{predictor.name} supports several tasks", f"choose {known}")
    return of_head[0] if of_head else predictor.pipeline("embed")


def fields_of_rows(asked: RowsToPredict, trained: TableTask | None) -> Fields:
    """The columns of the rows."""
    usual = usual_fields(trained)
    return Fields(
        asked.text or usual.text,
        asked.pair or usual.pair,
        asked.question or usual.question,
        asked.context or usual.context,
        asked.options or usual.options,
    )


def layout_of_rows(asked: RowsToPredict, trained: TableTask | None) -> Layout:
    """How the file is read."""
    is_tagging = asked.task == "tag" or (trained is not None and trained.words is not None)
    if trained is None and asked.task is None:
        _, extra = read_config(find_model(asked.model))
        is_tagging = kind_of(extra) == "token_classification"
    layout = Layout() if trained is None or asked.input == "-" else trained.layout
    reading = asked.reading
    return with_values(
        layout,
        format=reading.format or layout.format,
        delimiter=reading.delimiter or layout.delimiter,
        encoding=reading.encoding or layout.encoding,
        columns=reading.columns or layout.columns,
        no_header=reading.no_header or layout.no_header,
        has_task=not is_tagging,
    )


def usual_fields(trained: TableTask | None) -> Fields:
    """The columns of the file that the model was trained on, else the usual ones."""
    usual = Fields()
    if trained is None:
        return usual
    uses = trained.columns_by_use
    has_options = trained.options is not None
    return Fields(
        uses.get("text", usual.text),
        uses.get("pair", usual.pair),
        uses.get("question", "" if has_options else usual.question),
        uses.get("context", "" if has_options else usual.context),
        trained.options or usual.options,
    )


def name_of(column: str, file: TableFile) -> str:
    """The name of a column that may be given by another name of it, or by its position, from 1."""
    if column in file.names or not column.isdecimal() or not 1 <= int(column) <= len(file.names):
        return column if column in file.names else file.aliases.get(column, column)
    return file.names[int(column) - 1] or column


def without_pair(fields: Fields, file: TableFile) -> Fields:
    """The fields that a model of single texts reads; a column of the file with the usual name of a second is noted."""
    if fields.pair in (file.names or next(records_of(file), Record("", {})).fields):
        note(f"the column {fields.pair!r} is not read: the model was trained on single texts")
    return with_values(fields, pair="")


def grouped(file: TableFile, source: str, words: str, group: str | None, trained: TableTask | None) -> TableFile:
    """A table with one word in each row as sentences, if a column numbers them; a table of sentences as it is."""
    column = group or (trained.group if trained is not None else None)
    first = [record.fields for record in islice(records_of(file), 1_000)]
    values = [fields.get(words) for fields in first]
    single = bool(values) and all(isinstance(value, str) and len(value.split()) <= 1 for value in values)
    if column is not None:
        column = name_of(column, file)
    columns = {name: None for fields in first for name in fields}
    if group is not None and not single:
        raise UsageError("--group", f"column {words!r} does not hold one word in each row", "leave it out")
    if column is not None and single:
        if column not in columns:
            remedy = did_you_mean(column, columns)
            raise DamagedData(source, f"has no column {column!r}", f"{remedy} (--group names another)")
        note(f"rows of one word are grouped to sentences by {column!r}")
        return with_values(file, words=words, group=column)
    if single and len(values) > 20 and file.format == "text":
        note("every line has one word, which is tagged alone; a blank line between sentences makes sentences of them")
    elif single and len(values) > 20:
        note(f"every row has one word in column {words!r}, which is tagged alone; --group names a column of sentences")
    return file


def rows_of_words(asked: RowsToPredict, file: TableFile, fields: Fields, layout: Layout) -> tuple[TableFile, Fields]:
    """The rows as sentences of words, and the column of the words."""
    lines = file
    if layout.format is None:
        file = sentences_of_lines(lines)
    for line in file.notes if file is not lines else ():
        note(line)
    names = file.names or tuple(next(records_of(file), Record("", {})).fields)
    if file.format == "conll" or (WORDS in names and fields.text not in names):
        name = name_of(fields.text, file)
        if asked.text is None and name not in names:
            note(f"the words are the column {WORDS!r}, not {name!r} (--text)")
            name = WORDS
        fields = with_values(fields, text=name)
    return file, fields


def refuse_columns(asked: RowsToPredict) -> None:
    """Raise UsageError for columns of a file without columns."""
    for option in ("--text", "--pair", "--question", "--context", "--options"):
        if asked.given[option]:
            remedy = "name its columns with reading.columns, or their reading.delimiter"
            raise UsageError(option, f"{asked.input} is one text per line, without columns", remedy)


def print_summary(asked: RowsToPredict, predictor: Predictor, pipeline: RowPipeline, summary: FileSummary) -> None:
    """Print the number of rows, and of those that are empty, cut or without an answer."""
    if asked.output is not None:
        rows = f"{summary.rows:,} {'row' if summary.rows == 1 else 'rows'}"
        continued = f", continued after row {summary.continued_after:,}" if summary.continued_after else ""
        print(f"{asked.output}: {rows}{continued}", file=sys.stderr)
    if summary.empty:
        verb = "is" if summary.empty == 1 else "are"
        meaningless = MEANINGLESS_VECTOR if pipeline.name in ("embed", "layers") else MEANINGLESS_ANSWER
        is_marked = "empty" in pipeline.cell_types() and (asked.output is None or asked.output.suffix.lower() != ".npy")
        which = f" ({asked.prefix}empty)" if is_marked else ""
        note(f"{summary.empty:,} of {summary.rows:,} texts {verb} empty; {meaningless}{which}")
    for name, count in summary.empty_in.items():
        note(f"{count:,} of {summary.rows:,} rows {'has' if count == 1 else 'have'} an empty {name!r}")
    if summary.cut:
        longest = pipeline.fitted(predictor.lengths).max_length
        verb = "was" if summary.cut == 1 else "were"
        note(f"{summary.cut:,} of {summary.rows:,} texts {verb} cut: the model reads {longest} tokens")
    if summary.unanswered:
        verb = "has" if summary.unanswered == 1 else "have"
        why = "; ".join(summary.first_unanswered)
        note(f"{summary.unanswered:,} of {summary.rows:,} rows {verb} no answer; {why}")
