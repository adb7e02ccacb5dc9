"""The functions `albert.pretrain`, `finetune` and `evaluate`. Their options are in `options`. Torch is imported when a
function is called."""

import sys
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert.api.checks import check_evaluate, check_model, check_options
from albert.api.display import Displayable, Points, draw_curves, journal_curves
from albert.api.keywords import (
    Call,
    Option,
    Values,
    option_name,
    with_options,
)
from albert.api.options import Evaluate, Pretrain
from albert.pretraining.recipe import (
    PretrainingRecipe,
    find_recipe,
    saved_recipe,
    scaled_recipe,
    with_steps,
)
from albert.runtime.environment import lazy_import, world
from albert.runtime.errors import UsageError
from albert.training.record import recorded_start
from albert.training.run_folder import RunFolder

if TYPE_CHECKING:
    from albert.api.results import EvaluateResult
    from albert.pretraining.run import PretrainingResult

# --------------------------------------------------------------------------------------------------------------------
# Pre-training.

_WARM_START = "albert.pretraining.start"
CONTINUE = "continue"
_INIT_OPTIONS = ("revision", "resize_vocabulary", "extend_positions", "drop_heads")


@dataclass(frozen=True, repr=False, kw_only=True)
class PretrainResult(Displayable):
    """A pre-trained model and its accuracy on held-out text.

    Attributes:
        output: the run's directory.
        model: the model directory.
        evaluation: held-out figures of the final model and of the majority baseline, as fractions.
        found: everything that the run returned.
    """

    output: Path
    model: Path
    evaluation: Mapping[str, float]
    found: "PretrainingResult"

    def title(self) -> str:
        training = self.found.training
        return f"PretrainResult: {training.ending}, {training.tokens:,} tokens"

    def rows(self) -> list[tuple[str, ...]]:
        scores = self.evaluation
        tasks = [task for task in ("masked_tokens", "sentence_order") if f"{task}_accuracy" in scores]
        rows = [
            (task.replace("_", " "), f"{scores[f'{task}_accuracy']:.1%}", f"{scores[f'{task}_baseline']:.1%}")
            for task in tasks
        ]
        return [("held out", "right", "best constant"), *rows] if rows else []

    def remarks(self) -> list[str]:
        return [f"model: {self.model}"]

    def curves(self) -> dict[str, Points]:
        return journal_curves(self.output, ("masked_tokens_accuracy", "sentence_order_accuracy"))


def run_pretrain(options: Pretrain) -> PretrainResult:
    """Run `albert.pretrain` or `albert pretrain`; for the errors see `albert.pretraining.run.pretrain`."""
    init = init_of(options)
    if options.replace and options.change_dropout is not None:
        raise UsageError(
            option_name("change_dropout"), "continues a run, which --replace removes", "leave one of them out"
        )
    result = lazy_import("albert.pretraining.run").pretrain(
        options.recipe,
        options.data,
        options.output,
        options.device,
        init=init,
        change_dropout=options.change_dropout,
        wandb=options.wandb,
        replace=options.replace,
    )
    if world().is_first:
        draw_curves(result.run)
    return PretrainResult(output=result.run, model=result.model, evaluation=result.evaluation, found=result)


def init_of(options: Pretrain) -> Any:
    """The model to start from, as an `Init`, or None."""
    init_options = {name: getattr(options, name) for name in _INIT_OPTIONS if getattr(options, name)}
    if options.init is not None:
        return lazy_import(_WARM_START).Init(model=options.init, **init_options)
    if init_options:
        raise UsageError(option_name(next(iter(init_options))), "requires --init MODEL")
    return None


def recipe_of(
    name: str, output: Path | None = None, init: str | None = None, revision: str | None = None
) -> PretrainingRecipe:
    """The recipe of a name or a file; for `continue`, that of the model `init`, or of the run in `output`."""
    if name != CONTINUE:
        return find_recipe(name)
    if init is not None:
        check_model(init, revision)
        warm_start = lazy_import(_WARM_START)
        return warm_start.recipe_for_model(warm_start.Init(model=init, revision=revision))
    if output is not None and recorded_start(RunFolder(output)) is not None:
        return saved_recipe(RunFolder(output))
    remedy = "albert pretrain continue --init MODEL --data CORPUS --output RUN"
    raise UsageError("albert pretrain continue", "no model to continue with", remedy)


def scale_recipe(recipe: PretrainingRecipe, batch_size: int) -> tuple[PretrainingRecipe, tuple[str, ...]]:
    """The recipe at another batch size, and lines that explain its learning rate and steps."""
    if batch_size < 1:
        raise UsageError("--scale-batch", f"is {batch_size}, a number of sequences from 1 is needed")
    changed = scaled_recipe(recipe, batch_size)
    old = recipe.optimizer.learning_rate
    new = changed.optimizer.learning_rate
    steps = changed.schedule.total_steps
    share = changed.batch_size / recipe.batch_size
    return changed, (
        f"learning rate {old:.4g} x sqrt({batch_size}/{recipe.batch_size}) = {new:.4g}",
        f"{steps:,} steps see {steps * changed.batch_size:,} sequences, {share:.3g} times as many as before; "
        f"as many need --steps {round(steps / share)}",
    )


_STEPS = ("recipe", "schedule", "total_steps")
_WARMUP_STEPS = ("recipe", "schedule", "warmup_steps")


def fit_warmup(recipe: PretrainingRecipe, values: Values, output: Path | None) -> PretrainingRecipe:
    """The recipe with the number of steps that is given, and a warm-up in proportion if none is given."""
    if _STEPS not in values or _WARMUP_STEPS in values:
        return recipe
    changed = with_steps(recipe, values[_STEPS], None if output is None else RunFolder(output))
    before = recipe.schedule
    now = changed.schedule
    if now.warmup_steps != before.warmup_steps and world().is_first:
        what = f"the warm-up takes {now.warmup_steps:,} of {now.total_steps:,} steps"
        usual = f"the recipe has {before.warmup_steps:,} of {before.total_steps:,}"
        print(f"albert: note: {what}, {usual}; --warmup-steps sets it", file=sys.stderr)
    return changed


# --------------------------------------------------------------------------------------------------------------------
# The functions.

RECIPE = Option(
    path=("recipe",),
    names=("--recipe",),
    hint=PretrainingRecipe | Path,
    default=MISSING,
    text="A name (quickstart, small, one-gpu, base, large, xlarge, xxlarge, continue), a TOML or JSON file, as "
    "for --recipe, a dict, or a PretrainingRecipe; the keywords below change single values of it.",
)


@with_options(Evaluate, "albert.evaluate", positional=("task",), rows=("dev",), omit=("json", "csv"))
def evaluate(call: Call) -> "EvaluateResult":
    """Score a model, or several together, with a task's official metrics, beside the majority baseline.

    The same as `albert evaluate`.
    """
    with call.rows_in("temporary"):
        options = call.options()
        check_evaluate(options)
        *_, last = lazy_import("albert.api.tasks").evaluations(options)
        return last


@with_options(Pretrain, "albert.pretrain", positional=("recipe",), extra=(RECIPE,))
def pretrain(call: Call) -> "PretrainResult":
    """Pre-train an ALBERT encoder with n-gram masking and sentence order.

    The same as `albert pretrain`, with the same files. The same call resumes a run that was stopped. Values of the
    recipe have the names of the command's options: `steps=2000, hidden_size=192`; or they are in dicts, as in a file:
    `schedule={"total_steps": 2000}, model={"hidden_size": 192}`.
    """
    recipe = call.pop("recipe")
    earlier = None if call.get("replace") else call.get("output")
    if recipe is None:
        raise UsageError("albert.pretrain: recipe", "is missing", "it is a name such as small, a file or a dict")
    if isinstance(recipe, Path):
        recipe = recipe_of(str(recipe), earlier, call.get("init"), call.get("revision"))
    if call.get("scale_batch") is not None:
        recipe, _ = scale_recipe(recipe, call.get("scale_batch"))
    recipe = fit_warmup(recipe, call.values, earlier)
    options = call.options(recipe=recipe)
    check_options(options, resumes=True)
    return run_pretrain(options)
