"""What a model gave for a packed batch, sequence by sequence, as numpy arrays."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from albert.model.joint_question_answering import SpanBeam


class SpanBeamRow(NamedTuple):
    """One sequence of a `SpanBeam`: starts [length], beam [n], ends [length, n], unanswerable []."""

    starts: np.ndarray
    beam: np.ndarray
    ends: np.ndarray
    unanswerable: np.ndarray


OutputRow = np.ndarray | SpanBeamRow


def output_rows(output: Tensor | tuple, lengths: tuple[int, ...]) -> list[OutputRow]:
    """One row for each sequence, float32 on the CPU.

    Args:
        output: what one of the model classes returned.
        lengths: tokens of each sequence.

    Returns:
        [labels] for a classifier, [] for a multiple-choice model, [length, labels] for a token classifier, [length, 2]
        for a span model (start and end), and for a joint span model a `SpanBeamRow`.
    """
    if isinstance(output, SpanBeam):
        starts, ends = (each.float().cpu().split(lengths) for each in (output.starts, output.ends))
        beam, unanswerable = output.beam.cpu(), output.unanswerable.float().cpu()
        fields = zip(starts, beam, ends, unanswerable, strict=True)
        return [SpanBeamRow(*(each.numpy() for each in row)) for row in fields]
    stacked = (torch.stack(output, dim=1) if isinstance(output, tuple) else output).float().cpu()
    per_token = len(stacked) == sum(lengths)  # a sequence has [CLS] and [SEP], so they are never as many
    return [row.numpy() for row in (stacked.split(lengths) if per_token else stacked.unbind(0))]
