"""The joint head is the paper's: p(start), p(end | start), and a decision from the mean start and [CLS]."""

import numpy as np
import pytest
import torch
from tests.tiny import tiny_config

from albert.model.albert import BEAM, IMPOSSIBLE, AlbertForJointQuestionAnswering, SpanBeamRow, output_rows
from albert.model.packing import pack

LENGTHS = ((4, 9), (2, 3), (5, 14))  # tokens up to the first [SEP], and in all


@pytest.fixture
def model() -> AlbertForJointQuestionAnswering:
    torch.manual_seed(0)
    config = tiny_config(50, initializer_range=0.3)
    return AlbertForJointQuestionAnswering(config).eval()


def batch(lengths=LENGTHS):
    generator = np.random.default_rng(1)
    ids = [generator.integers(1, 50, length) for _, length in lengths]
    return pack(ids, [(np.arange(length) >= first).astype(int) for first, length in lengths])


def test_logits_follow_the_definition(model):
    packed, head = batch(), model.joint_qa_outputs
    with torch.inference_mode():
        hidden = model.albert(packed)
        starts = packed.first_positions + torch.tensor([5, 0, 7])
        found = model(packed, starts)
        for place, (first, length) in enumerate(LENGTHS):
            begin = int(packed.first_positions[place])
            states, tokens = hidden[begin : begin + length], slice(begin, begin + length)
            possible = torch.zeros(length, dtype=torch.bool)
            possible[first : length - 1] = possible[0] = True
            start = head.start(states)[:, 0]
            given = hidden[starts[place]].expand(length, -1)
            end = head.end(head.end_layer_norm(head.end_dense(torch.cat([states, given], 1)).tanh()))[:, 0]
            weights = start.masked_fill(~possible, -torch.inf).softmax(0)
            summary = torch.cat([weights @ states, states[0]])
            expected = head.answer(head.answer_dense(summary).tanh())[0]
            for logits, plain in ((found.starts[tokens], start), (found.ends[tokens], end)):
                torch.testing.assert_close(logits[possible], plain[possible])
                assert (logits[~possible] == IMPOSSIBLE).all()
            torch.testing.assert_close(found.unanswerable[place], expected)


def test_the_beam_holds_the_likeliest_starts_with_their_ends(model):
    packed = batch()
    with torch.inference_mode():
        rows = output_rows(model(packed), packed.lengths)
        for place, (row, (first, length)) in enumerate(zip(rows, LENGTHS, strict=True)):
            assert isinstance(row, SpanBeamRow)
            assert row.ends.shape == (length, BEAM)
            context = np.arange(first, length - 1)
            likeliest = context[np.argsort(-row.starts[context])][:BEAM]
            assert set(likeliest) <= set(row.beam.tolist())
            for column, start in enumerate(row.beam):
                begins = packed.first_positions.clone()
                begins[place] += int(start)
                ends = output_rows(model(packed, begins).ends[:, None].expand(-1, 2), packed.lengths)[place]
                np.testing.assert_allclose(row.ends[:, column], ends[:, 0], rtol=1e-5)


def test_sequences_do_not_see_each_other(model):
    with torch.inference_mode():
        packed = batch()
        together = output_rows(model(packed), packed.lengths)
        for place, row in enumerate(together):
            begin, length = int(packed.first_positions[place]), packed.lengths[place]
            tokens = slice(begin, begin + length)
            single = pack([packed.token_ids[tokens].numpy()], [packed.token_type_ids[tokens].numpy()])
            (alone,) = output_rows(model(single), single.lengths)
            for one, other in zip(row, alone, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_every_parameter_learns(model):
    packed = batch()
    found = model.train()(packed, packed.first_positions + torch.tensor([5, 0, 7]))
    possible = found.ends > IMPOSSIBLE
    (found.starts[possible].sum() + found.ends[possible].pow(2).sum() + found.unanswerable.sum()).backward()
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.joint_qa_outputs.parameters())
