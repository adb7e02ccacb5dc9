"""The paper's tables as data: scores, the settings of Table 14, costs, and the chart of RACE.

"Table" is of Lan et al. 2019, arXiv 1909.11942v6; scores are points of 100 on the development sets unless a title says
otherwise. Models of Tables 2 to 5, 7 and 11 to 13 learnt for 125,000 steps of 4,096 sequences, if nothing else is said.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

DOWNSTREAM = (
    "squad-1.1 f1",
    "squad-1.1 exact",
    "squad-2.0 f1",
    "squad-2.0 exact",
    "mnli",
    "sst-2",
    "race",
)
"""The columns of the paper's ablations; their average takes the mean of both figures of a SQuAD first."""
GLUE = ("mnli", "qnli", "qqp", "rte", "sst-2", "mrpc", "cola", "sts-b")
READING = ("squad-1.1 f1", "squad-1.1 exact", "squad-2.0 f1", "squad-2.0 exact", "squad-2.0 test f1",
           "squad-2.0 test exact", "race test", "race-middle test", "race-high test")  # fmt: skip
INTRINSIC = ("masked tokens", "nsp", "sop")


@dataclass(frozen=True)
class PublishedRow:
    """One model of a table.

    Args:
        arm: what sets it apart from the other rows.
        scores: by column; a column that the paper leaves empty is absent.
        average: as it is printed; None where the table has none.
    """

    arm: str
    scores: Mapping[str, float]
    average: float | None = None


@dataclass(frozen=True)
class PublishedTable:
    """A table of scores."""

    name: str
    title: str
    rows: tuple[PublishedRow, ...]
    notes: tuple[str, ...] = field(default=())
    """What a reader should know before comparing."""

    def row(self, arm: str) -> PublishedRow:
        """The row of that arm. Raises KeyError when there is none."""
        return {row.arm: row for row in self.rows}[arm]


def average_of(scores: Mapping[str, float]) -> float:
    """The paper's Avg: the mean over five tasks, of which both SQuADs count by the mean of F1 and exact match."""
    squads = [(scores[f"squad-{v} f1"] + scores[f"squad-{v} exact"]) / 2 for v in ("1.1", "2.0")]
    return sum([*squads, scores["mnli"], scores["sst-2"], scores["race"]]) / 5


def _downstream(arm: str, *scores: float, before: Mapping[str, float] | None = None) -> PublishedRow:
    *seven, average = scores
    return PublishedRow(arm, {**(before or {}), **dict(zip(DOWNSTREAM, seven, strict=True))}, average)


def _intrinsic(*scores: float) -> dict[str, float]:
    return dict(zip(INTRINSIC, scores, strict=True))


def _some(columns: tuple[str, ...], *scores: float | None) -> dict[str, float]:
    return {name: score for name, score in zip(columns, scores, strict=True) if score is not None}


OVERALL = PublishedTable(
    "2",
    "ALBERT beside BERT, and how fast each trains",
    (
        _downstream("bert-base", 90.4, 83.2, 80.4, 77.6, 84.5, 92.8, 68.2, 82.3, before={"speed-up": 4.7}),
        _downstream("bert-large", 92.2, 85.5, 85.0, 82.2, 86.6, 93.0, 73.9, 85.2, before={"speed-up": 1.0}),
        _downstream("albert-base", 89.3, 82.3, 80.0, 77.1, 81.6, 90.3, 64.0, 80.1, before={"speed-up": 5.6}),
        _downstream("albert-large", 90.6, 83.9, 82.3, 79.4, 83.5, 91.7, 68.5, 82.4, before={"speed-up": 1.7}),
        _downstream("albert-xlarge", 92.5, 86.1, 86.1, 83.1, 86.4, 92.4, 74.8, 85.5, before={"speed-up": 0.6}),
        _downstream("albert-xxlarge", 94.1, 88.3, 88.1, 85.1, 88.0, 95.2, 82.3, 88.7, before={"speed-up": 0.3}),
    ),
    ("The row of xxlarge is that of 24 layers in Table 13, though Table 1 gives it 12.",),
)
EMBEDDING_SIZE = PublishedTable(
    "3",
    "The size E of the vocabulary's embeddings, ALBERT-base",
    (
        _downstream("not shared, E = 64", 89.9, 82.9, 80.1, 77.8, 82.9, 91.5, 66.7, 81.3),
        _downstream("not shared, E = 128", 89.9, 82.8, 80.3, 77.3, 83.7, 91.5, 67.9, 81.7),
        _downstream("not shared, E = 256", 90.2, 83.2, 80.3, 77.4, 84.1, 91.9, 67.3, 81.8),
        _downstream("not shared, E = 768", 90.4, 83.2, 80.4, 77.6, 84.5, 92.8, 68.2, 82.3),
        _downstream("all shared, E = 64", 88.7, 81.4, 77.5, 74.8, 80.8, 89.4, 63.5, 79.0),
        _downstream("all shared, E = 128", 89.3, 82.3, 80.0, 77.1, 81.6, 90.3, 64.0, 80.1),
        _downstream("all shared, E = 256", 88.8, 81.5, 79.1, 76.3, 81.5, 90.3, 63.4, 79.6),
        _downstream("all shared, E = 768", 88.6, 81.5, 79.2, 76.6, 82.0, 90.6, 63.3, 79.8),
    ),
)
SHARING = PublishedTable(
    "4",
    "What layers share, ALBERT-base",
    (
        _downstream("E = 768, all", 88.6, 81.5, 79.2, 76.6, 82.0, 90.6, 63.3, 79.8),
        _downstream("E = 768, attention", 89.9, 82.7, 80.0, 77.2, 84.0, 91.4, 67.7, 81.6),
        _downstream("E = 768, ffn", 89.2, 82.1, 78.2, 75.4, 81.5, 90.8, 62.6, 79.5),
        _downstream("E = 768, none", 90.4, 83.2, 80.4, 77.6, 84.5, 92.8, 68.2, 82.3),
        _downstream("E = 128, all", 89.3, 82.3, 80.0, 77.1, 82.0, 90.3, 64.0, 80.1),
        _downstream("E = 128, attention", 89.9, 82.8, 80.7, 77.9, 83.4, 91.9, 67.6, 81.7),
        _downstream("E = 128, ffn", 88.9, 81.6, 78.6, 75.6, 82.3, 91.7, 64.4, 80.2),
        _downstream("E = 128, none", 89.9, 82.8, 80.3, 77.3, 83.2, 91.5, 67.9, 81.6),
    ),
    ("MNLI of E = 128 differs from Table 3 for the same models: 82.0 and 83.2 here, 81.6 and 83.7 there.",),
)
SENTENCE_OBJECTIVE = PublishedTable(
    "5",
    "Sentence prediction: none, NSP, SOP; what each model knows, and what it is worth",
    (
        _downstream("none", 88.6, 81.5, 78.1, 75.3, 81.5, 89.9, 61.7, 79.0, before=_intrinsic(54.9, 52.4, 53.3)),
        _downstream("nsp", 88.4, 81.5, 77.2, 74.6, 81.6, 91.1, 62.3, 79.2, before=_intrinsic(54.5, 90.5, 52.0)),
        _downstream("sop", 89.3, 82.3, 80.0, 77.1, 82.0, 90.3, 64.0, 80.1, before=_intrinsic(54.0, 78.9, 86.5)),
    ),
)
SAME_TIME = PublishedTable(
    "6",
    "About the same time: BERT-large for 34 hours, ALBERT-xxlarge for 32",
    (
        _downstream("bert-large, 400k steps", 93.5, 87.4, 86.9, 84.3, 87.8, 94.6, 77.3, 87.2, before={"hours": 34}),
        _downstream("albert-xxlarge, 125k steps", 94.0, 88.1, 88.3, 85.3, 87.8, 95.4, 82.5, 88.7, before={"hours": 32}),
    ),
)
MORE_DATA = PublishedTable(
    "7",
    "With the additional text of XLNet and RoBERTa, ALBERT-base",
    (
        _downstream("no additional text", 89.3, 82.3, 80.0, 77.1, 81.6, 90.3, 64.0, 80.1),
        _downstream("additional text", 88.8, 81.7, 79.1, 76.3, 82.4, 92.8, 66.0, 80.8),
    ),
)
DROPOUT = PublishedTable(
    "8",
    "Without dropout, ALBERT-xxlarge after a million steps",
    (
        _downstream("with dropout", 94.7, 89.2, 89.6, 86.9, 90.0, 96.3, 85.7, 90.4),
        _downstream("without dropout", 94.8, 89.5, 89.9, 87.2, 90.4, 96.5, 86.1, 90.7),
    ),
)
GLUE_SINGLE = PublishedTable(
    "9",
    "GLUE, single models on the development sets (medians of five runs)",
    tuple(
        PublishedRow(arm, _some(GLUE, *scores))
        for arm, scores in {
            "bert-large": (86.6, 92.3, 91.3, 70.4, 93.2, 88.0, 60.6, 90.0),
            "xlnet-large": (89.8, 93.9, 91.8, 83.8, 95.6, 89.2, 63.6, 91.8),
            "roberta-large": (90.2, 94.7, 92.2, 86.6, 96.4, 90.9, 68.0, 92.4),
            "albert-xxlarge, 1M steps": (90.4, 95.2, 92.0, 88.1, 96.8, 90.2, 68.7, 92.7),
            "albert-xxlarge, 1.5M steps": (90.8, 95.3, 92.2, 89.2, 96.9, 90.9, 71.4, 93.0),
        }.items()
    ),
)
GLUE_ENSEMBLES = PublishedTable(
    "9, ensembles",
    "GLUE, ensembles on the test sets, by the benchmark's server",
    tuple(
        PublishedRow(arm, _some((*GLUE, "wnli"), *scores), average)
        for arm, (*scores, average) in {
            "alice": (88.2, 95.7, 90.7, 83.5, 95.2, 92.6, 69.2, 91.1, 80.8, 87.0),
            "mt-dnn": (87.9, 96.0, 89.9, 86.3, 96.5, 92.7, 68.4, 91.1, 89.0, 87.6),
            "xlnet": (90.2, 98.6, 90.3, 86.3, 96.8, 93.0, 67.8, 91.6, 90.4, 88.4),
            "roberta": (90.8, 98.9, 90.2, 88.2, 96.7, 92.3, 67.8, 92.2, 89.0, 88.5),
            "adv-roberta": (91.1, 98.8, 90.3, 88.7, 96.8, 93.1, 68.0, 92.4, 89.0, 88.8),
            "albert": (91.3, 99.2, 90.5, 89.2, 97.1, 93.4, 69.1, 92.5, 91.8, 89.4),
        }.items()
    ),
    ("The average is the server's, which counts both metrics of a task, not that of the figures shown.",),
)
READING_COMPREHENSION = PublishedTable(
    "10",
    "SQuAD and RACE",
    tuple(
        PublishedRow(arm, _some(READING, *scores))
        for arm, scores in {
            "bert-large": (90.9, 84.1, 81.8, 79.0, 89.1, 86.3, 72.0, 76.6, 70.1),
            "xlnet": (94.5, 89.0, 88.8, 86.1, 89.1, 86.3, 81.8, 85.5, 80.2),
            "roberta": (94.6, 88.9, 89.4, 86.5, 89.8, 86.8, 83.2, 86.5, 81.3),
            "upm": (None, None, None, None, 89.9, 87.2, None, None, None),
            "xlnet + sg-net verifier++": (None, None, None, None, 90.1, 87.2, None, None, None),
            "albert-xxlarge, 1M steps": (94.8, 89.2, 89.9, 87.2, None, None, 86.0, 88.2, 85.1),
            "albert-xxlarge, 1.5M steps": (94.8, 89.3, 90.2, 87.4, 90.9, 88.1, 86.5, 89.0, 85.5),
            "bert-large, ensemble": (92.2, 86.2, None, None, None, None, None, None, None),
            "xlnet + sg-net verifier, ensemble": (None, None, None, None, 90.7, 88.2, None, None, None),
            "upm, ensemble": (None, None, None, None, 90.7, 88.2, None, None, None),
            "xlnet + daaf + verifier, ensemble": (None, None, None, None, 90.9, 88.6, None, None, None),
            "dcmn+, ensemble": (None, None, None, None, None, None, 84.1, 88.5, 82.3),
            "albert, ensemble": (95.5, 90.1, 91.4, 88.9, 92.2, 89.7, 89.4, 91.2, 88.6),
        }.items()
    ),
    ("BERT-large's figures for SQuAD 2.0's test set are those of XLNet, by a slip of the paper.",),
)
DEPTH = PublishedTable(
    "11",
    "Layers of ALBERT-large, each begun from the depth before",
    (
        _downstream("1", 31.1, 22.9, 50.1, 50.1, 66.4, 80.8, 40.1, 52.9),
        _downstream("3", 79.8, 69.7, 64.4, 61.7, 77.7, 86.7, 54.0, 71.2),
        _downstream("6", 86.4, 78.4, 73.8, 71.1, 81.2, 88.9, 60.9, 77.2),
        _downstream("12", 89.8, 83.3, 80.7, 77.9, 83.3, 91.7, 66.7, 81.5),
        _downstream("24", 90.3, 83.3, 81.8, 79.0, 83.3, 91.5, 68.7, 82.1),
        _downstream("48", 90.0, 83.1, 81.8, 78.9, 83.4, 91.9, 66.9, 81.8),
    ),
)
WIDTH = PublishedTable(
    "12",
    "Width of ALBERT-large with three layers",
    (
        _downstream("1024", 79.8, 69.7, 64.4, 61.7, 77.7, 86.7, 54.0, 71.2),
        _downstream("2048", 83.3, 74.1, 69.1, 66.6, 79.7, 88.6, 58.2, 74.6),
        _downstream("4096", 85.0, 76.4, 71.0, 68.1, 80.3, 90.4, 60.4, 76.3),
        _downstream("6144", 84.7, 75.8, 67.8, 65.4, 78.1, 89.1, 56.0, 74.0),
    ),
)
DEPTH_OF_XXLARGE = PublishedTable(
    "13",
    "Layers of ALBERT-xxlarge",
    (
        _downstream("12", 94.0, 88.1, 88.3, 85.3, 87.8, 95.4, 82.5, 88.7),
        _downstream("24", 94.1, 88.3, 88.1, 85.1, 88.0, 95.2, 82.3, 88.7),
    ),
)
SECOND_RELEASE = PublishedTable(
    "v2",
    "The models of the second release, as their repository states them",
    (
        _downstream("albert-base-v2", 90.2, 83.2, 82.1, 79.3, 84.6, 92.9, 66.8, 82.3),
        _downstream("albert-large-v2", 91.8, 85.2, 84.9, 81.8, 86.5, 94.9, 75.2, 85.7),
        _downstream("albert-xlarge-v2", 92.9, 86.4, 87.9, 84.1, 87.9, 95.4, 80.7, 87.9),
        _downstream("albert-xxlarge-v2", 94.6, 89.1, 89.8, 86.9, 90.6, 96.8, 86.8, 90.9),
        _downstream("albert-xxlarge-v1", 94.8, 89.3, 90.2, 87.4, 90.8, 96.9, 86.5, 91.0),
    ),
)
DEGRADATION = PublishedTable(
    "degradation",
    "A wider BERT is worse, on RACE's test set (earlier versions of the paper)",
    (
        PublishedRow("bert-large, by Devlin et al.", {"race test": 72.0}),
        PublishedRow("bert-large", {"race test": 73.9}),
        PublishedRow("bert-xlarge", {"race test": 54.3}),
    ),
)
PUBLISHED_TABLES = {
    table.name: table
    for table in (
        OVERALL,
        EMBEDDING_SIZE,
        SHARING,
        SENTENCE_OBJECTIVE,
        SAME_TIME,
        MORE_DATA,
        DROPOUT,
        GLUE_SINGLE,
        GLUE_ENSEMBLES,
        READING_COMPREHENSION,
        DEPTH,
        WIDTH,
        DEPTH_OF_XXLARGE,
        SECOND_RELEASE,
        DEGRADATION,
    )
}


# --------------------------------------------------------------------------------------------------------------------
# What pre-training was said to cost: a table of a talk about the paper, as data.
#
# Its dollars are devices times hours times the price of one; its CO2 is that of Strubell et al. (2019, Table 3),
# who estimated it from the draw of the hardware.


@dataclass(frozen=True)
class PublishedCost:
    """A pre-training.

    Args:
        model: as the talk names it.
        size: layers and parameters, as printed.
        device: what it ran on.
        price: dollars an hour of one.
        devices: how many.
        days: how long.
        dollars: as printed.
        co2_pounds: as printed; None: not known.
    """

    model: str
    size: str
    device: str
    price: float
    devices: int
    days: float
    dollars: int
    co2_pounds: int | None

    @property
    def device_hours(self) -> float:
        """Hours of one device."""
        return 24 * self.days * self.devices


COSTS = (
    PublishedCost("BERT", "24 layers, 340M", "TPU v2", 4.5, 16, 4, 6_912, 1_428),
    PublishedCost("GPT-2", "48 layers, 1542M", "TPU v3", 8, 32, 7, 43_008, 2_516),
    PublishedCost("XLNet", "24 layers, 365M", "TPU v3", 8, 128, 2.5, 61_440, None),
)


# --------------------------------------------------------------------------------------------------------------------
# Table 14 of the paper as data: how each task was fine-tuned (Lan et al. 2019, A.4).
#
# What `albert finetune` takes for a task is declared with the task (`tasks/`); a test holds the two against each
# other.


@dataclass(frozen=True)
class PublishedFinetuning:
    """A row of Table 14.

    Args:
        learning_rate: the peak.
        batch_size: sequences per update.
        encoder_dropout: of ALBERT itself ("ALBERT DR").
        head_dropout: before the task's head ("Classifier DR").
        steps: updates.
        warmup: of which the rate rises.
        max_length: most tokens of a sequence.
    """

    learning_rate: float
    batch_size: int
    encoder_dropout: float
    head_dropout: float
    steps: int
    warmup: int
    max_length: int


TABLE_14: dict[str, PublishedFinetuning] = {
    "cola": PublishedFinetuning(1e-5, 16, 0, 0.1, 5336, 320, 512),
    "sts-b": PublishedFinetuning(2e-5, 16, 0, 0.1, 3598, 214, 512),
    "sst-2": PublishedFinetuning(1e-5, 32, 0, 0.1, 20935, 1256, 512),
    "mnli": PublishedFinetuning(3e-5, 128, 0, 0.1, 10000, 1000, 512),
    "qnli": PublishedFinetuning(1e-5, 32, 0, 0.1, 33112, 1986, 512),
    "qqp": PublishedFinetuning(5e-5, 128, 0.1, 0.1, 14000, 1000, 512),
    "rte": PublishedFinetuning(3e-5, 32, 0.1, 0.1, 800, 200, 512),
    "mrpc": PublishedFinetuning(2e-5, 32, 0, 0.1, 800, 200, 512),
    "wnli": PublishedFinetuning(2e-5, 16, 0.1, 0.1, 2000, 250, 512),
    "squad-1.1": PublishedFinetuning(5e-5, 48, 0, 0.1, 3649, 365, 384),
    "squad-2.0": PublishedFinetuning(3e-5, 48, 0, 0.1, 8144, 814, 384),
    "race": PublishedFinetuning(2e-5, 32, 0.1, 0.1, 12000, 1000, 512),
}
"""By the name that the task has here, in the paper's order."""


# --------------------------------------------------------------------------------------------------------------------
# The bar chart of RACE in the authors' announcement (Google AI blog, December 2019), as data.

CHANCE, CEILING = 25.0, 95.0
"""Accuracy of guessing one of four options, and the most that can be reached (the announcement's figures)."""

RACE_CHART = PublishedTable(
    "race",
    "RACE, single models and the ensemble, test set",
    tuple(
        PublishedRow(arm, {"race": score})
        for arm, score in {
            "chance": CHANCE,
            "gated attention reader": 44.1,
            "words without context": 45.9,
            "bert-large": 72.0,
            "xlnet": 81.8,
            "albert-xxlarge": 82.3,
            "roberta": 83.2,
            "albert, ensemble": 89.4,
            "ceiling": CEILING,
        }.items()
    ),
    (
        "The announcement gives XLNet and RoBERTa as 82 to 83; their figures here are those of Table 10.",
        "albert-xxlarge is that of Table 2, trained on BERT's text alone, development set; the ensemble had more text.",
    ),
)
"""The gated attention reader is from a talk about the paper."""
