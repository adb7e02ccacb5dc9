"""A trained model to an ONNX file, beside its tokenizer, written only when its answers are ours.

The file is opened in every runtime that is there and asked for random batches of mixed lengths; float32 outputs are
within 1e-4 of ours or nothing is written. How far int8 is off is told.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from sys import float_info

from albert import __version__
from albert.checkpoints.config_file import CONFIG_NAME
from albert.checkpoints.int8_weights import QUANTIZATION_KEY
from albert.checkpoints.kinds import OBJECTIVE_KEY
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import CARD_NAME, FINGERPRINT_KEY
from albert.checkpoints.model_tokenizer import refuse_foreign_tokenizer
from albert.inference.onnx_export.card import onnx_card, usual_differences
from albert.inference.onnx_export.graph_writer import HIGHEST_OPSET, LOWEST_OPSET
from albert.inference.onnx_export.model_graph import ExportedGraph, OnnxPrecision, export_graph
from albert.inference.onnx_export.report import TOLERANCE, Checked, Exported
from albert.inference.onnx_export.runtimes import by_sequence, padded, runtimes
from albert.inference.sample_outputs import model_outputs, output_differences, sample_batches
from albert.inference.trained_model import TrainedModel, open_trained
from albert.model.depth import run_to_depth
from albert.runtime.durable_files import new_directory, new_file, note_written, write_text
from albert.runtime.errors import CannotCreate, CheckFailed, InvalidConfiguration
from albert.runtime.progress import progress
from albert.runtime.strict_json import read_json_object, save_json
from albert.text.tokenizer_directory import load_tokenizer, vocabulary_file

__all__ = ["ExportSettings", "export_onnx", "usual_differences"]

MODEL_NAME = "model.onnx"
EXPORT_KEY = "albert_onnx"
"""In `config.json`."""


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """What is written.

    Args:
        precision: of products with weights.
        opset: the version of ONNX's operators.
        depth: layers; None: as many as the model has.
    """

    precision: OnnxPrecision = "fp32"
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

    Args:
        source: a model directory, a run, or a Hub id.
        output: where.
        settings: what.
        revision: a branch, tag or commit of a Hub repository.
        replace: whether an existing output may give way.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: the model cannot be opened, or not be written so.
        CheckFailed: a runtime gives other numbers than we do; nothing is written.
        CannotCreate: the output exists.
    """
    if not LOWEST_OPSET <= settings.opset <= HIGHEST_OPSET:
        why = f"is {settings.opset}, operators of {LOWEST_OPSET} to {HIGHEST_OPSET} are written"
        raise InvalidConfiguration("opset", why, "20 is what runtimes since 2024 open")
    if output.exists() and not replace:
        raise CannotCreate(output, "exists already", "choose another name, or add --replace")
    directory = find_model(source, revision)
    trained = open_trained(directory)
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
    graph = export_graph(trained.opened.model, trained.kind, settings.precision, settings.opset, told)
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


def _written(file: Path, graph: ExportedGraph, trained: TrainedModel, settings: ExportSettings, depth: int) -> Exported:
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


def _check(file: Path, graph: ExportedGraph, trained: TrainedModel, precision: OnnxPrecision) -> Iterator[Checked]:
    batches = sample_batches(trained.opened.config)
    with progress("Checking", total=None, unit="batches") as bar:
        ours = []
        for batch in batches:
            ours.append(model_outputs(trained.opened.model, trained.kind, batch))
            bar.advance()
        for name, run in runtimes(file):
            theirs = []
            for batch in batches:
                lengths = [len(ids) for ids in batch.ids]
                theirs.append(by_sequence(run(padded(batch, trained.kind)), graph.outputs, lengths))
                bar.advance()
            found = output_differences(ours, theirs)
            for output, largest in found.largest.items():
                if not largest <= (TOLERANCE if precision == "fp32" else float_info.max):
                    why = f"{output} differs by {largest:.3g} from albert's in {name}, {TOLERANCE} is the limit"
                    raise CheckFailed(file.name, why, "nothing was written; this is a bug, please report it")
            yield Checked(name, found)
