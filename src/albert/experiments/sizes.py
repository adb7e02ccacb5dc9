"""Reports on architectures: sizes beside published ones, comparison of two, memory of a step, measured throughput.

All but throughput comes from formulas, without building a model."""

import statistics
import time
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from importlib.resources import files
from itertools import product
from typing import Any, Literal

import numpy as np
import torch

from albert.model.albert import AlbertForPreTraining
from albert.model.config import PRESETS, AlbertConfig, sharing_plan
from albert.model.cost import (
    ActivationMemory,
    FlopsPerToken,
    ParameterCount,
    TrainingMemory,
    count_activation_memory,
    count_flops,
    count_parameters,
    count_training_memory,
    count_training_state,
    largest_batch,
    pretraining_flops,
)
from albert.optim.optimizer import build_optimizer
from albert.optim.recipe import OptimizerRecipe
from albert.pretraining.batches import PretrainingBatch, collate, pretraining_objective
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import Sample
from albert.runtime.devices import autocast, free_memory
from albert.runtime.environment import OptimizerKind, Precision, Ranks
from albert.runtime.errors import OutOfResources
from albert.runtime.progress import progress
from albert.training.update import update

# --------------------------------------------------------------------------------------------------------------------
# Published model sizes and reductions of ALBERT, and what counting gives in their place.
#
# The paper counts ALBERT with its pooler, and BERT and whatever shares nothing without; some of its figures are rounded
# loosely, and two cannot be reached at all. "Table" and "§" are of Lan et al. 2019, arXiv 1909.11942v6.

Counting = Literal["model", "encoder", "pretraining"]
COUNTINGS: dict[Counting, str] = {
    "model": "with the pooler",
    "encoder": "without the pooler, as the paper counts BERT and what shares nothing",
    "pretraining": "with the pooler and both pre-training heads",
}


@dataclass(frozen=True)
class PublishedSize:
    """A figure that somebody published.

    Args:
        preset: the model that it is of.
        stated: as it is printed, in millions: "12M".
        counted: which of our counts it is, rounded; None when it is none of them.
        why: what else there is to say; where `counted` is None, why it differs.
    """

    preset: str
    stated: str
    where: str
    counted: Counting | None
    why: str | None = None

    @property
    def millions(self) -> int:
        return int(self.stated.removesuffix("M"))

    @property
    def exact(self) -> int:
        """Our count of the same thing."""
        return self.count(PRESETS[self.preset])

    def count(self, config: AlbertConfig) -> int:
        """The same of any model; with its pooler where the figure is none of our counts."""
        return count_parameters(config).by_part()[self.counted or "model"]

    @property
    def reason(self) -> str:
        """How to get from our count to the figure, or why one cannot."""
        return "; ".join(part for part in (COUNTINGS[self.counted] if self.counted else None, self.why) if part)

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("stated", "where", "exact", "reason")}


_PUBLISHED = tomllib.loads((files("albert.experiments") / "published_sizes.toml").read_text(encoding="utf-8"))
PUBLISHED_SIZES: dict[str, tuple[PublishedSize, ...]] = {
    preset: tuple(
        PublishedSize(preset, size["stated"], size["where"], size.get("counted"), size.get("why"))
        for size in _PUBLISHED["size"]
        if preset in size["of"]
    )
    for preset in PRESETS
    if any(preset in size["of"] for size in _PUBLISHED["size"])
}
"""Preset -> every size that is stated for it."""
REMARKS: dict[str, str] = _PUBLISHED["remarks"]
"""What else to know of a preset."""

_CONTENT = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "intermediate_size",
            "max_position_embeddings", "type_vocab_size")  # fmt: skip
_SHARING = ("sharing", "num_hidden_groups", "inner_group_num")


def preset_of_shape(config: AlbertConfig) -> str | None:
    """The preset with the same sizes and sharing; of several, the one with the most other settings in common."""
    alike = [name for name, preset in PRESETS.items() if shape_of(preset) == shape_of(config)]
    return min(alike, key=lambda name: len(differences(config, name)), default=None)


def differences(config: AlbertConfig, preset: str) -> dict[str, tuple[Any, Any]]:
    """The settings in which a model of a preset's shape differs from it: field -> its value, the preset's value."""
    other = PRESETS[preset]
    found = {
        f.name: (getattr(config, f.name), getattr(other, f.name))
        for f in fields(AlbertConfig)
        if f.name not in (*_SHARING, "embedding_projection") and getattr(config, f.name) != getattr(other, f.name)
    }
    if config.projects_embeddings != other.projects_embeddings:
        found["embedding_projection"] = (config.projects_embeddings, other.projects_embeddings)
    return found


def shape_of(config: AlbertConfig) -> tuple[Any, ...]:
    """What decides the sizes of a model and which layers are the same: equal for models of one shape."""
    return (*(getattr(config, name) for name in _CONTENT), sharing_plan(config))


# --------------------------------------------------------------------------------------------------------------------
# What is said about ALBERT beside BERT, and what a count makes of it.
#
# Sources: Lan et al. 2019 ("§"), its authors' announcement (Google AI blog, December 2019), a talk about the paper.

CLAIMS: tuple[dict[str, Any], ...] = tuple(_PUBLISHED["claim"])
"""Every claim about sizes in the material that the project started from, as `published_sizes.toml` declares it."""


@dataclass(frozen=True, kw_only=True)
class CheckedClaim:
    """A claim beside its exact figure for one pair."""

    quote: str
    source: str
    stated: str
    before: str
    after: str
    of_what: str
    exact: float
    unit: str
    holds: bool
    because: str | None

    @property
    def figure(self) -> str:
        """The exact figure in words: "82.9 % fewer", "18.92 times fewer"."""
        return f"{self.exact:.{1 if self.unit.startswith('%') else 2}f} {self.unit}"


def claims_about(one: AlbertConfig, other: AlbertConfig) -> list[CheckedClaim]:
    """The claims that concern two models of these shapes, in whichever order, each with its exact figure."""
    shapes = {shape_of(one), shape_of(other)}
    return [
        _check(claim, *pair)
        for claim in CLAIMS
        for pair in claim["pairs"]
        if {shape_of(PRESETS[name]) for name in pair} == shapes
    ]


def _check(claim: Mapping[str, Any], before: str, after: str) -> CheckedClaim:
    exact = _COMPARED[claim["unit"]](*(_COUNTED[claim["of_what"]](PRESETS[name]) for name in (before, after)))
    least, below = claim["holds"]
    told = {name: claim[name] for name in ("quote", "source", "stated", "of_what", "unit")}
    return CheckedClaim(
        **told, before=before, after=after, exact=exact, holds=least <= exact < below, because=claim.get("because")
    )


_COUNTED: dict[str, Callable[[AlbertConfig], int]] = {
    "parameters of the embeddings and their map to H": lambda config: (
        count_parameters(config).embeddings + count_parameters(config).projection
    ),
    "parameters of the attention and feed-forward blocks": lambda config: (
        count_parameters(config).attention + count_parameters(config).feed_forward
    ),
    "parameters of the model with its pooler": lambda config: count_parameters(config).model,
    "FLOPs a token, forward, at 512 tokens": lambda config: count_flops(config).forward,
    "hidden size": lambda config: config.hidden_size,
}
_COMPARED: dict[str, Callable[[float, float], float]] = {
    "% fewer": lambda before, after: 100 * (1 - after / before),
    "% of it": lambda before, after: 100 - 100 * (1 - after / before),
    "times fewer": lambda before, after: before / after,
    "times as many": lambda before, after: after / before,
    "times as wide": lambda before, after: after / before,
}


Group = Literal["parameters", "FLOPs a token", "bytes a sequence", "bytes in all"]
DEVICES: tuple[Literal["cpu", "cuda"], ...] = ("cpu", "cuda")
PRECISIONS: tuple[Precision, ...] = ("fp32", "bf16")


@dataclass(frozen=True, kw_only=True)
class SizeReport:
    """One architecture.

    Args:
        sequence_length: tokens that work and memory are told for.
        differs: settings in which it differs from that preset: field -> its value, the preset's.
        transformers_parameters: what `AlbertModel` of transformers has, where that is more: it always maps E to H.
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
    published: tuple[PublishedSize, ...]
    flops: FlopsPerToken
    memory: dict[tuple[str, str], ActivationMemory]
    training_state: int

    def to_json(self) -> dict[str, Any]:
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
            "published": [size.to_json() for size in self.published],
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
    """Say all of one architecture."""
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
        published=PUBLISHED_SIZES.get(preset or "", ()),
        flops=count_flops(config, length),
        memory={
            (device, precision): count_activation_memory(config, length, device=device, precision=precision)
            for device, precision in product(DEVICES, PRECISIONS)
        },
        training_state=count_training_state(config),
    )


@dataclass(frozen=True, kw_only=True)
class ComparedFigure:
    """A figure of two architectures."""

    group: Group
    what: str
    one: int
    other: int

    @property
    def ratio(self) -> float:
        return self.one / self.other


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two architectures side by side."""

    one: SizeReport
    other: SizeReport
    figures: list[ComparedFigure]
    claims: list[CheckedClaim]

    def to_json(self) -> dict[str, Any]:
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


def _figures(report: SizeReport) -> list[tuple[Group, str, int]]:
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


# --------------------------------------------------------------------------------------------------------------------
# The plan of a training step on a device: its memory by parts, its work, and the largest micro-batch that fits.

MASKED_SHARE = 0.15


@dataclass(frozen=True, kw_only=True)
class MemoryPlan:
    """One micro-batch of an architecture.

    Args:
        batch_size, sequence_length, masked_tokens: the micro-batch: sequences, tokens and masked tokens of each.
        all_kept, checkpointed: memory without and with activation checkpointing.
        limit: bytes that may be used; None: not known.
        largest_batch, largest_batch_checkpointed: the most sequences within the limit.
    """

    batch_size: int
    sequence_length: int
    masked_tokens: int
    device: Literal["cpu", "cuda"]
    precision: Precision
    optimizer: OptimizerKind
    flops: int
    all_kept: TrainingMemory
    checkpointed: TrainingMemory
    limit: int | None
    largest_batch: int | None
    largest_batch_checkpointed: int | None

    def to_json(self) -> dict[str, Any]:
        peaks = {"all_kept": self.all_kept, "checkpointed": self.checkpointed}
        return {**asdict(self), **{name: {**asdict(some), "peak": some.peak} for name, some in peaks.items()}}


def memory_plan(
    config: AlbertConfig,
    *,
    batch_size: int,
    sequence_length: int,
    device: Literal["cpu", "cuda"],
    precision: Precision,
    optimizer: OptimizerKind,
    limit: int | None,
) -> MemoryPlan:
    """Plan a step.

    Args:
        device: where to compute; it need not be there.
    """
    masked = max(1, round(MASKED_SHARE * sequence_length))

    def memory(sequences: int, activation_checkpointing: bool) -> TrainingMemory:
        settings: dict[str, Any] = {"device": device, "precision": precision, "optimizer": optimizer}
        settings |= {"activation_checkpointing": activation_checkpointing, "masked_tokens": masked}
        return count_training_memory(config, batch_size=sequences, sequence_length=sequence_length, **settings)

    def largest(activation_checkpointing: bool) -> int | None:
        return None if limit is None else largest_batch(lambda some: memory(some, activation_checkpointing), limit)

    return MemoryPlan(
        batch_size=batch_size,
        sequence_length=sequence_length,
        masked_tokens=masked,
        device=device,
        precision=precision,
        optimizer=optimizer,
        flops=pretraining_flops(config, [sequence_length] * batch_size, masked * batch_size),
        all_kept=memory(batch_size, False),
        checkpointed=memory(batch_size, True),
        limit=limit,
        largest_batch=largest(False),
        largest_batch_checkpointed=largest(True),
    )


# --------------------------------------------------------------------------------------------------------------------
# How fast architectures are on this machine: encoder passes and whole pre-training steps, with random weights.
#
# Speed does not depend on what the weights are. Several architectures take turns, so that a ratio between them
# means something on a machine that others use too; each figure is a median over the turns.

FEWEST_ROUNDS, MOST_ROUNDS = 3, 15
MEASURED_TOKENS = 512
"""Tokens of a batch when nobody says how many sequences: four sequences of 128."""


@dataclass(frozen=True, kw_only=True)
class Throughput:
    """Median times of one architecture.

    Args:
        batch_size, sequence_length: the batch: so many sequences of so many tokens, without padding.
        inference_seconds: of a forward pass of the encoder.
        training_seconds: of a pre-training step: forward, backward, clipping and LAMB.
    """

    batch_size: int
    sequence_length: int
    inference_seconds: float
    training_seconds: float
    rounds: int

    @property
    def tokens(self) -> int:
        return self.batch_size * self.sequence_length


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Throughput by the names that were given, and under which circumstances."""

    results: dict[str, Throughput]
    device: str
    precision: Precision
    threads: int


def measure_throughput(
    architectures: Mapping[str, AlbertConfig],
    *,
    sequence_length: int,
    batch_size: int | None = None,
    device: torch.device,
    precision: Precision,
    seconds: float = 8.0,
) -> Measurement:
    """Time them in turns.

    Args:
        batch_size: sequences; None: as many as make `MEASURED_TOKENS`, at least one.
        seconds: how long to measure, after a turn to warm up; `FEWEST_ROUNDS` to `MOST_ROUNDS` turns are taken.
    """
    sequences = max(1, MEASURED_TOKENS // sequence_length) if batch_size is None else batch_size
    _refuse_too_large(architectures, sequence_length, sequences, device, precision)
    with progress("Warming up", len(architectures), "models") as bar:
        passes: dict[str, dict[str, Callable[[], None]]] = {}
        for name, config in architectures.items():
            passes[name] = _passes(config, sequence_length, sequences, device, precision)
            for run in passes[name].values():
                run()
            bar.advance()
    times: dict[tuple[str, str], list[float]] = {}
    rounds, spent = 0, 0.0
    with progress("Measuring", seconds, "seconds") as bar:
        while rounds < FEWEST_ROUNDS or (spent < seconds and rounds < MOST_ROUNDS):
            for name, runs in passes.items():
                for kind, run in runs.items():
                    times.setdefault((name, kind), []).append(_seconds(run, device))
                    bar.advance(times[name, kind][-1])
            rounds, spent = rounds + 1, sum(map(sum, times.values()))
    results = {
        name: Throughput(
            batch_size=sequences,
            sequence_length=sequence_length,
            inference_seconds=statistics.median(times[name, "inference"]),
            training_seconds=statistics.median(times[name, "training"]),
            rounds=rounds,
        )
        for name in architectures
    }
    return Measurement(results=results, device=device.type, precision=precision, threads=torch.get_num_threads())


def _passes(
    config: AlbertConfig, length: int, sequences: int, device: torch.device, precision: Precision
) -> dict[str, Callable[[], None]]:
    batch = random_batch(config, length, sequences).to(device)
    model = AlbertForPreTraining(config).to(device)
    step = training_step(model, OptimizerRecipe(), precision, device)

    def inference() -> None:
        model.eval()
        with torch.inference_mode(), autocast(device, precision):
            model.albert(batch.packed)

    return {"inference": inference, "training": lambda: step([batch])}


def training_step(
    model: AlbertForPreTraining, recipe: OptimizerRecipe, precision: Precision, device: torch.device
) -> Callable[[Sequence[PretrainingBatch]], None]:
    """A function that takes an update over micro-batches, to be timed."""
    optimizer = build_optimizer(recipe, model)

    def step(batches: Sequence[PretrainingBatch]) -> None:
        model.train()
        settings: dict[str, Any] = {"learning_rate": 1e-6, "clip_norm": 1.0, "precision": precision}
        update(model, optimizer, batches, pretraining_objective, **settings, device=device, ranks=Ranks())

    return step


def random_batch(config: AlbertConfig, length: int, sequences: int) -> PretrainingBatch:
    """Random tokens without padding, of which the usual share is to be predicted."""
    draws = np.random.default_rng(0)
    masked = max(1, round(MaskingRecipe().share * length))
    samples = []
    for _ in range(sequences):
        ids = draws.integers(0, config.vocab_size, length)
        positions = np.sort(draws.permutation(length)[:masked])
        samples.append(Sample(ids, np.zeros(length, np.int64), positions, ids[positions], int(draws.integers(2))))
    return collate(samples)


def _seconds(run: Callable[[], None], device: torch.device) -> float:
    started = time.perf_counter()
    run()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - started


def _refuse_too_large(
    architectures: Mapping[str, AlbertConfig], length: int, sequences: int, device: torch.device, precision: Precision
) -> None:
    free = free_memory(device)
    needed = 0
    for config in architectures.values():
        kind = "cuda" if device.type == "cuda" else "cpu"
        needed += count_training_memory(
            config, batch_size=sequences, sequence_length=length, device=kind, precision=precision
        ).peak
    if free is not None and needed > free:
        raise OutOfResources(
            " and ".join(architectures),
            f"training on {sequences} × {length} tokens needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free",
            "take a smaller model, fewer sequences (--batch-size) or shorter ones (--sequence-length)",
        )
