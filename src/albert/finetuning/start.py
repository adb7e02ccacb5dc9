"""Where fine-tuning starts: an encoder from a model directory, or the same architecture drawn at random (the
control).
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import nn

from albert.checkpoints.kinds import Kind, build_model
from albert.checkpoints.loading import LoadingReport
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import OpenedModel, open_model, read_config
from albert.checkpoints.model_tokenizer import tokenizer_of
from albert.checkpoints.warm_start.warm_start import warm_start
from albert.checkpoints.warm_start.warm_start_positions import trained_length
from albert.finetuning.architecture_changes import ArchitectureChanges
from albert.finetuning.kept_head import order_kept_head
from albert.model.config import AlbertConfig
from albert.runtime.devices import seed_torch
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.task import Choice, Labels, Option, Score, Span, Tags, Target, Task, TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_directory import load_tokenizer

PROBLEM_TYPES: dict[type[Target], str] = {
    Choice: "single_label_classification",
    Labels: "multi_label_classification",
    Score: "regression",
}
"""What transformers calls that which a classifier's outputs mean."""
LENGTHS = ("max_length", "question_length", "stride")
"""What of a recipe an evaluation needs too."""


@dataclass(frozen=True)
class PretrainedEncoder:
    """The encoder of a model directory or Hub id.

    Its head, if it has one, is left aside; `keep_head` keeps it, its outputs in the order of the task's labels.
    """

    model: str
    revision: str | None = None
    changes: ArchitectureChanges = field(default_factory=ArchitectureChanges)
    keep_head: bool = False


@dataclass(frozen=True)
class RandomEncoder:
    """An architecture with random weights, and the directory of the tokenizer to use."""

    config: AlbertConfig
    tokenizer_directory: Path
    changes: Mapping[str, Any] = field(default_factory=dict)
    """What of it was asked to be another than a model's, as plain values."""


Start = PretrainedEncoder | RandomEncoder


def random_encoder_like(start: PretrainedEncoder) -> RandomEncoder:
    """The control of a pre-trained model: its architecture and tokenizer, none of its weights."""
    directory = find_model(start.model, start.revision)
    config, _ = read_config(directory)
    return RandomEncoder(start.changes.applied_to(config), directory, start.changes.asked())


@dataclass(frozen=True, kw_only=True)
class StartedModel:
    """A model that can learn a task.

    Args:
        model: with a fresh head, or a kept one.
        config: its architecture.
        tokenizer: the one it was trained with.
        tokenizer_directory: where that lies.
        source: where the weights come from, in words.
        changes: what was asked to change, as plain values.
        changed: what became of it, in words.
        trained_positions: positions that pre-training reached, or that were made of such; None: nobody said.
        notes: all of it for people: which tensors are new, what changed.
    """

    model: nn.Module
    config: AlbertConfig
    tokenizer: Tokenizer
    tokenizer_directory: Path
    source: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    trained_positions: int | None = None
    notes: tuple[str, ...] = ()


def start_model(start: Start, target: Target, recipe: TaskRecipe, seed: int) -> StartedModel:
    """Build the model that a kind of target needs; what is drawn at random depends on the seed alone.

    Raises:
        MissingInput, DamagedData, Unavailable: the model directory or tokenizer cannot be opened, or do not belong
            together.
        InvalidConfiguration: the tokenizer of a random encoder has more pieces than the model has embeddings, the
            architecture cannot be changed so, or there is no head to keep.
    """
    seed_torch("finetuning.head", seed)
    if isinstance(start, RandomEncoder):
        return _random(start, target, recipe)
    opened = _open(start, target, recipe)
    tokenizer = tokenizer_of(opened)
    config = start.changes.applied_to(opened.config)
    trained = trained_length(opened.extra)
    model, changed = opened.model, ()
    if config != opened.config or start.changes.extend_positions is not None:
        model = _build(target, config)
        result = warm_start(
            opened.model.state_dict(),
            opened.config,
            model.state_dict(),
            config,
            extend_positions=start.changes.extend_positions,
            trained_positions=trained,
        )
        model.load_state_dict(result.tensors)
        changed, trained = result.notes, result.trained_positions
    if start.keep_head:
        changed = (*changed, f"the head of {_source(start)} is kept")
    notes = (*_loading_notes(opened.loading_report), *changed)
    if trained is not None and trained < min(recipe.max_length, config.max_position_embeddings):
        notes += (f"positions from {trained} on were never trained: --extend-positions makes them of the others",)
    return StartedModel(
        model=model.train(),
        config=config,
        tokenizer=tokenizer,
        tokenizer_directory=opened.directory,
        source=_source(start),
        changes=start.changes.asked() | ({"keep_head": True} if start.keep_head else {}),
        changed=changed,
        trained_positions=trained,
        notes=notes,
    )


def _random(start: RandomEncoder, target: Target, recipe: TaskRecipe) -> StartedModel:
    config = replace(start.config, **_dropout_overrides(recipe))
    directory = start.tokenizer_directory
    tokenizer = load_tokenizer(directory)
    if tokenizer.vocab_size > config.vocab_size:
        why = f"has {tokenizer.vocab_size} pieces, the model has {config.vocab_size} embeddings"
        raise InvalidConfiguration(directory, why, "use the tokenizer that the model was trained with")
    return StartedModel(
        model=_build(target, config).train(),
        config=config,
        tokenizer=tokenizer,
        tokenizer_directory=directory,
        source="random weights",
        changes=start.changes,
        notes=("every tensor is drawn at random (no pre-training)",),
    )


def _open(start: PretrainedEncoder, target: Target, recipe: TaskRecipe) -> OpenedModel:
    """The model as it is in the file but for dropout, with the head that the target needs."""
    opened = open_model(
        start.model,
        head_kind(target),
        None if start.keep_head else n_outputs(target),
        revision=start.revision,
        new_head=not start.keep_head,
        overrides=_dropout_overrides(recipe),
    )
    if start.keep_head:
        order_kept_head(opened, target, start.model)
    return opened


def _source(start: PretrainedEncoder) -> str:
    """A Hub id with its revision, or the last two parts of a path: a card tells what, not where on which machine."""
    short = "/".join(Path(start.model).parts[-2:])
    return f"{short}@{start.revision}" if start.revision else short


def _loading_notes(report: LoadingReport) -> tuple[str, ...]:
    state = "checked against its manifest" if report.verified else "unverified: it has no manifest"
    lines = [f"{report.source}: {state}"]
    if report.newly_initialised:
        lines.append("new, drawn at random: " + ", ".join(report.newly_initialised))
    if report.unexpected:
        heads = Counter(name.split(".")[0] for name in report.unexpected)
        lines.append("in the file, not used here: " + ", ".join(f"{n} of {head}" for head, n in heads.items()))
    return (*lines, *report.notes)


def head_kind(target: Target) -> Kind:
    """The kind of model that a kind of target needs."""
    match target:
        case Choice() | Labels() | Score():
            return "classification"
        case Tags():
            return "token_classification"
        case Option():
            return "multiple_choice"
        case Span(head="joint"):
            return "joint_question_answering"
        case Span():
            return "question_answering"


def n_outputs(target: Target) -> int | None:
    """How many numbers the head gives per sequence or token, None where its kind says so."""
    match target:
        case Choice(labels) | Labels(labels) | Tags(labels):
            return len(labels)
        case Score():
            return 1
        case _:
            return None


def head_description(task: Task, recipe: TaskRecipe, trained_positions: int | None) -> dict[str, Any]:
    """Keys of `config.json`: what the head's outputs mean, and how the text was cut when it was trained."""
    lengths = {name: getattr(recipe, name) for name in LENGTHS}
    kept: dict[str, Any] = {"finetuning": {"task": task.name, **lengths}}
    if trained_positions is not None:
        kept["trained_positions"] = max(trained_positions, recipe.max_length)
    longest = {"max_sequence_length": recipe.max_length}
    target = task.target
    match target:
        case Choice() | Labels():
            names, problem = dict(enumerate(target.shown)), PROBLEM_TYPES[type(target)]
            return {"id2label": names, "problem_type": problem, **kept, **longest}
        case Tags():
            return {"id2label": dict(enumerate(target.shown)), **kept, **longest}
        case Score(column):
            return {"id2label": {0: column}, "problem_type": PROBLEM_TYPES[Score], **kept, **longest}
        case Option():
            return {**kept, **longest}
        case Span():
            return kept


def _build(target: Target, config: AlbertConfig) -> nn.Module:
    return build_model(head_kind(target), config, n_outputs(target))


def _dropout_overrides(recipe: TaskRecipe) -> Mapping[str, Any]:
    overrides = {"classifier_dropout_prob": recipe.head_dropout}
    if recipe.encoder_dropout is not None:
        overrides["hidden_dropout_prob"] = recipe.encoder_dropout
        overrides["attention_probs_dropout_prob"] = recipe.encoder_dropout
    return overrides
