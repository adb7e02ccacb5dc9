"""`albert convert`: a model of another format as a model directory."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from albert.cli.main import imports
from albert.cli.render import key_value_table, next_line, open_console, print_lines
from albert.cli.signature import PathLike
from albert.commands.function import command, on_command_line
from albert.recipes.architecture import Activation
from albert.runtime.words import bytes_of

if TYPE_CHECKING:
    from albert.checkpoints.convert import Conversion

EXAMPLE_FLAGS = {
    "AlbertForPreTraining": '--fill-mask "It was a [MASK] day."',
    "AlbertForMaskedLM": '--fill-mask "It was a [MASK] day."',
    "AlbertForSequenceClassification": '--classify "I would read it again."',
    "AlbertForQuestionAnswering": '--question "Who wrote it?" --context "Ada wrote it."',
}


PARTS = {
    "encoder attentions": "attention blocks",
    "encoder feed_forwards": "feed-forward blocks",
    "predictions": "masked-token head",
    "sop_classifier": "sentence-order head",
    "classifier": "task head",
}
"""Parts of a model as they are called in memory -> as they are shown."""


@command("albert convert")
def convert(
    source: PathLike,
    *,
    output: PathLike,
    config: PathLike | None = None,
    tokenizer: PathLike | None = None,
    without_tokenizer: bool = False,
    keep_case: bool = False,
    keep_accents: bool = False,
    hidden_act: Activation | None = None,
    num_attention_heads: int | None = None,
    num_hidden_layers: int | None = None,
    one_output: Literal["regression", "multiple_choice"] | None = None,
    labels: str | Sequence[str] = (),
    dtype: Literal["float32", "bfloat16", "float16"] | None = None,
    replace: bool = False,
) -> None:
    """Make a model directory from a TensorFlow checkpoint of google-research/albert, or from a Hugging Face model.

    SOURCE may be the directory of a release or a training run, a TF-Hub module, one file or the prefix of a
    checkpoint, a Hugging Face directory, or a Hub id; unpack an archive first. TensorFlow is not needed. Every checksum
    is verified, and every variable is accounted for.

    The output is a Hugging Face model directory; its card names the library that gives the model's scores. There is no
    --to tensorflow, because no current program needs TensorFlow 1 checkpoints.

    Example: albert convert albert_base --output models/albert-base-v2

    Args:
        source: A directory, a checkpoint's file or prefix, or a Hub id.
        output: The model directory to write.
        config: The albert_config.json, if it is not beside the checkpoint.
        tokenizer: A SentencePiece model, a WordPiece vocabulary, or a directory with one, if it is not beside SOURCE.
        without_tokenizer: Write the model alone.
        keep_case: For a vocabulary without settings: the model was trained on text with capitals.
        keep_accents: For a vocabulary without settings: whether accents were kept.
        hidden_act: The activation, instead of SOURCE's: gelu_new is the tanh form, gelu the exact one.
        num_attention_heads: The number of heads, instead of SOURCE's; the shapes of the weights do not show it.
        num_hidden_layers: The number of layers, instead of SOURCE's; the weights of shared layers do not show it.
        one_output: The meaning of a TensorFlow classifier's single output: a score as in STS-B, or that of an option
            as in RACE.
        labels: The names of a classifier's outputs, in order.
        dtype: Data type of the weights; that of SOURCE by default.
    """
    with imports():
        import torch

        from albert.checkpoints import convert as conversions
        from albert.checkpoints.config_json import read_config
        from albert.inference.abilities import trained_on_pairs

    overrides = {
        "hidden_act": hidden_act,
        "num_attention_heads": num_attention_heads,
        "num_hidden_layers": num_hidden_layers,
    }
    options = conversions.ConversionOptions(
        config_file=None if config is None else Path(config),
        overrides={name: value for name, value in overrides.items() if value is not None},
        one_output=one_output,
        dtype=getattr(torch, dtype) if dtype else None,
        labels=(labels,) if isinstance(labels, str) else tuple(labels),
        tokenizer=None if tokenizer is None else Path(tokenizer),
        without_tokenizer=without_tokenizer,
        lower_case=not keep_case,
        keep_accents=keep_accents,
    )
    output = Path(output)
    conversion = conversions.convert(os.fspath(source), output, options, replace)
    target = shlex.quote(str(output))
    flags = EXAMPLE_FLAGS.get(conversion.source.architecture)
    if flags == EXAMPLE_FLAGS["AlbertForSequenceClassification"] and trained_on_pairs(output, read_config(output)[1]):
        flags = f'{flags} --pair "I liked it."'
    following = f"predict {target} {flags}" if flags and conversion.tokenizer else f"info {target}"
    table = key_value_table("albert convert", rows(conversion, output))
    print_lines(open_console(), table, next_line(following))


def rows(conversion: "Conversion", output: Path) -> list[tuple[str, str]]:
    """What was read, what became of every tensor, and what was written."""
    source = conversion.source
    config = conversion.source.config
    newest = f", the newest of {source.steps}" if source.steps > 1 else ""
    shape = (
        f"V {config.vocab_size:,}, E {config.embedding_size}, H {config.hidden_size}, L {config.num_hidden_layers}, "
        f"A {config.num_attention_heads}, F {config.intermediate_size}, {config.hidden_act}"
    )
    if config.num_hidden_groups * config.inner_group_num > 1:
        shape += f", {config.num_hidden_groups} groups of {config.inner_group_num}"
    lines = [
        (source.kind, source.path + newest),
        ("configuration", source.config_path or "the command line and the shapes of the tensors"),
        ("model", f"{source.class_name}: {shape}"),
        ("tensors", f"{len(conversion.names)}, {bytes_of(source.size)}, all converted"),
    ]
    if source.dropped:
        lines.append(("dropped", f"{len(source.dropped)} that are not part of the model ({_some(source.dropped)})"))
    reasons: dict[str, list[str]] = {}
    for name, reason in source.unexpected.items():
        reasons.setdefault(reason, []).append(name)
    lines += [("not converted", f"{len(names)}: {reason} ({_some(names)})") for reason, names in reasons.items()]
    lines += [("note", note) for note in source.notes]
    if conversion.opened.newly_initialised:
        lines.append(("newly initialised", _some(conversion.opened.newly_initialised)))
    lines.append(("tokenizer", _tokenizer(conversion)))
    lines += [(f"parameters, {PARTS.get(part, part)}", f"{count:,}") for part, count in conversion.parameters.items()]
    lines.append(("parameters", f"{sum(conversion.parameters.values()):,}"))
    lines.append(("written", f"{output}: {bytes_of(conversion.written)} of weights, opened again as a check"))
    return lines


def _tokenizer(conversion: "Conversion") -> str:
    tokenizer = conversion.tokenizer
    if tokenizer is None:
        return "none (--without-tokenizer)"
    letters = "lower case" if tokenizer.lower_case else "letters kept"
    accents = "accents kept" if tokenizer.keep_accents else "accents dropped"
    return f"{conversion.tokenizer_path}: {tokenizer.vocab_size:,} pieces, {letters}, {accents}"


def _some(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


convert_main = on_command_line(convert)
