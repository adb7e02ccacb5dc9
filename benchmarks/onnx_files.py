"""ONNX files of one model: what albert exports, and what transformers' model becomes with the tools its users take.

The peers are torch.onnx.export of `AlbertForMaskedLM`, its dynamic quantisation by ONNX Runtime (per channel), and
ONNX Runtime's transformer optimizer, which is what Optimum applies; Optimum's own exporter needs an older transformers.
Every file answers the same padded batch in ONNX Runtime; differences are from transformers' float32 logits at real
tokens. Nothing is timed.

    python benchmarks/onnx_files.py --preset albert-base
"""

import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from harness import append_rows
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.optimizer import optimize_model

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.options import parse
from albert.inference.onnx_export import ExportSettings, export_onnx
from albert.model.albert import AlbertForMaskedLM
from albert.model.config import PRESETS, AlbertConfig
from albert.runtime.progress import progress

LENGTHS = (40, 9, 25, 17)
INPUTS = ("input_ids", "attention_mask", "token_type_ids")
SPREAD = 0.05
"""Of random weights: attention that is not uniform, as in a trained model."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Export one model with random weights in every way, and compare sizes and answers.

    Example: python benchmarks/onnx_files.py --preset albert-base
    """

    preset: str = "albert-base"
    layers: int | None = None
    """In place of the preset's."""
    output: Path = Path("results/benchmark-onnx-files.csv")


def main(arguments: list[str]) -> None:
    """Export, measure and report."""
    asked = parse(Benchmark, arguments, "onnx_files.py")
    config = replace(PRESETS[asked.preset], initializer_range=SPREAD)
    if asked.layers is not None:
        config = replace(config, num_hidden_layers=asked.layers)
    with tempfile.TemporaryDirectory() as folder:
        rows = list(compare(asked.preset, config, Path(folder)))
    for row in rows:
        print(
            f"{row['system']}, {row['precision']}: {row['bytes'] / 1e6:,.1f} MB, {row['times_safetensors']:.2f} × the "
            f"safetensors, {row['nodes']} nodes, logits off by {row['largest_difference']:.2g} at most"
        )
    append_rows(asked.output, list(rows[0]), rows, same=("model", "system", "precision"))


def compare(name: str, config: AlbertConfig, folder: Path) -> Iterator[dict[str, object]]:
    """A row for each way of making a file."""
    torch.manual_seed(0)
    model = folder / "model"
    save_model_directory(model, AlbertForMaskedLM(config), None)
    peer = transformers.AlbertForMaskedLM.from_pretrained(model, attn_implementation="eager").eval()
    given, real = batch(config.vocab_size)
    with torch.inference_mode():
        expected = peer(**{key: torch.from_numpy(values) for key, values in given.items()}).logits.numpy()[real]
    weights = (model / "model.safetensors").stat().st_size
    files = folder / "files"
    files.mkdir()
    with progress("Exporting", total=len(WAYS), unit="files") as bar:
        for (system, precision), write in WAYS.items():
            file = files / f"{system}-{precision}.onnx".replace(" ", "-")
            write(model, peer, file)
            session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
            off = session.run(["logits"], given)[0][real] - expected
            graph = onnx.load(file)
            yield {
                "model": f"{name} L{config.num_hidden_layers}",
                "system": system,
                "precision": precision,
                "opset": max(each.version for each in graph.opset_import if each.domain in ("", "ai.onnx")),
                "bytes": _size(file),
                "times_safetensors": round(_size(file) / weights, 3),
                "nodes": len(graph.graph.node),
                "largest_difference": float(f"{np.abs(off).max():.3g}"),
                "relative_difference": float(f"{np.sqrt(np.mean(off**2)) / expected.std():.3g}"),
            }
            bar.advance()


def batch(vocabulary: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Random tokens padded on the right, and which of them are none of the padding."""
    draws = np.random.default_rng(0)
    ids, mask, types = (np.zeros((len(LENGTHS), max(LENGTHS)), np.int64) for _ in range(3))
    for row, length in enumerate(LENGTHS):
        ids[row, :length], mask[row, :length] = draws.integers(5, vocabulary, length), 1
        types[row, length // 2 : length] = 1
    return dict(zip(INPUTS, (ids, mask, types), strict=True)), mask.astype(bool)


def _size(file: Path) -> int:
    """With the weights that may lie beside it."""
    return sum(part.stat().st_size for part in (file, Path(f"{file}.data")) if part.exists())


def _ours(precision: str) -> "Way":
    def write(model: Path, peer: torch.nn.Module, file: Path) -> None:
        export_onnx(model, file, ExportSettings(precision=precision))  # type: ignore[arg-type]

    return write


def _torch(model: Path, peer: torch.nn.Module, file: Path) -> None:
    example = {key: torch.ones(2, 8, dtype=torch.int64) for key in INPUTS}
    axes = {key: {0: torch.export.Dim("batch"), 1: torch.export.Dim("sequence")} for key in INPUTS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(
            peer,
            kwargs=example,
            dynamo=True,
            dynamic_shapes=axes,
            input_names=list(INPUTS),
            output_names=["logits"],
            external_data=False,
            verbose=False,
        ).save(file)


def _optimized(model: Path, peer: torch.nn.Module, file: Path) -> None:
    source = file.with_name("for-the-optimizer.onnx")
    _torch(model, peer, source)
    config = peer.config
    made = optimize_model(str(source), "bert", config.num_attention_heads, config.hidden_size, opt_level=1)
    made.save_model_to_file(str(file))


def _quantized(first: "Way") -> "Way":
    def write(model: Path, peer: torch.nn.Module, file: Path) -> None:
        source = file.with_name("to-quantize.onnx")
        first(model, peer, source)
        graph = onnx.load(source)
        del graph.graph.value_info[:]  # shapes that the exporter noted and the quantiser contradicts
        onnx.save(graph, source)
        # Types behind the optimizer's own operators are not inferred.
        options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantize_dynamic(source, file, per_channel=True, weight_type=QuantType.QInt8, extra_options=options)

    return write


Way = Callable[[Path, torch.nn.Module, Path], None]
"""Writes a file, given our model directory and transformers' model."""
WAYS: dict[tuple[str, str], Way] = {
    ("albert", "fp32"): _ours("fp32"),
    ("albert", "int8"): _ours("int8"),
    ("torch.onnx", "fp32"): _torch,
    ("torch.onnx and ONNX Runtime quantisation", "int8"): _quantized(_torch),
    ("torch.onnx and ONNX Runtime optimizer", "fp32"): _optimized,
    ("torch.onnx, ONNX Runtime optimizer and quantisation", "int8"): _quantized(_optimized),
}

if __name__ == "__main__":
    import sys

    logging.disable(logging.WARNING)
    main(sys.argv[1:])
