"""Where an answer starts, where it ends given that start, and whether there is one (SQuAD 2.0, paper §4.2).

The head that the paper's models have, as it was made for XLNet (Yang et al. 2019): no answer is a decision of its own,
not one more span. transformers has no class for it.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from albert.model.albert import AlbertModel
from albert.model.config import AlbertConfig
from albert.model.initialization import initialize
from albert.model.packed_sequences import PackedSequences

BEAM = 5
"""Starts that are followed to an end."""
IMPOSSIBLE = -1e30
"""The logit of a token where no answer may start or end."""


class SpanFromStart(NamedTuple):
    """What the loss needs, given where the answers start."""

    starts: Float[Tensor, " tokens"]
    ends: Float[Tensor, " tokens"]
    unanswerable: Float[Tensor, " sequences"]


class SpanBeam(NamedTuple):
    """What decoding needs: the likeliest starts, and for each of them a logit for every end."""

    starts: Float[Tensor, " tokens"]
    beam: Int[Tensor, "sequences beam"]
    """Places of the likeliest starts, counted from the beginning of their sequence; one may come twice."""
    ends: Float[Tensor, "tokens beam"]
    unanswerable: Float[Tensor, " sequences"]


class JointSpanHead(nn.Module):
    """Start logits; end logits of a token beside a start; the logit of "no answer" of a sequence."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        width = config.hidden_size
        self.start = nn.Linear(width, 1)
        self.end_dense = nn.Linear(2 * width, width)
        self.end_layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.end = nn.Linear(width, 1)
        self.answer_dense = nn.Linear(2 * width, width)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
        self.answer = nn.Linear(width, 1, bias=False)

    def starts(self, hidden: Float[Tensor, "tokens H"]) -> Float[Tensor, " tokens"]:
        """That the answer starts at a token."""
        return self.start(hidden).squeeze(-1)

    def ends(self, hidden: Float[Tensor, "tokens H"], start: Float[Tensor, "tokens H"]) -> Float[Tensor, " tokens"]:
        """That the answer ends at a token when it starts at another, whose state each token is given."""
        joint = self.end_dense(torch.cat([hidden, start], dim=-1)).tanh()
        return self.end(self.end_layer_norm(joint)).squeeze(-1)

    def unanswerable(
        self, expected_start: Float[Tensor, "sequences H"], first: Float[Tensor, "sequences H"]
    ) -> Float[Tensor, " sequences"]:
        """That there is no answer, from the mean state of its start and the state of [CLS]."""
        joint = self.answer_dense(torch.cat([expected_start, first], dim=-1)).tanh()
        return self.answer(self.dropout(joint)).squeeze(-1)


class AlbertForJointQuestionAnswering(nn.Module):
    """The encoder without a pooler under the joint head."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, with_pooler=False)
        self.joint_qa_outputs = JointSpanHead(config)
        initialize(self.joint_qa_outputs, config.initializer_range)

    def forward(
        self, packed: PackedSequences, starts: Int[Tensor, " sequences"] | None = None
    ) -> SpanFromStart | SpanBeam:
        """Logits for the loss when the answers' starts are known (indices into the run of tokens), else for decoding.

        Answers start and end in the second segment, or at [CLS] where there is none; elsewhere logits are -1e30.
        """
        return self.head_outputs(self.albert(packed), packed, starts)

    def head_outputs(
        self,
        hidden: Float[Tensor, "tokens H"],
        packed: PackedSequences,
        starts: Int[Tensor, " sequences"] | None = None,
    ) -> SpanFromStart | SpanBeam:
        """What the head makes of states that came out of the last layer, or of an earlier one."""
        head = self.joint_qa_outputs
        possible = _possible(packed)
        start_logits = head.starts(hidden).float().masked_fill(~possible, IMPOSSIBLE)
        unanswerable = head.unanswerable(_expected(start_logits, hidden, packed), hidden[packed.first_positions])
        lengths = torch.tensor(packed.lengths, device=hidden.device)
        if starts is not None:
            given = hidden[starts].repeat_interleave(lengths, dim=0)
            return SpanFromStart(start_logits, self._ends(hidden, given, possible), unanswerable)
        beam = _likeliest(start_logits.index_fill(0, packed.first_positions, IMPOSSIBLE), packed)
        ends = [
            self._ends(hidden, hidden[packed.first_positions + places].repeat_interleave(lengths, dim=0), possible)
            for places in beam.unbind(1)
        ]
        return SpanBeam(start_logits, beam, torch.stack(ends, dim=1), unanswerable)

    def _ends(
        self, hidden: Float[Tensor, "tokens H"], start: Float[Tensor, "tokens H"], possible: Bool[Tensor, " tokens"]
    ) -> Float[Tensor, " tokens"]:
        return self.joint_qa_outputs.ends(hidden, start).float().masked_fill(~possible, IMPOSSIBLE)


def _possible(packed: PackedSequences) -> Bool[Tensor, " tokens"]:
    """The second segment without its [SEP], and [CLS]."""
    possible = packed.token_type_ids == 1
    lengths = torch.tensor(packed.lengths, device=possible.device)
    possible[packed.first_positions + lengths - 1] = False
    possible[packed.first_positions] = True
    return possible


def _expected(
    start_logits: Float[Tensor, " tokens"], hidden: Float[Tensor, "tokens H"], packed: PackedSequences
) -> Float[Tensor, "sequences H"]:
    """Each sequence's mean state, weighted by where its answer starts."""
    pieces = zip(start_logits.split(packed.lengths), hidden.split(packed.lengths), strict=True)
    return torch.stack([logits.softmax(0).to(states.dtype) @ states for logits, states in pieces])


def _likeliest(start_logits: Float[Tensor, " tokens"], packed: PackedSequences) -> Int[Tensor, "sequences beam"]:
    """Places of the likeliest starts; where a sequence has fewer tokens than the beam, its last place again."""
    rows = []
    for logits in start_logits.split(packed.lengths):
        places = logits.topk(min(BEAM, len(logits))).indices
        rows.append(torch.cat([places, places[-1:].expand(BEAM - len(places))]))
    return torch.stack(rows)
