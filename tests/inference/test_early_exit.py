"""A sequence exits when consecutive exits agree, with the logits and depth that it has alone."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from albert.inference.early_exit import EarlyExit, early_exit_of
from albert.inference.engine import FastEncoder, PackedModel
from albert.model.albert import (
    AlbertForMultipleChoice,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    set_depth,
)
from albert.model.packing import pack
from albert.runtime.errors import InvalidConfiguration

CPU = torch.device("cpu")
LENGTHS = (20, 7, 33, 12, 5, 28, 9, 41, 16, 6, 24, 13)
ALL_EXITS = tuple(range(1, 9))


@pytest.fixture
def deep(config):
    return replace(config, num_hidden_layers=8)


@pytest.fixture
def sequences(config):
    rng = np.random.default_rng(3)
    ids = [rng.integers(5, config.vocab_size, length) for length in LENGTHS]
    return ids, [(np.arange(length) > length // 2).astype(np.int64) for length in LENGTHS]


def unstable_model(config, *labels, kind=AlbertForSequenceClassification):
    """A model whose prediction changes from layer to layer, because the states lie far apart."""
    torch.manual_seed(11)
    model = kind(config, *labels).eval()
    torch.nn.init.normal_(model.albert.pooler.weight, std=1.0)
    return model


def same_top(previous, current):
    return previous.argmax() == current.argmax()


def reference(model, ids, types, patience, exits, agree, n_options=1):
    """Logits and depth of each sequence by the definition, one question at a time."""
    rows = []
    for first in range(0, len(ids), n_options):
        packed = pack(ids[first : first + n_options], types[first : first + n_options])
        with torch.inference_mode():
            _, *states = model.albert.hidden_states(packed)
            previous, agreed = None, 0
            for depth in exits:
                logits = model.head_outputs(states[depth - 1], packed)
                agreed = agreed + 1 if previous is not None and agree(previous, logits) else 0
                previous = logits
                if agreed == patience or depth == exits[-1]:
                    rows += [(row.numpy(), depth) for row in logits]
                    break
    return rows


def assert_close(actual, expected):
    assert [depth for _, depth in actual] == [depth for _, depth in expected]
    for (row, _), (other, _) in zip(actual, expected, strict=True):
        np.testing.assert_allclose(row, other, atol=1e-5)


@pytest.mark.parametrize("exits", [ALL_EXITS, (2, 4, 6, 8)])
@pytest.mark.parametrize("patience", [1, 2, 3])
@pytest.mark.parametrize("micro_batch_tokens", [8192, 40])
def test_each_sequence_gets_what_it_would_get_alone(deep, sequences, patience, exits, micro_batch_tokens):
    model = unstable_model(deep, 4)
    actual = EarlyExit(PackedModel(model, CPU, micro_batch_tokens), patience, exits).rows(*sequences)
    assert_close(actual, reference(model, *sequences, patience, exits, same_top))
    if patience == 1 and exits == ALL_EXITS:
        assert len({depth for _, depth in actual}) > 2


@pytest.mark.parametrize(
    ("decision", "labels", "agree"),
    [
        ("number", 1, lambda previous, current: abs(previous - current).item() < 0.3),
        ("labels", 3, lambda previous, current: torch.equal(previous > 0, current > 0)),
    ],
)
def test_numbers_and_label_sets_agree_by_their_own_rule(decision, labels, agree, deep, sequences):
    model = unstable_model(deep, labels)
    actual = EarlyExit(PackedModel(model, CPU), 1, ALL_EXITS, decision, tolerance=0.3).rows(*sequences)
    assert_close(actual, reference(model, *sequences, 1, ALL_EXITS, agree))
    assert len({depth for _, depth in actual}) > 1


def test_options_of_a_question_exit_together(deep, sequences):
    model = unstable_model(deep, kind=AlbertForMultipleChoice)
    actual = EarlyExit(PackedModel(model, CPU), 1, ALL_EXITS).rows(*sequences, sizes=[3] * 4)
    assert_close(actual, reference(model, *sequences, 1, ALL_EXITS, same_top, n_options=3))


def test_layers_compute_only_sequences_that_have_not_exited(deep, sequences, monkeypatch):
    tokens, layer = [], FastEncoder._layer
    monkeypatch.setattr(FastEncoder, "_layer", lambda *args: tokens.append(args[3].n_tokens) or layer(*args))
    actual = EarlyExit(PackedModel(unstable_model(deep, 4), CPU), 1, ALL_EXITS).rows(*sequences)
    assert sum(tokens) == sum(length * depth for length, (_, depth) in zip(LENGTHS, actual, strict=True))
    assert sum(tokens) < 8 * sum(LENGTHS)


def test_depth_counts_groups_of_inner_layers(deep, sequences):
    model = unstable_model(replace(deep, num_hidden_layers=4, inner_group_num=2), 4)
    expected = [(row, 4) for row in PackedModel(model, CPU).rows(*sequences)]
    assert_close(EarlyExit(PackedModel(model, CPU), 4, range(1, 5)).rows(*sequences), expected)


def test_exits_end_at_the_set_depth(deep, sequences):
    model = unstable_model(deep, 4)
    set_depth(model, 5)
    early = EarlyExit(PackedModel(model, CPU), 5, ALL_EXITS)
    assert early.exits == (1, 2, 3, 4, 5)
    assert {depth for _, depth in early.rows(*sequences)} == {5}
    assert early.rows([], []) == []


def test_exits_and_decision_come_from_the_configuration(deep):
    classifier, scorer, tagger = (
        PackedModel(kind(deep, labels), CPU)
        for kind, labels in (
            (AlbertForSequenceClassification, 2),
            (AlbertForSequenceClassification, 1),
            (AlbertForTokenClassification, 2),
        )
    )
    for model, patience, extra in (
        (classifier, 2, {}),
        (classifier, 2, {"exit_depths": "all"}),
        (classifier, 0, {"exit_depths": [2, 8]}),
        (tagger, 1, {"exit_depths": [2, 8]}),
    ):
        with pytest.raises(InvalidConfiguration):
            early_exit_of(model, patience, extra, "model")
    assert early_exit_of(classifier, 1, {"exit_depths": [2, 6]}, "model").exits == (2, 6, 8)
    assert early_exit_of(scorer, 1, {"exit_depths": [2]}, "model").decision == "number"
    several = {"exit_depths": [2], "problem_type": "multi_label_classification"}
    assert early_exit_of(classifier, 1, several, "model").decision == "labels"
