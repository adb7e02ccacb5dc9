"""ALBERT, and ALBERT with each kind of head; class names are those of transformers.

Also: the factorised embedding, the joint question-answering head (SQuAD 2.0), a model's outputs sequence by sequence,
running at another depth, and changing the dropout of an existing model."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from albert.model.config import AlbertConfig, LayerApplication, sharing_plan
from albert.model.encoder import Encoder, initialize
from albert.model.heads import MaskedLanguageModelHead, SentenceOrderHead, SpanHead
from albert.model.packing import PackedSequences, mean_states, pad_batch_rows, split_lengths, split_segments
from albert.runtime.devices import Dropout, linear
from albert.runtime.errors import InvalidConfiguration

# --------------------------------------------------------------------------------------------------------------------
# Factorised embeddings: V×E, then E×H (paper §3.1, "factorized embedding parameterization").


class FactorizedEmbedding(nn.Module):
    """Word, position and segment embeddings in E dimensions, summed, normalised and mapped to H."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        width = config.embedding_size
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.projection = nn.Linear(width, config.hidden_size) if config.projects_embeddings else None

    def forward(self, packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """Embed a run of tokens."""
        embedded = (
            self.word_embeddings(packed.token_ids)
            + self.position_embeddings(packed.position_ids)
            + self.token_type_embeddings(packed.token_type_ids)
        )
        embedded = self.dropout(self.layer_norm(embedded))
        if self.projection is None:
            return embedded
        rows = pad_batch_rows(embedded, packed)
        return linear(rows, self.projection.weight, self.projection.bias)[: len(embedded)]


class AlbertModel(nn.Module):
    """Embeddings, encoder and, unless nothing needs one vector a sequence, pooler."""

    def __init__(self, config: AlbertConfig, with_pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = FactorizedEmbedding(config)
        self.encoder = Encoder(config)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if with_pooler else None
        initialize(self, config.initializer_range)

    def forward(self, packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """The last layer's output for every token."""
        return self.encoder(self.embeddings(packed), packed)

    def hidden_states(self, packed: PackedSequences) -> list[Float[Tensor, "tokens H"]]:
        """What goes into the first layer, then every layer's output: 1 + L × inner_group_num states.

        The last is what `forward` gives. transformers calls them `hidden_states` too.
        """
        return self.encoder.hidden_states(self.embeddings(packed), packed)

    def pool(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "sequences H"]:
        """One vector a sequence: tanh of a linear map of its [CLS]."""
        assert self.pooler is not None, "built without a pooler"
        return self.pooler(hidden[packed.first_positions]).tanh()


Pooling = Literal["mean", "cls", "weighted"]
"""The mean over all tokens, [CLS] and [SEP] among them, as sentence-transformers pools; what stands at [CLS]; or the
mean in which rare pieces weigh more."""


class PooledEncoder(nn.Module):
    """An encoder that gives one vector a sequence.

    Args:
        weights: of each piece of the vocabulary, for the pooling "weighted".
    """

    weights: Tensor | None

    def __init__(self, encoder: AlbertModel, pooling: Pooling, weights: Float[Tensor, " V"] | None = None) -> None:
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        self.register_buffer("weights", weights, persistent=False)

    def forward(self, packed: PackedSequences) -> Float[Tensor, "sequences H"]:
        """The last layer's output, pooled."""
        hidden = self.encoder(packed)
        if self.pooling == "cls":
            return hidden[packed.first_positions]
        return mean_states(hidden, packed.lengths, None if self.weights is None else self.weights[packed.token_ids])


class PreTrainingLogits(NamedTuple):
    """What the two pre-training losses need."""

    masked_tokens: Float[Tensor, "masked V"]
    sentence_order: Float[Tensor, "sequences 2"]


class PreTrainingLosses(NamedTuple):
    """The same where the masked tokens' labels are known, so that vocabulary logits need not be kept."""

    masked_tokens: Float[Tensor, " masked"]
    """Cross-entropies."""
    masked_tokens_correct: Bool[Tensor, " masked"]
    """Whether the label has the largest logit."""
    sentence_order: Float[Tensor, "sequences 2"]
    """Logits, still."""


class AlbertForPreTraining(nn.Module):
    """Masked-token and sentence-order heads (paper §3.1)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config)
        self.predictions = MaskedLanguageModelHead(config)
        self.sop_classifier = SentenceOrderHead(config)
        initialize(self.predictions, config.initializer_range)
        initialize(self.sop_classifier, config.initializer_range)

    def forward(
        self,
        packed: PackedSequences,
        masked_positions: Int[Tensor, " masked"],
        masked_labels: Int[Tensor, " masked"] | None = None,
    ) -> PreTrainingLogits | PreTrainingLosses:
        """Logits at the masked positions (indices into the run of tokens) and for every sequence.

        Given the masked tokens' labels, losses in place of their logits, in less memory.
        """
        hidden = self.albert(packed)
        masked, words = hidden[masked_positions], self.albert.embeddings.word_embeddings.weight
        sentence_order = self.sop_classifier(self.albert.pool(hidden, packed))
        if masked_labels is None:
            return PreTrainingLogits(self.predictions(masked, words), sentence_order)
        return PreTrainingLosses(*self.predictions.losses(masked, words, masked_labels), sentence_order)


class AlbertForMaskedLM(nn.Module):
    """The masked-token head alone, on an encoder without a pooler."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, with_pooler=False)
        self.predictions = MaskedLanguageModelHead(config)
        initialize(self.predictions, config.initializer_range)

    def forward(self, packed: PackedSequences, masked_positions: Int[Tensor, " masked"]) -> Float[Tensor, "masked V"]:
        """Logits at the masked positions (indices into the run of tokens)."""
        words = self.albert.embeddings.word_embeddings.weight
        return self.predictions(self.albert(packed)[masked_positions], words)


class AlbertForSequenceClassification(nn.Module):
    """A linear head on the pooled sequence: classes, independent labels, or numbers for regression."""

    def __init__(self, config: AlbertConfig, num_labels: int) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config)
        self.dropout = Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        initialize(self.classifier, config.initializer_range)

    def forward(self, packed: PackedSequences) -> Float[Tensor, "sequences labels"]:
        """One row of logits a sequence."""
        return self.head_outputs(self.albert(packed), packed)

    def head_outputs(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> Float[Tensor, "sequences labels"]:
        """What the head makes of states that came out of the last layer, or of an earlier one."""
        pooled = self.dropout(self.albert.pool(hidden, packed))
        if self.classifier.out_features > 1 or not torch.is_autocast_enabled(pooled.device.type):
            return self.classifier(pooled)
        with torch.autocast(pooled.device.type, enabled=False):  # bfloat16 would round the year 1995 to 1992
            return self.classifier(pooled.float())


class AlbertForPairClassification(nn.Module):
    """Two texts, each encoded by itself: a linear head on (u, v, |u − v|, u·v), u and v the means of their states.

    As sentence-transformers learns pairs (Reimers and Gurevych 2019, arXiv 1908.10084, §3, with the product u·v
    beside). No token sees the other text, so the head and not attention compares them. Sequences come in as for any
    other head, `[CLS] a [SEP] b [SEP]`. transformers has no class for it.
    """

    def __init__(self, config: AlbertConfig, num_labels: int) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, with_pooler=False)
        self.dropout = Dropout(config.classifier_dropout_prob)
        self.pair_classifier = nn.Linear(4 * config.hidden_size, num_labels)
        initialize(self.pair_classifier, config.initializer_range)

    @property
    def classifier(self) -> nn.Linear:
        """The linear head; its name in files is another one than that of a head on [CLS]."""
        return self.pair_classifier

    def forward(self, packed: PackedSequences) -> Float[Tensor, "sequences labels"]:
        """One row of logits a pair."""
        return self.head_outputs(self.albert(split_segments(packed)), packed)

    def head_outputs(
        self, hidden: Float[Tensor, "split_tokens H"], packed: PackedSequences
    ) -> Float[Tensor, "sequences labels"]:
        """What the head makes of the states of `split_segments(packed)`."""
        means = mean_states(hidden, split_lengths(packed))
        u, v = means[0::2], means[1::2]
        features = self.dropout(torch.cat([u, v, (u - v).abs(), u * v], dim=1))
        with torch.autocast(features.device.type, enabled=False):  # see AlbertForSequenceClassification
            return self.pair_classifier(features)


class AlbertForTokenClassification(nn.Module):
    """A linear head on every token: parts of speech, named entities."""

    def __init__(self, config: AlbertConfig, num_labels: int) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, with_pooler=False)
        self.dropout = Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        initialize(self.classifier, config.initializer_range)

    def forward(self, packed: PackedSequences) -> Float[Tensor, "tokens labels"]:
        """One row of logits a token, special tokens included."""
        return self.head_outputs(self.albert(packed), packed)

    def head_outputs(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> Float[Tensor, "tokens labels"]:
        """What the head makes of states that came out of the last layer, or of an earlier one."""
        return self.classifier(self.dropout(hidden))


class AlbertForMultipleChoice(nn.Module):
    """One score for each sequence; a question's options are the sequences between which a softmax decides (RACE)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config)
        self.dropout = Dropout(config.classifier_dropout_prob)
        self.classifier = nn.Linear(config.hidden_size, 1)
        initialize(self.classifier, config.initializer_range)

    def forward(self, packed: PackedSequences) -> Float[Tensor, " sequences"]:
        """One score a sequence; which of them belong to one question, the caller knows."""
        return self.head_outputs(self.albert(packed), packed)

    def head_outputs(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, " sequences"]:
        """What the head makes of states that came out of the last layer, or of an earlier one."""
        return self.classifier(self.dropout(self.albert.pool(hidden, packed))).squeeze(-1)


class AlbertForQuestionAnswering(nn.Module):
    """Start and end logits for every token (SQuAD 1.1)."""

    def __init__(self, config: AlbertConfig) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, with_pooler=False)
        self.qa_outputs = SpanHead(config)
        initialize(self.qa_outputs, config.initializer_range)

    def forward(self, packed: PackedSequences) -> tuple[Float[Tensor, " tokens"], Float[Tensor, " tokens"]]:
        """Start and end logits of the whole run of tokens."""
        return self.head_outputs(self.albert(packed), packed)

    def head_outputs(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> tuple[Float[Tensor, " tokens"], Float[Tensor, " tokens"]]:
        """What the head makes of states that came out of the last layer, or of an earlier one."""
        return self.qa_outputs(hidden)


# --------------------------------------------------------------------------------------------------------------------
# Where an answer starts, where it ends given that start, and whether there is one (SQuAD 2.0, paper §4.2).
#
# The head that the paper's models have, as it was made for XLNet (Yang et al. 2019): no answer is a decision of its
# own, not one more span. transformers has no class for it.

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
        self.dropout = Dropout(config.classifier_dropout_prob)
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


# --------------------------------------------------------------------------------------------------------------------
# What a model gave for a packed batch, sequence by sequence, as numpy arrays.


class SpanBeamRow(NamedTuple):
    """One sequence of a `SpanBeam`: starts [length], beam [n], ends [length, n], unanswerable []."""

    starts: np.ndarray
    beam: np.ndarray
    ends: np.ndarray
    unanswerable: np.ndarray


OutputRow = np.ndarray | SpanBeamRow


def output_rows(output: Tensor | tuple, lengths: tuple[int, ...]) -> list[OutputRow]:
    """One row for each sequence, float32 on the CPU.

    Args:
        output: what one of the model classes returned.
        lengths: tokens of each sequence.

    Returns:
        [labels] for a classifier, [] for a multiple-choice model, [length, labels] for a token classifier, [length, 2]
        for a span model (start and end), and for a joint span model a `SpanBeamRow`.
    """
    if isinstance(output, SpanBeam):
        starts, ends = (each.float().cpu().split(lengths) for each in (output.starts, output.ends))
        beam, unanswerable = output.beam.cpu(), output.unanswerable.float().cpu()
        fields = zip(starts, beam, ends, unanswerable, strict=True)
        return [SpanBeamRow(*(each.numpy() for each in row)) for row in fields]
    stacked = (torch.stack(output, dim=1) if isinstance(output, tuple) else output).float().cpu()
    per_token = len(stacked) == sum(lengths)  # a sequence has [CLS] and [SEP], so they are never as many
    return [row.numpy() for row in (stacked.split(lengths) if per_token else stacked.unbind(0))]


# --------------------------------------------------------------------------------------------------------------------
# Running a model at another depth: fewer layers, or more where all layers share parameters (paper, appendix A.1).
#
# A depth of N is the first N layers. A model whose layers are one layer may be run deeper than it was trained, too;
# one with layers of its own has no more than it has.

EXITS_KEY = "exit_depths"
"""In `config.json`: the depths at which the head learnt to answer, in layers."""
MAX_DEPTH_FACTOR = 8
"""So many times the trained depth is the limit: larger values are probably typos."""


def allowed_depths(config: AlbertConfig) -> range:
    """The depths that a model can be run at, in layers."""
    is_one_layer = config.sharing == "all" and config.num_hidden_groups == 1
    return range(1, config.num_hidden_layers * (MAX_DEPTH_FACTOR if is_one_layer else 1) + 1)


def check_depth(config: AlbertConfig, depth: int) -> None:
    """Raises InvalidConfiguration when a model cannot be run at that depth, and says which ones it can."""
    allowed = allowed_depths(config)
    if depth in allowed:
        return
    shared = "which are one layer" if len(allowed) > config.num_hidden_layers else "not all of them the same"
    why = f"is {depth}, the model has {config.num_hidden_layers} layers, {shared}"
    raise InvalidConfiguration("depth", why, f"choose one from 1 to {allowed[-1]}")


def set_depth(model: nn.Module, depth: int) -> None:
    """Let a model apply its first `depth` layers, or its one layer so many times. Its configuration stays.

    Args:
        model: one of the model classes.
        depth: in layers, of which each is `inner_group_num` applications.

    Raises:
        InvalidConfiguration: the model cannot be run so deep.
    """
    config = model.config
    assert isinstance(config, AlbertConfig)
    check_depth(config, depth)
    backbone: Any = getattr(model, "albert", model)
    backbone.encoder.plan = plan_for_depth(config, depth)


def plan_for_depth(config: AlbertConfig, depth: int) -> tuple[LayerApplication, ...]:
    """The applications of the first `depth` layers, the plan going round where a model of one layer goes deeper."""
    plan = sharing_plan(config)
    wanted = depth * config.inner_group_num
    return (plan * -(-wanted // len(plan)))[:wanted]


def read_exit_depths(extra: Mapping[str, Any], model: str) -> tuple[int, ...]:
    """The depths at which a model learnt to answer, ascending, as its `config.json` says.

    Args:
        extra: the keys of `config.json` beside the configuration.
        model: how to call it in an error.

    Raises:
        InvalidConfiguration: it learnt to answer at its full depth alone, or what is said is no list of depths.
    """
    stated = extra.get(EXITS_KEY)
    if stated is None:
        why = "learnt to answer after its last layer alone"
        raise InvalidConfiguration(model, why, "fine-tune it with --exits every, or leave the patience out")
    if not isinstance(stated, list) or not all(type(depth) is int and depth > 0 for depth in stated):
        raise InvalidConfiguration(f"{model}: {EXITS_KEY}", f"is {stated!r}, depths are expected")
    return tuple(sorted(set(stated)))


# --------------------------------------------------------------------------------------------------------------------
# Dropout of a model that exists already: changed while it trains (Lan et al. 2019, §4.8, Fig. 2b).


def set_dropout(model: AlbertForPreTraining, probability: float) -> None:
    """Drop hidden values and attention probabilities with `probability` from now on; the configuration says so too."""
    config = replace(model.config, hidden_dropout_prob=probability, attention_probs_dropout_prob=probability)
    model.config = model.albert.config = config
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = probability
