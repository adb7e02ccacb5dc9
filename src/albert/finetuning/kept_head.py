"""A model goes on with its own head: what its outputs mean is matched with the task by name."""

import torch
from torch import nn

from albert.checkpoints.model_directory import OpenedModel
from albert.checkpoints.warm_start.warm_start_heads import outputs_by_name
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.task import Choice, Labels, Option, Span, Tags, Target

_REMEDY = "leave --keep-head out: a new head is drawn, the rest of the model stays"


def order_kept_head(opened: OpenedModel, target: Target, model: str) -> None:
    """Put the outputs of the file's head into the order of the target's labels.

    Args:
        opened: with the head of the file.
        target: what the task asks.
        model: how to call it in an error.

    Raises:
        InvalidConfiguration: the file has no such head, or one with other outputs.
    """
    fresh = [name for name in opened.loading_report.newly_initialised if not name.startswith("albert.")]
    if fresh:
        raise InvalidConfiguration(model, f"has no head to keep ({', '.join(fresh)} are missing)", _REMEDY)
    if isinstance(target, Span | Option):
        return
    head = opened.model.classifier
    assert isinstance(head, nn.Linear)
    if isinstance(target, Choice | Labels | Tags):
        order = outputs_by_name(opened.extra.get("id2label"), (target.labels, target.shown), model)
        with torch.no_grad():
            head.weight.copy_(head.weight[order].clone())
            head.bias.copy_(head.bias[order].clone())
    elif head.out_features != 1:
        raise InvalidConfiguration(model, f"has a head with {head.out_features} outputs, a number needs 1", _REMEDY)
