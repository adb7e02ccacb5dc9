"""Models in packed batches: their precision, and `PackedModel`, which every answer passes through.

Sequences of similar lengths become micro-batches, in which the tokens stand one after the other without padding
(`albert.model.packing`). The model computes each, by all threads or by one, and its output is split by sequence."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from albert.inference.calibration import calibrate_once
from albert.inference.fast_encoder import FastEncoder
from albert.inference.linears import InferencePrecision
from albert.model.albert import AlbertModel, PreTrainingLogits, output_rows
from albert.model.encoder import Encoder
from albert.model.packing import PackedSequences, pack
from albert.runtime.devices import (
    default_precision,
    in_one_thread,
    multiplies_int8,
    parallel_map,
    slower_in_int8,
)
from albert.runtime.errors import InvalidConfiguration, Unavailable, did_you_mean

_logger = logging.getLogger(__name__)

# --------------------------------------------------------------------------------------------------------------------
# Precision of inference, and what this machine supports.

PrecisionChoice = Literal["auto", "fp32", "bf16", "int8"]


def choose_precision(precision: PrecisionChoice, device: torch.device) -> InferencePrecision:
    """Resolve "auto": fp32 on a CPU, and bf16 on a GPU that multiplies it in hardware.

    Other precisions change scores: `albert evaluate --precision fp32 bf16 int8` shows by how much. Logs a warning, once
    per process, where int8 is slower than bf16.
    """
    choices = get_args(PrecisionChoice)
    if precision not in choices:
        raise InvalidConfiguration("precision", f"{precision!r} is not a choice", did_you_mean(str(precision), choices))
    if precision == "int8":
        check_int8(device)
        if slower_in_int8(device):
            _warn_slow_int8()
    return default_precision(device) if precision == "auto" else precision


@cache
def _warn_slow_int8() -> None:
    _logger.warning("albert: note: int8 is slower than bf16 on this processor, which has AMX: use --precision bf16")


def check_int8(device: torch.device) -> None:
    """Raises Unavailable where int8 products are not supported, or not exact.

    x86 without VNNI adds pairs of products in 16 bits, which overflow: it would be slower, and wrong.
    """
    if device.type != "cpu":
        raise Unavailable("precision int8", f"is made for CPUs, not for {device.type}", "use bf16, or --device cpu")
    if not torch.backends.mkldnn.is_available():
        raise Unavailable("precision int8", "needs oneDNN, which this build of torch lacks", "use bf16 or fp32")
    if not multiplies_int8(device):
        raise Unavailable("precision int8", "this processor has no instructions for it (VNNI, AMX)", "use fp32")


# --------------------------------------------------------------------------------------------------------------------
# Packed micro-batches, computed by torch's threads or by one worker each.

Result = TypeVar("Result")

_TOKENS_A_THREAD = 512  # Tokens per CPU thread and batch: a layer's results for so many stay in the cache
_MIN_TOKENS_PER_WORKER = 64
"""A batch with fewer tokens per worker is not divided among workers, but computed by torch's threads."""
_TOKENS_ON_A_GPU = 16384
_LOGIT_ROWS = 1024  # Rows of vocabulary logits that are computed at once: with 30,000 pieces they take 120 MB


def _no_op() -> None:
    """Default of `BETWEEN_BATCHES`, outside of a server."""


BETWEEN_BATCHES: ContextVar[Callable[[], None]] = ContextVar("between_batches", default=_no_op)
"""Called before each batch. A server sets it in its threads, to let others compute in between, or to stop by an
exception."""


class Autotuner:
    """Times two variants of a computation, and runs the one with the lower minimum over its last calls.

    A single text is computed fastest by all threads of torch on an idle machine, but by one thread if another program
    uses a core, because every operation waits for the slowest thread. The other variant is retried now and then.
    """

    RETRY_EVERY = 32  # calls of one size
    HISTORY = 3  # calls over which the minimum is taken

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._calls: Counter[int] = Counter()
        self._seconds: dict[tuple[int, int], tuple[float, ...]] = {}

    def run(self, size: int, *variants: Callable[[], Result]) -> Result:
        """The result of the variant that has been faster for about this size."""
        size = size.bit_length()
        number = self._calls[size]
        self._calls[size] += 1
        # Three calls of each variant at first: the first call for a size also compiles kernels, and does not count.
        choice = number // 3
        if number >= 6:
            choice = min((0, 1), key=lambda choice: min(self._seconds.get((size, choice), (math.inf,))))
            choice = 1 - choice if number % self.RETRY_EVERY == 0 else choice
        began = self._clock()
        result = variants[choice]()
        if number not in (0, 3):
            earlier = self._seconds.get((size, choice), ())
            self._seconds[size, choice] = (*earlier, self._clock() - began)[-self.HISTORY :]
        return result


def use_fast_encoders(model: nn.Module, precision: InferencePrecision) -> None:
    """Replace every encoder in a model by a `FastEncoder`, unless it is one; for int8 it is calibrated first."""
    for part in list(model.modules()):
        if isinstance(part, AlbertModel) and isinstance(part.encoder, Encoder):
            if precision == "int8":
                check_int8(next(part.parameters()).device)
                calibrate_once(part)
            part.add_module("encoder", FastEncoder(part.encoder, precision))


class HeadsAfterLayers(NamedTuple):
    """What the heads of a model give for a text after each layer: for each mask logits [layers, V], and the logits of
    a classifier, or of the order of a pair, [layers, labels]."""

    masks: list[Float[Tensor, "layers V"]]
    labels: Float[Tensor, "layers labels"] | None


class PackedModel:
    """A model in evaluation mode on its device, computed in packed micro-batches.

    Args:
        model: one of the model classes. It is moved to the device, and its encoder is replaced by a `FastEncoder`.
        micro_batch_tokens: approximate number of tokens per micro-batch; on a CPU, per worker (see
            `albert.runtime.devices`). None: a fast default for the device.
        precision: of the encoder's matrix products; heads compute in fp32.
    """

    def __init__(
        self,
        model: nn.Module,
        device: torch.device,
        micro_batch_tokens: int | None = None,
        precision: InferencePrecision = "fp32",
    ) -> None:
        self.model: Any = model.eval().to(device)
        use_fast_encoders(model, precision)
        default = _TOKENS_A_THREAD if device.type == "cpu" else _TOKENS_ON_A_GPU
        self.device = device
        self.micro_batch_tokens = micro_batch_tokens or default
        self._autotuner = Autotuner()

    def rows(self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray]) -> list[Any]:
        """The head's output for each sequence, in input order, as float32 on the CPU (`output_rows` has the shapes)."""
        rows: list[Any] = [None] * len(token_ids)

        def compute(members: Sequence[int]) -> Sequence[Any]:
            packed = self.pack(token_ids, token_types, members)
            return output_rows(self.model(packed), packed.lengths)

        for members, outputs in self.compute(compute, [len(ids) for ids in token_ids]):
            for member, row in zip(members, outputs, strict=True):
                rows[member] = row
        return rows

    def at(
        self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray], positions: Sequence[np.ndarray]
    ) -> Iterator[tuple[int, Tensor, Tensor | None]]:
        """Logits of a masked-token head at the given positions of each sequence.

        Vocabulary logits are large, so they are yielded as they are computed: the index of a sequence, its logits
        [positions, V], and those of its order [2] if there is a head for it.
        """

        def compute(members: Sequence[int]) -> tuple[Tensor, Tensor | None]:
            packed = self.pack(token_ids, token_types, members)
            starts = zip(members, packed.first_positions.tolist(), strict=True)
            shifted = torch.from_numpy(np.concatenate([positions[member] + start for member, start in starts]))
            logits = self.model(packed, shifted.to(self.device))
            if isinstance(logits, PreTrainingLogits):
                return logits.masked_tokens, logits.sentence_order
            return logits, None

        counts = [len(row) for row in positions]
        for members, (masked, order) in self.compute(compute, [len(ids) for ids in token_ids], counts):
            parts = masked.split([counts[member] for member in members])
            for row, (member, part) in enumerate(zip(members, parts, strict=True)):
                yield member, part, None if order is None else order[row]

    def after_layers(
        self,
        token_ids: Sequence[np.ndarray],
        token_types: Sequence[np.ndarray],
        positions: Sequence[np.ndarray],
        has_labels: bool,
        judges_order: bool,
    ) -> Iterator[HeadsAfterLayers]:
        """What the heads give for each sequence after each layer, of masks at its positions.

        The states of all layers are large, so the sequences are computed one by one.

        Args:
            has_labels: whether the model is a classifier.
            judges_order: whether it judges the order of the two texts of a sequence.
        """
        model = self.model
        encoder: Any = getattr(model, "albert", model)
        for number, masks in enumerate(positions):
            at_masks = []
            labels = None
            with torch.inference_mode():
                packed = self.pack(token_ids, token_types, [number])
                states = [state.float() for state in encoder.hidden_states(packed)]
                for position in masks.tolist():
                    at_mask = torch.stack([state[position] for state in states])
                    at_masks.append(model.predictions(at_mask, model.albert.embeddings.word_embeddings.weight))
                if has_labels:
                    labels = torch.cat([model.head_outputs(state, packed) for state in states]).float()
                elif judges_order and bool(token_types[number].any()):
                    order = [model.sop_classifier(model.albert.pool(state, packed)) for state in states]
                    labels = torch.cat(order).float()
            yield HeadsAfterLayers(at_masks, labels)

    @property
    def _workers(self) -> int:
        return torch.get_num_threads() if self.device.type == "cpu" else 1

    def pack(
        self, token_ids: Sequence[np.ndarray], token_types: Sequence[np.ndarray], members: Sequence[int]
    ) -> PackedSequences:
        """Some of the sequences as a batch on the device."""
        packed = pack([token_ids[member] for member in members], [token_types[member] for member in members])
        return packed.to(self.device)

    def compute(
        self,
        compute: Callable[[Sequence[int]], Result],
        lengths: Sequence[int],
        logit_rows: Sequence[int] | None = None,
    ) -> Iterator[tuple[list[int], Result]]:
        """The members of each micro-batch and its result, for sequences (or groups of them) of these lengths in tokens;
        `logit_rows` counts their vocabulary logits.

        Batches are computed by one worker each, a single one with all threads of torch or with one. In a server, and
        where logits take memory, only as many are computed at a time as there are workers.
        """

        def run(members: list[int]) -> Result:
            with torch.inference_mode(), torch.autocast(self.device.type, enabled=False):
                return compute(members)

        batches = self._micro_batches(lengths, logit_rows)
        between = BETWEEN_BATCHES.get()
        together = len(batches) if between is _no_op and logit_rows is None else self._workers
        for first in range(0, len(batches), max(1, together)):
            between()
            group = batches[first : first + together]
            if len(group) != 1 or self._workers == 1:
                results = parallel_map(run, group)
            else:
                single = partial(run, group[0])
                tokens = sum(lengths[member] for member in group[0])
                results = [self._autotuner.run(tokens, single, partial(in_one_thread, single))]
            yield from zip(group, results, strict=True)

    def _micro_batches(self, lengths: Sequence[int], rows: Sequence[int] | None) -> list[list[int]]:
        """Indices of sequences of similar length, in batches of similar size for all workers."""
        total = sum(lengths)
        workers = self._workers
        count = -(-total // self.micro_batch_tokens)
        if total >= workers * _MIN_TOKENS_PER_WORKER:
            count = -(-count // workers) * workers
        batches: list[list[int]] = []
        tokens = 0
        logit_rows = 0
        for index in sorted(range(len(lengths)), key=lambda index: lengths[index]):
            own = rows[index] if rows is not None else 0
            logit_rows += own
            is_full = (2 * tokens + lengths[index]) * count >= 2 * len(batches) * total
            if not batches or is_full or logit_rows > _LOGIT_ROWS // workers:
                batches.append([])
                logit_rows = own
            batches[-1].append(index)
            tokens += lengths[index]
        return batches
