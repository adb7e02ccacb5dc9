"""`albert export`: a model in the format of another runtime."""

import shlex

from albert.cli.console import open_console
from albert.cli.export_options import ExportOnnx, ExportSentenceTransformers
from albert.cli.light_tables import bytes_of, facts
from albert.inference.sentence_transformers_files import save_for_sentence_transformers
from albert.runtime.late_modules import load_by_name


def onnx(asked: ExportOnnx) -> int:
    """Run `albert export onnx`."""
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


def sentence_transformers(asked: ExportSentenceTransformers) -> int:
    """Run `albert export sentence-transformers`."""
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
