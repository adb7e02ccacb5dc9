"""`albert predict`: text in, answers out."""

import sys

from albert.cli.predict_options import Predict
from albert.cli.predicted_tables import show
from albert.inference.files.asked_fields import Fields
from albert.inference.files.asking import Settings
from albert.inference.files.askings import asking_for
from albert.inference.files.file_prediction import FilePrediction, predict_file
from albert.inference.files.input_file import opened_input
from albert.inference.files.outputs import ENDINGS
from albert.inference.predictor import Predictor
from albert.runtime.errors import CannotCreate, UsageError

GUESSES = 5


def run(options: Predict) -> int:
    """Run `albert predict`."""
    _refuse_contradictions(options)
    if options.output is not None and options.output.exists() and not options.replace:
        raise CannotCreate(options.output, "exists already", "choose another name, or say --replace")
    if options.input is None:
        predictor = _opened(options)
        _ask(predictor, options)
        _say_how(predictor)
        return 0
    with opened_input(options.input) as file:
        predictor = _opened(options)
        asked = FilePrediction(
            file,
            options.output,
            asking_for(predictor, options.ask),
            Fields(
                options.text_field,
                options.pair_field,
                options.question_field,
                options.context_field,
                options.options_field,
            ),
            Settings(options.top_k, options.pooling, options.normalize, options.words),
            options.prefix,
            options.replace,
        )
        summary = predict_file(predictor, asked)
    _say_how(predictor)
    if options.output is not None:
        print(f"{options.output}: {summary.rows:,} rows", file=sys.stderr)
    if summary.cut:
        _note(f"{summary.cut:,} of {summary.rows:,} texts were cut: the model reads {predictor.max_length} tokens")
    if summary.unanswered:
        _note(f"{summary.unanswered:,} of {summary.rows:,} rows have no answer; {'; '.join(summary.first_unanswered)}")
    return 0


def _opened(options: Predict) -> Predictor:
    settings = ("hidden_act", "num_attention_heads")
    predictor = Predictor.open(
        options.model,
        options.device,
        revision=options.revision,
        overrides={name: getattr(options, name) for name in settings if getattr(options, name) is not None},
        precision=options.precision,
        depth=options.depth,
        patience=options.patience,
    )
    for note in predictor.loading_report.notes:
        _note(note)
    return predictor


def _say_how(predictor: Predictor) -> None:
    early = "" if predictor.patience is None else f", decided early with patience {predictor.patience}"
    layers = f"{predictor.depth} layers{early}"
    print(f"{predictor.name}: {predictor.precision} on {predictor.device.type}, {layers}", file=sys.stderr)


def _ask(predictor: Predictor, options: Predict) -> None:
    top_k = options.top_k or GUESSES
    if options.fill_mask is not None:
        found = predictor.fill_mask_batch([options.fill_mask], top_k)[0]
        show(found if len(found) > 1 else found[0], ("score", "token_str", "sequence"), options.json)
    elif options.order is not None:
        show([predictor.order(*options.order)], ("label", "score"), options.json)
    elif options.classify is not None:
        show(predictor.classify(options.classify, options.pair), ("label", "score"), options.json)
    elif options.tag is not None and options.words:
        (words,) = predictor.tag_sentences([options.tag.split()])
        show(words, ("word", "entity", "score"), options.json)
    elif options.tag is not None:
        show(predictor.tag(options.tag), ("word", "entity", "score", "start", "end"), options.json)
    elif options.choose:
        assert options.context is not None
        show(
            predictor.choose(options.context, options.choose, options.question or ""), ("option", "score"), options.json
        )
    else:
        assert options.question is not None and options.context is not None
        (answers,) = predictor.answer_batch([options.question], [options.context], top_k)
        show(answers, ("score", "answer", "start", "end"), options.json)


def _refuse_contradictions(options: Predict) -> None:
    names = ("fill_mask", "order", "classify", "tag", "choose", "question", "input")
    asked = [name for name in names if getattr(options, name) not in (None, ())]
    if "choose" in asked and "question" in asked:  # about the options, then
        asked.remove("question")
    switches = ", ".join("--" + name.replace("_", "-") for name in asked)
    if len(asked) != 1:
        why = f"{switches} together" if asked else "nothing is asked"
        ways = "--fill-mask, --order, --classify, --tag, --question with --context, --choose with --context, --input"
        raise UsageError("albert predict", why, f"give one of {ways}")
    belongings = (("pair", ("classify",)), ("context", ("question", "choose")), ("output", ("input",)))
    for name, belongs_to in (*belongings, ("ask", ("input",))):
        if getattr(options, name) is not None and asked[0] not in belongs_to:
            places = " or ".join(f"--{place}" for place in belongs_to)
            raise UsageError(f"--{name}", f"goes with {places}, not with {switches}")
    if options.words and asked[0] != "tag" and (asked[0] != "input" or options.ask not in (None, "tag")):
        raise UsageError("--words", "goes with --tag, or with --input where words are tagged")
    if asked[0] in ("question", "choose") and options.context is None:
        raise UsageError(switches, "needs a text to answer from", "give --context")
    if len(options.choose) == 1:
        raise UsageError("--choose", "one option is no choice", "give two or more")
    if options.top_k is not None and options.top_k < 1:
        raise UsageError("--top-k", f"is {options.top_k}, at least 1 is needed")
    if not options.options_field:
        raise UsageError("--options-field", "names no field", "name one with a list, or one for each option")
    if options.output is not None and options.output.suffix.lower() not in ENDINGS:
        raise UsageError(options.output, "unknown kind of output", f"use {', '.join(ENDINGS)}")


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)
