"""Where a fine-tuning run begins: a pre-trained or random encoder, with a new head or its own."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from albert.checkpoints.card import BaseModel, base_of
from albert.checkpoints.config_json import read_config
from albert.checkpoints.cross_encoders import ACTIVATION_KEY
from albert.checkpoints.hub import find_model, model_name
from albert.checkpoints.huggingface import BACKBONE_PREFIX, Kind, build_model, kind_of
from albert.checkpoints.loading import LoadingReport
from albert.checkpoints.model_directory import OpenedModel, open_model, tokenizer_of, weights_fingerprint
from albert.checkpoints.sentence_transformers import MODULES_NAME, SentenceVectors, sentence_vectors_of
from albert.checkpoints.warm_start import WarmStartResult, trained_length, warm_start
from albert.finetuning.fill_in import Beginning
from albert.finetuning.opened_model import label_columns
from albert.recipes.architecture import ArchitectureChanges, EncoderConfig
from albert.recipes.finetuning import PairEncoding, TaskRecipe
from albert.runtime.devices import seed_torch
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.words import counted
from albert.tasks.task import Task
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer
from albert.training.same_run import Input

_NEW_HEAD = "leave keep_head out to start with a new head"


@dataclass(frozen=True)
class PretrainedEncoder:
    """The encoder of a model directory or Hub id; with `keep_head` its head too, reordered to the task's labels."""

    model: str
    changes: ArchitectureChanges = field(default_factory=ArchitectureChanges)
    keep_head: bool = False


@dataclass(frozen=True)
class RandomEncoder:
    """An architecture with random weights, and the directory of its tokenizer."""

    config: EncoderConfig
    tokenizer_directory: Path
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Requested changes of a model's architecture, as plain values."""


Start = PretrainedEncoder | RandomEncoder


def random_encoder_like(start: PretrainedEncoder) -> RandomEncoder:
    """The architecture and tokenizer of a pre-trained model with random weights."""
    directory = find_model(start.model)
    config, _ = read_config(directory)
    return RandomEncoder(start.changes.applied_to(config), directory, start.changes.changed_fields())


def beginning_of(start: Start) -> Beginning:
    """What the recipe of a run depends on; the architecture is without the dropout of the recipe."""
    if isinstance(start, RandomEncoder):
        return Beginning(config=start.config)
    config, extra = read_config(find_model(start.model))
    return Beginning(
        config=start.changes.applied_to(config),
        keeps_head=start.keep_head,
        head_reads_pairs="separately" if kind_of(extra) == "pair_classification" else "together",
    )


@dataclass(frozen=True, kw_only=True)
class InitialModel:
    """A model before training.

    Attributes:
        changes: requested changes of the architecture, as plain values.
        changed: notes on what was changed.
        trained_positions: position embeddings that pre-training updated, or that derive from such; None if unknown.
    """

    model: nn.Module
    config: EncoderConfig
    tokenizer: Tokenizer
    tokenizer_directory: Path
    source: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    trained_positions: int | None = None
    notes: tuple[str, ...] = ()
    sentence_vectors: SentenceVectors | None = None
    """How the encoder's texts become vectors, if its files say so; what is fine-tuned keeps it."""
    base: BaseModel = field(default_factory=BaseModel)
    """For the card of what is fine-tuned."""


def initial_model(
    start: Start,
    target: Task | None,
    recipe: TaskRecipe,
    seed: int,
    pairs: PairEncoding = "together",
    matching: bool = False,
) -> InitialModel:
    """Build the model for a target; random weights depend on the seed alone."""
    seed_torch("finetuning.head", seed)
    dropouts = {"classifier_dropout_prob": recipe.head_dropout}
    if recipe.encoder_dropout is not None:
        dropouts |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), recipe.encoder_dropout)
    kind = "encoder" if target is None else target.model_kind(pairs)
    n_outputs = None if target is None else target.n_outputs
    if isinstance(start, RandomEncoder):
        config = replace(start.config, **dropouts)
        config = config.with_match_embedding() if matching else config
        return random_model(start, kind, config, n_outputs)
    overrides: dict[str, Any] = dict(dropouts)
    vectors = sentence_vectors_of(read_config(find_model(start.model))[1])
    if vectors is not None and kind in ("classification", "multiple_choice") and not start.keep_head:
        # The pooler of an encoder that was trained for sentence vectors is left over from pre-training.
        overrides["head_pooling"] = vectors.pooling
    opened = open_model(
        start.model,
        kind,
        None if start.keep_head else n_outputs,
        new_head=not start.keep_head,
        overrides=overrides,
    )
    if start.keep_head and target is not None:
        order_kept_head(opened, target, start.model)
    tokenizer = tokenizer_of(opened)
    config = start.changes.applied_to(opened.config)
    config = config.with_match_embedding() if matching else config
    trained = trained_length(opened.extra)
    model = opened.model
    changed = ()
    source = model_name(start.model)
    if config != opened.config or start.changes.extend_positions or start.changes.keep_layers is not None:
        model = build_model(kind, config, n_outputs)
        result = load_weights_of(opened, model, kind, config, start.changes)
        changed = result.notes
        trained = result.trained_positions
    if start.keep_head:
        changed = (*changed, f"the head of {source} is kept")
    notes = (*_loading_notes(opened.loading_report), *changed)
    if "head_pooling" in overrides:
        notes += (f"the head reads the encoder's own pooling, {overrides['head_pooling']}, as its {MODULES_NAME} says",)
    return InitialModel(
        model=model.train(),
        config=config,
        tokenizer=tokenizer,
        tokenizer_directory=opened.directory,
        source=source,
        changes=start.changes.changed_fields() | ({"keep_head": True} if start.keep_head else {}),
        changed=changed,
        trained_positions=trained,
        notes=notes,
        sentence_vectors=vectors,
        base=base_of(opened.directory),
    )


def random_model(start: RandomEncoder, kind: Kind, config: EncoderConfig, n_outputs: int | None) -> InitialModel:
    """A model with random weights, and its tokenizer; raises InvalidConfiguration if this has too many pieces."""
    directory = start.tokenizer_directory
    tokenizer = load_tokenizer(directory)
    if tokenizer.vocab_size > config.vocab_size:
        why = f"has {tokenizer.vocab_size} pieces, the model has {config.vocab_size} embeddings"
        raise InvalidConfiguration(directory, why, "use the tokenizer that the model was trained with")
    return InitialModel(
        model=build_model(kind, config, n_outputs).train(),
        config=config,
        tokenizer=tokenizer,
        tokenizer_directory=directory,
        source="random weights",
        changes=start.changes,
        notes=("all weights are random (no pre-training)",),
    )


def load_weights_of(
    opened: OpenedModel, model: nn.Module, kind: Kind, config: EncoderConfig, changes: ArchitectureChanges
) -> WarmStartResult:
    """Load the weights of a trained model into one of another architecture.

    Args:
        model: with random weights, in the architecture `config`.
        changes: those that lead from the trained model to `config`.
    """
    prefix = BACKBONE_PREFIX if kind == "encoder" else ""  # an encoder alone has names without one
    result = warm_start(
        {prefix + name: tensor for name, tensor in opened.model.state_dict().items()},
        opened.config,
        {prefix + name: tensor for name, tensor in model.state_dict().items()},
        config,
        extend_positions=changes.extend_positions,
        trained_positions=trained_length(opened.extra),
        kept_layers=changes.keep_layers,
    )
    model.load_state_dict({name.removeprefix(prefix): tensor for name, tensor in result.tensors.items()})
    return result


def order_kept_head(opened: OpenedModel, target: Task, model: str) -> None:
    """Reorder the outputs of the loaded head to the order of the target's labels, matched by name."""
    missing = [name for name in opened.loading_report.drawn if not name.startswith("albert.")]
    if missing:
        raise InvalidConfiguration(model, f"has no head to keep ({', '.join(missing)} are missing)", _NEW_HEAD)
    head: Any = getattr(opened.model, "classifier", None)
    if target.n_outputs is not None and not target.class_names and head.out_features != target.n_outputs:
        raise InvalidConfiguration(model, f"has a head with {head.out_features} outputs, a number needs 1", _NEW_HEAD)
    activation = opened.extra.get(ACTIVATION_KEY, "Identity")
    if target.problem_type == "regression" and activation != "Identity":
        why = f"has a head whose score is the {activation.lower()} of its output, a number is learned"
        raise InvalidConfiguration(model, why, _NEW_HEAD)
    order = label_columns(target, opened.extra.get("id2label"), model, _NEW_HEAD, may_be_unnamed=False)
    if order is not None:
        with torch.no_grad():
            head.weight.copy_(head.weight[order].clone())
            head.bias.copy_(head.bias[order].clone())


def _loading_notes(report: LoadingReport) -> tuple[str, ...]:
    state = "checked against its manifest" if report.verified else "unverified: it has no manifest"
    new = f"newly initialised: {', '.join(report.newly_initialised)}" if report.newly_initialised else ""
    return (f"{report.source}: {state}", *filter(None, (new, report.not_used)), *report.notes)


def start_inputs(initial: InitialModel) -> dict[str, Input]:
    """The initial weights and the tokenizer, as inputs of a run."""
    tokenizer = initial.tokenizer
    return {
        "initial weights": Input(initial.source, weights_fingerprint(initial.model.state_dict())),
        "tokenizer": Input(counted(tokenizer.vocab_size, "pieces"), tokenizer.fingerprint),
    }
