"""The recipe of a run: settled when it begins, kept in its folder, compared when it goes on."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from albert.pretraining.dropout_changes import DropoutChanges, dropout_at, with_change
from albert.pretraining.recipes import PretrainingRecipe
from albert.runtime.devices import default_precision
from albert.runtime.distributed import sum_over_ranks
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.strict_json import load_json, save_json, to_json
from albert.runtime.world import World
from albert.text.preparation.shards import TokenCorpus
from albert.training.run_folder import RunFolder

FREE_TO_CHANGE = (
    "workers",
    "checkpoint_minutes",
    "checkpoint_every",
    "keep_checkpoints",
    "parallelism",
    "peer_timeout_minutes",
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
    "equal_queries_and_keys": None,
}
"""Values that mean what recipes without such a field meant: runs begun before it was there go on."""


def settle(
    recipe: PretrainingRecipe,
    corpus: TokenCorpus,
    run: RunFolder,
    place: torch.device,
    here: World,
    change_dropout: float | None = None,
) -> PretrainingRecipe:
    """The recipe with nothing left open, the same on all ranks and for all time.

    The vocabulary is the corpus's. The precision, and changes of dropout, are those of the run where it has begun.

    Args:
        recipe: as it was asked for.
        corpus: the data.
        run: where it may have begun.
        place: the device.
        here: this process.
        change_dropout: dropout from the newest checkpoint on.

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
    against = sum_over_ranks(torch.tensor(float(precision == "fp32"), device=place), here)
    precision = "fp32" if against > 0 else "bf16"
    model = replace(recipe.model, vocab_size=corpus.vocab_size)
    return replace(recipe, model=model, precision=precision, dropout_changes=changes)


def keep_recipe(run: RunFolder, recipe: PretrainingRecipe) -> None:
    """Save the recipe of a new run, and what is free to change; refuse to go on with a run of another.

    Args:
        run: its folder, locked.
        recipe: settled; changes of dropout, and what is free from now on, are its only news.

    Raises:
        InvalidConfiguration: the run has another recipe.
    """
    if run.recipe_path.exists():
        recipe_kept = load_json(PretrainingRecipe, run.recipe_path)
        kept = flat(to_json(replace(recipe_kept, dropout_changes=recipe.dropout_changes)))
        for key, value in flat(to_json(recipe)).items():
            if kept[key] != value and key not in (*FREE_TO_CHANGE, *FREE_FROM_NOW_ON):
                why = f"this run was started with {key} {kept[key]}, now it is {value}"
                raise InvalidConfiguration(run.path, why, "choose another output, or the run's own recipe.json")
        news = {name: getattr(recipe, name) for name in (*FREE_FROM_NOW_ON, "dropout_changes")}
        recipe = replace(recipe_kept, **news)
        if recipe == recipe_kept:
            return
    save_json(run.recipe_path, recipe)


def recipe_fingerprint(recipe: PretrainingRecipe) -> str:
    """A hash of everything that must not change under a run; dropout may, at a step that the recipe names."""
    free = (*FREE_TO_CHANGE, *FREE_FROM_NOW_ON, "dropout_changes")
    fixed = {
        key: value
        for key, value in flat(to_json(recipe)).items()
        if key not in free and (key not in _SINCE_THE_FIRST_RUNS or value != _SINCE_THE_FIRST_RUNS[key])
    }
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A tree of values as `outer.inner` -> value."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


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
