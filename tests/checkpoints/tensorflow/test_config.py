"""`albert_config.json` must say what the tensors show, and somebody must say what they do not show."""

import json

import pytest

from albert.checkpoints.tensorflow import read_tensorflow_checkpoint
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.json_files import to_json


@pytest.fixture
def checkpoint(checkpoints, tmp_path):
    """A copy of `groups` whose configuration may be changed; None removes a key."""

    def change(**keys: object):
        source = checkpoints / "groups"
        for file in source.glob("model*"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        content = json.loads((source / "albert_config.json").read_text()) | keys
        said = {key: value for key, value in content.items() if value is not None}
        (tmp_path / "albert_config.json").write_text(json.dumps(said))
        return tmp_path

    return change


def test_the_configuration_is_googles(checkpoint):
    found = read_tensorflow_checkpoint(checkpoint(hidden_dropout_prob=0, initializer_range=0.01))
    assert found.config.hidden_act == "gelu_new"
    values = to_json(found.config)
    expected = {
        "vocab_size": 40,
        "embedding_size": 6,
        "hidden_size": 8,
        "num_hidden_layers": 3,
        "num_hidden_groups": 3,
        "inner_group_num": 2,
        "num_attention_heads": 2,
        "intermediate_size": 12,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.1,
        "initializer_range": 0.01,
        "max_position_embeddings": 16,
    }
    assert {key: values[key] for key in expected} == expected


def test_ignored_keys_are_said(checkpoint):
    found = read_tensorflow_checkpoint(checkpoint(layers_to_keep=[1, 2], net_structure_type=7))
    assert {"layers_to_keep", "net_structure_type", "gap_size"} <= set(found.ignored_keys)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 16),
        ("vocab_size", 10**12),
        ("embedding_size", 128),
        ("intermediate_size", "12"),
        ("max_position_embeddings", 512),
        ("type_vocab_size", 16),
        ("num_hidden_groups", 1),
        ("inner_group_num", 1),
    ],
)
def test_a_configuration_that_contradicts_its_tensors_is_refused(checkpoint, key, value):
    with pytest.raises(InvalidConfiguration, match=f"albert_config.json: {key}: is {value!r}, the tensors of .* have"):
        read_tensorflow_checkpoint(checkpoint(**{key: value}))


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"hidden_act": "linear"}, "hidden_act: is 'linear'; known: gelu"),
        ({"hidden_act": ["gelu"]}, "hidden_act: is"),
        ({"num_attention_heads": 3}, "3 heads do not divide"),
        ({"num_hidden_layers": 10**9 * 3}, "at most 1024 are read"),
        ({"num_hidden_layers": 4}, "3 groups do not divide 4 layers"),
        ({"num_hidden_layers": "3"}, "int is expected"),
        ({"hidden_dropout_prob": 2}, "hidden_dropout_prob"),
    ],
)
def test_what_no_model_is_is_refused(checkpoint, keys, why):
    with pytest.raises(InvalidConfiguration, match=why):
        read_tensorflow_checkpoint(checkpoint(**keys))


def test_what_the_tensors_do_not_show_must_be_said(checkpoint):
    with pytest.raises(MissingInput, match="says nothing about num_attention_heads, .*say it: --num-attention-heads"):
        read_tensorflow_checkpoint(checkpoint(num_attention_heads=None))
    found = read_tensorflow_checkpoint(checkpoint(num_attention_heads=None), overrides={"num_attention_heads": 4})
    assert found.config.num_attention_heads == 4


def test_without_a_file_three_things_must_be_said(checkpoint):
    directory = checkpoint()
    (directory / "albert_config.json").unlink()
    with pytest.raises(MissingInput, match="--num-hidden-layers --num-attention-heads --hidden-act"):
        read_tensorflow_checkpoint(directory)
    said = {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_act": "gelu_new"}
    assert read_tensorflow_checkpoint(directory, overrides=said).config.intermediate_size == 12


def test_what_is_said_goes_before_the_file(checkpoint):
    said = {"hidden_act": "relu", "num_attention_heads": 1}
    config = read_tensorflow_checkpoint(checkpoint(hidden_act="linear"), overrides=said).config
    assert (config.hidden_act, config.num_attention_heads) == ("relu", 1)


def test_a_configuration_elsewhere_is_taken(checkpoint, tmp_path):
    directory = checkpoint()
    elsewhere = directory / "elsewhere.json"
    (directory / "albert_config.json").rename(elsewhere)
    assert read_tensorflow_checkpoint(directory, config_file=elsewhere).config.num_hidden_groups == 3
    with pytest.raises(MissingInput, match=r"nowhere.json"):
        read_tensorflow_checkpoint(directory, config_file=directory / "nowhere.json")
    elsewhere.write_text("{")
    with pytest.raises(DamagedData, match="is not JSON"):
        read_tensorflow_checkpoint(directory, config_file=elsewhere)


def test_groups_that_the_references_rounding_moves_are_refused(writer, checkpoints, tmp_path):
    """44 layers in 22 groups: for the reference int(14 / 44 * 22) is 6."""
    assert [int(layer / 44 * 22) for layer in range(44)] != [layer * 22 // 44 for layer in range(44)]
    from_groups(writer, checkpoints, tmp_path, 22)
    (tmp_path / "albert_config.json").write_text(
        json.dumps({"num_hidden_layers": 44, "num_attention_heads": 2, "hidden_act": "gelu"})
    )
    with pytest.raises(InvalidConfiguration, match="rounding puts layer"):
        read_tensorflow_checkpoint(tmp_path)


def test_a_group_that_is_missing_is_refused(writer, checkpoints, tmp_path):
    from_groups(writer, checkpoints, tmp_path, 4, leave_out="group_2/")
    with pytest.raises(DamagedData, match="3 layers in 4 groups of up to 1: some are missing"):
        read_tensorflow_checkpoint(tmp_path)


def from_groups(writer, checkpoints, directory, groups: int, leave_out: str = "no such") -> None:
    """The shared model with its one group written out several times."""
    from albert.checkpoints.tensor_bundle import TensorBundle

    bundle = TensorBundle(checkpoints / "classifier" / "model.ckpt-best")
    held = {
        name: bundle.read(name) for name in bundle.entries if not name.endswith(("adam_m", "adam_v", "global_step"))
    }
    copies = {
        name.replace("group_0/inner", f"group_{group}/inner"): tensor
        for name, tensor in held.items()
        for group in range(groups)
    }
    writer.write_bundle(directory / "model", {name: t for name, t in copies.items() if leave_out not in name})
