"""What the files of a model say that it can do: the pipelines of its head, the lengths of sequences, pairs or texts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from albert.checkpoints import config_json, model_directory
from albert.checkpoints.cross_encoders import ACTIVATION_KEY, score_activation
from albert.checkpoints.huggingface import Kind, kind_of
from albert.checkpoints.sentence_transformers import SentenceVectors, sentence_vectors_of, stated_length
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.embed import Embed
from albert.tasks.inputs import Pair
from albert.tasks.pipeline import Head, Lengths, Pipeline
from albert.tasks.pipelines import PIPELINES
from albert.tasks.submission import DECLARED
from albert.tasks.table_task import table_task_of

MIN_LENGTH = 5  # [CLS] a [SEP] b [SEP]
_WITH_LABELS: tuple[Kind, ...] = ("classification", "pair_classification", "token_classification")


def lengths_of(model_kind: Kind, opened: model_directory.OpenedModel) -> Lengths:
    """The lengths that a model was fine-tuned with, by default the paper's; at most its number of positions, and for a
    model of another library the length that its tokenizer states."""
    positions = opened.config.max_position_embeddings
    of_paper = (pipeline.lengths for pipeline in PIPELINES if model_kind in pipeline.heads)
    default = next((lengths for lengths in of_paper if lengths is not None), Lengths(positions, 64, 128))
    stated = dict(opened.extra.get("finetuning") or {})
    if model_directory.FINGERPRINT_KEY not in opened.extra:  # other libraries cut texts where the tokenizer says
        of_tokenizer = stated_length(opened.directory) or positions
        default = default._replace(max_length=min(default.max_length, of_tokenizer))
    if "max_sequence_length" in opened.extra:
        stated["max_length"] = opened.extra["max_sequence_length"]
    lengths = default._asdict()
    for name in lengths:
        value = stated.get(name, lengths[name])
        least = MIN_LENGTH if name == "max_length" else 1
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            key = "max_sequence_length" if name == "max_length" else f"finetuning: {name}"
            subject = f"{opened.directory / 'config.json'}: {key}"
            raise InvalidConfiguration(subject, f"is {value!r}, at least {least} tokens are needed")
        lengths[name] = value
    return Lengths(**lengths | {"max_length": min(lengths["max_length"], positions)})


def pipelines_of(
    model_kind: Kind, opened: model_directory.OpenedModel, threshold: float | None = None
) -> tuple[Pipeline, ...]:
    """What a model can do whose files are opened as this kind of model: the pipelines that take its head.

    Args:
        threshold: with several labels per text, the probability from which on a label is predicted; None: the model's.
    """
    model: Any = opened.model
    has_labels = model_kind in _WITH_LABELS
    vectors = sentence_vectors_of(opened.extra) or SentenceVectors()
    max_length = lengths_of(model_kind, opened).max_length if vectors.max_length is None else vectors.max_length
    head = Head(
        model_kind=model_kind,
        model=str(opened.directory),
        drawn=tuple(opened.loading_report.drawn),
        config=opened.extra,
        labels=tuple(config_json.label_names(opened.extra, model.classifier.out_features)) if has_labels else (),
        score_activation=score_activation(opened.extra),
        threshold=threshold,
        vectors=vectors,
        vector_length=min(max_length, opened.config.max_position_embeddings),
    )
    found = (pipeline.of_head(head) for pipeline in PIPELINES)
    return tuple(pipeline for pipeline in found if pipeline is not None)


def trained_on_pairs(directory: Path, extra: Mapping[str, Any]) -> bool | None:
    """Whether a model that reads a text or two was fine-tuned on pairs of texts; None if unknown.

    Args:
        extra: the keys of its `config.json` besides the architecture.
    """
    table_task = table_task_of(directory)
    if table_task is not None:
        return table_task.pair is not None
    if ACTIVATION_KEY in extra:
        return True
    task = DECLARED.get(str((extra.get("finetuning") or {}).get("task")))
    return None if task is None else isinstance(task.inputs, Pair)


class TrainedModel(NamedTuple):
    """A model whose outputs all come from weights of the file; an encoder without a trained pooler has none.

    `pipelines` are those of its head, of an encoder `Embed`. `left_out` names the head that `config.json` lists but
    that was not trained; empty if there is none."""

    opened: model_directory.OpenedModel
    model_kind: Kind
    pipelines: tuple[Pipeline, ...]
    left_out: str = ""


def open_trained(directory: Path) -> TrainedModel:
    """Open a model directory with the trained part of its head."""
    stated = kind_of(config_json.read_config(directory)[1])
    model_kind = stated
    opened = model_directory.open_model(directory, model_kind)
    left_out = ""
    possible = pipelines_of(model_kind, opened)
    pipelines = tuple(pipeline for pipeline in possible if pipeline.needs is not None)
    names = [pipeline.name for pipeline in pipelines]
    if model_kind == "pretraining" and "fill-mask" in names and "order" not in names:
        model_kind = "masked_lm"
        left_out = "the order of segments"
    elif not pipelines:
        pipelines = tuple(pipeline for pipeline in possible if isinstance(pipeline, Embed))
        if model_kind != "encoder":
            model_kind = "encoder"
            left_out = f"the head for {stated}"
    if left_out:
        opened = model_directory.open_model(directory, model_kind)
    if model_kind == "encoder" and any(name.startswith("albert.pooler.") for name in opened.loading_report.drawn):
        model: Any = opened.model
        model.pooler = None
    return TrainedModel(opened, model_kind, pipelines, left_out)
