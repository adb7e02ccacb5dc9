"""`albert info`: what a preset, a model, a prepared corpus or this machine is."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import torch
from rich.console import Console

from albert import __version__
from albert.cli.comparison_tables import show_comparison
from albert.cli.console import open_console
from albert.cli.directory_tables import show_corpus, show_model, show_self_check, show_tokenizer
from albert.cli.info_options import Info
from albert.cli.light_tables import facts
from albert.cli.memory_tables import bytes_from, show_memory_plan
from albert.cli.named_things import Found, find
from albert.cli.size_tables import group_of, other_names, show_presets, show_size
from albert.experiments.directory_reports import corpus_report, model_report, tokenizer_report
from albert.experiments.memory_plan import MemoryPlan, memory_plan
from albert.experiments.size_report import SizeReport, compare, size_report
from albert.inference.self_check import check_settings
from albert.model.config import AlbertConfig
from albert.model.parameter_count import count_parameters
from albert.model.parameter_sharing import sharing_plan
from albert.model.presets import OTHER_NAMES, PRESETS
from albert.runtime.devices import default_precision, describe_machine, pick_device
from albert.runtime.errors import UsageError
from albert.runtime.free_memory import free_memory
from albert.runtime.late_modules import load_by_name
from albert.runtime.strict_json import to_json

MEASURED_LENGTH = 128
PLANNED_SEQUENCES = 32
"""As recipes have it (`PretrainingRecipe.micro_batch_size`)."""


def run(asked: Info) -> int:
    """Run `albert info`."""
    _refuse_what_does_not_go_together(asked)
    said = describe(asked, open_console(soft_wrap=False, quiet=asked.json))
    if asked.json:
        print(json.dumps(to_json(said), ensure_ascii=False))
    return 0


def describe(asked: Info, console: Console) -> dict[str, Any]:
    """Show what is asked for, and return it as plain values.

    Raises:
        MissingInput, Unavailable: there is nothing of that name.
        DamagedData: it does not match its manifest.
        UsageError: an option goes with another kind of thing.
        OutOfResources: too large to be measured here.
    """
    if asked.what is None:
        return _machine(console)
    found = find(asked.what, asked.revision)
    if found.config is None:
        _refuse_options(asked, found, "compare", "measure", "memory", "self_check", "sequence_length")
        return _data(found, console)
    if found.kind == "preset":
        _refuse_options(asked, found, "self_check", "revision")
    architectures = {found.name: found.config}
    if asked.compare is not None:
        other = find(asked.compare)
        if other.config is None:
            raise UsageError("--compare", f"{asked.compare} is a {other.kind}, an architecture is needed")
        architectures[other.name] = other.config
    length = _measured_length(asked, architectures.values()) if asked.measure else 0
    # What may be refused comes before anything is shown.
    plan = _plan(asked, found.config) if asked.memory else None
    check = check_settings(found.directory, device=asked.device) if asked.self_check else None
    reports = [size_report(name, config, asked.sequence_length) for name, config in architectures.items()]
    said = _one(found, reports[0], console) if asked.compare is None else _two(reports[0], reports[-1], console)
    if check is not None:
        show_self_check(console, check)
        said["self_check"] = {**asdict(check), "verdict": check.verdict}
    if plan is not None:
        console.print()
        show_memory_plan(console, plan, len(sharing_plan(found.config)))
        said["memory_plan"] = plan.to_json()
    if asked.measure:
        said["measured"] = _measure(asked, architectures, length, console)
    return said


def _one(found: Found, report: SizeReport, console: Console) -> dict[str, Any]:
    if found.kind == "preset":
        _show_heading(console, report)
        show_size(console, report)
        return {"kind": "preset", **report.to_json()}
    model = model_report(found.directory)
    show_model(console, model, report)
    show_size(console, report)
    return {"kind": "model", "model": model.to_json(), **report.to_json()}


def _two(one: SizeReport, other: SizeReport, console: Console) -> dict[str, Any]:
    comparison = compare(one, other)
    show_comparison(console, comparison)
    return {"kind": "comparison", **comparison.to_json()}


def _machine(console: Console) -> dict[str, Any]:
    machine = {"albert": __version__, **describe_machine()}
    console.print(facts("This machine", machine))
    console.print()
    show_presets(console)
    console.print(
        "\n[bold]albert info NAME[/bold] tells all of one, [bold]--compare OTHER[/bold] sets two side by side."
    )
    presets = {
        name: {"configuration": asdict(config), "parameters": count_parameters(config).model}
        for name, config in PRESETS.items()
    }
    return {"kind": "machine", "machine": machine, "presets": presets, "other_names": OTHER_NAMES}


def _data(found: Found, console: Console) -> dict[str, Any]:
    if found.kind == "corpus":
        corpus = corpus_report(found.directory)
        show_corpus(console, corpus)
        return {"kind": "corpus", **corpus.to_json()}
    tokenizer = tokenizer_report(found.directory)
    show_tokenizer(console, tokenizer)
    return {"kind": "tokenizer", "directory": str(found.directory), "tokenizer": to_json(tokenizer)}


def _measured_length(asked: Info, configs: Iterable[AlbertConfig]) -> int:
    longest = min(config.max_position_embeddings for config in configs)
    length = min(MEASURED_LENGTH, longest) if asked.sequence_length is None else asked.sequence_length
    if length > longest:
        raise UsageError("--sequence-length", f"is {length}, the model has {longest} positions")
    return length


def _measure(asked: Info, architectures: dict[str, AlbertConfig], length: int, console: Console) -> dict[str, Any]:
    device = pick_device(asked.device)
    measurement = load_by_name("albert.cli.throughput_table").show_throughput(
        console,
        architectures,
        sequence_length=length,
        batch_size=asked.batch_size,
        device=device,
        precision=default_precision(device) if asked.precision == "auto" else asked.precision,
    )
    return asdict(measurement)


def _plan(asked: Info, config: AlbertConfig) -> MemoryPlan:
    limit = None if asked.memory_limit is None else bytes_from("--memory-limit", asked.memory_limit)
    longest = config.max_position_embeddings
    length = longest if asked.sequence_length is None else asked.sequence_length
    if length > longest:
        raise UsageError("--sequence-length", f"is {length}, the model has {longest} positions")
    elsewhere = asked.device == "cuda" and not torch.cuda.is_available()
    device = torch.device("cuda") if elsewhere else pick_device(asked.device)
    precision = asked.precision
    if precision == "auto":
        precision = "bf16" if elsewhere else default_precision(device)
    return memory_plan(
        config,
        batch_size=PLANNED_SEQUENCES if asked.batch_size is None else asked.batch_size,
        sequence_length=length,
        device="cuda" if device.type == "cuda" else "cpu",
        precision=precision,
        optimizer=asked.optimizer,
        limit=free_memory(device) if limit is None and not elsewhere else limit,
    )


def _show_heading(console: Console, report: SizeReport) -> None:
    console.print(f"[bold]{report.name}[/bold]   {group_of(report.name)}")
    if names := other_names(report.name):
        console.print(f"  also {', '.join(names)}")
    if report.remark:
        console.print(f"  {report.remark}")
    console.print()


def _refuse_what_does_not_go_together(asked: Info) -> None:
    for option, value in (("--sequence-length", asked.sequence_length), ("--batch-size", asked.batch_size)):
        if value is not None and value < 1:
            raise UsageError(option, f"is {value}, at least 1 is needed")
    if asked.batch_size is not None and not (asked.measure or asked.memory):
        raise UsageError("--batch-size", "is of what is measured or planned", "add --measure or --memory")
    if asked.memory_limit is not None and not asked.memory:
        raise UsageError("--memory-limit", "is of a plan", "add --memory")
    if asked.memory and asked.compare is not None:
        raise UsageError("--memory", "plans for one model", "leave out --compare")
    if asked.what is None:
        for option in ("--compare", "--measure", "--memory"):
            if getattr(asked, option.removeprefix("--")):
                raise UsageError(option, "needs a model or preset before it", "see albert info --help")


def _refuse_options(asked: Info, found: Found, *options: str) -> None:
    for option in options:
        if getattr(asked, option):
            flag = f"--{option.replace('_', '-')}"
            raise UsageError(flag, f"goes with a model, {found.name} is a {found.kind}", "see albert info --help")
