"""Every variable has one place, is dropped as an optimiser's, or is said to have none; other models are named."""

import pytest
import torch

from albert.checkpoints.huggingface import from_transformers
from albert.checkpoints.loading import architecture_of, require_whole
from albert.checkpoints.tensor_bundle import TensorBundle
from albert.checkpoints.tensorflow import Place, config_of, place_of, read_albert_config, sort_names
from albert.model.config import ALBERT_BASE
from albert.model.cost import count_parameters
from albert.runtime.errors import DamagedData

ENCODER = ["bert/embeddings/word_embeddings", "bert/pooler/dense/kernel"]


@pytest.mark.parametrize(
    ("variable", "name", "transposed"),
    [
        ("bert/embeddings/word_embeddings", "albert.embeddings.word_embeddings.weight", False),
        ("bert/embeddings/LayerNorm/gamma", "albert.embeddings.LayerNorm.weight", False),
        ("bert/embeddings/LayerNorm/beta", "albert.embeddings.LayerNorm.bias", False),
        ("module/bert/pooler/dense/kernel", "albert.pooler.weight", True),
        ("albert/pooler/dense/bias", "albert.pooler.bias", False),
        (
            "bert/encoder/transformer/group_2/inner_group_1/ffn_1/intermediate/output/dense/kernel",
            "albert.encoder.albert_layer_groups.2.albert_layers.1.ffn_output.weight",
            True,
        ),
        (
            "bert/encoder/transformer/group_0/inner_group_0/LayerNorm_1/gamma",
            "albert.encoder.albert_layer_groups.0.albert_layers.0.full_layer_layer_norm.weight",
            False,
        ),
        ("cls/predictions/output_bias", "predictions.bias", False),
        ("module/cls/predictions/transform/dense/kernel", "predictions.dense.weight", True),
        ("cls/seq_relationship/output_weights", "sop_classifier.classifier.weight", False),
        ("cls/squad/output_weights", "qa_outputs.weight", False),
        ("output_weights", "classifier.weight", False),
        ("output_bias", "classifier.bias", False),
    ],
)
def test_places(variable, name, transposed):
    assert place_of(variable) == Place(name, transposed)


@pytest.mark.parametrize(
    "variable",
    [
        "bert/pooler/dense/gamma",
        "bert/encoder/transformer/group_0/LayerNorm/beta",
        "bert/encoder/transformer/group_x/inner_group_0/LayerNorm/beta",
        "cls/predictions/output_weights",
        "word_embeddings",
        "",
    ],
)
def test_what_no_albert_has_has_no_place(variable):
    assert place_of(variable) is None


def test_what_an_optimiser_keeps_is_dropped_and_counted():
    slots = [
        f"{name}/{slot}" for name in ENCODER for slot in ("adam_m", "adam_v", "lamb_m", "lamb_v", "Adam", "Adam_1")
    ]
    slots += ["bert/pooler/dense/kernel/AdamWeightDecayOptimizer", "global_step", "beta1_power", "loss_scale"]
    found = sort_names([*ENCODER, *slots], "model")
    assert found.dropped == tuple(slots) and list(found.placed) == ENCODER and not found.unexpected


def test_the_joint_head_of_squad_2_is_said_to_have_no_place():
    found = sort_names([*ENCODER, "end_logits/dense_0/kernel", "bert/other"], "model")
    assert "joint head of SQuAD 2.0" in found.unexpected["end_logits/dense_0/kernel"]
    assert found.unexpected["bert/other"] == "is not a variable of ALBERT"


OTHERS = {
    "brightmart's first": (["bert/encoder/layer_shared/attention/self/key/kernel"], "brightmart.*albert_.*_zh"),
    "brightmart's embeddings": (["bert/embeddings/word_embeddings_2"], "brightmart"),
    "BERT": (["bert/encoder/layer_0/attention/self/query/kernel"], "holds a BERT"),
    "Keras objects": (["model/layer-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"], "Keras objects"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_other_models_are_refused_by_name(kind):
    names, why = OTHERS[kind]
    with pytest.raises(DamagedData, match=why):
        sort_names([*ENCODER, *names], "model")


def test_what_is_no_model_is_refused_with_what_it_holds():
    with pytest.raises(DamagedData, match="holds no ALBERT: its variables are w_0, w_1, w_2, ..."):
        sort_names([f"w_{number}" for number in range(9)], "model")
    with pytest.raises(DamagedData, match="holds no variables"):
        sort_names(["global_step"], "model")


def test_two_variables_in_one_place_are_refused():
    with pytest.raises(DamagedData, match=r"albert.pooler.weight twice: as bert/.* and as module/bert"):
        sort_names([*ENCODER, "module/bert/pooler/dense/kernel"], "model")


def test_the_release_of_albert_base_is_a_whole_masked_language_model(shared):
    """TF-Hub's release has no sentence-order head; all of its 30 variables have a place in our ALBERT-base."""
    folder = shared / "data" / "checkpoints" / "tfhub_albert_en_base_3"
    bundle = TensorBundle(folder / "variables")
    found = sort_names(bundle.entries, "release")
    assert len(found.placed) == 30 and not found.unexpected and not found.dropped
    shapes = {
        place.name: bundle.entries[variable].shape[:: -1 if place.transposed else 1]
        for variable, place in found.placed.items()
    }
    file = folder / "albert_config.json"
    said, ignored = read_albert_config(file, folder)
    assert ignored == ("down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks")
    config = config_of(said, shapes, {}, file, "release")
    assert config == ALBERT_BASE
    architecture = architecture_of(shapes)
    assert architecture == "AlbertForMaskedLM"
    described = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    require_whole(from_transformers(described, config, "release"), architecture, config, "release")
    counted = count_parameters(config)
    expected = counted.model + counted.masked_language_model_head
    assert sum(tensor.numel() for tensor in described.values()) == expected
