"""LAMB (You et al., 2019) as in ALBERT's reference code: without bias correction, clamp and gradient clipping.

For each parameter tensor w with gradient g:

    m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
    u = m / (√v + ε) + λ w       w ← w − η · φ(‖w‖) / ‖u‖ · u

The trust ratio ‖w‖/‖u‖ is 1 where either norm is 0, and for the tensors of groups with `adapt=False` (LayerNorm and
biases, which also have λ = 0). With `adapt=False` for all groups this is the reference's AdamW.

`FusedUpdates` computes the update on a GPU, `ChunkedUpdates` on a CPU, by threads and in chunks that fit the cache.
`sum_over_shards` computes the norms of tensors that are sharded over processes (FSDP2)."""

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

# --------------------------------------------------------------------------------------------------------------------
# A parameter tensor or this process's shard of it, with its gradient and moments.

UPDATE_BUFFER = 1 << 24
"""Maximum number of updates in memory at a time: enough for all tensors of ALBERT-base and -large."""


@dataclass(frozen=True, eq=False)
class Slot:
    """The tensors that an update of one parameter reads and writes."""

    parameter: Tensor
    """The parameter of the model, possibly sharded over processes."""
    weight: Tensor
    """This process's shard of it; likewise for gradient and moments."""
    gradient: Tensor
    """Contiguous."""
    mean: Tensor
    """First moment."""
    square: Tensor
    """Second moment."""
    step: Tensor
    """Number of updates including this one, on the device of the weight."""

    @property
    def is_flat(self) -> bool:
        """Whether all tensors are contiguous and on a CPU."""
        tensors = (self.weight, self.mean, self.square)
        return self.weight.device.type == "cpu" and all(tensor.is_contiguous() for tensor in tensors)


def local_part(tensor: Tensor) -> Tensor:
    """This process's shard of a tensor: the same memory, without autograd history."""
    return tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()


def batches(slots: Sequence[Slot]) -> Iterator[list[Slot]]:
    """Group tensors of one device and dtype into batches of at most `UPDATE_BUFFER` numbers, or of the largest tensor.

    Sizes are those of unsharded tensors, so all processes have the same batches.
    """
    groups: dict[tuple[torch.device, torch.dtype], list[Slot]] = {}
    for slot in slots:
        groups.setdefault((slot.weight.device, slot.weight.dtype), []).append(slot)
    for group in groups.values():
        capacity = max(UPDATE_BUFFER, *(slot.parameter.numel() for slot in group))
        batch: list[Slot] = []
        free = capacity
        for slot in group:
            free -= slot.parameter.numel()
            if free < 0:
                yield batch
                batch = []
                free = capacity - slot.parameter.numel()
            batch.append(slot)
        yield batch


# --------------------------------------------------------------------------------------------------------------------
# LAMB's update by operations on lists of tensors: on a GPU, and for tensors that are not contiguous.

# pyright: reportPrivateImportUsage=false
# The names of torch's operations on lists of tensors begin with an underscore.

_STEP_WITHOUT_BIAS = torch.tensor(2.0**62)
"""At this step, 1 − βᵗ is 1 for every β below 1."""


class FusedUpdates:
    """Updates by torch's operations on lists of tensors, without waiting for the device, even to skip a step."""

    def __init__(self) -> None:
        self._steps: dict[torch.device, Tensor] = {}

    def compute_updates(
        self, slots: Sequence[Slot], group: dict[str, Any], skip: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Update the moments; return the updates u, and ‖w‖² and ‖u‖² of each tensor (float64 [tensors 2]).

        Args:
            slots: the tensors.
            group: their options.
            skip: on the device, 1 to leave the moments unchanged, else 0.
        """
        updates = self._updates(slots, group, skip)
        norms = [
            torch.stack(torch._foreach_norm(tensors, 2, dtype=torch.float64))
            for tensors in ([slot.weight for slot in slots], updates)
        ]
        return updates, torch.stack(norms, dim=1).square()

    def apply(self, slots: Sequence[Slot], updates: list[Tensor], scales: Tensor) -> None:
        """Subtract each update times its scale from its tensor."""
        torch._foreach_mul_(updates, scales.unbind())
        torch._foreach_sub_([slot.weight for slot in slots], updates)

    def adamw(self, slots: Sequence[Slot], group: dict[str, Any], skip: Tensor | None = None) -> None:
        """Update moments and weights without a trust ratio."""
        updates = self._updates(slots, group, skip)
        if skip is not None:
            torch._foreach_mul_(updates, 1 - skip)
        torch._foreach_add_([slot.weight for slot in slots], updates, alpha=-group["lr"])

    def _updates(self, slots: Sequence[Slot], group: dict[str, Any], skip: Tensor | None) -> list[Tensor]:
        """u of each tensor; the weight if the step is skipped."""
        updates = [torch.empty_like(slot.mean) for slot in slots]  # in the memory layout of the moments
        gradients = [torch.empty_like(slot.mean) for slot in slots]
        torch._foreach_copy_(updates, [slot.weight for slot in slots])
        torch._foreach_copy_(gradients, [slot.gradient for slot in slots])
        device = slots[0].mean.device
        if device not in self._steps:
            self._steps[device] = _STEP_WITHOUT_BIAS.to(device)
        # AdamW computes (1 − η λ') w − η m / (√v + ε), which is u for η = −1 and λ' = λ − 1.
        torch._fused_adamw_(
            updates,
            gradients,
            [slot.mean for slot in slots],
            [slot.square for slot in slots],
            [],
            [slot.step if group["bias_correction"] else self._steps[device] for slot in slots],
            found_inf=skip,
            **_adamw_options(group, lr=-1.0, weight_decay=group["weight_decay"] - 1.0),
        )
        return updates


# --------------------------------------------------------------------------------------------------------------------
# Sums over the shards of tensors, for norms of whole tensors.


def sum_over_shards(sums: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """Add up the sums that each process computed for its shards; a collective call.

    Args:
        sums: one row for each tensor.
        parameters: the tensors; the rows of unsharded tensors do not change.
    """
    # The device mesh of each tensor, and along which mesh dimensions it is sharded.
    layouts: list[tuple[DeviceMesh, tuple[bool, ...]] | None] = []
    for parameter in parameters:
        if isinstance(parameter, DTensor):
            is_sharded = tuple(not placement.is_replicate() for placement in parameter.placements)
            layouts.append((parameter.device_mesh, is_sharded))
        else:
            layouts.append(None)
    total = sums.clone()
    for layout in dict.fromkeys(layouts):
        if layout is None:
            continue
        mesh, is_sharded = layout
        numbers = [number for number, other in enumerate(layouts) if other == layout]
        rows = slice(None) if len(numbers) == len(layouts) else torch.tensor(numbers, device=sums.device)
        placements = [Partial() if sharded else Replicate() for sharded in is_sharded]
        total[rows] = DTensor.from_local(sums[rows], mesh, placements, run_check=False).full_tensor()
    return total


# --------------------------------------------------------------------------------------------------------------------
# LAMB's update on a CPU, in chunks, to reduce memory traffic.
#
# Plain LAMB has a dozen operations on whole tensors, which all read and write memory. Here the first pass computes
# moments, u and both norms of a chunk while it is in the cache (32 bytes of traffic per parameter in float32), and the
# second pass adds the scaled u to the weights (12 bytes). u is stored, because computing it again would take longer.
#
# Every operation processes one chunk in one thread, so that the result is bit-identical for any number of threads.

CHUNK = 1 << 18
"""Elements of a chunk: five tensors (w, g, m, v, u) fit the cache, and Python's share of the time is small."""


class ChunkedUpdates:
    """Updates of contiguous tensors, in buffers that are reused by the next step."""

    def __init__(self) -> None:
        self._buffers: dict[torch.dtype, Tensor] = {}

    def compute_updates(
        self, slots: Sequence[Slot], group: dict[str, Any], skip: Tensor | None = None
    ) -> tuple[list[Tensor], Tensor]:
        """Update the moments; return the updates u, and ‖w‖² and ‖u‖² of each tensor (float64 [tensors 2])."""
        assert skip is None, "for GPUs"
        updates = self._update_buffers(slots)
        # AdamW computes (1 − η λ') w − η m / (√v + ε), which is u for η = −1 and λ' = λ − 1.
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
        for (slot, _), (w_square, u_square) in zip(chunks, parallel_map(first_pass, chunks), strict=True):
            sums[slot] = sums[slot][0] + w_square, sums[slot][1] + u_square
        return updates, torch.tensor(list(sums.values()), dtype=torch.float64)

    def apply(self, slots: Sequence[Slot], updates: list[Tensor], scales: Tensor) -> None:
        """Subtract each update times its scale from its tensor."""

        def second_pass(chunk: tuple[float, Sequence[Tensor]]) -> None:
            scale, (weight, update) = chunk
            weight.add_(update, alpha=-scale)

        chunks = [
            (scale, chunk)
            for slot, update, scale in zip(slots, updates, scales.tolist(), strict=True)
            for chunk in _chunks(slot.weight, update)
        ]
        parallel_map(second_pass, chunks[::-1])  # the last chunks are still in the cache

    def adamw(self, slots: Sequence[Slot], group: dict[str, Any], skip: Tensor | None = None) -> None:
        """Update moments and weights in one pass, without a trust ratio."""
        adamw = _fused_adamw(group, lr=group["lr"], weight_decay=group["weight_decay"])
        chunks = [
            (*chunk, slot.step)
            for slot in slots
            for chunk in _chunks(slot.weight, slot.gradient, slot.mean, slot.square)
        ]
        parallel_map(lambda chunk: adamw(*chunk), chunks)

    def _update_buffers(self, slots: Sequence[Slot]) -> list[Tensor]:
        sizes = [slot.weight.numel() for slot in slots]
        dtype = slots[0].weight.dtype
        buffer = self._buffers.get(dtype)
        if buffer is None or buffer.numel() < sum(sizes):
            buffer = torch.empty(sum(sizes), dtype=dtype)
            self._buffers[dtype] = buffer
        rows = buffer[: sum(sizes)].split(sizes)
        return [row.view(slot.weight.shape) for row, slot in zip(rows, slots, strict=True)]


def _chunks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Split tensors of the same shape into chunks."""
    if tensors[0].numel() <= CHUNK:
        return iter([tensors])
    return zip(*(tensor.view(-1).split(CHUNK) for tensor in tensors), strict=True)


def _fused_adamw(group: dict[str, Any], lr: float, weight_decay: float) -> Callable[..., None]:
    """torch's fused AdamW for one chunk; updates `weight`, `mean` and `square` in place."""
    options = _adamw_options(group, lr, weight_decay)

    def adamw(weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: Tensor) -> None:
        steps = [step if group["bias_correction"] else _STEP_WITHOUT_BIAS]
        torch._fused_adamw_([weight], [gradient.to(weight.dtype)], [mean], [square], [], steps, **options)

    return adamw


def _adamw_options(group: dict[str, Any], lr: float, weight_decay: float) -> dict[str, Any]:
    beta1, beta2 = group["betas"]
    options = {"lr": lr, "weight_decay": weight_decay, "beta1": beta1, "beta2": beta2, "eps": group["eps"]}
    return {**options, "amsgrad": False, "maximize": False}


def _squared_norm(chunk: Tensor) -> float:
    norm = float(torch.linalg.vector_norm(chunk, dtype=torch.promote_types(chunk.dtype, torch.float32)))
    if not 1e-12 < norm < math.inf:  # squares outside the range of float32
        norm = float(torch.linalg.vector_norm(chunk, dtype=torch.float64))
    return norm**2


class Lamb(Optimizer):
    """LAMB with one trust ratio per tensor, also if the tensor is shared by layers or sharded over processes (DTensor).

    On a CPU, a step makes two passes over memory, with a buffer for the largest tensor or 64 MB. Its result is
    bit-identical for any number of threads.

    Attributes:
        found_inf: as in torch's fused optimizers: on the device, 1 to skip the next step, else 0; None: take it.

    Args:
        params: tensors, or groups of them that may set `lr`, `weight_decay` and `adapt`.
        lr: η, set by the schedule before each step.
        betas: β₁ and β₂.
        eps: ε, outside the root.
        weight_decay: λ, part of the update before the trust ratio.
        bias_correction: divide m and v by 1 − βᵗ, as in the LAMB paper; the reference does not.
        clamp: (low, high) bounds of ‖w‖ in the ratio, the φ of the LAMB paper; None for the identity.
        adapt: whether the group's tensors use the trust ratio.
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
        constants = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, {**constants, "bias_correction": bias_correction, "clamp": clamp, "adapt": adapt})
        self._reset()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._reset()

    def _reset(self) -> None:
        self._chunked = ChunkedUpdates()
        self._fused = FusedUpdates()
        self._ratios: list[Tensor] = []
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Update all parameters that have a gradient; returns the loss of the closure, which computes it anew."""
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
        """Minimum, median and maximum trust ratio of the last step; empty if there were none."""
        if not self._ratios:
            return {}
        shares = torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64)
        quantiles = torch.cat([ratios.cpu() for ratios in self._ratios]).quantile(shares).tolist()
        return {f"trust_ratio_{name}": value for name, value in zip(("min", "median", "max"), quantiles, strict=True)}

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
        else:  # a list of tensors: a single tensor would be read by the host
            torch._foreach_add_(steps, [1 - skip] * len(steps))
        kernels = self._chunked if skip is None and all(slot.is_flat for slot in slots) else self._fused
        if not group["adapt"]:
            kernels.adamw(slots, group, skip)
            return
        updates, squares = kernels.compute_updates(slots, group, skip)
        ratios = trust_ratios(sum_over_shards(squares, [slot.parameter for slot in slots]), group["clamp"])
        scales = ratios * group["lr"]
        kernels.apply(slots, updates, scales if skip is None else scales * (1 - skip))
        self._ratios.append(ratios)


def trust_ratios(
    squares: Float[Tensor, "tensors 2"], clamp: tuple[float, float] | None = None
) -> Float[Tensor, " tensors"]:
    """φ(‖w‖)/‖u‖ of each tensor, from ‖w‖² and ‖u‖²; 1 if either is 0."""
    weight_norms, update_norms = squares.sqrt().unbind(1)
    clamped = weight_norms if clamp is None else weight_norms.clamp(*clamp)
    usable = (weight_norms > 0) & (update_norms > 0)
    return torch.where(usable, clamped / update_norms, torch.ones_like(clamped))
