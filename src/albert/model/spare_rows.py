"""Few different numbers of rows, because oneDNN compiles a product for each: a millisecond and nearly a megabyte.

Batches have hundreds of different numbers of tokens. Rows without a token behind the others bring them to few; they go
through the products alone, nobody reads what becomes of them, and no gradient comes back to them.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from albert.model.packed_sequences import PackedSequences

EXACT = 64
"""Up to so many rows there is one shape for each number: a single short text has no row in vain."""
STEP = 16
"""Beyond, their number is a multiple of this."""


def rows_for(tokens: int) -> int:
    """How many rows so many tokens take."""
    return tokens if tokens <= EXACT else -(-tokens // STEP) * STEP


def with_spare_rows(states: Float[Tensor, "tokens width"]) -> Float[Tensor, "rows width"]:
    """Zeros behind the tokens, or the states themselves where no row is missing, or products are not oneDNN's."""
    missing = rows_for(len(states)) - len(states)
    return functional.pad(states, (0, 0, 0, missing)) if missing and spares_rows(states.device) else states


def rows_for_products(states: Float[Tensor, "tokens width"], packed: PackedSequences) -> Float[Tensor, "rows width"]:
    """`with_spare_rows` of a batch that is learnt; one of equal lengths has the same size each time and needs none."""
    return states if packed.is_rectangle else with_spare_rows(states)


def spares_rows(device: torch.device) -> bool:
    """Whether products are oneDNN's."""
    return device.type == "cpu" and torch.backends.mkldnn.is_available()
