"""A complete pre-training run as a value: what is trained, on what, how long, and what is kept of it."""

from dataclasses import dataclass, field
from typing import Literal

from albert.model.config import AlbertConfig
from albert.optim.optimizer_recipe import OptimizerRecipe
from albert.optim.schedule import ScheduleRecipe
from albert.pretraining.dropout_changes import DropoutChanges, check_dropout_changes
from albert.pretraining.hard_examples import HardExamplesRecipe
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.samples import SequenceRecipe
from albert.pretraining.sentence_order import SentenceObjective
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.precisions import Precision, PrecisionChoice
from albert.runtime.world import PEER_TIMEOUT_MINUTES


@dataclass(frozen=True, kw_only=True)
class PretrainingRecipe:
    """Everything that makes a pre-training run, but where its data are and where it writes.

    Raises:
        InvalidConfiguration: parts that do not fit together.
    """

    model: AlbertConfig = field(default_factory=AlbertConfig)
    """The network. Its vocab_size is taken from the prepared corpus."""
    sinusoidal_positions: float | None = None
    """Begin the position embeddings as sinusoids of this root mean square, and learn them from there; None: random
    numbers, as in the paper. A small network finds neighbours sooner so (LOG.md)."""
    equal_queries_and_keys: float | None = None
    """Begin the key maps as copies of the query maps, drawn so wide that a token's score for its like is this number
    on average: attention then finds words that occur twice from the start (after Trockman & Kolter, 2023). None: both
    at random, as in the paper."""
    sequences: SequenceRecipe = field(default_factory=SequenceRecipe)
    masking: MaskingRecipe = field(default_factory=MaskingRecipe)
    hard_examples: HardExamplesRecipe = field(default_factory=HardExamplesRecipe)
    mixture: tuple[float, ...] = ()
    """With several corpora: how often a sequence comes from each, relative to the others; empty: by their sizes."""
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    max_tokens: int | None = None
    """The run ends with the update that reaches so many tokens, however many steps are left."""
    max_minutes: float | None = None
    """The run ends after so many minutes in updates, over all parts of the run (paper Table 6). With
    schedule.anneal "budget" the learning rate falls to zero by then. A finished run goes on when it is given more."""
    batch_size: int = 4096
    """Sequences per update, over all processes."""
    micro_batch_size: int = 32
    """Sequences that one process holds at a time; the rest of the batch is accumulated."""
    activation_checkpointing: bool = False
    """Keep what goes into each layer and compute the rest again in the backward pass: a third more work, for a fraction
    of the memory and the same numbers."""
    clip_norm: float = 1.0
    on_divergence: Literal["stop", "skip", "rollback"] = "stop"
    """What is done about an update whose loss or gradient is not finite: end, leave it out (at most 10 in a row), or go
    back to the newest checkpoint and pass over the data since then."""
    spike_deviations: float | None = None
    """Do the same about one whose loss or gradient norm is so many deviations (robust, of logarithms) above the median
    of the last 128; None: about none."""
    max_rollbacks: int = 10
    """Most returns to a checkpoint."""
    dropout_changes: DropoutChanges = ()
    """Pairs of an update and a probability: from that update on dropout is that, in place of the model's."""
    precision: PrecisionChoice = "auto"
    """"auto" takes bf16 where the device has instructions for it; the saved recipe says which it was."""
    seed: int = 0
    log_every: int = 10
    """Updates between lines of the journal."""
    evaluate_every: int | None = None
    """Updates between held-out evaluations; None: ten times a run."""
    evaluation_sequences: int = 1000
    """Most held-out sequences of an evaluation."""
    evaluation_objectives: tuple[SentenceObjective, ...] = ()
    """What an evaluation asks the sentence head, all on the same texts (Table 5); empty: what it learns."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints."""
    checkpoint_every: int | None = None
    """Updates between checkpoints, beside those by time."""
    keep_checkpoints: int = 2
    workers: int = 0
    """Processes that make batches; the batches are the same for any number."""
    parallelism: Literal["data", "sharded"] = "data"
    """On several processes: "data" keeps all weights and moments on each; "sharded" keeps a share on each (FSDP2), for
    models as large as xxlarge. A run may go on with the other, and on another number of processes."""
    peer_timeout_minutes: float = PEER_TIMEOUT_MINUTES
    """On several processes: minutes to wait for one that hangs. One that died is noticed at once."""

    @property
    def settled_precision(self) -> Precision:
        """The precision of a recipe that `pretrain` has settled."""
        assert self.precision != "auto", "not settled yet"
        return self.precision

    def __post_init__(self) -> None:
        if self.sequences.max_length > self.model.max_position_embeddings:
            positions = self.model.max_position_embeddings
            why = f"{self.sequences.max_length} is more than model.max_position_embeddings {positions}"
            raise InvalidConfiguration("sequences.max_length", why)
        if self.model.type_vocab_size < 2:
            why = f"is {self.model.type_vocab_size}, a sequence has two segments"
            raise InvalidConfiguration("model.type_vocab_size", why)
        for name in (
            "max_tokens",
            "batch_size",
            "micro_batch_size",
            "log_every",
            "evaluate_every",
            "evaluation_sequences",
            "checkpoint_every",
            "keep_checkpoints",
        ):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidConfiguration(name, f"is {value}, at least 1 is needed")
        for name in ("workers", "max_rollbacks"):
            if getattr(self, name) < 0:
                raise InvalidConfiguration(name, f"is {getattr(self, name)}, at least 0 is needed")
        if self.sequences.objective == "none" and set(self.evaluation_objectives) - {"none"}:
            why = 'ask a sentence head, which sequences.objective "none" does not train'
            raise InvalidConfiguration("evaluation_objectives", why, "leave them out")
        for name in (
            "clip_norm",
            "checkpoint_minutes",
            "peer_timeout_minutes",
            "max_minutes",
            "spike_deviations",
            "sinusoidal_positions",
            "equal_queries_and_keys",
        ):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise InvalidConfiguration(name, f"is {getattr(self, name)}, a number above 0 is needed")
        check_dropout_changes(self.dropout_changes)
