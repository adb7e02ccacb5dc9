"""What `albert export` is asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.main import load_command
from albert.cli.subcommands import dispatch

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
    pooling: Literal["mean", "cls"] = "mean"
    """How tokens become the vector of a text: the mean of all, [CLS] and [SEP] among them, or what stands at [CLS]."""
    normalize: bool = False
    """Vectors of length 1."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    replace: bool = False
    """Replace an existing output."""


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert export`."""
    return dispatch("albert export", USAGE, {"onnx": _onnx, "sentence-transformers": _sentence}, arguments, "format")


def _onnx(arguments: list[str]) -> int:
    asked = parse(ExportOnnx, arguments, "albert export onnx")
    return load_command("albert.cli.export").onnx(asked)


def _sentence(arguments: list[str]) -> int:
    asked = parse(ExportSentenceTransformers, arguments, "albert export sentence-transformers")
    return load_command("albert.cli.export").sentence_transformers(asked)
