"""Where fine-tuning starts: an encoder from a model directory, or the same architecture drawn at random (the
control).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from albert.checkpoints.loading import LoadingReport
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import open_model, read_config
from albert.checkpoints.model_tokenizer import tokenizer_of
from albert.model.albert import AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.model.config import AlbertConfig
from albert.runtime.devices import seed_torch
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.task import Choice, Score, Span, Target, Task, TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_directory import load_tokenizer

LENGTHS = ("max_length", "question_length", "stride")
"""What of a recipe an evaluation needs too."""


@dataclass(frozen=True)
class PretrainedEncoder:
    """The encoder of a model directory or Hub id; its head, if it has one, is left aside."""

    model: str


@dataclass(frozen=True)
class RandomEncoder:
    """An architecture with random weights, and the directory of the tokenizer to use."""

    config: AlbertConfig
    tokenizer_directory: Path


Start = PretrainedEncoder | RandomEncoder


def random_encoder_like(model: str) -> RandomEncoder:
    """The control of a pre-trained model: its architecture and tokenizer, none of its weights."""
    directory = find_model(model)
    config, _ = read_config(directory)
    return RandomEncoder(config, directory)


@dataclass(frozen=True)
class StartedModel:
    """A model with a fresh head, its tokenizer, and a line for people on which tensors are new."""

    model: nn.Module
    config: AlbertConfig
    tokenizer: Tokenizer
    tokenizer_directory: Path
    source: str
    notes: tuple[str, ...]


def start_model(start: Start, target: Target, recipe: TaskRecipe, seed: int) -> StartedModel:
    """Build the model that a kind of target needs; what is drawn at random depends on the seed alone.

    Raises:
        MissingInput, DamagedData, Unavailable: the model directory or tokenizer cannot be opened, or do not belong
            together.
        InvalidConfiguration: the tokenizer of a random encoder has more pieces than the model has embeddings.
    """
    seed_torch("finetuning.head", seed)
    overrides = _dropout_overrides(recipe)
    if isinstance(start, RandomEncoder):
        config = replace(start.config, **overrides)
        directory, source = start.tokenizer_directory, "random weights"
        tokenizer = load_tokenizer(directory)
        if tokenizer.vocab_size > config.vocab_size:
            why = f"has {tokenizer.vocab_size} pieces, the model has {config.vocab_size} embeddings"
            raise InvalidConfiguration(directory, why, "use the tokenizer that the model was trained with")
        model = _build(target, config)
        notes: tuple[str, ...] = ("every tensor is drawn at random (no pre-training)",)
    else:
        if isinstance(target, Span):
            opened = open_model(start.model, "question_answering", new_head=True, overrides=overrides)
        else:
            labels = n_outputs(target)
            opened = open_model(start.model, "classification", labels, new_head=True, overrides=overrides)
        tokenizer = tokenizer_of(opened)
        model, config, directory, source = opened.model, opened.config, opened.directory, _short_name(start.model)
        notes = _loading_notes(opened.loading_report)
    return StartedModel(model.train(), config, tokenizer, directory, source, notes)


def _short_name(model: str) -> str:
    """A Hub id, or the last two parts of a path: a card tells what, not where on which machine."""
    return "/".join(Path(model).parts[-2:])


def _loading_notes(report: LoadingReport) -> tuple[str, ...]:
    state = "checked against its manifest" if report.verified else "unverified: it has no manifest"
    lines = [f"{report.source}: {state}"]
    if report.newly_initialised:
        lines.append("new, drawn at random: " + ", ".join(report.newly_initialised))
    if report.unexpected:
        heads = Counter(name.split(".")[0] for name in report.unexpected)
        lines.append("in the file, not used here: " + ", ".join(f"{n} of {head}" for head, n in heads.items()))
    return tuple(lines)


def n_outputs(target: Target) -> int:
    """How many numbers the head gives per sequence (per token for a span)."""
    match target:
        case Choice(labels):
            return len(labels)
        case Score():
            return 1
        case Span():
            return 2


def head_description(task: Task, recipe: TaskRecipe) -> dict[str, Any]:
    """Keys of `config.json`: what the head's outputs mean, and how the text was cut when it was trained."""
    lengths = {name: getattr(recipe, name) for name in LENGTHS}
    kept = {"finetuning": {"task": task.name, **lengths}}
    longest = {"max_sequence_length": recipe.max_length}
    target = task.target
    match target:
        case Choice():
            names = dict(enumerate(target.shown))
            return {"id2label": names, "problem_type": "single_label_classification", **kept, **longest}
        case Score(column):
            return {"id2label": {0: column}, "problem_type": "regression", **kept, **longest}
        case Span():
            return kept


def _build(target: Target, config: AlbertConfig) -> nn.Module:
    if isinstance(target, Span):
        return AlbertForQuestionAnswering(config)
    return AlbertForSequenceClassification(config, n_outputs(target))


def _dropout_overrides(recipe: TaskRecipe) -> Mapping[str, Any]:
    overrides = {"classifier_dropout_prob": recipe.head_dropout}
    if recipe.encoder_dropout is not None:
        overrides["hidden_dropout_prob"] = recipe.encoder_dropout
        overrides["attention_probs_dropout_prob"] = recipe.encoder_dropout
    return overrides
