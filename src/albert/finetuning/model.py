"""The model of a fine-tuning run: pre-trained or random encoder, new or kept head, frozen encoder.

`start_model` builds it; `open_for_task` opens a fine-tuned model for a task."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from albert.checkpoints.card import BaseModel, base_of
from albert.checkpoints.cross_encoders import ACTIVATION_KEY, score_activation
from albert.checkpoints.hub import find_model, model_name
from albert.checkpoints.huggingface import BACKBONE_PREFIX, Kind, build_model, kind_of
from albert.checkpoints.loading import LoadingReport
from albert.checkpoints.model_directory import OpenedModel, open_model, read_config, tokenizer_of
from albert.checkpoints.sentence_transformers import MODULES_NAME, SentenceVectors, sentence_vectors_of
from albert.checkpoints.warm_start import WarmStartResult, trained_length, warm_start
from albert.model.albert import AlbertForPairClassification, set_depth
from albert.model.packing import PackedSequences, split_segments
from albert.recipes.architecture import FULL_WIDTH, AlbertConfig, ArchitectureChanges
from albert.recipes.finetuning import PairEncoding, TaskRecipe
from albert.runtime.devices import seed_torch
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.declared import DeclaredTask
from albert.tasks.inputs import Pair
from albert.tasks.regression import Regression
from albert.tasks.task import Task
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer

_NEW_HEAD = "leave keep_head out to start with a new head"
_OTHER_MODEL = "give another model"
_LEAVE_OUT = "leave it out"


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


LENGTHS = ("max_length", "question_length", "stride")
"""Recipe fields that evaluation needs too."""


@dataclass(frozen=True)
class PretrainedEncoder:
    """The encoder of a model directory or Hub id; with `keep_head` its head too, reordered to the task's labels."""

    model: str
    changes: ArchitectureChanges = field(default_factory=ArchitectureChanges)
    keep_head: bool = False


@dataclass(frozen=True)
class RandomEncoder:
    """An architecture with random weights, and the directory of its tokenizer."""

    config: AlbertConfig
    tokenizer_directory: Path
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Requested changes of a model's architecture, as plain values."""


Start = PretrainedEncoder | RandomEncoder


def random_encoder_like(start: PretrainedEncoder) -> RandomEncoder:
    """The architecture and tokenizer of a pre-trained model with random weights."""
    directory = find_model(start.model)
    config, _ = read_config(directory)
    return RandomEncoder(start.changes.applied_to(config), directory, start.changes.changed_fields())


def planned_config(start: Start) -> AlbertConfig:
    """The architecture of the model before training, without the dropout of the recipe."""
    if isinstance(start, RandomEncoder):
        return start.config
    return start.changes.applied_to(read_config(find_model(start.model))[0])


@dataclass(frozen=True, kw_only=True)
class StartedModel:
    """A model before training.

    Attributes:
        changes: requested changes of the architecture, as plain values.
        changed: notes on what was changed.
        trained_positions: position embeddings that pre-training updated, or that derive from such; None if unknown.
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
    sentence_vectors: SentenceVectors | None = None
    """How the encoder's texts become vectors, if its files say so; what is fine-tuned keeps it."""
    base: BaseModel = field(default_factory=BaseModel)
    """For the card of what is fine-tuned."""


def choose_pairs(
    task: DeclaredTask,
    start: Start,
    pairs: PairEncoding | None,
    matching: bool | None,
    record: Mapping[str, Any] | None,
) -> tuple[PairEncoding, bool]:
    """How a run encodes pairs, and whether tokens that occur in the other segment are marked.

    As requested, as recorded if the run is resumed, or as the model does; else together, and marked if two segments are
    read in one sequence by a narrow model (results/models.md, "Match embedding").
    """
    recorded = None if record is None else record["settings"]
    is_random = isinstance(start, RandomEncoder)
    config, extra = (start.config, {}) if is_random else read_config(find_model(start.model))
    keeps_head = not is_random and start.keep_head
    encoding = "together"
    if len(task.inputs.columns) == 2 and task.target.encodes_pairs:
        of_head: PairEncoding = "separately" if kind_of(extra) == "pair_classification" else "together"
        if keeps_head and pairs not in (None, of_head):
            raise InvalidConfiguration("encode_pairs", f"{pairs}: the kept head reads pairs {of_head}", _LEAVE_OUT)
        before = of_head if keeps_head else "together"
        encoding = pairs or (before if recorded is None else recorded["encode_pairs"])
    elif pairs == "separately":
        why = f"separately needs pairs of texts, {task.title} has none"
        raise InvalidConfiguration("encode_pairs", why, _LEAVE_OUT)
    two_segments = len(task.inputs.columns) == 2 and encoding == "together"
    if matching and not two_segments:
        why = f"needs two texts in one sequence, {task.title} has none"
        raise InvalidConfiguration("match_embedding", why, _LEAVE_OUT)
    if config.match_embedding and matching is False:
        raise InvalidConfiguration("match_embedding", "cannot be removed from a model", _LEAVE_OUT)
    if matching is not None or config.match_embedding:
        return encoding, bool(matching) or config.match_embedding
    if recorded is not None:
        return encoding, recorded["match_embedding"]
    is_albert = config.family == "albert"
    return encoding, two_segments and not keeps_head and config.hidden_size < FULL_WIDTH and is_albert


def start_model(
    start: Start,
    target: Task | None,
    recipe: TaskRecipe,
    seed: int,
    pairs: PairEncoding = "together",
    matching: bool = False,
) -> StartedModel:
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
    return StartedModel(
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


def random_model(start: RandomEncoder, kind: Kind, config: AlbertConfig, n_outputs: int | None) -> StartedModel:
    """A model with random weights, and its tokenizer; raises InvalidConfiguration if this has too many pieces."""
    directory = start.tokenizer_directory
    tokenizer = load_tokenizer(directory)
    if tokenizer.vocab_size > config.vocab_size:
        why = f"has {tokenizer.vocab_size} pieces, the model has {config.vocab_size} embeddings"
        raise InvalidConfiguration(directory, why, "use the tokenizer that the model was trained with")
    return StartedModel(
        model=build_model(kind, config, n_outputs).train(),
        config=config,
        tokenizer=tokenizer,
        tokenizer_directory=directory,
        source="random weights",
        changes=start.changes,
        notes=("all weights are random (no pre-training)",),
    )


def load_weights_of(
    opened: OpenedModel, model: nn.Module, kind: Kind, config: AlbertConfig, changes: ArchitectureChanges
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


def _loading_notes(report: LoadingReport) -> tuple[str, ...]:
    state = "checked against its manifest" if report.verified else "unverified: it has no manifest"
    new = f"newly initialised: {', '.join(report.newly_initialised)}" if report.newly_initialised else ""
    return (f"{report.source}: {state}", *filter(None, (new, report.not_used)), *report.notes)


def head_description(task: DeclaredTask, recipe: TaskRecipe, trained_positions: int | None) -> dict[str, Any]:
    """Keys of `config.json`: the meaning of the head's outputs, and the lengths it was trained with."""
    keys: dict[str, Any] = {"finetuning": {"task": task.name, **{name: getattr(recipe, name) for name in LENGTHS}}}
    if trained_positions is not None:
        keys["trained_positions"] = trained_positions
    target = task.target
    if target.is_linear:
        keys["max_sequence_length"] = recipe.max_length
    outputs: dict[str, Any] = {}
    if target.output_names is not None:
        outputs["id2label"] = dict(enumerate(target.output_names))
    if target.problem_type is not None:
        outputs["problem_type"] = target.problem_type
    if target.problem_type == "regression" and isinstance(task.inputs, Pair):
        outputs[ACTIVATION_KEY] = "Identity"  # else CrossEncoder of sentence-transformers applies a sigmoid
    return {**outputs, **keys}


# --------------------------------------------------------------------------------------------------------------------
# A fine-tuned model directory, opened for a task.


@dataclass(frozen=True)
class OpenedForTask:
    """A fine-tuned model for a task.

    Attributes:
        recipe: the task's, with the lengths that the model was trained with.
        target: what is predicted, with what was tuned.
        label_columns: for each label of the task the model's output; None: in order.
    """

    model: nn.Module
    tokenizer: Tokenizer
    recipe: TaskRecipe
    target: Task
    label_columns: list[int] | None
    directory: Path
    notes: tuple[str, ...]


def open_for_task(
    task: DeclaredTask,
    model: str,
    max_length: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    depth: int | None = None,
    label_threshold: float | None = None,
) -> OpenedForTask:
    """Open a model directory, a run of `albert finetune`, or a Hub id; for the rest see `evaluate_models`."""
    target = task.target
    kind = target.model_kind_of(kind_of(read_config(find_model(model))[1]))
    if kind == "pair_classification" and not len(task.inputs.columns) == 2:
        raise InvalidConfiguration(model, f"compares two texts, {task.title} has one", _OTHER_MODEL)
    opened = open_model(model, kind, overrides=overrides)
    opened.loading_report.warn_if_unverified()
    missing = opened.loading_report.newly_initialised
    if missing:
        remedy = "give a model of `albert finetune` for this task"
        raise InvalidConfiguration(model, f"has no head for this task ({', '.join(missing)} would be random)", remedy)
    target.check_head(opened.extra.get("problem_type"), model)
    columns = label_columns(target, opened.extra.get("id2label"), model)
    tokenizer = tokenizer_of(opened)
    saved = opened.extra.get("finetuning", {})
    lengths = {name: saved[name] for name in LENGTHS if name in saved} if isinstance(saved, dict) else {}
    if not all(isinstance(value, int) and value > 0 for value in lengths.values()):
        raise InvalidConfiguration(f"{model}: finetuning", f"holds invalid lengths: {lengths}")
    recipe = replace(task.recipe, **lengths)
    if max_length is not None:
        recipe = replace(recipe, max_length=max_length)
    recipe.check()
    recipe = fit_length(recipe, opened.config.max_position_embeddings)
    target = target.tuned_as(opened.extra, model, label_threshold)
    if isinstance(target, Regression):
        target = replace(target, activation=score_activation(opened.extra))
    notes = tuple(opened.loading_report.lines())
    if depth is not None:
        set_depth(opened.model, depth)
        notes += (f"run at depth {depth} of {opened.config.num_hidden_layers}",)
    return OpenedForTask(opened.model, tokenizer, recipe, target, columns, opened.directory, notes)


def fit_length(recipe: TaskRecipe, positions: int) -> TaskRecipe:
    """Limit the length of a recipe to the position embeddings of the model."""
    return replace(recipe, max_length=min(recipe.max_length, positions))


def label_columns(
    target: Task,
    id2label: Mapping[int, str] | None,
    model: str,
    remedy: str = _OTHER_MODEL,
    may_be_unnamed: bool = True,
) -> list[int] | None:
    """For each label of the task, the index of the model's output for it; None for targets without labels.

    Labels are matched by name, as in the data or in words. A model with the default names `LABEL_0`, ... is taken to
    have the task's order, if it may be unnamed.
    """
    if not target.class_names:
        if id2label is not None and target.n_outputs is not None and len(id2label) != target.n_outputs:
            raise InvalidConfiguration(model, f"has {len(id2label)} outputs, a score needs 1", remedy)
        return None
    names = [id2label[index] for index in sorted(id2label)] if id2label else []
    for labels in (target.class_names, target.output_names or ()):
        if sorted(names) == sorted(labels):
            return [names.index(label) for label in labels]
    if may_be_unnamed and names == [f"LABEL_{index}" for index in range(len(target.class_names))]:
        return list(range(len(names)))
    why = f"has the labels {', '.join(names)}; the task has {', '.join(target.output_names or ())}"
    raise InvalidConfiguration(model, why, remedy)


# --------------------------------------------------------------------------------------------------------------------
# A model whose encoder is not trained.


class FrozenEncoder(nn.Module):
    """A model of which only the pooler and the head are trained; the encoder runs without dropout or gradients."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model: Any = model
        self._fixed = (self.model.albert.embeddings, self.model.albert.encoder)
        for part in self._fixed:
            part.requires_grad_(False)

    def forward(
        self, packed: PackedSequences, *head_inputs: Tensor, states: Float[Tensor, "tokens H"] | None = None
    ) -> Any:
        """The head's output; `head_inputs` are its inputs besides the encoder's states, which may be given."""
        computed = self.states(packed) if states is None else states
        return self.model.head_outputs(computed, packed, *head_inputs)

    def states(self, packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """The states of the last layer."""
        inputs = split_segments(packed) if isinstance(self.model, AlbertForPairClassification) else packed
        for part in self._fixed:
            part.eval()
        with torch.no_grad():
            return self.model.albert(inputs)
