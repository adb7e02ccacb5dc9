"""Make the small TensorFlow checkpoints of the tests with the reference's graph, and record its outputs.

    git clone https://github.com/google-research/albert REFERENCE
    python -m venv tensorflow && tensorflow/bin/pip install tensorflow-cpu tf_keras six
    tensorflow/bin/python dev/scripts/make_tensorflow_checkpoints.py REFERENCE tests/checkpoints/tensorflow

Runs in its own environment; nothing here imports `albert`. All weights are random, biases and layer norms included,
so that confused names are detected; graph, heads, optimisers and `tf.train.Saver` are those of the reference and of
TensorFlow. TensorFlow 2 has no `tensorflow.contrib`: its `layer_norm`, the only function that the graph needs, is
replaced by one with the same variables and epsilon.
"""

import importlib
import json
import os
import shutil
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

if __name__ == "__main__" and {"-h", "--help"} & {*sys.argv}:  # also where TensorFlow is missing
    print(__doc__)
    sys.exit()

os.environ |= {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"}

import numpy as np
import tensorflow.compat.v1 as tf

PREFIX = "model.ckpt-best"
LENGTH, PREDICTIONS = 10, 3
SIZES = {
    "vocab_size": 40,
    "embedding_size": 6,
    "hidden_size": 8,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
DEFAULTS = {
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "initializer_range": 0.02,
    "type_vocab_size": 2,
    "num_hidden_groups": 1,
    "inner_group_num": 1,
    "net_structure_type": 0,
    "gap_size": 0,
    "num_memory_blocks": 0,
    "down_scale_factor": 1,
}


@dataclass(frozen=True)
class Case:
    """A checkpoint to make: changes of the configuration, head, optimiser, and variable scope."""

    sizes: dict[str, Any] = field(default_factory=dict)
    head: str = "pretraining"
    optimizer: str | None = None
    scope: str = ""


CASES = {
    "shared": Case({"vocab_size": 60, "embedding_size": 8, "hidden_size": 16, "intermediate_size": 32}),
    "groups": Case({"num_hidden_groups": 3, "inner_group_num": 2}),
    "unfactorised": Case({"embedding_size": 8, "hidden_act": "relu"}),
    "classifier": Case(head="classifier", optimizer="lamb"),
    "hub_classifier": Case(head="classifier", scope="module"),
    "squad_v1": Case(head="squad_v1", optimizer="adamw"),
    "squad_v2": Case(head="squad_v2"),
}


def layer_norm(inputs, begin_norm_axis=1, begin_params_axis=-1, scope=None):
    """`tf.contrib.layers.layer_norm` with the same scope, variables and epsilon."""
    with tf.variable_scope(scope, "LayerNorm", [inputs]):
        shape = inputs.shape[begin_params_axis:]
        beta = tf.get_variable("beta", shape, initializer=tf.zeros_initializer())
        gamma = tf.get_variable("gamma", shape, initializer=tf.ones_initializer())
        axes = list(range(begin_norm_axis % inputs.shape.ndims, inputs.shape.ndims))
        mean, variance = tf.nn.moments(inputs, axes, keepdims=True)
        return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, variance_epsilon=1e-12)


def import_reference(path: Path) -> dict[str, types.ModuleType]:
    """Import the reference's modules, with mocks of libraries that the graph does not use."""
    contrib = MagicMock()
    contrib.layers.layer_norm = layer_norm
    mocks = {"tensorflow.contrib": contrib, "tensorflow_hub": MagicMock(), "sentencepiece": MagicMock()}
    for name in ("layers", "tpu", "cluster_resolver", "data"):
        mocks[f"tensorflow.contrib.{name}"] = getattr(contrib, name)
    sys.modules.update(mocks)
    tf.estimator = MagicMock()
    package = types.ModuleType("albert")
    package.__path__ = [str(path)]
    sys.modules["albert"] = package
    names = ("modeling", "optimization", "run_pretraining", "classifier_utils", "squad_utils")
    return {name: importlib.import_module(f"albert.{name}") for name in names}


def main() -> None:
    """Make all checkpoints again."""
    reference, output = Path(sys.argv[1]), Path(sys.argv[2])
    modules = import_reference(reference)
    for number, (name, case) in enumerate(CASES.items()):
        directory = output / name
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        with tf.Graph().as_default(), tf.Session(config=tf.ConfigProto(intra_op_parallelism_threads=1)) as session:
            make(case, modules, directory, session, np.random.default_rng(number))
        for extra in ("checkpoint", f"{PREFIX}.meta"):
            (directory / extra).unlink()
        print(name, sum(file.stat().st_size for file in directory.iterdir()), "bytes")
    make_formats(output / "formats")


def make(case: Case, modules: dict[str, Any], directory: Path, session, numbers: np.random.Generator) -> None:
    """Make one checkpoint, its configuration, and `expected.npz`: inputs and outputs of the graph."""
    values = DEFAULTS | SIZES | case.sizes
    (directory / "albert_config.json").write_text(json.dumps(values, indent=2) + "\n")
    config = modules["modeling"].EncoderConfig.from_dict(values)
    inputs = {
        "input_ids": numbers.integers(5, config.vocab_size, (2, LENGTH), dtype=np.int32),
        "input_mask": (np.arange(LENGTH) < np.array([[LENGTH], [LENGTH - 4]])).astype(np.int32),
        "segment_ids": (np.arange(LENGTH) >= np.array([[4], [3]])).astype(np.int32),
        "masked_positions": np.array([[1, 4, 8], [0, 2, 5]], dtype=np.int32),
    }
    constants = {key: tf.constant(value) for key, value in inputs.items()}
    if case.scope:
        with tf.variable_scope(case.scope):
            model = backbone(modules, config, constants)
    else:
        model = backbone(modules, config, constants)
    outputs = {
        "layers": tf.stack(model.get_all_encoder_layers()),
        "sequence_output": model.get_sequence_output(),
        "pooled_output": model.get_pooled_output(),
    }
    loss = HEADS[case.head](modules, config, model, constants, outputs)
    weights = tf.trainable_variables()
    if case.optimizer:
        train = modules["optimization"].create_optimizer(loss, 1e-3, 10, 2, False, optimizer=case.optimizer)
    session.run(tf.global_variables_initializer())
    for variable in weights:
        center = 1.0 if variable.op.name.endswith("gamma") else 0.0
        variable.load(numbers.normal(center, 0.3, variable.shape).astype(np.float32), session)
    if case.optimizer:
        session.run(train)
        session.run(train)
    np.savez_compressed(directory / "expected.npz", **inputs, **session.run(outputs))
    tf.train.Saver().save(session, str(directory / PREFIX))


def backbone(modules: dict[str, Any], config, constants: dict[str, Any]):
    """The reference's encoder in evaluation mode."""
    return modules["modeling"].AlbertModel(
        config=config,
        is_training=False,
        input_ids=constants["input_ids"],
        input_mask=constants["input_mask"],
        token_type_ids=constants["segment_ids"],
    )


def pretraining_head(modules, config, model, constants, outputs):
    """Masked tokens and sentence order; the log-probabilities are recorded."""
    ones = tf.ones([2, PREDICTIONS])
    masked_loss, _, outputs["masked_token_log_probs"] = modules["run_pretraining"].get_masked_lm_output(
        config,
        model.get_sequence_output(),
        model.get_embedding_table(),
        constants["masked_positions"],
        tf.cast(ones, tf.int32),
        ones,
    )
    order_loss, _, outputs["sentence_order_log_probs"] = modules["run_pretraining"].get_sentence_order_output(
        config, model.get_pooled_output(), tf.constant([0, 1])
    )
    return masked_loss + order_loss


def share_encoder(modules, model) -> None:
    """Let heads, which build an encoder of their own, use the existing one."""
    encoder_outputs = (model.get_pooled_output(), model.get_sequence_output())
    fine_tuning = importlib.import_module("albert.fine_tuning_utils")
    fine_tuning.create_albert = lambda **_: encoder_outputs


def classifier_head(modules, config, model, constants, outputs):
    """Three classes."""
    share_encoder(modules, model)
    loss, _, _, outputs["logits"], _ = modules["classifier_utils"].create_model(
        config, False, None, None, None, tf.constant([0, 2]), 3, False, "mnli", None
    )
    return loss


def squad_v1_head(modules, config, model, constants, outputs):
    """Start and end logits of SQuAD 1.1."""
    share_encoder(modules, model)
    start, end = modules["squad_utils"].create_v1_model(config, False, None, None, None, False, True, None)
    outputs["start_logits"], outputs["end_logits"] = start, end
    return tf.reduce_mean(tf.square(start)) + tf.reduce_mean(tf.square(end))


def squad_v2_head(modules, config, model, constants, outputs):
    """The joint head of SQuAD 2.0."""
    share_encoder(modules, model)
    features = {"p_mask": tf.zeros([2, LENGTH])}
    head = modules["squad_utils"].create_v2_model(
        config, False, None, None, None, False, features, LENGTH, 2, 2, 0.0, None
    )
    outputs["answer_class_logits"] = head["cls_logits"]
    return tf.reduce_mean(head["cls_logits"])


HEADS = {
    "pretraining": pretraining_head,
    "classifier": classifier_head,
    "squad_v1": squad_v1_head,
    "squad_v2": squad_v2_head,
}


def make_formats(output: Path) -> None:
    """Checkpoints with all number types, several shards, a variable in slices, and of format version 1."""
    shutil.rmtree(output, ignore_errors=True)
    numbers = np.arange(6).reshape(2, 3)
    two_devices = tf.ConfigProto(device_count={"CPU": 2})
    with tf.Graph().as_default(), tf.Session() as session:
        for name in ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int16", "int32", "int64"):
            tf.Variable(tf.constant(numbers, getattr(tf, name)), name=name, use_resource=True)
        tf.Variable(numbers % 2 == 0, name="bool")
        tf.Variable(["one", "three"], name="string")
        tf.Variable(7.0, name="scalar")
        tf.Variable(np.zeros((0, 3), np.float32), name="empty")
        save(session, output / "types", tf.train.Saver())
    with tf.Graph().as_default(), tf.Session(config=two_devices) as session:
        for number in range(2):
            with tf.device(f"/cpu:{number}"):
                tf.Variable(np.float32(numbers + number), name=f"shard_{number}")
        save(session, output / "two_shards", tf.train.Saver(sharded=True))
    with tf.Graph().as_default(), tf.Session() as session:
        slices = tf.fixed_size_partitioner(2)
        tf.get_variable("sliced", [8], initializer=tf.ones_initializer(), partitioner=slices)
        save(session, output / "partitioned", tf.train.Saver())
    with tf.Graph().as_default(), tf.Session() as session:
        tf.Variable(np.float32(numbers), name="old")
        save(session, output / "version_1", tf.train.Saver(write_version=tf.train.SaverDef.V1))


def save(session, directory: Path, saver) -> None:
    """Initialise and save; keep only the checkpoint."""
    directory.mkdir(parents=True)
    session.run(tf.global_variables_initializer())
    saver.save(session, str(directory / PREFIX))
    for extra in ("checkpoint", f"{PREFIX}.meta"):
        (directory / extra).unlink()


if __name__ == "__main__":
    main()
