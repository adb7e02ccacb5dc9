"""What a run was, and whether a call continues the same run.

A run is known by its record, the complete settings in `recipe.json`, and by its identity: fingerprints of everything
that decides its result (settings, data, initial weights), which each checkpoint has, and `results.json` at the end. A
call with another record or another identity is refused, and the setting that differs is named. Some settings may change
while a run goes on, because they do not change its result; they are listed here."""

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from albert.runtime.errors import CannotCreate
from albert.runtime.json_files import fingerprint_of, read_versioned, save_versioned
from albert.training import same_run
from albert.training.metric_logger import DEFAULT_LOG
from albert.training.run_folder import RunFolder

# --------------------------------------------------------------------------------------------------------------------
# Settings: those that may change while a run goes on, and the differences of the others.

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


def finetuning_fingerprint(record: Mapping[str, Any]) -> str:
    """A hash of the record of a fine-tuning run, the same on every machine."""
    return fingerprint_of({**record, "settings": {**record["settings"], **FINETUNING_MAY_CHANGE}})


def first_difference(saved: Mapping[str, str], identity: Mapping[str, str]) -> str | None:
    """Name of the first fingerprint that differs from the saved one; None if all agree."""
    return next((key for key, value in identity.items() if saved.get(key) != value), None)


# --------------------------------------------------------------------------------------------------------------------
# A run.

_PARTS = ("task", "inputs", "target", "changes", "teacher", "recipe", "settings")
"""The parts of a fine-tuning run's record, in the order in which they are compared."""
_ANOTHER_OUTPUT = "choose another --output, or add --replace"


class Run(same_run.Run):
    """A run of fine-tuning."""

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
            several = next(same_run.several_runs_in(folder.path), None)
            conflict = (
                None if several is None else f"holds the runs of several {same_run.SEVERAL_RUNS[several]}, not one"
            )
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
