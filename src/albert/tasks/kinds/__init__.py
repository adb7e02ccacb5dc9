"""The kinds of tasks, one in each file: what a task predicts, from the row of a table to the reply."""

from albert.tasks.kinds.base import Target
from albert.tasks.kinds.choice import Option
from albert.tasks.kinds.classification import Choice
from albert.tasks.kinds.multi_label import Labels
from albert.tasks.kinds.regression import Score
from albert.tasks.kinds.span import Span
from albert.tasks.kinds.tagging import Tags

KINDS: dict[str, type[Target]] = {kind.kind: kind for kind in (Choice, Score, Labels, Tags, Option, Span)}
"""The kinds by their names, as in `--kind`."""
