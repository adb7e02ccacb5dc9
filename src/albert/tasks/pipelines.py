"""All pipelines, and the kinds of tasks among them. To add one, write its file and add its name here: `albert predict
--task`, the endpoint, its part of `/openapi.json` and a tab of the page follow. A kind that is learned from the user's
own tables also needs its columns, in `table_task`, `columns`, `infer` and `custom`."""

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


def endpoints() -> dict[str, type[Pipeline]]:
    """What can be asked: the pipelines by their names. Those of a name have the same requests and replies."""
    return {pipeline.name: pipeline for pipeline in PIPELINES}


def pipelines_of(head: Head) -> tuple[Pipeline, ...]:
    """What a model with this head can do."""
    found = (pipeline.of_head(head) for pipeline in PIPELINES)
    return tuple(pipeline for pipeline in found if pipeline is not None)
