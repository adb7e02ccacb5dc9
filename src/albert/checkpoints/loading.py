"""Tensors into a model, every one accounted for: what was missing, unexpected, dropped, or drawn anew."""

import logging
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import nn

from albert.checkpoints.huggingface import BACKBONE_PREFIX, HEADS, Renamed, backbone_names
from albert.model.albert import AlbertModel
from albert.model.config import AlbertConfig
from albert.model.initialization import initialize
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.runtime.manifests import MANIFEST_NAME

_logger = logging.getLogger(__name__)
_POOLER = "pooler."


@dataclass(frozen=True, kw_only=True)
class LoadingReport:
    """What became of every tensor, by the names in the file.

    Args:
        source: the file.
        verified: whether every file was checked against a manifest; False: there was none, or nobody asked.
        missing: tensors of the model that the file lacks.
        newly_initialised: tensors drawn at random, missing or set aside for a new head: train them first.
        unexpected: tensors of the file that this model has no place for.
        dropped: tensors that say nothing new: equal copies of tied ones, saved buffers, an identity map.
        notes: what is known to be doubtful about such a model, or was read as something else.
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
            ("in the file but saying nothing new", self.dropped),
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
        model: one of our models, without memory of its own.
        renamed: the file's tensors by our names.
        config: the model's configuration.
        source: the file, for errors and the report.
        verified: whether the file was checked against a manifest.
        dtype: of the parameters; None: each as in the file, and the commonest of those for what is drawn.
        new_head: leave the file's head aside and draw a new one.

    Raises:
        DamagedData: a part of the encoder is missing.
        InvalidConfiguration: a tensor has another shape than the model.
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
        drawn: what the model gets at random, by the names in the file.
        missing: those of them that the file lacks, rather than that they are set aside.
        unused: tensors of the file that have a place in another model, by the names in the file.
    """

    loaded: dict[str, str]
    drawn: tuple[str, ...]
    missing: tuple[str, ...]
    unused: tuple[str, ...]


def fit_tensors(model: nn.Module, renamed: Renamed, config: AlbertConfig, source: str, new_head: bool) -> Fit:
    """Find the place of every tensor, by names and shapes alone: tensors on the meta device will do.

    Raises:
        DamagedData: a part of the encoder is missing.
        InvalidConfiguration: a tensor has another shape than the model.
    """
    in_file = {BACKBONE_PREFIX + ours: BACKBONE_PREFIX + theirs[0] for ours, theirs in backbone_names(config)}
    in_file |= HEADS | renamed.in_file
    bare = BACKBONE_PREFIX if isinstance(model, AlbertModel) else ""
    shapes = {bare + name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    loaded = [name for name in renamed.tensors if name in shapes and not (new_head and name in HEADS)]
    drawn = [name for name in shapes if name not in loaded]
    _refuse_a_part_of_an_encoder([in_file[name] for name in drawn if _belongs_to_encoder(name)], source)
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


def _belongs_to_encoder(name: str) -> bool:
    return name.startswith(BACKBONE_PREFIX) and not name.startswith(BACKBONE_PREFIX + _POOLER)


def _refuse_a_part_of_an_encoder(missing: list[str], source: str) -> None:
    if missing:
        raise DamagedData(
            source,
            f"lacks {len(missing)} of the encoder's tensors ({_abridged(missing)})",
            "config.json does not describe these weights, or they are not those of an ALBERT",
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
