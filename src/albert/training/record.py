"""What a run was, and whether a call continues the same run.

A run is known by its record, the complete settings in `recipe.json`, and by its identity: fingerprints of everything
that decides its result (settings, data, initial weights), which each checkpoint has, and `results.json` at the end. A
call with another record or another identity is refused, and the setting that differs is named. Some settings may change
while a run goes on, because they do not change its result; they are listed here."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from albert.runtime.errors import CannotCreate, InvalidConfiguration, MissingInput
from albert.runtime.json_files import fingerprint_of, flatten, load_versioned, read_versioned, save_versioned, to_json
from albert.runtime.manifest import MANIFEST_NAME, file_hash
from albert.runtime.words import counted
from albert.text.shards import TokenCorpus
from albert.training.metric_logger import DEFAULT_LOG
from albert.training.run_folder import RunFolder

# --------------------------------------------------------------------------------------------------------------------
# Settings: those that may change while a run goes on, and the differences of the others.

PRETRAINING_MAY_CHANGE = (
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
"""Settings of pre-training that do not change the results, except in the last bits."""

PRETRAINING_MAY_CHANGE_LATER_UPDATES = ("max_tokens", "max_minutes", "on_divergence", "max_rollbacks")
"""Settings of pre-training that affect later updates only; the run's record has the newest values."""

FINETUNING_MAY_CHANGE = {
    "device": "auto",
    "workers": 0,
    "micro_batch_tokens": 1,
    "checkpoint_every": None,
    "log": DEFAULT_LOG,
}
"""Settings of fine-tuning that may change, with the values that stand for them in fingerprints."""


class Difference(NamedTuple):
    """A setting that differs."""

    name: str
    before: Any
    now: Any


def changed_settings(
    before: Mapping[str, Any], now: Mapping[str, Any], may_change: Collection[str] = ()
) -> list[Difference]:
    """The settings that differ, without those that may."""
    names = [name for name in {**before, **now} if name not in may_change]
    return [Difference(name, before.get(name), now.get(name)) for name in names if before.get(name) != now.get(name)]


# --------------------------------------------------------------------------------------------------------------------
# Fingerprints.


def pretraining_fingerprint(recipe: Any) -> str:
    """A hash of the settings that must not change during a run; dropout may, as recorded in the recipe.

    Args:
        recipe: a `PretrainingRecipe`.
    """
    may_change = (*PRETRAINING_MAY_CHANGE, *PRETRAINING_MAY_CHANGE_LATER_UPDATES, "dropout_changes")
    settings = flatten(to_json(recipe))
    return fingerprint_of({name: value for name, value in settings.items() if name not in may_change})


def finetuning_fingerprint(record: Mapping[str, Any]) -> str:
    """A hash of the record of a fine-tuning run, the same on every machine."""
    return fingerprint_of({**record, "settings": {**record["settings"], **FINETUNING_MAY_CHANGE}})


def first_difference(saved: Mapping[str, str], identity: Mapping[str, str]) -> str | None:
    """Name of the first fingerprint that differs from the saved one; None if all agree."""
    return next((key for key, value in identity.items() if saved.get(key) != value), None)


def require_same_identity(directory: Path, saved: Mapping[str, str], identity: Mapping[str, str]) -> None:
    """Refuse a checkpoint of another run.

    Raises:
        InvalidConfiguration: it was trained with another recipe, corpus or tokenizer.
    """
    key = first_difference(saved, identity)
    if key is not None:
        remedy = f"give the run's own {key} to resume it, or choose another output"
        raise InvalidConfiguration(directory, f"was trained with another {key}", remedy)


# --------------------------------------------------------------------------------------------------------------------
# A run.

_PARTS = ("task", "inputs", "target", "changes", "teacher", "recipe", "settings")
"""The parts of a fine-tuning run's record, in the order in which they are compared."""
_ANOTHER_OUTPUT = "choose another --output, or add --replace"
SEVERAL_RUNS = {"seed": "seeds", "rate": "learning rates", "fold": "folds"}
"""The beginning of the names of the folders of several runs -> what the runs are of."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run: its folder, its record, and its identity."""

    folder: RunFolder
    record: Mapping[str, Any]
    """The content of `recipe.json`."""
    identity: dict[str, str]
    """Fingerprints of everything that decides the result, by name."""

    def is_complete(self) -> bool:
        """Return whether the folder holds the results of this run.

        Raises:
            CannotCreate: it holds another run, finished or not, or the runs of several seeds, rates or folds.
        """
        folder = self.folder
        conflict = None
        if folder.results_path.is_file():
            results = read_versioned(folder.results_path)
            saved = results.get("identity")
            key = first_difference(saved if isinstance(saved, dict) else {}, self.identity)
            if key is None:
                return True
            what = self._changed_part(results) if key == "recipe" else None
            conflict = f"holds a finished run with {what or f'another {key}'}"
        elif folder.recipe_path.exists():
            what = self._changed_part(read_versioned(folder.recipe_path))
            if what is not None:
                conflict = f"holds another run, its recipe.json has {what}"
        else:
            several = next(several_runs_in(folder.path), None)
            conflict = None if several is None else f"holds the runs of several {SEVERAL_RUNS[several]}, not one"
        if conflict is not None:
            raise CannotCreate(folder.path, conflict, _ANOTHER_OUTPUT)
        return False

    def _changed_part(self, saved: Mapping[str, Any]) -> str | None:
        """The first part of a saved record that differs, in words; None if none does.

        "other settings: learning_rate (0.0001, now 0.0002)", or "another task".
        """
        for part in _PARTS:
            before = saved.get(part)
            now = self.record.get(part)
            if not isinstance(before, dict) or not isinstance(now, dict):
                if before != now:
                    return f"another {part}"
                continue
            before = {name: value for name, value in before.items() if name not in FINETUNING_MAY_CHANGE}
            now = {name: value for name, value in now.items() if name not in FINETUNING_MAY_CHANGE}
            if before == now:
                continue
            changed = changed_settings(before, now)
            shown = [f"{name} ({_shown(old)}, now {_shown(new)})" for name, old, new in changed[:3]]
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            return f"other settings: {', '.join(shown)}{more}"
        return None

    def finish(self, report: Mapping[str, Any]) -> None:
        """Write `results.json`, which says that the run is complete: the record, the report and the identity."""
        save_versioned(self.folder.results_path, {**self.record, **report, "identity": self.identity})


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"


def read_record(folder: RunFolder, task: str) -> dict[str, Any] | None:
    """The record of a fine-tuning run of this task; None if the folder has none."""
    if not folder.recipe_path.exists():
        return None
    record = read_versioned(folder.recipe_path)
    return record if record.get("task") == task and isinstance(record.get("recipe"), dict) else None


def several_runs_in(output: Path) -> Iterator[str]:
    """What a folder holds several runs of: "seed", "rate" or "fold"."""
    for name in SEVERAL_RUNS:
        if any(output.glob(f"{name}-*/recipe.json")):
            yield name


def refuse_other_runs(output: Path, own: Literal["seed", "rate", "fold"]) -> None:
    """Refuse to write several runs into the folder of one run, or beside several runs of something else.

    Raises:
        CannotCreate: the folder holds such a run.
    """
    if RunFolder(output).recipe_path.exists():
        raise CannotCreate(output, f"holds one run, not those of several {SEVERAL_RUNS[own]}", _ANOTHER_OUTPUT)
    for name in several_runs_in(output):
        if name != own:
            why = f"holds the runs of several {SEVERAL_RUNS[name]}, not of several {SEVERAL_RUNS[own]}"
            raise CannotCreate(output, why, _ANOTHER_OUTPUT)


# --------------------------------------------------------------------------------------------------------------------
# The recipe of a pre-training run.


def require_same_recipe(folder: RunFolder, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to continue a pre-training run with another recipe.

    Raises:
        InvalidConfiguration: a setting differs that must not change.
    """
    may_change = (*PRETRAINING_MAY_CHANGE, *PRETRAINING_MAY_CHANGE_LATER_UPDATES, "dropout_changes")
    for name, old, new in changed_settings(flatten(before), flatten(now), may_change):
        why = f"this run was started with {name} {old}, now it is {new}"
        raise InvalidConfiguration(
            folder.path, why, "choose another --output, add --replace, or use the run's own recipe.json"
        )


# --------------------------------------------------------------------------------------------------------------------
# The corpora of a pre-training run, in its `corpora.json`.

CORPORA_NAME = "corpora.json"


@dataclass(frozen=True, kw_only=True)
class CorpusRecord:
    """A prepared corpus."""

    name: str
    """The last part of its path when the run was started."""
    documents: int
    tokens: int
    tokenizer: str
    """The fingerprint of its tokenizer."""
    manifest: str
    """SHA-256 of its manifest, which has those of its files."""

    def __str__(self) -> str:
        size = f"{counted(self.documents, 'documents')}, {counted(self.tokens, 'tokens')}"
        return f"{self.name} ({size}, tokenizer {self.tokenizer[:8]}, manifest {self.manifest[:8]})"


@dataclass(frozen=True, kw_only=True)
class CorpusRecords:
    """The corpora of a run, in order."""

    corpora: tuple[CorpusRecord, ...]

    def __str__(self) -> str:
        return " and ".join(map(str, self.corpora))


def corpus_records(corpora: Sequence[TokenCorpus]) -> CorpusRecords:
    """The records of opened corpora."""
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


def check_and_save_corpora(folder: RunFolder, corpora: Sequence[TokenCorpus]) -> None:
    """Save the corpora of a new run; compare those of a resumed one.

    Raises:
        InvalidConfiguration: the run was trained on other corpora, or in another order.
    """
    now = corpus_records(corpora)
    path = folder.path / CORPORA_NAME
    if path.exists():
        saved = load_versioned(CorpusRecords, path)
        if [corpus.manifest for corpus in saved.corpora] != [corpus.manifest for corpus in now.corpora]:
            why = f"this run was started with the corpus {saved}, now it is {now}"
            raise InvalidConfiguration(
                folder.path, why, "give the run's own corpus, choose another --output, or add --replace"
            )
    else:
        save_versioned(path, now)


# --------------------------------------------------------------------------------------------------------------------
# The trained model that a pre-training run started from, in its `start.json`.

Head = Literal["masked_tokens", "sentence_order"]


@dataclass(frozen=True, kw_only=True)
class StartRecord:
    """The trained model that a run started from."""

    source: str
    """The model's name: a Hub id, or the end of a path."""
    weights: str
    """SHA-256 of its weights."""
    tokenizer: str | None
    """The fingerprint of its tokenizer; None if the corpus has the same."""
    extend_positions: bool
    drop_heads: tuple[Head, ...]
    trained_positions: int
    """Positions that were trained before this run."""
    notes: tuple[str, ...]
    """Which weights were changed, initialised or unused."""
    sentence_vectors: dict[str, Any] | None = None
    """How its texts become vectors, as its files of sentence-transformers say; None if it has none."""
    base: dict[str, Any] = field(default_factory=dict)
    """What the card says of the model: its name on the Hub, its languages and its licence."""

    @property
    def fingerprint(self) -> str:
        """A hash of what determines the initial weights, besides recipe and corpus."""
        record = to_json(self)
        settings = {key: record[key] for key in ("weights", "tokenizer", "extend_positions", "drop_heads")}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.source} (weights {self.weights[:12]})"

    def lines(self) -> list[str]:
        """The start as text, for logs and the model card."""
        return [f"started from {self}", *self.notes]


def recorded_start(folder: RunFolder) -> StartRecord | None:
    """The record of a run's start; None if it started from random weights, or has not started."""
    return load_versioned(StartRecord, folder.start_path) if folder.start_path.exists() else None


def require_same_start(folder: RunFolder, start: StartRecord | None) -> None:
    """Refuse to resume a run from another model than the one it was started from.

    Args:
        start: the requested start; None: the run's own.

    Raises:
        InvalidConfiguration: it was started from another model, or from random weights.
        MissingInput: no start is requested, and the run has no weights yet.
    """
    recorded = recorded_start(folder)
    if start is None:
        if recorded is not None and not folder.checkpoints():
            why = f"was to start from {recorded} and has no checkpoint yet"
            raise MissingInput(folder.path, why, "give --init again, or choose another output")
        return
    remedy = "choose another --output, add --replace, or leave --init out to continue"
    if recorded is None and folder.recipe_path.exists():
        raise InvalidConfiguration(folder.path, f"this run was started from random weights, not from {start}", remedy)
    if recorded is not None and recorded.fingerprint != start.fingerprint:
        options = "" if recorded.weights != start.weights else " with other options"
        why = f"this run was started from {recorded}{options}, now it is {start}"
        raise InvalidConfiguration(folder.path, why, remedy)
