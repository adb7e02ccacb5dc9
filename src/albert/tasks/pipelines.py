"""All pipelines, and the kinds of tasks among them. To add one, write its file and add its name here: `albert predict
--task`, the endpoint, its part of `/openapi.json` and a tab of the page follow. If it is a `Task`, so do `finetune` and
`evaluate`, also on tables."""

from albert.runtime.errors import InvalidConfiguration, did_you_mean
from albert.tasks.embed import Embed
from albert.tasks.fill_mask import FillMask
from albert.tasks.layers import Layers
from albert.tasks.multi_label import MultiLabel
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.order import Order
from albert.tasks.pipeline import Head, Pipeline
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


def pipelines_of(head: Head) -> tuple[Pipeline, ...]:
    """What a model with this head can do."""
    found = (pipeline.of_head(head) for pipeline in PIPELINES)
    return tuple(pipeline for pipeline in found if pipeline is not None)
