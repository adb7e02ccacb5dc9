"""`albert.pretrain` and the command of the same name: what is done and given back.

Torch is loaded with the work, not before."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert.api.options import Pretrain
from albert.api.shown import Points, Shown, journal_curves
from albert.pretraining.recipe import PretrainingRecipe, find_recipe, kept_start, scaled_recipe
from albert.runtime.environment import load_by_name
from albert.runtime.errors import UsageError
from albert.runtime.json_files import load_json
from albert.training.run_folder import RunFolder

if TYPE_CHECKING:
    from albert.pretraining.run import PretrainingResult

_WARM_START = "albert.pretraining.run_identity"
CONTINUE = "continue"
_INIT_OPTIONS = ("revision", "resize_vocabulary", "extend_positions", "drop_heads")


@dataclass(frozen=True, repr=False, kw_only=True)
class PretrainResult(Shown):
    """A pre-trained model and what it knows of held-out text.

    Attributes:
        output: the run's directory.
        model: the model directory.
        evaluation: held-out figures of the finished model, shares of 1; constant answers among them.
        found: the run.
    """

    output: Path
    model: Path
    evaluation: Mapping[str, float]
    found: "PretrainingResult"

    def title(self) -> str:
        training = self.found.training
        return f"PretrainResult: {training.ending}, {training.tokens:,} tokens"

    def rows(self) -> list[tuple[str, ...]]:
        held = self.evaluation
        tasks = [task for task in ("masked_tokens", "sentence_order") if f"{task}_accuracy" in held]
        rows = [(t.replace("_", " "), f"{held[f'{t}_accuracy']:.1%}", f"{held[f'{t}_baseline']:.1%}") for t in tasks]
        return [("held out", "right", "best constant"), *rows] if rows else []

    def remarks(self) -> list[str]:
        return [f"model: {self.model}"]

    def curves(self) -> dict[str, Points]:
        return journal_curves(self.output, ("masked_tokens_accuracy", "sentence_order_accuracy"))


def run_pretrain(args: Pretrain) -> PretrainResult:
    """What `albert.pretrain` and `albert pretrain` do; for the errors see `albert.pretraining.run.pretrain`."""
    found = load_by_name("albert.pretraining.run").pretrain(
        args.recipe,
        args.data,
        args.output,
        args.device,
        init=init_of(args),
        change_dropout=args.change_dropout,
        wandb=args.wandb,
    )
    return PretrainResult(output=found.run, model=found.model, evaluation=found.evaluation, found=found)


def init_of(args: Pretrain) -> Any:
    """What to start from: an `Init`, or None.

    Raises:
        UsageError: how, but not from what.
    """
    options = {name: getattr(args, name) for name in _INIT_OPTIONS if getattr(args, name)}
    if args.init is not None:
        return load_by_name(_WARM_START).Init(model=args.init, **options)
    if options:
        raise UsageError(f"--{next(iter(options)).replace('_', '-')}", "goes with --init MODEL")
    return None


# --------------------------------------------------------------------------------------------------------------------
# The recipe that a run begins with, before single values of it are changed.


def recipe_of(
    name: str, output: Path | None = None, init: str | None = None, revision: str | None = None
) -> PretrainingRecipe:
    """The recipe of a name or a file; of `continue`, that of the run where it has begun, else the model's own.

    Args:
        name: what `find_recipe` takes, or `continue`.
        output: the run's directory.
        init, revision: the model that `continue` goes on with.

    Raises:
        UsageError: it is unknown, or there is nothing to continue with.
    """
    if name != CONTINUE:
        return find_recipe(name)
    if init is not None:
        warm_start = load_by_name(_WARM_START)
        return warm_start.recipe_like(warm_start.Init(model=init, revision=revision))
    if output is not None and kept_start(RunFolder(output)) is not None:
        return load_json(PretrainingRecipe, RunFolder(output).recipe_path)
    remedy = "albert pretrain continue --init MODEL --data CORPUS --output RUN"
    raise UsageError("albert pretrain continue", "no model to continue with", remedy)


def scaled(recipe: PretrainingRecipe, batch_size: int) -> tuple[PretrainingRecipe, tuple[str, ...]]:
    """The recipe at another batch size, and lines on how its learning rate came about.

    Raises:
        UsageError: not a number of sequences.
    """
    if batch_size < 1:
        raise UsageError("--scale-batch", f"is {batch_size}, a number of sequences from 1 is needed")
    changed = scaled_recipe(recipe, batch_size)
    old, new = recipe.optimizer.learning_rate, changed.optimizer.learning_rate
    steps, share = changed.schedule.total_steps, changed.batch_size / recipe.batch_size
    return changed, (
        f"learning rate {old:.4g} x sqrt({batch_size}/{recipe.batch_size}) = {new:.4g}",
        f"{steps:,} steps see {steps * changed.batch_size:,} sequences, {share:.3g} times as many as before; "
        f"as many need --steps {round(steps / share)}",
    )
