"""What the paper says that its tables show, each as contrasts between rows that a run can decide.

A claim is judged (`judgement.py`) on the first of its columns that a scale has: the paper's average where all five
tasks are learnt, else held-out figures or a task that asks for the same. Rows are called as in `published_scores.py`.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Relation = Literal["higher", "not higher", "alike"]
"""What the first row is beside the second: better; no better by as much as counts; within as much as counts."""


@dataclass(frozen=True)
class Contrast:
    """Two rows of a table, or (`second` None) a row and what can be had for nothing, as `nothing` calls it."""

    first: str
    relation: Relation
    second: str | None
    nothing: str = "the constant answer"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence that the paper's table bears out.

    Args:
        sentence: what is claimed, in one plain sentence.
        contrasts: all of them must hold.
        columns: where it can be seen, the paper's own place first.
        smallest: the smallest difference, in points, that counts as one.
        equal: a column in which the rows must agree to a tenth for the comparison to be one (Table 6: hours).
    """

    sentence: str
    contrasts: tuple[Contrast, ...]
    columns: tuple[str, ...] = ("average", "masked tokens")
    smallest: float = 0.5
    equal: str | None = None

    def column(self, available: frozenset[str]) -> str | None:
        """The column that it is judged on; None: this scale has none of them."""
        return next((name for name in self.columns if name in available), None)


def _chain(*rows: str) -> tuple[Contrast, ...]:
    """Every row better than the one before."""
    return tuple(Contrast(later, "higher", former) for former, later in pairwise(rows))


_HELD_OUT = ("masked tokens",)
_SEVERAL_SENTENCES = ("average", "qnli")

CLAIMS: dict[str, tuple[Claim, ...]] = {
    "2": (
        Claim(
            sentence="ALBERT gets better with every size.",
            contrasts=_chain("albert-base", "albert-large", "albert-xlarge", "albert-xxlarge"),
        ),
        Claim(
            sentence="ALBERT-xxlarge is better than BERT-large, of fewer parameters.",
            contrasts=(Contrast("albert-xxlarge", "higher", "bert-large"),),
        ),
        Claim(
            sentence="At the same depth and width BERT is better than ALBERT, which shares its layers.",
            contrasts=(
                Contrast("bert-base", "higher", "albert-base"),
                Contrast("bert-large", "higher", "albert-large"),
            ),
        ),
    ),
    "3": (
        Claim(
            sentence="Where nothing is shared, larger embeddings are better.",
            contrasts=(Contrast("not shared, E = 768", "higher", "not shared, E = 64"),),
        ),
        Claim(
            sentence="Where all is shared, the default E is better than a smaller one; larger ones bring nothing.",
            contrasts=(
                Contrast("all shared, E = 128", "higher", "all shared, E = 64"),
                Contrast("all shared, E = 256", "not higher", "all shared, E = 128"),
                Contrast("all shared, E = 768", "not higher", "all shared, E = 128"),
            ),
        ),
    ),
    "4": (
        Claim(
            sentence="Sharing all parameters costs something.",
            contrasts=(
                Contrast("E = 768, none", "higher", "E = 768, all"),
                Contrast("E = 128, none", "higher", "E = 128, all"),
            ),
        ),
        Claim(
            sentence="Sharing the attention blocks alone costs next to nothing.",
            contrasts=(
                Contrast("E = 768, attention", "alike", "E = 768, none"),
                Contrast("E = 128, attention", "alike", "E = 128, none"),
            ),
            smallest=1.0,
        ),
        Claim(
            sentence="It is sharing the feed-forward blocks that costs.",
            contrasts=(
                Contrast("E = 768, attention", "higher", "E = 768, ffn"),
                Contrast("E = 128, attention", "higher", "E = 128, ffn"),
            ),
        ),
    ),
    "5": (
        Claim(
            sentence="NSP training does not help sentence order: the model stays near chance.",
            contrasts=(Contrast("nsp", "not higher", None),),
            columns=("sop",),
            smallest=3.0,
        ),
        Claim(
            sentence="SOP training helps next-sentence prediction, which was never asked of it.",
            contrasts=(Contrast("sop", "higher", None),),
            columns=("nsp",),
            smallest=3.0,
        ),
        Claim(
            sentence="SOP training teaches sentence order, and NSP training does not.",
            contrasts=(Contrast("sop", "higher", "nsp"),),
            columns=("sop",),
            smallest=3.0,
        ),
        Claim(
            sentence="Predicting sentences costs hardly any masked tokens.",
            contrasts=(Contrast("nsp", "alike", "none"), Contrast("sop", "alike", "none")),
            columns=_HELD_OUT,
            smallest=1.0,
        ),
        Claim(
            sentence="SOP training helps tasks of several sentences, more than NSP training or none.",
            contrasts=(Contrast("sop", "higher", "none"), Contrast("sop", "higher", "nsp")),
            columns=_SEVERAL_SENTENCES,
        ),
    ),
    "6": (
        Claim(
            sentence="In the same time of training ALBERT-xxlarge becomes better than BERT-large.",
            contrasts=(Contrast("albert-xxlarge, 125k steps", "higher", "bert-large, 400k steps"),),
            equal="hours",
        ),
    ),
    "7": (
        Claim(
            sentence="Additional text helps.",
            contrasts=(Contrast("additional text", "higher", "no additional text"),),
        ),
        Claim(
            sentence="Additional text does not help questions on Wikipedia.",
            contrasts=(Contrast("additional text", "not higher", "no additional text"),),
            columns=("squad-1.1 f1",),
        ),
    ),
    "8": (
        Claim(
            sentence="A model that does not fit its text too well is better without dropout.",
            contrasts=(Contrast("without dropout", "higher", "with dropout"),),
            smallest=0.2,
        ),
    ),
    "9": (
        Claim(
            sentence="Half as much training again helps a little.",
            contrasts=(Contrast("albert-xxlarge, 1.5M steps", "higher", "albert-xxlarge, 1M steps"),),
            columns=("mnli", "masked tokens"),
            smallest=0.2,
        ),
    ),
    "10": (
        Claim(
            sentence="Half as much training again helps a little.",
            contrasts=(Contrast("albert-xxlarge, 1.5M steps", "higher", "albert-xxlarge, 1M steps"),),
            columns=("race", "masked tokens"),
            smallest=0.2,
        ),
    ),
    "11": (
        Claim(
            sentence="More layers are better, up to half of ALBERT-large's.",
            contrasts=_chain("1", "6", "12"),
        ),
        Claim(
            sentence="Twice the layers of ALBERT-large are no better than its own.",
            contrasts=(Contrast("48", "not higher", "24"),),
        ),
    ),
    "12": (
        Claim(
            sentence="Wider is better, up to a point.",
            contrasts=_chain("1024", "2048", "4096"),
        ),
        Claim(
            sentence="Beyond that point wider is no better.",
            contrasts=(Contrast("6144", "not higher", "4096"),),
        ),
    ),
    "13": (
        Claim(
            sentence="A wide model need not be deep: twice the layers bring nothing.",
            contrasts=(Contrast("24", "not higher", "12"),),
        ),
    ),
    "figure-1": (
        Claim(
            sentence="From layer to layer the distance of input and output changes less in ALBERT than in BERT.",
            contrasts=(Contrast("bert-large", "higher", "albert-large"),),
            columns=("unevenness of distances",),
            smallest=5.0,
        ),
        Claim(
            sentence="So does the angle between them.",
            contrasts=(Contrast("bert-large", "higher", "albert-large"),),
            columns=("unevenness of angles",),
            smallest=5.0,
        ),
        Claim(
            sentence="ALBERT's layers do not come to rest: the last one still moves its input.",
            contrasts=(Contrast("albert-large", "higher", None, "a fixed point"),),
            columns=("movement of the last layer",),
            smallest=5.0,
        ),
    ),
    "figure-2a": (
        Claim(
            sentence="With additional text more held-out masked tokens are right.",
            contrasts=(Contrast("additional text", "higher", "no additional text"),),
            columns=_HELD_OUT,
        ),
    ),
    "figure-2b": (
        Claim(
            sentence="Without dropout more held-out masked tokens are right.",
            contrasts=(Contrast("without dropout", "higher", "with dropout"),),
            columns=_HELD_OUT,
        ),
    ),
    "degradation": (
        Claim(
            sentence="A BERT twice as wide as BERT-large is worse.",
            contrasts=(Contrast("bert-large", "higher", "bert-xlarge"),),
            columns=("race", "masked tokens"),
        ),
    ),
    "v2": (
        Claim(
            sentence="The second release gets better with every size.",
            contrasts=_chain("albert-base-v2", "albert-large-v2", "albert-xlarge-v2", "albert-xxlarge-v2"),
        ),
        Claim(
            sentence="The second release of ALBERT-xxlarge is no better than the first.",
            contrasts=(Contrast("albert-xxlarge-v2", "not higher", "albert-xxlarge-v1"),),
        ),
    ),
}
"""Table -> its claims. Claims about sizes are figures, exact at every scale: `published_reductions.py`."""
