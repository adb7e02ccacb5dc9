"""`albert info`: presets, models, corpora and this machine; comparisons, memory and speed as tables."""

import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from albert import __version__
from albert.api.keywords import flags_set
from albert.checkpoints.hub import find_model
from albert.checkpoints.model_directory import CONFIG_NAME, read_config
from albert.cli.commands import Info
from albert.cli.options import check_at_least
from albert.cli.render import (
    LABELS,
    bold,
    bytes_of,
    facts,
    in_bold,
    in_millions,
    indented,
    open_console,
    say,
    show,
    styled,
    table,
)
from albert.experiments import sizes
from albert.inference import inspection
from albert.model.config import PRESET_ALIASES, PRESET_GROUPS, PRESETS, AlbertConfig, preset_name, sharing_plan
from albert.model.cost import count_flops, count_parameters
from albert.runtime.devices import default_precision, describe_machine, free_memory, pick_device
from albert.runtime.errors import AlbertError, UsageError, did_you_mean
from albert.runtime.json_files import to_json
from albert.text.shards import DESCRIPTION_NAME
from albert.text.tokenizer_loading import vocabulary_file


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a name stands for: a preset's own name or the name as it was typed; the directory, of all but presets; the
    architecture, of presets and models."""

    kind: Literal["preset", "model", "corpus", "tokenizer"]
    name: str
    directory: Path = Path()
    config: AlbertConfig | None = None


def find(what: str, revision: str | None = None) -> Found:
    """What a name stands for: what is here goes before a preset, a preset before a repository of the Hub.

    Raises:
        MissingInput, Unavailable: it is nothing.
        InvalidConfiguration: it is a model, but not an ALBERT.
    """
    here = Path(what)
    preset = None if here.is_dir() else preset_name(what)
    if preset is not None:
        return Found(kind="preset", name=preset, config=PRESETS[preset])
    if (here / DESCRIPTION_NAME).is_file():
        return Found(kind="corpus", name=what, directory=here)
    try:
        directory = find_model(what, revision)
    except AlbertError as error:
        if here.exists():
            raise
        nearest = did_you_mean(what, [*PRESETS, *PRESET_ALIASES])
        remedy = nearest if nearest.startswith("did") else "`albert info` lists the presets"
        raise type(error)(error.subject, f"is not a preset; {error.why}", remedy) from error
    if not (directory / CONFIG_NAME).is_file() and vocabulary_file(directory).is_file():
        return Found(kind="tokenizer", name=what, directory=directory)
    return Found(kind="model", name=what, directory=directory, config=read_config(directory)[0])


# --------------------------------------------------------------------------------------------------------------------
# Sizes as people look at them: the presets in a list, and all of one architecture.

_SUMS = ("encoder", "model", "pretraining")
_DEVICES = {"cpu": "CPU", "cuda": "GPU"}
_WIDEST_LIST = 97
"""Columns of the list of presets with all that is in it."""


def show_size(console: Console, report: sizes.SizeReport) -> None:
    """Everything of one architecture."""
    show(console, _architecture(report))
    left, right = _parameters(report), _work(report)
    both = indented(left, right, by=0, gap=6)
    show(console, *((left, right) if console.measure(both).maximum > console.width else (both,)))
    if report.published:
        rows = [(f"  {size.stated}", size.where, size.exact, size.reason) for size in report.published]
        show(console, table("Published", ("  stated", "where", "exact", "counted"), rows, words=(1, 3)))
    console.print(_memory(report))
    _note(console, "CPU: what autograd keeps, tested to the byte. GPU: derived, not measured.")


def _architecture(report: sizes.SizeReport) -> Table:
    settings = [(name, value) for name, value in asdict(report.configuration).items() if value is not None]
    half = (len(settings) + 1) // 2
    left, right = settings[:half], [*settings[half:], ("", "")]
    rows = [(f"  {one[0]}", one[1], f"   {other[0]}", other[1]) for one, other in zip(left, right, strict=False)]
    return table(None, ("",) * 4, rows, words=(0, 2))


def _parameters(report: sizes.SizeReport) -> Table:
    shown = in_millions([4 * report.parameters.pretraining])
    counts, model = report.parameters.by_part(), report.parameters.model
    rows = [
        styled("bold" if name in _SUMS else None, f"  {words}", number, f"{number / model:.1%}", shown(4 * number))
        for name, words in LABELS["parameters"].items()
        if (number := counts[name])
    ]
    if (there := report.transformers_parameters) != model:  # it maps E to H even where they are equal
        rows.append(styled(None, "  model in transformers", there, "", shown(4 * there)))
    return table("Parameters", ("", "", "of model", "MB, fp32"), rows)


def _work(report: sizes.SizeReport) -> Table:
    flops, length = report.flops, report.sequence_length
    shown = in_millions([flops.training])
    rows = [
        *amounts("work", [flops], shown),
        bold("  a token, forward", shown(flops.forward)),
        bold("  forward and backward", shown(flops.training)),
        (f"  {length:,} tokens, forward", shown(length * flops.forward)),
        ("  head, a masked token", shown(flops.masked_language_model_head)),
    ]
    return table("Work", ("", "MFLOPs"), rows)


def _memory(report: sizes.SizeReport) -> Table:
    memory = [*report.memory.values()]
    shown = in_millions(some.training for some in memory)
    rows = [
        bold(f"a sequence of {report.sequence_length:,} tokens"),
        *amounts("activations", memory, shown),
        bold("  training keeps", *(shown(some.training) for some in memory)),
        bold("  inference peaks at", *(shown(some.inference) for some in memory)),
        bold("whatever the batch"),
        ("  weights, gradients, moments", *(shown(report.training_state) for _ in memory)),
        ("  copies of weights, in training", *(shown(some.weight_copies) for some in memory)),
    ]
    columns = (f"{_DEVICES[device]} {precision}" for device, precision in report.memory)
    return table("Memory, MB", ("", *columns), rows)


def show_presets(console: Console) -> None:
    """Every preset, a line each; a narrow terminal shows fewer columns."""
    columns: dict[str, Callable[[str, AlbertConfig], object]] = {
        "E": lambda name, config: str(config.embedding_size),
        "H": lambda name, config: str(config.hidden_size),
        "L": lambda name, config: str(config.num_hidden_layers),
        "A": lambda name, config: str(config.num_attention_heads),
        "sharing": lambda name, config: config.sharing,
        "parameters": lambda name, config: count_parameters(config).model,
        "stated": lambda name, config: next((size.stated for size in sizes.PUBLISHED_SIZES.get(name, ())), ""),
        "MFLOPs": lambda name, config: f"{count_flops(config).forward / 1e6:,.0f}",
    }
    shown = [name for name in columns if console.width >= _WIDEST_LIST or name not in ("A", "stated", "MFLOPs")]
    rows: list[Sequence[object]] = []
    for title, presets in PRESET_GROUPS.items():
        rows.append(bold(title))
        rows += [(f"  {name}", *(columns[each](name, config) for each in shown)) for name, config in presets.items()]
    show(console, table("Presets", ("", *shown), rows))
    meant = {preset: ", ".join(names) for preset in PRESETS if (names := other_names(preset))}
    console.print(facts("Other names", meant))


def other_names(preset: str) -> list[str]:
    """Further names of a preset."""
    return [name for name, meant in PRESET_ALIASES.items() if meant == preset]


def amounts(names: str, counted: Sequence[Any], shown: Callable[[int], str]) -> list[tuple[str, ...]]:
    """A row for each figure that `labels.toml` has under these names, but for those that are nothing everywhere."""
    rows = []
    for name, words in LABELS[names].items():
        numbers = [getattr(each, name) for each in counted]
        if any(numbers):
            rows.append((f"  {words}", *(shown(number) if number else "–" for number in numbers)))
    return rows


# --------------------------------------------------------------------------------------------------------------------
# Two architectures side by side, and what is said of them.


def show_comparison(console: Console, comparison: sizes.Comparison) -> None:
    """Two architectures side by side, then the claims about them."""
    one, other = comparison.one.name, comparison.other.name
    lengths = {comparison.one.sequence_length, comparison.other.sequence_length}
    tokens = f" of {lengths.pop():,} tokens" if len(lengths) == 1 else ""
    titles = {
        "parameters": "parameters",
        "FLOPs a token": "MFLOPs a token",
        "bytes a sequence": f"MB a sequence{tokens}",
        "bytes in all": "MB whatever the batch",
    }
    rows: list[Sequence[object]] = []
    for group, members in itertools.groupby(comparison.figures, key=lambda figure: figure.group):
        figures = list(members)
        in_unit = in_millions(max(figure.one, figure.other) for figure in figures)
        shown = "{:,}".format if group == "parameters" else in_unit
        rows.append(bold(titles[group]))
        for figure in figures:
            ratio = f"1 : {1 / figure.ratio:.2f}" if figure.one <= figure.other else f"{figure.ratio:.2f} : 1"
            change = f"{figure.ratio - 1:+.1%}"
            rows.append((f"  {figure.what}", shown(figure.one), shown(figure.other), ratio, change))
    console.print(table(f"{one} beside {other}", ("", one, other, "ratio", "change"), rows))
    lines: list[Sequence[object]] = []
    for claim in comparison.claims:
        verdict = styled("green", "holds") if claim.holds else styled("red", "does not hold")
        lines.append((*verdict, Text.assemble(f"{claim.of_what}: ", (claim.figure, "bold"))))
        lines.append(("", Text(f"“{claim.quote}” ({claim.source})", "dim")))
        lines += [("", claim.because), ()] if claim.because else [()]
    if lines:
        console.print()
        console.print(facts("What is said of the two", lines))


# --------------------------------------------------------------------------------------------------------------------
# What lies in a directory, as people look at it.

_MATCHES = {True: "every file matches", False: "none: unverified"}
_BELONGS = {True: "the one it was made with", False: "NOT the one it was made with", None: "not recorded"}


def show_model(console: Console, report: inspection.ModelReport, size: sizes.SizeReport) -> None:
    """A model directory: what it is, its tensors, its tokenizer."""
    about: dict[str, object] = {
        "directory": report.directory,
        "architecture": report.architecture,
        "head": report.head + (f" ({len(report.labels)}: {', '.join(report.labels[:6])})" if report.labels else ""),
        "parameters in memory": report.parameters,
        "weights": bytes_of(report.weight_bytes),
        "manifest": _MATCHES[report.verified],
        "shape": "of no preset" if size.preset is None else f"that of {size.preset}" + ", but for" * bool(size.differs),
    }
    for field, (own, of_preset) in size.differs.items():
        about[f"  {field}"] = f"{own}, {size.preset} has {of_preset}"
    if size.remark:
        about["remark"] = size.remark
    show(console, facts(size.name, about), facts("Tensors", _tensors(report)), _tokenizer(report.tokenizer))
    if report.other_keys:
        show(console, facts("Other keys of config.json", report.other_keys))


def _tensors(report: inspection.ModelReport) -> dict[str, object]:
    found = report.tensors
    named = {
        "random, train them first": found.newly_initialised,
        "in the file, not used": found.unexpected,
        "in the file but not needed": found.dropped,
    }
    lines: dict[str, object] = {}
    for words, names in named.items():
        shown = ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
        lines[words] = f"{len(names)}: {shown}" if names else "none"
    return lines | ({"doubtful": "; ".join(found.notes)} if found.notes else {})


def _tokenizer(report: inspection.TokenizerReport | None) -> Table:
    if report is None:
        return facts("Tokenizer", {"none": "the directory holds no vocabulary"})
    about = asdict(report) | {"belongs": _BELONGS[report.belongs]}
    return facts("Tokenizer", {name.replace("_", " "): value for name, value in about.items()})


def show_corpus(console: Console, report: inspection.CorpusReport) -> None:
    """A prepared corpus."""
    said = report.description
    dropped = sum(said.documents_dropped.values())
    about: dict[str, object] = {
        "directory": report.directory,
        "manifest": _MATCHES[report.verified],
        "sources": f"{len(said.sources):,} files, {bytes_of(sum(source.bytes for source in said.sources))}",
        "documents read": f"{said.documents_in:,}, {bytes_of(said.bytes_in)}",
        "documents dropped": f"{dropped:,} " + " ".join(f"({n:,} {why})" for why, n in said.documents_dropped.items()),
        "sentences dropped": said.sentences_dropped,
        "language": said.language,
        "tokens are": said.token_type,
        "held out": f"{said.held_out_share:.1%}, seed {said.seed}",
        "made with": ", ".join(f"{name} {version}" for name, version in said.versions.items()),
    }
    rows = [
        (f"  {split}", len(said.shards[split]), counts.documents, counts.sentences, counts.tokens)
        for split, counts in said.counts.items()
    ]
    splits = table("Splits", ("", "shards", "documents", "sentences", "tokens"), rows)
    show(console, facts(str(report.directory), about), splits, _tokenizer(report.tokenizer))


def show_self_check(console: Console, check: inspection.SelfCheck) -> None:
    """What a model makes of masked words under each setting."""
    rows = [
        styled(
            "bold" if setting is check.best else None,
            f"  {setting.hidden_act}{' (stated)' if setting.stated else ''}",
            setting.num_attention_heads,
            f"{setting.loss:.3f}",
            f"{setting.accuracy:.1%}",
            f"{setting.excess:.3f} ± {setting.excess_error:.3f}",
        )
        for setting in check.settings
    ]
    title = f"Self-check: {check.masked_tokens:,} masked tokens of a fixed text"
    console.print(table(title, ("", "heads", "loss", "right", "above the best"), rows))
    console.print(f"  {check.verdict}.\n", soft_wrap=False)


# --------------------------------------------------------------------------------------------------------------------
# The memory of a training step as a table, and sizes as people write them.

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt])(i?)b", re.IGNORECASE)


def bytes_from(option: str, size: str) -> int:
    """Bytes of a size as it is written: 24GB, 22.5 GiB, 800MB; raises UsageError."""
    written = _SIZE.fullmatch(size.strip())
    if written is None:
        raise UsageError(option, f"{size!r} is not a valid size", "write it as 24GB or 800MB")
    power = 1 + "kmgt".index(written[2].lower())
    return int(float(written[1]) * (1024 if written[3] else 1000) ** power)


def show_memory_plan(console: Console, plan: sizes.MemoryPlan, layers: int) -> None:
    """A training step at its peak, with and without activation checkpointing, of a model that applies so many
    layers."""
    both = (plan.all_kept, plan.checkpointed)
    shown = in_millions(some.peak for some in both)
    rows = [
        bold("whatever the batch"),
        *amounts("whatever_the_batch", both, shown),
        bold("of the batch"),
        (f"  {layers} layers", *(shown(some.layers) for some in both)),
        styled("dim", "  each of them", *(shown(some.layers / layers) for some in both)),
        *amounts("of_the_batch", both, shown),
        bold("at the peak", *(shown(some.peak) for some in both)),
    ]
    if plan.limit is not None:
        largest = f"largest micro-batch in {bytes_of(plan.limit)}"
        rows.append(bold(largest, plan.largest_batch, plan.largest_batch_checkpointed))
    title = f"A training step of {plan.batch_size:,} × {plan.sequence_length:,} tokens, MB"
    console.print(table(title, ("", "all kept", "checkpointing"), rows))
    about = f"{_DEVICES[plan.device]}, {plan.precision}, {plan.optimizer}; {plan.masked_tokens:,} masked tokens a "
    _note(console, f"{about}sequence; {plan.flops / 1e12:,.3g} TFLOPs of use forward and backward")


MEASURED_LENGTH = 128
PLANNED_SEQUENCES = 32
"""As recipes have it (`PretrainingRecipe.micro_batch_size`)."""


def run(args: Info) -> int:
    """Run `albert info`."""
    _refuse_what_does_not_go_together(args)
    said = describe(args, open_console(soft_wrap=False, quiet=args.json))
    if args.json:
        print(json.dumps(to_json(said), ensure_ascii=False))
    return 0


def describe(args: Info, console: Console) -> dict[str, Any]:
    """Show what is asked for, and return it as plain values.

    Raises:
        MissingInput, Unavailable: there is nothing of that name.
        DamagedData: it does not match its manifest.
        UsageError: an option goes with another kind of thing.
        OutOfResources: too large to be measured here.
    """
    if args.what is None:
        return _machine(console)
    found = find(args.what, args.revision)
    if found.config is None:
        _refuse_options(args, found, "compare", "measure", "memory", "self_check", "max_length")
        return _data(found, console)
    if found.kind == "preset":
        _refuse_options(args, found, "self_check", "revision")
    architectures = {found.name: found.config}
    if args.compare is not None:
        other = find(args.compare)
        if other.config is None:
            raise UsageError("--compare", f"{args.compare} is a {other.kind}, an architecture is needed")
        architectures[other.name] = other.config
    length = _length(args, architectures.values(), MEASURED_LENGTH) if args.measure else 0
    # What may be refused comes before anything is shown.
    plan = _plan(args, found.config) if args.memory else None
    check = inspection.check_settings(found.directory, device=args.device) if args.self_check else None
    reports = [sizes.size_report(name, config, args.max_length) for name, config in architectures.items()]
    said = _described(found, reports if args.compare is None else [reports[0], reports[-1]], console)
    if check is not None:
        show_self_check(console, check)
        said["self_check"] = {**asdict(check), "verdict": check.verdict}
    if plan is not None:
        console.print()
        show_memory_plan(console, plan, len(sharing_plan(found.config)))
        said["memory_plan"] = plan.to_json()
    if args.measure:
        said["measured"] = _measure(args, architectures, length, console)
    return said


def _described(found: Found, reports: list[sizes.SizeReport], console: Console) -> dict[str, Any]:
    """A preset, a model, or two of them side by side."""
    report, *others = reports
    if others:
        comparison = sizes.Comparison(report, others[0])
        show_comparison(console, comparison)
        return {"kind": "comparison", **comparison.to_json()}
    said: dict[str, Any] = {"kind": found.kind}
    if found.kind == "preset":
        group = next(title for title, presets in PRESET_GROUPS.items() if report.name in presets)
        also = ", ".join(other_names(report.name))
        console.print(in_bold(report.name, f"   {group}"))
        say(console, *(f"  {line}" for line in (also and f"also {also}", report.remark) if line), "")
    else:
        model = inspection.model_report(found.directory)
        show_model(console, model, report)
        said["model"] = model.to_json()
    show_size(console, report)
    return said | report.to_json()


def _machine(console: Console) -> dict[str, Any]:
    machine = {"albert": __version__, **describe_machine()}
    show(console, facts("This machine", machine))
    show_presets(console)
    console.print("\nalbert info NAME shows all of one, --compare OTHER compares two.")
    presets = {
        name: {"configuration": asdict(config), "parameters": count_parameters(config).model}
        for name, config in PRESETS.items()
    }
    return {"kind": "machine", "machine": machine, "presets": presets, "other_names": PRESET_ALIASES}


def _data(found: Found, console: Console) -> dict[str, Any]:
    if found.kind == "corpus":
        corpus = inspection.corpus_report(found.directory)
        show_corpus(console, corpus)
        return {"kind": "corpus", **corpus.to_json()}
    tokenizer = inspection.tokenizer_report(found.directory)
    show(console, _tokenizer(tokenizer))
    return {"kind": "tokenizer", "directory": str(found.directory), "tokenizer": to_json(tokenizer)}


def _length(args: Info, configs: Iterable[AlbertConfig], default: int | None = None) -> int:
    longest = min(config.max_position_embeddings for config in configs)
    length = min(default or longest, longest) if args.max_length is None else args.max_length
    if length > longest:
        raise UsageError("--max-length", f"is {length}, the model has {longest} positions")
    return length


def _measure(args: Info, architectures: dict[str, AlbertConfig], length: int, console: Console) -> dict[str, Any]:
    device = pick_device(args.device)
    precision = default_precision(device) if args.precision == "auto" else args.precision
    measurement = sizes.measure_throughput(
        architectures, sequence_length=length, batch_size=args.batch_size, device=device, precision=precision
    )
    show_throughput(console, measurement)
    return asdict(measurement)


def _plan(args: Info, config: AlbertConfig) -> sizes.MemoryPlan:
    limit = None if args.memory_limit is None else bytes_from("--memory-limit", args.memory_limit)
    length = _length(args, [config])
    elsewhere = args.device == "cuda" and not torch.cuda.is_available()
    device = torch.device("cuda") if elsewhere else pick_device(args.device)
    precision = args.precision
    if precision == "auto":
        precision = "bf16" if elsewhere else default_precision(device)
    return sizes.MemoryPlan(
        config=config,
        batch_size=PLANNED_SEQUENCES if args.batch_size is None else args.batch_size,
        sequence_length=length,
        device="cuda" if device.type == "cuda" else "cpu",
        precision=precision,
        optimizer=args.optimizer,
        limit=free_memory(device) if limit is None and not elsewhere else limit,
    )


def _refuse_what_does_not_go_together(args: Info) -> None:
    check_at_least(args, 1, "max_length", "batch_size")
    if args.batch_size is not None and not (args.measure or args.memory):
        raise UsageError("--batch-size", "requires --measure or --memory", "add one of them")
    if args.memory_limit is not None and not args.memory:
        raise UsageError("--memory-limit", "requires --memory", "add --memory")
    if args.memory and args.compare is not None:
        raise UsageError("--memory", "cannot be combined with --compare", "leave out --compare")
    if args.what is None and (given := flags_set(args, "compare", "measure", "memory")):
        raise UsageError(given[0], "needs a model or preset before it", "see albert info --help")


def _refuse_options(args: Info, found: Found, *options: str) -> None:
    if given := flags_set(args, *options):
        raise UsageError(given[0], f"goes with a model, {found.name} is a {found.kind}", "see albert info --help")


def show_throughput(console: Console, measurement: sizes.Measurement) -> None:
    """Show speeds, and how they were measured."""
    first = next(iter(measurement.results.values()))
    where = f"{_DEVICES[measurement.device]}, {measurement.precision}"
    if measurement.device == "cpu":
        where += f", {measurement.threads} thread{'s' if measurement.threads > 1 else ''}"
    batch = f"{first.batch_size} × {first.sequence_length} tokens"
    how = f": {where}, {batch}, medians of {first.rounds} rounds, random weights"
    console.print(in_bold("Measured here", how))
    several = len(measurement.results) > 1
    rows = [
        (
            f"  {name}, {kind}" if several else f"  {kind}",
            *(f"{number / seconds:,.1f}" for number in (found.tokens, found.batch_size)),
            f"{seconds:,.3f} s",
        )
        for name, found in measurement.results.items()
        for kind, seconds in (("inference", found.inference_seconds), ("training step", found.training_seconds))
    ]
    console.print(table(None, ("", "tokens/s", "sequences/s", "a batch"), rows))
    _note(console, "inference: the encoder forward; training step: forward, both losses, backward, LAMB")


def _note(console: Console, text: str) -> None:
    console.print(indented(Text(text, "dim"), by=2))
