"""All that can be said of an architecture without building it: parameters, what is published, work, memory.

And of two of them side by side, with the claims that concern the pair.
"""

from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Literal

from albert.experiments.published_reductions import CheckedClaim, claims_about
from albert.experiments.published_sizes import PUBLISHED_SIZES, REMARKS, differences, preset_of_shape
from albert.model.activation_memory import ActivationMemory, count_activation_memory, count_training_state
from albert.model.config import AlbertConfig
from albert.model.parameter_count import FlopsPerToken, ParameterCount, count_flops, count_parameters
from albert.model.presets import PRESETS

DEVICES: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda")
PRECISIONS: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class StatedSize:
    """A published figure beside our count of the same thing, and how the two go together."""

    stated: str
    where: str
    exact: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class SizeReport:
    """One architecture.

    Args:
        name: a preset, or where the model is.
        configuration: the architecture.
        sequence_length: tokens that work and memory are told for.
        preset: the preset of this shape, if there is one.
        differs: settings in which it differs from that preset: field -> its value, the preset's.
        remark: what else to know of that preset.
        parameters: exact.
        transformers_parameters: what `AlbertModel` of transformers has, where that is more: it always maps E to H.
        published: what is stated for that preset.
        flops: per token.
        memory: by device and precision, ("cpu", "fp32").
        training_state: bytes of weights, gradients and two moments.
    """

    name: str
    configuration: AlbertConfig
    sequence_length: int
    preset: str | None
    differs: dict[str, tuple[Any, Any]]
    remark: str | None
    parameters: ParameterCount
    transformers_parameters: int
    published: list[StatedSize]
    flops: FlopsPerToken
    memory: dict[tuple[str, str], ActivationMemory]
    training_state: int

    def to_json(self) -> dict[str, Any]:
        """Plain values under names that stay."""
        memory = {
            f"{device}_{precision}": {**asdict(bytes_), "training": bytes_.training}
            for (device, precision), bytes_ in self.memory.items()
        }
        return {
            "name": self.name,
            "configuration": asdict(self.configuration),
            "preset": self.preset,
            "differs_from_preset": {field: list(values) for field, values in self.differs.items()},
            "remark": self.remark,
            "parameters": {**self.parameters.by_part(), "transformers": self.transformers_parameters},
            "published": [asdict(size) for size in self.published],
            "sequence_length": self.sequence_length,
            "flops_per_token": {
                **asdict(self.flops),
                "forward": self.flops.forward,
                "training": self.flops.training,
            },
            "bytes_per_sequence": memory,
            "bytes_of_training_state": self.training_state,
        }


def size_report(name: str, config: AlbertConfig, sequence_length: int | None = None) -> SizeReport:
    """Say all of one architecture.

    Args:
        name: how to call it.
        config: the architecture.
        sequence_length: tokens of a sequence; None: the longest.
    """
    length = config.max_position_embeddings if sequence_length is None else sequence_length
    preset = preset_of_shape(config)
    mapped = AlbertConfig(**{**vars(config), "embedding_projection": True})
    return SizeReport(
        name=name,
        configuration=config,
        sequence_length=length,
        preset=preset,
        differs={} if preset is None else differences(config, preset),
        remark=None if preset is None else REMARKS.get(preset),
        parameters=count_parameters(config),
        transformers_parameters=count_parameters(mapped).model,
        published=[] if preset is None else _published(preset),
        flops=count_flops(config, length),
        memory={
            (device, precision): count_activation_memory(config, length, device=device, precision=precision)
            for device, precision in product(DEVICES, PRECISIONS)
        },
        training_state=count_training_state(config),
    )


def _published(preset: str) -> list[StatedSize]:
    return [
        StatedSize(stated=size.stated, where=size.where, exact=size.exact(PRESETS[preset]), reason=size.reason)
        for size in PUBLISHED_SIZES.get(preset, [])
    ]


@dataclass(frozen=True, kw_only=True)
class ComparedFigure:
    """A figure of two architectures."""

    group: Literal["parameters", "FLOPs a token", "bytes a sequence", "bytes in all"]
    what: str
    one: int
    other: int

    @property
    def ratio(self) -> float:
        """The first over the second."""
        return self.one / self.other


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two architectures side by side."""

    one: SizeReport
    other: SizeReport
    figures: list[ComparedFigure]
    claims: list[CheckedClaim]

    def to_json(self) -> dict[str, Any]:
        """Plain values under names that stay."""
        return {
            "one": self.one.to_json(),
            "other": self.other.to_json(),
            "figures": [{**asdict(figure), "ratio": figure.ratio} for figure in self.figures],
            "claims": [{**asdict(claim), "figure": claim.figure} for claim in self.claims],
        }


def compare(one: SizeReport, other: SizeReport) -> Comparison:
    """Set two architectures side by side."""
    return Comparison(
        one=one,
        other=other,
        figures=[
            ComparedFigure(group=group, what=what, one=mine, other=theirs)
            for (group, what, mine), (_, _, theirs) in zip(_figures(one), _figures(other), strict=True)
        ],
        claims=claims_about(one.configuration, other.configuration),
    )


def _figures(
    report: SizeReport,
) -> list[tuple[Literal["parameters", "FLOPs a token", "bytes a sequence", "bytes in all"], str, int]]:
    count, flops = report.parameters, report.flops
    on_cpu, on_gpu = (report.memory[key] for key in (("cpu", "fp32"), ("cuda", "bf16")))
    return [
        ("parameters", "embeddings and their map", count.embeddings + count.projection),
        ("parameters", "attention and feed-forward", count.attention + count.feed_forward),
        ("parameters", "model without pooler", count.encoder),
        ("parameters", "model with pooler", count.model),
        ("parameters", "with both pre-training heads", count.pretraining),
        ("FLOPs a token", "forward", flops.forward),
        ("FLOPs a token", "forward and backward", flops.training),
        ("bytes a sequence", "training, CPU fp32", on_cpu.training),
        ("bytes a sequence", "training, GPU bf16", on_gpu.training),
        ("bytes a sequence", "inference, CPU fp32", on_cpu.inference),
        ("bytes a sequence", "inference, GPU bf16", on_gpu.inference),
        ("bytes in all", "weights, gradients, moments", report.training_state),
    ]
