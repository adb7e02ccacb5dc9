"""What identifies a pre-training run: recipe, corpora and starting weights, checked on resuming and across ranks.

Starting from a trained model (`Init`) is here too: weights only, in the recipe's architecture and the corpus's pieces.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from albert.checkpoints.hub import find_model, model_name
from albert.checkpoints.huggingface import sentence_objective
from albert.checkpoints.model_directory import (
    FINGERPRINT_KEY,
    OpenedModel,
    open_model,
    read_config,
    tokenizer_of,
    weights_fingerprint,
)
from albert.checkpoints.warm_start import (
    PieceOrigins,
    pieces_by_text,
    require_equal_widths,
    same_pieces,
    trained_length,
    warm_start,
)
from albert.model.albert import AlbertForPreTraining
from albert.model.config import Extension
from albert.pretraining.recipe import (
    DropoutChanges,
    Head,
    PretrainingRecipe,
    StartRecord,
    continue_recipe,
    dropout_at,
    with_change,
)
from albert.pretraining.segments import head_task
from albert.runtime.devices import default_precision, seed_torch
from albert.runtime.distributed import code_fingerprint, require_same_on_ranks, sum_over_ranks
from albert.runtime.environment import Ranks
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.json_files import (
    differences,
    fingerprint_of,
    flatten,
    identity_settings,
    load_json,
    save_json,
    to_json,
)
from albert.runtime.manifest import MANIFEST_NAME, file_hash
from albert.text.shards import TokenCorpus
from albert.text.tokenizer_loading import vocabulary_file
from albert.training.run_folder import RunFolder

FREE_TO_CHANGE = (
    "workers",
    "checkpoint_minutes",
    "checkpoint_every",
    "keep_checkpoints",
    "parallelism",
    "peer_timeout_minutes",
    "fixed_shape",
    "compile",
    "deterministic",
)
"""What may differ when a run is resumed: it changes no number, or as parallelism the last bits alone."""

FREE_FROM_NOW_ON = ("max_tokens", "max_minutes", "on_divergence", "spike_deviations", "max_rollbacks")
"""What may differ as well: it decides how a run goes on, and nothing about the updates it has taken."""

_SINCE_THE_FIRST_RUNS: dict[str, Any] = {
    "model.attention_window": None,
    "sinusoidal_positions": None,
    "sequences.neighbours_probability": 0.0,
    "sequences.keep_pairs": False,
    "hard_examples.focus": 0.0,
    "hard_examples.warmup_steps": 0,
    "evaluation_objectives": [],
    "activation_checkpointing": False,
    "schedule.anneal": "steps",
    "schedule.decay_share": 1.0,
}
"""Values that mean what recipes without such a field meant: runs begun before it was there go on."""


def resolve_recipe(
    recipe: PretrainingRecipe,
    corpus: TokenCorpus,
    run: RunFolder,
    place: torch.device,
    ranks: Ranks,
    change_dropout: float | None = None,
) -> PretrainingRecipe:
    """The recipe with nothing left open, the same on all ranks and for all time.

    The vocabulary is the corpus's. The precision, and changes of dropout, are those of the run where it has begun.

    Raises:
        InvalidConfiguration: other changes of dropout than the run has, or no point at which to change it.
    """
    kept = load_json(PretrainingRecipe, run.recipe_path) if run.recipe_path.exists() else None
    precision, changes = recipe.precision, recipe.dropout_changes
    if kept is not None:
        precision = kept.precision if precision == "auto" else precision
        if kept.dropout_changes[: len(changes)] != changes:
            why = f"this run was started with dropout_changes {kept.dropout_changes}, now it is {changes}"
            raise InvalidConfiguration(run.path, why, "change it on the way with --change-dropout")
        changes = kept.dropout_changes
    if change_dropout is not None:
        changes = _changed_now(recipe, changes, run, change_dropout)
    if precision == "auto":
        precision = default_precision(place)
    against = sum_over_ranks(torch.tensor(float(precision == "fp32"), device=place), ranks)
    precision = "fp32" if against > 0 else "bf16"
    model = replace(recipe.model, vocab_size=corpus.vocab_size)
    return replace(recipe, model=model, precision=precision, dropout_changes=changes)


def keep_recipe(run: RunFolder, recipe: PretrainingRecipe) -> None:
    """Save the recipe of a new run, and what is free to change; refuse to go on with a run of another.

    Raises:
        InvalidConfiguration: the run has another recipe.
    """
    if run.recipe_path.exists():
        recipe_kept = load_json(PretrainingRecipe, run.recipe_path)
        kept = flatten(to_json(replace(recipe_kept, dropout_changes=recipe.dropout_changes)))
        now = identity_settings(flatten(to_json(recipe)), (*FREE_TO_CHANGE, *FREE_FROM_NOW_ON), {})
        for key, before, value in differences(kept, now):
            why = f"this run was started with {key} {before}, now it is {value}"
            raise InvalidConfiguration(run.path, why, "choose another output, or the run's own recipe.json")
        news = {name: getattr(recipe, name) for name in (*FREE_FROM_NOW_ON, "dropout_changes")}
        recipe = replace(recipe_kept, **news)
        if recipe == recipe_kept:
            return
    save_json(run.recipe_path, recipe)


def recipe_fingerprint(recipe: PretrainingRecipe) -> str:
    """A hash of everything that must not change under a run; dropout may, at a step that the recipe names."""
    free = (*FREE_TO_CHANGE, *FREE_FROM_NOW_ON, "dropout_changes")
    return fingerprint_of(identity_settings(flatten(to_json(recipe)), free, _SINCE_THE_FIRST_RUNS))


def _changed_now(
    recipe: PretrainingRecipe, changes: DropoutChanges, run: RunFolder, probability: float
) -> DropoutChanges:
    """The changes with one at the newest checkpoint, unless dropout is that there already."""
    checkpoints = run.checkpoints()
    if not checkpoints:
        remedy = "a new run takes --model.hidden-dropout-prob and --model.attention-probs-dropout-prob"
        raise InvalidConfiguration("--change-dropout", f"{run.path} has no checkpoint to go on from", remedy)
    step = checkpoints[-1][0]
    own = {recipe.model.hidden_dropout_prob, recipe.model.attention_probs_dropout_prob}
    now = dropout_at(changes, step)
    if ({now} if now is not None else own) == {probability}:
        return changes
    if step >= recipe.schedule.total_steps:
        remedy = f"start another run with --init {run.path}"
        raise InvalidConfiguration("--change-dropout", f"{run.path} has taken all its updates", remedy)
    return with_change(changes, step, probability)


# --------------------------------------------------------------------------------------------------------------------
# Pre-training that starts from a trained model: weights only, in the recipe's architecture and the corpus's pieces.
#
# The optimiser starts anew and the warm-up runs. What the run was started from stands in its `start.json`, as a
# hash of the weights; the weights themselves are its checkpoint of step 0, so that the run needs the model no more.

_HEADS: dict[Head, str] = {"masked_tokens": "predictions.", "sentence_order": "sop_classifier."}


@dataclass(frozen=True, kw_only=True)
class Init:
    """A trained model to start from, and what may become of it."""

    model: str
    """A model directory, a run that made one, or a Hub id."""
    revision: str | None = None
    """Of the Hub repository."""
    resize_vocabulary: bool = False
    """Whether the corpus may have another tokenizer than the model."""
    extend_positions: Extension | None = None
    """How positions beyond the trained ones are made; None: tiled where the model has none."""
    drop_heads: tuple[Head, ...] = ()
    """Heads to draw anew."""


def warm_start_for_pretraining(
    init: Init, recipe: PretrainingRecipe, model: AlbertForPreTraining, corpus: TokenCorpus
) -> StartRecord:
    """Put the weights of a trained model into one that was drawn at random.

    Raises:
        MissingInput, Unavailable, DamagedData: the trained model cannot be opened.
        InvalidConfiguration: its widths, its layers or its tokenizer are not those of the recipe and the corpus.
    """
    directory = find_model(init.model, init.revision)
    require_equal_widths(read_config(directory)[0], recipe.model)
    seed_torch("warm start", recipe.seed)  # heads that the file lacks
    opened = open_model(directory, "pretraining")
    origins, tokenizer = _origins(opened, corpus, init)
    tensors = opened.model.state_dict()
    weights = weights_fingerprint(tensors)
    dropped = {head: _HEADS[head] for head in init.drop_heads}
    asked, objective = head_task(recipe.sequences.objective), sentence_objective(opened.extra)
    notes = []
    if asked != objective and "none" not in (asked, objective):
        dropped["sentence_order"] = _HEADS["sentence_order"]
        notes.append(f"the sentence head was trained for {objective}, this run asks for {asked}")
    result = warm_start(
        {name: tensor for name, tensor in tensors.items() if not name.startswith(tuple(dropped.values()))},
        opened.config,
        model.state_dict(),
        recipe.model,
        origins=origins,
        extend_positions=init.extend_positions,
        trained_positions=trained_length(opened.extra),
    )
    model.load_state_dict(result.tensors)
    report = opened.loading_report
    drawn = [*report.newly_initialised, *result.drawn]
    notes += [*result.notes, *([f"new, drawn at random: {', '.join(drawn)}"] if drawn else [])]
    notes += filter(None, [report.not_used])
    return StartRecord(
        source=model_name(init.model, init.revision),
        weights=weights,
        tokenizer=tokenizer,
        extend_positions=init.extend_positions,
        drop_heads=init.drop_heads,
        trained_positions=result.trained_positions,
        notes=tuple(notes),
    )


def recipe_like(init: Init) -> PretrainingRecipe:
    """The recipe `continue` for a model: nothing of its architecture changes.

    Raises:
        MissingInput, Unavailable, DamagedData, InvalidConfiguration: its `config.json` cannot be read.
    """
    config, extra = read_config(find_model(init.model, init.revision))
    return continue_recipe(config, trained_length(extra), sentence_objective(extra))


def _origins(opened: OpenedModel, corpus: TokenCorpus, init: Init) -> tuple[PieceOrigins, str | None]:
    new, recorded = corpus.tokenizer(), opened.extra.get(FINGERPRINT_KEY)
    if recorded is not None and new.matches_fingerprint(str(recorded)):
        return same_pieces(opened.config.vocab_size, new.vocab_size), None
    if not vocabulary_file(opened.directory).is_file():
        why = "has no tokenizer: nothing tells which embedding is whose"
        raise MissingInput(init.model, why, "put the model's tokenizer beside its weights")
    old = tokenizer_of(opened)
    if old.fingerprint == new.fingerprint:
        return same_pieces(opened.config.vocab_size, new.vocab_size), None
    if not init.resize_vocabulary:
        ours, theirs = old.fingerprint[:12], new.fingerprint[:12]
        why = f"has tokenizer {ours}, {corpus.directory} was prepared with {theirs}"
        remedy = "prepare the corpus with the model's tokenizer, or let --resize-vocabulary match the pieces"
        raise InvalidConfiguration(init.model, why, remedy)
    return pieces_by_text(old, opened.config.vocab_size, new), old.fingerprint


# --------------------------------------------------------------------------------------------------------------------
# All ranks of a pre-training run need identical arguments.


def refuse_another_start_elsewhere(
    recipe: PretrainingRecipe,
    corpora: Sequence[TokenCorpus],
    run: RunFolder,
    init: Init | None,
    change_dropout: float | None,
    ranks: Ranks,
    place: torch.device,
) -> None:
    """Compare code, recipe, data and the point to go on from over all ranks.

    Raises:
        InvalidConfiguration: a rank was given something else than the first, or sees other files.
    """
    facts = {
        "code": code_fingerprint(),
        "torch": torch.__version__,
        "recipe": repr((recipe, change_dropout)),
        "tokenizer": " ".join(corpus.description.tokenizer_fingerprint for corpus in corpora),
        "corpus": " ".join(file_hash(corpus.directory / MANIFEST_NAME) for corpus in corpora),
        "model to start from": repr(init),
        "newest checkpoint": repr([step for step, _ in run.checkpoints()[-1:]]),
    }
    require_same_on_ranks(facts, ranks, place)


# --------------------------------------------------------------------------------------------------------------------
# What a run was trained on, kept in its `corpora.json`, so that another corpus is refused with what differs.

RECORD_NAME = "corpora.json"


@dataclass(frozen=True, kw_only=True)
class CorpusRecord:
    """A prepared corpus."""

    name: str
    """The end of its path; it may lie elsewhere now."""
    documents: int
    tokens: int
    tokenizer: str
    """The fingerprint of its tokenizer."""
    manifest: str
    """SHA-256 of its manifest, and so of all its bytes."""

    def __str__(self) -> str:
        size = f"{self.documents:,} documents, {self.tokens:,} tokens"
        return f"{self.name} ({size}, tokenizer {self.tokenizer[:8]}, manifest {self.manifest[:8]})"


@dataclass(frozen=True, kw_only=True)
class CorpusRecords:
    """All corpora of a run, in their order."""

    corpora: tuple[CorpusRecord, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.corpora))


def record_of(corpora: Sequence[TokenCorpus]) -> CorpusRecords:
    """The record of corpora as they are."""
    records = [
        CorpusRecord(
            name=corpus.directory.resolve().name,
            documents=corpus.n_documents,
            tokens=corpus.n_tokens,
            tokenizer=corpus.tokenizer_fingerprint,
            manifest=file_hash(corpus.directory / MANIFEST_NAME),
        )
        for corpus in corpora
    ]
    return CorpusRecords(corpora=tuple(records))


def keep_corpora(run: RunFolder, corpora: Sequence[TokenCorpus]) -> None:
    """Save what a new run is trained on; refuse to go on with a run of other corpora.

    A run that was begun before there were such records is left to the fingerprints of its checkpoints.

    Raises:
        InvalidConfiguration: the run was trained on others, or on these in another order.
    """
    now, path = record_of(corpora), run.path / RECORD_NAME
    if path.exists():
        kept = load_json(CorpusRecords, path)
        if [each.manifest for each in kept.corpora] != [each.manifest for each in now.corpora]:
            why = f"this run was started with the corpus {kept}, now it is {now}"
            raise InvalidConfiguration(run.path, why, "give the run's own corpus, or choose another output")
    elif not run.checkpoints():
        save_json(Path(path), now)
