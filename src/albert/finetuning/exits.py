"""One head that learns to read the states after several layers, so that every one of those depths can be used.

All exits share pooler and head: the model stays what it was, in parameters and on disk. Deeper exits weigh more in the
loss, in proportion to their depth (PABEE: Zhou et al., 2020, §3.3).
"""

from typing import Any, Literal

from jaxtyping import Float
from torch import Tensor, nn

from albert.model.albert import AlbertModel
from albert.model.config import AlbertConfig
from albert.model.packed_sequences import PackedSequences
from albert.runtime.errors import InvalidConfiguration

Exits = Literal["every"] | tuple[int, ...]
"""After which layers the head learns to answer; the last one is always among them."""


def exit_depths(asked: Exits | None, config: AlbertConfig) -> tuple[int, ...]:
    """The depths at which the head learns, ascending; None is the full depth alone.

    Raises:
        InvalidConfiguration: a depth that the model does not have.
    """
    layers = config.num_hidden_layers
    if asked == "every":
        return tuple(range(1, layers + 1))
    for depth in asked or ():
        if not 1 <= depth <= layers:
            raise InvalidConfiguration("exits", f"names {depth}, the model has {layers} layers", "choose among them")
    return tuple(sorted({*(asked or ()), layers}))


def exit_weights(depths: tuple[int, ...]) -> tuple[float, ...]:
    """How much each exit's loss counts: in proportion to its depth, 1 together."""
    return tuple(depth / sum(depths) for depth in depths)


def states_after(
    backbone: AlbertModel, packed: PackedSequences, depths: tuple[int, ...]
) -> list[Float[Tensor, "tokens H"]]:
    """The states after some layers, of which each is `inner_group_num` applications."""
    wanted = {depth * backbone.config.inner_group_num for depth in depths}
    layers = backbone.encoder.each_layer(backbone.embeddings(packed), packed)
    return [states for number, states in enumerate(layers, start=1) if number in wanted]


class HeadAtDepths(nn.Module):
    """A model whose head is asked after several layers.

    Args:
        model: one of the model classes with a task's head.
        depths: after which layers, ascending.
    """

    def __init__(self, model: nn.Module, depths: tuple[int, ...]) -> None:
        super().__init__()
        self.model: Any = model
        self.depths = depths

    def forward(
        self,
        packed: PackedSequences,
        told: tuple[Tensor, ...] = (),
        states: Float[Tensor, "depths tokens H"] | None = None,
    ) -> list[Any]:
        """What the head gives at each depth.

        Args:
            packed: the sequences.
            told: what the head needs to know beside the states.
            states: after these depths, where they are known already.
        """
        found = self.states(packed) if states is None else states
        return [self.model.head_outputs(each, packed, *told) for each in found]

    def states(self, packed: PackedSequences) -> list[Float[Tensor, "tokens H"]]:
        """What the head reads at each depth."""
        return states_after(self.model.albert, packed, self.depths)
