"""Published model sizes and reductions of ALBERT, and what counting gives in their place.

The paper counts ALBERT with its pooler, and BERT and whatever shares nothing without; some of its figures are rounded
loosely, and two cannot be reached at all. "Table" and "§" are of Lan et al. 2019, arXiv 1909.11942v6."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Literal

from albert.model.config import PRESETS, AlbertConfig, sharing_plan
from albert.model.cost import ParameterCount, count_flops, count_parameters

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


def _in_table(table: str, counted: Counting, sizes: dict[str, str]) -> dict[str, tuple[PublishedSize, ...]]:
    return {name: (PublishedSize(stated, table, counted),) for name, stated in sizes.items()}


_LOOSE_60 = "58.7M with the pooler, 59.0M with both heads: rounded to 5 million"

_BASE = PublishedSize("12M", "Tables 1 to 4", "model")
_LARGE = PublishedSize("18M", "Tables 1, 2, 11", "model")
_XLARGE = PublishedSize("60M", "Tables 1, 2, §3.2", None, _LOOSE_60)
_XXLARGE = (
    PublishedSize("235M", "Tables 1, 2", None, "no counting of this configuration gives it"),
    PublishedSize("233M", "§3.2", None, "no counting of this configuration gives it"),
    PublishedSize("223M", "model card on the Hub", "pretraining", "without the heads it is 223M too"),
)

PUBLISHED_SIZES: dict[str, tuple[PublishedSize, ...]] = {
    **dict.fromkeys(("albert-base", "albert-base-v1"), (_BASE,)),
    **dict.fromkeys(("albert-large", "albert-large-v1"), (_LARGE,)),
    **dict.fromkeys(("albert-xlarge", "albert-xlarge-v1"), (_XLARGE,)),
    **dict.fromkeys(("albert-xxlarge", "albert-xxlarge-L24"), _XXLARGE),
    "bert-base": (PublishedSize("108M", "Tables 1 to 4", "encoder"),),
    "bert-large": (PublishedSize("334M", "Tables 1, 2", "encoder"),),
    "bert-xlarge": (
        PublishedSize("1270M", "Table 1 of earlier versions", None, "1,271.1M without the pooler: cut to three digits"),
    ),
    **_in_table(
        "Table 3",
        "encoder",
        {
            "albert-base-E64-not-shared": "87M",
            "albert-base-not-shared": "89M",
            "albert-base-E256-not-shared": "93M",
        },
    ),
    **_in_table(
        "Table 3",
        "model",
        {"albert-base-E64": "10M", "albert-base-E256": "16M", "albert-base-E768": "31M"},
    ),
    **_in_table(
        "Table 4",
        "model",
        {
            "albert-base-shared-attention": "64M",
            "albert-base-shared-ffn": "38M",
            "albert-base-E768-shared-attention": "83M",
            "albert-base-E768-shared-ffn": "57M",
        },
    ),
    **_in_table("Table 11", "model", {f"albert-large-L{depth}": "18M" for depth in (1, 3, 6, 12, 48)}),
    "albert-large-L3-H2048": (PublishedSize("60M", "Table 12", None, _LOOSE_60),),
    "albert-large-L3-H4096": (
        PublishedSize("225M", "Table 12", None, "222.6M with the pooler, 223.2M with both heads: rounded to 5 million"),
    ),
    "albert-large-L3-H6144": (
        PublishedSize("499M", "Table 12", None, "no counting gives it: 495.5M with the pooler, 496.4M with both heads"),
    ),
    "bert-base-uncased": (PublishedSize("110M", "Devlin et al. 2019", "pretraining"),),
    "bert-large-uncased": (
        PublishedSize("340M", "Devlin et al. 2019", None, "335.1M with the pooler, 336.2M with both heads: two digits"),
        PublishedSize("336M", "model card on the Hub", "pretraining"),
    ),
}
"""Preset -> every size that is stated for it."""

_HEADS = "H/64 gives 32 heads, the released configuration says 16, and the weights fit both: --self-check asks a model"
_TABLE_2 = "the scores beside 235M in Table 2 are those of 24 layers, which have the same parameters"
_VOCABULARY = "BERT as the paper compares it, with ALBERT's vocabulary"

_TANH = 'Google\'s "gelu" is the tanh form, here gelu_new; transformers takes the word for the exact one'

REMARKS: dict[str, str] = {
    "albert-base-v1": _TANH,
    "albert-large-v1": _TANH,
    "albert-xlarge": _HEADS,
    "albert-xlarge-v1": f"{_HEADS}; {_TANH}",
    "albert-xxlarge": _TABLE_2,
    "albert-xxlarge-L24": _TABLE_2,
    "albert-xxlarge-zh": "16 heads, which the authors found to be better than 64 (google-research/albert#153)",
    "bert-base": f"{_VOCABULARY}; Devlin's own is bert-base-uncased",
    "bert-large": f"{_VOCABULARY}; Devlin's own is bert-large-uncased",
    "bert-xlarge": f"{_VOCABULARY}; it was never released",
}
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
# Each claim is about one or more pairs of presets, and holds when the stated figure is the exact one, rounded or
# cut to the digits that are stated. Sources: Lan et al. 2019 ("§"), its authors' announcement (Google AI blog,
# December 2019), and a talk about the paper.

Unit = Literal["% fewer", "% of it", "times fewer", "times as many", "times as wide"]
BLOG, TALK = "authors' blog, 2019", "talk about the paper"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that somebody wrote, as a figure that can be computed.

    Args:
        quote: its words.
        source: where it stands.
        stated: its figure.
        pairs: (before, after) presets that it is about.
        of_what: what is counted.
        measure: the exact figure, of the configurations before and after.
        unit: of the figure.
        low, high: the claim holds from `low` up to, not including, `high`.
        because: what explains the figure, whether the claim holds or not.
    """

    quote: str
    source: str
    stated: str
    pairs: tuple[tuple[str, str], ...]
    of_what: str
    measure: Callable[[AlbertConfig, AlbertConfig], float]
    unit: Unit
    low: float
    high: float
    because: str | None = None


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
    unit: Unit
    holds: bool
    because: str | None

    @property
    def figure(self) -> str:
        """The exact figure in words: "82.9 % fewer", "18.92 times fewer"."""
        return f"{self.exact:.{1 if self.unit.startswith('%') else 2}f} {self.unit}"


def claims_about(one: AlbertConfig, other: AlbertConfig) -> list[CheckedClaim]:
    """The claims that concern two models of these shapes, in whichever order, each with its exact figure."""
    asked = {shape_of(one), shape_of(other)}
    return [
        _check(claim, *pair)
        for claim in CLAIMS
        for pair in claim.pairs
        if {shape_of(PRESETS[name]) for name in pair} == asked
    ]


def _check(claim: Claim, before: str, after: str) -> CheckedClaim:
    exact = claim.measure(PRESETS[before], PRESETS[after])
    return CheckedClaim(
        quote=claim.quote,
        source=claim.source,
        stated=claim.stated,
        before=before,
        after=after,
        of_what=claim.of_what,
        exact=exact,
        unit=claim.unit,
        holds=claim.low <= exact < claim.high,
        because=claim.because,
    )


def _input_block(count: ParameterCount) -> int:
    return count.embeddings + count.projection


def _layers(count: ParameterCount) -> int:
    return count.attention + count.feed_forward


def _model(count: ParameterCount) -> int:
    return count.model


def _percent_fewer(part: Callable[[ParameterCount], int]) -> Callable[[AlbertConfig, AlbertConfig], float]:
    return lambda before, after: 100 * (1 - part(count_parameters(after)) / part(count_parameters(before)))


def _work_ratio(before: AlbertConfig, after: AlbertConfig) -> float:
    return count_flops(after).forward / count_flops(before).forward


EMBEDDINGS_AND_MAP = "parameters of the embeddings and their map to H"
LAYERS = "parameters of the attention and feed-forward blocks"
MODEL = "parameters of the model with its pooler"
WORK = "FLOPs a token, forward, at 512 tokens"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        quote="With this step alone, ALBERT achieves an 80% reduction in the parameters of the projection block",
        source=BLOG,
        stated="80 %",
        pairs=(("bert-base", "albert-base-not-shared"), ("bert-base", "albert-base")),
        of_what=EMBEDDINGS_AND_MAP,
        measure=_percent_fewer(_input_block),
        unit="% fewer",
        low=75,
        high=85,
    ),
    Claim(
        quote="Parameter sharing achieves a 90% parameter reduction for the attention-feedforward block",
        source=BLOG,
        stated="90 %",
        pairs=(
            ("bert-base", "albert-base-E768"),
            ("bert-base", "albert-base"),
            ("albert-base-not-shared", "albert-base"),
        ),
        of_what=LAYERS,
        measure=_percent_fewer(_layers),
        unit="% fewer",
        low=85,
        high=95,
        because="one layer in place of twelve: 11/12",
    ),
    Claim(
        quote="(a 70% reduction overall)",
        source=BLOG,
        stated="70 %",
        pairs=(("bert-base", "albert-base-E768"), ("albert-base-not-shared", "albert-base")),
        of_what=MODEL,
        measure=_percent_fewer(_model),
        unit="% fewer",
        low=65,
        high=75,
        because="it is what sharing does at E = 768; the scores in that sentence are of E = 128",
    ),
    Claim(
        quote="an ALBERT-base model that has only 12M parameters, an 89% parameter reduction compared to the BERT-base",
        source=BLOG,
        stated="89 %",
        pairs=(("bert-base", "albert-base"),),
        of_what=MODEL,
        measure=_percent_fewer(_model),
        unit="% fewer",
        low=88.5,
        high=89.5,
    ),
    Claim(
        quote="an overall 30% parameter reduction compared to the BERT-large model",
        source=BLOG,
        stated="30 %",
        pairs=(("bert-large", "albert-xxlarge"),),
        of_what=MODEL,
        measure=_percent_fewer(_model),
        unit="% fewer",
        low=25,
        high=35,
        because="as a round figure; the paper's 235M and 334M make it 29.6 %",
    ),
    Claim(
        quote="233M parameters, i.e., around 70% of BERT-large's parameters",
        source="§3.2",
        stated="70 %",
        pairs=(("bert-large", "albert-xxlarge"),),
        of_what=MODEL,
        measure=lambda before, after: 100 - _percent_fewer(_model)(before, after),
        unit="% of it",
        low=65,
        high=75,
        because="as a round figure; no counting gives 233M",
    ),
    Claim(
        quote="ALBERT-large has about 18x fewer parameters compared to BERT-large, 18M versus 334M",
        source="§3.2",
        stated="18 x",
        pairs=(("bert-large", "albert-large"),),
        of_what=MODEL,
        measure=lambda before, after: count_parameters(before).model / count_parameters(after).model,
        unit="times fewer",
        low=18,
        high=19,
        because="cut, not rounded; 334M / 18M is 18.6",
    ),
    Claim(
        quote="less communication and fewer computation",
        source=TALK,
        stated="fewer",
        pairs=(("bert-large", "albert-large"), ("bert-base", "albert-base")),
        of_what=WORK,
        measure=_work_ratio,
        unit="times as many",
        low=0,
        high=0.995,
        because="sharing saves no work; Table 2's speed-up comes from smaller gradients to exchange",
    ),
    Claim(
        quote="about 3 times slower than BERT-large (larger structure)",
        source=TALK,
        stated="3 x",
        pairs=(("bert-large", "albert-xxlarge"),),
        of_what=WORK,
        measure=_work_ratio,
        unit="times as many",
        low=2.5,
        high=3.5,
        because="it was measured so on TPUs (Table 6: 3.17), which do wide products faster",
    ),
    Claim(
        quote="scale up the size of the hidden-layer embeddings by 10-20x. With a hidden-size of 4096 ...",
        source=BLOG,
        stated="10-20 x",
        pairs=(("albert-base", "albert-xxlarge"),),
        of_what="hidden size",
        measure=lambda before, after: after.hidden_size / before.hidden_size,
        unit="times as wide",
        low=10,
        high=20.5,
        because="768 to 4096; it is the parameters that grow 19 times",
    ),
    Claim(
        quote="(Drastic) reduction of model size (more for sharing FFN weights)",
        source=TALK,
        stated="more",
        pairs=(
            ("albert-base-shared-attention", "albert-base-shared-ffn"),
            ("albert-base-E768-shared-attention", "albert-base-E768-shared-ffn"),
        ),
        of_what=MODEL,
        measure=_percent_fewer(_model),
        unit="% fewer",
        low=0.05,
        high=100,
        because="a feed-forward block has twice the parameters of an attention block",
    ),
)
"""Every claim about sizes in the material that the project started from."""
