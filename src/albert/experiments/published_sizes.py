"""How large models are said to be, where that is said, and what was counted to get there.

The paper counts ALBERT with its pooler, and BERT and whatever shares nothing without; some of its figures are rounded
loosely, and two cannot be reached at all. "Table" and "§" are of Lan et al. 2019, arXiv 1909.11942v6.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal

from albert.model.config import AlbertConfig
from albert.model.parameter_count import count_parameters
from albert.model.parameter_sharing import sharing_plan
from albert.model.presets import PRESETS

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
