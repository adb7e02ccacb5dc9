"""`albert predict`: text in, answers out.

How a model is opened and what it answers from Python, `albert.load`, is written at
`albert.inference.predictor.Predictor`; the answers are the same.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from albert.cli.main import imports
from albert.cli.render import print_json
from albert.cli.signature import PathLike, given_options, read_keys
from albert.commands.checks import check_options, check_options_of_task
from albert.commands.columns import ReadingKeys
from albert.commands.function import command, on_command_line
from albert.commands.serve import AS_SAVED, ModelOptions
from albert.recipes.architecture import Activation
from albert.runtime.errors import UsageError
from albert.runtime.json_files import to_json
from albert.tasks.pipeline import ENDINGS, Settings
from albert.tasks.pipelines import row_pipelines

TASKS = tuple(row_pipelines())
if TYPE_CHECKING:
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
        check_options_of_task(task, given)
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
        from albert.commands.predict_rows import RowsToPredict, predict_rows
        from albert.commands.predict_shown import note, print_model, print_warning_of_unknown, show_predictions
        from albert.inference.predictor import Predictor
        from albert.inference.texts import check_second_texts

    overrides = {"hidden_act": hidden_act, "num_attention_heads": num_attention_heads}
    overrides = {name: value for name, value in overrides.items() if value is not None}

    def open_predictor() -> Predictor:
        predictor = Predictor.open(model, **vars(opening), overrides=overrides)
        for line in predictor.loading_report.notes:
            note(line)
        return predictor

    if input is not None:
        rows = RowsToPredict(
            model=model,
            input=input,
            output=output,
            task=task,
            text=text,
            pair=pair,
            question=question,
            context=context,
            options=tuple(options or ()),
            group=group,
            reading=reading,
            settings=Settings(top_k, pooling, normalize, prompt, words),
            prefix=prefix,
            replace=replace,
            given=given,
            parameters=parameters,
        )
        predict_rows(rows, open_predictor)
        return

    predictor = open_predictor()
    predictions: list[Any]
    with errors_about({"text": of_input, "context": "--context", "options": "--choose"}):
        if fill_mask is not None:
            masks = predictor.fill_mask_batch([fill_mask], top_k or TOP_K)[0]
            predictions = masks if len(masks) > 1 else masks[0]
            shown = ("score", "token_str", "sequence")
        elif order is not None:
            predictions = [predictor.order(*order)]
            if not all(map(str.strip, order)):
                note("a segment is empty; its order means nothing")
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
    print_warning_of_unknown(predictor, texts)
    print_model(predictor)


@contextmanager
def errors_about(options: Mapping[str, str]) -> Iterator[None]:
    """Errors about an argument of `Predictor` name the option that gave it."""
    try:
        yield
    except UsageError as error:
        if error.subject not in options:
            raise
        raise error.about(options[error.subject]) from error


predict_main = on_command_line(predict, checks_paths=False)
