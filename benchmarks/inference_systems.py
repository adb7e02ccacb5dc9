"""What inference.py compares: this package's encoder and the ways in which ALBERT is deployed on CPUs today.

All have one set of weights, read from one model directory of transformers' layout, and give the last layer's states.
Ours packs sequences; the others pad a batch to its longest sequence, with a mask. ONNX Runtime and OpenVINO run what
torch.onnx makes of transformers' model. Their int8 is made as their makers advise: ONNX Runtime's by its transformer
optimiser and dynamic quantisation per channel; OpenVINO's by NNCF (transformer model, smooth quantisation) where it is
installed (`pip install nncf`), which is calibrated on sequences like those that are measured.
"""

import os
import tempfile
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from albert.checkpoints.model_directory import open_model
from albert.inference.engine import PackedModel

Batch = Sequence[np.ndarray]
"""Token ids of each sequence."""
Run = Callable[[Batch], list[np.ndarray]]
"""A batch to the last layer's states of each sequence, [length, H]."""
CPU = torch.device("cpu")
OURS = ("albert fp32", "albert bf16", "albert int8")
TRANSFORMERS = (
    "transformers eager fp32",
    "transformers eager bf16",
    "transformers sdpa fp32",
    "transformers sdpa bf16",
)
COMPILED = ("transformers compiled fp32", "transformers compiled bf16")
RUNTIMES = ("onnxruntime fp32", "onnxruntime int8", "openvino fp32", "openvino bf16", "openvino int8")
_OPSET = 18


def needed_files(names: Sequence[str], model: Path, folder: Path, examples: Batch) -> None:
    """Make the files that the systems of these names open, once for all processes.

    Args:
        names: of systems.
        model: a directory in transformers' layout.
        folder: where they are written.
        examples: sequences to calibrate with.
    """
    runtimes = [name for name in names if name in RUNTIMES]
    if "openvino int8" in runtimes and find_spec("nncf") is None:
        raise SystemExit("openvino int8: NNCF quantises for OpenVINO; pip install nncf, or leave the system out")
    if runtimes:
        _export(model, folder / "plain.onnx")
    if "onnxruntime int8" in runtimes:
        _quantize_dynamically(model, folder)
    if "openvino int8" in runtimes:
        _quantize_with_nncf(folder, examples)


def build(name: str, model: Path, folder: Path) -> Run:
    """One of them, opened and ready.

    Args:
        name: as listed above.
        model: a directory in transformers' layout.
        folder: where `needed_files` wrote.
    """
    system, *way, precision = name.split()
    if system == "albert":
        return _ours(model, precision)
    if system == "transformers":
        return _transformers(model, way[0], precision)
    return (_onnxruntime if system == "onnxruntime" else _openvino)(folder, precision)


def _ours(model: Path, precision: Any) -> Run:
    packed = PackedModel(open_model(model, "encoder").model, CPU, precision=precision)
    return lambda batch: packed.rows(batch, [np.zeros_like(ids) for ids in batch])


def _transformers(directory: Path, way: str, precision: str) -> Run:
    from transformers import AlbertModel

    attention = "eager" if way == "eager" else "sdpa"
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    model = AlbertModel.from_pretrained(directory, attn_implementation=attention, dtype=dtype).eval()
    called = torch.compile(model) if way == "compiled" else model

    def run(batch: Batch) -> list[np.ndarray]:
        with torch.inference_mode():
            rows = {name: torch.from_numpy(column) for name, column in padded(batch).items()}
            return _cut(called(**rows).last_hidden_state.float().numpy(), batch)

    return run


def _onnxruntime(folder: Path, precision: str) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    file = folder / ("dynamic-int8.onnx" if precision == "int8" else "plain.onnx")
    session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    taken = [each.name for each in session.get_inputs()]

    def run(batch: Batch) -> list[np.ndarray]:
        columns = padded(batch)
        (states, *_) = session.run(None, {name: columns[name] for name in taken})
        return _cut(states, batch)

    return run


def _openvino(folder: Path, precision: str) -> Run:
    import openvino

    core = openvino.Core()
    file = folder / ("nncf-int8.xml" if precision == "int8" else "plain.onnx")
    hints = {
        "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
    }
    compiled = core.compile_model(core.read_model(file), "CPU", hints)
    taken = [each.get_any_name() for each in compiled.inputs]
    request = compiled.create_infer_request()

    def run(batch: Batch) -> list[np.ndarray]:
        columns = padded(batch)
        found = request.infer({name: columns[name] for name in taken}, share_inputs=True, share_outputs=True)
        return _cut(found[0], batch)

    return run


def padded(batch: Batch) -> dict[str, np.ndarray]:
    """Rows of one length, with zeros behind the tokens, as transformers takes them."""
    shape = (len(batch), max(map(len, batch)))
    columns = {name: np.zeros(shape, np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")}
    for row, ids in enumerate(batch):
        columns["input_ids"][row, : len(ids)] = ids
        columns["attention_mask"][row, : len(ids)] = 1
    return columns


def _cut(states: np.ndarray, batch: Batch) -> list[np.ndarray]:
    return [row[: len(ids)].copy() for row, ids in zip(states, batch, strict=True)]


def _export(model: Path, file: Path) -> None:
    from transformers import AlbertModel

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.albert = AlbertModel.from_pretrained(model, attn_implementation="eager").eval()

        def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
            return self.albert(input_ids, attention_mask, token_type_ids).last_hidden_state

    examples = padded([np.arange(5, 21), np.arange(5, 14)])
    axes = {0: torch.export.Dim("batch", min=1, max=4096), 1: torch.export.Dim("length", min=2, max=512)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about its own parts
        torch.onnx.export(
            States(),
            tuple(map(torch.from_numpy, examples.values())),
            str(file),
            input_names=list(examples),
            output_names=["states"],
            dynamic_shapes=dict.fromkeys(examples, axes),
            opset_version=_OPSET,
            external_data=False,
            dynamo=True,
            verbose=False,
        )


def _quantize_dynamically(model: Path, folder: Path) -> None:
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.optimizer import optimize_model
    from transformers import AlbertConfig

    config = AlbertConfig.from_pretrained(model)
    heads, width = config.num_attention_heads, config.hidden_size
    optimised = optimize_model(str(folder / "plain.onnx"), "bert", num_heads=heads, hidden_size=width, opt_level=1)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        file = os.path.join(place, "optimised.onnx")
        optimised.save_model_to_file(file)
        quantize_dynamic(file, str(folder / "dynamic-int8.onnx"), per_channel=True, weight_type=QuantType.QInt8)


def _quantize_with_nncf(folder: Path, examples: Batch) -> None:
    import nncf
    import openvino

    batches = [padded(examples[first : first + 8]) for first in range(0, len(examples), 8)]
    quantized = nncf.quantize(
        openvino.Core().read_model(folder / "plain.onnx"),
        nncf.Dataset(batches),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(batches),
    )
    openvino.save_model(quantized, folder / "nncf-int8.xml", compress_to_fp16=False)
