"""Model directories with 8-bit matrices, a quarter of float32's size; and the comparison of outputs before and after.

Every matrix gets a scale for each row (an output of a layer or a piece of the vocabulary); biases, LayerNorms and small
heads stay as they are. Tensors that only transformers needs are left out: copies of tied matrices, and the identity
matrix of a model whose embeddings have no projection. `albert.checkpoints.loading` has the format."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from albert.checkpoints import loading
from albert.checkpoints.card import CARD_NAME, Card, base_of, model_card
from albert.checkpoints.config_json import CONFIG_NAME
from albert.checkpoints.cross_encoders import activation_keys
from albert.checkpoints.hub import copy_examples, copy_task, find_model, first_example, name_of
from albert.checkpoints.huggingface import written_num_labels
from albert.checkpoints.model_directory import FINGERPRINT_KEY, require_matching_tokenizer, written_model
from albert.checkpoints.sentence_transformers import sentence_vectors_of, write_sentence_vectors
from albert.inference.abilities import TrainedModel, open_trained
from albert.inference.calibration import (
    RANDOM_TOKENS,
    calibrate,
    compute_as_in_int8,
    encoder_of,
    random_sequences,
)
from albert.inference.files import opened_input
from albert.inference.linears import is_worth_quantizing, quantize_matrix
from albert.model.albert import IMPOSSIBLE, AlbertForPairClassification
from albert.model.packing import pack, split_segments
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import MissingInput, UsageError
from albert.runtime.files import new_directory, write_text
from albert.runtime.json_files import read_json_object, save_json
from albert.runtime.manifest import LAYOUT
from albert.runtime.random_streams import stream
from albert.runtime.words import bytes_of, counted
from albert.tables.fields import text_of
from albert.tables.rows import records_of
from albert.tasks.pipeline import Pipeline
from albert.tasks.table_task import table_task_of
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# Outputs of a model for random batches of mixed lengths, named as in transformers' exports.

MAX_LENGTH = 512  # Tokens; memory for longer sequences grows with their square in other runtimes
_LENGTHS = ((1 / 64, 1 / 16), (1 / 64, 1 / 8, 1 / 16, 1 / 4, 1 / 32, 3 / 16, 1 / 8, 1 / 4), (1.0, 1 / 3))
"""Lengths of the sequences of each batch, as fractions of the longest."""
MIN_LENGTH = 5

Outputs = dict[str, list[np.ndarray]]  # Name -> an array for each sequence


class SampleBatch(NamedTuple):
    """Sequences of random tokens in two segments, int64 [length] each."""

    ids: list[np.ndarray]
    types: list[np.ndarray]


def sample_batches(config: EncoderConfig) -> list[SampleBatch]:
    """Batches of an even number of sequences, from a few tokens up to the model's positions, at most 512."""
    rng = stream("sample outputs", 0)
    longest = min(config.max_position_embeddings, MAX_LENGTH)
    second = int(config.type_vocab_size > 1)
    batches = []
    for fractions in _LENGTHS:
        lengths = [max(min(MIN_LENGTH, longest), round(fraction * longest)) for fraction in fractions]
        ids = [rng.integers(min(5, config.vocab_size - 1), config.vocab_size, length) for length in lengths]
        types = [second * (np.arange(n) >= rng.integers(1, n + 1)).astype(np.int64) for n in lengths]
        batches.append(SampleBatch(ids, types))
    return batches


def model_outputs(model: nn.Module, pipelines: Sequence[Pipeline], batch: SampleBatch) -> Outputs:
    """Outputs of a model for its pipelines, in its own precision."""
    encoder = encoder_of(model)
    types = batch.types
    reads_apart = isinstance(model, AlbertForPairClassification)
    if reads_apart:  # every sequence needs a second text
        types = [np.maximum(own, np.arange(len(own)) > 1) for own in types]
    packed = pack(batch.ids, types)
    outputs: Outputs = {}
    with torch.inference_mode():
        hidden = encoder(split_segments(packed) if reads_apart else packed)
        for pipeline in pipelines:
            for name, values in pipeline.onnx_expected(model, hidden, packed).items():
                per_token = len(values) == packed.n_tokens  # every sequence has several tokens, so the counts differ
                rows = values.split(packed.lengths) if per_token else values.unbind(0)
                outputs[name] = [row.numpy() for row in rows]
    return outputs


# --------------------------------------------------------------------------------------------------------------------
# Texts by which a model is calibrated.

CALIBRATION_TOKENS = 4096
"""Tokens that are read of a user's texts, in whole texts."""
MOST_UNKNOWN = 0.2
"""Share of unknown pieces above which texts are of another language than the tokenizer's."""


def sequences_of_file(path: Path, tokenizer: Tokenizer, positions: int, column: str = "text") -> list[np.ndarray]:
    """The first texts of a file, at least `CALIBRATION_TOKENS` tokens if it has so many.

    Args:
        path: a text on each line, or a table with this column or, without it, with a column `text`.
        positions: tokens of a text at most.

    Raises:
        MissingInput: the file has no texts.
        UsageError: the tokenizer knows too few of its pieces.
    """
    sequences: list[np.ndarray] = []
    columns = list(dict.fromkeys([column, "text"]))
    with opened_input(str(path)) as table:
        read = next((name for name in columns if name in table.names), column)
        for record in records_of(table):
            text = text_of(record.fields.get(read)) or ""
            pieces = tokenizer.encode(text)[: positions - 2] if text.strip() else []
            if pieces:
                sequences.append(np.array([tokenizer.cls_id, *pieces, tokenizer.sep_id]))
            if sum(map(len, sequences)) >= CALIBRATION_TOKENS:
                break
    if not sequences:
        remedy = f"give a text on each line, or a table with a column named {' or '.join(columns)}"
        raise MissingInput(path, "holds no texts", remedy)
    pieces = np.concatenate(sequences)
    unknown = float(np.mean(pieces == tokenizer.unk_id))
    if unknown > MOST_UNKNOWN:
        why = f"{unknown:.0%} of its pieces are unknown to the model's tokenizer"
        raise UsageError(path, why, "give texts of the language and the kind that the model will read")
    return sequences


# --------------------------------------------------------------------------------------------------------------------
# Differences of outputs.


class OutputDifferences(NamedTuple):
    """Differences from the model's outputs, by output name: the largest absolute difference, and the root mean squared
    difference relative to the output's standard deviation."""

    largest: dict[str, float]
    relative: dict[str, float]


def change_of(largest: float, relative: float) -> str:
    """How far an output moves, in words.

    Args:
        relative: the root mean square of the differences in proportion to the standard deviation of the output.
    """
    return f"at most {largest:.3g}, {typical_change(relative)}"


def typical_change(relative: float) -> str:
    """The relative part of `change_of`."""
    return f"typically {relative:.2%} of its standard deviation"


def output_differences(mine: Sequence[Outputs], theirs: Sequence[Outputs]) -> OutputDifferences:
    """Compare the outputs of batches; end logits of a beam are compared for the same starts.

    Two starts with almost the same logit may come in either order in a beam; starts in only one beam are not compared.
    """
    batches = [_pair_outputs(*outputs) for outputs in zip(mine, theirs, strict=True)]
    largest = {}
    relative = {}
    for name in batches[0]:
        rows = [pair for batch in batches for pair in batch[name]]
        ours = np.concatenate([row.ravel() for row, _ in rows]).astype(np.float64)
        absolute = np.abs(ours - np.concatenate([row.ravel() for _, row in rows]))
        spread = ours[ours > IMPOSSIBLE / 2].std()
        largest[name] = float(absolute.max(initial=0))
        relative[name] = float(np.sqrt(np.mean(absolute**2)) / max(spread, np.finfo(np.float32).tiny))
    return OutputDifferences(largest, relative)


def _pair_outputs(mine: Outputs, theirs: Outputs) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    pairs = {name: list(zip(mine[name], theirs[name], strict=True)) for name in mine if name != "start_places"}
    if "start_places" in mine:
        rows = zip(mine["start_places"], theirs["start_places"], mine["start_logits"], pairs["end_logits"], strict=True)
        ends = []
        for my_starts, their_starts, start_logits, (my_ends, their_ends) in rows:
            # The end logits of the possible starts that are in both beams.
            column_of = {start: column for column, start in enumerate(their_starts.tolist())}
            is_possible = start_logits > IMPOSSIBLE / 2
            compared = np.array([start in column_of and bool(is_possible[start]) for start in my_starts.tolist()])
            columns = [column_of[start] for start in my_starts[compared].tolist()]
            ends.append((my_ends[:, compared], their_ends[:, columns]))
        pairs["end_logits"] = ends
    return pairs


@dataclass(frozen=True, kw_only=True)
class QuantizationReport:
    """Result of quantisation.

    Attributes:
        matrices: number of quantised matrices.
        bytes_before, bytes_after: of the weights.
        calibration: what the scales of the products' inputs were measured on, in words.
        fixed, products: number of products with a fixed scale, and of all.
        moved, moved_in_int8: differences from the original's outputs over random batches, of the weights alone, and
            with the products of precision int8.
    """

    matrices: int
    bytes_before: int
    bytes_after: int
    calibration: str
    fixed: int
    products: int
    moved: OutputDifferences
    moved_in_int8: OutputDifferences

    @property
    def inputs(self) -> str:
        """How the inputs of products are quantised at precision int8."""
        if self.fixed == 0:
            return f"8-bit integers, a scale for each row; one measured on {self.calibration} beforehand loses too much"
        rows = self.products - self.fixed
        others = f", a scale for each row in {rows}" if rows else ""
        one = f"one scale, measured on {self.calibration} beforehand, in {self.fixed} of {self.products} products"
        return f"8-bit integers, {one}{others}"


def quantize_directory(
    source: str | Path, output: Path, *, calibrate_on: Path | None = None, replace: bool = False
) -> QuantizationReport:
    """Write a copy of a model (directory, run or Hub id) with int8 matrices, and with scales for precision int8.

    Args:
        calibrate_on: a file of texts by which the scales are measured; None: random tokens.
    """
    directory = find_model(source)
    content = read_json_object(directory / CONFIG_NAME)
    if loading.QUANTIZATION_KEY in content:
        raise UsageError(directory, "is quantised already")
    before = open_trained(directory)
    stored = loading.stored_tensors(directory)
    config = before.opened.config
    sequences = random_sequences(config)
    texts = RANDOM_TOKENS
    if calibrate_on is not None:
        trained = table_task_of(directory)
        column = "text" if trained is None or trained.text is None else trained.text
        positions = config.max_position_embeddings
        sequences = sequences_of_file(calibrate_on, load_tokenizer(directory), positions, column)
        texts = f"{counted(len(sequences), 'texts')} of {calibrate_on.name}"
        if sum(map(len, sequences)) >= CALIBRATION_TOKENS:
            texts = f"the first {texts} ({CALIBRATION_TOKENS:,} tokens are enough)"
    scales = calibrate(encoder_of(before.opened.model), sequences)
    with new_directory(output, replace=replace) as copy:
        tokenizer = None
        if vocabulary_file(directory).is_file():
            tokenizer = load_tokenizer(directory)
            require_matching_tokenizer(tokenizer, directory, before.opened.config, before.opened.extra)
            tokenizer.save(copy)
        # Rounded, the identity matrix of a model without a projection would no longer be the identity.
        report = before.opened.loading_report
        dropped = {*report.dropped, *report.identity_map}
        tensors, matrices = _quantize_tensors(stored.read([name for name in stored.by_name if name not in dropped]))
        loading.write_tensors(copy / loading.INT8_WEIGHTS_NAME, tensors)
        quantization = {
            LAYOUT: 1,
            "format": loading.FORMAT,
            "matrices": matrices,
            loading.CALIBRATION_KEY: texts,
            loading.INPUT_SCALES_KEY: loading.input_scales_to_json(scales),
        }
        keys = {loading.QUANTIZATION_KEY: quantization, **activation_keys(before.opened.extra)}
        save_json(copy / CONFIG_NAME, content | keys)
        vectors = sentence_vectors_of(before.opened.extra)
        if vectors is not None:
            write_sentence_vectors(copy, vectors, before.opened.config.hidden_size)
        after = open_trained(copy)
        batches = sample_batches(before.opened.config)
        outputs_before = [model_outputs(before.opened.model, before.pipelines, batch) for batch in batches]
        outputs_after = [model_outputs(after.opened.model, after.pipelines, batch) for batch in batches]
        compute_as_in_int8(encoder_of(after.opened.model))
        outputs_in_int8 = [model_outputs(after.opened.model, after.pipelines, batch) for batch in batches]
        own = [scale for layer in scales for scale in layer]
        report = QuantizationReport(
            matrices=matrices,
            bytes_before=sum(tensor.n_bytes for tensor in stored.by_name.values()),
            bytes_after=(copy / loading.INT8_WEIGHTS_NAME).stat().st_size,
            calibration=texts,
            fixed=sum(scale is not None for scale in own),
            products=len(own),
            moved=output_differences(outputs_before, outputs_after),
            moved_in_int8=output_differences(outputs_before, outputs_in_int8),
        )
        write_text(copy / CARD_NAME, _card(output.name, before, tokenizer, directory, report))
        copy_examples(directory, copy)
        copy_task(directory, copy)
    return report


def _quantize_tensors(tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    """The tensors to store, and the number of quantised matrices."""
    quantized: dict[str, Tensor] = {}
    matrices = [name for name, tensor in tensors.items() if tensor.is_floating_point() and is_worth_quantizing(tensor)]
    for name, tensor in tensors.items():
        if name in matrices:
            values, scale = loading.stored_names(name)
            quantized[values], quantized[scale] = quantize_matrix(tensor.float())
        elif tensor.is_floating_point():  # integer tensors are legacy buffers without information
            quantized[name] = tensor
    return quantized, len(matrices)


def _card(name: str, model: TrainedModel, tokenizer: Tokenizer | None, source: Path, report: QuantizationReport) -> str:
    of_weights, in_int8 = (
        ", ".join(
            f"{output} by {change_of(largest, moved.relative[output])}" for output, largest in moved.largest.items()
        )
        for moved in (report.moved, report.moved_in_int8)
    )
    opened = model.opened
    architecture = str((opened.extra.get("architectures") or ["AlbertModel"])[0])
    card = Card(
        name=name,
        description=f"{name_of(source)} with its matrices as 8-bit integers, one scale for each row: "
        f"{bytes_of(report.bytes_after)} of weights in place of {bytes_of(report.bytes_before)}.",
        parameters={"all": sum(parameter.numel() for parameter in model.opened.model.parameters())},
        recipe={
            "format": loading.FORMAT,
            "matrices": report.matrices,
            "tokenizer": model.opened.extra.get(FINGERPRINT_KEY),
        },
        limits=(
            f"Over random tokens its outputs differ from those of the original: {of_weights}; computed with precision "
            f"int8: {in_int8}. `albert evaluate` measures the effect on a task's score.",
            f"Inputs of products at precision int8: {report.inputs}.",
            "transformers cannot open this directory: it finds no weights that it knows.",
        ),
        example=first_example(source),
        base=base_of(source),
        base_relation="quantized",
        library="albert",
    )
    outputs = written_num_labels(architecture, opened.model.state_dict())
    return model_card(card, written_model(architecture, opened.config, outputs, tokenizer, opened.extra))
