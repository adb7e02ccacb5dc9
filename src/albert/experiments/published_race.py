"""The bar chart of RACE in the authors' announcement (Google AI blog, December 2019), as data."""

from albert.experiments.published_scores import PublishedRow, PublishedTable

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
