"""ONNX export: a model as an ONNX graph, checked in ONNX Runtime and OpenVINO against the model's outputs.

`albert.inference.onnx_graph` writes the encoder's part of the graph, and each pipeline of the model its head's. Inputs
and outputs are named as in transformers and Optimum. Each installed runtime computes random batches of mixed lengths;
float32 outputs must be within 1e-4 of ours or nothing is written. For int8 the difference is reported."""

import importlib.util
import json
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from sys import float_info
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from torch import nn

from albert import __version__
from albert.checkpoints.card import CARD_NAME, Card, base_of, model_card
from albert.checkpoints.config_json import CONFIG_NAME, label_names
from albert.checkpoints.cross_encoders import activation_keys, score_activation
from albert.checkpoints.hub import find_model, first_example, name_of
from albert.checkpoints.huggingface import ARCHITECTURES, MODELS, OBJECTIVE_KEY, Kind, written_num_labels
from albert.checkpoints.loading import CALIBRATION_KEY, QUANTIZATION_KEY
from albert.checkpoints.model_directory import FINGERPRINT_KEY, require_matching_tokenizer, written_model
from albert.checkpoints.sentence_transformers import SentenceVectors, sentence_vectors_of
from albert.inference import int8
from albert.inference.abilities import TrainedModel, lengths_of, open_trained
from albert.inference.calibration import RANDOM_TOKENS, calibrate_once, encoder_of
from albert.inference.onnx_graph import INPUTS, MAX_OPSET, MIN_OPSET, Axes, GraphWriter, OnnxPrecision, encoder_nodes
from albert.model.albert import set_depth
from albert.runtime.environment import lazy_import
from albert.runtime.errors import CannotCreate, CheckFailed, InvalidConfiguration
from albert.runtime.files import new_directory, new_file, write_text
from albert.runtime.json_files import read_json_object, save_json, to_json
from albert.runtime.progress import progress
from albert.runtime.words import bytes_of, counted
from albert.tasks.pipeline import Pipeline
from albert.text.tokenizer import CONFIG_NAME as TOKENIZER_CONFIG_NAME
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

_MAX_FILE = 2**31 - 2**20
"""Bytes of one protobuf message; external weights are not used, because their paths can point to other files."""


def export_graph(
    model: nn.Module,
    pipelines: Sequence[Pipeline],
    precision: OnnxPrecision,
    opset: int,
    metadata: Mapping[str, str],
) -> tuple[onnx.ModelProto, dict[str, Axes]]:
    """The ONNX model with its weights, of the layers that it is set to run, and the axes of its outputs."""
    size = sum(parameter.numel() for parameter in model.parameters()) * (4 if precision == "fp32" else 1)
    if size > _MAX_FILE:
        why = f"has {size / 1e9:,.1f} GB of weights in {precision}, one ONNX file holds 2.1 GB"
        fits_in_int8 = precision == "fp32" and size / 4 < _MAX_FILE
        raise InvalidConfiguration("model", why, "take --precision int8" if fits_in_int8 else None)
    graph = GraphWriter(opset, precision)
    for pipeline in pipelines:
        pipeline.onnx_inputs(graph, model)
    hidden = encoder_nodes(graph, encoder_of(model))
    outputs = [output for pipeline in pipelines for output in pipeline.onnx(graph, model, hidden)]
    return graph.model(pipelines[0].onnx_axes, outputs, metadata), {output.name: output.axes for output in outputs}


TOLERANCE = 1e-4  # Largest allowed difference of a float32 output from ours


class RuntimeCheck(NamedTuple):
    """Differences of a runtime's outputs from ours, over random batches of mixed lengths."""

    runtime: str
    differences: int8.OutputDifferences


@dataclass(frozen=True, kw_only=True)
class ExportReport:
    """An ONNX file that was written and checked."""

    kind: Kind
    left_out: str  # The untrained head that was left out; empty if there is none
    precision: OnnxPrecision
    calibration: str  # What the fixed scales of int8 were measured on, in words
    opset: int
    depth: int
    inputs: tuple[str, ...]
    input_axes: Axes
    outputs: dict[str, Axes]
    vectors: SentenceVectors | None  # How the states of an encoder become vectors; None for a model with a head
    bytes: int
    weight_bytes: int
    checks: tuple[RuntimeCheck, ...]


# --------------------------------------------------------------------------------------------------------------------
# The model card of an ONNX file: inputs, outputs, figures and limitations.

_TEXTS: dict[str, Any] = tomllib.loads((files("albert.checkpoints") / "card.toml").read_text(encoding="utf-8"))["onnx"]


def onnx_card(
    name: str, directory: Path, trained: TrainedModel, tokenizer: Tokenizer | None, report: ExportReport
) -> str:
    """The card as Markdown; `name` is that of the new directory, `directory` the original model's."""
    extra = trained.opened.extra
    axes = {output: "[" + ", ".join(map(str, shape)) + "]" for output, shape in report.outputs.items()}
    if "sentence_logits" in axes:
        next_sentence = extra.get(OBJECTIVE_KEY) == "nsp"
        meaning = "0 the next segment, 1 a foreign one" if next_sentence else "0 in order, 1 swapped"
        axes["sentence_logits"] += f": {meaning}"
    if "logits" in axes and trained.model_kind in _WITH_LABELS:
        axes["logits"] += f": {_meaning_of_logits(trained)}"
    limits = {
        "differences": True,
        "int8": report.precision == "int8",
        "left_out": bool(report.left_out),
    }
    layers = counted(report.depth, "layers")
    shared = "" if trained.opened.config.sharing == "none" else "; those that layers share are stored once"
    lines = [
        f"{name_of(directory)} as one ONNX file of {bytes_of(report.bytes)}, opset {report.opset}, "
        f"{report.precision}, {layers}. In float32 the parameters that it uses are "
        f"{bytes_of(report.weight_bytes)}{shared}."
    ]
    if report.vectors is not None:
        lines.append(
            f"{report.vectors.description} The file gives the states of "
            "the tokens: the lines below make vectors of them. The tokenizer beside it cuts texts at that length."
        )
    differences = [
        f"{output} in {check.runtime}: largest difference {largest:.4g}"
        for check in report.checks
        for output, largest in check.differences.largest.items()
    ]
    card = Card(
        name=name,
        description="\n\n".join(lines),
        recipe={"inputs": f"{', '.join(report.inputs)}: int64, padded on the right", **axes},
        limits=(
            *differences,
            *(_TEXTS["limits"][name].format_map(vars(report)) for name, holds in limits.items() if holds),
        ),
        tags=("onnx",),
        base=base_of(directory),
        base_relation="quantized" if report.precision == "int8" else None,
        library="onnx",
        example=first_example(directory),
        use=_use(report, trained, tokenizer is not None),
    )
    architecture = ARCHITECTURES[MODELS[report.kind]]
    outputs = written_num_labels(architecture, trained.opened.model.state_dict())
    return model_card(card, written_model(architecture, trained.opened.config, outputs, tokenizer, extra))


_SEVERAL_LABELS = "multi_label_classification"
_WITH_LABELS: tuple[Kind, ...] = ("classification", "pair_classification", "token_classification", "multiple_choice")


def _labels_of(trained: TrainedModel) -> list[str]:
    """The names of a classifier's outputs, in their order."""
    model: Any = trained.opened.model
    return label_names(trained.opened.extra, model.classifier.out_features)


def _meaning_of_logits(trained: TrainedModel) -> str:
    """What the numbers of the output `logits` are, in their order, and how they become albert's answers."""
    opened = trained.opened
    if trained.model_kind == "multiple_choice":
        return "one number for each option; their softmax is the probability of each"
    labels = _labels_of(trained)
    if opened.extra.get("problem_type") == _SEVERAL_LABELS:
        threshold = opened.extra.get("label_threshold")
        predicted = f", and {threshold:g} is the least at which it is predicted" if isinstance(threshold, float) else ""
        return f"{', '.join(labels)}, in this order; the sigmoid of each is its probability{predicted}"
    if len(labels) == 1:
        activation = score_activation(opened.extra)
        if activation == "Identity":
            return f"{labels[0]}, a number"
        return f"a number, whose {activation.lower()} is the score"
    return f"{', '.join(labels)}, in this order; their softmax is the probability of each"


_STEPS: dict[Kind, str] = {
    "classification": "classify",
    "token_classification": "tag",
    "multiple_choice": "choose",
    "question_answering": "answer",
    "masked_lm": "fill_mask",
    "pretraining": "fill_mask",
}
"""Kind of model -> how the card's example makes answers of the file's outputs; others print their shapes."""


def _use(report: ExportReport, trained: TrainedModel, has_tokenizer: bool) -> str:
    """How to run the file."""
    if not has_tokenizer:
        return _TEXTS["use_without_tokenizer"]
    if report.vectors is None:
        labels: list[str] = []
        scores = "softmax"
        if trained.model_kind in ("classification", "token_classification"):
            labels = _labels_of(trained)
        if trained.model_kind == "classification" and trained.opened.extra.get("problem_type") == _SEVERAL_LABELS:
            scores = "Sigmoid"
        elif trained.model_kind == "classification" and len(labels) == 1:
            scores = score_activation(trained.opened.extra)
        key = _STEPS.get(trained.model_kind, "shapes") if scores in _TEXTS["scores"] else "shapes"
        steps = _TEXTS["steps"][key].strip().replace("{labels}", json.dumps(labels, ensure_ascii=False))
        steps = steps.replace("{scores}", _TEXTS["scores"].get(scores, "").strip())
        return _TEXTS["use"].replace("{steps}", steps)
    own = report.vectors
    texts = (
        _EXAMPLE_TEXTS if own.default_prompt is None else [own.prompts[own.default_prompt] + t for t in _EXAMPLE_TEXTS]
    )
    steps = [_TEXTS["pooling"][own.pooling]]
    if own.normalize:
        steps.append(_TEXTS["normalize"])
    if own.truncate_dim is not None:
        steps.append(f"vectors = vectors[:, :{own.truncate_dim}]")
    values = {
        "texts": json.dumps([text.lower() for text in texts] if own.lower_case else texts, ensure_ascii=False),
        "steps": "\n".join(steps),
    }
    use = _TEXTS["use_vectors"]
    for name, value in values.items():
        use = use.replace(f"{{{name}}}", value)
    return use


_EXAMPLE_TEXTS = ["A short text.", "And one that is a little longer."]


def format_differences(check: RuntimeCheck) -> str:
    """The differences of a runtime as text; those above the tolerance with a typical one."""
    differences = check.differences
    relative = {output: f" ({int8.typical_change(share)})" for output, share in differences.relative.items()}
    return ", ".join(
        f"{output} {largest:.2g}{relative[output] if largest > TOLERANCE else ''}"
        for output, largest in differences.largest.items()
    )


# --------------------------------------------------------------------------------------------------------------------
# Running an ONNX file in ONNX Runtime and, if installed, OpenVINO: padded batches in, outputs per sequence.

Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
_ERRORS_ONLY = 3


def runtimes(file: Path) -> Iterator[tuple[str, Run]]:
    """Names of the installed runtimes, each with a function that runs the file on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    needed = [value.name for value in session.get_inputs()]

    def run_onnxruntime(inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        outputs = session.run(names, {name: inputs[name] for name in needed})
        return dict(zip(names, outputs, strict=True))

    yield f"ONNX Runtime {onnxruntime.__version__}", run_onnxruntime
    if importlib.util.find_spec("openvino") is not None:
        openvino: Any = lazy_import("openvino")
        # by default it computes in bfloat16 where the processor can
        compiled = openvino.Core().compile_model(str(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

        def run(inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            outputs = compiled({name: inputs[name] for name in needed})
            return {name: outputs[name] for name in names}

        yield f"OpenVINO {openvino.__version__.split('-')[0]}", run


def run_unpadded(run: Run, batch: int8.SampleBatch, input_axes: Axes, axes: Mapping[str, Axes]) -> int8.Outputs:
    """Outputs of the file for each sequence of a padded batch, without those of padding; `axes` are the outputs'."""
    shape = (len(batch.ids), max(map(len, batch.ids)))
    arrays = [np.zeros(shape, np.int64) for _ in INPUTS]
    for row, (ids, types) in enumerate(zip(batch.ids, batch.types, strict=True)):
        for array, values in zip(arrays, (ids, 1, types), strict=True):
            array[row, : len(ids)] = values
    if "choices" in input_axes:
        arrays = [array.reshape(-1, 2, shape[1]) for array in arrays]
    outputs: int8.Outputs = {}
    for name, values in run(dict(zip(INPUTS, arrays, strict=True))).items():
        rows = values.reshape(-1) if "choices" in axes[name] else values
        pairs = zip(map(np.asarray, rows), batch.ids, strict=True)
        outputs[name] = [row[: len(ids)] if "sequence" in axes[name] else row for row, ids in pairs]
    return outputs


MODEL_NAME = "model.onnx"
EXPORT_KEY = "albert_onnx"  # Key in `config.json`


def export_onnx(
    source: str | Path,
    output: Path,
    *,
    precision: OnnxPrecision = "fp32",
    opset: int = 20,
    depth: int | None = None,
    replace: bool = False,
) -> ExportReport:
    """Write a model as ONNX: a directory with its tokenizer and a card, or only a file if `output` ends in .onnx.

    Nothing is written if a runtime's outputs differ from ours (CheckFailed).
    """
    if not MIN_OPSET <= opset <= MAX_OPSET:
        why = f"is {opset}, supported are {MIN_OPSET} to {MAX_OPSET}"
        raise InvalidConfiguration("opset", why, "runtimes since 2024 support 20")
    if output.exists() and not replace:
        raise CannotCreate(output, "exists already", "choose another name, or add --replace")
    directory = find_model(source)
    trained = open_trained(directory)
    if trained.model_kind == "pair_classification":
        why = "encodes the texts of a pair separately, which ONNX export does not support"
        remedy = "fine-tune with encode_pairs=together, or serve it with albert serve"
        raise InvalidConfiguration(directory, why, remedy)
    tokenizer = load_tokenizer(directory) if vocabulary_file(directory).is_file() else None
    config = trained.opened.config
    extra = trained.opened.extra
    vectors = _vectors_of(trained, directory)
    if tokenizer is not None:
        require_matching_tokenizer(tokenizer, directory, config, extra)
    depth = config.num_hidden_layers if depth is None else depth
    set_depth(trained.opened.model, depth)
    if precision == "int8":
        calibrate_once(encoder_of(trained.opened.model))
    calibration = str((extra.get(QUANTIZATION_KEY) or {}).get(CALIBRATION_KEY, RANDOM_TOKENS))
    metadata = {
        "producer": f"albert {__version__}",
        "architecture": type(trained.opened.model).__name__,
        "precision": precision,
        "layers": str(depth),
        **({} if vectors is None else {"vectors": json.dumps(to_json(vectors))}),
        **({} if tokenizer is None else {FINGERPRINT_KEY: tokenizer.fingerprint}),
    }
    graph, axes = export_graph(trained.opened.model, trained.pipelines, precision, opset, metadata)
    inputs = tuple(value.name for value in graph.graph.input)
    if output.suffix == ".onnx":
        with new_file(output) as file:
            file.write_bytes(graph.SerializeToString())
            return _checked_report(file, inputs, axes, trained, vectors, precision, calibration, opset, depth)
    with new_directory(output, replace=replace) as folder:
        file = folder / MODEL_NAME
        file.write_bytes(graph.SerializeToString())
        report = _checked_report(file, inputs, axes, trained, vectors, precision, calibration, opset, depth)
        if tokenizer is not None:
            tokenizer.save(folder)
            settings = read_json_object(folder / TOKENIZER_CONFIG_NAME)
            longest = lengths_of(trained.model_kind, trained.opened).max_length
            settings["model_max_length"] = longest if vectors is None else vectors.max_length
            save_json(folder / TOKENIZER_CONFIG_NAME, settings)
        content = read_json_object(directory / CONFIG_NAME)
        content.pop(QUANTIZATION_KEY, None)
        content |= {EXPORT_KEY: metadata | {"opset": opset}, **activation_keys(extra)}
        save_json(folder / CONFIG_NAME, content)
        write_text(folder / CARD_NAME, onnx_card(output.name, directory, trained, tokenizer, report))
    return report


def _vectors_of(trained: TrainedModel, directory: Path) -> SentenceVectors | None:
    """How the states of an encoder become vectors; None for a model with a head.

    Raises:
        InvalidConfiguration: by Dense modules, which the file would not have.
    """
    if trained.model_kind != "encoder":
        return None
    vectors = sentence_vectors_of(trained.opened.extra) or SentenceVectors()
    if vectors.dense:
        why = "has Dense modules after its pooling, which an ONNX file of the encoder would not have"
        raise InvalidConfiguration(directory, why, "albert serve and albert export sentence-transformers keep them")
    longest = lengths_of("encoder", trained.opened).max_length
    return replace(
        vectors, max_length=min(vectors.max_length or longest, trained.opened.config.max_position_embeddings)
    )


def _checked_report(
    file: Path,
    inputs: tuple[str, ...],
    axes: dict[str, Axes],
    trained: TrainedModel,
    vectors: SentenceVectors | None,
    precision: OnnxPrecision,
    calibration: str,
    opset: int,
    depth: int,
) -> ExportReport:
    """The report on a file that was written, after every runtime's outputs were compared with ours."""
    return ExportReport(
        kind=trained.model_kind,
        left_out=trained.left_out,
        precision=precision,
        calibration=calibration,
        opset=opset,
        depth=depth,
        inputs=inputs,
        input_axes=trained.pipelines[0].onnx_axes,
        outputs=axes,
        vectors=vectors,
        bytes=file.stat().st_size,
        weight_bytes=4 * sum(parameter.numel() for parameter in trained.opened.model.parameters()),
        checks=tuple(_check(file, axes, trained, precision)),
    )


def _check(
    file: Path, axes: dict[str, Axes], trained: TrainedModel, precision: OnnxPrecision
) -> Iterator[RuntimeCheck]:
    batches = int8.sample_batches(trained.opened.config)
    input_axes = trained.pipelines[0].onnx_axes
    with progress("Checking", total=None, unit="runtimes") as bar:
        ours = [int8.model_outputs(trained.opened.model, trained.pipelines, batch) for batch in batches]
        for name, run in runtimes(file):
            theirs = [run_unpadded(run, batch, input_axes, axes) for batch in batches]
            bar.advance()
            differences = int8.output_differences(ours, theirs)
            for output, largest in differences.largest.items():
                if not largest <= (TOLERANCE if precision == "fp32" else float_info.max):
                    why = f"{output} differs by {largest:.3g} from albert's in {name}, {TOLERANCE} is the limit"
                    raise CheckFailed(file.name, why, "nothing was written; this is a bug, please report it")
            yield RuntimeCheck(name, differences)
