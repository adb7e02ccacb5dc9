"""A run of tokens as the rectangles that attention needs, and back: copies of whole rows in both directions.

Every token has one cell, so both gradients are copies too. A padded cell holds no token: what it repeats counts for
nothing, so it passes no gradient on and gets none.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from albert.model.packed_sequences import PackedSequences


def to_rectangles(run: Float[Tensor, "tokens width"], packed: PackedSequences) -> tuple[Tensor, ...]:
    """Of each group of sequences, its cells [sequences, length, width]; a view where the batch is one full group."""
    if packed.is_rectangle:
        return (run.view(packed.n_sequences, packed.lengths[0], run.shape[1]),)
    return _ToRectangles.apply(run, packed)


def from_rectangles(
    cells: Sequence[Float[Tensor, "_ _ width"]], packed: PackedSequences
) -> Float[Tensor, "tokens width"]:
    """The tokens of the groups' cells, as one run."""
    if packed.is_rectangle:
        return cells[0].flatten(0, 1)
    return _FromRectangles.apply(packed, *cells)


def _gather(run: Tensor, packed: PackedSequences) -> tuple[Tensor, ...]:
    return tuple(
        run.index_select(0, group.positions.flatten()).unflatten(0, group.positions.shape) for group in packed.groups
    )


def _put_back(cells: Sequence[Tensor], packed: PackedSequences) -> Tensor:
    return torch.cat([group.flatten(0, 1) for group in cells]).index_select(0, packed.cells)


class _ToRectangles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Tensor, packed: PackedSequences) -> tuple[Tensor, ...]:
        ctx.packed = packed
        return _gather(run, packed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _put_back(gradients, ctx.packed), None


class _FromRectangles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: PackedSequences, *cells: Tensor) -> Tensor:
        ctx.packed = packed
        return _put_back(cells, packed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (of_run,) = gradients
        of_cells = _gather(of_run, ctx.packed)
        for of_group, group in zip(of_cells, ctx.packed.groups, strict=True):
            if group.padded is not None:
                of_group.masked_fill_(group.padded[:, :, None], 0)
        return None, *of_cells
