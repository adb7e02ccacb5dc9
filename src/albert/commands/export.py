"""`albert export`: a model as one ONNX file, or for sentence-transformers."""

import os
import shlex
from pathlib import Path
from typing import Literal

from albert.cli.command_line import CommandGroup
from albert.cli.main import imports
from albert.cli.render import key_value_table, next_line, open_console, print_lines
from albert.cli.signature import PathLike
from albert.commands.function import command, on_command_line
from albert.runtime.environment import lazy_import
from albert.runtime.words import bytes_of, counted


@command("albert export onnx")
def onnx(
    model: PathLike,
    *,
    output: PathLike,
    precision: Literal["fp32", "int8"] = "fp32",
    opset: int = 20,
    depth: int | None = None,
    replace: bool = False,
) -> None:
    """Write a model as one ONNX file; weights of shared layers are stored once.

    Inputs are input_ids, attention_mask and token_type_ids, of any batch and length, padded on the right. The file is
    checked in ONNX Runtime, and in OpenVINO if it is installed: it is written only if outputs in float32 differ from
    albert's by at most 1e-4 on random batches of mixed lengths. Of an encoder it gives the states of the tokens; the
    card has the code that makes vectors of them.

    Example: albert export onnx runs/stars/model --output models/stars-onnx --precision int8

    Args:
        model: A model directory, a run, or a Hub id.
        output: A directory for the file, tokenizer, config.json and card; or a name in .onnx for the file alone.
        precision: Of products with weights. int8 stores each shared matrix once, as integers with a scale for each
            output.
        opset: The version of ONNX's operators, 17 to 24.
        depth: Number of layers to apply; all by default. With one shared layer it may exceed the depth used in
            training.
    """
    with imports():
        exporting = lazy_import("albert.inference.onnx_export", "onnx")
    output = Path(output)
    export = exporting.export_onnx(
        os.fspath(model), output, precision=precision, opset=opset, depth=depth, replace=replace
    )
    values: dict[str, object] = {
        "graph": f"{export.kind}, {counted(export.depth, 'layers')}, {export.precision}, opset {export.opset}",
        "file": f"{bytes_of(export.bytes)}, {export.bytes / export.weight_bytes:.1%} of the weights in float32",
        "outputs": ", ".join(f"{output} [{', '.join(map(str, axes))}]" for output, axes in export.outputs.items()),
    }
    if export.left_out:
        values["left out"] = f"{export.left_out}: it was not trained"
    values |= {
        check.runtime: f"largest difference from albert: {exporting.format_differences(check)}"
        for check in export.checks
    }
    values["written"] = output
    verify = next_line(f"info {shlex.quote(str(output))} --verify") if output.is_dir() else ""
    print_lines(open_console(), key_value_table("albert export onnx", values), verify)


@command("albert export sentence-transformers")
def sentence_transformers(
    model: PathLike,
    *,
    output: PathLike,
    pooling: Literal["mean", "cls", "max"] | None = None,
    normalize: bool | None = None,
    replace: bool = False,
) -> None:
    """Copy a model to a directory for sentence-transformers, in float32; albert opens it as well.

    Its `encode` returns the embeddings of `albert.load(PATH).embed`, but for texts that contain a special token such as
    [SEP], which albert reads as text.

    Example: albert export sentence-transformers small-vectors --output models/vectors

    Args:
        model: A model directory, a run, or a Hub id.
        output: The directory to write.
        pooling: How tokens become the embedding of a text: the mean of all, including [CLS] and [SEP], the state of
            [CLS], or the maximum of all. When not set: as the model's files say, else mean.
        normalize: Scale embeddings to length 1; when not set: as the model's files say, else no.
    """
    with imports():
        from albert.checkpoints.sentence_transformers import POOLED, read_sentence_vectors
        from albert.inference.sentence_transformers_export import save_for_sentence_transformers

    output = Path(output)
    width, max_length = save_for_sentence_transformers(os.fspath(model), output, pooling, normalize, replace=replace)
    vectors = read_sentence_vectors(output) or {}
    pooled = POOLED[str(vectors["pooling"])]
    values: dict[str, object] = {
        "vectors": f"{width} numbers, {pooled}{', of length 1' if vectors['normalize'] else ''}",
        "texts": f"of at most {max_length} tokens; sentence-transformers cuts longer ones without a message",
        "written": output,
    }
    use = f"next: SentenceTransformer({str(output)!r}).encode(texts)"
    print_lines(open_console(), key_value_table("albert export sentence-transformers", values), use)


export_main = CommandGroup(
    "albert export",
    {
        "onnx": on_command_line(onnx),
        "sentence-transformers": on_command_line(sentence_transformers),
    },
    "format",
)
