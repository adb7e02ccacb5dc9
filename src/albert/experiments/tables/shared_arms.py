"""Arms that several tables ask for: the ALBERTs of Table 1, and the longest run."""

from albert.experiments.tables.arms import Arm, arm
from albert.experiments.tables.scales import Scale, Size


def xxlarge(scale: Scale, *, layers: int | None = None, steps: int | None = None) -> Arm:
    """ALBERT-xxlarge, from the shallower model that the paper begins it with where the scale does so (A.1).

    Args:
        scale: of the experiment.
        layers: L; None: as the scale has it.
        steps: updates; None: as the scale has it.
    """
    return arm(scale, "xxlarge", layers=layers, steps=steps, start=_start_of_xxlarge(scale))


def albert(scale: Scale, size: Size) -> Arm:
    """An ALBERT of Table 1."""
    return xxlarge(scale) if size == "xxlarge" else arm(scale, size)


def flagship(scale: Scale, steps: int, with_dropout: bool = False) -> Arm:
    """The model that Tables 8 to 10 train longest.

    Args:
        scale: of the experiment.
        steps: its updates.
        with_dropout: to the end; else as long as the scale has it.
    """
    off_at = round(scale.dropout_off_from * scale.long_steps[0]) or None
    return arm(
        scale,
        scale.flagship,
        steps=steps,
        dropout=0.1 if with_dropout else None,
        dropout_off_at=None if with_dropout else off_at,
        start=_start_of_xxlarge(scale) if scale.flagship == "xxlarge" else None,
        additional_text=scale.flagship_reads_all,
    )


def _start_of_xxlarge(scale: Scale) -> Arm | None:
    return None if scale.start_of_xxlarge is None else arm(scale, "xxlarge", layers=scale.start_of_xxlarge)
