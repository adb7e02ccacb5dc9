"""`albert info`: a preset, a model, a corpus or this machine; comparisons, memory and speed, samples, checked files."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from albert.cli.main import imports, load_command
from albert.cli.render import open_console, print_json
from albert.cli.signature import keys_in
from albert.commands import info_verify
from albert.commands.checks import check_model
from albert.commands.function import command, definition_of, on_command_line
from albert.model.sharing import sharing_plan
from albert.recipes.architecture import preset_name
from albert.recipes.pretraining import RECIPES, find_recipe
from albert.runtime.environment import PrecisionChoice
from albert.runtime.errors import UsageError, did_you_mean
from albert.runtime.json_files import commented_toml

MEASURED_LENGTH = 128
DEFAULT_RECIPE = "small"
"""Of --samples."""
PLANNED_SEQUENCES = 32
"""The default of `PretrainingRecipe.micro_batch_size`."""


@command("albert info")
def info(
    what: str | None = None,
    *,
    compare: str | None = None,
    verify: bool = False,
    samples: int | None = None,
    recipe: str | None = None,
    seed: int | None = None,
    max_length: int | None = None,
    measure: bool = False,
    memory: bool = False,
    memory_limit: str | None = None,
    batch_size: int | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    precision: PrecisionChoice = "auto",
    self_check: bool = False,
    json: bool = False,
) -> None:
    """Describe a preset, a model directory or Hub id, or a prepared corpus; without a name, this machine.

    --recipe alone prints all keys of a command with their meaning, as a file that pretrain, finetune and sweep take.

    Parameters are exact, memory is within a tenth of what was measured. A multiplication with its addition counts as 2
    FLOPs. --verify checks files and --samples prints training samples, instead of the description.

    Example: albert info albert-base

    Example: albert info albert-base --compare bert-base

    Example: albert info albert-large --max-length 128 --measure

    Example: albert info albert-xxlarge --memory --memory-limit 80GB --device cuda

    Example: albert info albert/albert-xlarge-v2 --self-check

    Example: albert info runs/mine --verify

    Example: albert info corpus --samples 3 --recipe base

    Example: albert info --recipe small > mine.toml

    Args:
        what: A preset (albert-base, ...), a directory, or a Hub id (albert/albert-base-v2); without it machine and
            presets.
        compare: Another preset or model for a comparison.
        verify: Check every file of a model, a corpus, a tokenizer or a run against its manifest. The exit code is 65 if
            anything is damaged.
        samples: Print this number of training samples of a corpus: segments, masks and order, as a run sees them.
        recipe: A recipe of albert pretrain, or its file, to print as TOML, or with --samples to draw by (default:
            small); finetune, finetune-vectors or sweep print the keys of these commands.
        seed: With --samples, the seed of the run; the recipe's by default.
        max_length: Tokens of a sequence, for work and memory; the longest possible by default.
        measure: Measure tokens per second on this machine: inference and pre-training steps, with random weights.
        memory: Estimate the memory of a training step by parts, and the largest micro-batch that fits, with and without
            activation checkpointing; with --device cuda also for a GPU of another machine.
        memory_limit: Memory available to the training step, such as 24GB; the free memory of the device by default.
        batch_size: Sequences of a batch; by default 512 tokens for --measure, 32 sequences for --memory.
        precision: Precision for --measure and --memory; auto takes the faster one.
        self_check: Score a model on masked words with every plausible activation and number of heads.
        json: Print one JSON object instead of tables.
    """
    if samples is None and seed is not None:
        raise UsageError("--seed", "requires --samples", "add --samples 3")
    prints_recipe = recipe is not None and samples is None
    if prints_recipe and what is not None:
        raise UsageError("--recipe", f"beside {what} requires --samples", f"add --samples 3, or leave out {what}")
    # The options that describe an architecture, and whether they were given.
    given = {
        "--compare": compare is not None,
        "--measure": measure,
        "--memory": memory,
        "--self-check": self_check,
        "--max-length": max_length is not None,
    }
    for option, number in (("--max-length", max_length), ("--batch-size", batch_size)):
        if number is not None and number < 1:
            raise UsageError(option, f"is {number}, at least 1 is needed")
    if batch_size is not None and not (measure or memory):
        raise UsageError("--batch-size", "requires --measure or --memory", "add one of them")
    if memory_limit is not None and not memory:
        raise UsageError("--memory-limit", "requires --memory", "add --memory")
    if memory and compare is not None:
        raise UsageError("--memory", "cannot be combined with --compare", "leave out --compare")
    if precision != "auto" and not (measure or memory):
        raise UsageError("--precision", "requires --measure or --memory", "add one of them")
    if device != "auto" and not (measure or memory or self_check):
        raise UsageError("--device", "requires --measure, --memory or --self-check", "add one of them")
    instead = {"--verify": verify, "--samples": samples is not None, "--recipe": prints_recipe}
    for view, is_chosen in instead.items():
        for option, is_given in {**given, **instead, "--json": json}.items():
            if is_chosen and is_given and option != view:
                raise UsageError(view, f"cannot be combined with {option}", f"leave out {option}")
    if recipe is not None and samples is None:
        print(recipe_text(recipe), end="")
        return
    if what is None:
        for option, is_given in {**given, **instead}.items():
            if is_given:
                raise UsageError(option, "needs a name before it", "see albert info --help")
    elif verify:
        info_verify.verify(what)
        return
    elif samples is not None:
        with imports():
            from albert.commands import info_samples
        info_samples.show_samples(what, samples, DEFAULT_RECIPE if recipe is None else recipe, seed)
        return
    elif preset_name(what) is None and not Path(what).exists():
        check_model(what)
    limit = None if memory_limit is None else bytes_of_size("--memory-limit", memory_limit)

    with imports():
        import torch

        from albert.commands import info_descriptions
        from albert.inference import inspection
        from albert.model import sizes
        from albert.runtime.devices import fastest_precision, free_memory, pick_device
        from albert.runtime.json_files import to_json

    console = open_console(soft_wrap=False, quiet=json)
    if what is None:
        values = info_descriptions.show_machine(console)
        if json:
            print_json(to_json(values))
        return

    target = info_descriptions.resolve(what)
    if target.kind == "corpus" or target.kind == "tokenizer":
        refused = ("--compare", "--measure", "--memory", "--self-check", "--max-length")
    elif target.kind == "preset":
        refused = ("--self-check",)
    else:
        refused = ()
    for option in refused:
        if given[option]:
            why = f"requires a model, {target.name} is a {target.kind}"
            raise UsageError(option, why, "see albert info --help")
    if target.config is None:
        if target.kind == "corpus":
            values = {"kind": "corpus", **info_descriptions.show_corpus(console, target.directory)}
        else:
            values = {"kind": "tokenizer", **info_descriptions.show_tokenizer(console, target.directory)}
        if json:
            print_json(to_json(values))
        return

    # Whatever may fail comes before the first output.
    architectures = {target.name: target.config}
    if compare is not None:
        other = info_descriptions.resolve(compare)
        if other.config is None:
            raise UsageError("--compare", f"{compare} is a {other.kind}, an architecture is needed")
        architectures[other.name] = other.config
    longest = min(config.max_position_embeddings for config in architectures.values())
    if (measure or memory) and max_length is not None and max_length > longest:
        raise UsageError("--max-length", f"is {max_length}, the model has {longest} positions")
    reports = [sizes.size_report(name, config, max_length) for name, config in architectures.items()]
    plan = None
    if memory:
        elsewhere = device == "cuda" and not torch.cuda.is_available()
        planned_on = torch.device("cuda") if elsewhere else pick_device(device)
        planned_in = precision
        if planned_in == "auto":
            planned_in = "bf16" if elsewhere else fastest_precision(planned_on)
        if limit is None and not elsewhere:
            limit = free_memory(planned_on)
        plan = sizes.memory_plan(
            target.config,
            batch_size=PLANNED_SEQUENCES if batch_size is None else batch_size,
            sequence_length=longest if max_length is None else max_length,
            device="cuda" if planned_on.type == "cuda" else "cpu",
            precision=planned_in,
            limit=limit,
        )
    check = inspection.check_settings(target.directory, device=device) if self_check else None

    values: dict[str, Any]
    if compare is not None:
        comparison = sizes.compare(reports[0], reports[-1])
        info_descriptions.show_comparison(console, comparison)
        values = {"kind": "comparison", **comparison}
    else:
        values = {"kind": target.kind}
        model = None
        if target.kind == "preset":
            info_descriptions.show_preset(console, reports[0])
        else:
            model = inspection.model_report(target.directory)
            info_descriptions.show_model(console, model, reports[0])
            values["model"] = model.to_json()
        info_descriptions.show_size(console, reports[0], model)
        values |= reports[0].to_json()
    if check is not None:
        info_descriptions.show_self_check(console, check)
        values["self_check"] = {**asdict(check), "verdict": check.verdict}
    if plan is not None:
        console.print()
        info_descriptions.show_memory_plan(console, plan, len(sharing_plan(target.config)))
        peaks = {name: {**asdict(plan[name]), "peak": plan[name].peak} for name in ("all_kept", "checkpointed")}
        values["memory_plan"] = plan | peaks
    if measure:
        from albert.pretraining.throughput import measure_throughput

        measured_on = pick_device(device)
        measurement = measure_throughput(
            architectures,
            sequence_length=min(MEASURED_LENGTH, longest) if max_length is None else max_length,
            batch_size=batch_size,
            device=measured_on,
            precision=fastest_precision(measured_on) if precision == "auto" else precision,
        )
        info_descriptions.show_throughput(console, measurement)
        values["measured"] = asdict(measurement)
    if json:
        print_json(to_json(values))


_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([kmgt])(i?)b", re.IGNORECASE)


def recipe_text(name: str) -> str:
    """The keys of a command, or the values of a recipe, as TOML with comments."""
    commands = {"finetune": "finetune", "sweep": "sweep", "finetune-vectors": "finetune_vectors"}
    if name in commands:
        module = load_command(f"albert.commands.{commands[name]}")
        definition = definition_of(getattr(module, commands[name]))
        keys = [option for option in definition.options if option.is_key]
        head = f"# The keys of `albert {name}` with their defaults.\n"
        head += '# Options may stand here, too, before the first table: train = "my.csv".\n'
    else:
        if name not in RECIPES and not Path(name).exists():
            known = [*RECIPES, *commands]
            raise UsageError(f"recipe {name}", "is neither a known recipe nor a file", did_you_mean(name, known))
        keys = list(keys_in(find_recipe(name)))
        head = f"# The recipe {name} of `albert pretrain`.\n"
    ordered = sorted(keys, key=lambda option: option.group)
    return head + "\n" + commented_toml([(each.name, each.default, each.text, each.hint) for each in ordered])


def bytes_of_size(option: str, size: str) -> int:
    """The bytes of a size such as 24GB, 22.5 GiB or 800MB; raises UsageError."""
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise UsageError(option, f"{size!r} is not a valid size", "write it as 24GB or 800MB")
    power = 1 + "kmgt".index(match[2].lower())
    return int(float(match[1]) * (1024 if match[3] else 1000) ** power)


info_main = on_command_line(info)
