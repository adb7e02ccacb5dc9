"""Complete pre-training runs as values, by name; a variant is `dataclasses.replace` of another, or flags over it."""

from dataclasses import dataclass, field, replace
from typing import Literal

from albert.model.config import AlbertConfig
from albert.model.presets import ALBERT_BASE, ALBERT_LARGE, ALBERT_XLARGE, ALBERT_XXLARGE
from albert.optim.optimizer import OptimizerRecipe
from albert.optim.schedule import ScheduleRecipe
from albert.pretraining.dropout_changes import DropoutChanges, check_dropout_changes
from albert.pretraining.hard_examples import HardExamplesRecipe
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.samples import SequenceRecipe
from albert.pretraining.sentence_order import SentenceObjective
from albert.runtime.devices import Precision, PrecisionChoice
from albert.runtime.distributed import PEER_TIMEOUT_MINUTES
from albert.runtime.errors import InvalidConfiguration


@dataclass(frozen=True, kw_only=True)
class PretrainingRecipe:
    """Everything that makes a pre-training run, but where its data are and where it writes.

    Raises:
        InvalidConfiguration: parts that do not fit together.
    """

    model: AlbertConfig = field(default_factory=AlbertConfig)
    """The network. Its vocab_size is taken from the prepared corpus."""
    sequences: SequenceRecipe = field(default_factory=SequenceRecipe)
    masking: MaskingRecipe = field(default_factory=MaskingRecipe)
    hard_examples: HardExamplesRecipe = field(default_factory=HardExamplesRecipe)
    mixture: tuple[float, ...] = ()
    """With several corpora: how often a sequence comes from each, relative to the others; empty: by their sizes."""
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    batch_size: int = 4096
    """Sequences per update, over all processes."""
    micro_batch_size: int = 32
    """Sequences that one process holds at a time; the rest of the batch is accumulated."""
    clip_norm: float = 1.0
    dropout_changes: DropoutChanges = ()
    """Pairs of an update and a probability: from that update on dropout is that, in place of the model's."""
    precision: PrecisionChoice = "auto"
    """"auto" takes bf16 where the device is faster in it; the saved recipe says which it was."""
    seed: int = 0
    log_every: int = 10
    """Updates between lines of the journal."""
    evaluate_every: int | None = None
    """Updates between held-out evaluations; None: ten times a run."""
    evaluation_sequences: int = 1000
    """Most held-out sequences of an evaluation."""
    evaluation_objectives: tuple[SentenceObjective, ...] = ()
    """What an evaluation asks the sentence head, whatever it learns (Table 5), over the same texts, whose masked tokens
    are then asked for unswapped; empty: what it learns, on sequences as they are in training."""
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
        if self.workers < 0:
            raise InvalidConfiguration("workers", f"is {self.workers}, at least 0 is needed")
        if self.sequences.objective == "none" and set(self.evaluation_objectives) - {"none"}:
            why = 'ask a sentence head, which sequences.objective "none" does not train'
            raise InvalidConfiguration("evaluation_objectives", why, "leave them out")
        for name in ("clip_norm", "checkpoint_minutes", "peer_timeout_minutes"):
            if not getattr(self, name) > 0:
                raise InvalidConfiguration(name, f"is {getattr(self, name)}, a number above 0 is needed")
        check_dropout_changes(self.dropout_changes)


PAPER_BASE = PretrainingRecipe()
"""Paper §4.1: LAMB, batch 4096, peak rate 0.00176, 125,000 steps, 3,125 of warm-up, length 512."""

QUICKSTART = PretrainingRecipe(
    model=AlbertConfig(
        vocab_size=4000,
        embedding_size=64,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=128,
    ),
    sequences=SequenceRecipe(max_length=64),
    optimizer=OptimizerRecipe(learning_rate=1.5e-2, beta2=0.99),
    schedule=ScheduleRecipe(total_steps=1500, warmup_steps=100),
    batch_size=32,
    evaluate_every=300,
    evaluation_sequences=400,
    checkpoint_minutes=1.0,
)
"""A few minutes on two cores; see `albert quickstart`."""

SMALL = PretrainingRecipe(
    model=replace(ALBERT_BASE, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024),
    sequences=SequenceRecipe(max_length=128),
    optimizer=OptimizerRecipe(learning_rate=8e-3, beta2=0.99),
    schedule=ScheduleRecipe(total_steps=9500, warmup_steps=300),
    batch_size=32,
    micro_batch_size=32,
    checkpoint_minutes=5.0,
)
"""About an hour on two cores, 25 million tokens, a recipe to grow from: LOG.md says what it did not learn."""

CONTINUE = replace(
    PAPER_BASE,
    optimizer=OptimizerRecipe(learning_rate=4.4e-4),
    schedule=ScheduleRecipe(total_steps=12_500, warmup_steps=750),
    batch_size=256,
)
"""Go on with a pre-trained model on text of its new field: the model's own architecture (`continue_recipe`), as many
updates as Gururangan et al. (2020, §3.1) take, a fresh warm-up, and the paper's peak rate scaled to the batch,
0.00176·√(256/4096)."""

RECIPES: dict[str, PretrainingRecipe] = {
    "quickstart": QUICKSTART,
    "small": SMALL,
    "base": PAPER_BASE,
    "large": replace(PAPER_BASE, model=ALBERT_LARGE),
    "xlarge": replace(PAPER_BASE, model=ALBERT_XLARGE),
    "xxlarge": replace(PAPER_BASE, model=ALBERT_XXLARGE),
    "continue": CONTINUE,
}
"""The named recipes. base to xxlarge are the paper's, to be run on a cluster."""


def continue_recipe(
    config: AlbertConfig, trained_length: int | None, objective: SentenceObjective
) -> PretrainingRecipe:
    """`CONTINUE` for a model: its architecture, the length it was trained with, its sentence objective.

    Args:
        config: its configuration.
        trained_length: tokens of its longest sequences; None: as many as it has positions, at most 512.
        objective: what its sentence head was trained on.
    """
    length = min(trained_length or 512, config.max_position_embeddings)
    sequences = replace(CONTINUE.sequences, max_length=length, objective=objective)
    return replace(CONTINUE, model=config, sequences=sequences)
