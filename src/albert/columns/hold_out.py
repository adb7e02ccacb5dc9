"""Rows of the training file that are held out as development set if there is no file for it.

Rows with the same text or context, but for blanks around it, stay together, so that no scored text was trained on.
Rows and seed alone decide which rows are chosen."""

from albert.runtime.errors import InvalidConfiguration
from albert.runtime.random_streams import stream
from albert.tables.table import Table
from albert.tasks.declared import DeclaredTask
from albert.tasks.table_task import HeldOut


def hold_out_rows(task: DeclaredTask, table: Table, held_out: HeldOut) -> tuple[Table, Table]:
    """Split rows into training and development rows, both in file order.

    Every class contributes its share, at least one row if it has two texts or more; without classes, the share is drawn
    from all rows. Rows with the same text belong to the class of the first.
    """
    target = task.target
    classes: dict[str, dict[tuple, list[int]]] = {label: {} for label in target.strata}
    first: dict[tuple, str] = {}
    for index, row in enumerate(table.rows):
        text = task.inputs.group(row)
        label = first.setdefault(text, str(row.fields.get(target.gold_column or "")) if target.strata else "")
        classes.setdefault(label, {}).setdefault(text, []).append(index)
    chosen: set[int] = set()
    for number, same_text in enumerate(classes.values()):
        groups = list(same_text.values())
        order = stream("tables.held_out", held_out.seed, number).permutation(len(groups)).tolist()
        wanted = max(1, round(held_out.share * sum(map(len, groups))))
        drawn = 0
        for group in order[:-1]:  # at least one is left for training
            if drawn < wanted:
                chosen |= set(groups[group])
                drawn += len(groups[group])
    if not chosen:
        why = f"{len(table.rows)} rows are too few to keep some back for scoring"
        remedy = "give more rows, or --dev"
        if target.strata:
            why = f"none can be kept back, every label in column {target.gold_column!r} occurs in one text only"
            remedy += "; or is it a number (--kind number, with decimal points), or the wrong column?"
        raise InvalidConfiguration("development set", why, remedy)
    train = [row for index, row in enumerate(table.rows) if index not in chosen]
    dev = [row for index, row in enumerate(table.rows) if index in chosen]
    counts = {**table.counts, "rows": len(train), "kept_back_for_dev": len(dev)}
    return Table(train, counts), Table(dev, {"rows": len(dev)})
