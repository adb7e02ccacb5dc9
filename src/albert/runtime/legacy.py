"""Files of earlier versions: former names, fields that came later, settings that were removed since."""

import functools
import sys
from collections.abc import Mapping
from typing import Any

from albert.runtime.removed import OPTIONS

RECIPE_NAMES = {"two-cores": "small"}
"""Former names of pre-training recipes -> present ones; both are accepted."""

RECIPE_FIELDS_ADDED: dict[str, Any] = {
    "model.attention_window": None,
    "model.match_embedding": False,
    "model.family": "albert",
    "model.segment_types": True,
    "model.head_pooling": "pooler",
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
"""Fields that older recipes lack, with the values that mean the same: they are not part of the fingerprint then."""

FIELDS_REMOVED: dict[str, dict[str, tuple[Any, str]]] = {
    "PretrainingRecipe": {"spike_deviations": (None, OPTIONS["pretrain"]["--spike-deviations"])},
}
"""Class of settings -> removed field -> the value that meant the same as now, and what to do instead of another one.

None of them was part of a run's fingerprint, so a run may go on without them."""

FINGERPRINTS_ADDED = ("development set",)
"""Fingerprints that older runs did not record; these runs resume without them."""

DIVERGENCE_FIELDS_REMOVED = ("log_losses", "log_norms")
"""Of skipped updates and rollbacks in a training state: what the detection of loss spikes remembered."""


PREPROCESSING_KEY = "preprocessing"
REFERENCE_PREPROCESSING = "reference"
"""Key of `tokenizer_config.json` and its value for tokenizers that followed the original code, not transformers."""


@functools.cache
def note_reference_preprocessing(file: str) -> None:
    """Print, once for each file, that a tokenizer no longer follows the original code."""
    what = "the preprocessing of the original code was removed, text is read as transformers reads it"
    where = "numbers before a comma, quotes and very long words get other ids than in training"
    print(f"albert: note: {file}: {what}; {where}", file=sys.stderr)


def without_neutral(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a class of settings without the removed fields whose value meant the same as now."""
    removed = FIELDS_REMOVED.get(kind, {})
    return {name: value for name, value in values.items() if name not in removed or value != removed[name][0]}


def removed_settings(kind: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """The removed fields among the values whose value meant something else."""
    removed = FIELDS_REMOVED.get(kind, {})
    return {name: value for name, value in without_neutral(kind, values).items() if name in removed}


def present_training_state(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a training state without what was removed."""
    incidents = values.get("incidents")
    if not isinstance(incidents, dict):
        return dict(values)
    kept = {name: value for name, value in incidents.items() if name not in DIVERGENCE_FIELDS_REMOVED}
    return {**values, "incidents": kept}
