"""Rows of a training file that are kept back as development set, where no file is given for that.

Rows with the same text, or on the same context, stay together, so that nothing that is scored was learnt. Which rows
they are is a pure function of the rows and the seed.
"""

from collections.abc import Sequence

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.randomness import stream
from albert.tasks.examples import text_columns
from albert.tasks.rows import Row, Rows
from albert.tasks.tables.table_task import HeldOut
from albert.tasks.task import Choice, QuestionInContext, Task

KEPT_BACK = "kept_back_for_dev"


def hold_out_rows(task: Task, rows: Rows, held_out: HeldOut) -> tuple[Rows, Rows]:
    """Rows to learn from, and a share of them to score, both in file order.

    Of classes each gives its share, at least one row where it has two texts or more; of all else the share is drawn
    from all rows.

    Args:
        task: the declaration; it says which column is the text, and which the class.
        rows: those of the training file.
        held_out: how many, and the seed.

    Raises:
        InvalidConfiguration: there are too few to keep any back.
    """
    kept: set[int] = set()
    for number, members in enumerate(_strata(task, rows.rows)):
        groups = _groups(task, rows.rows, members)
        order = stream("tables.held_out", held_out.seed, number).permutation(len(groups)).tolist()
        wanted, drawn = max(1, round(held_out.share * len(members))), 0
        for place in order[:-1]:  # one at least is left to learn from
            if drawn < wanted:
                kept |= set(groups[place])
                drawn += len(groups[place])
    if not kept:
        why = f"{len(rows.rows)} rows are too few to keep some back for scoring"
        raise InvalidConfiguration("development set", why, "give more rows, or --dev")
    learnt = [row for place, row in enumerate(rows.rows) if place not in kept]
    scored = [row for place, row in enumerate(rows.rows) if place in kept]
    counts = {**rows.counts, "rows": len(learnt), KEPT_BACK: len(scored)}
    return Rows(learnt, counts), Rows(scored, {"rows": len(scored)})


def _strata(task: Task, rows: Sequence[Row]) -> list[list[int]]:
    """Rows by their class, in the order of the labels; all rows together where there are no classes.

    Of several rows with one text the first one says the class.
    """
    if not isinstance(task.target, Choice):
        return [list(range(len(rows)))]
    classes: dict[str, list[int]] = {label: [] for label in task.target.labels}
    first: dict[tuple, str] = {}
    for place, row in enumerate(rows):
        label = first.setdefault(_unit(task, row), str(row.fields.get(task.target.column)))
        classes.setdefault(label, []).append(place)
    return list(classes.values())


def _groups(task: Task, rows: Sequence[Row], members: Sequence[int]) -> list[list[int]]:
    groups: dict[tuple, list[int]] = {}
    for place in members:
        groups.setdefault(_unit(task, rows[place]), []).append(place)
    return list(groups.values())


def _unit(task: Task, row: Row) -> tuple:
    """What must not be both learnt from and scored: a context, or where there is none all texts."""
    columns = text_columns(task)
    if isinstance(task.inputs, QuestionInContext) and row.fields.get(task.inputs.context):
        columns = (task.inputs.context,)
    return tuple(row.fields.get(column) for column in columns)
