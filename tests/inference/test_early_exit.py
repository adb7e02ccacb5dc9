"""A sequence leaves when depths agree, with the logits it would have alone, at the depth that a plain count gives."""

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


@pytest.fixture
def deep(config):
    return replace(config, num_hidden_layers=8)


@pytest.fixture
def sequences(config):
    rng = np.random.default_rng(3)
    ids = [rng.integers(5, config.vocab_size, length) for length in LENGTHS]
    return ids, [(np.arange(length) > length // 2).astype(np.int64) for length in LENGTHS]


def unstable_model(kind, config, *labels):
    """A model whose head changes its mind on the way: states of consecutive layers lie far apart."""
    torch.manual_seed(11)
    model = kind(config, *labels).eval()
    torch.nn.init.normal_(model.albert.pooler.weight, std=1.0)
    return model


def reference(model, ids, types, patience, exits, same, n_options=1):
    """One question after the other, by the definition."""
    rows = []
    for first in range(0, len(ids), n_options):
        packed = pack(ids[first : first + n_options], types[first : first + n_options])
        with torch.inference_mode():
            _, *states = model.albert.hidden_states(packed)
            before, agreed = None, 0
            for depth in exits:
                logits = model.head_outputs(states[depth - 1], packed)
                agreed = agreed + 1 if before is not None and same(before, logits) else 0
                before = logits
                if agreed == patience or depth == exits[-1]:
                    rows += [(row.numpy(), depth) for row in logits]
                    break
    return rows


def assert_close(actual, expected):
    assert [depth for _, depth in actual] == [depth for _, depth in expected]
    for (row, _), (other, _) in zip(actual, expected, strict=True):
        np.testing.assert_allclose(row, other, atol=1e-5)


@pytest.mark.parametrize("exits", [(1, 2, 3, 4, 5, 6, 7, 8), (2, 4, 6, 8)])
@pytest.mark.parametrize("patience", [1, 2, 3])
@pytest.mark.parametrize("micro_batch_tokens", [8192, 40])
def test_each_sequence_gets_what_it_would_get_alone(deep, sequences, patience, exits, micro_batch_tokens):
    model = unstable_model(AlbertForSequenceClassification, deep, 4)
    actual = EarlyExit(PackedModel(model, CPU, micro_batch_tokens), patience, exits).rows(*sequences)
    assert_close(actual, reference(model, *sequences, patience, exits, lambda one, two: one.argmax() == two.argmax()))
    if patience == 1 and len(exits) == 8:
        assert len({depth for _, depth in actual}) > 2


def test_numbers_agree_when_they_lie_near(deep, sequences):
    model = unstable_model(AlbertForSequenceClassification, deep, 1)
    actual = EarlyExit(PackedModel(model, CPU), 1, range(1, 9), "number", tolerance=0.3).rows(*sequences)
    assert_close(actual, reference(model, *sequences, 1, range(1, 9), lambda one, two: abs(one - two).item() < 0.3))
    assert len({depth for _, depth in actual}) > 1


def test_sets_of_labels_agree_when_every_label_does(deep, sequences):
    model = unstable_model(AlbertForSequenceClassification, deep, 3)
    actual = EarlyExit(PackedModel(model, CPU), 1, range(1, 9), "labels").rows(*sequences)
    assert_close(actual, reference(model, *sequences, 1, range(1, 9), lambda one, two: torch.equal(one > 0, two > 0)))


def test_the_options_of_a_question_leave_together(deep, sequences):
    model = unstable_model(AlbertForMultipleChoice, deep)
    actual = EarlyExit(PackedModel(model, CPU), 1, range(1, 9)).rows(*sequences, sizes=[3] * 4)
    same = lambda one, two: one.argmax() == two.argmax()  # noqa: E731
    assert_close(actual, reference(model, *sequences, 1, range(1, 9), same, n_options=3))


def test_a_layer_is_applied_only_to_the_sequences_inside(deep, sequences, monkeypatch):
    model = unstable_model(AlbertForSequenceClassification, deep, 4)
    tokens = []
    apply = FastEncoder._layer
    monkeypatch.setattr(FastEncoder, "_layer", lambda *args: tokens.append(args[3].n_tokens) or apply(*args))
    actual = EarlyExit(PackedModel(model, CPU), 1, range(1, 9)).rows(*sequences)
    assert sum(tokens) == sum(length * depth for length, (_, depth) in zip(LENGTHS, actual, strict=True))
    assert sum(tokens) < 8 * sum(LENGTHS)


def test_inner_layers_are_no_depths(deep, sequences):
    model = unstable_model(AlbertForSequenceClassification, replace(deep, num_hidden_layers=4, inner_group_num=2), 4)
    actual = EarlyExit(PackedModel(model, CPU), 4, range(1, 5)).rows(*sequences)
    assert {depth for _, depth in actual} == {4}
    for (row, _), expected in zip(actual, PackedModel(model, CPU).rows(*sequences), strict=True):
        np.testing.assert_allclose(row, expected, atol=1e-5)


def test_a_depth_bounds_the_exits(deep, sequences):
    model = unstable_model(AlbertForSequenceClassification, deep, 4)
    set_depth(model, 5)
    early = EarlyExit(PackedModel(model, CPU), 5, range(1, 9))
    assert early.exits == (1, 2, 3, 4, 5)
    assert {depth for _, depth in early.rows(*sequences)} == {5}
    assert early.rows([], []) == []


def test_what_cannot_leave_early_is_refused(deep):
    model = PackedModel(AlbertForSequenceClassification(deep, 2), CPU)
    with pytest.raises(InvalidConfiguration, match="was trained to answer only after its last layer; .*--exits every"):
        early_exit_of(model, 2, {}, "model")
    with pytest.raises(InvalidConfiguration, match="exit_depths: is 'all', depths are expected"):
        early_exit_of(model, 2, {"exit_depths": "all"}, "model")
    with pytest.raises(InvalidConfiguration, match="patience: is 0"):
        early_exit_of(model, 0, {"exit_depths": [2, 8]}, "model")
    tagger = PackedModel(AlbertForTokenClassification(deep, 2), CPU)
    with pytest.raises(InvalidConfiguration, match="this model classifies tokens"):
        early_exit_of(tagger, 1, {"exit_depths": [2, 8]}, "model")
    assert early_exit_of(model, 1, {"exit_depths": [2, 6]}, "model").exits == (2, 6, 8)
    one = PackedModel(AlbertForSequenceClassification(deep, 1), CPU)
    assert early_exit_of(one, 1, {"exit_depths": [2]}, "model").decision == "number"
    labels = {"exit_depths": [2], "problem_type": "multi_label_classification"}
    assert early_exit_of(model, 1, labels, "model").decision == "labels"
