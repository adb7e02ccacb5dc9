"""What `albert info` finds by a name and prints: presets, models, corpora and this machine; memory and speed."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from albert import __version__
from albert.checkpoints.config_json import CONFIG_NAME, read_config
from albert.checkpoints.hub import find_model
from albert.cli.render import (
    LABELS,
    bold,
    bold_prefix,
    in_millions,
    indented,
    key_value_table,
    print_lines,
    show,
    styled,
    table,
)
from albert.inference import inspection
from albert.model import sizes
from albert.model.cost import count_flops, count_parameters
from albert.model.sharing import sharing_plan
from albert.recipes.architecture import (
    PRESET_ALIASES,
    PRESET_GROUPS,
    PRESETS,
    EncoderConfig,
    preset_name,
)
from albert.runtime.devices import default_precision, describe_machine, pick_device, precision_advice
from albert.runtime.errors import AlbertError, did_you_mean
from albert.runtime.json_files import to_json
from albert.runtime.words import bytes_of, counted
from albert.text.shards import DESCRIPTION_NAME
from albert.text.tokenizer_loading import vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# What a name stands for.


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """A preset or a directory. Presets have no directory; only presets and models have a configuration."""

    kind: Literal["preset", "model", "corpus", "tokenizer"]
    name: str
    directory: Path = Path()
    config: EncoderConfig | None = None


def resolve(name: str) -> Resolved:
    """The directory, preset or Hub repository of a name, in this order."""
    path = Path(name)
    preset = None if path.is_dir() else preset_name(name)
    if preset is not None:
        return Resolved(kind="preset", name=preset, config=PRESETS[preset])
    if (path / DESCRIPTION_NAME).is_file():
        return Resolved(kind="corpus", name=name, directory=path)
    try:
        directory = find_model(name)
    except AlbertError as error:
        if path.exists():
            raise
        nearest = did_you_mean(name, [*PRESETS, *PRESET_ALIASES])
        if (error.remedy or "").startswith("did you mean"):
            nearest = str(error.remedy)
        remedy = nearest if nearest.startswith("did") else "`albert info` lists the presets"
        raise type(error)(error.subject, f"is not a preset; {error.why}", remedy) from error
    if not (directory / CONFIG_NAME).is_file() and vocabulary_file(directory).is_file():
        return Resolved(kind="tokenizer", name=name, directory=directory)
    return Resolved(kind="model", name=name, directory=directory, config=read_config(directory)[0])


# --------------------------------------------------------------------------------------------------------------------
# Sizes: the list of presets, and the details of one architecture.

_SUMS = ("encoder", "model", "pretraining")
_DEVICES = {"cpu": "CPU", "cuda": "GPU"}
_WIDEST_LIST = 97
"""Width of the complete list of presets."""


def show_size(console: Console, report: sizes.SizeReport, model: inspection.ModelReport | None = None) -> None:
    """Print all figures of one architecture; of a model directory with the heads that it has."""
    config = report.configuration
    settings = {name: value for name, value in asdict(config).items() if value is not None}
    if config.sharing != "all":  # groups of layers go with it
        del settings["num_hidden_groups"], settings["inner_group_num"]
    elif config.num_hidden_layers > 1 and len(set(sharing_plan(config))) == config.num_hidden_layers:
        settings["sharing"] = "all layers of a group, which is one layer: none are shared"
    parameters = _parameters(report) if model is None else _parameters_of_model(report, model)
    fills_masks = model is None or "masked-token head" in model.head_parameters
    show(console, key_value_table(None, settings), parameters, _work(report, fills_masks))
    if report.published:
        rows = [(f"  {size.stated}", size.where, size.exact, size.reason) for size in report.published]
        show(console, table("Published", ("  stated", "where", "exact", "counted"), rows, words=(1, 3)))


def _parameters(report: sizes.SizeReport) -> Table:
    megabytes = in_millions([4 * report.parameters.pretraining])
    counts = report.parameters.by_part()
    model = report.parameters.model
    rows = [
        styled("bold" if name in _SUMS else None, f"  {label}", count, f"{count / model:.1%}", megabytes(4 * count))
        for name, label in LABELS["parameters"].items()
        if (count := counts[name])
    ]
    if (count := report.transformers_parameters) != model:  # it maps E to H even if they are equal
        rows.append(styled(None, "  model in transformers", count, "", megabytes(4 * count)))
    return table("Parameters", ("", "", "of model", "MB, fp32"), rows)


def _parameters_of_model(report: sizes.SizeReport, model: inspection.ModelReport) -> Table:
    """The parameters of a model directory: its pooler if it has one, and its own heads."""
    counts = report.parameters.by_part()
    left_out = ["masked_language_model_head", "sentence_order_head", "pretraining"]
    in_transformers = report.transformers_parameters
    size = counts["model"]
    if not model.has_pooler:
        left_out += ["pooler", "model"]
        in_transformers -= counts["pooler"]
        size = counts["encoder"]
    heads = model.head_parameters
    total = size + sum(heads.values())
    megabytes = in_millions([4 * total])

    def row(style: str | None, label: str, count: int) -> Sequence[object]:
        return styled(style, f"  {label}", count, f"{count / size:.1%}", megabytes(4 * count))

    rows = [
        row("bold" if name in _SUMS else None, label, counts[name])
        for name, label in LABELS["parameters"].items()
        if name not in left_out and counts[name]
    ]
    rows += [row(None, label, count) for label, count in heads.items()]
    if heads:
        rows.append(row("bold", "with its head" if len(heads) == 1 else "with both heads", total))
    if in_transformers != size:  # it maps E to H even if they are equal
        rows.append(styled(None, "  model in transformers", in_transformers, "", megabytes(4 * in_transformers)))
    return table("Parameters", ("", "", "of model", "MB, fp32"), rows)


def _work(report: sizes.SizeReport, fills_masks: bool) -> Table:
    flops = report.flops
    length = report.sequence_length
    millions = in_millions([flops.training])
    rows = [
        *amounts("work", [flops], millions),
        bold("  a token, forward", millions(flops.forward)),
        bold("  forward and backward", millions(flops.training)),
        (f"  {length:,} tokens, forward", millions(length * flops.forward)),
    ]
    if fills_masks:
        rows.append(("  head, a masked token", millions(flops.masked_language_model_head)))
    return table("Work", ("", "MFLOPs"), rows)


def show_presets(console: Console) -> None:
    """Print a line for each preset, with fewer columns on narrow terminals."""
    columns: dict[str, Callable[[str, EncoderConfig], object]] = {
        "E": lambda name, config: str(config.embedding_size),
        "H": lambda name, config: str(config.hidden_size),
        "L": lambda name, config: str(config.num_hidden_layers),
        "A": lambda name, config: str(config.num_attention_heads),
        "sharing": lambda name, config: config.sharing,
        "parameters": lambda name, config: count_parameters(config).model,
        "stated": lambda name, config: next((size.stated for size in sizes.PUBLISHED_SIZES.get(name, ())), ""),
        "MFLOPs": lambda name, config: f"{count_flops(config).forward / 1e6:,.0f}",
    }
    chosen = [name for name in columns if console.width >= _WIDEST_LIST or name not in ("A", "stated", "MFLOPs")]
    rows: list[Sequence[object]] = []
    for title, presets in PRESET_GROUPS.items():
        rows.append(bold(title))
        rows += [(f"  {name}", *(columns[each](name, config) for each in chosen)) for name, config in presets.items()]
    show(console, table("Presets", ("", *chosen), rows))
    aliases = {preset: ", ".join(names) for preset in PRESETS if (names := aliases_of(preset))}
    console.print(key_value_table("Other names", aliases))


def aliases_of(preset: str) -> list[str]:
    """Other names of a preset."""
    return [alias for alias, name in PRESET_ALIASES.items() if name == preset]


def amounts(section: str, sources: Sequence[Any], form: Callable[[int], str]) -> list[tuple[str, ...]]:
    """A row for each field in a section of `labels.toml`, with its value in each source; rows of zeros are left out."""
    rows = []
    for name, label in LABELS[section].items():
        numbers = [getattr(source, name) for source in sources]
        if any(numbers):
            rows.append((f"  {label}", *(form(number) if number else "–" for number in numbers)))
    return rows


def show_machine(console: Console) -> dict[str, Any]:
    """Print this machine and the list of presets; returns them as plain values."""
    machine = {"albert": __version__, **describe_machine()}
    device = pick_device()
    advice = precision_advice(device)
    machine["answers"] = f"in {default_precision(device)}" if advice is None else f"in fp32; faster: {advice}"
    shown = {"products in fp32 by" if name == "fp32_products" else name: value for name, value in machine.items()}
    show(console, key_value_table("This machine", shown))
    show_presets(console)
    console.print("\nalbert info NAME shows the details of one, --compare OTHER compares two.")
    presets = {
        name: {"configuration": asdict(config), "parameters": count_parameters(config).model}
        for name, config in PRESETS.items()
    }
    return {"kind": "machine", "machine": machine, "presets": presets, "other_names": PRESET_ALIASES}


def show_preset(console: Console, report: sizes.SizeReport) -> None:
    """Print the head line of a preset."""
    group = next(title for title, presets in PRESET_GROUPS.items() if report.name in presets)
    aliases = ", ".join(aliases_of(report.name))
    console.print(bold_prefix(report.name, f"   {group}"))
    print_lines(console, *(f"  {line}" for line in (aliases and f"also {aliases}", report.remark) if line), "")


# --------------------------------------------------------------------------------------------------------------------
# Two architectures side by side.


def show_comparison(console: Console, comparison: dict[str, Any]) -> None:
    """Print two architectures side by side; see `sizes.compare`."""
    sides = comparison["one"], comparison["other"]
    first, second = (side["name"] for side in sides)
    titles = {"parameters": "parameters", "FLOPs a token": "MFLOPs a token"}
    rows: list[Sequence[object]] = []
    for group, members in itertools.groupby(comparison["figures"], key=lambda figure: figure["group"]):
        figures = list(members)
        millions = in_millions(max(figure["one"], figure["other"]) for figure in figures)
        form = "{:,}".format if group == "parameters" else millions
        rows.append(bold(titles[group]))
        for figure in figures:
            one = figure["one"]
            other = figure["other"]
            ratio = figure["ratio"]
            shown = f"1 : {1 / ratio:.2f}" if one <= other else f"{ratio:.2f} : 1"
            rows.append((f"  {figure['what']}", form(one), form(other), shown, f"{ratio - 1:+.1%}"))
    console.print(table(f"{first} beside {second}", ("", first, second, "ratio", "change"), rows))


# --------------------------------------------------------------------------------------------------------------------
# Contents of a directory.

_MATCHES = {True: "every file matches", False: "none: unverified"}
_MADE_WITH = {True: "yes", False: "NO, with another one", None: "not recorded"}


def show_model(console: Console, report: inspection.ModelReport, size: sizes.SizeReport) -> None:
    """Print the architecture, tensors and tokenizer of a model directory."""
    about: dict[str, object] = {
        "directory": report.directory,
        "family": report.family,
        "architecture": report.architecture,
        "head": report.head + (f" ({len(report.labels)}: {', '.join(report.labels[:6])})" if report.labels else ""),
        "parameters in memory": report.parameters,
        "weights": bytes_of(report.weight_bytes),
        "manifest": _MATCHES[report.verified],
        "shape": "of no preset" if size.preset is None else f"that of {size.preset}" + ", except" * bool(size.differs),
    }
    if (vectors := report.sentence_vectors) is not None:
        prompts = f", prompts {', '.join(vectors.prompts)}" if vectors.prompts else ""
        length = "" if vectors.max_length is None else f", texts of at most {vectors.max_length} tokens"
        scaled = ", of length 1" if vectors.normalize else ""
        dense = "".join(f", {each.in_features} to {each.out_features} by {each.activation}" for each in vectors.dense)
        about["vectors"] = f"by pooling {vectors.pooling}{dense}{scaled}{length}{prompts}"
    for field, (own, of_preset) in size.differs.items():
        about[f"  {field}"] = f"{own}, {size.preset} has {of_preset}"
    if size.remark:
        about["remark"] = size.remark
    show(
        console,
        key_value_table(size.name, about),
        key_value_table("Tensors", _tensors(report)),
        _tokenizer(report.tokenizer),
    )
    if report.other_keys:
        show(console, key_value_table("Other keys of config.json", report.other_keys))


def _tensors(report: inspection.ModelReport) -> dict[str, object]:
    groups = {
        "random, train them first": report.tensors.newly_initialised,
        "in the file, not used": report.tensors.unexpected,
        "in the file but not needed": report.tensors.dropped,
    }
    lines: dict[str, object] = {}
    for label, names in groups.items():
        first = ", ".join(names[:4]) + (" ..." if len(names) > 4 else "")
        lines[label] = f"{len(names)}: {first}" if names else "none"
    return lines | ({"notes": "; ".join(report.tensors.notes)} if report.tensors.notes else {})


def show_tokenizer(console: Console, directory: Path) -> dict[str, Any]:
    """Print what a directory with a vocabulary alone holds; returns it as plain values."""
    report = inspection.tokenizer_report(directory)
    show(console, _tokenizer(report))
    return {"directory": str(directory), "tokenizer": to_json(report)}


def _tokenizer(report: inspection.TokenizerReport | None) -> Table:
    if report is None:
        return key_value_table("Tokenizer", {"none": "the directory contains no vocabulary"})
    about = {name.replace("_", " "): value for name, value in asdict(report).items() if name != "belongs"}
    return key_value_table("Tokenizer", {**about, "the directory was made with it": _MADE_WITH[report.belongs]})


def show_corpus(console: Console, directory: Path) -> dict[str, Any]:
    """Print the figures of a prepared corpus; returns them as JSON values under stable names."""
    description, verified, tokenizer = inspection.corpus_report(directory)
    dropped = sum(description.documents_dropped.values())
    source_bytes = sum(source.bytes for source in description.sources)
    about: dict[str, object] = {
        "directory": directory,
        "manifest": _MATCHES[verified],
        "sources": f"{counted(len(description.sources), 'files')}, {bytes_of(source_bytes)}",
        "documents read": f"{description.documents_in:,}, {bytes_of(description.bytes_in)}",
        "documents dropped": f"{dropped:,} "
        + " ".join(f"({count:,} {reason})" for reason, count in description.documents_dropped.items()),
        "sentences dropped": description.sentences_dropped,
        "language": description.language,
        "tokens are": description.token_type,
        "asked to hold out": f"{description.held_out_share:.1%} of the documents, seed {description.seed}",
        "made with": ", ".join(f"{name} {version}" for name, version in description.versions.items()),
    }
    rows = [
        (f"  {split}", len(description.shards[split]), counts.documents, counts.sentences, counts.tokens)
        for split, counts in description.counts.items()
    ]
    splits = table("Splits", ("", "shards", "documents", "sentences", "tokens"), rows)
    show(console, key_value_table(str(directory), about), splits, _tokenizer(tokenizer))
    shards = {split: len(shards) for split, shards in description.shards.items()}
    corpus = to_json(description) | {"sources": len(description.sources), "shards": shards}
    return {"directory": str(directory), "verified": verified, "corpus": corpus, "tokenizer": to_json(tokenizer)}


def show_self_check(console: Console, check: inspection.SelfCheck) -> None:
    """Print the loss on masked words under each setting."""
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
# The memory of a training step.


def show_memory_plan(console: Console, plan: dict[str, Any], layers: int) -> None:
    """Print the peak memory of a training step with and without activation checkpointing; see `sizes.memory_plan`."""
    both = (plan["all_kept"], plan["checkpointed"])
    megabytes = in_millions(memory.peak for memory in both)
    rows = [
        bold("independent of the batch"),
        *amounts("independent_of_batch", both, megabytes),
        bold("of the batch"),
        (f"  {layers} layers", *(megabytes(memory.layers) for memory in both)),
        styled("dim", "  each of them", *(megabytes(memory.layers / layers) for memory in both)),
        *amounts("of_the_batch", both, megabytes),
        bold("at the peak", *(megabytes(memory.peak) for memory in both)),
    ]
    if plan["limit"] is not None:
        largest = f"largest micro-batch in {bytes_of(plan['limit'])}"
        rows.append(bold(largest, plan["largest_batch"], plan["largest_batch_checkpointed"]))
    title = f"A training step of {plan['batch_size']:,} × {plan['sequence_length']:,} tokens, MB"
    console.print(table(title, ("", "all kept", "checkpointing"), rows))
    about = f"{_DEVICES[plan['device']]}, {plan['precision']}, LAMB; {plan['masked_tokens']:,} masked "
    _note(
        console,
        f"{about}tokens a sequence; {plan['flops'] / 1e12:,.3g} TFLOPs forward and backward, without recomputation",
    )


def show_throughput(console: Console, measurement: Any) -> None:
    """Print speeds, and how they were measured."""
    first = next(iter(measurement.results.values()))
    where = f"{_DEVICES[measurement.device]}, {measurement.precision}"
    if measurement.device == "cpu":
        where += f", {measurement.threads} thread{'s' if measurement.threads > 1 else ''}"
    batch = f"{first.batch_size} × {first.sequence_length} tokens"
    how = f": {where}, {batch}, medians of {first.rounds} rounds, random weights"
    console.print(bold_prefix("Measured here", how))
    several = len(measurement.results) > 1
    rows = [
        (
            f"  {name}, {kind}" if several else f"  {kind}",
            *(f"{number / seconds:,.1f}" for number in (result.tokens, result.batch_size)),
            f"{seconds:,.3f} s",
        )
        for name, result in measurement.results.items()
        for kind, seconds in (("inference", result.inference_seconds), ("training step", result.training_seconds))
    ]
    console.print(table(None, ("", "tokens/s", "sequences/s", "a batch"), rows))
    _note(console, "inference: the encoder forward; training step: forward, both losses, backward, LAMB")


def _note(console: Console, text: str) -> None:
    console.print(indented(Text(text, "dim"), by=2))
