"""Of a sound file with the wrong tensors in it, nothing is converted."""

import shutil

import pytest
import torch

from albert.checkpoints.tensor_bundle import TensorBundle
from albert.checkpoints.tensorflow import read_tensorflow_checkpoint
from albert.runtime.errors import DamagedData, InvalidConfiguration

LAYER = "bert/encoder/transformer/group_0/inner_group_0"
KERNEL = f"{LAYER}/attention_1/self/query/kernel"


@pytest.fixture
def changed(writer, checkpoints, tmp_path):
    """A copy of a checkpoint in which some variables are others; None removes one."""

    def make(case: str, **variables: torch.Tensor | None):
        bundle = TensorBundle(checkpoints / case / "model.ckpt-best")
        tensors = {name: bundle.read(name) for name in bundle.entries} | variables
        shutil.copy(checkpoints / case / "albert_config.json", tmp_path)
        writer.write_bundle(tmp_path / "model", {name: t for name, t in tensors.items() if t is not None})
        return tmp_path

    return make


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_numbers_that_are_not_finite_are_refused(changed, number, dtype):
    tensor = torch.ones(16, 16, dtype=dtype)
    tensor[3, 5] = number
    with pytest.raises(DamagedData, match=f"{KERNEL} holds numbers that are not finite"):
        read_tensorflow_checkpoint(changed("shared", **{KERNEL: tensor}))


def test_whole_numbers_are_refused(changed):
    with pytest.raises(DamagedData, match=r"query/kernel holds torch.int32"):
        read_tensorflow_checkpoint(changed("shared", **{KERNEL: torch.ones(16, 16, dtype=torch.int32)}))


@pytest.mark.parametrize(
    ("case", "lost", "architecture"),
    [
        ("shared", KERNEL, "encoder"),
        ("shared", "bert/embeddings/LayerNorm/beta", "encoder"),
        ("shared", "bert/pooler/dense/bias", "AlbertForPreTraining"),
        ("shared", "cls/predictions/transform/dense/bias", "AlbertForPreTraining"),
        ("shared", "cls/seq_relationship/output_bias", "AlbertForPreTraining"),
        ("classifier", "output_weights", "AlbertForSequenceClassification"),
        ("squad_v1", "cls/squad/output_bias", "AlbertForQuestionAnswering"),
    ],
)
def test_a_part_of_a_model_is_refused(changed, case, lost, architecture):
    with pytest.raises(DamagedData, match=rf"lacks 1 .*{architecture}"):
        read_tensorflow_checkpoint(changed(case, **{lost: None}))


@pytest.mark.parametrize("lost", ["bert/embeddings/word_embeddings", f"{LAYER}/ffn_1/intermediate/dense/kernel"])
def test_a_model_that_does_not_show_its_sizes_is_refused(changed, lost):
    with pytest.raises(DamagedData, match="lacks albert"):
        read_tensorflow_checkpoint(changed("shared", **{lost: None}))


@pytest.mark.parametrize(
    ("variable", "shape"),
    [
        (KERNEL, (16, 17)),
        (KERNEL, (16, 4, 4)),
        ("bert/pooler/dense/kernel", (256,)),
        ("bert/embeddings/LayerNorm/gamma", (9,)),
        ("cls/predictions/output_bias", (61,)),
        ("cls/seq_relationship/output_weights", (3, 16)),
    ],
)
def test_another_shape_is_refused(changed, variable, shape):
    with pytest.raises(InvalidConfiguration, match="has shape .*, the model asks for"):
        read_tensorflow_checkpoint(changed("shared", **{variable: torch.ones(shape)}))


def test_embeddings_that_are_no_matrix_are_refused(changed):
    with pytest.raises(DamagedData, match=r"has shape \(480,\), a matrix is expected"):
        read_tensorflow_checkpoint(changed("shared", **{"bert/embeddings/word_embeddings": torch.ones(480)}))


def test_a_head_without_its_half_is_said(changed):
    """Sentence order without masked tokens is no class of transformers'; a masked language model alone is one."""
    halves = {
        "cls/predictions/output_bias": None,
        "cls/predictions/transform/dense/kernel": None,
        "cls/predictions/transform/dense/bias": None,
        "cls/predictions/transform/LayerNorm/gamma": None,
        "cls/predictions/transform/LayerNorm/beta": None,
    }
    found = read_tensorflow_checkpoint(changed("shared", **halves))
    assert found.architecture == "AlbertModel"
    assert found.unexpected == {
        f"cls/seq_relationship/output_{part}": "has no place in AlbertModel" for part in ("bias", "weights")
    }


def test_tensors_keep_their_type_or_take_the_one_that_is_asked_for(changed):
    directory = changed("shared", **{KERNEL: torch.ones(16, 16, dtype=torch.float64)})
    name = "albert.encoder.albert_layer_groups.0.albert_layers.0.attention.query.weight"
    assert read_tensorflow_checkpoint(directory).tensors[name].dtype == torch.float64
    cast = read_tensorflow_checkpoint(directory, dtype=torch.bfloat16).tensors
    assert {tensor.dtype for tensor in cast.values()} == {torch.bfloat16}


def test_an_encoder_without_a_pooler_is_one(changed):
    lost = {"bert/pooler/dense/kernel": None, "bert/pooler/dense/bias": None}
    assert read_tensorflow_checkpoint(changed("squad_v2", **lost)).architecture == "AlbertModel"
