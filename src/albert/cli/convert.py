"""`albert convert`: Google's TensorFlow checkpoints and Hugging Face models, as model directories of ours."""

import shlex
from pathlib import Path

import torch
from rich.markup import escape
from rich.table import Table

from albert.checkpoints.conversion import Conversion, TokenizerOptions, convert
from albert.checkpoints.conversion_source import ConversionOptions
from albert.cli.console import open_console
from albert.cli.convert_options import Convert

NEXT = {
    "AlbertForPreTraining": '--fill-mask "It was a [MASK] day."',
    "AlbertForMaskedLM": '--fill-mask "It was a [MASK] day."',
    "AlbertForSequenceClassification": '--classify "I would read it again."',
    "AlbertForQuestionAnswering": '--question "Who wrote it?" --context "Ada wrote it."',
}


def run(asked: Convert) -> int:
    """Run `albert convert`."""
    settings = ("hidden_act", "num_attention_heads", "num_hidden_layers")
    options = ConversionOptions(
        config_file=asked.config,
        overrides={name: getattr(asked, name) for name in settings if getattr(asked, name) is not None},
        one_output=asked.one_output,
        dtype=getattr(torch, asked.dtype) if asked.dtype else None,
        revision=asked.revision,
    )
    tokenizer = TokenizerOptions(
        place=asked.tokenizer,
        without=asked.without_tokenizer,
        lower_case=asked.lower_case,
        keep_accents=asked.keep_accents,
    )
    made = convert(asked.source, asked.output, options, tokenizer, asked.labels, asked.replace)
    console = open_console()
    table = Table(title="albert convert", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in rows(made, asked.output):
        table.add_row(name, escape(value))
    console.print(table)
    console.print(f"next: {next_command(made, asked.output)}", markup=False)
    return 0


def rows(made: Conversion, output: Path) -> list[tuple[str, str]]:
    """What was read, what became of every tensor, and what was written."""
    source, config = made.source, made.source.config
    said = str(source.config_place) if source.config_place else "the command line and the shapes of the tensors"
    newest = f", the newest of {source.steps}" if source.steps > 1 else ""
    shape = (
        f"V {config.vocab_size:,}, E {config.embedding_size}, H {config.hidden_size}, L {config.num_hidden_layers}, "
        f"A {config.num_attention_heads}, F {config.intermediate_size}, {config.hidden_act}"
    )
    if config.num_hidden_groups * config.inner_group_num > 1:
        shape += f", {config.num_hidden_groups} groups of {config.inner_group_num}"
    found = [
        (source.kind, source.place + newest),
        ("configuration", said),
        ("model", f"{source.architecture}: {shape}"),
        ("tensors", f"{len(made.names)}, {source.size / 1e6:,.1f} MB, every one in its place"),
    ]
    if source.dropped:
        found.append(("dropped", f"{len(source.dropped)} that say nothing of the model ({_some(source.dropped)})"))
    reasons = {
        reason: [n for n, why in source.unexpected.items() if why == reason] for reason in source.unexpected.values()
    }
    found += [("not converted", f"{len(names)}: {reason} ({_some(names)})") for reason, names in reasons.items()]
    found += [("note", note) for note in source.notes]
    found += [("drawn at random", _some(made.opened.newly_initialised))] if made.opened.newly_initialised else []
    found.append(("tokenizer", _tokenizer(made)))
    found += [(f"parameters, {part}", f"{count:,}") for part, count in made.parameters.items()]
    found.append(("parameters", f"{sum(made.parameters.values()):,}"))
    found.append(("written", f"{output}: {made.written / 1e6:,.1f} MB of weights, and opened again"))
    return found


def next_command(made: Conversion, output: Path) -> str:
    """What a user may do with the result."""
    place = shlex.quote(str(output))
    question = NEXT.get(made.source.architecture)
    return f"albert predict {place} {question}" if question and made.tokenizer else f"albert info {place}"


def _tokenizer(made: Conversion) -> str:
    tokenizer = made.tokenizer
    if tokenizer is None:
        return "none, as asked"
    letters = "lower case" if tokenizer.lower_case else "letters kept"
    accents = "accents kept" if tokenizer.keep_accents else "accents dropped"
    return f"{made.tokenizer_place}: {tokenizer.vocab_size:,} pieces, {letters}, {accents}"


def _some(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
