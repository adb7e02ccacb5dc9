"""ALBERT, and ALBERT with each kind of head; class names are those of transformers."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from albert.model.config import AlbertConfig
from albert.model.encoder import Encoder
from albert.model.factorized_embedding import FactorizedEmbedding
from albert.model.heads import MaskedLanguageModelHead, SentenceOrderHead, SpanHead
from albert.model.initialization import initialize
from albert.model.packed_sequences import PackedSequences


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


class PreTrainingLogits(NamedTuple):
    """What the two pre-training losses need."""

    masked_tokens: Float[Tensor, "masked V"]
    sentence_order: Float[Tensor, "sequences 2"]


class PreTrainingLosses(NamedTuple):
    """The same where the masked tokens' labels are known, so that vocabulary logits need not be kept."""

    masked_tokens: Float[Tensor, " masked"]
    """Cross-entropies."""
    masked_tokens_right: Bool[Tensor, " masked"]
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
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
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


class AlbertForTokenClassification(nn.Module):
    """A linear head on every token: parts of speech, named entities."""

    def __init__(self, config: AlbertConfig, num_labels: int) -> None:
        super().__init__()
        self.config = config
        self.albert = AlbertModel(config, with_pooler=False)
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
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
        self.dropout = nn.Dropout(config.classifier_dropout_prob)
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
