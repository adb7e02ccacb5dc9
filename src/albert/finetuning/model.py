"""The model of a fine-tuning run: pre-trained or random encoder, new or kept head, several exits.

`start_model` builds it, `open_for_task` opens a fine-tuned model to answer a task."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from albert.checkpoints.hub import find_model, model_name
from albert.checkpoints.huggingface import Kind, build_model, kind_of
from albert.checkpoints.loading import LoadingReport
from albert.checkpoints.model_directory import OpenedModel, open_model, read_config, tokenizer_of
from albert.checkpoints.warm_start import outputs_by_name, trained_length, warm_start
from albert.model.albert import AlbertForPairClassification, AlbertModel, set_depth
from albert.model.config import FULL_WIDTH, AlbertConfig, ArchitectureChanges
from albert.model.packing import PackedSequences, split_segments
from albert.runtime.devices import seed_torch
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.answers import NullThreshold, saved_threshold
from albert.tasks.task import Choice, Labels, Option, Pair, PairEncoding, Score, Span, Tags, Target, Task, TaskRecipe
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer

# --------------------------------------------------------------------------------------------------------------------
# Keeping a model's own head: its outputs are matched to the task's labels by name.

_REMEDY = "leave --keep-head out: a new head is drawn, the rest of the model stays"


def order_kept_head(opened: OpenedModel, target: Target, model: str) -> None:
    """Put the outputs of the file's head into the order of the target's labels.

    Raises:
        InvalidConfiguration: the file has no such head, or one with other outputs.
    """
    fresh = [name for name in opened.loading_report.newly_initialised if not name.startswith("albert.")]
    if fresh:
        raise InvalidConfiguration(model, f"has no head to keep ({', '.join(fresh)} are missing)", _REMEDY)
    if isinstance(target, Span | Option):
        return
    head = opened.model.classifier
    assert isinstance(head, nn.Linear)
    if isinstance(target, Choice | Labels | Tags):
        order = outputs_by_name(opened.extra.get("id2label"), (target.labels, target.shown), model)
        with torch.no_grad():
            head.weight.copy_(head.weight[order].clone())
            head.bias.copy_(head.bias[order].clone())
    elif head.out_features != 1:
        raise InvalidConfiguration(model, f"has a head with {head.out_features} outputs, a number needs 1", _REMEDY)


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
    return RandomEncoder(start.changes.applied_to(config), directory, start.changes.changed_fields())


@dataclass(frozen=True, kw_only=True)
class StartedModel:
    """A model that can learn a task.

    Args:
        model: with a fresh head, or a kept one.
        changes: what was asked to change, as plain values.
        changed: what became of it, in words.
        trained_positions: positions that pre-training reached, or that were made of such; None: nobody said.
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


def choose_pair_encoding(
    task: Task, start: Start, asked: PairEncoding | None, exits: bool, kept: Mapping[str, Any] | None
) -> PairEncoding:
    """How a run reads pairs: as asked, as it began if it goes on, as the kept head does, or by the model's width.

    Models narrower than ALBERT-base read the texts of a pair separately: none that was pre-trained on a small budget
    has learnt to match words across segments (results/README.md, "Pairs read separately").

    Args:
        kept: what the run that goes on recorded; see `read_run_record`.

    Raises:
        InvalidConfiguration: asked for where it cannot be.
    """
    if not isinstance(task.inputs, Pair) or not isinstance(task.target, Choice | Labels | Score):
        if asked == "separately":
            raise InvalidConfiguration(
                "encode_pairs", f"separately needs pairs of texts, {task.title} has none", _LEAVE
            )
        return "together"
    began = None if kept is None else kept.get("settings", {}).get("encode_pairs", "together")
    if isinstance(start, RandomEncoder):
        config, has = start.config, None
    else:
        config, extra = read_config(find_model(start.model, start.revision))
        separate_head = kind_of(extra) == "pair_classification"
        has: PairEncoding | None = ("separately" if separate_head else "together") if start.keep_head else None
    if has is not None and asked not in (None, has):
        raise InvalidConfiguration("encode_pairs", f"{asked}: the head that is kept reads pairs {has}", _LEAVE)
    if exits and "separately" in (asked, has):
        why = "separately has no exits after several layers"
        raise InvalidConfiguration("encode_pairs", why, "leave --exits out, or encode pairs together")
    by_width: PairEncoding = "separately" if config.hidden_size < FULL_WIDTH and not exits else "together"
    return asked or began or has or by_width


_LEAVE = "leave it out"


def start_model(
    start: Start, target: Target | None, recipe: TaskRecipe, seed: int, pairs: PairEncoding = "together"
) -> StartedModel:
    """Build the model that a kind of target needs; what is drawn at random depends on the seed alone.

    Raises:
        MissingInput, DamagedData, Unavailable: the model directory or tokenizer cannot be opened, or do not belong
            together.
        InvalidConfiguration: the tokenizer of a random encoder has more pieces than the model has embeddings, the
            architecture cannot be changed so, or there is no head to keep.
    """
    seed_torch("finetuning.head", seed)
    dropouts = {"classifier_dropout_prob": recipe.head_dropout}
    if recipe.encoder_dropout is not None:
        dropouts |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), recipe.encoder_dropout)
    kind = head_kind(target, pairs)
    if isinstance(start, RandomEncoder):
        config, directory = replace(start.config, **dropouts), start.tokenizer_directory
        tokenizer = load_tokenizer(directory)
        if tokenizer.vocab_size > config.vocab_size:
            why = f"has {tokenizer.vocab_size} pieces, the model has {config.vocab_size} embeddings"
            raise InvalidConfiguration(directory, why, "use the tokenizer that the model was trained with")
        return StartedModel(
            model=build_model(kind, config, n_outputs(target)).train(),
            config=config,
            tokenizer=tokenizer,
            tokenizer_directory=directory,
            source="random weights",
            changes=start.changes,
            notes=("every tensor is drawn at random (no pre-training)",),
        )
    opened = open_model(
        start.model,
        kind,
        None if start.keep_head else n_outputs(target),
        revision=start.revision,
        new_head=not start.keep_head,
        overrides=dropouts,
    )
    if start.keep_head and target is not None:
        order_kept_head(opened, target, start.model)
    tokenizer = tokenizer_of(opened)
    config = start.changes.applied_to(opened.config)
    trained = trained_length(opened.extra)
    model, changed, source = opened.model, (), model_name(start.model, start.revision)
    if config != opened.config or start.changes.extend_positions is not None:
        model = build_model(kind, config, n_outputs(target))
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
        changed = (*changed, f"the head of {source} is kept")
    notes = (*_loading_notes(opened.loading_report), *changed)
    if trained is not None and trained < min(recipe.max_length, config.max_position_embeddings):
        notes += (f"positions from {trained} on were never trained: --extend-positions makes them of the others",)
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
    )


def _loading_notes(report: LoadingReport) -> tuple[str, ...]:
    state = "checked against its manifest" if report.verified else "unverified: it has no manifest"
    new = f"new, drawn at random: {', '.join(report.newly_initialised)}" if report.newly_initialised else ""
    return (f"{report.source}: {state}", *filter(None, (new, report.not_used)), *report.notes)


def head_kind(target: Target | None, pairs: PairEncoding = "together") -> Kind:
    """The kind of model that a kind of target needs; None needs an encoder alone."""
    match target:
        case None:
            return "encoder"
        case Choice() | Labels() | Score():
            return "classification" if pairs == "together" else "pair_classification"
        case Tags():
            return "token_classification"
        case Option():
            return "multiple_choice"
        case Span(head="joint"):
            return "joint_question_answering"
        case Span():
            return "question_answering"


def n_outputs(target: Target | None) -> int | None:
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
    target, outputs = task.target, {}
    if isinstance(target, Span):
        return kept
    if isinstance(target, Choice | Labels | Tags):
        outputs["id2label"] = dict(enumerate(target.shown))
    elif isinstance(target, Score):
        outputs["id2label"] = {0: target.column}
    if type(target) in PROBLEM_TYPES:
        outputs["problem_type"] = PROBLEM_TYPES[type(target)]
    return {**outputs, **kept, "max_sequence_length": recipe.max_length}


# --------------------------------------------------------------------------------------------------------------------
# A fine-tuned model directory, opened to answer a task: the head that it has, its labels, lengths and threshold.

_ANSWERING: tuple[Kind, ...] = ("question_answering", "joint_question_answering")


@dataclass(frozen=True)
class OpenedForTask:
    """A model that can be asked a task.

    Attributes:
        recipe: the task's, with the lengths that the model was trained with.
    """

    model: nn.Module
    tokenizer: Tokenizer
    recipe: TaskRecipe
    label_columns: list[int] | None
    threshold: NullThreshold
    directory: Path
    notes: tuple[str, ...]


def open_for_task(
    task: Task,
    model: str,
    max_length: int | None = None,
    revision: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    depth: int | None = None,
) -> OpenedForTask:
    """Open a model directory, a run of `albert finetune`, or a Hub id; for the rest see `evaluate_directory`.

    Raises:
        InvalidConfiguration: the model has no head for this kind of target, or other labels, or not that depth.
        MissingInput, DamagedData: the model cannot be read, or the tokenizer is another one's.
    """
    kind, target = head_kind(task.target), task.target
    if isinstance(target, Span | Choice | Labels | Score):
        # what answers questions, or compares texts, does it with the head that it has
        found = kind_of(read_config(find_model(model, revision))[1])
        kind = found if found in (_ANSWERING if isinstance(target, Span) else ("pair_classification",)) else kind
    if kind == "pair_classification" and not isinstance(task.inputs, Pair):
        raise InvalidConfiguration(model, f"compares two texts, {task.title} has one", "give another model")
    opened = open_model(model, kind, revision=revision, overrides=overrides)
    opened.loading_report.warn_if_unverified()
    fresh = opened.loading_report.newly_initialised
    if fresh:
        remedy = "give a model of `albert finetune` for this task"
        raise InvalidConfiguration(model, f"has no head for this task ({', '.join(fresh)} would be random)", remedy)
    # Outputs trained to exclude each other say nothing of several labels at once, nor the other way round.
    problem, several = opened.extra.get("problem_type"), PROBLEM_TYPES[Labels]
    if isinstance(target, Labels) and problem != several:
        why = f"was not trained for several labels at once (its problem_type is {problem!r})"
        raise InvalidConfiguration(model, why, "give another model")
    if isinstance(target, Choice) and problem == several:
        why = "was trained for several labels at once, the task has one"
        raise InvalidConfiguration(model, why, "give another model")
    columns = label_columns(target, opened.extra.get("id2label"), model)
    tokenizer = tokenizer_of(opened)
    recipe = _recipe_of_model(task, opened.extra, model)
    if max_length is not None:
        recipe = replace(recipe, max_length=max_length)
    recipe.check()
    recipe = fit_length(recipe, opened.config.max_position_embeddings)
    threshold = saved_threshold(opened.extra, model)
    notes = tuple(opened.loading_report.lines())
    if depth is not None:
        set_depth(opened.model, depth)
        notes += (f"run at depth {depth} of {opened.config.num_hidden_layers}",)
    return OpenedForTask(opened.model, tokenizer, recipe, columns, threshold, opened.directory, notes)


def fit_length(recipe: TaskRecipe, positions: int) -> TaskRecipe:
    """The recipe with its length limited to the positions that the model has."""
    return replace(recipe, max_length=min(recipe.max_length, positions))


def _recipe_of_model(task: Task, extra: Mapping[str, Any], model: str) -> TaskRecipe:
    kept = extra.get("finetuning", {})
    lengths = {name: kept[name] for name in LENGTHS if name in kept} if isinstance(kept, dict) else {}
    if not all(isinstance(value, int) and value > 0 for value in lengths.values()):
        raise InvalidConfiguration(f"{model}: finetuning", f"holds invalid lengths: {lengths}")
    return replace(task.recipe, **lengths)


def label_columns(target: Target, id2label: Mapping[int, str] | None, model: str) -> list[int] | None:
    """For each label of the task, which output of the model it is; None for targets without labels.

    Labels are matched by name (as in the data, or in words). A model with the nameless labels `LABEL_0`, ...
    is taken to have the task's order.

    Raises:
        InvalidConfiguration: the model has other labels than the task.
    """
    if not isinstance(target, Choice | Labels | Tags):
        if id2label is not None and isinstance(target, Score) and len(id2label) != 1:
            raise InvalidConfiguration(model, f"has {len(id2label)} outputs, a score needs 1", "give another model")
        return None
    names = [id2label[index] for index in sorted(id2label)] if id2label else []
    for known in (target.labels, target.shown):
        if sorted(names) == sorted(known):
            return [names.index(label) for label in known]
    if names == [f"LABEL_{index}" for index in range(len(target.labels))]:
        return list(range(len(names)))
    raise InvalidConfiguration(
        model,
        f"has the labels {', '.join(names)}; the task has {', '.join(target.shown)}",
        "give another model",
    )


# --------------------------------------------------------------------------------------------------------------------
# One head that learns to read the states after several layers, so that every one of those depths can be used.
#
# All exits share pooler and head: the model stays what it was, in parameters and on disk. Deeper exits weigh more
# in the loss, in proportion to their depth (PABEE: Zhou et al., 2020, §3.3).

Exits = Literal["every"] | tuple[int, ...]
"""After which layers the head learns to answer; the last one is always among them."""


def exit_depths(asked: Exits | None, config: AlbertConfig) -> tuple[int, ...]:
    """The depths at which the head learns, ascending; None is the full depth alone.

    Raises:
        InvalidConfiguration: a depth that the model does not have.
    """
    layers = config.num_hidden_layers
    if asked == "every":
        return tuple(range(1, layers + 1))
    for depth in asked or ():
        if not 1 <= depth <= layers:
            raise InvalidConfiguration("exits", f"names {depth}, the model has {layers} layers", "choose among them")
    return tuple(sorted({*(asked or ()), layers}))


def exit_weights(depths: tuple[int, ...]) -> tuple[float, ...]:
    """How much each exit's loss counts: in proportion to its depth, 1 together."""
    return tuple(depth / sum(depths) for depth in depths)


class MultiExitModel(nn.Module):
    """A model whose head is asked after several layers."""

    def __init__(self, model: nn.Module, depths: tuple[int, ...]) -> None:
        super().__init__()
        self.model: Any = model
        self.depths = depths

    def forward(
        self,
        packed: PackedSequences,
        told: tuple[Tensor, ...] = (),
        states: Float[Tensor, "depths tokens H"] | None = None,
    ) -> list[Any]:
        """What the head gives at each depth; `told` is what it needs to know beside the states."""
        found = self.states(packed) if states is None else states
        return [self.model.head_outputs(each, packed, *told) for each in found]

    def states(self, packed: PackedSequences) -> list[Float[Tensor, "tokens H"]]:
        """What the head reads at each depth, of which each is `inner_group_num` applications."""
        read = split_segments(packed) if isinstance(self.model, AlbertForPairClassification) else packed
        backbone: AlbertModel = self.model.albert
        wanted = {depth * backbone.config.inner_group_num for depth in self.depths}
        layers = backbone.encoder.each_layer(backbone.embeddings(read), read)
        return [states for number, states in enumerate(layers, start=1) if number in wanted]
