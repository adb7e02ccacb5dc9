"""TensorFlow checkpoints: files, configuration, names and outputs."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.refusals import refusal

from albert.checkpoints.convert import ConversionOptions, read_tensorflow
from albert.checkpoints.huggingface import architecture_of, from_transformers
from albert.checkpoints.loading import require_complete
from albert.checkpoints.model_directory import open_model
from albert.checkpoints.tensor_bundle import TensorBundle
from albert.checkpoints.tensorflow import (
    config_of,
    find_checkpoint,
    map_variables,
    read_albert_config,
)
from albert.cli.main import run
from albert.model.cost import count_parameters
from albert.model.packing import PackedSequences, pack
from albert.recipes.architecture import ALBERT_BASE
from albert.runtime.errors import DamagedData

LAYER = "bert/encoder/transformer/group_0/inner_group_0"
KERNEL = f"{LAYER}/attention_1/self/query/kernel"


@pytest.fixture
def changed(writer, checkpoints, tmp_path):
    """Copies a checkpoint with some variables replaced; None removes one."""

    def make(case: str, **variables: torch.Tensor | None):
        bundle = TensorBundle(checkpoints / case / "model.ckpt-best")
        tensors = {name: bundle.read(name) for name in bundle.entries} | variables
        shutil.copy(checkpoints / case / "albert_config.json", tmp_path)
        writer.write_bundle(tmp_path / "model", {name: t for name, t in tensors.items() if t is not None})
        return tmp_path

    return make


@pytest.fixture
def converted_json(tmp_path):
    """Convert with the command: the configuration that is written."""

    def call(source: Path, *options: object) -> dict:
        output = tmp_path / "converted"
        assert run(["convert", str(source), "--output", str(output), "--without-tokenizer", *map(str, options)]) == 0
        return json.loads((output / "config.json").read_text())

    return call


@pytest.fixture
def refuses(refused, tmp_path):
    """The command refuses a checkpoint, with an exit code and subjects, and writes nothing."""

    def call(source: Path, code: int, *subjects: object, options: tuple = ()) -> None:
        output = tmp_path / "not-written"
        refused(["convert", source, "--output", output, "--without-tokenizer", *options], code, *subjects)
        assert not output.exists()

    return call


WORDS, GAMMA = "bert/embeddings/word_embeddings", "bert/embeddings/LayerNorm/gamma"


@pytest.mark.parametrize(
    ("case", "variable", "value", "code", "subject"),
    [
        ("shared", KERNEL, torch.eye(16) * float("nan"), 65, KERNEL),
        ("shared", KERNEL, (torch.eye(16) * float("inf")).to(torch.bfloat16), 65, KERNEL),
        ("shared", KERNEL, torch.eye(16) * -float("inf"), 65, KERNEL),
        ("shared", KERNEL, torch.ones(16, 16, dtype=torch.int32), 65, "torch.int32"),
        # incomplete models
        ("shared", KERNEL, None, 65, "lacks 1"),
        ("shared", "bert/embeddings/LayerNorm/beta", None, 65, "lacks 1"),
        ("shared", "bert/pooler/dense/bias", None, 65, "AlbertForPreTraining"),
        ("shared", "cls/predictions/transform/dense/bias", None, 65, "AlbertForPreTraining"),
        ("shared", "cls/seq_relationship/output_bias", None, 65, "AlbertForPreTraining"),
        ("classifier", "output_weights", None, 65, "AlbertForSequenceClassification"),
        ("squad_v1", "cls/squad/output_bias", None, 65, "AlbertForQuestionAnswering"),
        # tensors that define sizes
        ("shared", WORDS, None, 65, "lacks albert"),
        ("shared", f"{LAYER}/ffn_1/intermediate/dense/kernel", None, 65, "lacks albert"),
        ("shared", WORDS, torch.ones(480), 65, "(480,)"),
        # other shapes
        ("shared", KERNEL, torch.ones(16, 17), 78, "shape"),
        ("shared", KERNEL, torch.ones(16, 4, 4), 78, "shape"),
        ("shared", "bert/pooler/dense/kernel", torch.ones(256), 78, "shape"),
        ("shared", GAMMA, torch.ones(9), 78, "shape"),
        ("shared", "cls/predictions/output_bias", torch.ones(61), 78, "shape"),
        ("shared", "cls/seq_relationship/output_weights", torch.ones(3, 16), 78, "shape"),
    ],
)
def test_wrong_or_missing_variables_are_refused(changed, refuses, case, variable, value, code, subject):
    refuses(changed(case, **{variable: value}), code, subject)


def test_incomplete_heads_are_reported(changed):
    """transformers has no class with sentence order alone, but one with masked tokens alone."""
    parts = ("output_bias", *(f"transform/{part}" for part in ("dense/kernel", "dense/bias")))
    parts += tuple(f"transform/LayerNorm/{part}" for part in ("gamma", "beta"))
    removed = {f"cls/predictions/{part}": None for part in parts}
    source = read_tensorflow(changed("shared", **removed), ConversionOptions())
    assert source.architecture == "AlbertModel"
    names = [f"cls/seq_relationship/output_{part}" for part in ("bias", "weights")]
    assert source.unexpected == dict.fromkeys(names, "is not part of AlbertModel")
    without_pooler = {"bert/pooler/dense/kernel": None, "bert/pooler/dense/bias": None}
    assert read_tensorflow(changed("squad_v2", **without_pooler), ConversionOptions()).architecture == "AlbertModel"


def test_tensors_keep_their_dtype_or_get_the_given_one(changed):
    directory = changed("shared", **{KERNEL: torch.ones(16, 16, dtype=torch.float64)})
    name = "albert.encoder.attentions.0.query.weight"
    assert read_tensorflow(directory, ConversionOptions()).tensors[name].dtype == torch.float64
    cast = read_tensorflow(directory, ConversionOptions(dtype=torch.bfloat16)).tensors
    assert {tensor.dtype for tensor in cast.values()} == {torch.bfloat16}


# ---- configuration -------------------------------------------------------------------------------------------------


@pytest.fixture
def checkpoint(checkpoints, tmp_path):
    """Copies `groups` with keys of its configuration replaced; None removes a key."""

    def change(**keys: object):
        source = checkpoints / "groups"
        for file in source.glob("model*"):
            (tmp_path / file.name).write_bytes(file.read_bytes())
        content = json.loads((source / "albert_config.json").read_text()) | keys
        content = {key: value for key, value in content.items() if value is not None}
        (tmp_path / "albert_config.json").write_text(json.dumps(content))
        return tmp_path

    return change


def test_configuration_is_read(checkpoint, converted_json):
    config = converted_json(checkpoint(hidden_dropout_prob=0, initializer_range=0.01))
    sizes = {"vocab_size": 40, "embedding_size": 6, "hidden_size": 8, "intermediate_size": 12}
    layers = {"num_hidden_layers": 3, "num_hidden_groups": 3, "inner_group_num": 2, "num_attention_heads": 2}
    others = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.1, "initializer_range": 0.01}
    expected = {**sizes, **layers, **others, "max_position_embeddings": 16, "hidden_act": "gelu_new"}
    assert expected.items() <= config.items()


def test_ignored_keys_are_reported(checkpoint):
    source = read_tensorflow(checkpoint(layers_to_keep=[1, 2], net_structure_type=7), ConversionOptions())
    assert "ignores too: down_scale_factor, gap_size, layers_to_keep, net_structure_type" in source.notes[0]


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
def test_configuration_that_contradicts_the_tensors_is_refused(checkpoint, refuses, key, value):
    refuses(checkpoint(**{key: value}), 78, f"albert_config.json: {key}: is {value!r}")


@pytest.mark.parametrize(
    ("keys", "subject"),
    [
        ({"hidden_act": "linear"}, "hidden_act: is 'linear'"),
        ({"hidden_act": ["gelu"]}, "hidden_act: is"),
        ({"num_attention_heads": 3}, "3 heads"),
        ({"num_hidden_layers": 10**9 * 3}, "layers"),
        ({"num_hidden_layers": 4}, "4 layers"),
        ({"num_hidden_layers": "3"}, "num_hidden_layers"),
        ({"hidden_dropout_prob": 2}, "hidden_dropout_prob"),
    ],
)
def test_invalid_configuration_is_refused(checkpoint, refuses, keys, subject):
    refuses(checkpoint(**keys), 78, subject)


def test_missing_number_of_heads_must_be_given(checkpoint, refuses, converted_json):
    directory = checkpoint(num_attention_heads=None)
    refuses(directory, 66, "num_attention_heads", "--num-attention-heads")
    assert converted_json(directory, "--num-attention-heads", 4)["num_attention_heads"] == 4


def test_missing_configuration_must_be_given(checkpoint, refuses, converted_json):
    directory = checkpoint()
    (directory / "albert_config.json").unlink()
    refuses(directory, 66, "--num-hidden-layers", "--num-attention-heads", "--hidden-act")
    given = ("--num-hidden-layers", 3, "--num-attention-heads", 2, "--hidden-act", "gelu_new")
    assert converted_json(directory, *given)["intermediate_size"] == 12


def test_overrides_take_precedence_over_the_file(checkpoint, converted_json):
    config = converted_json(checkpoint(hidden_act="linear"), "--hidden-act", "relu", "--num-attention-heads", 1)
    assert (config["hidden_act"], config["num_attention_heads"]) == ("relu", 1)


def test_configuration_file_can_be_given(checkpoint, refuses, converted_json):
    directory = checkpoint()
    file = directory / "other.json"
    (directory / "albert_config.json").rename(file)
    assert converted_json(directory, "--config", file)["num_hidden_groups"] == 3
    refuses(directory, 66, "nowhere.json", options=("--config", directory / "nowhere.json"))
    file.write_text("{")
    refuses(directory, 65, file, "JSON", options=("--config", file))


def test_groups_that_the_reference_misrounds_are_refused(writer, checkpoints, tmp_path, refuses):
    """44 layers in 22 groups: for the reference int(14 / 44 * 22) is 6."""
    assert [int(layer / 44 * 22) for layer in range(44)] != [layer * 22 // 44 for layer in range(44)]
    from_groups(writer, checkpoints, tmp_path, 22)
    content = {"num_hidden_layers": 44, "num_attention_heads": 2, "hidden_act": "gelu"}
    (tmp_path / "albert_config.json").write_text(json.dumps(content))
    refuses(tmp_path, 78, "layer")


def test_missing_group_is_refused(writer, checkpoints, tmp_path, refuses):
    from_groups(writer, checkpoints, tmp_path, 4, excluded="group_2/")
    refuses(tmp_path, 65, "3 layers in 4 groups")


def from_groups(writer, checkpoints, directory, groups: int, excluded: str = "none") -> None:
    """Write the shared model with several copies of its group."""
    bundle = TensorBundle(checkpoints / "classifier" / "model.ckpt-best")
    copies = {
        name.replace("group_0/inner", f"group_{group}/inner"): bundle.read(name)
        for name in bundle.entries
        if not name.endswith(("adam_m", "adam_v", "global_step"))
        for group in range(groups)
    }
    writer.write_bundle(directory / "model", {name: t for name, t in copies.items() if excluded not in name})


# ---- files ---------------------------------------------------------------------------------------------------------

DATA = ".data-00000-of-00001"


@pytest.fixture
def create(tmp_path):
    """Creates empty files and returns their folder."""

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
    ("names", "paths", "prefix", "config", "tokenizer"),
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
    ids=["release", "parent directory", "TF-Hub", "one of several"],
)
def test_checkpoint_is_found_in_all_layouts(create, names, paths, prefix, config, tokenizer):
    folder = create(*names)
    for path in paths:
        files = find_checkpoint(folder / path)
        assert files.prefix == folder / prefix
        assert (files.config, files.tokenizer()) == (config and folder / config, tokenizer and folder / tokenizer)


def test_state_file_names_the_newest_checkpoint(create):
    folder = create("model.ckpt-7.index", "model.ckpt-900.index", "model.ckpt-80.index")
    for parent in ("", "/another/machine/run/", "../../", "C:\\run\\"):
        state = f'model_checkpoint_path: "{parent}model.ckpt-80"\nall_model_checkpoint_paths: "model.ckpt-7"\n'
        (folder / "checkpoint").write_text(state)
        files = find_checkpoint(folder)
        assert files.prefix == folder / "model.ckpt-80" and files.steps == 3


@pytest.mark.parametrize("state", [None, "", 'model_checkpoint_path: "model.ckpt-lost"', "\xff\xfe"])
def test_several_checkpoints_are_listed(create, refuses, state):
    folder = create("model.ckpt-7.index", "model.ckpt-9.index")
    if state is not None:
        (folder / "checkpoint").write_text(state, encoding="latin-1")
    refuses(folder, 66, folder, "model.ckpt-7, model.ckpt-9")


def test_missing_checkpoint_is_refused(create, refuses):
    folder = create("readme.txt")
    refuses(folder, 66, folder)
    refuses(folder / "nowhere", 66, "nowhere")
    refuses(folder / "readme.txt", 66, "readme.txt")


def test_keras_files_are_refused(create, refuses):
    folder = create("model.h5")
    (folder / "model.h5").write_bytes(b"\x89HDF\r\n\x1a\n and more")
    for path in (folder, folder / "model.h5"):
        refuses(path, 65, "Keras")


# ---- names of variables --------------------------------------------------------------------------------------------

ENCODER = ["bert/embeddings/word_embeddings", "bert/pooler/dense/kernel"]


def test_optimizer_variables_are_dropped():
    slots = [
        f"{name}/{slot}" for name in ENCODER for slot in ("adam_m", "adam_v", "lamb_m", "lamb_v", "Adam", "Adam_1")
    ]
    slots += ["bert/pooler/dense/kernel/AdamWeightDecayOptimizer", "global_step", "beta1_power", "loss_scale"]
    result = map_variables([*ENCODER, *slots], "model")
    assert result.dropped == tuple(slots) and list(result.mapped) == ENCODER and not result.unexpected


@pytest.mark.parametrize(
    ("names", "subjects"),
    [
        ([*ENCODER, "bert/encoder/layer_shared/attention/self/key/kernel"], "brightmart albert_ _zh"),
        ([*ENCODER, "bert/embeddings/word_embeddings_2"], "brightmart"),
        ([*ENCODER, "model/layer-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"], "Keras"),
        ([f"w_{number}" for number in range(9)], "ALBERT w_0, w_1, w_2"),
        (["global_step"], "variables"),
        ([*ENCODER, "module/bert/pooler/dense/kernel"], "albert.pooler.weight bert/ module/bert"),
    ],
)
def test_other_models_are_named(names, subjects):
    with refusal(DamagedData, *subjects.split()):
        map_variables(names, "model")


def test_released_albert_base_is_a_complete_masked_language_model(shared):
    """TF-Hub's release has no sentence-order head; all its 30 variables belong to our ALBERT-base."""
    folder = shared / "data" / "checkpoints" / "tfhub_albert_en_base_3"
    bundle = TensorBundle(folder / "variables")
    variables = map_variables(bundle.entries, "release")
    assert len(variables.mapped) == 30 and not variables.unexpected and not variables.dropped
    shapes = {
        target.name: bundle.entries[variable].shape[:: -1 if target.transposed else 1]
        for variable, target in variables.mapped.items()
    }
    file = folder / "albert_config.json"
    values, ignored = read_albert_config(file)
    assert ignored == ("down_scale_factor", "gap_size", "net_structure_type", "num_memory_blocks")
    config = config_of(values, shapes, {}, file, "release")
    assert config == ALBERT_BASE
    architecture = architecture_of(shapes)
    assert architecture == "AlbertForMaskedLM"
    tensors = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    require_complete(from_transformers(tensors, config, "release"), architecture, config, "release")
    counts = count_parameters(config)
    expected = counts.model + counts.masked_language_model_head
    assert sum(tensor.numel() for tensor in tensors.values()) == expected


# ---- outputs, compared with those of TensorFlow's graph ------------------------------------------------------------

TOLERANCE = 1e-5
CASES = ("shared", "groups", "unfactorised", "classifier", "hub_classifier", "squad_v1", "squad_v2")
PRETRAINED = ("shared", "groups", "unfactorised")


class Recorded:
    """Recorded inputs and outputs of the TensorFlow graph; ours have no padding."""

    def __init__(self, directory: Path) -> None:
        with np.load(directory / "expected.npz") as content:
            self.values = {name: torch.from_numpy(content[name]) for name in content.files}
        self.real = self.values["input_mask"].bool()

    def packed(self) -> PackedSequences:
        ids, types = (self.values[name].numpy() for name in ("input_ids", "segment_ids"))
        rows = self.real.numpy()
        return pack([ids[n][row] for n, row in enumerate(rows)], [types[n][row] for n, row in enumerate(rows)])

    def masked_positions(self) -> torch.Tensor:
        """Positions in the packed tokens."""
        first = torch.cat([torch.zeros(1, dtype=torch.long), self.real.sum(1).cumsum(0)[:-1]])
        return (self.values["masked_positions"] + first[:, None]).reshape(-1)


@pytest.fixture
def converted(checkpoints, tmp_path):
    def make(case: str) -> tuple[Path, Recorded]:
        output = tmp_path / case
        assert run(["convert", str(checkpoints / case), "--output", str(output), "--without-tokenizer"]) == 0
        return output, Recorded(checkpoints / case)

    return make


def close(output: torch.Tensor, expected: torch.Tensor) -> bool:
    return output.shape == expected.shape and float((output - expected).abs().max()) <= TOLERANCE


@pytest.mark.parametrize("case", CASES)
def test_hidden_states_and_pooled_output_equal_tensorflows(converted, case):
    directory, recorded = converted(case)
    model, packed = open_model(directory, "encoder").model, recorded.packed()
    with torch.inference_mode():
        states = model.hidden_states(packed)
        layers = recorded.values["layers"]
        assert len(states) - 1 == len(layers)
        for state, layer in zip(states[1:], layers, strict=True):
            assert close(state, layer[recorded.real])
        assert close(states[-1], recorded.values["sequence_output"][recorded.real])
        if case != "squad_v1":  # whose class has no pooler
            assert close(model.pool(states[-1], packed), recorded.values["pooled_output"])


@pytest.mark.parametrize("case", PRETRAINED)
def test_pretraining_heads_equal_tensorflows(converted, case):
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
def test_task_heads_equal_tensorflows(converted, case, kind):
    directory, recorded = converted(case)
    with torch.inference_mode():
        outputs = open_model(directory, kind).model(recorded.packed())
    if kind == "classification":
        assert close(outputs, recorded.values["logits"])
        return
    for logits, name in zip(outputs, ("start_logits", "end_logits"), strict=True):
        assert close(logits, recorded.values[name][recorded.real])


def test_converted_model_without_a_projection_can_be_quantized(writer, checkpoints, tmp_path):
    """Four times as wide as the recorded model, whose matrices are too small to be quantised."""
    source, wide = checkpoints / "unfactorised", tmp_path / "wide"
    wide.mkdir()
    config = json.loads((source / "albert_config.json").read_text())
    config |= {"embedding_size": 32, "hidden_size": 32, "intermediate_size": 48}
    (wide / "albert_config.json").write_text(json.dumps(config))
    bundle, widths = TensorBundle(source / "model.ckpt-best"), {8: 32, 12: 48}
    shapes = {name: bundle.read(name).shape for name in bundle.entries}
    tensors = {name: torch.randn([widths.get(size, size) for size in shape]) * 0.3 for name, shape in shapes.items()}
    writer.write_bundle(wide / "model", tensors)
    assert run(["convert", str(wide), "--output", str(tmp_path / "converted"), "--without-tokenizer"]) == 0
    assert run(["quantize", str(tmp_path / "converted"), "--output", str(tmp_path / "int8")]) == 0
    packed = pack([np.arange(5, 17), np.arange(20, 29)], [np.zeros(12, int), np.ones(9, int)])
    before, after = (open_model(tmp_path / name, "pretraining").model for name in ("converted", "int8"))
    assert not after.config.projects_embeddings
    with torch.inference_mode():
        expected, quantized = (model(packed, torch.arange(21)) for model in (before, after))
    for logits, reference in zip(quantized, expected, strict=True):
        assert 0 < float((logits - reference).norm() / reference.norm()) < 0.1
