"""`albert convert`, `export`, `quantize` and `push`: a model in another format or place."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

from albert.api.keywords import values_set
from albert.api.options import Push
from albert.checkpoints.convert import Conversion, ConversionOptions, convert
from albert.checkpoints.hub import push_model
from albert.cli.commands import Convert, ExportOnnx, ExportSentenceTransformers, Quantize
from albert.cli.render import bytes_of, facts, open_console, say
from albert.inference.int8 import quantize_directory
from albert.inference.predictor import save_for_sentence_transformers
from albert.runtime.environment import load_by_name

NEXT = {
    "AlbertForPreTraining": '--fill-mask "It was a [MASK] day."',
    "AlbertForMaskedLM": '--fill-mask "It was a [MASK] day."',
    "AlbertForSequenceClassification": '--classify "I would read it again."',
    "AlbertForQuestionAnswering": '--question "Who wrote it?" --context "Ada wrote it."',
}


def run_convert(args: Convert) -> None:
    """Run `albert convert`."""
    options = ConversionOptions(
        config_file=args.config,
        overrides=values_set(args, "hidden_act", "num_attention_heads", "num_hidden_layers"),
        one_output=args.one_output,
        dtype=getattr(torch, args.dtype) if args.dtype else None,
        revision=args.revision,
        labels=args.labels,
        tokenizer=args.tokenizer,
        without_tokenizer=args.without_tokenizer,
        lower_case=args.lower_case,
        keep_accents=args.keep_accents,
    )
    made = convert(args.source, args.output, options, args.replace)
    place = shlex.quote(str(args.output))
    question = NEXT.get(made.source.architecture)
    following = f"albert predict {place} {question}" if question and made.tokenizer else f"albert info {place}"
    _print("albert convert", rows(made, args.output), following)


def _print(title: str, told: Mapping[str, object] | Iterable[Sequence[object]], following: str) -> None:
    """Print what was made, and what to do next."""
    say(open_console(), facts(title, told), f"next: {following}" if following else "")


def rows(made: Conversion, output: Path) -> list[tuple[str, str]]:
    """What was read, what became of every tensor, and what was written."""
    source, config = made.source, made.source.config
    said = source.config_place or "the command line and the shapes of the tensors"
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
    reasons: dict[str, list[str]] = {}
    for name, reason in source.unexpected.items():
        reasons.setdefault(reason, []).append(name)
    found += [("not converted", f"{len(names)}: {reason} ({_some(names)})") for reason, names in reasons.items()]
    found += [("note", note) for note in source.notes]
    found += [("drawn at random", _some(made.opened.newly_initialised))] if made.opened.newly_initialised else []
    found.append(("tokenizer", _tokenizer(made)))
    found += [(f"parameters, {part}", f"{count:,}") for part, count in made.parameters.items()]
    found.append(("parameters", f"{sum(made.parameters.values()):,}"))
    found.append(("written", f"{output}: {made.written / 1e6:,.1f} MB of weights, and opened again"))
    return found


def _tokenizer(made: Conversion) -> str:
    tokenizer = made.tokenizer
    if tokenizer is None:
        return "none, as asked"
    letters = "lower case" if tokenizer.lower_case else "letters kept"
    accents = "accents kept" if tokenizer.keep_accents else "accents dropped"
    return f"{made.tokenizer_place}: {tokenizer.vocab_size:,} pieces, {letters}, {accents}"


def _some(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def onnx(args: ExportOnnx) -> None:
    """Run `albert export onnx`."""
    exporting = load_by_name("albert.inference.onnx_export", "onnx")
    settings = exporting.ExportSettings(precision=args.precision, opset=args.opset, depth=args.depth)
    made = exporting.export_onnx(args.model, args.output, settings, revision=args.revision, replace=args.replace)
    told: dict[str, object] = {
        "graph": f"{made.kind}, {made.depth} layers, {made.precision}, opset {made.opset}",
        "file": f"{bytes_of(made.bytes)}, {made.bytes / made.weight_bytes:.1%} of the weights in float32",
        "outputs": ", ".join(f"{output} [{', '.join(map(str, axes))}]" for output, axes in made.outputs.items()),
    }
    if made.left_out:
        told["left out"] = f"{made.left_out}: nobody trained it"
    told |= {check.runtime: f"largest difference: {exporting.format_differences(check)}" for check in made.checks}
    told["written"] = args.output
    following = f"albert verify {shlex.quote(str(args.output))}" if args.output.is_dir() else ""
    _print("albert export onnx", told, following)


def sentence_transformers(args: ExportSentenceTransformers) -> None:
    """Run `albert export sentence-transformers`."""
    vectors = save_for_sentence_transformers(
        args.model, args.output, args.pooling, args.normalize, revision=args.revision, replace=args.replace
    )
    pooled = "the mean over all tokens" if args.pooling == "mean" else "what stands at [CLS]"
    told: dict[str, object] = {
        "vectors": f"{vectors.width} numbers, {pooled}{', of length 1' if args.normalize else ''}",
        "texts": f"of at most {vectors.longest} tokens; sentence-transformers cuts longer ones without a word",
        "written": args.output,
    }
    following = f"SentenceTransformer({str(args.output)!r}).encode(texts)"
    _print("albert export sentence-transformers", told, following)


def run_quantize(args: Quantize) -> None:
    """Run `albert quantize`."""
    made = quantize_directory(args.model, args.output, revision=args.revision, replace=args.replace)
    told: dict[str, object] = {
        "matrices": f"{made.matrices} as 8-bit integers, a scale for each row",
        "weights": f"{bytes_of(made.bytes_after)}, {made.bytes_after / made.bytes_before:.1%} of "
        f"{bytes_of(made.bytes_before)}",
    }
    told |= {
        f"{name} moves": f"{largest:.3g} at most over random tokens, "
        f"{made.moved.relative[name]:.2%} of its spread (RMS)"
        for name, largest in made.moved.largest.items()
    }
    told["written"] = args.output
    _print("albert quantize", told, f"albert info {shlex.quote(str(args.output))}")


def run_push(args: Push) -> None:
    """Run `albert push`."""
    pushed = push_model(args.model, args.repository, private=args.private, replace=args.replace, revision=args.revision)
    rows: dict[str, object] = {name: bytes_of(size) for name, size in pushed.files.items()}
    lines = [f"{pushed.address} is ready", f"next: albert info {shlex.quote(args.repository)}"]
    if "README.md" not in pushed.files:
        lines.insert(0, "note: the model has no README.md, so it has no card on the Hub")
    say(open_console(), facts("albert push", rows), *lines)
