"""ALBERT, and ALBERT with each kind of head; class names are those of transformers.

Also: the factorised embedding, splitting outputs by sequence, and changing the depth or the dropout of an existing
model."""

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from albert.model.encoder import ACTIVATIONS, Encoder, initialize
from albert.model.families import family_of
from albert.model.heads import JointSpanHead, MaskedLanguageModelHead, SentenceOrderHead, SpanHead
from albert.model.packing import (
    PackedSequences,
    mean_states,
    pad_batch_rows,
    split_lengths,
    split_segments,
    tokens_in_other_segment,
)
from albert.model.sharing import check_depth, plan_for_depth
from albert.recipes.architecture import EncoderConfig
from albert.runtime.devices import Dropout, linear
from albert.runtime.errors import InvalidConfiguration

# --------------------------------------------------------------------------------------------------------------------
# Factorised embeddings: V×E, then E×H (paper §3.1, "factorized embedding parameterization").


class FactorizedEmbedding(nn.Module):
    """Word, position and segment embeddings in E dimensions, summed, normalised and mapped to H.

    With `match_embedding` the last segment embedding is added to tokens that occur in the other segment: the exact
    match of Chen et al. 2017 (arXiv 1704.00051, §3.2), for encoders that do not learn to match words by attention.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.embedding_size
        self.match_embedding = config.match_embedding
        self.has_types = config.segment_types and config.type_vocab_size > 1
        self.word_embeddings = nn.Embedding(config.vocab_size, width)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, width)
        self.token_type_embeddings = nn.Embedding(config.type_vocab_size, width)
        self.layer_norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout_prob)
        self.projection = nn.Linear(width, config.hidden_size) if config.projects_embeddings else None

    def forward(self, packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """Embed all tokens."""
        positions = self.position_embeddings.num_embeddings
        if packed.max_seqlen > positions and not torch.compiler.is_compiling():
            why = f"a sequence has {packed.max_seqlen} tokens, the model has {positions} positions"
            raise InvalidConfiguration("max_length", why, f"pack texts with at most {positions}")
        types = packed.token_type_ids
        if not self.has_types:  # RoBERTa and DistilBERT do not tell segments apart
            types = torch.zeros_like(types)
        embedded = (
            self.word_embeddings(packed.token_ids)
            + self.position_embeddings(packed.position_ids)
            + self.token_type_embeddings(types)
        )
        if self.match_embedding:
            is_match = tokens_in_other_segment(packed)
            embedded = embedded + is_match[:, None] * self.token_type_embeddings.weight[-1]
        embedded = self.dropout(self.layer_norm(embedded))
        if self.projection is None:
            return embedded
        rows = pad_batch_rows(embedded, packed)
        return linear(rows, self.projection.weight, self.projection.bias)[: len(embedded)]


class AlbertModel(nn.Module):
    """Embeddings, encoder and optionally the pooler."""

    def __init__(self, config: EncoderConfig, with_pooler: bool = True) -> None:
        super().__init__()
        self.config = config
        self.embeddings = FactorizedEmbedding(config)
        self.encoder = Encoder(config)
        self.pooler = nn.Linear(config.hidden_size, config.hidden_size) if with_pooler else None
        initialize(self, config.initializer_range)
        if not family_of(config).has_token_types:  # zeros that are not trained
            types = self.embeddings.token_type_embeddings.weight.requires_grad_(False)
            nn.init.zeros_(types)

    def forward(self, packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """Output of the last layer for every token."""
        return self.encoder(self.embeddings(packed), packed)

    def hidden_states(self, packed: PackedSequences) -> list[Float[Tensor, "tokens H"]]:
        """Input of the first layer and output of every layer: 1 + L × inner_group_num states, as in transformers."""
        embedded = self.embeddings(packed)
        return [embedded, *self.encoder.each_layer(embedded, packed)]

    def pool(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "sequences H"]:
        """One vector per sequence: an activation (`Family.pooler_activation`) of a map of the state at [CLS]."""
        assert self.pooler is not None, "built without a pooler"
        return ACTIVATIONS[family_of(self.config).pooler_activation](self.pooler(hidden[packed.first_positions]))


Pooling = Literal["mean", "cls", "max", "weighted"]
"""Mean over all tokens including [CLS] and [SEP], as in sentence-transformers; the state at [CLS]; the maximum over all
tokens; or a mean in which rare pieces have larger weights."""


def max_states(hidden: Float[Tensor, "tokens H"], lengths: tuple[int, ...]) -> Float[Tensor, "sequences H"]:
    """Maximum of each dimension over the tokens of each sequence, in float32."""
    return torch.stack([states.amax(0) for states in hidden.float().split(lengths)])


class PooledEncoder(nn.Module):
    """An encoder with pooling: one vector per sequence.

    Args:
        weights: for the pooling "weighted", of each piece.
        dense: a map of the pooled states [sequences, H] to vectors [sequences, D]; None: they are the vectors.
    """

    weights: Tensor | None

    def __init__(
        self,
        encoder: AlbertModel,
        pooling: Pooling,
        weights: Float[Tensor, " V"] | None = None,
        dense: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.pooling = pooling
        self.dense = dense
        self.register_buffer("weights", weights, persistent=False)

    def forward(self, packed: PackedSequences) -> Float[Tensor, "sequences D"]:
        """Pooled output of the last layer, through the map if there is one."""
        pooled = self.pooled(self.encoder(packed), packed)
        return pooled if self.dense is None else self.dense(pooled.float())

    def pooled(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "sequences H"]:
        """Pooled states of the last layer."""
        if self.pooling == "cls":
            return hidden[packed.first_positions]
        if self.pooling == "max":
            return max_states(hidden, packed.lengths)
        return mean_states(hidden, packed.lengths, None if self.weights is None else self.weights[packed.token_ids])


class PreTrainingLogits(NamedTuple):
    """Logits of both pre-training heads."""

    masked_tokens: Float[Tensor, "masked V"]
    sentence_order: Float[Tensor, "sequences 2"]


class PreTrainingLosses(NamedTuple):
    """Losses of the masked tokens, and logits of the sentence order; vocabulary logits are not kept in memory."""

    masked_tokens: Float[Tensor, " masked"]
    """Cross-entropy of each masked token."""
    masked_tokens_correct: Bool[Tensor, " masked"]
    """Whether the label has the largest logit."""
    sentence_order: Float[Tensor, "sequences 2"]
    """Logits."""


class AlbertForPreTraining(nn.Module):
    """ALBERT with a masked-token and a sentence-order head (paper §3.1)."""

    def __init__(self, config: EncoderConfig) -> None:
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
        """Logits at the masked positions and for every sequence; with labels, losses instead of vocabulary logits.

        Args:
            masked_positions: indices into the tokens of the batch.
            masked_labels: token ids; with them much less memory is needed.
        """
        hidden = self.albert(packed)
        masked = hidden[masked_positions]
        words = self.albert.embeddings.word_embeddings.weight
        sentence_order = self.sop_classifier(self.albert.pool(hidden, packed))
        if masked_labels is None:
            return PreTrainingLogits(self.predictions(masked, words), sentence_order)
        return PreTrainingLosses(*self.predictions.losses(masked, words, masked_labels), sentence_order)


class AlbertForMaskedLM(nn.Module):
    """ALBERT without a pooler, with a masked-token head."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, with_pooler=False)
        self.predictions = MaskedLanguageModelHead(config)
        initialize(self.predictions, config.initializer_range)

    def forward(self, packed: PackedSequences, masked_positions: Int[Tensor, " masked"]) -> Float[Tensor, "masked V"]:
        """Logits at the masked positions (indices into the tokens of the batch)."""
        words = self.albert.embeddings.word_embeddings.weight
        return self.predictions(self.albert(packed)[masked_positions], words)


class _TaskModel(nn.Module):
    """An encoder and a task head; subclasses compute the head from hidden states in `head_outputs`."""

    def __init__(self, config: EncoderConfig, with_pooler: bool) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, with_pooler)
        self.dropout = Dropout(config.classifier_dropout_prob)

    def forward(self, packed: PackedSequences) -> Any:
        """Outputs of the head."""
        return self.head_outputs(self.albert(packed), packed)

    def pooled(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "sequences H"]:
        """What a head for a whole text reads of each sequence (`EncoderConfig.head_pooling`)."""
        match self.config.head_pooling:
            case "pooler":
                return self.albert.pool(hidden, packed)
            case "mean":
                return mean_states(hidden, packed.lengths).to(hidden.dtype)
            case "max":
                return max_states(hidden, packed.lengths).to(hidden.dtype)
            case "cls":
                return hidden[packed.first_positions]

    @abstractmethod
    def head_outputs(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Any:
        """Outputs of the head for the states of the last layer, or of an earlier one."""


class AlbertForSequenceClassification(_TaskModel):
    """A linear head on the pooled sequence: classes, independent labels, or numbers for regression."""

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__(config, with_pooler=config.head_pooling == "pooler")
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        initialize(self.classifier, config.initializer_range)

    def head_outputs(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> Float[Tensor, "sequences labels"]:
        """Logits of every sequence."""
        pooled = self.dropout(self.pooled(hidden, packed))
        if self.classifier.out_features > 1 or not torch.is_autocast_enabled(pooled.device.type):
            return self.classifier(pooled)
        with torch.autocast(pooled.device.type, enabled=False):  # regression: bfloat16 would round 1995 to 1992
            return self.classifier(pooled.float())


class AlbertForPairClassification(_TaskModel):
    """Encodes two texts separately: a linear head on (u, v, |u − v|, u·v), where u and v are their mean states.

    From sentence-transformers (Reimers and Gurevych 2019, arXiv 1908.10084, §3), with the product u·v added. Tokens do
    not attend to the other text. Input sequences are `[CLS] a [SEP] b [SEP]`, as for other heads. transformers has no
    such class.
    """

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__(config, with_pooler=False)
        self.pair_classifier = nn.Linear(4 * config.hidden_size, num_labels)
        initialize(self.pair_classifier, config.initializer_range)

    @property
    def classifier(self) -> nn.Linear:
        """The linear head, which has a name of its own in files."""
        return self.pair_classifier

    def forward(self, packed: PackedSequences) -> Float[Tensor, "sequences labels"]:
        """Logits of every pair."""
        return self.head_outputs(self.albert(split_segments(packed)), packed)

    def head_outputs(
        self, hidden: Float[Tensor, "split_tokens H"], packed: PackedSequences
    ) -> Float[Tensor, "sequences labels"]:
        """Logits of every pair, from the states of `split_segments(packed)`."""
        means = mean_states(hidden, split_lengths(packed))
        u = means[0::2]
        v = means[1::2]
        features = self.dropout(torch.cat([u, v, (u - v).abs(), u * v], dim=1))
        with torch.autocast(features.device.type, enabled=False):  # see AlbertForSequenceClassification
            return self.pair_classifier(features)


class AlbertForTokenClassification(_TaskModel):
    """A linear head on every token: parts of speech, named entities."""

    def __init__(self, config: EncoderConfig, num_labels: int) -> None:
        super().__init__(config, with_pooler=False)
        self.classifier = nn.Linear(config.hidden_size, num_labels)
        initialize(self.classifier, config.initializer_range)

    def head_outputs(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> Float[Tensor, "tokens labels"]:
        """Logits of every token, including special tokens."""
        return self.classifier(self.dropout(hidden))


class AlbertForMultipleChoice(_TaskModel):
    """One score per sequence; the caller takes a softmax over the sequences of a question's options (RACE)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, with_pooler=config.head_pooling == "pooler")
        self.classifier = nn.Linear(config.hidden_size, 1)
        initialize(self.classifier, config.initializer_range)

    def head_outputs(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, " sequences"]:
        """Score of every sequence."""
        return self.classifier(self.dropout(self.pooled(hidden, packed))).squeeze(-1)


class AlbertForQuestionAnswering(_TaskModel):
    """Start and end logits for every token (SQuAD 1.1)."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__(config, with_pooler=False)
        self.qa_outputs = SpanHead(config)
        initialize(self.qa_outputs, config.initializer_range)

    def head_outputs(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> tuple[Float[Tensor, " tokens"], Float[Tensor, " tokens"]]:
        """Start and end logits of every token."""
        return self.qa_outputs(hidden)


# --------------------------------------------------------------------------------------------------------------------
# ALBERT with the joint question-answering head (SQuAD 2.0, paper §4.2): start, end given the start, and whether there
# is an answer. transformers has no such class.

BEAM = 5
"""Number of starts for which ends are computed."""
IMPOSSIBLE = -1e30
"""Logit of tokens at which no answer may start or end."""


class SpanFromStart(NamedTuple):
    """Outputs for the loss, given the starts of the answers."""

    starts: Float[Tensor, " tokens"]
    ends: Float[Tensor, " tokens"]
    unanswerable: Float[Tensor, " sequences"]


class SpanBeam(NamedTuple):
    """Outputs for decoding: the best starts, and end logits for each of them."""

    starts: Float[Tensor, " tokens"]
    beam: Int[Tensor, "sequences beam"]
    """Positions of the best starts within their sequence; short sequences repeat one."""
    ends: Float[Tensor, "tokens beam"]
    unanswerable: Float[Tensor, " sequences"]


class AlbertForJointQuestionAnswering(nn.Module):
    """ALBERT without a pooler, with the joint head."""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, with_pooler=False)
        self.joint_qa_outputs = JointSpanHead(config)
        initialize(self.joint_qa_outputs, config.initializer_range)

    def forward(
        self, packed: PackedSequences, starts: Int[Tensor, " sequences"] | None = None
    ) -> SpanFromStart | SpanBeam:
        """Outputs for the loss if the starts are given (indices into the tokens of the batch), else for decoding.

        Answers are in the second segment; "no answer" starts and ends at [CLS]. Other tokens have logits of -1e30.
        """
        return self.head_outputs(self.albert(packed), packed, starts)

    def head_outputs(
        self,
        hidden: Float[Tensor, "tokens H"],
        packed: PackedSequences,
        starts: Int[Tensor, " sequences"] | None = None,
    ) -> SpanFromStart | SpanBeam:
        """Outputs of the head for the states of the last layer; see `forward`."""
        head = self.joint_qa_outputs
        lengths = torch.tensor(packed.lengths, device=hidden.device)
        # An answer starts and ends in the second segment without its [SEP], or at [CLS].
        possible = packed.token_type_ids == 1
        possible[packed.first_positions + lengths - 1] = False
        possible[packed.first_positions] = True
        start_logits = head.starts(hidden).float().masked_fill(~possible, IMPOSSIBLE)
        # The mean state of each sequence, weighted by the probabilities of its starts.
        pieces = zip(start_logits.split(packed.lengths), hidden.split(packed.lengths), strict=True)
        expected_start = torch.stack([logits.softmax(0).to(states.dtype) @ states for logits, states in pieces])
        unanswerable = head.unanswerable(expected_start, hidden[packed.first_positions])
        if starts is not None:
            start = hidden[starts].repeat_interleave(lengths, dim=0)
            return SpanFromStart(start_logits, self._ends(hidden, start, possible), unanswerable)
        beam = _best_starts(start_logits.index_fill(0, packed.first_positions, IMPOSSIBLE), packed)
        ends = [
            self._ends(hidden, hidden[packed.first_positions + positions].repeat_interleave(lengths, dim=0), possible)
            for positions in beam.unbind(1)
        ]
        return SpanBeam(start_logits, beam, torch.stack(ends, dim=1), unanswerable)

    def _ends(
        self, hidden: Float[Tensor, "tokens H"], start: Float[Tensor, "tokens H"], possible: Bool[Tensor, " tokens"]
    ) -> Float[Tensor, " tokens"]:
        return self.joint_qa_outputs.ends(hidden, start).float().masked_fill(~possible, IMPOSSIBLE)


def _best_starts(start_logits: Float[Tensor, " tokens"], packed: PackedSequences) -> Int[Tensor, "sequences beam"]:
    """Positions of the best starts; sequences with fewer tokens than the beam repeat the last one."""
    rows = []
    for logits in start_logits.split(packed.lengths):
        positions = logits.topk(min(BEAM, len(logits))).indices
        rows.append(torch.cat([positions, positions[-1:].expand(BEAM - len(positions))]))
    return torch.stack(rows)


# --------------------------------------------------------------------------------------------------------------------
# Splitting the outputs for a packed batch by sequence, as numpy arrays.


class SpanBeamRow(NamedTuple):
    """One sequence of a `SpanBeam`: starts [length], beam [n], ends [length, n], unanswerable []."""

    starts: np.ndarray
    beam: np.ndarray
    ends: np.ndarray
    unanswerable: np.ndarray


OutputRow = np.ndarray | SpanBeamRow


def output_rows(output: Tensor | tuple, lengths: tuple[int, ...]) -> list[OutputRow]:
    """Split the outputs of a model by sequence, as float32 on the CPU.

    Returns:
        [labels] for a classifier, [] for a multiple-choice model, [length, labels] for a token classifier, [length, 2]
        for a span model (start and end), and for a joint span model a `SpanBeamRow`.
    """
    if isinstance(output, SpanBeam):
        starts, ends = (logits.float().cpu().split(lengths) for logits in (output.starts, output.ends))
        beam = output.beam.cpu()
        unanswerable = output.unanswerable.float().cpu()
        fields = zip(starts, beam, ends, unanswerable, strict=True)
        return [SpanBeamRow(*(tensor.numpy() for tensor in row)) for row in fields]
    stacked = (torch.stack(output, dim=1) if isinstance(output, tuple) else output).float().cpu()
    per_token = len(stacked) == sum(lengths)  # every sequence has at least two tokens, so the counts differ
    return [row.numpy() for row in (stacked.split(lengths) if per_token else stacked.unbind(0))]


# --------------------------------------------------------------------------------------------------------------------
# Running a model at another depth (paper, appendix A.1): the first N layers, or more layers than it was trained with if
# all layers share their parameters.


def set_depth(model: nn.Module, depth: int) -> None:
    """Make a model apply `depth` layers; its configuration does not change.

    Raises:
        InvalidConfiguration: the model cannot run at this depth.
    """
    config = model.config
    assert isinstance(config, EncoderConfig)
    check_depth(config, depth)
    backbone: Any = getattr(model, "albert", model)
    backbone.encoder.plan = plan_for_depth(config, depth)


# --------------------------------------------------------------------------------------------------------------------
# Changing dropout during training (paper §4.8, Fig. 2b).


def set_dropout(model: AlbertForPreTraining, probability: float) -> None:
    """Set the dropout of hidden values and attention probabilities, in the modules and the configuration."""
    config = replace(model.config, hidden_dropout_prob=probability, attention_probs_dropout_prob=probability)
    model.config = model.albert.config = config
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = probability
