"""What of a model directory something has trained: the model without a head that would be drawn at random."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert.checkpoints.model_directory import Kind, OpenedModel, kind_of, open_model, read_config
from albert.inference.abilities import FILLING, ORDERING, abilities_of


@dataclass(frozen=True)
class TrainedModel:
    """A model of which every output rests on weights of the file.

    Args:
        opened: the model; an encoder whose pooler is not in the file has none.
        kind: with which head.
        left_out: the head that `config.json` names and nobody trained, in words; empty when there is none.
    """

    opened: OpenedModel
    kind: Kind
    left_out: str = ""


def open_trained(directory: Path) -> TrainedModel:
    """Open a model directory with its own head, or as much of it as was trained.

    Raises:
        MissingInput, DamagedData, InvalidConfiguration: it cannot be opened.
    """
    kind = named = kind_of(read_config(directory)[1])
    opened = open_model(directory, kind)
    can = abilities_of(kind, opened)
    if kind == "pretraining" and FILLING in can and ORDERING not in can:
        kind = "masked_lm"
    elif kind != "encoder" and not can:
        kind = "encoder"
    if kind != named:
        opened = open_model(directory, kind)
    if kind == "encoder" and any("pooler." in name for name in opened.loading_report.newly_initialised):
        model: Any = opened.model
        model.pooler = None
    if kind == named:
        return TrainedModel(opened, kind)
    return TrainedModel(opened, kind, "the order of segments" if kind == "masked_lm" else f"the head for {named}")
