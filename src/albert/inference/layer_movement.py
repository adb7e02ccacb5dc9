"""How far a layer moves a token, as the paper's Figure 1 measures it (Lan et al. 2019, §3.1)."""

import torch
from jaxtyping import Float
from torch import Tensor

_SHORTEST = 1e-12
"""Length below which a vector has no direction."""


def layer_movement(
    before: Float[Tensor, "tokens H"], after: Float[Tensor, "tokens H"]
) -> tuple[Float[Tensor, " tokens"], Float[Tensor, " tokens"]]:
    """L2 distance and angle (degrees) between what goes into a layer and what comes out, of each token.

    The angle is 2 atan2(‖u − v‖, ‖u + v‖) of the unit vectors, which is exact for small angles, where the arc cosine
    of a cosine next to 1 is not.
    """
    before, after = before.double(), after.double()
    distance = (after - before).norm(dim=-1)
    u, v = (state / state.norm(dim=-1, keepdim=True).clamp_min(_SHORTEST) for state in (before, after))
    angle = 2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1))
    return distance.float(), angle.rad2deg().float()
