"""`albert pretrain` and `albert.pretrain`: a corpus and a recipe to a pre-trained model.

1. A recipe, by its name or in a file, of which keys change single values: `recipe_before_changes`, below. All settings,
   the learning rate among them, are in `albert.recipes.pretraining`.
2. The run: `albert.pretraining.run` opens the corpora and the model, trains, evaluates and writes the model.
   `albert.pretraining.sampling` makes its batches, `albert.training.same_run` says whether it resumes an earlier one.
3. The result, its figures and what is printed: below."""

import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console

from albert.cli.command_line import Subcommand
from albert.cli.main import imports
from albert.cli.parsing import HELP_FLAGS
from albert.cli.render import key_value_table, next_line, open_console
from albert.cli.signature import (
    PathLike,
    is_options_file,
    option_name,
    options_of,
    read_keys,
    refuse_file_of_finetuning,
)
from albert.commands.checks import check_model, check_options
from albert.commands.columns import tuple_of
from albert.commands.function import command, definition_of
from albert.pretraining.saved_run import Head, recorded_start, saved_recipe
from albert.recipes.pretraining import (
    RECIPES,
    PretrainingRecipe,
    before_keys,
    find_recipe,
    scaled_recipe,
)
from albert.report.curves import CURVES_NAME, Points, draw_curves, journal_of, points_of
from albert.report.display import Displayable
from albert.runtime.environment import DEFAULT_LOG, Log, world
from albert.runtime.errors import UsageError
from albert.runtime.json_files import read_toml_or_json, values_by_keys
from albert.runtime.words import counted
from albert.training.run_folder import RunFolder

if TYPE_CHECKING:
    from albert.pretraining.run import PretrainingResult


@dataclass(frozen=True, kw_only=True)
class PretrainKeys:
    """The keys of `pretrain`: those of its recipe, and others."""

    recipe: PretrainingRecipe = field(default=RECIPES["small"], metadata={"key": ""})
    scale_batch: int | None = None
    """Another batch size, with the learning rate scaled by the square root of the ratio; other keys are applied
    afterwards."""
    log: Log = DEFAULT_LOG
    """Where the curves go: TensorBoard's files in OUTPUT, Weights & Biases or trackio (of the extras wandb and trackio;
    the project is that of WANDB_PROJECT or TRACKIO_PROJECT)."""


@dataclass(frozen=True, kw_only=True)
class PretrainStart:
    """A run that is about to start.

    Attributes:
        scaling: lines that explain another batch size.
        resumed_after: the step that it is resumed after, None for a new run.
    """

    recipe: PretrainingRecipe
    scaling: tuple[str, ...]
    output: Path
    resumed_after: int | None


@command("albert pretrain", keys=PretrainKeys)
def pretrain(
    recipe: PathLike | PretrainingRecipe,
    *,
    data: PathLike | Sequence[PathLike],
    output: PathLike,
    replace: bool = False,
    init: PathLike | None = None,
    resize_vocabulary: bool = False,
    extend_positions: bool = False,
    drop_heads: Head | Sequence[Head] = (),
    change_dropout: float | None = None,
    device: Literal["auto", "cpu", "cuda"] = "auto",
    on_start: "Callable[[PretrainStart], None] | None" = None,
    **keys: Any,
) -> "PretrainResult":
    """Pre-train an ALBERT encoder with n-gram masking and sentence order.

    The same call resumes a run that was stopped. Keys change single values of the recipe: `steps=2000`; those of a
    group are in a dict: `architecture={"hidden_size": 192}`.

    Args:
        recipe: A name (quickstart, small, one-gpu, base, large, xlarge, xxlarge, continue), a TOML or JSON file, or a
            PretrainingRecipe; keys change single values of it.
        data: A corpus from `albert prepare`; several are mixed (mixture=0.7,0.3).
        output: The run's directory, resumed if it exists.
        replace: Remove an earlier run in OUTPUT, and begin anew.
        init: Start from a trained model instead of random weights: a model directory, a run, or a Hub id. A resumed run
            does not need it.
        resize_vocabulary: With --init: the corpus has another tokenizer; pieces with the same text keep their
            embedding.
        extend_positions: With --init: replace positions that the model never reached in training by copies of the
            trained ones, in turn. Positions that it lacks always begin so.
        drop_heads: With --init: heads to initialise at random, masked_tokens or sentence_order or both.
        change_dropout: Resume an unfinished run with another dropout, from its newest checkpoint.
        on_start: Called after all checks, before the first update; not for a run that is complete.
    """
    corpora = tuple(Path(each) for each in ([data] if isinstance(data, str | os.PathLike) else data))
    folder = Path(output)
    model = None if init is None else os.fspath(init)
    heads: tuple[Head, ...] = tuple_of(drop_heads)
    if not corpora:
        raise UsageError("--data", "is empty", "give a corpus from `albert prepare`")
    first = recipe if isinstance(recipe, PretrainingRecipe) else os.fspath(recipe)
    base, scaling = recipe_before_changes(first, keys, None if replace else folder, model)
    chosen = read_keys(PretrainKeys(recipe=base), keys)
    check_options(SimpleNamespace(data=corpora, output=folder, init=model), resumes=True)
    changes_of_init = {
        "resize_vocabulary": resize_vocabulary,
        "extend_positions": extend_positions,
        "drop_heads": heads,
    }
    given = [name for name, value in changes_of_init.items() if value]
    if model is None and given:
        raise UsageError(option_name(given[0]), "requires --init MODEL")
    if replace and change_dropout is not None:
        raise UsageError("--change-dropout", "continues a run, which --replace removes", "leave one of them out")
    checkpoints = [] if replace else RunFolder(folder).checkpoints()
    resumed_after = checkpoints[-1][0] if checkpoints else None
    with imports():
        from albert.pretraining.initial_weights import Init
        from albert.pretraining.run import pretrain as run_pretraining

    start = None
    if model is not None:
        start = Init(
            model=model,
            resize_vocabulary=resize_vocabulary,
            extend_positions=extend_positions,
            drop_heads=heads,
        )

    def start_run(resumed_after: int | None) -> None:
        if on_start is not None:
            on_start(PretrainStart(recipe=chosen.recipe, scaling=scaling, output=folder, resumed_after=resumed_after))

    found = run_pretraining(
        chosen.recipe,
        corpora,
        folder,
        device,
        init=start,
        change_dropout=change_dropout,
        log=chosen.log,
        replace=replace,
        on_start=start_run,
    )
    if world().is_first:
        draw_curves(found.run)
    return PretrainResult(
        output=found.run,
        model=found.model,
        evaluation=found.evaluation,
        resumed_after=resumed_after,
        found=found,
    )


@dataclass(frozen=True, repr=False, kw_only=True)
class PretrainResult(Displayable):
    """A pre-trained model and its accuracy on held-out text.

    Attributes:
        output: the run's directory.
        model: the model directory.
        evaluation: held-out figures of the final model and of the majority baseline, as fractions.
        resumed_after: the step of the checkpoint that the run went on from; None for a new run.
        found: everything that the run returned.
    """

    output: Path
    model: Path
    evaluation: Mapping[str, float]
    resumed_after: int | None
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
        return [("held out", "right", "majority baseline"), *rows] if rows else []

    def remarks(self) -> list[str]:
        return [f"model: {self.model}"]

    def curves(self) -> dict[str, Points]:
        return points_of(journal_of(self.output), ("masked_tokens_accuracy", "sentence_order_accuracy"))


# --------------------------------------------------------------------------------------------------------------------
# From the first argument to the recipe whose single values the keys change.

CONTINUE = "continue"
"""The recipe with the architecture of the model that --init names."""


def recipe_before_changes(
    first: str | PretrainingRecipe, keys: Mapping[str, Any], output: Path | None, init: str | None
) -> tuple[PretrainingRecipe, tuple[str, ...]]:
    """The recipe whose single values `keys` change, and lines that explain another batch size.

    Args:
        first: a recipe, its name, or its file.
        keys: those that are given: a number of steps shortens the warm-up.
        output: the run to resume.
    """
    recipe = named_recipe(first, output, init) if isinstance(first, str) else first
    lines = () if keys.get("scale_batch") is None else scaling_lines(recipe, keys["scale_batch"])
    saved = None
    if "steps" in keys and output is not None and RunFolder(output).recipe_path.exists():
        saved = saved_recipe(RunFolder(output))
    before = recipe.schedule
    recipe = before_keys(recipe, keys, saved)
    now = recipe.schedule
    if now.warmup_steps != before.warmup_steps and world().is_first:
        what = f"the warm-up takes {now.warmup_steps:,} of {now.total_steps:,} steps"
        usual = f"the recipe has {before.warmup_steps:,} of {before.total_steps:,}"
        print(f"albert: note: {what}, {usual}; schedule.warmup_steps sets it", file=sys.stderr)
    return recipe, lines


def named_recipe(name: str, output: Path | None, init: str | None) -> PretrainingRecipe:
    """The recipe of a name or a file; for `continue`, that of the model `init`, or of the run in `output`."""
    if name != CONTINUE:
        if is_options_file(name) and Path(name).is_file():
            refuse_file_of_finetuning(Path(name), read_toml_or_json(Path(name)))
        return find_recipe(name)
    if init is not None:
        check_model(init)
        with imports():
            from albert.pretraining.initial_weights import Init, recipe_for_model

        return recipe_for_model(Init(model=init))
    if output is not None and recorded_start(RunFolder(output)) is not None:
        return saved_recipe(RunFolder(output))
    remedy = "albert pretrain continue --init MODEL --data CORPUS --output RUN"
    raise UsageError("albert pretrain continue", "no model to continue with", remedy)


def scaling_lines(recipe: PretrainingRecipe, batch_size: int) -> tuple[str, ...]:
    """What another batch size means for learning rate and steps; raises UsageError for a size below 1."""
    if batch_size < 1:
        raise UsageError("scale_batch", f"is {batch_size}, a number of sequences from 1 is needed")
    old = recipe.optimizer.learning_rate
    new = scaled_recipe(recipe, batch_size).optimizer.learning_rate
    steps = recipe.schedule.total_steps
    share = batch_size / recipe.batch_size
    return (
        f"learning rate {old:.4g} x sqrt({batch_size}/{recipe.batch_size}) = {new:.4g}",
        f"{steps:,} steps see {steps * batch_size:,} sequences, {share:.3g} times as many as before; "
        f"as many need steps={round(steps / share)}",
    )


# --------------------------------------------------------------------------------------------------------------------
# The command line.


class PretrainCommand(Subcommand):
    """`albert pretrain`, whose help shows the values of the recipe that is named first."""

    def __call__(self, words: list[str]) -> int:
        if not words or words[0] in HELP_FLAGS:
            return self.with_recipe("RECIPE", RECIPES["small"])(["--help"])
        name = words[0]
        if name.startswith("-") or "=" in name:
            raise UsageError("albert pretrain", "the first word is a recipe", f"one of {', '.join(RECIPES)}, or a file")
        if any(word in words for word in HELP_FLAGS):
            return self.with_recipe(name, find_recipe("small" if name == CONTINUE else name))(["--help"])
        command = self.with_recipe(name, RECIPES["small"])
        with command.options_named(words):
            show_pretrain(**command.arguments(words[1:], recipe=name))
        return 0

    def with_recipe(self, name: str, recipe: PretrainingRecipe) -> Subcommand:
        """The command after the word that names its recipe."""
        options = options_of(pretrain, PretrainKeys(recipe=recipe))
        typed = [option for option in options if option.name != "recipe"]
        return Subcommand(self.function, f"albert pretrain {name}", typed)


def show_pretrain(recipe: str, **arguments: Any) -> None:
    """Run `albert pretrain`, and print the recipe and the result."""
    console = open_console(soft_wrap=False, highlight=True, quiet=not world().is_first)

    def show(start: PretrainStart) -> None:
        show_start(console, recipe, start)

    show_result(console, pretrain(recipe, **arguments, on_start=show))


def show_start(console: Console, title: str, start: PretrainStart) -> None:
    """Print what another batch size means, the recipe, and where a run is resumed."""
    if start.scaling:
        console.print("\n".join(start.scaling), highlight=False, soft_wrap=True)  # not wrapped: it can be copied
    shown: dict[str, str] = {}
    for key, value in values_by_keys(start.recipe).items():
        group, _, field = key.rpartition(".")
        if value in (None, []) or key == "architecture.vocab_size":  # that of the corpus
            continue
        if group:
            shown[group] = ", ".join(filter(None, (shown.get(group), f"{field} {value}")))
        else:
            shown[key] = str(value)
    console.print(key_value_table(f"recipe {title}", shown))
    if start.resumed_after is not None:
        console.print(f"resuming {start.output} after step {start.resumed_after:,}")


def show_result(console: Console, result: PretrainResult) -> None:
    """Print how the run ended, its accuracy on held-out text, and where its files are."""
    found = result.found
    training = found.training
    if training.steps == result.resumed_after:
        console.print(f"{result.output} is complete already; nothing was trained")
    values: dict[str, object] = {} if found.start is None else {"started from": found.start}
    values["ended"] = training.ending
    if training.skipped or training.rollbacks:
        values["updates left out, rollbacks"] = f"{training.skipped:,}, {training.rollbacks:,}"
    values["tokens"] = f"{training.tokens:,} at {training.tokens_per_second:,.0f} a second"
    for task, what in (("masked_tokens", "masked tokens"), ("sentence_order", "sentence order")):
        if f"{task}_count" in result.evaluation:
            items = result.evaluation[f"{task}_count"]
            score = result.evaluation[f"{task}_accuracy"]
            constant = result.evaluation[f"{task}_baseline"]
            of = counted(int(result.evaluation["sequences"]), "held-out sequences")
            values[what] = f"{score:.1%} of {items:,.0f} right, in {of} (majority baseline: {constant:.1%})"
    values["model"] = result.model
    if (result.output / CURVES_NAME).exists():
        values["curves"] = result.output / CURVES_NAME
    if (result.output / "tensorboard").is_dir():
        values["live curves"] = f"tensorboard --logdir {result.output / 'tensorboard'}"
    console.print(key_value_table("pre-trained", values))
    words = shlex.join([str(result.model), "--fill-mask", found.question or "[MASK]"])
    console.print(next_line(f"predict {words}"), soft_wrap=True)


pretrain_main = PretrainCommand(wraps(pretrain)(show_pretrain), "albert pretrain", definition_of(pretrain).options)
