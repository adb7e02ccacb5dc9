"""All pipelines, and the kinds of tasks among them. To add one, write its file and add its name to `PIPELINES`.

There is no other list of them: `albert predict --task`, the endpoint, its part of `/openapi.json` and a tab of the page
follow. If it is a `Task`, so do `finetune` and `evaluate`, also on tables.

What its file must have are the abstract methods: of `RowPipeline` from a request or row to its reply, and for a task
those of `FromTable` from a table to the task, and of `Task` from an example to its loss and scores (of a `LinearTask`
also the probe of its head); everything else has a default, which the file replaces where the new kind differs. A kind
that reads a text or a pair is a `TextTask`, which has all up to the token ids.

Beside the file need be written, where the kind needs it: a method of `Predictor`, for Python; its word in `LabelKind`
of `commands/columns.py`, for `--kind`; an option of `commands/predict.py`, for one input without a file; a view in
`server/page/tasks.js`, for a page with more than one field of text; a head in `albert.model.albert` and
`albert.checkpoints.huggingface`, for outputs that no model has; a field of `TableTask`, for a use of a column that no
kind has. Kinds with the same head tell their models apart in `of_head`, by `problem_type`."""

from albert.runtime.errors import InvalidConfiguration, did_you_mean
from albert.tasks.embed import Embed
from albert.tasks.fill_mask import FillMask
from albert.tasks.layers import Layers
from albert.tasks.multi_label import MultiLabel
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.order import Order
from albert.tasks.pipeline import Pipeline, RowPipeline
from albert.tasks.regression import Regression
from albert.tasks.single_label import SingleLabel
from albert.tasks.span import Span
from albert.tasks.tagging import TokenTagging
from albert.tasks.task import Task

PIPELINES: list[type[Pipeline]] = [
    SingleLabel,
    MultiLabel,
    Regression,
    Span,
    MultipleChoice,
    TokenTagging,
    FillMask,
    Order,
    Embed,
    Layers,
]

KINDS: dict[str, type[Task]] = {kind.kind: kind for kind in reversed(PIPELINES) if issubclass(kind, Task)}
"""The kinds of tasks, in the order in which they are asked whether a table is theirs: the first of the list above takes
what no other recognises."""


def kind_named(name: str) -> type[Task]:
    """The kind of task with a name; InvalidConfiguration if there is none."""
    if name not in KINDS:
        raise InvalidConfiguration("kind", f"{name!r} is unknown", did_you_mean(name, reversed(KINDS)))
    return KINDS[name]


def endpoints() -> dict[str, type[Pipeline]]:
    """What can be asked: the pipelines by their names. Those of a name have the same requests and replies."""
    return {pipeline.name: pipeline for pipeline in PIPELINES}


def row_pipelines() -> dict[str, type[RowPipeline]]:
    """Those of them that answer the rows of files, too."""
    return {pipeline.name: pipeline for pipeline in PIPELINES if issubclass(pipeline, RowPipeline)}
