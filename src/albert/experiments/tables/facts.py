"""Tables that need no run, as text: sizes (Table 1), fine-tuning (Table 14), what pre-training costs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from albert.experiments.published_costs import COSTS
from albert.experiments.published_finetuning import TABLE_14
from albert.experiments.published_sizes import PUBLISHED_SIZES
from albert.experiments.tables.expense import Rates, expense_of, implied_watts
from albert.experiments.tables.scales import Scale, Size
from albert.model.config import AlbertConfig
from albert.model.parameter_count import count_parameters
from albert.model.presets import PRESETS, bert_control
from albert.tasks.task import TaskRecipe

SIZES: dict[str, tuple[Size, bool]] = {
    "bert-base": ("base", True),
    "bert-large": ("large", True),
    "albert-base": ("base", False),
    "albert-large": ("large", False),
    "albert-xlarge": ("xlarge", False),
    "albert-xxlarge": ("xxlarge", False),
}
"""The rows of Table 1: the size of a scale, and whether it is BERT's."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """A table of text."""

    table: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def _count(config: AlbertConfig) -> int:
    """As the paper counts: what shares nothing without its pooler."""
    counted = count_parameters(config)
    return counted.encoder if config.sharing == "none" else counted.model


def sizes(scale: Scale) -> Facts:
    """Table 1: the models, the paper's and those of a scale."""
    rows, notes = [], []
    for preset, (size, is_bert) in SIZES.items():
        here = bert_control(scale.sizes[size]) if is_bert else scale.sizes[size]
        paper, stated = PRESETS[preset], PUBLISHED_SIZES[preset][0]
        rows.append((preset, _dials(paper), stated.stated, f"{_count(paper):,}", _dials(here), f"{_count(here):,}"))
        if stated.counted is None:
            notes.append(f"{preset}, {stated.stated}: {stated.reason}.")
    return Facts(
        table="1",
        title="The models: layers L, width H, embeddings E, and their parameters",
        head=("model", "L, H, E", "paper", "exact", f"L, H, E: {scale.name}", f"exact: {scale.name}"),
        rows=tuple(rows),
        notes=(
            "BERT shares nothing and is counted without its pooler, ALBERT shares all and is counted with it.",
            *notes,
            f"The scale {scale.name} has {scale.recipe.model.vocab_size:,} pieces.",
        ),
    )


def _dials(config: AlbertConfig) -> str:
    return f"{config.num_hidden_layers}, {config.hidden_size}, {config.embedding_size}"


def _told(recipe: TaskRecipe, examples: int | None) -> str:
    """Rate, batch, how long, length, from how many examples."""
    updates = "1 epoch" if recipe.epochs == 1 else f"{recipe.epochs:g} epochs" if recipe.epochs else recipe.steps
    sample = "" if examples is None else f" of {examples:,} examples"
    return f"{recipe.learning_rate:.0e}, {recipe.batch_size}, {updates}{sample}, {recipe.max_length} tokens"


def finetuning(scale: Scale) -> Facts:
    """Table 14: how each task is learnt, in the paper and at a scale."""
    rows = []
    learnt = {task.task: task for task in scale.tasks}
    for task, paper in TABLE_14.items():
        here = learnt.get(task)
        rows.append(
            (
                task,
                f"{paper.learning_rate:.0e}",
                f"{paper.batch_size}",
                f"{paper.encoder_dropout:g}",
                f"{paper.head_dropout:g}",
                f"{paper.steps}",
                f"{paper.warmup}",
                f"{paper.max_length}",
                "not learnt" if here is None else _told(here.settled_recipe, here.max_train_examples),
            )
        )
    return Facts(
        table="14",
        title="How each task is fine-tuned",
        head=("task", "rate", "batch", "dropout", "of the head", "updates", "warm-up", "tokens", f"scale {scale.name}"),
        rows=tuple(rows),
        notes=(
            "`albert finetune` takes these; with another number of examples it keeps the epochs, not the updates.",
            "The second release learns RACE at 1e-05 and without dropout: `albert finetune race --second-release`.",
        ),
    )


def costs(
    scale: Scale, hours: Mapping[str, float] | None = None, rates: Rates | None = None, devices: int = 1
) -> Facts:
    """The talk's table of costs, and what our runs cost by a stated price and draw.

    Args:
        scale: of the runs.
        hours: of each run, by the name of its arm.
        rates: of the machine; None: nothing is said about money and electricity.
        devices: that it ran on.
    """
    rows = []
    for cost in COSTS:
        watts = "" if cost.co2_pounds is None else f"{implied_watts(cost.co2_pounds, cost.device_hours):.0f} W"
        co2 = "" if cost.co2_pounds is None else f"{cost.co2_pounds:,}"
        where = f"{cost.devices} x {cost.device}"
        rows.append((f"{cost.model} ({cost.size})", where, f"{24 * cost.days:g}", f"{cost.dollars:,}", co2, watts))
    rates = rates or Rates()
    for name, spent in (hours or {}).items():
        ours = expense_of(spent, rates, devices)
        dollars = f"{ours.dollars:,.2f}" if rates.price_per_hour else ""
        co2, watts = (f"{ours.co2_pounds:,.2f}", f"{rates.watts:g} W") if rates.watts else ("", "")
        rows.append((f"{name}, scale {scale.name}", f"{devices} x this machine", f"{spent:.3g}", dollars, co2, watts))
    return Facts(
        table="cost",
        title="What pre-training costs (the first rows: a talk about the paper)",
        head=("model", "on", "hours", "dollars", "CO2, pounds", "draw of a device"),
        rows=tuple(rows),
        notes=(
            f"Ours: hours x price; hours x draw x {rates.overhead:g} x {rates.co2_pounds_per_kwh:g} pounds a "
            "kilowatt-hour (Strubell et al. 2019). Without a price and a draw those cells are empty.",
            "The draws of the published rows are what their CO2 comes to by the same formula.",
        ),
    )


FACTS: dict[str, Callable[[Scale], Facts]] = {"1": sizes, "14": finetuning, "cost": costs}
"""Name -> the table at a scale."""
