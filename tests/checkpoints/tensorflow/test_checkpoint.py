"""TensorFlow checkpoints: files, configuration, names and outputs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from albert.checkpoints.convert import ConversionOptions, convert, read_tensorflow
from albert.checkpoints.huggingface import from_transformers
from albert.checkpoints.loading import architecture_of, require_complete
from albert.checkpoints.model_directory import open_model
from albert.checkpoints.tensor_bundle import TensorBundle
from albert.checkpoints.tensorflow import (
    config_of,
    find_checkpoint,
    holds_tensorflow,
    map_variables,
    read_albert_config,
)
from albert.inference.int8 import quantize_directory
from albert.model.config import ALBERT_BASE
from albert.model.cost import count_parameters
from albert.model.packing import PackedSequences, pack
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.json_files import to_json

# --------------------------------------------------------------------------------------------------------------------
# Of a sound file with the wrong tensors in it, nothing is converted.


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


WORDS, GAMMA = "bert/embeddings/word_embeddings", "bert/embeddings/LayerNorm/gamma"
ANOTHER_SHAPE = "has shape .*, the model needs"


@pytest.mark.parametrize(
    ("case", "variable", "value", "why"),
    [
        *(
            ("shared", KERNEL, (torch.eye(16) * number).to(dtype), f"{KERNEL} holds numbers that are not finite")
            for number in (float("nan"), float("inf"), -float("inf"))
            for dtype in (torch.float32, torch.bfloat16)
        ),
        ("shared", KERNEL, torch.ones(16, 16, dtype=torch.int32), "query/kernel holds torch.int32"),
        # a part of a model
        ("shared", KERNEL, None, "lacks 1 .*encoder"),
        ("shared", "bert/embeddings/LayerNorm/beta", None, "lacks 1 .*encoder"),
        ("shared", "bert/pooler/dense/bias", None, "lacks 1 .*AlbertForPreTraining"),
        ("shared", "cls/predictions/transform/dense/bias", None, "lacks 1 .*AlbertForPreTraining"),
        ("shared", "cls/seq_relationship/output_bias", None, "lacks 1 .*AlbertForPreTraining"),
        ("classifier", "output_weights", None, "lacks 1 .*AlbertForSequenceClassification"),
        ("squad_v1", "cls/squad/output_bias", None, "lacks 1 .*AlbertForQuestionAnswering"),
        # sizes that nothing shows
        ("shared", WORDS, None, "lacks albert"),
        ("shared", f"{LAYER}/ffn_1/intermediate/dense/kernel", None, "lacks albert"),
        ("shared", WORDS, torch.ones(480), r"has shape \(480,\), a matrix is expected"),
        # another shape
        ("shared", KERNEL, torch.ones(16, 17), ANOTHER_SHAPE),
        ("shared", KERNEL, torch.ones(16, 4, 4), ANOTHER_SHAPE),
        ("shared", "bert/pooler/dense/kernel", torch.ones(256), ANOTHER_SHAPE),
        ("shared", GAMMA, torch.ones(9), ANOTHER_SHAPE),
        ("shared", "cls/predictions/output_bias", torch.ones(61), ANOTHER_SHAPE),
        ("shared", "cls/seq_relationship/output_weights", torch.ones(3, 16), ANOTHER_SHAPE),
    ],
)
def test_wrong_or_missing_variables_are_refused(changed, case, variable, value, why):
    with pytest.raises(InvalidConfiguration if why is ANOTHER_SHAPE else DamagedData, match=why):
        read_tensorflow(changed(case, **{variable: value}), ConversionOptions())


def test_a_head_without_its_half_is_said(changed):
    """Sentence order without masked tokens is no class of transformers'; a masked language model alone is one."""
    halves = {
        "cls/predictions/output_bias": None,
        "cls/predictions/transform/dense/kernel": None,
        "cls/predictions/transform/dense/bias": None,
        "cls/predictions/transform/LayerNorm/gamma": None,
        "cls/predictions/transform/LayerNorm/beta": None,
    }
    found = read_tensorflow(changed("shared", **halves), ConversionOptions())
    assert found.architecture == "AlbertModel"
    assert found.unexpected == {
        f"cls/seq_relationship/output_{part}": "is not part of AlbertModel" for part in ("bias", "weights")
    }
    without_pooler = {"bert/pooler/dense/kernel": None, "bert/pooler/dense/bias": None}
    assert read_tensorflow(changed("squad_v2", **without_pooler), ConversionOptions()).architecture == "AlbertModel"


def test_tensors_keep_their_type_or_take_the_one_that_is_asked_for(changed):
    directory = changed("shared", **{KERNEL: torch.ones(16, 16, dtype=torch.float64)})
    name = "albert.encoder.attentions.0.query.weight"
    assert read_tensorflow(directory, ConversionOptions()).tensors[name].dtype == torch.float64
    cast = read_tensorflow(directory, ConversionOptions(dtype=torch.bfloat16)).tensors
    assert {tensor.dtype for tensor in cast.values()} == {torch.bfloat16}


# --------------------------------------------------------------------------------------------------------------------
# `albert_config.json` must say what the tensors show, and somebody must say what they do not show.


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
    found = read_tensorflow(checkpoint(hidden_dropout_prob=0, initializer_range=0.01), ConversionOptions())
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
    found = read_tensorflow(checkpoint(layers_to_keep=[1, 2], net_structure_type=7), ConversionOptions())
    assert "ignores too: down_scale_factor, gap_size, layers_to_keep, net_structure_type" in found.notes[0]


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
        read_tensorflow(checkpoint(**{key: value}), ConversionOptions())


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"hidden_act": "linear"}, "hidden_act: is 'linear'; known: gelu"),
        ({"hidden_act": ["gelu"]}, "hidden_act: is"),
        ({"num_attention_heads": 3}, "3 heads do not divide"),
        ({"num_hidden_layers": 10**9 * 3}, "the limit is 1024"),
        ({"num_hidden_layers": 4}, "3 groups do not divide 4 layers"),
        ({"num_hidden_layers": "3"}, "int is expected"),
        ({"hidden_dropout_prob": 2}, "hidden_dropout_prob"),
    ],
)
def test_what_no_model_is_is_refused(checkpoint, keys, why):
    with pytest.raises(InvalidConfiguration, match=why):
        read_tensorflow(checkpoint(**keys), ConversionOptions())


def test_what_the_tensors_do_not_show_must_be_said(checkpoint):
    with pytest.raises(MissingInput, match="lacks num_attention_heads, .*add --num-attention-heads"):
        read_tensorflow(checkpoint(num_attention_heads=None), ConversionOptions())
    found = read_tensorflow(
        checkpoint(num_attention_heads=None), ConversionOptions(overrides={"num_attention_heads": 4})
    )
    assert found.config.num_attention_heads == 4


def test_without_a_file_three_things_must_be_said(checkpoint):
    directory = checkpoint()
    (directory / "albert_config.json").unlink()
    with pytest.raises(MissingInput, match="--num-hidden-layers --num-attention-heads --hidden-act"):
        read_tensorflow(directory, ConversionOptions())
    said = {"num_hidden_layers": 3, "num_attention_heads": 2, "hidden_act": "gelu_new"}
    assert read_tensorflow(directory, ConversionOptions(overrides=said)).config.intermediate_size == 12


def test_what_is_said_goes_before_the_file(checkpoint):
    said = {"hidden_act": "relu", "num_attention_heads": 1}
    config = read_tensorflow(checkpoint(hidden_act="linear"), ConversionOptions(overrides=said)).config
    assert (config.hidden_act, config.num_attention_heads) == ("relu", 1)


def test_a_configuration_elsewhere_is_taken(checkpoint, tmp_path):
    directory = checkpoint()
    elsewhere = directory / "elsewhere.json"
    (directory / "albert_config.json").rename(elsewhere)
    assert read_tensorflow(directory, ConversionOptions(config_file=elsewhere)).config.num_hidden_groups == 3
    with pytest.raises(MissingInput, match=r"nowhere.json"):
        read_tensorflow(directory, ConversionOptions(config_file=directory / "nowhere.json"))
    elsewhere.write_text("{")
    with pytest.raises(DamagedData, match="is not JSON"):
        read_tensorflow(directory, ConversionOptions(config_file=elsewhere))


def test_groups_that_the_references_rounding_moves_are_refused(writer, checkpoints, tmp_path):
    """44 layers in 22 groups: for the reference int(14 / 44 * 22) is 6."""
    assert [int(layer / 44 * 22) for layer in range(44)] != [layer * 22 // 44 for layer in range(44)]
    from_groups(writer, checkpoints, tmp_path, 22)
    (tmp_path / "albert_config.json").write_text(
        json.dumps({"num_hidden_layers": 44, "num_attention_heads": 2, "hidden_act": "gelu"})
    )
    with pytest.raises(InvalidConfiguration, match="rounding puts layer"):
        read_tensorflow(tmp_path, ConversionOptions())


def test_a_group_that_is_missing_is_refused(writer, checkpoints, tmp_path):
    from_groups(writer, checkpoints, tmp_path, 4, leave_out="group_2/")
    with pytest.raises(DamagedData, match="3 layers in 4 groups of up to 1: some are missing"):
        read_tensorflow(tmp_path, ConversionOptions())


def from_groups(writer, checkpoints, directory, groups: int, leave_out: str = "no such") -> None:
    """The shared model with its one group written out several times."""
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


# --------------------------------------------------------------------------------------------------------------------
# A checkpoint is found however people have it; several without a choice, and other formats, are refused by name.


DATA = ".data-00000-of-00001"


@pytest.fixture
def place(tmp_path):
    """Make empty files, by names; what they hold does not matter here."""

    def make(*names: str) -> Path:
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(b"")
        return tmp_path

    return make


RELEASE = ("model.ckpt-best.index", "model.ckpt-best.meta", f"model.ckpt-best{DATA}")
OF_A_RUN = ("model.ckpt-7.index", "model.ckpt-7.meta", f"model.ckpt-7{DATA}", "model.ckpt-9.index")
HUB = ("saved_model.pb", "variables/variables.index", "assets/albert_config.json", "assets/30k-clean.model")


@pytest.mark.parametrize(
    ("names", "asked", "prefix", "config", "tokenizer"),
    [
        (
            (*RELEASE, "albert_config.json", "30k-clean.model", "30k-clean.vocab", "._model.ckpt-best.index"),
            [""],
            "model.ckpt-best",
            "albert_config.json",
            "30k-clean.model",
        ),
        (
            ("base/model.ckpt-best.index", "base/albert_config.json", "base/vocab_chinese.txt"),
            [""],
            "base/model.ckpt-best",
            "base/albert_config.json",
            "base/vocab_chinese.txt",
        ),
        (HUB, ["", "variables", "variables/variables"], "variables/variables", HUB[2], HUB[3]),
        (OF_A_RUN, ["model.ckpt-7", *OF_A_RUN[:3]], "model.ckpt-7", None, None),
    ],
    ids=["release", "directory around it", "TF-Hub", "one of several"],
)
def test_a_checkpoint_is_found_however_people_have_it(place, names, asked, prefix, config, tokenizer):
    here = place(*names)
    for name in asked:
        found = find_checkpoint(here / name)
        assert found.prefix == here / prefix
        assert (found.config, found.tokenizer()) == (config and here / config, tokenizer and here / tokenizer)


def test_the_newest_of_a_run_is_the_one_that_the_state_file_names(place):
    here = place("model.ckpt-7.index", "model.ckpt-900.index", "model.ckpt-80.index")
    for said in (
        "model.ckpt-80",
        "/another/machine/run/model.ckpt-80",
        "../../model.ckpt-80",
        "C:\\run\\model.ckpt-80",
    ):
        state = f'model_checkpoint_path: "{said}"\nall_model_checkpoint_paths: "model.ckpt-7"\n'
        (here / "checkpoint").write_text(state)
        found = find_checkpoint(here)
        assert found.prefix == here / "model.ckpt-80" and found.steps == 3


@pytest.mark.parametrize("state", [None, "", 'model_checkpoint_path: "model.ckpt-lost"', "\xff\xfe"])
def test_several_without_a_choice_are_listed(place, state):
    here = place("model.ckpt-7.index", "model.ckpt-9.index")
    if state is not None:
        (here / "checkpoint").write_text(state, encoding="latin-1")
    with pytest.raises(MissingInput, match=r"holds 2 checkpoints: model.ckpt-7, model.ckpt-9; name one of them"):
        find_checkpoint(here)


def test_several_configurations_or_vocabularies_are_listed(place):
    here = place("model.index", "albert_config_a.json", "albert_config_b.json")
    with pytest.raises(MissingInput, match="2 configurations: albert_config_a.json, .*choose with --config"):
        find_checkpoint(here)
    assert find_checkpoint(here, config=here / "albert_config_a.json").config == here / "albert_config_a.json"
    place("a.model", "b.model")
    with pytest.raises(MissingInput, match="2 vocabularies: a.model, b.model; choose with --tokenizer"):
        find_checkpoint(here, config=here / "albert_config_a.json").tokenizer()


def test_nothing_there(place):
    here = place("readme.txt")
    assert not holds_tensorflow(here) and not holds_tensorflow(here / "nowhere")
    with pytest.raises(MissingInput, match="holds no TensorFlow checkpoint"):
        find_checkpoint(here)
    with pytest.raises(MissingInput, match=r"nowhere.index: no such file"):
        find_checkpoint(here / "nowhere")
    with pytest.raises(MissingInput, match="is not part of a TensorFlow checkpoint"):
        find_checkpoint(here / "readme.txt")


def test_keras_files_are_recognised(place):
    here = place("model.h5")
    (here / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n and more")
    for path in (here, here / "model.h5"):
        with pytest.raises(DamagedData, match="HDF5 file of Keras"):
            find_checkpoint(path)


# --------------------------------------------------------------------------------------------------------------------
# Every variable has one place, is dropped as an optimiser's, or is said to have none; other models are named.


ENCODER = ["bert/embeddings/word_embeddings", "bert/pooler/dense/kernel"]


def test_what_an_optimiser_keeps_is_dropped_and_counted():
    slots = [
        f"{name}/{slot}" for name in ENCODER for slot in ("adam_m", "adam_v", "lamb_m", "lamb_v", "Adam", "Adam_1")
    ]
    slots += ["bert/pooler/dense/kernel/AdamWeightDecayOptimizer", "global_step", "beta1_power", "loss_scale"]
    found = map_variables([*ENCODER, *slots], "model")
    assert found.dropped == tuple(slots) and list(found.mapped) == ENCODER and not found.unexpected


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([*ENCODER, "bert/encoder/layer_shared/attention/self/key/kernel"], "brightmart.*albert_.*_zh"),
        ([*ENCODER, "bert/embeddings/word_embeddings_2"], "brightmart"),
        ([*ENCODER, "bert/encoder/layer_0/attention/self/query/kernel"], "holds a BERT"),
        ([*ENCODER, "model/layer-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"], "Keras objects"),
        ([f"w_{number}" for number in range(9)], "holds no ALBERT: its variables are w_0, w_1, w_2, ..."),
        (["global_step"], "holds no variables"),
        ([*ENCODER, "module/bert/pooler/dense/kernel"], "albert.pooler.weight twice: as bert/.* and as module/bert"),
    ],
)
def test_other_models_are_refused_by_name(names, why):
    with pytest.raises(DamagedData, match=why):
        map_variables(names, "model")


def test_the_release_of_albert_base_is_a_whole_masked_language_model(shared):
    """TF-Hub's release has no sentence-order head; all of its 30 variables have a place in our ALBERT-base."""
    folder = shared / "data" / "checkpoints" / "tfhub_albert_en_base_3"
    bundle = TensorBundle(folder / "variables")
    found = map_variables(bundle.entries, "release")
    assert len(found.mapped) == 30 and not found.unexpected and not found.dropped
    shapes = {
        place.name: bundle.entries[variable].shape[:: -1 if place.transposed else 1]
        for variable, place in found.mapped.items()
    }
    file = folder / "albert_config.json"
    said, ignored = read_albert_config(file)
    assert ignored == ("down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks")
    config = config_of(said, shapes, {}, file, "release")
    assert config == ALBERT_BASE
    architecture = architecture_of(shapes)
    assert architecture == "AlbertForMaskedLM"
    described = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    require_complete(from_transformers(described, config, "release"), architecture, config, "release")
    counted = count_parameters(config)
    expected = counted.model + counted.masked_language_model_head
    assert sum(tensor.numel() for tensor in described.values()) == expected


# --------------------------------------------------------------------------------------------------------------------
# What TensorFlow's graph computes, its conversion computes: every layer, the pooled sequence, every head, to 1e-5.


TOLERANCE = 1e-5
CASES = ("shared", "groups", "unfactorised", "classifier", "hub_classifier", "squad_v1", "squad_v2")
PRETRAINED = ("shared", "groups", "unfactorised")


class Recorded:
    """Inputs and outputs of the source graph; the rows of real tokens are ours."""

    def __init__(self, directory: Path) -> None:
        with np.load(directory / "expected.npz") as content:
            self.values = {name: torch.from_numpy(content[name]) for name in content.files}
        self.real = self.values["input_mask"].bool()

    def packed(self) -> PackedSequences:
        ids, types = (self.values[name].numpy() for name in ("input_ids", "segment_ids"))
        rows = self.real.numpy()
        return pack([ids[n][row] for n, row in enumerate(rows)], [types[n][row] for n, row in enumerate(rows)])

    def masked_positions(self) -> torch.Tensor:
        """In the run of tokens, row by row."""
        first = torch.cat([torch.zeros(1, dtype=torch.long), self.real.sum(1).cumsum(0)[:-1]])
        return (self.values["masked_positions"] + first[:, None]).reshape(-1)


@pytest.fixture
def converted(checkpoints, tmp_path):
    def make(case: str) -> tuple[Path, Recorded]:
        output = tmp_path / case
        convert(str(checkpoints / case), output, ConversionOptions(without_tokenizer=True))
        return output, Recorded(checkpoints / case)

    return make


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.shape == expected.shape and float((found - expected).abs().max()) <= TOLERANCE


@pytest.mark.parametrize("case", CASES)
def test_every_layer_and_the_pooled_sequence(converted, case):
    directory, recorded = converted(case)
    model, packed = open_model(directory, "encoder").model, recorded.packed()
    with torch.inference_mode():
        states = model.encoder.hidden_states(model.embeddings(packed), packed)
        layers = recorded.values["layers"]
        assert len(states) - 1 == len(layers)
        for state, layer in zip(states[1:], layers, strict=True):
            assert close(state, layer[recorded.real])
        assert close(states[-1], recorded.values["sequence_output"][recorded.real])
        if case != "squad_v1":  # whose class has no pooler
            assert close(model.pool(states[-1], packed), recorded.values["pooled_output"])


@pytest.mark.parametrize("case", PRETRAINED)
def test_the_heads_of_pretraining(converted, case):
    directory, recorded = converted(case)
    opened = open_model(directory, "pretraining")
    assert not opened.loading_report.newly_initialised and not opened.loading_report.unexpected
    with torch.inference_mode():
        logits = opened.model(recorded.packed(), recorded.masked_positions())
    assert close(logits.masked_tokens.log_softmax(-1), recorded.values["masked_token_log_probs"])
    assert close(logits.sentence_order.log_softmax(-1), recorded.values["sentence_order_log_probs"])


@pytest.mark.parametrize(
    ("case", "kind"),
    [("classifier", "classification"), ("hub_classifier", "classification"), ("squad_v1", "question_answering")],
)
def test_the_head_of_a_task(converted, case, kind):
    directory, recorded = converted(case)
    with torch.inference_mode():
        found = open_model(directory, kind).model(recorded.packed())
    if kind == "classification":
        assert close(found, recorded.values["logits"])
        return
    for logits, name in zip(found, ("start_logits", "end_logits"), strict=True):
        assert close(logits, recorded.values[name][recorded.real])


@pytest.mark.parametrize("case", PRETRAINED)
def test_transformers_computes_it_too(converted, case):
    """From the same directory; but for the last layer norm of its masked language model, whose epsilon is 1e-5."""
    directory, recorded = converted(case)
    model, report = transformers.AlbertForPreTraining.from_pretrained(directory, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    with torch.inference_mode():
        outputs = model.eval()(
            input_ids=recorded.values["input_ids"].long(),
            token_type_ids=recorded.values["segment_ids"].long(),
            attention_mask=recorded.values["input_mask"].long(),
            output_hidden_states=True,
        )
    assert close(outputs.hidden_states[-1][recorded.real], recorded.values["sequence_output"][recorded.real])
    assert close(outputs.sop_logits.log_softmax(-1), recorded.values["sentence_order_log_probs"])
    rows = torch.arange(2)[:, None]
    masked = outputs.prediction_logits[rows, recorded.values["masked_positions"].long()].flatten(0, 1)
    difference = (masked.log_softmax(-1) - recorded.values["masked_token_log_probs"]).abs().max()
    assert float(difference) <= 1e-3


def test_a_converted_model_without_a_projection_is_quantised(writer, checkpoints, tmp_path):
    """Four times as wide as the recorded one, whose matrices are too small to be stored as integers."""
    source, wide = checkpoints / "unfactorised", tmp_path / "wide"
    wide.mkdir()
    config = json.loads((source / "albert_config.json").read_text())
    config |= {"embedding_size": 32, "hidden_size": 32, "intermediate_size": 48}
    (wide / "albert_config.json").write_text(json.dumps(config))
    bundle, widths = TensorBundle(source / "model.ckpt-best"), {8: 32, 12: 48}
    shapes = {name: bundle.read(name).shape for name in bundle.entries}
    tensors = {name: torch.randn([widths.get(size, size) for size in shape]) * 0.3 for name, shape in shapes.items()}
    writer.write_bundle(wide / "model", tensors)
    convert(str(wide), tmp_path / "converted", ConversionOptions(without_tokenizer=True))
    quantize_directory(tmp_path / "converted", tmp_path / "int8")
    packed = pack([np.arange(5, 17), np.arange(20, 29)], [np.zeros(12, int), np.ones(9, int)])
    before, after = (open_model(tmp_path / name, "pretraining").model for name in ("converted", "int8"))
    assert not after.config.projects_embeddings
    with torch.inference_mode():
        expected, found = (model(packed, torch.arange(21)) for model in (before, after))
    for one, other in zip(found, expected, strict=True):
        assert 0 < float((one - other).norm() / other.norm()) < 0.1
