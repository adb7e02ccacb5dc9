"""Scales of the experiments (tiny, small, base, paper): model sizes, steps, and the tasks that are learnt.

A scale says what ALBERT-base and its larger sisters become, how long they learn and what they are asked afterwards.
"paper" is what was published. At the others the ratios between the sizes are smaller than in the paper, so that the
largest can still be trained; what a scale can decide, and what not, it says itself."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, Literal

from albert.finetuning.run_record import FinetuningSettings, SelectedBy
from albert.model.config import ALBERT_BASE, PRESETS, AlbertConfig
from albert.pretraining.recipe import PAPER_BASE, PretrainingRecipe, scaled_recipe
from albert.runtime.json_files import from_json, to_json
from albert.tasks.submission import find_task
from albert.tasks.task import Task, TaskRecipe

# --------------------------------------------------------------------------------------------------------------------
# The tasks that a scale learns after pre-training, and how: the paper's five, GLUE, or what small models can do.


@dataclass(frozen=True, kw_only=True)
class Downstream:
    """A task, how it is learnt, and what of its scores is told.

    Args:
        columns: what a table calls its scores: column -> score of the task.
        recipe: how it is learnt; None: the paper's Table 14.
        max_train_examples: learn from a sample of the training rows; None: from all.
        select: which model is scored; the paper takes the best on the development set.
    """

    task: str
    columns: Mapping[str, str]
    recipe: TaskRecipe | None = None
    max_train_examples: int | None = None
    select: SelectedBy = "last"

    @property
    def declared(self) -> Task:
        return find_task(self.task)

    @property
    def settled_recipe(self) -> TaskRecipe:
        return self.declared.recipe if self.recipe is None else self.recipe

    def settings(self, seed: int) -> FinetuningSettings:
        return FinetuningSettings(
            seed=seed,
            select=self.select,
            max_train_examples=self.max_train_examples,
            encode_pairs="together",  # as in the paper, at every scale
            null_threshold="dev" if self.select == "best" else "train",
        )


def _downstream(declared: Mapping[str, Any]) -> Downstream:
    """A task as `scales.toml` has it. With `epochs` it is for a small model: the published batch and dropout, a rate as
    its width wants it, fewer tokens."""
    task, recipe = declared["task"], None
    if "epochs" in declared:
        published = find_task(task).recipe
        length = min(declared["max_length"], published.max_length)
        lasting: dict[str, Any] = {"steps": None, "examples": None, "epochs": declared["epochs"], "max_length": length}
        recipe = replace(published, learning_rate=3e-4, batch_size=32, **lasting)
    return Downstream(
        task=task,
        columns=declared.get("columns") or {task: declared["score"]},
        recipe=recipe,
        max_train_examples=declared.get("max_train_examples"),
        select="last" if recipe else "best",
    )


ScaleName = Literal["tiny", "small", "base", "paper"]
Size = Literal["base", "large", "xlarge", "xxlarge"]
SIZE_NAMES: tuple[Size, ...] = ("base", "large", "xlarge", "xxlarge")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What the experiments are made of at one size; `scales.toml` says what each field means."""

    name: ScaleName
    decides: str
    sizes: Mapping[Size, AlbertConfig]
    recipe: PretrainingRecipe
    embedding_sizes: tuple[int, int, int, int]
    depths: Mapping[str, int]
    widths: Mapping[str, int]
    depth_of_widths: int
    depths_of_xxlarge: Mapping[str, int]
    flagship: Size
    long_steps: tuple[int, int]
    same_time: tuple[int, int]
    second_release_steps: Mapping[Size, int]
    rates: tuple[tuple[int, float], ...] = ()
    curve_steps: int | None = None
    flagship_reads_all: bool = False
    dropout: float = 0.0
    dropout_off_from: float = 0.0
    start_of_xxlarge: int | None = None
    seeds: tuple[int, ...] = (0, 1)
    task_seeds: tuple[int, ...] = ()
    tasks: tuple[Downstream, ...] = field(default=())
    held_out_sequences: int = 10_000

    @property
    def dropout_curve_steps(self) -> int:
        """The updates of Figure 2b, which the paper draws of its longest runs."""
        return self.long_steps[1 if self.is_the_papers else 0]

    @property
    def is_the_papers(self) -> bool:
        """Whether the recipes are the published ones."""
        return self.name == "paper"

    def learning_rate(self, width: int) -> float:
        return next(
            (rate for least, rate in reversed(self.rates) if width >= least), self.recipe.optimizer.learning_rate
        )


def _shape(like: AlbertConfig, layers: int, width: int, head: int) -> AlbertConfig:
    """Another depth and width; F = 4H as in the paper, heads of `head`."""
    return replace(
        like,
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=width // head,
        intermediate_size=4 * width,
    )


def _scale(declared: Mapping[str, Any]) -> Scale:
    plain = {name: _frozen(value) for name, value in declared.items() if name not in ("sizes", "recipe", "tasks")}
    sizes: dict[Size, AlbertConfig]
    if "sizes" in declared:
        V, E, head = declared["sizes"]["vocabulary"], declared["sizes"]["embeddings"], declared["sizes"]["head"]
        like = replace(ALBERT_BASE, vocab_size=V, embedding_size=E)
        sizes = {size: _shape(like, *declared["sizes"][size], head=head) for size in SIZE_NAMES}
        recipe = from_json(PretrainingRecipe, {**declared["recipe"], "model": to_json(sizes["base"])}, "scales.toml")
    else:
        rate = declared["dropout"]
        dropout = {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}
        sizes = {size: replace(PRESETS[f"albert-{size}"], **dropout) for size in SIZE_NAMES}
        changed = {name: value for name, value in declared["recipe"].items() if name != "batch_size"}
        like = scaled_recipe(PAPER_BASE, declared["recipe"].get("batch_size", PAPER_BASE.batch_size))
        recipe = replace(like, model=sizes["base"], **changed)
    tasks = tuple(_downstream(one) for group in declared["tasks"] for one in _DECLARED["tasks"][group])
    return Scale(sizes=sizes, recipe=recipe, tasks=tasks, **plain)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


_DECLARED = tomllib.loads((files("albert.experiments") / "scales.toml").read_text(encoding="utf-8"))
SCALES: dict[ScaleName, Scale] = {declared["name"]: _scale(declared) for declared in _DECLARED["scale"]}
TINY, SMALL, BASE, PAPER = SCALES.values()
