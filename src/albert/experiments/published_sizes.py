"""Published model sizes and reductions of ALBERT, and what counting gives in their place.

The paper counts ALBERT with its pooler, and BERT and whatever shares nothing without; some of its figures are rounded
loosely, and two cannot be reached at all. "Table" and "§" are of Lan et al. 2019, arXiv 1909.11942v6."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib.resources import files
from typing import Any, Literal

from albert.model.config import PRESETS, AlbertConfig, sharing_plan
from albert.model.cost import count_flops, count_parameters

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
        stated: as it is printed, in millions: "12M".
        where: table, section or page.
        counted: which of our counts it is, rounded; None when it is none of them.
        why: what else there is to say; where `counted` is None, why it differs.
    """

    stated: str
    where: str
    counted: Counting | None
    why: str | None = None

    @property
    def millions(self) -> int:
        """The figure as a number."""
        return int(self.stated.removesuffix("M"))

    def exact(self, config: AlbertConfig) -> int:
        """Our count of the same thing; of the model with its pooler where it is none of ours."""
        return count_parameters(config).by_part()[self.counted or "model"]

    @property
    def reason(self) -> str:
        """How to get from our count to the figure, or why one cannot."""
        said = [COUNTINGS[self.counted]] if self.counted else []
        return "; ".join([*said, *([self.why] if self.why else [])])


_PUBLISHED = tomllib.loads((files("albert.experiments") / "published_sizes.toml").read_text(encoding="utf-8"))
PUBLISHED_SIZES: dict[str, tuple[PublishedSize, ...]] = {
    preset: tuple(
        PublishedSize(size["stated"], size["where"], size.get("counted"), size.get("why"))
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
