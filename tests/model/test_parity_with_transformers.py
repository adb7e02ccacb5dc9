"""The same weights give the same numbers in transformers and here, both ways.

transformers is given padded batches, ours packed ones.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.nn import functional

from albert.checkpoints.huggingface import to_transformers
from albert.checkpoints.model_directory import open_model, read_config, write_model
from albert.model.albert import (
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertModel,
)
from albert.model.config import AlbertConfig
from albert.model.packed_sequences import PackedSequences, pack

VOCABULARY = 90
SIZES = {
    "vocab_size": VOCABULARY,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 72,
    "max_position_embeddings": 24,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "classifier_dropout_prob": 0.0,
}
THEIRS = {
    "one group, erf": {"hidden_act": "gelu"},
    "one group, tanh": {"hidden_act": "gelu_new"},
    "one group, relu": {"hidden_act": "relu"},
    "two groups of two": {"num_hidden_layers": 4, "num_hidden_groups": 2, "inner_group_num": 2},
    "a group a layer": {"num_hidden_groups": 3},
    "E equals H": {"embedding_size": 32, "hidden_act": "gelu"},
}
OURS = {
    **{name: dict(fields) for name, fields in THEIRS.items() if name != "E equals H"},
    "attention shared": {"sharing": "attention"},
    "feed-forward shared": {"sharing": "ffn"},
    "nothing shared": {"sharing": "none", "embedding_size": 32},
    "E equals H, no map": {"embedding_size": 32},
    "E equals H, a map": {"embedding_size": 32, "embedding_projection": True},
}
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
LENGTHS = (11, 24, 3, 8)


@pytest.fixture(params=THEIRS.values(), ids=THEIRS)
def their_config(request: pytest.FixtureRequest) -> transformers.AlbertConfig:
    return transformers.AlbertConfig(**{**SIZES, **request.param})


@pytest.fixture(params=OURS.values(), ids=OURS)
def our_config(request: pytest.FixtureRequest) -> AlbertConfig:
    return replace(AlbertConfig(**SIZES), **request.param)


@pytest.fixture(params=TOLERANCE, ids=str)
def dtype(request: pytest.FixtureRequest) -> torch.dtype:
    return request.param


class Batch:
    """Sequences of several lengths, as a padded rectangle and packed."""

    def __init__(self) -> None:
        generator = np.random.default_rng(3)
        ids = [generator.integers(5, VOCABULARY, length) for length in LENGTHS]
        types = [(np.arange(length) > length // 2).astype(np.int64) for length in LENGTHS]
        self.packed: PackedSequences = pack(ids, types)
        longest = max(LENGTHS)
        self.padded = {
            "input_ids": torch.tensor([[*row, *[0] * (longest - len(row))] for row in ids]),
            "token_type_ids": torch.tensor([[*row, *[0] * (longest - len(row))] for row in types]),
            "attention_mask": torch.tensor([[int(i < length) for i in range(longest)] for length in LENGTHS]),
        }

    def real(self, tensor: torch.Tensor) -> torch.Tensor:
        """The cells of a padded result that are no padding, as one run."""
        return tensor[self.padded["attention_mask"].bool()]


@pytest.fixture
def batch() -> Batch:
    return Batch()


def test_hidden_states_are_equal(
    their_config: transformers.AlbertConfig, dtype: torch.dtype, batch: Batch, tmp_path: Path
) -> None:
    theirs = _theirs(transformers.AlbertModel, their_config, dtype, tmp_path)
    ours = open_model(tmp_path, "encoder", dtype=dtype).model
    assert isinstance(ours, AlbertModel)
    with torch.inference_mode():
        expected = theirs(**batch.padded, output_hidden_states=True)
        hidden = ours(batch.packed)
        _assert_close(hidden, batch.real(expected.last_hidden_state))
        _assert_close(ours.pool(hidden, batch.packed), expected.pooler_output)
        states = [ours.embeddings(batch.packed)]
        for step in ours.encoder.plan:
            states.append(ours.encoder.attentions[step.attention](states[-1], batch.packed))
            states[-1] = ours.encoder.feed_forwards[step.feed_forward](states[-1])
        assert len(states) == len(expected.hidden_states)
        for mine, state in zip(states, expected.hidden_states, strict=True):
            _assert_close(mine, batch.real(state))


def test_pretraining_logits_loss_and_gradients_are_equal(
    their_config: transformers.AlbertConfig, dtype: torch.dtype, batch: Batch, tmp_path: Path
) -> None:
    theirs = _theirs(transformers.AlbertForPreTraining, their_config, dtype, tmp_path)
    opened = open_model(tmp_path, "pretraining", dtype=dtype)
    ours = opened.model
    assert opened.loading_report.missing == opened.loading_report.unexpected == ()
    positions = torch.tensor([1, 5, 12, 30, 36, 40])
    labels = torch.tensor([7, 60, 8, 33, 5, 89])
    orders = torch.tensor([0, 1, 1, 0])
    run = torch.full((sum(LENGTHS),), -100)
    run[positions] = labels
    padded_labels = torch.full(batch.padded["input_ids"].shape, -100)
    padded_labels[batch.padded["attention_mask"].bool()] = run
    expected = theirs(**batch.padded, labels=padded_labels, sentence_order_label=orders)
    logits = ours(batch.packed, positions)
    loss = functional.cross_entropy(logits.masked_tokens, labels) + functional.cross_entropy(
        logits.sentence_order, orders
    )
    _assert_close(logits.masked_tokens, batch.real(expected.prediction_logits)[positions])
    _assert_close(logits.sentence_order, expected.sop_logits)
    _assert_close(loss, expected.loss)
    expected.loss.backward()
    loss.backward()
    their_gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    for name, theirs_name in _renamed(ours):
        gradient = dict(ours.named_parameters())[name].grad
        their_gradient = their_gradients[theirs_name]
        if "word_embeddings" in name:  # torch gives an embedding's pad row no gradient from looking it up
            assert gradient is not None and their_gradient is not None
            gradient, their_gradient = gradient[1:], their_gradient[1:]
        _assert_close(gradient, their_gradient)


@pytest.mark.parametrize("labels", [1, 2, 5])
def test_classification_logits_are_equal(
    their_config: transformers.AlbertConfig, dtype: torch.dtype, batch: Batch, tmp_path: Path, labels: int
) -> None:
    their_config.num_labels = labels
    theirs = _theirs(transformers.AlbertForSequenceClassification, their_config, dtype, tmp_path)
    opened = open_model(tmp_path, "classification", dtype=dtype)
    assert opened.loading_report.newly_initialised == ()
    with torch.inference_mode():
        _assert_close(opened.model(batch.packed), theirs(**batch.padded).logits)


def test_span_logits_are_equal(
    their_config: transformers.AlbertConfig, dtype: torch.dtype, batch: Batch, tmp_path: Path
) -> None:
    theirs = _theirs(transformers.AlbertForQuestionAnswering, their_config, dtype, tmp_path)
    opened = open_model(tmp_path, "question_answering", dtype=dtype)
    assert opened.loading_report.newly_initialised == opened.loading_report.unexpected == ()
    with torch.inference_mode():
        start, end = opened.model(batch.packed)
        expected = theirs(**batch.padded)
        _assert_close(start, batch.real(expected.start_logits))
        _assert_close(end, batch.real(expected.end_logits))


def test_a_masked_language_model_of_theirs_lacks_what_it_does_not_have(batch: Batch, tmp_path: Path) -> None:
    config = transformers.AlbertConfig(**SIZES)
    theirs = _theirs(transformers.AlbertForMaskedLM, config, torch.float32, tmp_path)
    opened = open_model(tmp_path, "pretraining")
    assert set(opened.loading_report.newly_initialised) == {
        "albert.pooler.weight",
        "albert.pooler.bias",
        "sop_classifier.classifier.weight",
        "sop_classifier.classifier.bias",
    }
    with torch.inference_mode():
        everywhere = torch.arange(sum(LENGTHS))
        masked = opened.model(batch.packed, everywhere).masked_tokens
        _assert_close(masked, batch.real(theirs(**batch.padded).logits))


def test_ours_opens_in_theirs_for_pretraining(
    our_config: AlbertConfig, dtype: torch.dtype, batch: Batch, tmp_path: Path
) -> None:
    ours = _randomised(AlbertForPreTraining(our_config), dtype)
    write_model(tmp_path, ours, None)
    theirs = _open_in_theirs(transformers.AlbertForPreTraining, tmp_path, dtype)
    bare = _open_in_theirs(transformers.AutoModel, tmp_path, dtype, heads_are_left_out=True)
    with torch.inference_mode():
        logits = ours(batch.packed, torch.arange(sum(LENGTHS)))
        expected = theirs(**batch.padded)
        _assert_close(logits.masked_tokens, batch.real(expected.prediction_logits))
        _assert_close(logits.sentence_order, expected.sop_logits)
        _assert_close(ours.albert(batch.packed), batch.real(bare(**batch.padded).last_hidden_state))


def test_ours_opens_in_theirs_for_classification(our_config: AlbertConfig, batch: Batch, tmp_path: Path) -> None:
    ours = _randomised(AlbertForSequenceClassification(our_config, 3), torch.float32)
    labels = {0: "entailment", 1: "neutral", 2: "contradiction"}
    write_model(tmp_path, ours, None, extra={"id2label": labels, "problem_type": "single_label_classification"})
    theirs = _open_in_theirs(transformers.AlbertForSequenceClassification, tmp_path, torch.float32)
    assert theirs.config.id2label == labels
    assert theirs.config.num_labels == 3
    with torch.inference_mode():
        _assert_close(ours(batch.packed), theirs(**batch.padded).logits)


def test_ours_opens_in_theirs_for_answers(our_config: AlbertConfig, batch: Batch, tmp_path: Path) -> None:
    ours = _randomised(AlbertForQuestionAnswering(our_config), torch.float32)
    write_model(tmp_path, ours, None)
    theirs = _open_in_theirs(transformers.AlbertForQuestionAnswering, tmp_path, torch.float32)
    with torch.inference_mode():
        start, end = ours(batch.packed)
        expected = theirs(**batch.padded)
        _assert_close(start, batch.real(expected.start_logits))
        _assert_close(end, batch.real(expected.end_logits))


def test_one_output_opens_as_their_multiple_choice(batch: Batch, tmp_path: Path) -> None:
    ours = _randomised(AlbertForSequenceClassification(AlbertConfig(**SIZES), 1), torch.float32)
    write_model(tmp_path, ours, None, architecture="AlbertForMultipleChoice")
    theirs = _open_in_theirs(transformers.AlbertForMultipleChoice, tmp_path, torch.float32)
    with torch.inference_mode():
        choices = {name: tensor[None] for name, tensor in batch.padded.items()}
        _assert_close(ours(batch.packed).T, theirs(**choices).logits)


def test_a_round_trip_through_theirs_keeps_every_byte(our_config: AlbertConfig, tmp_path: Path) -> None:
    ours = _randomised(AlbertForPreTraining(our_config), torch.float32)
    first, second, third = (tmp_path / name for name in ("ours", "theirs", "ours-again"))
    first.mkdir()
    third.mkdir()
    write_model(first, ours, None, extra={"sentence_objective": "sop", "data": ["a corpus"]})
    _open_in_theirs(transformers.AlbertForPreTraining, first, torch.float32).save_pretrained(second)
    opened = open_model(second, "pretraining")
    assert opened.config == our_config
    assert opened.extra["sentence_objective"] == "sop"
    assert opened.extra["data"] == ["a corpus"]
    write_model(third, opened.model, None, extra=opened.extra)
    files = [load_file(folder / "model.safetensors") for folder in (first, second, third)]
    assert files[0].keys() == files[1].keys() == files[2].keys()
    for name, tensor in files[0].items():
        assert torch.equal(tensor, files[1][name])
        assert torch.equal(tensor, files[2][name])
    assert read_config(first) == (
        our_config,
        read_config(third)[1] | {"architectures": ["AlbertForPreTraining"]},
    )
    for name, tensor in ours.state_dict().items():
        assert torch.equal(tensor, opened.model.state_dict()[name])


def test_their_configuration_reads_back_what_ours_wrote(our_config: AlbertConfig, tmp_path: Path) -> None:
    write_model(tmp_path, AlbertForPreTraining(our_config), None)
    theirs = transformers.AlbertConfig.from_pretrained(tmp_path)
    for field in SIZES.keys() | {"hidden_act", "layer_norm_eps", "initializer_range", "inner_group_num"}:
        assert getattr(theirs, field) == getattr(our_config, field)
    groups = our_config.num_hidden_groups if our_config.sharing == "all" else our_config.num_hidden_layers
    assert theirs.num_hidden_groups == groups
    assert (theirs.pad_token_id, theirs.bos_token_id, theirs.eos_token_id) == (0, 2, 3)


def _theirs(
    kind: type[transformers.PreTrainedModel],
    config: transformers.AlbertConfig,
    dtype: torch.dtype,
    directory: Path,
) -> transformers.PreTrainedModel:
    """A model of theirs with random values everywhere, saved."""
    model = _randomised(kind(config), dtype)
    model.save_pretrained(directory)
    return model


def _open_in_theirs(
    kind: type, directory: Path, dtype: torch.dtype, heads_are_left_out: bool = False
) -> transformers.PreTrainedModel:
    model, report = kind.from_pretrained(directory, dtype=dtype, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["mismatched_keys"]
    assert heads_are_left_out or not report["unexpected_keys"]
    return model.eval()


def _randomised(model: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """Values large enough that every activation, bias and normalisation matters."""
    model.to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.3 if parameter.ndim == 1 else 0.2
            centre = 1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0
            parameter.normal_(centre, scale)
    return model


def _renamed(ours: torch.nn.Module) -> list[tuple[str, str]]:
    """Our parameter's name and theirs, found by what `to_transformers` does to marked tensors."""
    names = [name for name, _ in ours.named_parameters()]
    marked = {name: torch.tensor([float(index)]) for index, name in enumerate(names)}
    written = to_transformers(marked, ours.config)
    return [(names[int(tensor)], theirs) for theirs, tensor in written.items()]


def _assert_close(found: torch.Tensor | None, expected: torch.Tensor | None) -> None:
    assert found is not None and expected is not None
    found, expected = found.detach(), expected.detach()
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    scale = max(1.0, float(expected.abs().max()))
    assert float((found - expected).abs().max()) <= TOLERANCE[found.dtype] * scale
