"""`albert predict` and `albert serve`: a model's answers on the terminal, in files, or over HTTP."""

import json
import os
import sys
from typing import Any

import torch

from albert.api.keywords import flags_set, values_set
from albert.cli.commands import OpenedModel, Predict, Serve
from albert.cli.options import check_at_least
from albert.cli.render import open_console, table
from albert.inference.abilities import Fields, Settings
from albert.inference.files import ENDINGS, FilePrediction, ability_for, opened_input, predict_file
from albert.inference.predictor import Predictor
from albert.inference.server.limits import allowed_hosts
from albert.runtime.environment import load_by_name
from albert.runtime.errors import CannotCreate, InvalidConfiguration, UsageError

# --------------------------------------------------------------------------------------------------------------------
# What a model answered to one question, as a table or as JSON.


def show(found: list[Any], columns: tuple[str, ...], as_json: bool) -> None:
    """A table, or JSON: a line for each prediction, or for each mask a line with all of its predictions."""
    if as_json:
        sys.stdout.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in found)
    elif not found:
        _note("the text holds no words")
    else:
        console = open_console()
        for group in found if isinstance(found[0], list) else [found]:
            rows = [[f"{v:.4f}" if isinstance(v, float) else str(v) for v in map(each.get, columns)] for each in group]
            console.print(table(None, columns, rows, words=range(len(columns)), boxed=True))
            if "tokens_cut" in group[0]:
                _note(f"{group[0]['tokens_cut']:,} tokens did not fit and were not read")


GUESSES = 5


def run_predict(options: Predict) -> int:
    """Run `albert predict`."""
    _refuse_contradictions(options)
    if options.output is not None and options.output.exists() and not options.replace:
        raise CannotCreate(options.output, "exists already", "choose another name, or add --replace")
    if options.input is None:
        predictor = _opened_for_answers(options)
        show(*_answers(predictor, options), options.json)
        _say_how(predictor)
        return 0
    with opened_input(options.input) as file:
        predictor = _opened_for_answers(options)
        args = FilePrediction(
            file,
            options.output,
            ability_for(predictor, options.task),
            Fields(*(getattr(options, f"{name}_field") for name in ("text", "pair", "question", "context", "options"))),
            Settings(options.top_k, options.pooling, options.normalize, options.words),
            options.prefix,
            options.replace,
        )
        summary = predict_file(predictor, args)
    _say_how(predictor)
    if options.output is not None:
        print(f"{options.output}: {summary.rows:,} rows", file=sys.stderr)
    if summary.cut:
        _note(f"{summary.cut:,} of {summary.rows:,} texts were cut: the model reads {predictor.max_length} tokens")
    if summary.unanswered:
        _note(f"{summary.unanswered:,} of {summary.rows:,} rows have no answer; {'; '.join(summary.first_unanswered)}")
    return 0


def _opened(options: OpenedModel, **overrides: Any) -> Predictor:
    how: dict[str, Any] = {name: getattr(options, name) for name in ("revision", "precision", "depth", "patience")}
    return Predictor.open(options.model, options.device, overrides=overrides, **how)


def _opened_for_answers(options: Predict) -> Predictor:
    predictor = _opened(options, **values_set(options, "hidden_act", "num_attention_heads"))
    for note in predictor.loading_report.notes:
        _note(note)
    return predictor


def _say_how(predictor: Predictor) -> None:
    early = "" if predictor.patience is None else f", decided early with patience {predictor.patience}"
    layers = f"{predictor.depth} layers{early}"
    print(f"{predictor.name}: {predictor.precision} on {predictor.device.type}, {layers}", file=sys.stderr)


def _answers(predictor: Predictor, options: Predict) -> tuple[list[Any], tuple[str, ...]]:
    """What the model says, and what is shown of it."""
    top_k = options.top_k or GUESSES
    if options.fill_mask is not None:
        found = predictor.fill_mask_batch([options.fill_mask], top_k)[0]
        return found if len(found) > 1 else found[0], ("score", "token_str", "sequence")
    if options.order is not None:
        return [predictor.order(*options.order)], ("label", "score")
    if options.classify is not None:
        return predictor.classify(options.classify, options.pair), ("label", "score")
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


def _refuse_contradictions(options: Predict) -> None:
    args = flags_set(options, "fill_mask", "order", "classify", "tag", "choose", "question", "input")
    if "--choose" in args and "--question" in args:  # about the options, then
        args.remove("--question")
    switches = ", ".join(args)
    if len(args) != 1:
        why = f"{switches} together" if args else "nothing is asked"
        ways = "--fill-mask, --order, --classify, --tag, --question with --context, --choose with --context, --input"
        raise UsageError("albert predict", why, f"give one of {ways}")
    of_input = dict.fromkeys(("output", "task"), ("--input",))
    belongings = {"pair": ("--classify",), "context": ("--question", "--choose"), **of_input}
    for name, belongs_to in belongings.items():
        if getattr(options, name) is not None and switches not in belongs_to:
            raise UsageError(f"--{name}", f"goes with {' or '.join(belongs_to)}, not with {switches}")
    if options.words and switches != "--tag" and (switches != "--input" or options.task not in (None, "tag")):
        raise UsageError("--words", "goes with --tag, or with --input where words are tagged")
    if switches in ("--question", "--choose") and options.context is None:
        raise UsageError(switches, "needs a text to answer from", "give --context")
    if len(options.choose) == 1:
        raise UsageError("--choose", "needs at least two options", "give two or more")
    check_at_least(options, 1, "top_k")
    if not options.options_field:
        raise UsageError("--options-field", "names no field", "name one with a list, or one for each option")
    if options.output is not None and options.output.suffix.lower() not in ENDINGS:
        raise UsageError(options.output, "unknown kind of output", f"use {', '.join(ENDINGS)}")


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)


def run_serve(options: Serve) -> int:
    """Run `albert serve`."""
    if not 0 <= options.port < 65_536:
        raise InvalidConfiguration(f"port {options.port}", "ports are numbers up to 65535", "8000, say")
    if options.drain_timeout <= 0 or (options.threads is not None and options.threads < 1):
        raise InvalidConfiguration("drain-timeout, threads", "are numbers above zero")
    hosts = allowed_hosts(options.host, options.allowed_host)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    draining_server = load_by_name("albert.inference.server.serving", extra="serve")
    listening = draining_server.listen(options.host, options.port)
    host, port = listening.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    _say(f"listening at {address}, loading {options.model}")

    def open_predictor() -> Predictor:
        predictor = _opened(options)
        predictor.embed(["What a first request would wait for is made now."])
        return predictor

    def started(predictor: Predictor) -> None:
        for note in predictor.loading_report.notes:
            _say(f"note: {note}")
        can = " and ".join(predictor.abilities) or "embed texts"
        _say(f"ready: this model can {can}; {predictor.precision}, {predictor.depth} layers, {predictor.device}")

    try:
        draining_server.serve(options.limits, open_predictor, listening, options.drain_timeout, started, hosts)
    except draining_server.NotDrained as error:
        _say(str(error))
        os._exit(error.exit_code)  # a batch may still be computed, and nobody waits for it
    _say("stopped: every accepted request was answered")
    return 0


def _say(text: str) -> None:
    print(f"albert serve: {text}", file=sys.stderr, flush=True)
