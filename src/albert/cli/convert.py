"""`albert convert`, `export`, `quantize` and `push`: a model in another format, or on the Hub."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

from albert.api.keywords import given_values
from albert.api.options import Push
from albert.checkpoints.convert import Conversion, ConversionOptions, convert
from albert.checkpoints.hub import push_model
from albert.checkpoints.sentence_transformers import read_sentence_vectors
from albert.cli.commands import Convert, ExportOnnx, ExportSentenceTransformers, Quantize
from albert.cli.render import bytes_of, key_value_table, next_line, open_console, print_lines
from albert.inference.int8 import quantize_directory
from albert.inference.predictor import save_for_sentence_transformers
from albert.runtime.environment import lazy_import

EXAMPLE_FLAGS = {
    "AlbertForPreTraining": '--fill-mask "It was a [MASK] day."',
    "AlbertForMaskedLM": '--fill-mask "It was a [MASK] day."',
    "AlbertForSequenceClassification": '--classify "I would read it again."',
    "AlbertForQuestionAnswering": '--question "Who wrote it?" --context "Ada wrote it."',
}


def run_convert(args: Convert) -> None:
    """Run `albert convert`."""
    options = ConversionOptions(
        config_file=args.config,
        overrides=given_values(args, "hidden_act", "num_attention_heads", "num_hidden_layers"),
        one_output=args.one_output,
        dtype=getattr(torch, args.dtype) if args.dtype else None,
        revision=args.revision,
        labels=args.labels,
        tokenizer=args.tokenizer,
        without_tokenizer=args.without_tokenizer,
        lower_case=args.lower_case,
        keep_accents=args.keep_accents,
    )
    conversion = convert(args.source, args.output, options, args.replace)
    output = shlex.quote(str(args.output))
    flags = EXAMPLE_FLAGS.get(conversion.source.architecture)
    command = f"predict {output} {flags}" if flags and conversion.tokenizer else f"info {output}"
    _print("albert convert", rows(conversion, args.output), next_line(command))


def _print(title: str, values: Mapping[str, object] | Iterable[Sequence[object]], last_line: str) -> None:
    print_lines(open_console(), key_value_table(title, values), last_line)


def rows(conversion: Conversion, output: Path) -> list[tuple[str, str]]:
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
        ("model", f"{source.architecture}: {shape}"),
        ("tensors", f"{len(conversion.names)}, {source.size / 1e6:,.1f} MB, all converted"),
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
    lines += [(f"parameters, {part}", f"{count:,}") for part, count in conversion.parameters.items()]
    lines.append(("parameters", f"{sum(conversion.parameters.values()):,}"))
    lines.append(("written", f"{output}: {conversion.written / 1e6:,.1f} MB of weights, and opened again"))
    return lines


def _tokenizer(conversion: Conversion) -> str:
    tokenizer = conversion.tokenizer
    if tokenizer is None:
        return "none (--without-tokenizer)"
    letters = "lower case" if tokenizer.lower_case else "letters kept"
    accents = "accents kept" if tokenizer.keep_accents else "accents dropped"
    return f"{conversion.tokenizer_path}: {tokenizer.vocab_size:,} pieces, {letters}, {accents}"


def _some(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def onnx(args: ExportOnnx) -> None:
    """Run `albert export onnx`."""
    exporting = lazy_import("albert.inference.onnx_export", "onnx")
    settings = {name: getattr(args, name) for name in ("precision", "opset", "depth", "revision", "replace")}
    export = exporting.export_onnx(args.model, args.output, **settings)
    values: dict[str, object] = {
        "graph": f"{export.kind}, {export.depth} layers, {export.precision}, opset {export.opset}",
        "file": f"{bytes_of(export.bytes)}, {export.bytes / export.weight_bytes:.1%} of the weights in float32",
        "outputs": ", ".join(f"{output} [{', '.join(map(str, axes))}]" for output, axes in export.outputs.items()),
    }
    if export.left_out:
        values["left out"] = f"{export.left_out}: it was not trained"
    values |= {check.runtime: f"largest difference: {exporting.format_differences(check)}" for check in export.checks}
    values["written"] = args.output
    verify = next_line(f"verify {shlex.quote(str(args.output))}") if args.output.is_dir() else ""
    _print("albert export onnx", values, verify)


_POOLED = {
    "mean": "the mean over all tokens",
    "cls": "the state of [CLS]",
    "max": "the maximum over all tokens",
}


def sentence_transformers(args: ExportSentenceTransformers) -> None:
    """Run `albert export sentence-transformers`."""
    width, max_length = save_for_sentence_transformers(
        args.model, args.output, args.pooling, args.normalize, revision=args.revision, replace=args.replace
    )
    vectors = read_sentence_vectors(args.output) or {}
    pooled = _POOLED[str(vectors["pooling"])]
    values: dict[str, object] = {
        "vectors": f"{width} numbers, {pooled}{', of length 1' if vectors['normalize'] else ''}",
        "texts": f"of at most {max_length} tokens; sentence-transformers cuts longer ones without a message",
        "written": args.output,
    }
    use = f"next: SentenceTransformer({str(args.output)!r}).encode(texts)"
    _print("albert export sentence-transformers", values, use)


def run_quantize(args: Quantize) -> None:
    """Run `albert quantize`."""
    result = quantize_directory(args.model, args.output, revision=args.revision, replace=args.replace)
    share = result.bytes_after / result.bytes_before
    values: dict[str, object] = {
        "matrices": f"{result.matrices} as 8-bit integers, a scale for each row",
        "weights": f"{bytes_of(result.bytes_after)}, {share:.1%} of {bytes_of(result.bytes_before)}",
    }
    for name, largest in result.moved.largest.items():
        relative = f"{result.moved.relative[name]:.2%} of its spread (RMS)"
        values[f"{name} moves"] = f"{largest:.3g} at most over random tokens, {relative}"
    values["written"] = args.output
    _print("albert quantize", values, next_line(f"info {shlex.quote(str(args.output))}"))


def run_push(args: Push) -> None:
    """Run `albert push`."""
    pushed = push_model(args.model, args.repository, private=args.private, replace=args.replace, revision=args.revision)
    rows: dict[str, object] = {name: bytes_of(size) for name, size in pushed.files.items()}
    lines = [f"{pushed.address} is ready", next_line(f"info {shlex.quote(args.repository)}")]
    if "README.md" not in pushed.files:
        lines.insert(0, "note: the model has no README.md, so it has no card on the Hub")
    print_lines(open_console(), key_value_table("albert push", rows), *lines)
