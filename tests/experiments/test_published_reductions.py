"""Claims about reductions: which hold, with the exact figures, for the pairs that they are about and no others."""

from dataclasses import replace

import pytest

from albert.experiments.sizes import CLAIMS, claims_about
from albert.model.config import PRESETS

# (before, after, stated) -> exact figure, whether it holds
VERDICTS = {
    ("bert-base", "albert-base-not-shared", "80 %"): ("82.9 % fewer", True),
    ("bert-base", "albert-base", "80 %"): ("82.9 % fewer", True),
    ("bert-base", "albert-base-E768", "90 %"): ("91.7 % fewer", True),
    ("bert-base", "albert-base", "90 %"): ("91.7 % fewer", True),
    ("albert-base-not-shared", "albert-base", "90 %"): ("91.7 % fewer", True),
    ("bert-base", "albert-base-E768", "70 %"): ("71.5 % fewer", True),
    ("albert-base-not-shared", "albert-base", "70 %"): ("87.0 % fewer", False),
    ("bert-base", "albert-base", "89 %"): ("89.3 % fewer", True),
    ("bert-large", "albert-xxlarge", "30 %"): ("33.5 % fewer", True),
    ("bert-large", "albert-xxlarge", "70 %"): ("66.5 % of it", True),
    ("bert-large", "albert-large", "18 x"): ("18.92 times fewer", True),
    ("bert-large", "albert-large", "fewer"): ("1.00 times as many", False),
    ("bert-base", "albert-base", "fewer"): ("1.00 times as many", False),
    ("bert-large", "albert-xxlarge", "3 x"): ("7.54 times as many", False),
    ("albert-base", "albert-xxlarge", "10-20 x"): ("5.33 times as wide", False),
    ("albert-base-shared-attention", "albert-base-shared-ffn", "more"): ("40.8 % fewer", True),
    ("albert-base-E768-shared-attention", "albert-base-E768-shared-ffn", "more"): ("31.2 % fewer", True),
}


def test_every_claim_has_its_exact_figure_and_verdict() -> None:
    found = {}
    for before, after in {tuple(pair) for claim in CLAIMS for pair in claim["pairs"]}:
        for claim in claims_about(PRESETS[before], PRESETS[after]):
            found[claim.before, claim.after, claim.stated] = (claim.figure, claim.holds)
    assert found == VERDICTS


def test_a_claim_that_does_not_hold_says_why() -> None:
    silent = [
        (claim["quote"], pair)
        for claim in CLAIMS
        for pair in claim["pairs"]
        for checked in claims_about(*(PRESETS[name] for name in pair))
        if checked.quote == claim["quote"] and not checked.holds and not checked.because
    ]
    assert silent == []


@pytest.mark.parametrize(("one", "other"), [("bert-base", "albert-base"), ("albert-base", "bert-base")])
def test_the_order_of_the_two_does_not_matter(one: str, other: str) -> None:
    assert [claim.stated for claim in claims_about(PRESETS[one], PRESETS[other])] == ["80 %", "90 %", "89 %", "fewer"]


def test_models_of_the_same_shape_are_meant_whatever_their_dropout_or_heads() -> None:
    bert, albert = PRESETS["bert-large"], PRESETS["albert-xxlarge"]
    changed = replace(albert, hidden_dropout_prob=0.1, num_attention_heads=16)
    assert claims_about(bert, changed) == claims_about(bert, albert) != []


def test_pairs_that_nobody_wrote_of_have_no_claims() -> None:
    assert claims_about(PRESETS["albert-base"], PRESETS["albert-large"]) == []
    assert claims_about(PRESETS["albert-base"], PRESETS["albert-base"]) == []
