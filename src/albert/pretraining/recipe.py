"""Pre-training recipes: a complete run as a value, the named recipes, and the record of what a run started from.

Dropout that changes during a run (paper §4.8) and the weighting of hard examples (§5) are parts of a recipe."""

import hashlib
import json
import math
import tomllib
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from albert.model.config import PRESETS, AlbertConfig, Extension
from albert.optim.recipe import OptimizerRecipe, ScheduleRecipe
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import SequenceRecipe
from albert.pretraining.segments import SentenceObjective
from albert.runtime.environment import PEER_TIMEOUT_MINUTES, Precision, PrecisionChoice
from albert.runtime.errors import InvalidConfiguration, MissingInput, UsageError, did_you_mean
from albert.runtime.json_files import deep_merge, from_json, load_json, read_toml_or_json, to_json
from albert.training.run_folder import RunFolder

# --------------------------------------------------------------------------------------------------------------------
# Dropout that changes while a model is pre-trained (Lan et al. 2019, §4.8): a pure function of the step.
#
# The paper's Fig. 2b switches dropout off after a million steps, when the model still fits its data too little. A
# recipe holds the changes, so that a run which was changed on its way can be run again as a whole.

DropoutChanges = tuple[tuple[int, float], ...]
"""(update, probability): from that update on, counted from 0, dropout is that, of hidden values and of attention."""


def check_dropout_changes(changes: DropoutChanges) -> None:
    """Raises InvalidConfiguration when updates do not ascend or a probability is none."""
    steps = [step for step, _ in changes]
    if any(step < 0 for step in steps) or steps != sorted(set(steps)):
        raise InvalidConfiguration("dropout_changes", f"are at updates {steps}, ascending ones are needed")
    for _, probability in changes:
        if not 0 <= probability < 1:
            why = f"has the probability {probability}, a share from 0 to below 1 is needed"
            raise InvalidConfiguration("dropout_changes", why)


def dropout_at(changes: DropoutChanges, step: int) -> float | None:
    """The probability that the changes give an update, None before the first of them."""
    reached = [probability for first, probability in changes if first <= step]
    return reached[-1] if reached else None


def with_change(changes: DropoutChanges, step: int, probability: float) -> DropoutChanges:
    """The changes with another one, in place of any at the same update."""
    return tuple(sorted([change for change in changes if change[0] != step] + [(step, probability)]))


# --------------------------------------------------------------------------------------------------------------------
# Masked tokens that the model finds hard count more: loss-weighted mining of hard examples (paper §5).
#
# A token to which the model gives probability p has weight (1 − p)^focus, the modulating factor of the focal loss
# (Lin et al., "Focal Loss for Dense Object Detection", ICCV 2017, equation 4), held constant for the gradient. The
# weight depends on the token's own loss alone, and the sum is divided by the number of all masked tokens as before,
# so neither accumulation nor world size changes the numbers. The top share of a batch would depend on both.
#
# Hard questions of order are made where sequences are cut: see `SequenceRecipe.neighbours_probability`.


@dataclass(frozen=True, kw_only=True)
class HardExamplesRecipe:
    """How much more a hard masked token counts than an easy one.

    Raises:
        InvalidConfiguration: a number out of range.
    """

    focus: float = 0.0
    """A token to which the model gives probability p counts (1 - p)^focus; 0: all count alike."""
    warmup_steps: int = 0
    """Updates before which all count alike."""

    def __post_init__(self) -> None:
        if not 0 <= self.focus <= 10:
            raise InvalidConfiguration("hard_examples.focus", f"is {self.focus}, a number from 0 to 10 is needed")
        if self.warmup_steps < 0:
            raise InvalidConfiguration("hard_examples.warmup_steps", f"is {self.warmup_steps}, at least 0 is needed")

    def focus_of(self, step: int) -> float:
        """The focus of update number `step`, counted from 0."""
        return self.focus if step >= self.warmup_steps else 0.0


EQUAL_WEIGHTS = HardExamplesRecipe()


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
    sequences: SequenceRecipe = field(default_factory=SequenceRecipe)
    """How the corpus is cut into sequences."""
    masking: MaskingRecipe = field(default_factory=MaskingRecipe)
    """How much is masked, and how."""
    hard_examples: HardExamplesRecipe = field(default_factory=HardExamplesRecipe)
    """How much more a hard masked token counts than an easy one."""
    mixture: tuple[float, ...] = ()
    """With several corpora: how often a sequence comes from each, relative to the others; empty: by their sizes."""
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    """The optimiser and its constants (paper §4.1)."""
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    """How long to train and how the learning rate moves."""
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
    """Largest norm of the gradient; longer ones are scaled down to it."""
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
    """Seed of initial weights, order of the data, masks and dropout."""
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
    """Checkpoints that are kept, the newest ones."""
    workers: int = 0
    """Processes that make batches; the batches are the same for any number."""
    parallelism: Literal["data", "sharded"] = "data"
    """On several processes: "data" keeps all weights and moments on each; "sharded" keeps a share on each (FSDP2), for
    models as large as xxlarge. A run may go on with the other, and on another number of processes."""
    peer_timeout_minutes: float = PEER_TIMEOUT_MINUTES
    """On several processes: minutes to wait for one that hangs. One that died is noticed at once."""
    fixed_shape: bool | None = None
    """Micro-batches of one shape: as many tokens as nearly always fit micro_batch_size sequences of the longest length;
    None: on a GPU."""
    compile: bool | None = None
    """Compile the loss, of micro-batches of one shape, by torch.compile; None: on a GPU."""
    deterministic: bool = False
    """On a GPU: add up in a fixed order, so that a resumed run ends bit-identical there too, more slowly. On a CPU it
    always does."""

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
        if self.compile and self.fixed_shape is False:
            raise InvalidConfiguration("compile", "needs fixed_shape", "leave fixed_shape out")
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
        if self.optimizer.kind == "muon" and self.parallelism == "sharded":
            why = "is muon, which needs whole matrices, and parallelism is sharded"
            raise InvalidConfiguration("optimizer.kind", why, "choose lamb or adamw, or parallelism data")
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
        ):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise InvalidConfiguration(name, f"is {getattr(self, name)}, a number above 0 is needed")
        check_dropout_changes(self.dropout_changes)


# --------------------------------------------------------------------------------------------------------------------
# The named recipes; a variant is `dataclasses.replace` of another, `scaled_recipe`, or flags over it.


def scaled_recipe(recipe: PretrainingRecipe, batch_size: int) -> PretrainingRecipe:
    """A recipe with another batch and the learning rate that goes with it, by the square root of the batches' ratio.

    The rule is that of LAMB's authors (You et al., 2019, §4 and Table 4, whose row of batch 4096 is ALBERT's 0.00176),
    and holds for Adam as well (Malladi et al., 2022). Their warm-up is the same number of steps at every batch. The
    steps stay: a smaller batch then sees as many sequences fewer, and `schedule.total_steps` can make up for it.

    Raises:
        InvalidConfiguration: no sequences.
    """
    rate = recipe.optimizer.learning_rate * math.sqrt(max(batch_size, 0) / recipe.batch_size)
    optimizer = replace(recipe.optimizer, learning_rate=rate) if rate else recipe.optimizer
    micro_batch_size = min(recipe.micro_batch_size, max(batch_size, 1))
    return replace(recipe, optimizer=optimizer, batch_size=batch_size, micro_batch_size=micro_batch_size)


PAPER_BASE = PretrainingRecipe()
"""Paper §4.1; see `recipes.toml`."""


def _declared(values: dict[str, Any]) -> PretrainingRecipe:
    """A recipe as `recipes.toml` has it."""
    recipe = scaled_recipe(PAPER_BASE, values.pop("scale_batch", PAPER_BASE.batch_size))
    recipe = replace(recipe, model=PRESETS[values.pop("architecture", "albert-base")])
    return from_json(PretrainingRecipe, deep_merge(to_json(recipe), values), "recipes.toml")


RECIPES: dict[str, PretrainingRecipe] = {
    name: _declared(values)
    for name, values in tomllib.loads(
        (files("albert.pretraining") / "recipes.toml").read_text(encoding="utf-8")
    ).items()
}
"""The named recipes."""
RENAMED = {"two-cores": "small"}
"""Names that recipes had before; they still work."""


def continue_recipe(
    config: AlbertConfig, trained_length: int | None, objective: SentenceObjective
) -> PretrainingRecipe:
    """The recipe `continue` for a model: its architecture, the length it was trained with, its sentence objective.

    Args:
        trained_length: tokens of its longest sequences; None: as many as it has positions, at most 512.
        objective: what its sentence head was trained on.
    """
    length = min(trained_length or 512, config.max_position_embeddings)
    sequences = replace(RECIPES["continue"].sequences, max_length=length, objective=objective)
    return replace(RECIPES["continue"], model=config, sequences=sequences)


def read_recipe(path: Path, base: PretrainingRecipe = PAPER_BASE) -> PretrainingRecipe:
    """The recipe in a TOML or JSON file.

    Args:
        path: what `albert pretrain --print-recipe` printed, the recipe.json of a run, or some values of one.
        base: the recipe whose values are taken where the file has none.

    Raises:
        MissingInput, DamagedData: the file cannot be read.
        InvalidConfiguration: an unknown key, a wrong type, or values that do not fit together.
    """
    return from_json(PretrainingRecipe, deep_merge(to_json(base), read_toml_or_json(path)), str(path))


def find_recipe(name: str) -> PretrainingRecipe:
    """The recipe of a name, or of a TOML or JSON file.

    Raises:
        UsageError: neither a known name nor a file.
        MissingInput, DamagedData, InvalidConfiguration: see `read_recipe`.
    """
    name = RENAMED.get(name, name)
    if name in RECIPES:
        return RECIPES[name]
    if Path(name).exists() and not Path(name).is_dir():  # a pipe is refused where it would be opened
        return read_recipe(Path(name))
    raise UsageError(f"recipe {name}", "neither a known recipe nor a file", did_you_mean(name, RECIPES))


# --------------------------------------------------------------------------------------------------------------------
# What a run was started from, kept in its `start.json` and compared when it goes on.

Head = Literal["masked_tokens", "sentence_order"]


@dataclass(frozen=True, kw_only=True)
class StartRecord:
    """A start from a trained model."""

    source: str
    """The model's name: a Hub id, or the end of a path."""
    weights: str
    """SHA-256 of its numbers."""
    tokenizer: str | None
    """The fingerprint of its tokenizer, None where the corpus has the same."""
    extend_positions: Extension | None
    drop_heads: tuple[Head, ...]
    trained_positions: int
    """Positions that training has reached before this run."""
    notes: tuple[str, ...]
    """What was changed, drawn anew or left out."""

    @property
    def fingerprint(self) -> str:
        """A hash of all that decides what the weights are when the run begins, beside recipe and corpus."""
        kept = to_json(self)
        settings = {key: kept[key] for key in ("weights", "tokenizer", "extend_positions", "drop_heads")}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()

    def __str__(self) -> str:
        return f"{self.source} (weights {self.weights[:12]})"

    def lines(self) -> list[str]:
        """The start for people."""
        return [f"started from {self}", *self.notes]


def kept_start(run: RunFolder) -> StartRecord | None:
    """The record of a run that has begun; None for one that began from random weights, or has not."""
    return load_json(StartRecord, run.start_path) if run.start_path.exists() else None


def refuse_another_start(run: RunFolder, start: StartRecord | None) -> None:
    """See to it that a run that has begun goes on from what it was started from.

    Args:
        start: what is asked for; None: whatever the run has.

    Raises:
        InvalidConfiguration: it was another model, or none.
        MissingInput: nothing is asked for, and the weights are not in the run yet.
    """
    kept = kept_start(run)
    if start is None:
        if kept is not None and not run.checkpoints():
            why = f"was to start from {kept} and has no checkpoint yet"
            raise MissingInput(run.path, why, "give --init again, or choose another output")
        return
    remedy = "choose another output, or leave --init out to go on"
    if kept is None and run.recipe_path.exists():
        raise InvalidConfiguration(run.path, f"this run was started from random weights, not from {start}", remedy)
    if kept is not None and kept.fingerprint != start.fingerprint:
        differ = "" if kept.weights != start.weights else " in another way"
        raise InvalidConfiguration(run.path, f"this run was started from {kept}{differ}, now it is {start}", remedy)
