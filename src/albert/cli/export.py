"""`albert export`: a model in the format of another runtime."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.console import open_console
from albert.cli.light_tables import bytes_of, facts
from albert.cli.subcommands import dispatch
from albert.inference.embedding import Pooling
from albert.inference.sentence_transformers_files import save_for_sentence_transformers
from albert.runtime.late_modules import load_by_name

USAGE = """usage: albert export FORMAT MODEL --output PATH [options]

Formats:
  onnx                    one file for ONNX Runtime, OpenVINO and whatever else reads ONNX
  sentence-transformers   a directory that SentenceTransformer(PATH) opens, for the vectors of texts

Examples:
  albert export onnx runs/stars/model --output models/stars-onnx
  albert export sentence-transformers runs/mine/model --output models/vectors --normalize"""


@dataclass(frozen=True, kw_only=True)
class ExportOnnx:
    """Write a model as one ONNX file in which the weights that layers share stand once.

    Inputs are input_ids, attention_mask and token_type_ids, any batch and length, padded on the right. The file is
    opened in ONNX Runtime, and in OpenVINO where it is installed; outputs in float32 are within 1e-4 of albert's over
    random batches of mixed lengths, or nothing is written.

    Example: albert export onnx runs/stars/model --output models/stars-onnx --precision int8
    """

    model: Positional[str]
    """A model directory, a run, or a Hub id."""
    output: Path
    """A directory, for the file with tokenizer, config.json and card; or the file alone, with a name in .onnx."""
    precision: Literal["fp32", "int8"] = "fp32"
    """Of products with weights. int8 keeps each shared matrix once, as integers with a scale for each output."""
    opset: int = 20
    """The version of ONNX's operators, 17 to 24."""
    depth: int | None = None
    """Layers to apply; all by default. A model whose layers are one layer may go deeper than it was trained."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    replace: bool = False
    """Replace an existing output."""


@dataclass(frozen=True, kw_only=True)
class ExportSentenceTransformers:
    """Copy a model to a directory that sentence-transformers opens, and albert and transformers as before.

    Its `encode` gives the vectors that `albert.load(PATH).embed` gives.

    Example: albert export sentence-transformers runs/mine/model --output models/vectors --normalize
    """

    model: Positional[str]
    """A model directory, a run, or a Hub id."""
    output: Path
    """The directory to write."""
    pooling: Pooling = "mean"
    """How tokens become the vector of a text: the mean of all, [CLS] and [SEP] among them, or what stands at [CLS]."""
    normalize: bool = False
    """Vectors of length 1."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    replace: bool = False
    """Replace an existing output."""


def main(arguments: list[str]) -> int:
    """Run `albert export`."""
    formats = {"onnx": _onnx, "sentence-transformers": _sentence_transformers}
    return dispatch("albert export", USAGE, formats, arguments, "format")


def _onnx(arguments: list[str]) -> int:
    asked = parse(ExportOnnx, arguments, "albert export onnx")
    exporting = load_by_name("albert.inference.onnx_export.export", "onnx")
    settings = exporting.ExportSettings(precision=asked.precision, opset=asked.opset, depth=asked.depth)
    made = exporting.export_onnx(asked.model, asked.output, settings, revision=asked.revision, replace=asked.replace)
    told: dict[str, object] = {
        "graph": f"{made.kind}, {made.depth} layers, {made.precision}, opset {made.opset}",
        "file": f"{bytes_of(made.bytes)}, {made.bytes / made.weight_bytes:.1%} of the weights in float32",
        "outputs": ", ".join(f"{output} [{', '.join(map(str, axes))}]" for output, axes in made.outputs.items()),
    }
    if made.left_out:
        told["left out"] = f"{made.left_out}: nobody trained it"
    told |= {check.runtime: f"largest difference: {exporting.usual_differences(check)}" for check in made.checks}
    told["written"] = asked.output
    console = open_console()
    console.print(facts("albert export onnx", told))
    console.print(
        f"next: albert verify {shlex.quote(str(asked.output))}" if asked.output.is_dir() else "", markup=False
    )
    return 0


def _sentence_transformers(arguments: list[str]) -> int:
    asked = parse(ExportSentenceTransformers, arguments, "albert export sentence-transformers")
    vectors = save_for_sentence_transformers(
        asked.model, asked.output, asked.pooling, asked.normalize, revision=asked.revision, replace=asked.replace
    )
    pooled = "the mean over all tokens" if asked.pooling == "mean" else "what stands at [CLS]"
    told: dict[str, object] = {
        "vectors": f"{vectors.width} numbers, {pooled}{', of length 1' if asked.normalize else ''}",
        "texts": f"of at most {vectors.longest} tokens; sentence-transformers cuts longer ones without a word",
        "written": asked.output,
    }
    console = open_console()
    console.print(facts("albert export sentence-transformers", told))
    console.print(f"next: SentenceTransformer({str(asked.output)!r}).encode(texts)", markup=False)
    return 0
