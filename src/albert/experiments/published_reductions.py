"""What is said about ALBERT beside BERT, and what a count makes of it.

Each claim is about one or more pairs of presets, and holds when the stated figure is the exact one, rounded or cut to
the digits that are stated. Sources: Lan et al. 2019 ("§"), its authors' announcement (Google AI blog, December 2019),
and a talk about the paper.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from albert.experiments.published_sizes import shape_of
from albert.model.config import AlbertConfig
from albert.model.parameter_count import ParameterCount, count_flops, count_parameters
from albert.model.presets import PRESETS

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
