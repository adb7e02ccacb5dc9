"""ONNX export: a model and its tokenizer, written only when ONNX Runtime and OpenVINO give the model's outputs.

Each runtime that is installed computes random batches of mixed lengths; float32 outputs must be within 1e-4 of ours or
nothing is written. For int8 the difference is reported."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from sys import float_info
from typing import Any

import numpy as np
import onnxruntime

from albert import __version__
from albert.checkpoints.hub import find_model
from albert.checkpoints.huggingface import ARCHITECTURES, MODELS, OBJECTIVE_KEY, Kind
from albert.checkpoints.model_directory import (
    CARD_NAME,
    CONFIG_NAME,
    FINGERPRINT_KEY,
    ModelCard,
    refuse_foreign_tokenizer,
)
from albert.checkpoints.tensor_files import QUANTIZATION_KEY
from albert.inference import int8, onnx_graph
from albert.inference.predictor import TrainedModel, open_trained
from albert.model.albert import run_to_depth
from albert.runtime.environment import load_by_name
from albert.runtime.errors import CannotCreate, CheckFailed, InvalidConfiguration
from albert.runtime.files import new_directory, new_file, note_written, write_text
from albert.runtime.json_files import read_json_object, save_json
from albert.runtime.progress import progress
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# What an export came to.

TOLERANCE = 1e-4
"""The largest difference of a float32 output from ours."""


@dataclass(frozen=True)
class Checked:
    """What a runtime gave beside what we give, over random batches of mixed lengths."""

    runtime: str
    differences: int8.OutputDifferences


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An ONNX file that was written and checked.

    Args:
        left_out: the head that is not in it because nobody trained it; empty when there is none.
        window: tokens to either side that a token sees, where that is not all of them.
    """

    kind: Kind
    left_out: str
    precision: onnx_graph.OnnxPrecision
    opset: int
    depth: int
    window: int | None
    outputs: dict[str, onnx_graph.Axes]
    bytes: int
    weight_bytes: int
    checks: tuple[Checked, ...]


# --------------------------------------------------------------------------------------------------------------------
# The card beside an ONNX file: what goes in and comes out, its figures, and what a user has to know.

_USE = """```python
import onnxruntime
from transformers import AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("{name}")
session = onnxruntime.InferenceSession("{name}/model.onnx")
inputs = tokenizer(["A short text.", "And one that is a little longer."], padding=True, return_tensors="np")
for output, values in zip(session.get_outputs(), session.run(None, dict(inputs))):
    print(output.name, values.shape)
```"""
_USE_WITHOUT_TOKENIZER = """```python
import onnxruntime

session = onnxruntime.InferenceSession("{name}/model.onnx")
print([(each.name, each.type, each.shape) for each in session.get_inputs()])
print([(each.name, each.type, each.shape) for each in session.get_outputs()])
```"""
_USE_FOR_CHOICES = _USE.replace(
    "session.run(None, dict(inputs))", "session.run(None, {key: rows[None] for key, rows in inputs.items()})"
)


def onnx_card(name: str, source: str, report: Exported, has_tokenizer: bool, next_sentence: bool) -> str:
    """The card as Markdown, of a directory and the model that it was made of."""
    axes = {output: "[" + ", ".join(map(str, shape)) + "]" for output, shape in report.outputs.items()}
    if "sentence_logits" in axes:
        meaning = "0 the next segment, 1 a foreign one" if next_sentence else "0 in order, 1 swapped"
        axes["sentence_logits"] += f": {meaning}"
    return ModelCard(
        name=name,
        architecture=ARCHITECTURES[MODELS[report.kind]],
        description=f"{source} as one ONNX file of {report.bytes / 1e6:,.1f} MB, opset {report.opset}, "
        f"{report.precision}, {report.depth} layers. What layers share stands in it once: in float32 its parameters "
        f"are {report.weight_bytes / 1e6:,.1f} MB.",
        recipe={"inputs": "input_ids, attention_mask, token_type_ids: int64, padded on the right", **axes},
        scores={
            f"{output} in {check.runtime}: largest difference": largest
            for check in report.checks
            for output, largest in check.differences.largest.items()
        },
        limits=_limits(report),
        tags=("onnx",),
        location="path/to/this/directory",
        use=_USE_WITHOUT_TOKENIZER
        if not has_tokenizer
        else _USE_FOR_CHOICES
        if report.kind == "multiple_choice"
        else _USE,
    ).render()


def usual_differences(check: Checked) -> str:
    """The differences of a runtime in words."""
    found = check.differences
    usual = {output: f" ({share:.1%} of its spread as a rule)" for output, share in found.relative.items()}
    return ", ".join(
        f"{output} {largest:.2g}{usual[output] if largest > TOLERANCE else ''}"
        for output, largest in found.largest.items()
    )


def _limits(report: Exported) -> tuple[str, ...]:
    limits = [
        "Differences are absolute, from what albert computes in float32, over random batches of mixed lengths. "
        "OpenVINO computes in bfloat16 by itself where the processor can; INFERENCE_PRECISION_HINT f32 gives these "
        "figures."
    ]
    if report.precision == "int8":
        limits.append(
            "Weights are integers with a scale for each output, activations with a scale for each token, so no answer "
            "depends on what shares its batch. On x86 processors without VNNI such products may saturate. What int8 "
            "does to a task's score, these differences do not show: evaluate it."
        )
    if report.window is not None:
        limits.append(
            f"Attention in a window of {report.window} tokens is computed as dense attention under a mask: the numbers "
            "are the same, memory grows with the square of the length."
        )
    if report.left_out:
        limits.append(f"Not in it, because nobody trained it: {report.left_out}.")
    return tuple(limits)


# --------------------------------------------------------------------------------------------------------------------
# An ONNX file in ONNX Runtime and, where it is installed, in OpenVINO: padded batches in, one output a sequence.

Run = Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]
_ERRORS_ONLY = 3


def runtimes(file: Path) -> Iterator[tuple[str, Run]]:
    """The runtimes that are installed, by name, each with the file opened on the CPU."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    yield (
        f"ONNX Runtime {onnxruntime.__version__}",
        lambda given: dict(zip(names, session.run(names, given), strict=True)),  # type: ignore[arg-type]
    )
    if importlib.util.find_spec("openvino") is not None:
        openvino: Any = load_by_name("openvino")
        # left to itself it computes in bfloat16 where the processor can
        compiled = openvino.Core().compile_model(str(file), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})

        def run(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            found = compiled(given)
            return {name: found[name] for name in names}

        yield f"OpenVINO {openvino.__version__.split('-')[0]}", run


def padded(batch: int8.SampleBatch, kind: Kind) -> dict[str, np.ndarray]:
    """A batch as the inputs of the file: rectangles, filled up with zeros that the mask leaves out."""
    shape = (len(batch.ids), max(map(len, batch.ids)))
    arrays = [np.zeros(shape, np.int64) for _ in onnx_graph.INPUTS]
    for row, (ids, types) in enumerate(zip(batch.ids, batch.types, strict=True)):
        for array, values in zip(arrays, (ids, 1, types), strict=True):
            array[row, : len(ids)] = values
    if kind == "multiple_choice":
        arrays = [array.reshape(-1, 2, shape[1]) for array in arrays]
    return dict(zip(onnx_graph.INPUTS, arrays, strict=True))


def by_sequence(
    given: Mapping[str, np.ndarray], axes: Mapping[str, onnx_graph.Axes], lengths: Sequence[int]
) -> int8.Outputs:
    """The file's outputs for each sequence of these lengths, without those of padding."""
    outputs: int8.Outputs = {}
    for name, values in given.items():
        rows = values.reshape(-1) if "choices" in axes[name] else values
        pairs = zip(map(np.asarray, rows), lengths, strict=True)
        per_token = "sequence" in axes[name]
        outputs[name] = [row[:length] if per_token else row for row, length in pairs]
    return outputs


MODEL_NAME = "model.onnx"
EXPORT_KEY = "albert_onnx"
"""In `config.json`."""


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """What is written."""

    precision: onnx_graph.OnnxPrecision = "fp32"
    opset: int = 20
    depth: int | None = None


def export_onnx(
    source: str | Path,
    output: Path,
    settings: ExportSettings,
    *,
    revision: str | None = None,
    replace: bool = False,
) -> Exported:
    """Write a model as ONNX: a directory with its tokenizer and a card, or a file alone when `output` ends in .onnx.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: the model cannot be opened, or not be written so.
        CheckFailed: a runtime gives other numbers than we do; nothing is written.
        CannotCreate: the output exists.
    """
    if not onnx_graph.LOWEST_OPSET <= settings.opset <= onnx_graph.HIGHEST_OPSET:
        why = f"is {settings.opset}, operators of {onnx_graph.LOWEST_OPSET} to {onnx_graph.HIGHEST_OPSET} are written"
        raise InvalidConfiguration("opset", why, "20 is what runtimes since 2024 open")
    if output.exists() and not replace:
        raise CannotCreate(output, "exists already", "choose another name, or add --replace")
    directory = find_model(source, revision)
    trained = open_trained(directory)
    if trained.kind == "pair_classification":
        why = "reads the texts of a pair separately, a graph here reads one sequence"
        raise InvalidConfiguration(
            directory, why, "fine-tune with --encode-pairs together, or serve it with albert serve"
        )
    tokenizer = load_tokenizer(directory) if vocabulary_file(directory).is_file() else None
    config, extra = trained.opened.config, trained.opened.extra
    if tokenizer is not None:
        refuse_foreign_tokenizer(tokenizer, directory, config, extra)
    depth = config.num_hidden_layers if settings.depth is None else settings.depth
    run_to_depth(trained.opened.model, depth)
    told = {
        "producer": f"albert {__version__}",
        "architecture": type(trained.opened.model).__name__,
        "precision": settings.precision,
        "layers": str(depth),
        **({} if tokenizer is None else {FINGERPRINT_KEY: tokenizer.fingerprint}),
    }
    graph = onnx_graph.export_graph(trained.opened.model, trained.kind, settings.precision, settings.opset, told)
    if output.suffix == ".onnx":
        with new_file(output) as file:
            return _written(file, graph, trained, settings, depth)
    with new_directory(output, replace=replace) as made:
        report = _written(made / MODEL_NAME, graph, trained, settings, depth)
        if tokenizer is not None:
            tokenizer.save(made)
        content = read_json_object(directory / CONFIG_NAME)
        content.pop(QUANTIZATION_KEY, None)
        save_json(made / CONFIG_NAME, content | {EXPORT_KEY: told | {"opset": settings.opset}})
        card = onnx_card(output.name, directory.name, report, tokenizer is not None, extra.get(OBJECTIVE_KEY) == "nsp")
        write_text(made / CARD_NAME, card)
    return report


def _written(
    file: Path, graph: onnx_graph.ExportedGraph, trained: TrainedModel, settings: ExportSettings, depth: int
) -> Exported:
    file.write_bytes(graph.model.SerializeToString())
    note_written(file)
    return Exported(
        kind=trained.kind,
        left_out=trained.left_out,
        precision=settings.precision,
        opset=settings.opset,
        depth=depth,
        window=trained.opened.config.effective_window,
        outputs=graph.outputs,
        bytes=file.stat().st_size,
        weight_bytes=4 * sum(parameter.numel() for parameter in trained.opened.model.parameters()),
        checks=tuple(_check(file, graph, trained, settings.precision)),
    )


def _check(
    file: Path, graph: onnx_graph.ExportedGraph, trained: TrainedModel, precision: onnx_graph.OnnxPrecision
) -> Iterator[Checked]:
    batches = int8.sample_batches(trained.opened.config)
    with progress("Checking", total=None, unit="batches") as bar:
        ours = []
        for batch in batches:
            ours.append(int8.model_outputs(trained.opened.model, trained.kind, batch))
            bar.advance()
        for name, run in runtimes(file):
            theirs = []
            for batch in batches:
                lengths = [len(ids) for ids in batch.ids]
                theirs.append(by_sequence(run(padded(batch, trained.kind)), graph.outputs, lengths))
                bar.advance()
            found = int8.output_differences(ours, theirs)
            for output, largest in found.largest.items():
                if not largest <= (TOLERANCE if precision == "fp32" else float_info.max):
                    why = f"{output} differs by {largest:.3g} from albert's in {name}, {TOLERANCE} is the limit"
                    raise CheckFailed(file.name, why, "nothing was written; this is a bug, please report it")
            yield Checked(name, found)
