"""The encoder: feed-forward block, blocks applied L times (paper §3.1), and initialisation."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint, noop_context_fn

from albert.model.attention import AttentionBlock, AttentionMatrices, PositionBias, position_bias, to_matmul_dtype
from albert.model.packing import PackedSequences, pad_batch_rows
from albert.model.sharing import n_attention_blocks, n_feed_forward_blocks, sharing_plan
from albert.recipes.architecture import EncoderConfig
from albert.runtime.devices import Dropout, checkpoint_context, linear

# --------------------------------------------------------------------------------------------------------------------
# The position-wise feed-forward block (paper §3.1; Vaswani et al., 2017, §3.3).

ACTIVATIONS: dict[str, nn.Module] = {
    "gelu": nn.GELU(),
    "gelu_new": nn.GELU(approximate="tanh"),
    "relu": nn.ReLU(),
    "tanh": nn.Tanh(),
}
"""Name in transformers -> module; the reference calls the tanh form "gelu", here it is "gelu_new"."""

ACTIVATED_AT_ONCE = 1 << 16
"""Elements whose GELU is computed at a time, so that intermediate results stay in the cache."""
_LINEAR = torch.tensor(math.sqrt(8 / math.pi), dtype=torch.float64, device="cpu")
_MINUS_TWICE_LINEAR = -2 * _LINEAR
_CUBIC = math.sqrt(8 / math.pi) * 0.044715


def activate(inputs: Float[Tensor, "rows F"], activation: nn.Module) -> Float[Tensor, "rows F"]:
    """Apply an activation; the tanh form of GELU has an implementation of its own for training on a CPU."""
    on_cpu = inputs.device.type == "cpu" and not torch.compiler.is_compiling()
    needs_gradient = torch.is_grad_enabled() and inputs.requires_grad
    if needs_gradient and on_cpu and activation is ACTIVATIONS["gelu_new"]:
        return _TanhGelu.apply(inputs)
    return activation(inputs)


class _TanhGelu(torch.autograd.Function):
    """½ x (1 + tanh(√(2/π) (x + 0.044715 x³))) (Hendrycks and Gimpel, 2016), as x σ(x (a + b x²)) with a = √(8/π).

    The logistic function takes a fifth of the time of torch's tanh. The forward pass computes the derivative, too, and
    saves it instead of the inputs. Computed in float32.
    """

    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        values, slopes = (torch.empty_like(inputs, memory_format=torch.contiguous_format) for _ in range(2))
        exact = torch.promote_types(inputs.dtype, torch.float32)
        memory = inputs.new_empty(5, min(ACTIVATED_AT_ONCE, values.numel()), dtype=exact)
        chunks = [tensor.view(-1).split(ACTIVATED_AT_ONCE) for tensor in (inputs.contiguous(), values, slopes)]
        for input_chunk, value_chunk, slope_chunk in zip(*chunks, strict=True):
            x, inner, sigmoid, value, slope = memory[:, : len(input_chunk)].unbind(0)
            torch.addcmul(_LINEAR, x.copy_(input_chunk), x, value=_CUBIC, out=inner)
            torch.mul(x, torch.mul(x, inner, out=sigmoid).sigmoid_(), out=value)
            value_chunk.copy_(value)
            # The slope is σ + x σ (1 - σ) (a + 3 b x²), and a + 3 b x² is 3 (a + b x²) - 2 a.
            torch.addcmul(value, value, sigmoid, value=-1, out=slope)
            torch.add(_MINUS_TWICE_LINEAR, inner, alpha=3, out=inner)
            slope_chunk.copy_(torch.addcmul(sigmoid, slope, inner, out=slope))
        ctx.save_for_backward(slopes)
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:  # type: ignore[override]
        return gradients[0] * ctx.saved_tensors[0]


class FeedForwardMatrices(NamedTuple):
    """Weights of a feed-forward block in the matmul dtype, computed once per forward pass."""

    intermediate: Float[Tensor, "F H"]
    intermediate_bias: Float[Tensor, " F"]
    output: Float[Tensor, "H F"]
    output_bias: Float[Tensor, " H"]


class FeedForwardBlock(nn.Module):
    """H→F, activation, F→H, dropout, residual connection and LayerNorm (post-norm).

    The dropout is Google's; transformers declares it but does not apply it.
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.activation = ACTIVATIONS[config.hidden_act]
        self.dropout = Dropout(config.hidden_dropout_prob)

    def matrices(self) -> FeedForwardMatrices:
        """The current weights."""
        first = self.intermediate
        second = self.output
        return FeedForwardMatrices(*map(to_matmul_dtype, (first.weight, first.bias, second.weight, second.bias)))

    def forward(self, hidden: Float[Tensor, "rows H"], matrices: FeedForwardMatrices) -> Float[Tensor, "rows H"]:
        """Transform every row independently."""
        wide = activate(linear(hidden, matrices.intermediate, matrices.intermediate_bias), self.activation)
        return self.layer_norm(hidden + self.dropout(linear(wide, matrices.output, matrices.output_bias)))


class InputScale(NamedTuple):
    """How a product's inputs become unsigned bytes: `(byte - zero_point) * scale` is approximately the value."""

    scale: float
    zero_point: int


class LayerScales(NamedTuple):
    """The scales of the inputs of a layer's four products in int8; None: each row has its own."""

    qkv: InputScale | None = None
    dense: InputScale | None = None
    intermediate: InputScale | None = None
    output: InputScale | None = None


Layer = tuple[nn.Module, AttentionMatrices, nn.Module, FeedForwardMatrices]
"""An application of a layer: its two blocks and their weights in the matmul dtype."""


class Encoder(nn.Module):
    """Attention and feed-forward blocks, and the plan of their applications.

    Attributes:
        checkpointing: save only the input of each layer and recompute the rest in the backward pass (Chen et al.,
            2016): a third more work for a fraction of the memory. Results and gradients are the same.
        input_scales: of each application in int8; None until they are measured (`albert.inference.calibration`).
    """

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        self.plan = sharing_plan(config)
        self.attentions = nn.ModuleList(AttentionBlock(config) for _ in range(n_attention_blocks(config)))
        self.feed_forwards = nn.ModuleList(FeedForwardBlock(config) for _ in range(n_feed_forward_blocks(config)))
        self.position_bias = position_bias(config)
        self.checkpointing = False
        self.input_scales: tuple[LayerScales, ...] | None = None

    def forward(self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences) -> Float[Tensor, "tokens H"]:
        """Output of the last layer."""
        rows = pad_batch_rows(hidden, packed)
        for layer in self._layers():
            rows = self._compute(layer, rows, packed)
        return rows[: len(hidden)]

    def each_layer(
        self, hidden: Float[Tensor, "tokens H"], packed: PackedSequences
    ) -> Iterator[Float[Tensor, "tokens H"]]:
        """Yield the output of each layer; computed on request."""
        rows = pad_batch_rows(hidden, packed)
        for layer in self._layers():
            rows = self._compute(layer, rows, packed)
            yield rows[: len(hidden)]

    def _layers(self) -> list[Layer]:
        """The applications of layers; the weights of a block are cast once for all of them."""
        attentions = [(block, block.matrices()) for block in cast(Iterable[AttentionBlock], self.attentions)]
        feed_forwards = [(block, block.matrices()) for block in cast(Iterable[FeedForwardBlock], self.feed_forwards)]
        return [(*attentions[layer.attention], *feed_forwards[layer.feed_forward]) for layer in self.plan]

    def _compute(self, layer: Layer, rows: Tensor, packed: PackedSequences) -> Float[Tensor, "rows H"]:
        if self.checkpointing and torch.is_grad_enabled():
            contexts = noop_context_fn if torch.compiler.is_compiling() else checkpoint_context
            return checkpoint(
                _apply_layer, layer, rows, packed, self.position_bias, use_reentrant=False, context_fn=contexts
            )
        return _apply_layer(layer, rows, packed, self.position_bias)


def _apply_layer(layer: Layer, rows: Tensor, packed: PackedSequences, bias: PositionBias | None) -> Tensor:
    attention, attention_matrices, feed_forward, feed_forward_matrices = layer
    return feed_forward(attention(rows, packed, attention_matrices, bias), feed_forward_matrices)


# --------------------------------------------------------------------------------------------------------------------
# Initialisation (as BERT, paper §4.1: truncated normal, zero biases).


def initialize(module: nn.Module, standard_deviation: float) -> None:
    """Initialise all parameters of `module` with torch's global generator.

    Matrices and embeddings: normal distribution truncated at two standard deviations. Biases: 0. LayerNorm: identity.
    """
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding):
            bound = 2 * standard_deviation
            nn.init.trunc_normal_(part.weight, std=standard_deviation, a=-bound, b=bound)
            if isinstance(part, nn.Linear) and part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
            nn.init.zeros_(part.bias)


def sinusoids(positions: int, width: int, root_mean_square: float) -> Float[Tensor, "positions width"]:
    """Sinusoidal position embeddings, with wavelengths from 2π to 10,000·2π (Vaswani et al., 2017, §3.5), scaled.

    A shift by a number of positions is the same rotation everywhere, so one linear map attends to a neighbour. Random
    embeddings must be trained before such a map exists.
    """
    wavelengths = 10_000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] / wavelengths
    waves = torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)[:, :width]
    return (waves * (root_mean_square / math.sqrt(float(waves.square().mean())))).float()


@contextmanager
def on_meta_device() -> Iterator[None]:
    """Build modules without memory for their weights (torch's meta device); the weights are loaded later."""
    with torch.device("meta"), _SkipInitialization():
        yield


class _SkipInitialization(TorchFunctionMode):
    """Skips `torch.nn.init`, which on the meta device takes a second of imports."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(function, "__module__", None) == nn.init.__name__:
            return args[0] if args else kwargs["tensor"]
        return function(*args, **kwargs)
