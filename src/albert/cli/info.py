"""`albert info`: what a preset, a model, a prepared corpus or this machine is."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from tyro.conf import Positional

from albert import __version__
from albert.checkpoints.config_file import read_config
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import open_model
from albert.checkpoints.tensor_files import INDEX_NAME, WEIGHTS_NAME
from albert.cli.command_line import parse
from albert.inference.predictor import KINDS
from albert.model.config import AlbertConfig
from albert.model.parameter_count import count_flops, count_parameters
from albert.model.presets import PRESETS
from albert.runtime.devices import describe_machine
from albert.runtime.durable_files import MANIFEST_NAME, verify_directory
from albert.runtime.errors import AlbertError, UsageError, did_you_mean
from albert.runtime.strict_json import load_json, to_json
from albert.text.shards import DESCRIPTION_NAME, CorpusDescription
from albert.text.tokenizer import JSON_NAME, MODEL_NAME, Tokenizer
from albert.text.tokenizer_directory import load_tokenizer, vocabulary_file

Facts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Info:
    """Say what something is: a preset, a model directory or Hub id, a prepared corpus; alone, this machine.

    Parameters are exact. FLOPs count a multiplication with its addition as 2, forward, for one token.

    Example: albert info albert-base
    """

    what: Positional[str | None] = None
    """A preset (albert-base, ...), a directory, or a Hub id; nothing: the machine and the presets."""
    sequence_length: int | None = None
    """Tokens in a sequence, for the FLOPs of the attention scores; the longest one by default."""
    json: bool = False
    """One JSON object in place of tables."""


def main(arguments: list[str]) -> int:
    """Run `albert info`."""
    options = parse(Info, arguments, "albert info")
    if options.sequence_length is not None and options.sequence_length < 1:
        raise UsageError("--sequence-length", f"is {options.sequence_length}, at least 1 is needed")
    facts = describe(options.what, options.sequence_length)
    if options.json:
        print(json.dumps(to_json(facts), ensure_ascii=False))
        return 0
    console = Console(soft_wrap=True, highlight=False)
    for title, values in facts.items():
        table = Table(title=title, title_justify="left", show_header=False)
        table.add_column()
        numbers = all(_is_number(value) for value in values.values())
        table.add_column(justify="right" if numbers else "left", overflow="fold")
        for name, value in values.items():
            table.add_row(name, escape(_cell(value)))
        console.print(table)
    return 0


def describe(what: str | None, sequence_length: int | None = None) -> Facts:
    """Facts by heading.

    Args:
        what: a preset, a directory, a Hub id, or None for the machine.
        sequence_length: tokens in a sequence, for the FLOPs.

    Raises:
        MissingInput, Unavailable: there is nothing of that name.
        DamagedData: it does not match its manifest.
    """
    if what is None:
        sizes = {name: count_parameters(config).model for name, config in PRESETS.items()}
        return {"machine": {"albert": __version__, **describe_machine()}, "presets, parameters": sizes}
    if what in PRESETS:
        return _architecture(PRESETS[what], sequence_length)
    if (Path(what) / DESCRIPTION_NAME).is_file():
        return _corpus(Path(what))
    try:
        directory = find_model(what)
    except AlbertError as error:
        nearest = did_you_mean(what, PRESETS)
        raise type(error)(error.subject, f"is no preset; {error.why}", nearest or error.remedy) from error
    return _model(directory, sequence_length)


def _architecture(config: AlbertConfig, sequence_length: int | None) -> Facts:
    flops = count_flops(config, sequence_length)
    length = config.max_position_embeddings if sequence_length is None else sequence_length
    return {
        "configuration": to_json(config),
        "parameters": count_parameters(config).by_part(),
        f"FLOPs per token, at {length} tokens": {
            **asdict(flops),
            "encoder, forward": flops.forward,
            "encoder, training": flops.training,
        },
    }


def _model(directory: Path, sequence_length: int | None) -> Facts:
    config, extra = read_config(directory)
    architecture = str((extra.get("architectures") or ["AlbertModel"])[0])
    opened = open_model(directory, KINDS.get(architecture, "encoder"))
    report = opened.loading_report
    weights = [*directory.glob(WEIGHTS_NAME), *directory.glob(INDEX_NAME.replace("index.json", "*"))]
    facts: Facts = {
        "model": {
            "directory": str(directory),
            "architecture": architecture,
            "parameters in memory": sum(p.numel() for p in opened.model.parameters()),
            "bytes of weights": sum(file.stat().st_size for file in set(weights)),
            "manifest": "every file matches" if report.verified else "none: unverified",
        },
        **_architecture(config, sequence_length),
        "tensors": {
            "missing": list(report.missing),
            "newly initialised": list(report.newly_initialised),
            "in the file, not used": list(report.unexpected),
            "in the file, saying nothing new": list(report.dropped),
        },
    }
    described = ("architectures", "model_type")
    facts["other keys"] = {key: value for key, value in extra.items() if key not in described}
    if vocabulary_file(directory).is_file():
        facts["tokenizer"] = _tokenizer(load_tokenizer(directory))
    else:
        facts["tokenizer"] = {"none": f"the directory holds neither {MODEL_NAME} nor {JSON_NAME}"}
    return facts


def _corpus(directory: Path) -> Facts:
    has_manifest = (directory / MANIFEST_NAME).is_file()
    if has_manifest:
        verify_directory(directory)
    corpus = load_json(CorpusDescription, directory / DESCRIPTION_NAME)
    values = {key: value for key, value in to_json(corpus).items() if key not in ("shards", "counts", "sources")}
    return {
        "corpus": {
            "directory": str(directory),
            "manifest": "every file matches" if has_manifest else "none: unverified",
            **values,
            "sources": len(corpus.sources),
        },
        **{split: to_json(counts) for split, counts in corpus.counts.items()},
        "tokenizer": _tokenizer(load_tokenizer(directory)),
    }


def _tokenizer(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "pieces": tokenizer.vocab_size,
        "lower case": tokenizer.lower_case,
        "keeps accents": tokenizer.keep_accents,
        "fingerprint": tokenizer.fingerprint,
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if isinstance(value, list):
        shown = ", ".join(map(str, value[:4])) + (f", and {len(value) - 4} more" if len(value) > 4 else "")
        return shown or "none"
    if isinstance(value, dict):
        if not value:
            return "none"
        return json.dumps(to_json(value), ensure_ascii=False)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
