"""A run of tokens as the rectangles that attention needs, and back: copies of whole rows in both directions.

Every token has one cell, so both gradients are copies too. A padded cell holds no token: what it repeats counts for
nothing, so it passes no gradient on and gets none. Nor do spare rows, which a run may have behind its tokens.
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from albert.model.packed_sequences import PackedSequences


def to_rectangles(run: Float[Tensor, "rows width"], packed: PackedSequences) -> tuple[Tensor, ...]:
    """Of each group of sequences, its cells [sequences, length, width]; a view where the batch is one full group."""
    if packed.is_rectangle:
        return (run.view(packed.n_sequences, packed.lengths[0], run.shape[1]),)
    return _ToRectangles.apply(run, packed)


def from_rectangles(
    cells: Sequence[Float[Tensor, "_ _ width"]], packed: PackedSequences, rows: int
) -> Float[Tensor, "rows width"]:
    """The tokens of the groups' cells, as one run with so many rows; those behind the tokens are 0.

    A full group has no rows behind its tokens.
    """
    if packed.is_rectangle:
        return cells[0].flatten(0, 1)
    return _FromRectangles.apply(packed, rows, *cells)


def _gather(run: Tensor, packed: PackedSequences) -> tuple[Tensor, ...]:
    return tuple(
        run.index_select(0, group.positions.flatten()).unflatten(0, group.positions.shape) for group in packed.groups
    )


def _put_back(cells: Sequence[Tensor], packed: PackedSequences, rows: int) -> Tensor:
    every = torch.cat([group.flatten(0, 1) for group in cells])
    run = every.new_empty(rows, every.shape[1])
    torch.index_select(every, 0, packed.cells, out=run[: packed.n_tokens])
    run[packed.n_tokens :] = 0
    return run


class _ToRectangles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, run: Tensor, packed: PackedSequences) -> tuple[Tensor, ...]:
        ctx.packed, ctx.rows = packed, len(run)
        return _gather(run, packed)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return _put_back(gradients, ctx.packed, ctx.rows), None


class _FromRectangles(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: PackedSequences, rows: int, *cells: Tensor) -> Tensor:
        ctx.packed = packed
        return _put_back(cells, packed, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (of_run,) = gradients
        of_cells = _gather(of_run, ctx.packed)
        for of_group, group in zip(of_cells, ctx.packed.groups, strict=True):
            if group.padded is not None:
                of_group.masked_fill_(group.padded[:, :, None], 0)
        return None, None, *of_cells
