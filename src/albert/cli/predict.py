"""`albert predict`: text in, answers out."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.inference.predictor import Predictor
from albert.model.config import Activation
from albert.runtime.durable_files import write_text
from albert.runtime.errors import CannotCreate, DamagedData, MissingInput, UsageError
from albert.runtime.progress import progress

BATCH = 256


@dataclass(frozen=True)
class Predict:
    """Ask a trained model: fill masks, judge an order, classify, answer a question, tag words, choose.

    What a model can do depends on its head: `albert pretrain` makes models that fill masks and judge orders,
    and `albert finetune` such that classify or answer; those of transformers that tag words or choose among
    options open too. Give one question, or a file of texts to classify.

    Example: albert predict run/model --fill-mask "The cat [MASK] on the mat."
    """

    model: Positional[str]
    """A model directory, a run directory, or a Hugging Face Hub id."""
    fill_mask: str | None = None
    """A text with [MASK] in it, once or several times."""
    order: tuple[str, str] | None = None
    """Two adjacent segments: are they in their order, or swapped?"""
    classify: str | None = None
    """A text to classify."""
    pair: str | None = None
    """The second text, where the classifier was trained on pairs."""
    question: str | None = None
    """A question, to be answered from --context, or about it where --choose gives the options."""
    context: str | None = None
    """The text that holds the answer."""
    tag: str | None = None
    """A text whose words get a label each."""
    choose: Annotated[tuple[str, ...], tyro.conf.arg(metavar="OPTION...", help_behavior_hint="")] = ()
    """Two or more options, to be chosen from after reading --context."""
    input: str | None = None
    """Texts to classify: a .txt file with one a line, a .jsonl file, or - for standard input."""
    output: Path | None = None
    """Where the predictions on --input go, a JSON object a line; standard output by default."""
    replace: bool = False
    """Replace an existing output."""
    text_field: str = "text"
    """The key of the text in a JSON line."""
    pair_field: str = "text_pair"
    """The key of the second text in a JSON line, which may be absent from all lines."""
    top_k: int = 5
    """How many pieces a mask, or how many answers a question gets."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    hidden_act: Activation | None = None
    """The activation, in place of config.json's: gelu_new is the tanh form that Google trained with."""
    num_attention_heads: int | None = None
    """The number of heads, in place of config.json's; the shapes of the weights do not show it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    json: bool = False
    """JSON in place of a table."""


def main(arguments: list[str]) -> int:
    """Run `albert predict`."""
    options = parse(Predict, arguments, "albert predict")
    _refuse_contradictions(options)
    if options.output is not None and options.output.exists() and not options.replace:
        raise CannotCreate(options.output, "exists already", "choose another name, or say --replace")
    rows = [] if options.input is None else read_rows(options.input, options.text_field, options.pair_field)
    settings = ("hidden_act", "num_attention_heads")
    predictor = Predictor.open(
        options.model,
        options.device,
        revision=options.revision,
        overrides={name: getattr(options, name) for name in settings if getattr(options, name) is not None},
    )
    for note in predictor.loading_report.notes:
        _note(note)
    if options.input is not None:
        _classify_rows(predictor, rows, options)
    else:
        _ask(predictor, options)
    return 0


def _ask(predictor: Predictor, options: Predict) -> None:
    if options.fill_mask is not None:
        found: Any = predictor.fill_mask(options.fill_mask, options.top_k)
        _show(found, ("score", "token_str", "sequence"), options.json)
    elif options.order is not None:
        _show([predictor.order(*options.order)], ("label", "score"), options.json)
    elif options.classify is not None:
        _show(predictor.classify(options.classify, options.pair), ("label", "score"), options.json)
    elif options.tag is not None:
        _show(predictor.tag(options.tag), ("word", "entity", "score", "start", "end"), options.json)
    elif options.choose:
        assert options.context is not None
        found = predictor.choose(options.context, options.choose, options.question or "")
        _show(found, ("option", "score"), options.json)
    else:
        assert options.question is not None and options.context is not None
        found = predictor.answer(options.question, options.context, options.top_k)
        answers = found if isinstance(found, list) else [found]
        _show(answers, ("score", "answer", "start", "end"), options.json)


def read_rows(source: str, text_field: str, pair_field: str) -> list[dict[str, Any]]:
    """The texts of a file, each as `{text_field: ...}` with whatever else its JSON line holds.

    Args:
        source: a path, or `-` for standard input, whose lines are JSON when the first one begins with `{`.
        text_field: the key of the text.
        pair_field: the key of the second text, in every line or in none.

    Raises:
        UsageError: the file's name does not say which of the two it is.
        MissingInput: the file cannot be read, or holds nothing.
        DamagedData: a line is not UTF-8, not JSON, or lacks the text; the line is named.
    """
    name = "standard input" if source == "-" else source
    if source != "-" and not source.endswith((".txt", ".jsonl", ".json")):
        raise UsageError(source, "unknown kind of file", "use .txt with a text a line, .jsonl, or - for standard input")
    try:
        content = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise MissingInput(name, error.strerror or "cannot be read") from error
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not lines[-1].strip():
        lines.pop()
    if not lines:
        raise MissingInput(name, "holds no text")
    is_json = lines[0].lstrip().startswith(b"{") if source == "-" else source.endswith((".jsonl", ".json"))
    rows = []
    for number, line in enumerate(lines, start=1):
        where = f"{name}:{number}"
        try:
            text = line.decode("utf-8").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise DamagedData(where, "is not UTF-8") from error
        rows.append(_row(text, where, text_field) if is_json else {text_field: text})
        if (pair_field in rows[-1]) != (pair_field in rows[0]):
            raise DamagedData(where, f"{pair_field!r} must be in every line or in none")
        if not isinstance(rows[-1].get(pair_field, ""), str):
            raise DamagedData(where, f"{pair_field!r} is not a text")
    return rows


def _row(line: str, where: str, text_field: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DamagedData(where, "is not JSON") from error
    if not isinstance(row, dict) or not isinstance(row.get(text_field), str):
        raise DamagedData(where, f"has no text under {text_field!r}", "--text-field names another key")
    return row


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
    for name, belongs_to in (("pair", ("classify",)), ("context", ("question", "choose")), ("output", ("input",))):
        if getattr(options, name) is not None and asked[0] not in belongs_to:
            places = " or ".join(f"--{place}" for place in belongs_to)
            raise UsageError(f"--{name}", f"goes with {places}, not with {switches}")
    if asked[0] in ("question", "choose") and options.context is None:
        raise UsageError(switches, "needs a text to answer from", "give --context")
    if len(options.choose) == 1:
        raise UsageError("--choose", "one option is no choice", "give two or more")
    if options.top_k < 1:
        raise UsageError("--top-k", f"is {options.top_k}, at least 1 is needed")


def _classify_rows(predictor: Predictor, rows: list[dict[str, Any]], options: Predict) -> None:
    cut = 0
    lines: list[str] = []
    paired = options.pair_field in rows[0]
    with progress("Classifying", total=len(rows), unit="texts") as bar:
        for batch in _batches(rows):
            texts = [row[options.text_field] for row in batch]
            pairs = [row[options.pair_field] for row in batch] if paired else None
            for row, ranked in zip(batch, predictor.classify_batch(texts, pairs), strict=True):
                cut += "tokens_cut" in ranked[0]
                scores = {entry["label"]: entry["score"] for entry in ranked}
                lines.append(json.dumps({**row, **ranked[0], "scores": scores}, ensure_ascii=False) + "\n")
            bar.advance(len(batch))
    if options.output is None:
        sys.stdout.writelines(lines)
    else:
        write_text(options.output, "".join(lines))
        print(f"{options.output}: {len(lines):,} predictions", file=sys.stderr)
    if cut:
        _note(f"{cut:,} of {len(rows):,} texts were cut: the model reads {predictor.max_length} tokens")


def _batches(rows: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    for start in range(0, len(rows), BATCH):
        yield rows[start : start + BATCH]


def _show(found: list[Any], columns: tuple[str, ...], as_json: bool) -> None:
    """A table, or JSON: a line for each prediction, or for each mask a line with all of its predictions."""
    if as_json:
        sys.stdout.writelines(json.dumps(entry, ensure_ascii=False) + "\n" for entry in found)
        return
    if not found:
        _note("the text holds no words")
        return
    console = Console(soft_wrap=True, highlight=False)
    for group in found if isinstance(found[0], list) else [found]:
        table = Table(*(Column(name, overflow="fold") for name in columns))
        for entry in group:
            table.add_row(*(_cell(entry[column]) for column in columns))
        console.print(table)
        if "tokens_cut" in group[0]:
            _note(f"{group[0]['tokens_cut']:,} tokens did not fit and were not read")


def _cell(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else escape(str(value))


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr)
