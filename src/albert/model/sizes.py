"""Reports on architectures: sizes beside published ones, two of them side by side, memory of a step.

The figures are computed by formulas, without building a model. `albert.pretraining.throughput` measures speed."""

import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from importlib.resources import files
from typing import Any, Literal

from albert.model.cost import (
    FlopsPerToken,
    ParameterCount,
    count_flops,
    count_parameters,
    count_training_memory,
    largest_batch,
    masked_tokens_of,
    pretraining_flops,
)
from albert.model.sharing import sharing_plan
from albert.recipes.architecture import PRESETS, EncoderConfig
from albert.runtime.environment import Precision

# --------------------------------------------------------------------------------------------------------------------
# Published sizes of ALBERT and BERT, and our counts.
#
# The paper counts ALBERT with its pooler, and BERT and models without sharing without it; some of its figures are
# rounded loosely, and no count gives two of them. "Table" and "§" refer to Lan et al. 2019, arXiv 1909.11942v6.

Counting = Literal["model", "encoder", "pretraining"]
COUNTINGS: dict[Counting, str] = {
    "model": "with the pooler",
    "encoder": "without the pooler, as the paper counts BERT and what shares nothing",
    "pretraining": "with the pooler and both pre-training heads",
}


@dataclass(frozen=True)
class PublishedSize:
    """A published number of parameters.

    Args:
        stated: as printed, in millions: "12M".
        counted: the count of ours that it equals when rounded; None if it equals none.
        why: a remark; if `counted` is None, why it differs.
    """

    preset: str
    stated: str
    where: str
    counted: Counting | None = None
    why: str | None = None

    @property
    def exact(self) -> int:
        """Our count of the preset."""
        return self.count(PRESETS[self.preset])

    def count(self, config: EncoderConfig) -> int:
        """The same count for any model; with its pooler if the figure equals none of our counts."""
        return count_parameters(config).by_part()[self.counted or "model"]

    @property
    def reason(self) -> str:
        """How the figure was counted, or why it differs from our counts."""
        return "; ".join(part for part in (COUNTINGS[self.counted] if self.counted else None, self.why) if part)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("stated", "where", "exact", "reason")}


_PUBLISHED = tomllib.loads((files("albert.model") / "published_sizes.toml").read_text(encoding="utf-8"))
PUBLISHED_SIZES: dict[str, list[PublishedSize]] = {}
"""Published sizes by preset."""
for _size in _PUBLISHED["size"]:
    for _preset in _size.pop("of"):
        PUBLISHED_SIZES.setdefault(_preset, []).append(PublishedSize(preset=_preset, **_size))
REMARKS: dict[str, str] = _PUBLISHED["remarks"]
"""Remarks by preset."""

_CONTENT = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "intermediate_size",
            "max_position_embeddings", "type_vocab_size")  # fmt: skip
_SHARING = ("sharing", "num_hidden_groups", "inner_group_num")


def preset_of_shape(config: EncoderConfig) -> str | None:
    """The preset with the same sizes and sharing; if there are several, the one with the fewest differences."""
    matches = [name for name, preset in PRESETS.items() if shape_of(preset) == shape_of(config)]
    return min(matches, key=lambda name: len(differences(config, name)), default=None)


def differences(config: EncoderConfig, preset: str) -> dict[str, tuple[Any, Any]]:
    """The settings in which a model of a preset's shape differs from it: field -> its value, the preset's value."""
    left_out = (*_SHARING, "embedding_projection", "family")
    names = [field.name for field in fields(EncoderConfig) if field.name not in left_out]
    pairs = {name: (getattr(config, name), getattr(PRESETS[preset], name)) for name in names}
    pairs["embedding_projection"] = config.projects_embeddings, PRESETS[preset].projects_embeddings
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def shape_of(config: EncoderConfig) -> tuple[Any, ...]:
    """Sizes and sharing of a model; equal for models of the same shape."""
    return (*(getattr(config, name) for name in _CONTENT), sharing_plan(config))


# --------------------------------------------------------------------------------------------------------------------
# The report of an architecture, and two of them side by side.


@dataclass(frozen=True, kw_only=True)
class SizeReport:
    """Parameters and work of an architecture.

    Args:
        sequence_length: tokens, for work.
        preset: of the same shape; None if there is none.
        differs: differences from it: field -> its value, the preset's.
        transformers_parameters: of `AlbertModel` of transformers, which always maps E to H.
    """

    name: str
    configuration: EncoderConfig
    sequence_length: int
    preset: str | None
    differs: dict[str, tuple[Any, Any]]
    remark: str | None
    published: Sequence[PublishedSize]
    parameters: ParameterCount
    transformers_parameters: int
    flops: FlopsPerToken

    def to_json(self) -> dict[str, Any]:
        flops = self.flops
        return {
            "name": self.name,
            "configuration": asdict(self.configuration),
            "preset": self.preset,
            "differs_from_preset": {field: list(values) for field, values in self.differs.items()},
            "remark": self.remark,
            "parameters": {**self.parameters.by_part(), "transformers": self.transformers_parameters},
            "published": [size.to_json() for size in self.published],
            "sequence_length": self.sequence_length,
            "flops_per_token": asdict(flops) | {"forward": flops.forward, "training": flops.training},
        }


def size_report(name: str, config: EncoderConfig, sequence_length: int | None = None) -> SizeReport:
    """The report of an architecture, by default for its longest sequence."""
    length = sequence_length or config.max_position_embeddings
    preset = preset_of_shape(config)
    # transformers' ALBERT always has a map from E to H.
    in_transformers = replace(config, embedding_projection=True) if config.family == "albert" else config
    return SizeReport(
        name=name,
        configuration=config,
        sequence_length=length,
        preset=preset,
        differs={} if preset is None else differences(config, preset),
        remark=REMARKS.get(preset or ""),
        published=PUBLISHED_SIZES.get(preset or "", []),
        parameters=count_parameters(config),
        transformers_parameters=count_parameters(in_transformers).model,
        flops=count_flops(config, length),
    )


def compare(one: SizeReport, other: SizeReport) -> dict[str, Any]:
    """Two architectures side by side: both reports, and `figures` with their ratio."""
    pairs = zip(_figures(one), _figures(other), strict=True)
    figures = [
        {"group": group, "what": what, "one": first, "other": second, "ratio": first / second}
        for (group, what, first), (*_, second) in pairs
    ]
    return {"one": one.to_json(), "other": other.to_json(), "figures": figures}


def _figures(report: SizeReport) -> list[tuple[str, str, int]]:
    count = report.parameters
    flops = report.flops
    return [
        ("parameters", "embeddings and their map", count.embeddings + count.projection),
        ("parameters", "attention and feed-forward", count.attention + count.feed_forward),
        ("parameters", "model without pooler", count.encoder),
        ("parameters", "model with pooler", count.model),
        ("parameters", "with both pre-training heads", count.pretraining),
        ("FLOPs a token", "forward", flops.forward),
        ("FLOPs a token", "forward and backward", flops.training),
    ]


# --------------------------------------------------------------------------------------------------------------------
# The plan of a training step on a device: memory by parts, work, and the largest micro-batch that fits.


def memory_plan(
    config: EncoderConfig,
    *,
    batch_size: int,
    sequence_length: int,
    device: Literal["cpu", "cuda"],
    precision: Precision,
    limit: int | None,
) -> dict[str, Any]:
    """Memory and work of a training step: with all activations kept, and with activation checkpointing.

    Args:
        device: need not exist on this machine.
        limit: bytes of memory; None if unknown.
    """
    about: dict[str, Any] = {"sequence_length": sequence_length, "device": device, "precision": precision}
    memory = {
        name: partial(count_training_memory, config, activation_checkpointing=checkpointing, **about)
        for name, checkpointing in (("all_kept", False), ("checkpointed", True))
    }
    largest = [
        None if limit is None else largest_batch(lambda sequences, count=count: count(batch_size=sequences), limit)
        for count in memory.values()
    ]
    masked = masked_tokens_of(sequence_length)
    return {
        "batch_size": batch_size,
        **about,
        "masked_tokens": masked,
        "flops": pretraining_flops(config, [sequence_length] * batch_size, masked * batch_size),
        **{name: count(batch_size=batch_size) for name, count in memory.items()},
        "limit": limit,
        "largest_batch": largest[0],
        "largest_batch_checkpointed": largest[1],
    }
