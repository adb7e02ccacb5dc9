"""A model directory whose matrices are 8-bit integers: a quarter of the size, opened by everything of ours.

Every matrix gets a scale for each of its rows, an output of a map or a piece of the vocabulary; biases, LayerNorms and
the few rows of a small head stay as they are. What only transformers needs is left out: copies of tied matrices, and
the identity map of a model whose embeddings have no projection. `albert.checkpoints.int8_weights` is the format.
"""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from albert.checkpoints.card import ModelCard
from albert.checkpoints.config_file import CONFIG_NAME
from albert.checkpoints.int8_weights import FORMAT, INT8_WEIGHTS_NAME, QUANTIZATION_KEY, stored_names
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import CARD_NAME, FINGERPRINT_KEY
from albert.checkpoints.model_tokenizer import refuse_foreign_tokenizer
from albert.checkpoints.tensor_files import stored_tensors, write_tensors
from albert.inference.int8_matrices import quantize_matrix
from albert.inference.sample_outputs import OutputDifferences, model_outputs, output_differences, sample_batches
from albert.inference.trained_model import TrainedModel, open_trained
from albert.runtime.durable_files import new_directory, write_text
from albert.runtime.errors import UsageError
from albert.runtime.strict_json import read_json_object, save_json
from albert.text.tokenizer_directory import load_tokenizer, vocabulary_file

FEWEST_ROWS = 16
_USE = """```python
import albert

model = albert.load("{name}")
print(model.abilities)
```

albert restores the matrices when it opens them. transformers finds no weights here: the integers lie in
`model.int8.safetensors`, under names that no other library takes for weights."""


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """What became of a model.

    Args:
        matrices: how many are integers now.
        bytes_before, bytes_after: of the weights, as they were stored and as they are.
        moved: how far the outputs are from those of the original, over random batches.
    """

    matrices: int
    bytes_before: int
    bytes_after: int
    moved: OutputDifferences


def is_worth_quantizing(weight: Tensor) -> bool:
    """Whether it is a matrix of at least 16 rows and columns: fewer save nothing, and a head's decide."""
    return weight.ndim == 2 and min(weight.shape) >= FEWEST_ROWS


def quantize_directory(
    source: str | Path, output: Path, *, revision: str | None = None, replace: bool = False
) -> Quantized:
    """Write a model again, with integers for matrices.

    Args:
        source: a model directory, a run, or a Hub id.
        output: the directory to write.
        revision: a branch, tag or commit of a Hub repository.
        replace: whether an existing output may give way.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: the model cannot be opened.
        UsageError: it is quantised already.
        CannotCreate: the output exists.
    """
    directory = find_model(source, revision)
    content = read_json_object(directory / CONFIG_NAME)
    if QUANTIZATION_KEY in content:
        raise UsageError(directory, "is quantised already")
    before = open_trained(directory)
    stored = stored_tensors(directory)
    with new_directory(output, replace=replace) as made:
        if vocabulary_file(directory).is_file():
            tokenizer = load_tokenizer(directory)
            refuse_foreign_tokenizer(tokenizer, directory, before.opened.config, before.opened.extra)
            tokenizer.save(made)
        # Rounded, the identity map of a model without a projection would be the identity no more.
        needless = before.opened.loading_report.dropped
        tensors, matrices = _quantized(stored.read([name for name in stored.by_name if name not in needless]))
        write_tensors(made / INT8_WEIGHTS_NAME, tensors)
        save_json(made / CONFIG_NAME, content | {QUANTIZATION_KEY: {"format": FORMAT, "matrices": matrices}})
        report = Quantized(
            matrices=matrices,
            bytes_before=sum(tensor.n_bytes for tensor in stored.by_name.values()),
            bytes_after=(made / INT8_WEIGHTS_NAME).stat().st_size,
            moved=_moved(before, open_trained(made)),
        )
        write_text(made / CARD_NAME, _card(output.name, before, directory, report))
    return report


def _moved(before: TrainedModel, after: TrainedModel) -> OutputDifferences:
    mine, theirs = (
        [model_outputs(each.opened.model, each.kind, batch) for batch in sample_batches(each.opened.config)]
        for each in (before, after)
    )
    return output_differences(mine, theirs)


def _quantized(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    """The tensors as they are stored, and how many are integers."""
    made: dict[str, Tensor] = {}
    matrices = [name for name, tensor in tensors.items() if tensor.is_floating_point() and is_worth_quantizing(tensor)]
    for name, tensor in tensors.items():
        if name in matrices:
            values, scale = stored_names(name)
            made[values], made[scale] = quantize_matrix(tensor.float())
        elif tensor.is_floating_point():  # what is not is a relic that says nothing of the model
            made[name] = tensor
    return made, len(matrices)


def _card(name: str, model: TrainedModel, source: Path, report: Quantized) -> str:
    told = ", ".join(
        f"{output} by {largest:.3g} at most, {report.moved.relative[output]:.2%} of its spread as a rule"
        for output, largest in report.moved.largest.items()
    )
    return ModelCard(
        name=name,
        architecture=str((model.opened.extra.get("architectures") or ["AlbertModel"])[0]),
        description=f"{source.name} with its matrices as 8-bit integers, one scale for each row: "
        f"{report.bytes_after / 1e6:,.1f} MB of weights in place of {report.bytes_before / 1e6:,.1f} MB.",
        parameters={"all": sum(parameter.numel() for parameter in model.opened.model.parameters())},
        recipe={"format": FORMAT, "matrices": report.matrices, "tokenizer": model.opened.extra.get(FINGERPRINT_KEY)},
        limits=(
            f"Over random tokens its outputs differ from those of the original: {told}. What that does to a task's "
            "score, `albert evaluate` says.",
            "transformers does not open this directory: it finds no weights that it knows.",
        ),
        location="path/to/this/directory",
        use=_USE,
    ).render()
