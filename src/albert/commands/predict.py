"""`albert predict`: text in, answers out.

How a model is opened and what it answers from Python, `albert.load`, is written at
`albert.inference.predictor.Predictor`; the answers are the same.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace as with_values
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from albert.cli.main import imports
from albert.cli.render import open_console, print_json, table
from albert.cli.signature import PathLike, given_options, read_keys
from albert.commands.checks import check_options
from albert.commands.columns import ReadingKeys
from albert.commands.function import command, on_command_line
from albert.commands.serve import AS_SAVED, ModelOptions
from albert.recipes.architecture import Activation
from albert.runtime.errors import DamagedData, UsageError, did_you_mean
from albert.runtime.json_files import to_json
from albert.tables.records import Record
from albert.tables.rows import records_of
from albert.tables.table_file import Layout, TableFile
from albert.tasks.pipeline import ENDINGS, Fields, Settings
from albert.tasks.pipelines import endpoints

TASKS = tuple(name for name, pipeline in endpoints().items() if pipeline.reads_rows)
if TYPE_CHECKING:
    from albert.inference.predictor import Predictor
    from albert.tasks.table_task import TableTask

    Task = str
else:
    Task = Literal[TASKS]

PREFIX = "predicted_"
TOP_K = 5
"""The default for one text."""

NOT_OF_ROWS = ("model", "input", "output", "replace", "json")
"""Parameters that do not decide what a row of the output is, or are compared by their content."""

INPUTS_OF = {
    "--top-k": ("--fill-mask", "--question", "--input"),
    "--words": ("--tag", "--input"),
    "--pair": ("--classify", "--input"),
    "--context": ("--question", "--choose", "--input"),
    "--question": ("--question", "--choose", "--input"),
}
"""Option -> the inputs that it belongs to; other options belong to --input."""


@command("albert predict", keys=ReadingKeys)
def predict(
    model: PathLike,
    *,
    opening: ModelOptions = AS_SAVED,
    fill_mask: str | None = None,
    order: tuple[str, str] | None = None,
    classify: str | None = None,
    pair: str | None = None,
    question: str | None = None,
    context: str | None = None,
    tag: str | None = None,
    words: bool = False,
    choose: Sequence[str] = (),
    input: str | None = None,
    output: PathLike | None = None,
    task: Task | None = None,
    text: str | None = None,
    options: str | Sequence[str] | None = None,
    group: str | None = None,
    prefix: str = PREFIX,
    pooling: Literal["mean", "cls", "max", "weighted"] | None = None,
    normalize: bool | None = None,
    prompt: str | None = None,
    replace: bool = False,
    top_k: int | None = None,
    hidden_act: Activation | None = None,
    num_attention_heads: int | None = None,
    json: bool = False,
    **keys: Any,
) -> None:
    """Predict with a trained model: fill masks, judge an order, classify, score, answer a question, tag words, choose,
    embed.

    The abilities of a model depend on its head: `albert pretrain` makes models that fill masks and judge orders,
    `albert finetune` the others. Give one input, or a file of any size with --input: it is checked completely first,
    then answered row by row. OUTPUT appears when it is complete. After a stop the same command
    continues a .jsonl or .csv; other formats begin anew.

    Example: albert predict run/model --fill-mask "The cat [MASK] on the mat."

    Example: albert predict run/model --tag "U.N. official Ekeus heads for Baghdad ." --words

    Example: albert predict run/model --input reviews.csv --text review --output answered.parquet

    Args:
        model: A model directory, a run directory, or a Hugging Face Hub id.
        fill_mask: A text with one or several [MASK].
        order: Two adjacent segments: are they in order, or swapped?
        classify: A text to classify, or to score if the model predicts a number.
        pair: The second text, if the classifier was trained on pairs; with --input the column of it.
        question: A question to answer from --context, or with --choose a question about it; with --input the column of
            it.
        context: The text that contains the answer; with --input the column of it.
        tag: A text whose words are to be tagged.
        words: Split the text to tag at blanks only; otherwise punctuation and quotes are split off, too.
        choose: Two or more options to choose from, given --context.
        input: Many rows: a table in any format that training reads, also compressed (.gz), or a .txt with a text on
            each line; - is standard input.
        output: The rows with their answers: .jsonl, .csv (separated by ; if the input is, else by commas), .parquet,
            .npy for embeddings, or .conll for tags (the predicted one is the last column); JSON on standard output when
            not set.
        task: The task for the rows; that of the model's head when not set.
        text: The column of --input with the text, by its name or position; that of the training file when not set, else
            'text'. The columns of pairs, questions, contexts and options are named by --pair and so on, and are found
            in the same way.
        options: The column of --input with a list of options, or a column for each option.
        group: The column of --input that numbers the sentences of a table with one word in each row; that of the
            training file when not set. The output has a row for each sentence.
        prefix: Prefix of the names of answer fields.
        pooling: How tokens become the embedding of a text; weighted is a mean with larger weights for rare pieces,
            better for models that were not trained for embeddings. When not set: as the model's files say, else mean.
        normalize: Scale embeddings to length 1; when not set: as the model's files say, else no.
        prompt: The name of one of the model's prompts, which is written before every text to embed.
        replace: Replace an existing output, or an unfinished one with other settings.
        top_k: Number of pieces for a mask, or of answers to a question; 5 when not set, but one answer to a question of
            a file.
        json: Print JSON instead of a table.
    """
    given_values = given_options(predict, dict(locals()))
    parameters = {name: to_json(value) for name, value in given_values.items() if name not in NOT_OF_ROWS}
    reading = read_keys(ReadingKeys, keys)
    model = os.fspath(model)
    output = None if output is None else Path(output)
    options = (options,) if isinstance(options, str) else options

    # One input, and what belongs to it.
    inputs = {
        "--fill-mask": fill_mask is not None,
        "--order": order is not None,
        "--classify": classify is not None,
        "--tag": tag is not None,
        "--choose": bool(choose),
        # With --choose it is about the options, with --input it names a column.
        "--question": question is not None and not choose and input is None,
        "--input": input is not None,
    }
    named = [option for option, is_given in inputs.items() if is_given]
    if len(named) != 1:
        why = f"{', '.join(named)} together" if named else "there is no input"
        known = "--fill-mask, --order, --classify, --tag, --question with --context, --choose with --context, --input"
        raise UsageError("albert predict", why, f"give one of {known}")
    of_input = named[0]
    given = {
        "--output": output is not None,
        "--task": task is not None,
        "--text": text is not None,
        "--options": options is not None,
        **dict.fromkeys(keys, True),
        "--group": group is not None,
        "--prefix": prefix != PREFIX,
        "--pooling": pooling is not None,
        "--normalize": normalize is not None,
        "--prompt": prompt is not None,
        "--replace": replace,
        "--top-k": top_k is not None,
        "--words": words,
        "--pair": pair is not None,
        "--context": context is not None,
        "--question": question is not None,
    }
    for option, is_given in given.items():
        known_inputs = INPUTS_OF.get(option, ("--input",))
        if is_given and of_input not in known_inputs:
            raise UsageError(option, f"requires {' or '.join(known_inputs)}, not {of_input}")
    if task is not None:
        check_options_of(task, given)
    if of_input in ("--question", "--choose") and context is None:
        raise UsageError(of_input, "needs a text to answer from", "give --context")
    if len(choose) == 1:
        raise UsageError("--choose", "needs at least two options", "give two or more")
    if top_k is not None and top_k < 1:
        raise UsageError("--top-k", f"is {top_k}, at least 1 is needed")
    if options is not None and not options:
        raise UsageError("--options", "names no field", "name one with a list, or one for each option")
    if output is not None and output.suffix.lower() not in ENDINGS:
        raise UsageError(output, "unknown kind of output", f"use {', '.join(ENDINGS)}")
    check_options(SimpleNamespace(model=model, input=input, output=output, replace=replace))

    with imports():
        from albert.checkpoints.hub import find_model
        from albert.checkpoints.huggingface import kind_of
        from albert.checkpoints.model_directory import read_config
        from albert.columns.read import for_other_file
        from albert.inference.files import FilePrediction, opened_input, predict_file
        from albert.inference.predictor import Predictor
        from albert.inference.texts import MEANINGLESS_ANSWER, MEANINGLESS_VECTOR, check_second_texts
        from albert.tables.rows import sentences_of_lines
        from albert.tables.table import WORDS
        from albert.tasks.table_task import table_task_of
        from albert.text.unknown import unknown_warning

    overrides: dict[str, Any] = {}
    if hidden_act is not None:
        overrides["hidden_act"] = hidden_act
    if num_attention_heads is not None:
        overrides["num_attention_heads"] = num_attention_heads

    if input is None:
        predictor = Predictor.open(model, **vars(opening), overrides=overrides)
        for line in predictor.loading_report.notes:
            note(line)
        predictions: list[Any]
        if fill_mask is not None:
            masks = predictor.fill_mask_batch([fill_mask], top_k or TOP_K)[0]
            predictions = masks if len(masks) > 1 else masks[0]
            shown = ("score", "token_str", "sequence")
        elif order is not None:
            predictions = [predictor.order(*order)]
            shown = ("label", "score")
        elif classify is not None:
            check_second_texts("--pair", pair is not None, predictor.reads_pairs)
            predictions = predictor.classify(classify, pair)
            shown = ("label", "score") if predictor.label_threshold is None else ("label", "score", "predicted")
        elif tag is not None and words:
            predictions = predictor.tag_sentences([tag.split()])[0]
            shown = ("word", "entity", "score")
        elif tag is not None:
            predictions = predictor.tag(tag)
            shown = ("word", "entity", "score", "start", "end")
        elif choose:
            assert context is not None
            predictions = predictor.choose(context, choose, question or "")
            shown = ("option", "score")
        else:
            assert question is not None and context is not None
            predictions = predictor.answer_batch([question], [context], top_k or TOP_K)[0]
            shown = ("score", "answer", "start", "end")
        if json:
            for entry in predictions:
                print_json(entry)
        else:
            show_predictions(predictions, shown)
        texts = [each for each in (classify, pair, tag, question, context) if each]
        warning = unknown_warning(predictor.tokenizer, texts, predictor.name)
        if warning is not None:
            print(warning, file=sys.stderr)
        print_model(predictor)
        return

    # Columns and format of the rows: those that are named, else those of the file that the model was trained on.
    directory = find_model(model)
    trained = table_task_of(directory)
    if trained is not None and input != "-":
        trained = for_other_file(trained, Path(input))
    usual = usual_fields(trained)
    fields = Fields(
        text or usual.text,
        pair or usual.pair,
        question or usual.question,
        context or usual.context,
        tuple(options or usual.options),
    )
    is_tagging = task == "tag" or (trained is not None and trained.kind == "token-classification")
    if trained is None and task is None:
        _, extra = read_config(directory)
        is_tagging = kind_of(extra) == "token_classification"
    layout = Layout() if trained is None or input == "-" else trained.layout
    layout = with_values(
        layout,
        format=reading.format or layout.format,
        delimiter=reading.delimiter or layout.delimiter,
        encoding=reading.encoding or layout.encoding,
        columns=reading.columns or layout.columns,
        no_header=reading.no_header or layout.no_header,
        has_task=not is_tagging,
    )
    read = [fields.pair, fields.question, fields.context, *fields.options]
    with opened_input(input, layout, fields.text, text is not None, [name for name in read if name]) as file:
        for line in file.notes:
            note(line)
        fields = Fields(
            name_of(fields.text, file),
            name_of(fields.pair, file),
            name_of(fields.question, file),
            name_of(fields.context, file),
            tuple(name_of(option, file) for option in fields.options),
        )
        predictor = Predictor.open(model, **vars(opening), overrides=overrides)
        for line in predictor.loading_report.notes:
            note(line)
        pipeline = predictor.pipeline_for(task).with_settings(Settings(top_k, pooling, normalize, prompt, words))
        check_options_of(pipeline.name, given)
        if pipeline.takes_pair and predictor.reads_pairs is False:
            check_second_texts("--pair", pair is not None, False)
            fields = without_pair(fields, file)
        if pipeline.reads_words:
            lines = file
            if layout.format is None:
                file = sentences_of_lines(lines)
            for line in file.notes if file is not lines else ():
                note(line)
            names = file.names or tuple(next(records_of(file), Record("", {})).fields)
            if file.format == "conll" or (WORDS in names and fields.text not in names):
                name = name_of(fields.text, file)
                if text is None and name not in names:
                    note(f"the words are the column {WORDS!r}, not {name!r} (--text)")
                    name = WORDS
                fields = with_values(fields, text=name)
        if file.format == "text":
            for option in ("--text", "--pair", "--question", "--context", "--options"):
                if given[option]:
                    remedy = "name its columns with reading.columns, or their reading.delimiter"
                    raise UsageError(option, f"{input} is one text per line, without columns", remedy)
        if pipeline.reads_words:
            file = grouped(file, input, fields.text, group, trained)
        meaning = trained.option_labels if trained is not None and pipeline.name == "choose" else None
        prediction = FilePrediction(file, output, pipeline, fields, prefix, replace, meaning, parameters)
        summary = predict_file(predictor, prediction)
        first = islice(records_of(file), 1_000)
        examples = map(prediction.example, first)
        texts = (text for example in examples for text in (*example.texts, *example.options))
        warning = unknown_warning(predictor.tokenizer, texts, predictor.name)
        if warning is not None:
            print(warning, file=sys.stderr)
    print_model(predictor)
    if output is not None:
        rows = f"{summary.rows:,} {'row' if summary.rows == 1 else 'rows'}"
        continued = f", continued after row {summary.continued_after:,}" if summary.continued_after else ""
        print(f"{output}: {rows}{continued}", file=sys.stderr)
    if summary.empty:
        verb = "is" if summary.empty == 1 else "are"
        meaningless = MEANINGLESS_VECTOR if pipeline.name in ("embed", "layers") else MEANINGLESS_ANSWER
        note(f"{summary.empty:,} of {summary.rows:,} texts {verb} empty; {meaningless}")
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


def check_options_of(task: str, given: Mapping[str, bool]) -> None:
    """Raises UsageError for an option that only other tasks have."""
    for option, is_given in given.items():
        names = [name for name, pipeline in endpoints().items() if option in pipeline.file_options]
        if is_given and names and task not in names:
            raise UsageError(option, f"requires --task {' or '.join(names)}, not {task}")


def usual_fields(trained: "TableTask | None") -> Fields:
    """The columns of the file that the model was trained on, else the usual ones."""
    usual = Fields()
    if trained is None:
        return usual
    text = trained.spans[0] if trained.spans is not None else trained.text or trained.words or usual.text
    if trained.kind == "multiple-choice":
        question = trained.question or ""
        context = trained.text or ""
    else:
        question = trained.question or usual.question
        context = trained.context or usual.context
    return Fields(text, trained.pair or usual.pair, question, context, trained.options or usual.options)


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


def grouped(file: TableFile, source: str, words: str, group: str | None, trained: "TableTask | None") -> TableFile:
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


def print_model(predictor: "Predictor") -> None:
    """Print which model answered, and how it computed."""
    layers = "1 layer" if predictor.depth == 1 else f"{predictor.depth} layers"
    how = f"{predictor.precision} on {predictor.device.type}, {layers}"
    print(f"{predictor.name}: {how}", file=sys.stderr)


def show_predictions(predictions: list[Any], columns: tuple[str, ...]) -> None:
    """Print a table, or one for each mask."""
    if not predictions:
        note("the text has no words")
        return
    console = open_console()
    for group in predictions if isinstance(predictions[0], list) else [predictions]:
        rows = [[cell(row.get(column)) for column in columns] for row in group]
        console.print(table(None, columns, rows, words=range(len(columns)), boxed=True))
        if "tokens_cut" in group[0]:
            lost = group[0]["tokens_cut"]
            what = "token did not fit and was not read" if lost == 1 else "tokens did not fit and were not read"
            note(f"{lost:,} {what}")


def cell(value: Any) -> str:
    """A value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def note(text: str) -> None:
    """Print a note beside the answers."""
    print(f"albert: note: {text}", file=sys.stderr)


predict_main = on_command_line(predict, checks_paths=False)
