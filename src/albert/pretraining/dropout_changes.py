"""Dropout that changes while a model is pre-trained (Lan et al. 2019, §4.8): a pure function of the step.

The paper's Fig. 2b switches dropout off after a million steps, when the model still fits its data too little. A recipe
holds the changes, so that a run which was changed on its way can be run again as a whole.
"""

from albert.runtime.errors import InvalidConfiguration

DropoutChanges = tuple[tuple[int, float], ...]
"""(update, probability): from that update on, counted from 0, dropout is that, of hidden values and of attention."""


def check_dropout_changes(changes: DropoutChanges) -> None:
    """Raises InvalidConfiguration when updates do not ascend or a probability is none."""
    steps = [step for step, _ in changes]
    if any(step < 0 for step in steps) or steps != sorted(set(steps)):
        raise InvalidConfiguration("dropout_changes", f"are at updates {steps}, ascending ones are needed")
    for _, probability in changes:
        if not 0 <= probability < 1:
            why = f"has the probability {probability}, a share from 0 to below 1 is needed"
            raise InvalidConfiguration("dropout_changes", why)


def dropout_at(changes: DropoutChanges, step: int) -> float | None:
    """The probability that the changes give an update, None before the first of them."""
    reached = [probability for first, probability in changes if first <= step]
    return reached[-1] if reached else None


def with_change(changes: DropoutChanges, step: int, probability: float) -> DropoutChanges:
    """The changes with another one, in place of any at the same update."""
    return tuple(sorted([change for change in changes if change[0] != step] + [(step, probability)]))
