"""`albert predict`: predictions on the terminal or in files."""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from rich.text import Text

from albert.api.keywords import changed_flags, given_values
from albert.checkpoints.hub import find_model
from albert.cli.commands import FIELD_OPTIONS, LAYOUT_OPTIONS, Predict, check_used
from albert.cli.render import open_console, print_json, table
from albert.inference.abilities import Fields, Settings
from albert.inference.files import FilePrediction, ability_for, opened_input, predict_file
from albert.inference.predictor import Predictor
from albert.runtime.errors import DamagedData, UsageError, did_you_mean
from albert.tasks.custom import for_other_file
from albert.tasks.rows import Layout, TableFile
from albert.tasks.table_task import TableTask, table_task_of
from albert.text.unknown import unknown_warning


def show(predictions: list[Any], columns: tuple[str, ...], as_json: bool) -> None:
    """Print a table, or JSON: a line for each prediction, or for each mask a line with all of its predictions."""
    if as_json:
        for entry in predictions:
            print_json(entry)
    elif not predictions:
        _note("the text has no words")
    else:
        console = open_console()
        for group in predictions if isinstance(predictions[0], list) else [predictions]:
            rows = [[_shown(row.get(column)) for column in columns] for row in group]
            console.print(table(None, columns, rows, words=range(len(columns)), boxed=True))
            if "tokens_cut" in group[0]:
                _note(f"{group[0]['tokens_cut']:,} tokens did not fit and were not read")


SHOWN_WORDS = 20
"""Words of an explanation in the terminal."""
MARKED_FROM = 0.25
"""Words whose change is at least this part of the largest are marked in the text."""


def _show_explanations(predictions: Sequence[Mapping[str, Any]], options: Predict) -> None:
    """The text with the words that moved the score of each predicted label, and a table of them."""
    console = open_console()
    explained = [entry for entry in predictions if "explanation" in entry]
    if not explained:
        _note("no label is predicted, so there is nothing to explain")
    for entry in explained:
        words = entry["explanation"]
        console.print()
        console.print(Text(f"{entry['label']} {entry['score']:.4f}: what each word adds to this score", "bold"))
        for part, text in (("text", options.classify), ("pair", options.pair)):
            if text is not None:
                own = [word for word in words if word.get("part", "text") == part]
                console.print(_marked(text, own, max((abs(word["change"]) for word in words), default=0.0)))
        columns = ("word", "change", "part") if options.pair is not None else ("word", "change")
        rows = [[f"{word[name]:+.4f}" if name == "change" else word[name] for name in columns] for word in words]
        console.print(table(None, columns, rows[:SHOWN_WORDS], words=(0,), boxed=True))
        if len(rows) > SHOWN_WORDS:
            _note(f"{len(rows) - SHOWN_WORDS:,} words with smaller changes are not shown, --json has them")


def _marked(text: str, words: Sequence[Mapping[str, Any]], largest: float) -> Text:
    """A text in which influential words have their change behind them, green or red."""
    marked = Text()
    position = 0
    for word in sorted(words, key=lambda word: word["start"]):
        change = word["change"]
        if change == 0 or abs(change) < MARKED_FROM * largest:
            continue
        marked.append(text[position : word["start"]])
        style = "green" if change > 0 else "red"
        marked.append(f"{word['word']}[{change:+.2g}]", f"bold {style}" if abs(change) > largest / 2 else style)
        position = word["end"]
    marked.append(text[position:])
    return marked


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


DEFAULT_TOP_K = 5


def run_predict(options: Predict) -> int:
    """Run `albert predict`."""
    if options.input is None:
        predictor = _open_with_notes(options)
        predictions, columns = _predict(predictor, options)
        show(predictions, columns, options.json)
        if options.explain and not options.json:
            _show_explanations(predictions, options)
        alone = options.pair is None
        if options.classify is not None and predictor.reads_pairs is alone:
            of = "pairs: give the second text (--pair)" if alone else "single texts: leave out the second (--pair)"
            _note(f"the model was trained on {of}")
        inputs = (options.classify, options.pair, options.tag, options.question, options.context)
        _warn_of_unknown(predictor, [text for text in inputs if text])
        _print_model(predictor)
        return 0
    task = _saved_task(options)
    fields = _fields(options, task)
    with opened_input(options.input, _layout(options, task), fields.text) as file:
        for note in file.notes:
            _note(note)
        fields = _by_position(fields, file)
        predictor = _open_with_notes(options)
        ability = ability_for(predictor, options.task)
        check_used(options, ability.name)
        if file.format == "text" and (given := changed_flags(options, *FIELD_OPTIONS)):
            remedy = "name its columns with --columns, or their --delimiter"
            raise UsageError(given[0], f"{options.input} is one text per line, without columns", remedy)
        if ability.name == "tag":
            file = _grouped(file, fields.text, options, task)
        prediction = FilePrediction(
            file,
            options.output,
            ability,
            fields,
            Settings(options.top_k, options.pooling, options.normalize, options.prompt, options.words, options.explain),
            options.prefix,
            options.replace,
        )
        summary = predict_file(predictor, prediction)
        texts = (text for record in islice(file.records(), 1_000) for text in _texts(prediction.inputs(record)))
        _warn_of_unknown(predictor, texts)
    _print_model(predictor)
    if options.output is not None:
        print(f"{options.output}: {summary.rows:,} rows", file=sys.stderr)
    if summary.cut:
        longest = predictor.embedding_length if ability.name == "embed" else predictor.max_length
        _note(f"{summary.cut:,} of {summary.rows:,} texts were cut: the model reads {longest} tokens")
    if summary.mispaired:
        single = f"two texts, but the model was trained on single texts: leave out {fields.pair!r}"
        of = "one text, but the model was trained on pairs: name the column (--pair)"
        _note(f"{summary.mispaired:,} of {summary.rows:,} rows have {of if predictor.reads_pairs else single}")
    if summary.unanswered:
        first = "; ".join(summary.first_unanswered)
        _note(f"{summary.unanswered:,} of {summary.rows:,} rows have no answer; {first}")
    return 0


def _saved_task(options: Predict) -> TableTask | None:
    """The task of a model that was trained on a table; None if there is none beside it."""
    task = table_task_of(find_model(options.model, options.revision))
    if task is not None and options.input not in (None, "-"):
        task = for_other_file(task, Path(str(options.input)))
    return task


def _layout(options: Predict, task: TableTask | None) -> Layout:
    """How the input is read: as the options say, else as the training file."""
    given = {name: getattr(options, name) for name in LAYOUT_OPTIONS if getattr(options, name)}
    layout = Layout() if task is None or options.input == "-" else task.layout
    is_tagging = task is not None and task.kind == "token-classification"
    has_task = options.text is not None or not is_tagging
    return replace(layout, **given, has_task=has_task)


def _fields(options: Predict, task: TableTask | None) -> Fields:
    """The columns of the input: those that are named, else those of the training file, else the usual ones."""
    usual = Fields()
    if task is not None:
        text = task.spans[0] if task.spans is not None else task.text or task.words or usual.text
        is_choice = task.kind == "multiple-choice"
        usual = Fields(
            text,
            task.pair or usual.pair,
            task.question or ("" if is_choice else usual.question),
            (task.text or "") if is_choice else task.context or usual.context,
            task.options or usual.options,
        )
    return Fields(
        options.text or usual.text,
        options.pair_field or options.pair or usual.pair,
        options.question_field or options.question or usual.question,
        options.context_field or options.context or usual.context,
        options.options or usual.options,
    )


def _grouped(file: TableFile, words: str, options: Predict, task: TableTask | None) -> TableFile:
    """A table with one word in each row as sentences, if a column numbers them; a table of sentences as it is."""
    group = options.group or (task.group if task is not None else None)
    first = [record.fields for record in islice(file.records(), 1_000)]
    values = [fields.get(words) for fields in first]
    single = bool(values) and all(isinstance(value, str) and len(value.split()) <= 1 for value in values)
    if group is not None and group not in file.names and group.isdecimal() and 1 <= int(group) <= len(file.names):
        group = file.names[int(group) - 1] or group
    columns = {name: None for fields in first for name in fields}
    if options.group is not None and not single:
        raise UsageError("--group", f"column {words!r} does not hold one word in each row", "leave it out")
    if group is not None and single:
        if group not in columns:
            remedy = did_you_mean(group, columns)
            raise DamagedData(options.input, f"has no column {group!r}", f"{remedy} (--group names another)")
        _note(f"rows of one word are grouped to sentences by {group!r}")
        return replace(file, words=words, group=group)
    if single and len(values) > 20 and file.format != "text":
        _note(f"every row has one word in column {words!r}, which is tagged alone; --group names a column of sentences")
    return file


def _by_position(fields: Fields, table: TableFile) -> Fields:
    """Names for columns that are given by their position, from 1."""

    def name_of(value: str) -> str:
        if value in table.names or not value.isdecimal() or not 1 <= int(value) <= len(table.names):
            return value
        return table.names[int(value) - 1] or value

    return Fields(
        name_of(fields.text),
        name_of(fields.pair),
        name_of(fields.question),
        name_of(fields.context),
        tuple(map(name_of, fields.options)),
    )


def _texts(inputs: Any) -> Iterator[str]:
    """All texts of a row."""
    if isinstance(inputs, str):
        yield inputs
    elif isinstance(inputs, list | tuple):
        for each in inputs:
            yield from _texts(each)


def _warn_of_unknown(predictor: Predictor, texts: Iterable[str]) -> None:
    warning = unknown_warning(predictor.tokenizer, texts, predictor.name)
    if warning is not None:
        print(warning, file=sys.stderr)


def _open_with_notes(options: Predict) -> Predictor:
    predictor = Predictor.open(
        options.model,
        options.device,
        revision=options.revision,
        overrides=given_values(options, "hidden_act", "num_attention_heads"),
        precision=options.precision,
        depth=options.depth,
        patience=options.patience,
        threshold=options.threshold,
    )
    for note in predictor.loading_report.notes:
        _note(note)
    return predictor


def _print_model(predictor: Predictor) -> None:
    early = "" if predictor.patience is None else f", decided early with patience {predictor.patience}"
    layers = f"{predictor.depth} layers{early}"
    print(f"{predictor.name}: {predictor.precision} on {predictor.device.type}, {layers}", file=sys.stderr)


def _predict(predictor: Predictor, options: Predict) -> tuple[list[Any], tuple[str, ...]]:
    """The predictions, and the fields of them to show."""
    top_k = options.top_k or DEFAULT_TOP_K
    if options.fill_mask is not None:
        masks = predictor.fill_mask_batch([options.fill_mask], top_k)[0]
        return masks if len(masks) > 1 else masks[0], ("score", "token_str", "sequence")
    if options.order is not None:
        return [predictor.order(*options.order)], ("label", "score")
    if options.classify is not None:
        columns = ("label", "score") if predictor.label_threshold is None else ("label", "score", "predicted")
        return predictor.classify(options.classify, options.pair, explain=options.explain), columns
    if options.tag is not None and options.words:
        return predictor.tag_sentences([options.tag.split()])[0], ("word", "entity", "score")
    if options.tag is not None:
        return predictor.tag(options.tag), ("word", "entity", "score", "start", "end")
    assert options.context is not None
    if options.choose:
        return predictor.choose(options.context, options.choose, options.question or ""), ("option", "score")
    assert options.question is not None
    (answers,) = predictor.answer_batch([options.question], [options.context], top_k)
    return answers, ("score", "answer", "start", "end")


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)
