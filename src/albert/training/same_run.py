"""What makes a run the same run: the one definition, for every kind of run.

A run is its record, all settings with what was left open filled in (`recipe.json`), and its inputs, a fingerprint and
a name of everything that it reads (`inputs.json`):

                  record                                             inputs
    pre-training  the recipe                                         corpus, initial weights
    a task        the task, what it starts from, recipe, settings    training data, development set, initial weights,
                                                                     tokenizer, teacher
    vectors       the same, without a task                           the same, and Dense modules

A fingerprint is a hash of content, so that paths and names play no part: of token ids and labels, of texts, of tensors,
of the pieces of a tokenizer, of the manifests of corpora, which have hashes of their files. Pre-training from random
weights has none for these: they follow from the recipe. What a call leaves open is filled in before it is compared,
what a machine chose (precision=auto) from the saved record.

What follows from these has no part in it. `same_run` compares both with those in the folder that a call names:

    new        the folder holds no run
    resumed    the same record and inputs
    finished   the same, and there is `results.json`, which is written last
    grown      only settings differ that later updates alone depend on, such as a budget: the run continues with them

Another run is refused, with the setting or the input that differs and both values. Settings that do not change the
result may differ always; both kinds are listed here. A checkpoint has the fingerprints of its run, too."""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.runtime.files import remove_file
from albert.runtime.json_files import fingerprint_of, flatten, load_versioned, read_versioned, save_versioned
from albert.training.run_folder import RunFolder

# --------------------------------------------------------------------------------------------------------------------
# The settings that may differ, by their names in `recipe.json`; a name stands for all settings below it, too.

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
    "model.vocab_size",
)
"""Settings of pre-training that do not change the results, except in the last bits, and what follows from the inputs.
"""

PRETRAINING_GROWS = ("max_tokens", "max_minutes", "on_divergence", "max_rollbacks", "dropout_changes")
"""Settings of pre-training that later updates alone depend on."""

FINETUNING_MAY_CHANGE = (
    "start",
    "by_default",
    "target_scale",
    "settings.device",
    "settings.workers",
    "settings.micro_batch_tokens",
    "settings.checkpoint_every",
    "settings.log",
)
"""Settings of fine-tuning that do not change the results, and what follows from the inputs."""


# --------------------------------------------------------------------------------------------------------------------
# A run as a call describes it, and as its folder does.


@dataclass(frozen=True)
class Input:
    """Something that a run reads and that decides its result."""

    name: str
    """In words, for errors."""
    fingerprint: str
    """Empty where the name says all."""

    def __str__(self) -> str:
        return f"{self.name} ({self.fingerprint[:8]})" if self.fingerprint else self.name


@dataclass(frozen=True)
class Inputs:
    """The content of `inputs.json`."""

    inputs: dict[str, Input]


@dataclass(kw_only=True)
class Described:
    """What a call says of its run; every kind of run is a subclass (`albert.training.run.RunWork`)."""

    record: Mapping[str, Any]
    """All settings, filled in: the content of `recipe.json`."""
    inputs: Mapping[str, Input]
    """What is read, by name."""

    MAY_CHANGE: ClassVar[Collection[str]]
    """Settings that do not change the result."""
    GROWS: ClassVar[Collection[str]] = ()
    """Settings that later updates alone depend on."""
    KEYS: ClassVar[Mapping[str, str]] = {}
    """Names in the record -> the keys that a user writes, where they differ."""
    KEEPS_CHECKPOINTS: ClassVar[bool] = False
    """Whether a finished run may continue, so that its checkpoints stay."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run whose folder is locked and has its record."""

    folder: RunFolder
    record: Mapping[str, Any]
    identity: dict[str, str]
    """The fingerprints of its record and of its inputs, by name."""


Standing = Literal["new", "resumed", "grown", "finished"]
STANDINGS: tuple[Standing, ...] = ("new", "resumed", "grown", "finished")


def same_run(folder: RunFolder, run: Described) -> Standing:
    """What a run is to the folder; see above.

    Raises:
        CannotCreate: the folder holds another run, or the runs of several seeds, rates or folds.
    """
    if not folder.recipe_path.exists():
        several = next(several_runs_in(folder.path), None)
        if several is not None:
            why = f"holds the runs of several {SEVERAL_RUNS[several]}, not one"
            raise CannotCreate(folder.path, why, _ANOTHER_OUTPUT)
        return "new"
    # A run that keeps its checkpoints writes a model that was removed anew, from the last of them.
    has_model = folder.model_path.is_dir() or not run.KEEPS_CHECKPOINTS
    is_finished = folder.results_path.is_file() and has_model
    saved = read_versioned(folder.recipe_path)
    difference = _other_settings(saved, run) or _other_input(folder, run)
    if difference is not None:
        why = f"holds a finished run with {difference}" if is_finished else f"holds another run with {difference}"
        raise CannotCreate(folder.path, why, _ANOTHER_OUTPUT)
    # All that decides the result is the same. A larger budget continues the run, whether it is finished or not.
    if _differing(_settings(saved, run.MAY_CHANGE), _settings(run.record, run.MAY_CHANGE)):
        return "grown"
    return "finished" if is_finished else "resumed"


def save_run(folder: RunFolder, run: Described) -> None:
    """Write what `same_run` reads, before the first update; the results of a run that has grown are removed."""
    remove_file(folder.results_path)
    if not folder.inputs_path.exists() or not folder.recipe_path.exists():
        save_versioned(folder.inputs_path, Inputs(dict(run.inputs)))
    save_versioned(folder.recipe_path, dict(run.record))


def saved_inputs(folder: RunFolder) -> dict[str, Input]:
    """The inputs of the run in a folder; none if there is no run."""
    return load_versioned(Inputs, folder.inputs_path).inputs if folder.inputs_path.exists() else {}


def begun_run(folder: RunFolder, run: Described) -> Run:
    """The run in a folder, after `save_run`; the same on every rank."""
    identity = {"recipe": record_fingerprint(run.record, (*run.MAY_CHANGE, *run.GROWS))}
    identity |= {name: each.fingerprint for name, each in saved_inputs(folder).items()}
    return Run(folder=folder, record=run.record, identity=identity)


def record_fingerprint(record: Mapping[str, Any], left_out: Collection[str]) -> str:
    """A hash of a record without the settings that may differ, the same on every machine."""
    return fingerprint_of(_settings(record, left_out))


def require_same_identity(checkpoint: Path, saved: Mapping[str, str], identity: Mapping[str, str]) -> None:
    """Refuse a checkpoint of another run, which somebody has put here.

    Raises:
        InvalidConfiguration: it was trained with another recipe or other inputs.
    """
    for name, value in identity.items():
        if saved.get(name) != value:
            why = f"is of another run, which was trained with another {name}"
            raise InvalidConfiguration(checkpoint, why, "remove it, or choose another output")


# --------------------------------------------------------------------------------------------------------------------
# The difference between two runs, in words.

_ANOTHER_OUTPUT = "choose another --output, or add --replace"
_SHOWN = 3
"""At most so many settings are shown."""


def _settings(record: Mapping[str, Any], left_out: Collection[str]) -> dict[str, Any]:
    """The settings of a record by their full names, without those that are left out."""
    settings = flatten(record)
    return {
        name: value
        for name, value in settings.items()
        if name not in left_out and name.partition(".")[0] not in left_out
    }


def _differing(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The names of the settings that differ; one that is absent is None."""
    return [name for name in {**now, **before} if before.get(name) != now.get(name)]


def _other_settings(saved: Mapping[str, Any], run: Described) -> str | None:
    """The settings of the first part of the record that differs: "other settings: seed (0, now 1)"."""
    left_out = (*run.MAY_CHANGE, *run.GROWS)
    before = _settings(saved, left_out)
    now = _settings(run.record, left_out)
    differing = _differing(before, now)
    if not differing:
        return None
    part = differing[0].partition(".")[0]
    of_part = [name for name in differing if name.partition(".")[0] == part]
    shown = []
    for name in of_part:
        key = run.KEYS.get(name, _as_typed(name))
        shown.append(f"{key} ({_shown(before.get(name))}, now {_shown(now.get(name))})")
    more = f" and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return f"other settings: {', '.join(shown[:_SHOWN])}{more}"


def _other_input(folder: RunFolder, run: Described) -> str | None:
    """The first input that differs: "another corpus: wiki (0f3a…), now news (77b1…)"."""
    saved = saved_inputs(folder)
    for name in {**run.inputs, **saved}:
        before = saved.get(name)
        now = run.inputs.get(name)
        if before is None or now is None or before.fingerprint != now.fingerprint:
            return f"another {name}: {before or 'none'}, now {now or 'none'}"
    return None


def _as_typed(name: str) -> str:
    return name.removeprefix("recipe.").removeprefix("settings.")


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"


# --------------------------------------------------------------------------------------------------------------------
# Several runs in folders of one folder.

SEVERAL_RUNS = {"seed": "seeds", "rate": "learning rates", "fold": "folds"}
"""The beginning of the names of the folders of several runs -> what the runs are of."""


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
