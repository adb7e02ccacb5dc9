"""Pre-training recipes: all settings of a run as a value, and the named recipes (`pretraining.toml`).

The learning rate of pre-training is decided here:

1. Its peak is `learning_rate` of the named recipe or of a recipe file; without one it is the paper's 0.00176.
2. `scale_batch` multiplies it by the square root of the ratio of the batches, also where a recipe has it
   (`scaled_recipe`). The key `learning_rate` is applied afterwards, and stands as it is.
3. Fewer `steps` shorten the warm-up in proportion, unless `schedule.warmup_steps` is given (`with_steps`).
4. `ScheduleRecipe.learning_rate` is the rate of each update: linearly up to the peak in the warm-up, at the peak until
   `schedule.decay_share` of the run is left (by default all of it, so there is no plateau), and linearly down to 0 at
   the last step, or at the end of a budget of tokens or minutes. The loop sets it for all parameters, with LAMB, AdamW
   and Muon alike.

Nothing else changes it: not resuming, an update that is skipped or taken back, the model of --init, or the number of
processes."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from albert.recipes.architecture import PRESETS, EncoderConfig
from albert.recipes.optimizer import OptimizerRecipe, warmup_then_linear
from albert.runtime.environment import PEER_TIMEOUT_MINUTES, Precision, PrecisionChoice
from albert.runtime.errors import InvalidConfiguration, UsageError, did_you_mean, require_range
from albert.runtime.json_files import (
    convert_value,
    deep_merge,
    from_json,
    nested_by_keys,
    read_toml_or_json,
    to_json,
)
from albert.runtime.manifest import LAYOUT, require_layout
from albert.runtime.words import plain

SentenceObjective = Literal["sop", "nsp", "none"]
MaskingUnit = Literal["word", "token"]
Replacement = Literal["token", "span"]
SPECIAL_TOKENS_OF_A_PAIR = 3
WARMUP_OF_BUDGET = 0.1
"""Where the rate decays with a budget of tokens or minutes, the warm-up ends with this share of it at the latest."""
DropoutChanges = tuple[tuple[int, float], ...]
"""(update, probability): the dropout of hidden values and attention from that update on, counted from 0. The paper's
Fig. 2b switches dropout off after a million steps, when the model still underfits (§4.8). The changes are part of the
recipe, so a run that was changed on its way can be repeated."""


def dropout_at(changes: DropoutChanges, step: int) -> float | None:
    """The probability that the changes set for an update; None before the first change."""
    started = [probability for first, probability in changes if first <= step]
    return started[-1] if started else None


@dataclass(frozen=True, kw_only=True)
class SequenceRecipe:
    """How sequences are made from documents.

    Raises:
        InvalidConfiguration: a length or share outside its range.
    """

    max_length: int = field(default=512, metadata={"key": "max_length"})
    """Most tokens of a sequence, including [CLS] and [SEP]."""
    short_probability: float = 0.1
    """Share of short sequences among those of several sentences, cut at a uniformly drawn sentence (paper §4.1)."""
    keep_pairs: bool = False
    """Leave no sentence alone that has another in its document: where two or three do not fit, the first segment of the
    input loses its front and the second one its end. For sequences that are short compared with the sentences;
    `albert pretrain` counts the tokens cut."""
    objective: SentenceObjective = "sop"
    """The sentence objective: sop, the order of two segments; nsp, whether the second follows the first; none."""

    def __post_init__(self) -> None:
        if self.max_length < SPECIAL_TOKENS_OF_A_PAIR + 2:
            raise InvalidConfiguration("max_length", f"is {self.max_length}, at least 5 is needed")
        require_range(self, "a share from 0 to 1", "short_probability", prefix="sequences.")

    @property
    def max_tokens(self) -> int:
        """Most tokens of both segments together."""
        return self.max_length - SPECIAL_TOKENS_OF_A_PAIR


@dataclass(frozen=True, kw_only=True)
class MaskingRecipe:
    """How much is masked, and how.

    Raises:
        InvalidConfiguration: a share or number outside its range.
    """

    share: float = 0.15
    """Share of the tokens of a sequence that are chosen, special ones counted as the reference does."""
    max_predictions: int | None = None
    """Most masked tokens of a sequence. The reference's 20 are 4 % of 512 tokens; None: no limit besides the share."""
    unit: MaskingUnit = "word"
    """What an n-gram consists of: whole words, or single tokens as in the first BERT."""
    max_ngram: int = 3
    """N, most words (or tokens) that one draw masks; 1 masks them one by one."""
    favor_shorter: bool = True
    """Draw n with p(n) ∝ 1/n; if false, with the same probabilities in reverse order."""
    replacement: Replacement = "token"
    """Whether [MASK], a random token or the token itself is drawn for every token, or once for a span (SpanBERT)."""
    replace_with_mask: float = 0.8
    """Share of the chosen tokens that become [MASK]."""
    replace_with_random: float = 0.1
    """Share that becomes a random token; the rest stays as it is."""

    def __post_init__(self) -> None:
        require_range(self, "a share above 0 and below 1", "share", prefix="masking.")
        require_range(self, "at least 1", "max_predictions", "max_ngram", prefix="masking.")
        kept = 1 - self.replace_with_mask - self.replace_with_random
        if min(self.replace_with_mask, self.replace_with_random, kept + 1e-9) < 0:
            why = "the shares of [MASK] and random tokens are negative or add up to more than 1"
            raise InvalidConfiguration("masking", why)

    def budgets(self, lengths: np.ndarray) -> np.ndarray:
        """Most masked tokens of sequences of these lengths, int64."""
        budgets = np.maximum(1, np.rint(self.share * lengths).astype(np.int64))
        return budgets if self.max_predictions is None else np.minimum(budgets, self.max_predictions)


@dataclass(frozen=True, kw_only=True)
class ScheduleRecipe:
    """Length of the training and learning rate by step.

    Raises:
        InvalidConfiguration: a warm-up longer than the training; a share outside its range.
    """

    total_steps: int = field(default=125_000, metadata={"key": "steps"})
    """Optimizer steps of the run."""
    warmup_steps: int = 3_125
    """Steps in which the learning rate rises to its peak; with anneal "budget" at most a tenth of the budget."""
    anneal: Literal["steps", "budget"] = "steps"
    """What the learning rate decays with: the share of steps, or the largest of the shares of steps, max_tokens and
    max_minutes, so that a run that ends by its budget ends at a rate of zero."""
    decay_share: float = 1.0
    """Last share of the run, in which the rate decays linearly to zero; until then it stays at its peak. 1: it decays
    from the end of the warm-up, as in the paper."""

    def __post_init__(self) -> None:
        if self.total_steps < 1:
            raise InvalidConfiguration("steps", f"is {self.total_steps}, at least 1 is needed")
        if not 0 <= self.warmup_steps <= self.total_steps:
            why = f"is {self.warmup_steps}, a number from 0 to the {self.total_steps} steps is needed"
            raise InvalidConfiguration("warmup_steps", why)
        require_range(self, "a share above 0 and up to 1", "decay_share")

    def learning_rate(self, step: int, peak: float, budget_used: float = 0.0) -> float:
        """Learning rate of update number `step`, counted from 0.

        Args:
            budget_used: share of the token or time budget that is used; 0 without a budget.
        """
        if self.anneal == "budget" and budget_used > step / self.total_steps:
            warmup = max((step + 1) / max(1, self.warmup_steps), budget_used / WARMUP_OF_BUDGET)
            return peak * min(1.0, warmup, max(0.0, 1 - budget_used) / self.decay_share)
        start = max(self.warmup_steps, round(self.total_steps * (1 - self.decay_share)))
        if self.warmup_steps <= step < start:
            return peak
        return warmup_then_linear(
            step, peak, self.warmup_steps if step < self.warmup_steps else start, self.total_steps
        )

    def budget_ends_warmup(self, step: int, budget_used: float) -> bool:
        """Return whether the warm-up is over before its steps, because a tenth of the budget is used."""
        return self.anneal == "budget" and step + 1 < self.warmup_steps and budget_used >= WARMUP_OF_BUDGET


@dataclass(frozen=True, kw_only=True)
class PretrainingRecipe:
    """All settings of a pre-training run, except the paths of its data and output.

    Raises:
        InvalidConfiguration: a setting is out of range, or settings contradict each other.
    """

    model: EncoderConfig = field(default_factory=EncoderConfig, metadata={"key": "architecture"})
    """The network. Its vocab_size is taken from the prepared corpus."""
    sinusoidal_positions: float | None = None
    """Initialise the position embeddings as sinusoids of this root mean square; None: random numbers, as in the paper.
    A small network learns relative positions sooner this way (docs/log.md)."""
    sequences: SequenceRecipe = field(default_factory=SequenceRecipe)
    """How sequences are made from documents."""
    masking: MaskingRecipe = field(default_factory=MaskingRecipe)
    """How much is masked, and how."""
    mixture: tuple[float, ...] = ()
    """With several corpora: how often a sequence comes from each, relative to the others; empty: by their sizes."""
    optimizer: OptimizerRecipe = field(default_factory=OptimizerRecipe)
    """The optimiser and its constants (paper §4.1)."""
    schedule: ScheduleRecipe = field(default_factory=ScheduleRecipe)
    """Number of steps, and the learning rate at each."""
    max_tokens: int | None = None
    """End the run with the update that reaches this number of tokens."""
    max_minutes: float | None = None
    """End the run after this time spent in updates, over all restarts (paper Table 6). With schedule.anneal "budget"
    the learning rate falls to zero by then. A finished run continues when the limit is raised."""
    batch_size: int = 4096
    """Sequences per update, over all processes."""
    micro_batch_size: int = 32
    """Sequences that one process computes at a time; the gradients of a batch are accumulated."""
    activation_checkpointing: bool = False
    """Store only the input of each layer and recompute the rest in the backward pass: a third more work, a fraction of
    the memory, the same results."""
    clip_norm: float = 1.0
    """Largest norm of the gradient; larger ones are scaled down to it."""
    on_divergence: Literal["stop", "skip", "rollback"] = "stop"
    """What to do when the loss or gradient is not finite: end the run, skip the update (at most 10 in a row), or return
    to the newest checkpoint and skip the data since then."""
    max_rollbacks: int = 10
    """Most returns to a checkpoint."""
    dropout_changes: DropoutChanges = ()
    """Pairs of an update and a probability: the dropout from that update on, instead of the model's."""
    precision: PrecisionChoice = "auto"
    """"auto" takes bf16 where the device has instructions for it; the saved recipe says which it was."""
    seed: int = 0
    """Seed of initial weights, data order, masks and dropout."""
    log_every: int = 10
    """Updates between training records in the journal."""
    evaluate_every: int | None = None
    """Updates between held-out evaluations; None: ten evaluations per run."""
    evaluation_sequences: int = 1000
    """Most held-out sequences of an evaluation."""
    evaluation_objectives: tuple[SentenceObjective, ...] = ()
    """Sentence objectives to evaluate, on the same texts (Table 5); empty: the one that is trained."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints."""
    checkpoint_every: int | None = None
    """Updates between checkpoints, in addition to those by time."""
    keep_checkpoints: int = 2
    """Number of newest checkpoints to keep."""
    workers: int = 0
    """Processes that make batches; the batches are the same for any number."""
    parallelism: Literal["data", "sharded"] = "data"
    """With several processes: "data" keeps all weights and moments on each, "sharded" a share on each (FSDP2), for
    models as large as xxlarge. A run may be resumed with the other, and with another number of processes."""
    peer_timeout_minutes: float = PEER_TIMEOUT_MINUTES
    """With several processes: minutes to wait for one that hangs. One that died is noticed at once."""
    fixed_shape: bool | None = None
    """Use micro-batches of a fixed shape, with at most the tokens of micro_batch_size sequences of the maximum length;
    None: on a GPU."""
    compile: bool | None = None
    """Compile the loss of fixed-shape micro-batches with torch.compile; None: on a GPU."""
    deterministic: bool = False
    """On a GPU: use deterministic kernels, so that a resumed run ends bit-identical there too, more slowly. On a CPU
    it always does."""

    @property
    def resolved_precision(self) -> Precision:
        """The precision after `resolve_recipe`."""
        assert self.precision != "auto", "not resolved yet"
        return self.precision

    def __post_init__(self) -> None:
        if self.sequences.max_length > self.model.max_position_embeddings:
            positions = self.model.max_position_embeddings
            why = f"{self.sequences.max_length} is more than architecture.max_position_embeddings {positions}"
            raise InvalidConfiguration("max_length", why)
        if self.compile and self.fixed_shape is False:
            raise InvalidConfiguration("compile", "needs fixed_shape", "leave fixed_shape out")
        if self.model.type_vocab_size < 2:
            why = f"is {self.model.type_vocab_size}, a sequence has two segments"
            raise InvalidConfiguration("architecture.type_vocab_size", why)
        counts = ("max_tokens", "batch_size", "micro_batch_size", "log_every", "evaluate_every", "evaluation_sequences")
        require_range(self, "at least 1", *counts, "checkpoint_every", "keep_checkpoints")
        require_range(self, "at least 0", "seed", "workers", "max_rollbacks")
        minutes = ("checkpoint_minutes", "peer_timeout_minutes", "max_minutes")
        require_range(self, "a finite number above 0", "clip_norm", "sinusoidal_positions", *minutes)
        if self.optimizer.kind == "muon" and self.parallelism == "sharded":
            why = "is muon, which needs whole matrices, and parallelism is sharded"
            raise InvalidConfiguration("optimizer.kind", why, "choose lamb or adamw, or parallelism data")
        if self.sequences.objective == "none" and set(self.evaluation_objectives) - {"none"}:
            why = 'need a sentence head, which sequences.objective "none" does not train'
            raise InvalidConfiguration("evaluation_objectives", why, "leave them out")
        steps = [step for step, _ in self.dropout_changes]
        if any(step < 0 for step in steps) or steps != sorted(set(steps)):
            raise InvalidConfiguration("dropout_changes", f"are at updates {steps}, ascending ones are needed")
        for _, probability in self.dropout_changes:
            if not 0 <= probability < 1:
                why = f"has the probability {plain(probability)}, a share from 0 to below 1 is needed"
                raise InvalidConfiguration("dropout_changes", why)


# --------------------------------------------------------------------------------------------------------------------
# The named recipes.


def scaled_recipe(recipe: PretrainingRecipe, batch_size: int) -> PretrainingRecipe:
    """A recipe with another batch size, and its learning rate scaled by the square root of the batch sizes' ratio.

    The rule is that of LAMB's authors (You et al., 2019, §4 and Table 4, whose row of batch 4096 has ALBERT's 0.00176),
    and holds for Adam as well (Malladi et al., 2022). As there, warm-up and total steps are unchanged: a smaller batch
    sees fewer sequences, unless `steps` is raised.

    Raises:
        InvalidConfiguration: the batch size is below 1.
    """
    rate = recipe.optimizer.learning_rate * math.sqrt(max(batch_size, 0) / recipe.batch_size)
    optimizer = replace(recipe.optimizer, learning_rate=rate) if rate else recipe.optimizer
    return replace(within_batch(recipe, batch_size), optimizer=optimizer, batch_size=batch_size)


def within_batch(recipe: PretrainingRecipe, batch_size: int) -> PretrainingRecipe:
    """A recipe whose micro-batches have at most as many sequences as a batch of this size."""
    return replace(recipe, micro_batch_size=min(recipe.micro_batch_size, max(batch_size, 1)))


def with_steps(recipe: PretrainingRecipe, steps: int, saved: PretrainingRecipe | None = None) -> PretrainingRecipe:
    """A recipe with another number of steps; if there are fewer, the warm-up is shortened in proportion.

    Args:
        saved: of the run to resume: if it has as many steps, its warm-up stays.
    """
    warmup = recipe.schedule.warmup_steps
    if steps < recipe.schedule.total_steps:
        warmup = max(min(1, warmup), round(warmup * steps / recipe.schedule.total_steps))
    if saved is not None and saved.schedule.total_steps == steps:
        warmup = saved.schedule.warmup_steps
    return replace(recipe, schedule=replace(recipe.schedule, total_steps=steps, warmup_steps=warmup))


def before_keys(
    recipe: PretrainingRecipe, keys: Mapping[str, Any], saved: PretrainingRecipe | None = None
) -> PretrainingRecipe:
    """The recipe whose single values `keys` change: `scale_batch` scales its learning rate, a smaller batch its
    micro-batch, and fewer steps its warm-up, unless the keys say otherwise.

    Args:
        keys: those that are given, by their names; those of a group are "schedule.warmup_steps" or in a dict.
        saved: of the run to resume.
    """
    if keys.get("scale_batch") is not None:
        recipe = scaled_recipe(recipe, keys["scale_batch"])
    if "batch_size" in keys and "micro_batch_size" not in keys:
        recipe = within_batch(recipe, keys["batch_size"])
    schedule = keys.get("schedule")
    has_warmup = "schedule.warmup_steps" in keys or (isinstance(schedule, Mapping) and "warmup_steps" in schedule)
    if "steps" in keys and not has_warmup:
        recipe = with_steps(recipe, keys["steps"], saved)
    return recipe


PAPER_BASE = PretrainingRecipe()
"""Paper §4.1; see `pretraining.toml`."""


NO_KEYS = ("base", "preset", "scale_batch")
"""What a recipe file may have besides the keys of a recipe."""


def recipe_from_values(values: Mapping[str, Any], where: str) -> PretrainingRecipe:
    """The recipe of values by their keys, as a file has them.

    `base` names the recipe that has the other values, the paper's if there is none; `preset` another architecture; and
    `scale_batch` another batch size, with its learning rate (see `scaled_recipe`). Fewer steps shorten the warm-up, and
    a smaller batch the micro-batch, unless the values say otherwise.

    Raises:
        InvalidConfiguration: an unknown key, a wrong type, or values that do not fit together.
    """
    rest = {key: value for key, value in values.items() if key not in NO_KEYS}
    recipe = PAPER_BASE
    if "base" in values:
        if values["base"] not in RECIPES:
            raise InvalidConfiguration(f"{where}: base", "is no recipe", did_you_mean(str(values["base"]), RECIPES))
        recipe = RECIPES[values["base"]]
    if "preset" in values:
        if values["preset"] not in PRESETS:
            raise InvalidConfiguration(f"{where}: preset", "is no preset", did_you_mean(str(values["preset"]), PRESETS))
        recipe = replace(recipe, model=PRESETS[values["preset"]])
    numbers = {
        name: convert_value(int, values[name], f"{where}: {name}")
        for name in ("scale_batch", "batch_size", "steps")
        if name in values
    }
    recipe = before_keys(recipe, {**values, **numbers})
    nested = nested_by_keys(PretrainingRecipe, rest, where)
    return from_json(PretrainingRecipe, deep_merge(to_json(recipe), nested), where)


RECIPES: dict[str, PretrainingRecipe] = {}
"""The named recipes."""
for _name, _values in tomllib.loads((files("albert.recipes") / "pretraining.toml").read_text(encoding="utf-8")).items():
    RECIPES[_name] = recipe_from_values(_values, f"pretraining.toml: {_name}")


def read_recipe(path: Path) -> PretrainingRecipe:
    """The recipe in a TOML or JSON file.

    Args:
        path: the output of `albert info --recipe small`, some of its values, or the recipe.json of a run.

    Raises:
        MissingInput, DamagedData: the file cannot be read.
        InvalidConfiguration: see `recipe_from_values`.
    """
    values = read_toml_or_json(path)
    if LAYOUT in values:  # the recipe.json of a run
        require_layout(path, values.pop(LAYOUT))
        return from_json(PretrainingRecipe, values, str(path))
    return recipe_from_values(values, str(path))


def find_recipe(name: str) -> PretrainingRecipe:
    """The recipe with this name, or in this TOML or JSON file.

    Raises:
        UsageError: neither a known name nor a file.
        MissingInput, DamagedData, InvalidConfiguration: see `read_recipe`.
    """
    if name in RECIPES:
        return RECIPES[name]
    if Path(name).exists() and not Path(name).is_dir():  # opening refuses pipes
        return read_recipe(Path(name))
    raise UsageError(f"recipe {name}", "is neither a known recipe nor a file", did_you_mean(name, RECIPES))
