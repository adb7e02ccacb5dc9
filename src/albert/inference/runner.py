"""`PipelineRunner`: runs the network of a model between a pipeline's `encode` and its `decode`.

Every request and every row takes this way. A `Predictor` is one, with methods for users."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from albert.inference.engine import PackedModel
from albert.model.albert import PooledEncoder, Pooling
from albert.model.packing import pack
from albert.recipes.architecture import AlbertConfig
from albert.tasks.embed import piece_weights
from albert.tasks.examples import Example, Features
from albert.tasks.fill_mask import MaskFeatures
from albert.tasks.pipeline import Lengths, Pipeline, UnansweredTexts
from albert.text.tokenizer import Tokenizer


class HeadsAfterLayers(NamedTuple):
    """What the heads of a model give for a text after each layer: for each mask logits [layers, V], and the logits of
    a classifier, or of the order of a pair, [layers, labels]."""

    masks: list[Float[Tensor, "layers V"]]
    labels: Float[Tensor, "layers labels"] | None


class PipelineRunner:
    """A model with its tokenizer and device."""

    tokenizer: Tokenizer
    lengths: Lengths
    """Tokens of a sequence and of a question, and the step between windows."""
    packed_model: PackedModel
    """The model with its head, for packed batches."""
    dense: nn.Module | None
    """The Dense modules after the pooling; None if there are none."""
    config: AlbertConfig
    device: torch.device
    _pooled: dict[Pooling, PackedModel]

    @property
    def network(self) -> nn.Module:
        """The model with its head."""
        return self.packed_model.model

    def replies(self, pipeline: Pipeline, examples: Sequence[Example]) -> list[Any]:
        """The reply of a pipeline to each example; raises UnansweredTexts for those that have none."""
        features = pipeline.encode(examples, self.tokenizer, pipeline.fitted(self.lengths))
        decoded = pipeline.decode(self._outputs(pipeline, features), features)
        replies: list[Any] = []
        reasons: dict[int, tuple[str, str | None]] = {}
        subject = ""
        for number, row in enumerate(zip(examples, decoded, features.cut_of_examples, strict=True)):
            try:
                replies.append(pipeline.reply(*row))
            except UnansweredTexts as error:
                subject = error.subject
                reasons[number] = error.reasons[0]
        if reasons:
            raise UnansweredTexts(subject, reasons)
        return replies

    def replies_or_errors(self, pipeline: Pipeline, examples: Sequence[Example]) -> list[Any]:
        """The reply to each example, or the error why it has none."""
        try:
            return self.replies(pipeline, examples)
        except UnansweredTexts as error:
            reasons = error.reasons
            answerable = [example for number, example in enumerate(examples) if number not in reasons]
            others = iter(self.replies(pipeline, answerable) if answerable else [])
            return [error.only(number) if number in reasons else next(others) for number in range(len(examples))]

    def _outputs(self, pipeline: Any, features: Features) -> Any:
        """What the network gives for the sequences, as the pipeline's `decode` takes it."""
        sequences = features.sequences
        ids = [sequences.token_ids(number) for number in range(len(sequences))]
        types = [sequences.token_type_ids(number) for number in range(len(sequences))]
        match pipeline.runs:
            case "masks":
                none = [np.zeros(0, np.int64)] * len(ids)
                positions = features.positions if isinstance(features, MaskFeatures) else none
                return self.packed_model.at(ids, types, positions)
            case "vectors":
                rows = self.pooled_model(pipeline.pooling).rows(ids, types)
                vectors = np.asarray(rows, np.float32).reshape(len(ids), self.config.hidden_size)
                if self.dense is None:
                    return vectors
                with torch.inference_mode():
                    return self.dense(torch.from_numpy(vectors)).numpy()
            case "layers":
                assert isinstance(features, MaskFeatures)
                return self._heads_after_layers(pipeline, features, ids, types)
        return self.packed_model.rows(ids, types)

    def _heads_after_layers(
        self, pipeline: Any, features: MaskFeatures, ids: Sequence[np.ndarray], types: Sequence[np.ndarray]
    ) -> Iterator[HeadsAfterLayers]:
        """For each text; the states of all layers are large, so the texts are computed one by one."""
        model: Any = self.network
        encoder: Any = getattr(model, "albert", model)
        for number, positions in enumerate(features.positions):
            masks = []
            labels = None
            with torch.inference_mode():
                packed = pack([ids[number]], [types[number]]).to(self.device)
                states = [state.float() for state in encoder.hidden_states(packed)]
                for position in positions.tolist() if pipeline.fills_masks else ():
                    at_mask = torch.stack([state[position] for state in states])
                    masks.append(model.predictions(at_mask, model.albert.embeddings.word_embeddings.weight))
                if pipeline.labels:
                    labels = torch.cat([model.head_outputs(state, packed) for state in states]).float()
                elif pipeline.order is not None and bool(types[number].any()):
                    order = [model.sop_classifier(model.albert.pool(state, packed)) for state in states]
                    labels = torch.cat(order).float()
            yield HeadsAfterLayers(masks, labels)

    def pooled_model(self, pooling: Pooling) -> PackedModel:
        """The encoder with a pooling, made once."""
        if pooling not in self._pooled:
            weights = torch.from_numpy(piece_weights(self.tokenizer)) if pooling == "weighted" else None
            encoder: Any = getattr(self.network, "albert", self.network)
            pooled = PooledEncoder(encoder, pooling, weights)
            self._pooled[pooling] = PackedModel(pooled, self.device)
        return self._pooled[pooling]
