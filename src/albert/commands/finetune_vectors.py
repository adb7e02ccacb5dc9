"""`albert finetune-vectors` and `albert.finetune_vectors`: vectors of texts, learned from pairs or from a teacher."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from albert.cli.main import imports
from albert.cli.render import open_console, print_parts, print_result
from albert.cli.signature import PathLike, Rows, file_of, option_name, read_keys
from albert.commands.checks import check_options
from albert.commands.columns import tuple_of
from albert.commands.function import command, on_command_line
from albert.recipes.architecture import ArchitectureChanges
from albert.recipes.finetuning import RecipeChanges
from albert.report.notes import start_lines
from albert.runtime.environment import DEFAULT_LOG, Log, Precision, world
from albert.runtime.errors import UsageError
from albert.runtime.json_files import common_fields, to_json
from albert.runtime.words import plain
from albert.tasks.table_task import HeldOut

if TYPE_CHECKING:
    from albert.finetuning.vectors import VectorTeacher
    from albert.recipes.finetuning import FinetuningSettings
    from albert.report.result import Result


@dataclass(frozen=True, kw_only=True)
class VectorKeys:
    """The keys of `finetune_vectors`."""

    epochs: float | None = None
    """Passes over the rows; 1 when not set, with a teacher 4."""
    steps: int | None = None
    """Optimiser updates, instead of epochs."""
    learning_rate: float | None = None
    """Peak learning rate. When not set, 2e-5, with a teacher 4e-5, times (768/H)^2.3 for models narrower than
    ALBERT-base, at most 25 times and at most 1e-3."""
    batch_size: int | None = None
    """Rows per step over all processes, at most all rows; 64 when not set."""
    max_length: int | None = None
    """Maximum tokens of a text, 128 when not set; longer ones are cut and counted."""
    seed: int = 0
    """Seed of the order of the rows and dropout, and of the rows that are held out."""
    depth: int | None = None
    """Number of layers to apply; as many as in training when not set. Half of the layers are half of the work."""
    keep_layers: tuple[int, ...] | None = None
    """The layers to keep of a model whose layers share nothing, from 1: 1,3,5,6 makes four of six layers."""
    temperature: float | None = None
    """The divisor of the cosines of pairs; 0.05 when not set."""
    warmup_share: float | None = None
    """Share of the steps during which the learning rate rises."""
    weight_decay: float | None = None
    """Weight decay, not applied to biases and layer norms."""
    encoder_dropout: float | None = None
    """Dropout inside the encoder."""
    optimizer: Literal["adamw", "lamb"] = "adamw"
    """The optimiser."""
    evaluate_every: int | None = None
    """Steps between evaluations; only at the end when not set."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; every ten minutes when not set."""
    micro_batch_tokens: int = 8192
    """Tokens in one pass through the model; fewer need less memory and change no result."""
    precision: Precision | None = None
    """When not set, bf16 on a GPU that supports it, otherwise fp32."""
    workers: int = 0
    """Number of processes that make batches."""
    log: Log = DEFAULT_LOG
    """Where the curves go: TensorBoard's files in OUTPUT, Weights & Biases or trackio (of the extras wandb and
    trackio; the project is that of WANDB_PROJECT or TRACKIO_PROJECT)."""


@command("albert finetune-vectors", keys=VectorKeys, rows="in output", reads_file=True)
def finetune_vectors(
    recipe: PathLike | None = None,
    *,
    model: PathLike,
    output: PathLike,
    replace: bool = False,
    train: Rows,
    dev: float | Rows | None = None,
    text: str | None = None,
    pair: str | None = None,
    negative: str | Sequence[str] | None = None,
    teacher: PathLike | None = None,
    teacher_vectors: PathLike | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    on_start: "Callable[[Mapping[str, Any]], None] | None" = None,
    **keys: Any,
) -> "Result":
    """Fine-tune a model whose vectors of texts (albert.load(MODEL).embed) are compared by their cosine.

    Without --teacher the rows are pairs of texts that belong together, such as a question and its answer; the second
    texts of the other rows in a batch are the negatives (contrastive learning). With --teacher the rows are texts, and
    the vectors of a better model are learned (distillation; Reimers and Gurevych 2020).

    The same call resumes a run that was stopped. In Python, data frames and lists of dicts are saved in the run's
    directory.

    Example: albert finetune-vectors --train pairs.csv --text question --pair answer --model small --output runs/vectors

    Args:
        recipe: A file with options and keys of this command (.toml or .json).
        model: A model directory, a run that made one, a Hub id, or small-vectors, small or tiny, which come with the
            package (English).
        output: The run's directory, resumed if it exists.
        replace: Remove an earlier run in OUTPUT, and begin anew.
        train: The file of the rows.
        dev: The file of the rows to score, or a share of the training rows that is held out; 0.1 when not set.
        text: The column of the text.
        pair: The column of the second text, which belongs to the first one.
        negative: The columns of hard negatives, texts that do not belong to the first one although they look like it;
            columns called negative, negative_1 and so on when not set.
        teacher: The model whose vectors are learned: a directory, a run, or a Hub id.
        teacher_vectors: The directory where the teacher's vectors are kept, computed once, for this run and others; in
            the run's directory when not set.
    """
    refuse_contradictions({**locals(), **keys})
    chosen = read_keys(VectorKeys, keys)
    model = os.fspath(model)
    output = Path(output)
    rows = file_of(train)
    assert rows is not None
    share = HeldOut(share=dev).share if isinstance(dev, int | float) else HeldOut().share
    dev_rows = None if isinstance(dev, int | float) else file_of(dev)
    negatives = None if negative is None else tuple_of(negative)
    with imports():
        from albert.commands.finetune import result_of_run
        from albert.finetuning.contrastive import (
            TEMPERATURE,
            finetune_contrastive,
            hold_out_pairs,
            read_text_pairs,
        )
        from albert.finetuning.initial_model import PretrainedEncoder, beginning_of
        from albert.finetuning.vectors import finetune_vectors as learn_from_teacher
        from albert.finetuning.vectors import hold_out_texts, read_texts, without_texts
        from albert.recipes.finetuning import FinetuningSettings

    start = PretrainedEncoder(
        model, ArchitectureChanges(num_hidden_layers=chosen.depth, keep_layers=chosen.keep_layers)
    )
    beginning_of(start)  # what the model does not allow is refused before the rows are read
    changes = RecipeChanges(**common_fields(RecipeChanges, chosen))
    settings = FinetuningSettings(**common_fields(FinetuningSettings, chosen), device=device)
    paths = (rows, dev_rows, model, teacher, teacher_vectors)
    read_from = [Path(each) for each in paths if each is not None]
    if teacher is None:
        pairs = read_text_pairs(rows, text, pair, negatives)
        if dev_rows is None:
            pairs, dev_pairs = hold_out_pairs(pairs, share, chosen.seed)
        else:
            dev_pairs = read_text_pairs(dev_rows, text, pair, negatives)
        divisor = TEMPERATURE if chosen.temperature is None else chosen.temperature
        found = finetune_contrastive(
            pairs, dev_pairs, start, output, changes, settings, divisor, on_start, replace, read_from
        )
    else:
        texts = read_texts(rows, text)
        if dev_rows is None:
            texts, dev_texts = hold_out_texts(texts, share, chosen.seed)
        else:
            dev_texts = read_texts(dev_rows, text)
            texts = without_texts(texts, dev_texts)
        kept = None if teacher_vectors is None else Path(teacher_vectors)
        opened = open_teacher(os.fspath(teacher), settings)
        found = learn_from_teacher(
            texts, dev_texts, start, opened, output, changes, settings, kept, on_start, replace, read_from
        )
    return result_of_run(found, output, None)


def refuse_contradictions(given: Mapping[str, Any]) -> None:
    """Raise an error for options and keys that exclude each other, and for paths that do not exist."""
    if given["recipe"] is not None:
        why = "is no file with options and keys (.toml or .json)"
        raise UsageError(given["recipe"], why, "see albert info --recipe finetune-vectors")
    if given["teacher"] is None:
        if given["teacher_vectors"] is not None:
            raise UsageError("--teacher-vectors", "requires --teacher", "name the model whose vectors are learned")
    else:
        for name in ("pair", "negative", "temperature"):
            if given.get(name) is not None:
                why = "is about pairs of texts; with --teacher the rows are single texts"
                raise UsageError(name if name == "temperature" else option_name(name), why, "leave one of them out")
    dev = given["dev"]
    if isinstance(dev, int | float) and not 0 < dev < 1:
        raise UsageError("--dev", f"is {plain(dev)}", "give a share above 0 and below 1, or a file")
    if given.get("steps") is not None and given.get("epochs") is not None:
        raise UsageError("steps and epochs", "say the same thing twice", "give one of them")
    check_options(SimpleNamespace(**given), resumes=True)


def open_teacher(teacher: str, settings: "FinetuningSettings") -> "VectorTeacher":
    """The teacher, opened, with a fingerprint of all that its vectors depend on."""
    from albert.checkpoints.hub import model_name
    from albert.checkpoints.model_directory import weights_fingerprint
    from albert.checkpoints.sentence_transformers import open_dense
    from albert.finetuning.vectors import VectorTeacher
    from albert.inference.predictor import Predictor
    from albert.recipes.architecture import EncoderConfig
    from albert.runtime.devices import default_precision, pick_device
    from albert.runtime.json_files import fingerprint_of

    device = pick_device(settings.device, world().local_rank)
    precision = settings.precision or default_precision(device)
    predictor = Predictor.open(teacher, device, precision=precision)
    default = to_json(EncoderConfig())
    about = {
        "weights": weights_fingerprint(predictor.network.state_dict()),
        "config": {name: value for name, value in to_json(predictor.config).items() if value != default[name]},
        "tokenizer": predictor.tokenizer.fingerprint,
        "max_length": predictor.embedding_length,
        "vectors": {name: value for name, value in to_json(predictor.sentence_vectors).items() if name != "dense"},
        "precision": predictor.precision,
    }
    dense = open_dense(predictor.sentence_vectors)
    if dense is not None:
        about["dense"] = weights_fingerprint(dense.state_dict())
    return VectorTeacher(
        name=model_name(teacher),
        fingerprint=fingerprint_of(about),
        embed=partial(predictor.embed_counted, normalize=True),
    )


def show_finetune_vectors(**arguments: Any) -> None:
    """Run `albert finetune-vectors`, and print the settings and the result."""
    console = open_console()

    def show_start(figures: Mapping[str, Any]) -> None:
        print_parts(console, start_lines(figures))

    result = finetune_vectors(**arguments, on_start=show_start)
    print_result(console, result)


finetune_vectors_main = on_command_line(finetune_vectors, run=show_finetune_vectors)
