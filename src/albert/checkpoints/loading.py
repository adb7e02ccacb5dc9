"""Loading tensors into a model, with a report on every one: missing, unexpected, dropped or drawn at random.

Also: warnings about published models with known faults, groups that do not divide the layers, and which class of
transformers a set of tensors is."""

import logging
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import nn

from albert.checkpoints.huggingface import BACKBONE_PREFIX, HEADS, KINDS, Renamed, backbone_names, build_model
from albert.model.albert import AlbertModel
from albert.model.config import AlbertConfig
from albert.model.encoder import initialize, without_memory
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.manifest import MANIFEST_NAME

_logger = logging.getLogger(__name__)
_POOLER = BACKBONE_PREFIX + "pooler."


@dataclass(frozen=True, kw_only=True)
class LoadingReport:
    """What became of every tensor, by the names in the file.

    Args:
        verified: whether every file was checked against a manifest; False: there was none, or nobody asked.
        newly_initialised: tensors drawn at random, missing or set aside for a new head: train them first.
        dropped: tensors that say nothing new: equal copies of tied ones, saved buffers, an identity map.
    """

    source: str
    verified: bool
    missing: tuple[str, ...] = ()
    newly_initialised: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report for people: the source, then a line for each finding."""
        state = "checked against its manifest" if self.verified else "unverified: no manifest was checked"
        lines = [f"{self.source}: {state}"]
        findings = (
            ("missing", self.missing),
            ("newly initialised, at random", self.newly_initialised),
            ("in the file but not used", self.unexpected),
            ("in the file but not needed", self.dropped),
        )
        lines += [f"{what}: {len(names)} ({_abridged(names)})" for what, names in findings if names]
        return [*lines, *self.notes]

    def warn_if_unverified(self) -> None:
        """Log, once a process and model, that there was no manifest; without a handler it is a line on stderr."""
        if not self.verified:
            _warn_unverified(self.source)


@lru_cache(maxsize=1024)
def _warn_unverified(source: str) -> None:
    _logger.warning("albert: note: %s: unverified: there is no %s to check it against", source, MANIFEST_NAME)


def load_tensors(
    model: nn.Module,
    renamed: Renamed,
    config: AlbertConfig,
    source: str,
    verified: bool,
    dtype: torch.dtype | None,
    new_head: bool,
) -> LoadingReport:
    """Fill a model that was built on the meta device, and draw what the file does not have.

    Args:
        dtype: of the parameters; None: each as in the file, and the commonest of those for what is drawn.
    """
    fit = fit_tensors(model, renamed, config, source, new_head)
    loaded = {ours: renamed.tensors[name] for name, ours in fit.loaded.items()}
    dtypes = Counter(tensor.dtype for tensor in loaded.values())
    model.load_state_dict({name: t.to(dtype or t.dtype) for name, t in loaded.items()}, strict=False, assign=True)
    _draw(model, config.initializer_range, dtype or dtypes.most_common(1)[0][0])
    return LoadingReport(
        source=source,
        verified=verified,
        missing=fit.missing,
        newly_initialised=fit.drawn,
        unexpected=tuple(sorted([*fit.unused, *renamed.unexpected])),
        dropped=renamed.dropped,
    )


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Which tensors of a file go where in a model.

    Args:
        loaded: name of the renamed tensor -> name in the model.
        missing: those of them that the file lacks, rather than that they are set aside.
    """

    loaded: dict[str, str]
    drawn: tuple[str, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]


def fit_tensors(model: nn.Module, renamed: Renamed, config: AlbertConfig, source: str, new_head: bool) -> Fit:
    """Find the place of every tensor, by names and shapes alone: tensors on the meta device will do."""
    in_file = {BACKBONE_PREFIX + ours: BACKBONE_PREFIX + theirs[0] for ours, theirs in backbone_names(config)}
    in_file |= HEADS | renamed.in_file
    bare = BACKBONE_PREFIX if isinstance(model, AlbertModel) else ""
    shapes = {bare + name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    loaded = [name for name in renamed.tensors if name in shapes and not (new_head and name in HEADS)]
    drawn = [name for name in shapes if name not in loaded]
    if absent := [in_file[name] for name in drawn if name.startswith(BACKBONE_PREFIX) and not name.startswith(_POOLER)]:
        why = f"lacks {len(absent)} of the encoder's tensors ({_abridged(absent)})"
        raise DamagedData(
            source, why, "config.json does not describe these weights, or they are not those of an ALBERT"
        )
    for name in loaded:
        found = tuple(renamed.tensors[name].shape)
        if found != shapes[name]:
            _refuse_shape(in_file[name], found, shapes[name], name in HEADS, source)
    return Fit(
        loaded={name: name.removeprefix(bare) for name in loaded},
        drawn=tuple(in_file[name] for name in drawn),
        missing=tuple(in_file[name] for name in drawn if name not in renamed.tensors),
        unused=tuple(in_file[name] for name in renamed.tensors if name not in loaded),
    )


def _refuse_shape(name: str, found: tuple[int, ...], expected: tuple[int, ...], is_head: bool, source: str) -> None:
    remedy = (
        "ask for as many labels as the file has, or for a new head"
        if is_head
        else "the configuration must describe these weights"
    )
    raise InvalidConfiguration(source, f"{name} has shape {found}, the model asks for {expected}", remedy)


def _draw(model: nn.Module, standard_deviation: float, dtype: torch.dtype) -> None:
    """Give memory and initial values to the parameters that are still on the meta device."""
    for module in model.modules():
        own = dict(module.named_parameters(recurse=False))
        if not any(parameter.is_meta for parameter in own.values()):
            continue
        for name, parameter in own.items():
            if parameter.is_meta:
                module.register_parameter(name, nn.Parameter(torch.zeros(parameter.shape, dtype=dtype)))
        if not any(True for _ in module.children()):  # a bias beside children (the decoder's) stays zero
            initialize(module, standard_deviation)
        for name, parameter in own.items():
            if not parameter.is_meta:
                module.register_parameter(name, parameter)


def _abridged(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f", and {len(names) - 3} more" if len(names) > 3 else "")


# --------------------------------------------------------------------------------------------------------------------
# Warnings about published checkpoints with doubtful settings, given when one is opened.

_RELICS = ("net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor")
"""Keys that no code reads and that only configurations made from Google's releases have."""
_XLARGE = (2048, 8192)


def known_quirks(config: AlbertConfig, extra: Mapping[str, Any]) -> tuple[str, ...]:
    """A line for each doubt about a model."""
    if not any(key in extra for key in _RELICS):
        return ()
    notes = []
    if config.hidden_act == "gelu":
        notes.append(
            'hidden_act "gelu" is the exact form here as in transformers, but Google trained with the tanh form, '
            '"gelu_new" here; --hidden-act gelu_new computes what Google computed'
        )
    if (config.hidden_size, config.intermediate_size) == _XLARGE:
        notes.append(
            f"num_attention_heads is {config.num_attention_heads}, and ALBERT-xlarge is published with 16 and with 32; "
            "albert info --self-check tells which one these weights know, --num-attention-heads sets it"
        )
    return tuple(notes)


# --------------------------------------------------------------------------------------------------------------------
# Groups of layers that do not divide the layers: transformers takes such models, and spreads the groups unevenly.
#
# Here groups are of equal size, so such a model is opened with a group a layer: the same numbers come out, and its
# layers share nothing any more.

T = TypeVar("T")
_IN_GROUP = re.compile(r"((?:albert\.)?encoder\.albert_layer_groups\.)(\d{1,6})(\..+)")


def groups_of_layers(layers: int, groups: int) -> list[int]:
    """The group of each layer, in floating point as transformers computes it (`AlbertTransformer.forward`)."""
    return [int(layer / (layers / groups)) for layer in range(layers)]


def spread_over_layers(tensors: Mapping[str, T], layers: int, groups: int) -> dict[str, T]:
    """transformers' tensors of a model with uneven groups, named as those of one with a group a layer."""
    members: dict[int, list[int]] = {}
    for layer, group in enumerate(groups_of_layers(layers, groups)):
        members.setdefault(group, []).append(layer)
    spread: dict[str, T] = {}
    for name, tensor in tensors.items():
        found = _IN_GROUP.fullmatch(name)
        if found is None:
            spread[name] = tensor
            continue
        before, group, after = found.groups()
        spread |= {f"{before}{layer}{after}": tensor for layer in members.get(int(group), [])}
    return spread


def uneven_groups_note(layers: int, groups: int) -> str:
    """What became of the groups, for people."""
    used = len(set(groups_of_layers(layers, groups)))
    said = f"{groups} groups do not divide {layers} layers: every layer has its own copy of its group's weights here"
    return said + (f"; {groups - used} groups, which no layer uses, are left out" if used < groups else "")


# --------------------------------------------------------------------------------------------------------------------
# Which of transformers' classes a set of tensors is, by the head that is there, and whether it is all of it.

CLASSIFIERS = ("AlbertForSequenceClassification", "AlbertForTokenClassification", "AlbertForMultipleChoice")
_HEADS = {
    "AlbertForPreTraining": ("predictions", "sop_classifier"),
    "AlbertForMaskedLM": ("predictions", "nsp_classifier"),
    **dict.fromkeys(CLASSIFIERS, ("classifier",)),
    "AlbertForQuestionAnswering": ("qa_outputs",),
    "AlbertForJointQuestionAnswering": ("joint_qa_outputs",),
    "AlbertForPairClassification": ("pair_classifier",),
    "AlbertModel": (),
}
LABELLED = (*CLASSIFIERS[:2], "AlbertForPairClassification")
_ANSWERING = ("AlbertForQuestionAnswering", "AlbertForJointQuestionAnswering")
_WITHOUT_POOLER = ("AlbertForMaskedLM", *_ANSWERING, "AlbertForPairClassification", "AlbertModel")


def architecture_of(names: Iterable[str], stated: str | None = None) -> str:
    """The class that holds most of some tensors; the head of a task goes before those of pre-training.

    Args:
        stated: what says so itself; it tells apart the classes whose head is the same linear map.
    """
    heads = {name.split(".", 1)[0] for name in names}
    if "joint_qa_outputs" in heads:
        return "AlbertForJointQuestionAnswering"
    if "pair_classifier" in heads:
        return "AlbertForPairClassification"
    if "qa_outputs" in heads:
        return "AlbertForQuestionAnswering"
    if "classifier" in heads:
        return stated if stated in CLASSIFIERS else CLASSIFIERS[0]
    if "predictions" in heads:
        return "AlbertForPreTraining" if "sop_classifier" in heads else "AlbertForMaskedLM"
    return "AlbertModel"


def belongs_to(name: str, architecture: str) -> bool:
    """Whether a tensor is the encoder's, or of the head that a class has.

    A masked language model keeps its pooler, which the class itself does not use: so do the published ones, for
    whoever fine-tunes them.
    """
    part, _, inside = name.partition(".")
    if architecture in _ANSWERING and inside.startswith("pooler."):
        return False
    return name.startswith(BACKBONE_PREFIX) or part in _HEADS[architecture]


def require_whole(renamed: Renamed, architecture: str, config: AlbertConfig, where: str) -> None:
    """Refuse tensors of which a part is missing or has another shape than the model's."""
    outputs = renamed.tensors[f"{_HEADS[architecture][0]}.bias"].numel() if architecture in LABELLED else None
    with without_memory():
        models = (AlbertModel(config), build_model(KINDS[architecture], config, outputs))
    missing = {name for model in models for name in fit_tensors(model, renamed, config, where, new_head=False).missing}
    if architecture in _WITHOUT_POOLER:
        missing = {name for name in missing if not name.startswith(_POOLER)}
    if missing:
        names = sorted(missing)
        raise DamagedData(where, f"lacks {len(names)} tensors of {architecture} ({_abridged(names)})")
