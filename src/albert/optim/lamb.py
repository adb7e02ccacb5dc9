"""LAMB (You et al., 2019) as ALBERT's reference code has it: no bias correction, no clamp, no clipping inside.

For each parameter tensor w with gradient g:

    m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
    u = m / (√v + ε) + λ w       w ← w − η · φ(‖w‖) / ‖u‖ · u

The trust ratio ‖w‖/‖u‖ is 1 where either norm is 0, and for the tensors of groups with `adapt=False` (LayerNorm and
biases, which also have λ = 0). With `adapt=False` everywhere this is the reference's AdamW.

`FusedUpdates` is the update on a GPU, `ChunkedUpdates` the same for a CPU, in chunks that fit the cache and shared out
among threads. `sum_over_shards` makes norms those of whole tensors under FSDP2."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.optim import Optimizer

from albert.runtime.devices import parallel_map
from albert.runtime.errors import InvalidConfiguration

# --------------------------------------------------------------------------------------------------------------------
# One parameter tensor, or this process's part of it, with its gradient and moments.

UPDATE_BUFFER = 1 << 24
"""Numbers of updates in memory at a time: those of all of ALBERT-base and -large."""


@dataclass(frozen=True, eq=False)
class Slot:
    """What an update of one tensor reads and writes."""

    parameter: Tensor
    """As the model has it: whole, or cut up over processes."""
    weight: Tensor
    """This process's part of it, and so of the others."""
    gradient: Tensor
    """Contiguous."""
    mean: Tensor
    """First moment."""
    square: Tensor
    """Second moment."""
    step: Tensor
    """How many updates it has had with this one, on the device of the weight."""

    @property
    def is_flat(self) -> bool:
        """Whether it lies in the memory of the processor as one row of numbers."""
        parts = (self.weight, self.mean, self.square)
        return self.weight.device.type == "cpu" and all(part.is_contiguous() for part in parts)


def local_part(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor: the same memory, without history."""
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()


def batches(slots: Sequence[Slot]) -> Iterator[list[Slot]]:
    """Group tensors of one precision, each group at most `UPDATE_BUFFER` numbers or one larger tensor.

    All processes batch alike, whatever their parts.
    """
    kinds: dict[tuple[torch.device, torch.dtype], list[Slot]] = {}
    for slot in slots:
        kinds.setdefault((slot.weight.device, slot.weight.dtype), []).append(slot)
    for alike in kinds.values():
        room = max(UPDATE_BUFFER, *(slot.parameter.numel() for slot in alike))
        batch: list[Slot] = []
        left = room
        for slot in alike:
            left -= slot.parameter.numel()
            if left < 0:
                yield batch
                batch, left = [], room - slot.parameter.numel()
            batch.append(slot)
        yield batch


# --------------------------------------------------------------------------------------------------------------------
# LAMB's update for a batch of tensors at once: on a GPU, and where tensors are not flat.

# pyright: reportPrivateImportUsage=false
# torch's operations on lists of tensors, on which its own optimisers stand, begin with an underscore.

_STEP_WITHOUT_BIAS = torch.tensor(2.0**62)
"""After so many steps 1 − βᵗ is 1 for every β below 1."""


class FusedUpdates:
    """Updates by torch's operations on lists of tensors. Nothing waits for the device, not even to skip a step."""

    def __init__(self) -> None:
        self._kept: dict[torch.device, Tensor] = {}

    def advance(
        self, slots: Sequence[Slot], group: dict[str, Any], skip: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Move the moments; return the updates u, and of each tensor ‖w‖² and ‖u‖² (float64 [tensors 2]).

        Args:
            slots: the tensors.
            group: their options.
            skip: 1 on the device where the moments are to stay as they are, else 0.
        """
        updates = self._updates(slots, group, skip)
        norms = [
            torch.stack(torch._foreach_norm(tensors, 2, dtype=torch.float64))
            for tensors in ([slot.weight for slot in slots], updates)
        ]
        return updates, torch.stack(norms, dim=1).square()

    def apply(self, slots: Sequence[Slot], updates: list[Tensor], scales: Tensor) -> None:
        """Subtract from each tensor its update times its scale."""
        torch._foreach_mul_(updates, scales.unbind())
        torch._foreach_sub_([slot.weight for slot in slots], updates)

    def move(self, slots: Sequence[Slot], group: dict[str, Any], skip: Tensor | None = None) -> None:
        """Move moments and weights, without a trust ratio."""
        updates = self._updates(slots, group, skip)
        if skip is not None:
            torch._foreach_mul_(updates, 1 - skip)
        torch._foreach_add_([slot.weight for slot in slots], updates, alpha=-group["lr"])

    def _updates(self, slots: Sequence[Slot], group: dict[str, Any], skip: Tensor | None) -> list[Tensor]:
        """u of each tensor; the weight itself where the step is skipped."""
        updates = [torch.empty_like(slot.mean) for slot in slots]  # all in the layout of the moments
        gradients = [torch.empty_like(slot.mean) for slot in slots]
        torch._foreach_copy_(updates, [slot.weight for slot in slots])
        torch._foreach_copy_(gradients, [slot.gradient for slot in slots])
        device = slots[0].mean.device
        if device not in self._kept:
            self._kept[device] = _STEP_WITHOUT_BIAS.to(device)
        beta1, beta2 = group["betas"]
        # AdamW takes w to (1 − η λ') w − η m / (√v + ε), which is u for η = −1 and λ' = λ − 1.
        torch._fused_adamw_(
            updates,
            gradients,
            [slot.mean for slot in slots],
            [slot.square for slot in slots],
            [],
            [slot.step if group["bias_correction"] else self._kept[device] for slot in slots],
            lr=-1.0,
            beta1=beta1,
            beta2=beta2,
            weight_decay=group["weight_decay"] - 1.0,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
            found_inf=skip,
        )
        return updates


# --------------------------------------------------------------------------------------------------------------------
# Sums over the parts of tensors that are cut up over processes: a norm is one of the whole tensor.


def sum_over_shards(sums: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Add up what each process found for its parts, for all tensors together.

    Args:
        parameters: the tensors; rows of those that are whole here stay as they are. All processes must call this.
    """
    kinds = [_cut(parameter) for parameter in parameters]
    total = sums.clone()
    for kind in dict.fromkeys(kinds):
        if kind is None:
            continue
        mesh, is_cut = kind
        own = [number for number, other in enumerate(kinds) if other == kind]
        rows = slice(None) if len(own) == len(kinds) else torch.tensor(own, device=sums.device)
        placements = [Partial() if cut else Replicate() for cut in is_cut]
        total[rows] = DTensor.from_local(sums[rows], mesh, placements, run_check=False).full_tensor()
    return total


def _cut(parameter: Tensor) -> tuple[DeviceMesh, tuple[bool, ...]] | None:
    """The mesh of a tensor, and along which of its dimensions processes hold different parts."""
    if not isinstance(parameter, DTensor):
        return None
    return parameter.device_mesh, tuple(not placement.is_replicate() for placement in parameter.placements)


# --------------------------------------------------------------------------------------------------------------------
# LAMB's update on a CPU, chunk by chunk, so that each number comes from memory as rarely as it can.
#
# An operation on a whole tensor reads and writes memory, and plain LAMB has a dozen of them. Here all that the
# first pass does to a chunk happens while it is in the cache: new moments, u and both norms (32 bytes a parameter
# in float32). The second pass adds u, scaled, to the weights (12 bytes). u is kept meanwhile: computing it again
# would take longer than reading it.
#
# Every operation sees one whole chunk and runs in one thread, so that the bits of the result are the same for any
# number of threads.


CHUNK = 1 << 18
"""Numbers in a chunk: five of them (w, g, m, v, u) share the cache, and Python's part of the time is small."""


class ChunkedUpdates:
    """Updates of flat tensors, in memory that is kept from step to step."""

    def __init__(self) -> None:
        self._kept: dict[torch.dtype, Tensor] = {}

    def advance(
        self, slots: Sequence[Slot], group: dict[str, Any], skip: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Move the moments; return the updates u, and of each tensor ‖w‖² and ‖u‖² (float64 [tensors 2])."""
        assert skip is None, "for GPUs"
        updates = self._room(slots)
        # AdamW takes w to (1 − η λ') w − η m / (√v + ε), which is u for η = −1 and λ' = λ − 1.
        adamw = _fused_adamw(group, lr=-1.0, weight_decay=group["weight_decay"] - 1)

        def first_pass(chunk: tuple[Slot, Sequence[Tensor]]) -> tuple[float, float]:
            slot, (weight, gradient, mean, square, update) = chunk
            update.copy_(weight)
            adamw(update, gradient, mean, square, slot.step)
            return _squared_norm(weight), _squared_norm(update)

        chunks = [
            (slot, chunk)
            for slot, update in zip(slots, updates, strict=True)
            for chunk in _chunks(slot.weight, slot.gradient, slot.mean, slot.square, update)
        ]
        sums = {slot: (0.0, 0.0) for slot in slots}
        for (slot, _), (of_weight, of_update) in zip(chunks, parallel_map(first_pass, chunks), strict=True):
            sums[slot] = sums[slot][0] + of_weight, sums[slot][1] + of_update
        return updates, torch.tensor(list(sums.values()), dtype=torch.float64)

    def apply(self, slots: Sequence[Slot], updates: list[Tensor], scales: Tensor) -> None:
        """Subtract from each tensor its update times its scale."""

        def second_pass(chunk: tuple[float, Sequence[Tensor]]) -> None:
            scale, (weight, update) = chunk
            weight.add_(update, alpha=-scale)

        chunks = [
            (scale, chunk)
            for slot, update, scale in zip(slots, updates, scales.tolist(), strict=True)
            for chunk in _chunks(slot.weight, update)
        ]
        parallel_map(second_pass, chunks[::-1])  # what the first pass saw last is still in the cache

    def move(self, slots: Sequence[Slot], group: dict[str, Any], skip: Tensor | None = None) -> None:
        """Move moments and weights in one pass, without a trust ratio: this is AdamW."""
        adamw = _fused_adamw(group, lr=group["lr"], weight_decay=group["weight_decay"])
        chunks = [
            (*chunk, slot.step)
            for slot in slots
            for chunk in _chunks(slot.weight, slot.gradient, slot.mean, slot.square)
        ]
        parallel_map(lambda chunk: adamw(*chunk), chunks)

    def _room(self, slots: Sequence[Slot]) -> list[Tensor]:
        sizes = [slot.weight.numel() for slot in slots]
        dtype = slots[0].weight.dtype
        kept = self._kept.get(dtype)
        if kept is None or kept.numel() < sum(sizes):
            kept = self._kept[dtype] = torch.empty(sum(sizes), dtype=dtype)
        rows = kept[: sum(sizes)].split(sizes)
        return [row.view(slot.weight.shape) for row, slot in zip(rows, slots, strict=True)]


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Neighbouring numbers of tensors of one shape, side by side."""
    if tensors[0].numel() <= CHUNK:
        return iter([tensors])
    return zip(*(tensor.view(-1).split(CHUNK) for tensor in tensors), strict=True)


def _fused_adamw(group: dict[str, Any], lr: float, weight_decay: float) -> Callable[..., None]:
    """torch's own AdamW as one operation on a chunk: it moves `weight`, `mean` and `square`."""
    beta1, beta2 = group["betas"]

    def move(weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: Tensor) -> None:
        torch._fused_adamw_(
            [weight],
            [gradient.to(weight.dtype)],
            [mean],
            [square],
            [],
            [step if group["bias_correction"] else _STEP_WITHOUT_BIAS],
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            weight_decay=weight_decay,
            eps=group["eps"],
            amsgrad=False,
            maximize=False,
        )

    return move


def _squared_norm(chunk: Tensor) -> float:
    norm = float(torch.linalg.vector_norm(chunk, dtype=torch.promote_types(chunk.dtype, torch.float32)))
    if not 1e-12 < norm < math.inf:  # squares beyond the range of float32
        norm = float(torch.linalg.vector_norm(chunk, dtype=torch.float64))
    return norm**2


class Lamb(Optimizer):
    """LAMB with one trust ratio a tensor; a tensor shared by all layers is one tensor, and so is one that is cut up
    over processes (DTensor).

    On a CPU it takes two passes over memory, and keeps as much for updates as the largest tensor or 64 MB need. The
    bits of a step are the same in every run, and for any number of threads.

    Attributes:
        found_inf: of torch's optimizers that can skip a step without waiting for the device: 1 on the device where the
            next step is to change nothing, else 0; None: it is taken.

    Args:
        params: tensors, or groups of them that may set `lr`, `weight_decay` and `adapt`.
        lr: η, set anew by the schedule before each step.
        betas: β₁ and β₂.
        eps: ε, outside the root.
        weight_decay: λ, inside the adapted update.
        bias_correction: divide m and v by 1 − βᵗ, as the LAMB paper does and the reference does not.
        clamp: (low, high) bounds of ‖w‖ in the ratio, the φ of the LAMB paper; None for the identity.
        adapt: whether the group's tensors use the trust ratio.

    Raises:
        InvalidConfiguration: a value outside its range.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = False,
        clamp: tuple[float, float] | None = None,
        adapt: bool = True,
    ) -> None:
        for name, beta in zip(("beta1", "beta2"), betas, strict=True):
            if not 0 <= beta < 1:
                raise InvalidConfiguration(name, f"is {beta}, a value from 0 to below 1 is needed")
        for name, value in (("learning rate", lr), ("eps", eps), ("weight decay", weight_decay)):
            if not value >= 0:
                raise InvalidConfiguration(name, f"is {value}, at least 0 is needed")
        defaults = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "bias_correction": bias_correction,
            "clamp": clamp,
            "adapt": adapt,
        }
        super().__init__(params, defaults)
        self._begin_anew()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Forget what is no part of the state: the memory of updates, and the last step's ratios."""
        self._chunked, self._fused = ChunkedUpdates(), FusedUpdates()
        self._ratios: list[Tensor] = []
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all tensors that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._ratios = []
        for group in self.param_groups:
            for batch in batches([self._slot(weight) for weight in group["params"] if weight.grad is not None]):
                self._update(batch, group)
        return loss

    def statistics(self) -> dict[str, float]:
        """Least, median and largest trust ratio of the last step's adapting tensors; nothing where there are none."""
        if not self._ratios:
            return {}
        low, median, high = torch.cat([ratios.cpu() for ratios in self._ratios]).quantile(
            torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
        )
        return {"trust_ratio_min": float(low), "trust_ratio_median": float(median), "trust_ratio_max": float(high)}

    def _slot(self, parameter: Tensor) -> Slot:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        assert parameter.grad is not None
        return Slot(
            parameter=parameter,
            weight=local_part(parameter),
            gradient=local_part(parameter.grad).contiguous(),
            mean=local_part(state["exp_avg"]),
            square=local_part(state["exp_avg_sq"]),
            step=state["step"],
        )

    def _update(self, slots: list[Slot], group: dict[str, Any]) -> None:
        skip = self.found_inf
        steps = [slot.step for slot in slots]
        if skip is None:
            torch._foreach_add_(steps, 1.0)
        else:  # a list of tensors: one alone would be read back
            torch._foreach_add_(steps, [1 - skip] * len(steps))
        way = self._chunked if skip is None and all(slot.is_flat for slot in slots) else self._fused
        if not group["adapt"]:
            way.move(slots, group, skip)
            return
        updates, squares = way.advance(slots, group, skip)
        ratios = trust_ratios(sum_over_shards(squares, [slot.parameter for slot in slots]), group["clamp"])
        scales = ratios * group["lr"]
        way.apply(slots, updates, scales if skip is None else scales * (1 - skip))
        self._ratios.append(ratios)


def trust_ratios(
    squares: Float[Tensor, "tensors 2"], clamp: tuple[float, float] | None = None
) -> Float[Tensor, " tensors"]:
    """φ(‖w‖)/‖u‖ of each tensor from ‖w‖² and ‖u‖², or 1 where either is 0."""
    weight_norms, update_norms = squares.sqrt().unbind(1)
    shaped = weight_norms if clamp is None else weight_norms.clamp(*clamp)
    usable = (weight_norms > 0) & (update_norms > 0)
    return torch.where(usable, shaped / update_norms, torch.ones_like(shaped))
