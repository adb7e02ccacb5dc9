"""Factorised embeddings, tied output matrix, heads, initialisation, mixed precision, and running at another depth."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import transformers
from tests.model.conftest import CPU
from tests.refusals import refusal
from tests.tiny import tiny_config
from torch import nn
from torch.nn import functional

from albert.checkpoints.model_directory import save_model_directory
from albert.model.albert import (
    BEAM,
    IMPOSSIBLE,
    AlbertForJointQuestionAnswering,
    AlbertForPreTraining,
    AlbertForSequenceClassification,
    AlbertModel,
    SpanBeamRow,
    output_rows,
    set_depth,
)
from albert.model.packing import pack
from albert.model.sharing import allowed_depths, plan_for_depth, sharing_plan
from albert.runtime.devices import autocast
from albert.runtime.errors import InvalidConfiguration

LENGTHS = (9, 4, 12)


@pytest.fixture
def packed(packed_of):
    return packed_of(LENGTHS)


# ---- embeddings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "projects"),
    [
        ({}, True),
        ({"embedding_size": 16}, False),
        ({"embedding_size": 16, "embedding_projection": False}, False),
        ({"embedding_size": 16, "embedding_projection": True}, True),
        ({"embedding_size": 32}, True),
    ],
)
def test_embeddings_are_projected_if_e_differs_from_h_or_on_request(config, packed, changes, projects):
    model = AlbertModel(replace(config, **changes))
    assert any("projection" in name for name, _ in model.named_parameters()) == projects
    assert model(packed.to("cpu")).shape == (sum(LENGTHS), config.hidden_size)
    with refusal(InvalidConfiguration, "max_length"):
        AlbertModel(replace(config, max_position_embeddings=11))(packed)


def test_the_embedding_table_gets_a_gradient_from_both_of_its_uses(config, packed):
    model = AlbertForPreTraining(config).double()
    table = model.albert.embeddings.word_embeddings.weight
    positions, labels = torch.tensor([2, 10]), torch.tensor([3, 7])

    def gradient(as_input: bool, as_output: bool) -> torch.Tensor:
        hidden = model.albert(packed)
        hidden = hidden if as_input else hidden.detach()
        logits = model.predictions(hidden[positions], table if as_output else table.detach())
        return torch.autograd.grad(functional.cross_entropy(logits, labels), table)[0]

    of_input, of_output = gradient(True, False), gradient(False, True)
    assert of_input.abs().sum() > 0 and of_output.abs().sum() > 0
    functional.cross_entropy(model(packed, positions).masked_tokens, labels).backward()
    for both in (gradient(True, True), table.grad):
        torch.testing.assert_close(both, of_input + of_output, rtol=1e-10, atol=1e-14)


# ---- heads -----------------------------------------------------------------------------------------------------------


def test_masked_logits_are_computed_at_the_masked_positions(config, packed):
    model = AlbertForPreTraining(config).eval()
    everywhere = model(packed, torch.arange(packed.n_tokens)).masked_tokens
    positions = torch.tensor([3, 3, 20, 0])
    torch.testing.assert_close(model(packed, positions).masked_tokens, everywhere[positions])
    assert model(packed, torch.tensor([], dtype=torch.long)).masked_tokens.shape == (0, config.vocab_size)


# ---- initialisation, precision, dropout ------------------------------------------------------------------------------


@pytest.mark.parametrize("sharing", ["all", "none"])
def test_initial_values_are_truncated_normal_with_zero_biases(config, sharing):
    sizes = {"hidden_size": 64, "embedding_size": 32, "vocab_size": 500}
    config = replace(config, **sizes, initializer_range=0.02, sharing=sharing)
    torch.manual_seed(3)
    for model in (AlbertForPreTraining(config), AlbertForSequenceClassification(config, 3)):
        matrices = []
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                assert (module.weight == 1).all() and (module.bias == 0).all()
            elif isinstance(module, nn.Linear | nn.Embedding):
                matrices.append(module.weight.detach().flatten())
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                assert (parameter == 0).all(), name
        values = torch.cat(matrices)
        assert 0.0395 < float(values.abs().max()) <= 0.04
        # Truncated at two standard deviations, a normal distribution has 0.8796 of its deviation.
        assert abs(float(values.std()) / 0.02 - 0.8796) < 0.01
        assert abs(float(values.mean())) < 0.0005
        assert all(float(matrix.std()) > 0.015 for matrix in matrices if len(matrix) > 200)


def test_bf16_is_close_to_fp32(config, packed):
    model = AlbertForPreTraining(replace(config, initializer_range=0.1))
    positions, labels = torch.tensor([1, 10, 20]), torch.tensor([3, 7, 11])
    logits, gradients = {}, {}
    for precision in ("fp32", "bf16"):
        model.zero_grad()
        with autocast(CPU, precision):
            masked, order = (part.float() for part in model(packed, positions))
        logits[precision] = masked.detach()
        (functional.cross_entropy(masked, labels) + order.sum()).backward()
        gradients[precision] = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        assert gradients[precision].dtype == torch.float32 and gradients[precision].isfinite().all()
    error = (logits["bf16"] - logits["fp32"]).norm() / logits["fp32"].norm()
    assert 0 < error < 0.02
    assert functional.cosine_similarity(gradients["bf16"], gradients["fp32"], dim=0) > 0.999


def test_dropout_is_drawn_anew_while_training_and_absent_in_evaluation(config, packed):
    model = AlbertModel(replace(config, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3))
    assert not torch.equal(model(packed), model(packed))
    model.eval()
    assert torch.equal(model(packed), model(packed))


# ---- depth -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize("depth", [1, 2, 3, 7])
def test_a_shared_layer_at_any_depth_equals_transformers(config, sequences_of, tmp_path, depth, inner):
    model = AlbertForSequenceClassification(replace(config, inner_group_num=inner), 3).eval()
    save_model_directory(tmp_path / "model", model, None)
    theirs = transformers.AlbertForSequenceClassification.from_pretrained(
        tmp_path / "model", num_hidden_layers=depth
    ).eval()
    set_depth(model, depth)
    (ids,), (types,) = sequences_of((20,))
    with torch.inference_mode():
        expected = theirs(input_ids=torch.from_numpy(ids)[None], token_type_ids=torch.from_numpy(types)[None]).logits
        torch.testing.assert_close(model(pack([ids], [types])), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"num_hidden_groups": 3}, {"sharing": "none"}, {"sharing": "attention"}])
def test_a_depth_applies_the_first_layers(config, packed, changes):
    model = AlbertForSequenceClassification(replace(config, **changes), 2).eval()
    with torch.inference_mode():
        _, *states = model.albert.hidden_states(packed)
        for depth, state in enumerate(states, start=1):
            set_depth(model, depth)
            assert torch.equal(model(packed), model.head_outputs(state, packed))


def test_allowed_depths_depend_on_sharing(config):
    assert allowed_depths(config) == range(1, 25)
    assert plan_for_depth(config, 5) == sharing_plan(replace(config, num_hidden_layers=5))
    for changes in ({"num_hidden_groups": 3}, {"sharing": "none"}, {"sharing": "ffn"}):
        separate = replace(config, **changes)
        assert allowed_depths(separate) == range(1, 4)
        with refusal(InvalidConfiguration, 4, 3):
            set_depth(AlbertForSequenceClassification(separate, 2), 4)
    for depth in (0, -1, 25, True):
        with refusal(InvalidConfiguration, 24):
            set_depth(AlbertForSequenceClassification(config, 2), depth)


# ---- joint question answering ----------------------------------------------------------------------------------------

PAIRS = ((4, 9), (2, 3), (5, 14))
"""(tokens up to the first [SEP], all tokens) of each sequence."""


@pytest.fixture
def joint_model() -> AlbertForJointQuestionAnswering:
    return AlbertForJointQuestionAnswering(tiny_config(50, initializer_range=0.3)).eval()


@pytest.fixture
def pairs():
    generator = np.random.default_rng(1)
    ids = [generator.integers(1, 50, length) for _, length in PAIRS]
    return pack(ids, [(np.arange(length) >= first).astype(int) for first, length in PAIRS])


def test_joint_logits_follow_the_definition(joint_model, pairs):
    """p(start), p(end | start), and "no answer" from the expected start state and [CLS]."""
    head = joint_model.joint_qa_outputs
    with torch.inference_mode():
        hidden = joint_model.albert(pairs)
        starts = pairs.first_positions + torch.tensor([5, 0, 7])
        outputs = joint_model(pairs, starts)
        for i, (first, length) in enumerate(PAIRS):
            begin = int(pairs.first_positions[i])
            tokens = slice(begin, begin + length)
            states = hidden[tokens]
            possible = torch.zeros(length, dtype=torch.bool)
            possible[first : length - 1] = possible[0] = True
            start = head.start(states)[:, 0]
            joined = torch.cat([states, hidden[starts[i]].expand(length, -1)], 1)
            end = head.end(head.end_layer_norm(head.end_dense(joined).tanh()))[:, 0]
            weights = start.masked_fill(~possible, -torch.inf).softmax(0)
            summary = torch.cat([weights @ states, states[0]])
            for logits, expected in ((outputs.starts[tokens], start), (outputs.ends[tokens], end)):
                torch.testing.assert_close(logits[possible], expected[possible])
                assert (logits[~possible] == IMPOSSIBLE).all()
            torch.testing.assert_close(outputs.unanswerable[i], head.answer(head.answer_dense(summary).tanh())[0])


def test_the_beam_holds_the_best_starts_and_their_ends(joint_model, pairs):
    with torch.inference_mode():
        rows = output_rows(joint_model(pairs), pairs.lengths)
        for i, (row, (first, length)) in enumerate(zip(rows, PAIRS, strict=True)):
            assert isinstance(row, SpanBeamRow)
            assert row.ends.shape == (length, BEAM)
            context = np.arange(first, length - 1)
            best = context[np.argsort(-row.starts[context])][:BEAM]
            assert set(best) <= set(row.beam.tolist())
            for column, start in enumerate(row.beam):
                starts = pairs.first_positions.clone()
                starts[i] += int(start)
                ends = output_rows(joint_model(pairs, starts).ends[:, None].expand(-1, 2), pairs.lengths)[i]
                np.testing.assert_allclose(row.ends[:, column], ends[:, 0], rtol=1e-5)


def test_joint_outputs_of_a_sequence_do_not_depend_on_the_batch(joint_model, pairs):
    with torch.inference_mode():
        for i, row in enumerate(output_rows(joint_model(pairs), pairs.lengths)):
            tokens = slice(int(pairs.first_positions[i]), int(pairs.first_positions[i]) + pairs.lengths[i])
            single = pack([pairs.token_ids[tokens].numpy()], [pairs.token_type_ids[tokens].numpy()])
            (expected,) = output_rows(joint_model(single), single.lengths)
            for field, expected_field in zip(row, expected, strict=True):
                np.testing.assert_allclose(field, expected_field, rtol=1e-4, atol=1e-5)


def test_every_parameter_of_the_joint_head_has_a_gradient(joint_model, pairs):
    outputs = joint_model.train()(pairs, pairs.first_positions + torch.tensor([5, 0, 7]))
    possible = outputs.ends > IMPOSSIBLE
    (outputs.starts[possible].sum() + outputs.ends[possible].pow(2).sum() + outputs.unanswerable.sum()).backward()
    assert all(p.grad is not None and p.grad.any() for p in joint_model.joint_qa_outputs.parameters())
