"""Scales of the experiments (tiny, small, base, paper): model sizes, steps, and the tasks that are learnt.

A scale says what ALBERT-base and its larger sisters become, how long they learn and what they are asked afterwards.
"paper" is what was published. At the others the ratios between the sizes are smaller than in the paper, so that the
largest can still be trained; what a scale can decide, and what not, it says itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from albert.finetuning.run_record import FinetuningSettings, SelectedBy
from albert.model.config import ALBERT_BASE, ALBERT_LARGE, ALBERT_XLARGE, ALBERT_XXLARGE, AlbertConfig
from albert.optim.recipe import OptimizerRecipe, ScheduleRecipe
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.recipe import PAPER_BASE, PretrainingRecipe, scaled_recipe
from albert.pretraining.sampling import SequenceRecipe
from albert.tasks.submission import find_task
from albert.tasks.task import Task, TaskRecipe

# --------------------------------------------------------------------------------------------------------------------
# The tasks that a scale learns after pre-training, and how: the paper's five, GLUE, or what small models can do.


@dataclass(frozen=True, kw_only=True)
class Downstream:
    """A task, how it is learnt, and what of its scores is told.

    Args:
        task: its declared name.
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
        """The task."""
        return find_task(self.task)

    @property
    def settled_recipe(self) -> TaskRecipe:
        """How it is learnt."""
        return self.declared.recipe if self.recipe is None else self.recipe

    def settings(self, seed: int) -> FinetuningSettings:
        """How a run of that seed computes."""
        return FinetuningSettings(
            seed=seed,
            select=self.select,
            max_train_examples=self.max_train_examples,
            encode_pairs="together",  # as in the paper, at every scale
            null_threshold="dev" if self.select == "best" else "train",
        )


def _short(task: str, score: str, epochs: float, max_length: int, max_train_examples: int | None = None) -> Downstream:
    """A task for a small model: the published batch and dropout, a rate as its width wants it, fewer tokens."""
    published = find_task(task).recipe
    recipe = replace(
        published,
        learning_rate=3e-4,
        batch_size=32,
        steps=None,
        examples=None,
        epochs=epochs,
        max_length=min(max_length, published.max_length),
    )
    return Downstream(task=task, columns={task: score}, recipe=recipe, max_train_examples=max_train_examples)


def _best(task: str, score: str) -> Downstream:
    return Downstream(task=task, columns={task: score}, select="best")


FIVE_TASKS = (
    Downstream(
        task="squad-1.1",
        columns={"squad-1.1 f1": "span_f1", "squad-1.1 exact": "span_exact_match"},
        select="best",
    ),
    Downstream(
        task="squad-2.0",
        columns={"squad-2.0 f1": "best_f1", "squad-2.0 exact": "best_exact"},
        select="best",
    ),
    _best("mnli", "accuracy"),
    _best("sst-2", "accuracy"),
    _best("race", "accuracy"),
)
"""Tables 2 to 8 and 11 to 13, by Table 14."""

GLUE_TASKS = (
    _best("qnli", "accuracy"),
    _best("qqp", "accuracy"),
    _best("rte", "accuracy"),
    _best("mrpc", "accuracy"),
    _best("cola", "matthews_correlation"),
    _best("sts-b", "pearson"),
)
"""The rest of Table 9."""

TINY_TASKS = (
    _short("sst-2", "accuracy", epochs=1, max_length=64),
    _short("qnli", "accuracy", epochs=2, max_length=64, max_train_examples=20_000),
)
"""A sentence, and a pair of them: minutes of one core each."""

SMALL_TASKS = (
    _short("sst-2", "accuracy", epochs=2, max_length=128),
    _short("qnli", "accuracy", epochs=2, max_length=128),
    _short("mnli", "accuracy", epochs=2, max_length=128),
)
"""Minutes of a GPU each."""


ScaleName = Literal["tiny", "small", "base", "paper"]
Size = Literal["base", "large", "xlarge", "xxlarge"]
_SIZE_NAMES: tuple[Size, ...] = ("base", "large", "xlarge", "xxlarge")


@dataclass(frozen=True, kw_only=True)
class Scale:
    """What the experiments are made of at one size.

    Args:
        name: as `--scale` takes it.
        decides: what it can tell and what not, for people.
        sizes: what the four ALBERTs become; BERT is the same without sharing, with E = H.
        recipe: how ALBERT-base is pre-trained; all other runs are variants of it.
        rates: of models at least as wide as the first figure the peak rate is the second, widths in ascending order.
            The paper has one rate for all sizes, with LAMB.
        embedding_sizes: the four of Table 3; the second is the default, the last is H.
        depths: the rows of Table 11 that are run, by what the paper calls them.
        widths: the rows of Table 12 that are run, likewise, of as many layers as `depth_of_widths`.
        depths_of_xxlarge: of Table 13, likewise.
        flagship: the size that Tables 8 to 10 train longest; xxlarge in the paper.
        long_steps: the updates of its models of 1 and of 1.5 million steps.
        same_time: the updates that BERT-large and ALBERT-xxlarge take in about the same time on the machine that the
            scale is meant for (Table 6); the outcome tells how long each took.
        second_release_steps: the updates of each size of the second release; in the paper's 10 M for base, 3 M else.
        curve_steps: the updates of Figure 2a; None: as many as of all others.
        flagship_reads_all: whether the longest-trained models read all corpora, as the paper's do (§4.9).
        dropout: of all arms that do not ask about it.
        dropout_off_from: the share of the steps at which Table 8 takes dropout away; 0: it never had any.
        start_of_xxlarge: layers of the model that xxlarge begins as; None: from random weights.
        seeds: of the pre-training of every arm.
        task_seeds: of the fine-tuning of each of them, of which the median counts (the paper has five, for GLUE); none:
            one, with the seed of its pre-training.
        tasks: what is learnt afterwards.
        held_out_sequences: most held-out sequences that a model is asked for its masked tokens and sentences.
    """

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
        """The peak rate of a model of this width."""
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


def _with_dropout(config: AlbertConfig) -> AlbertConfig:
    return replace(config, hidden_dropout_prob=0.1, attention_probs_dropout_prob=0.1)


_TINY_BASE = _shape(replace(ALBERT_BASE, vocab_size=8000, embedding_size=64), 4, 128, 32)
TINY = Scale(
    name="tiny",
    decides="hours of two cores: what changes a score by points shows, what changes it by tenths does not; nothing is "
    "said about models of a hundred million parameters or about reading comprehension",
    sizes={
        "base": _TINY_BASE,
        "large": _shape(_TINY_BASE, 8, 160, 32),
        "xlarge": _shape(_TINY_BASE, 8, 256, 32),
        "xxlarge": _shape(_TINY_BASE, 4, 384, 32),
    },
    recipe=PretrainingRecipe(
        model=_TINY_BASE,
        sinusoidal_positions=0.08,
        sequences=SequenceRecipe(max_length=64, keep_pairs=True),
        masking=MaskingRecipe(max_ngram=1),
        optimizer=OptimizerRecipe(kind="adamw", learning_rate=1e-3, beta2=0.98),
        schedule=ScheduleRecipe(total_steps=3_000, warmup_steps=200),
        batch_size=32,
        evaluate_every=500,
        checkpoint_minutes=5.0,
    ),
    embedding_sizes=(32, 64, 96, 128),
    depths={"1": 1, "6": 2, "12": 4, "24": 8, "48": 16},
    widths={"1024": 160, "2048": 256, "4096": 384, "6144": 512},
    depth_of_widths=2,
    depths_of_xxlarge={"12": 4, "24": 8},
    flagship="base",
    long_steps=(6_000, 9_000),
    same_time=(4_500, 3_000),
    second_release_steps=dict.fromkeys(_SIZE_NAMES, 9_000),
    rates=((160, 5e-4), (384, 3e-4)),
    tasks=TINY_TASKS,
)
"""Two cores. AdamW, single words and sinusoids in place of the paper's: what leaves the bag of words (LOG.md)."""

_SMALL_BASE = _shape(replace(ALBERT_BASE, vocab_size=8000, embedding_size=128), 6, 256, 64)
SMALL = Scale(
    name="small",
    decides="hours of one GPU: sentence prediction, sharing, depth and E; differences of a point between models of a "
    "few million parameters",
    sizes={
        "base": _SMALL_BASE,
        "large": _shape(_SMALL_BASE, 12, 384, 64),
        "xlarge": _shape(_SMALL_BASE, 12, 640, 64),
        "xxlarge": _shape(_SMALL_BASE, 6, 1024, 64),
    },
    recipe=PretrainingRecipe(
        model=_SMALL_BASE,
        sinusoidal_positions=0.08,
        sequences=SequenceRecipe(max_length=128, keep_pairs=True),
        optimizer=OptimizerRecipe(kind="adamw", learning_rate=1e-3, beta2=0.98),
        schedule=ScheduleRecipe(total_steps=30_000, warmup_steps=1_000),
        batch_size=128,
        micro_batch_size=128,
        evaluate_every=1_500,
        checkpoint_minutes=5.0,
    ),
    embedding_sizes=(64, 128, 192, 256),
    depths={"1": 1, "3": 2, "6": 3, "12": 6, "24": 12, "48": 24},
    widths={"1024": 384, "2048": 640, "4096": 1024, "6144": 1536},
    depth_of_widths=2,
    depths_of_xxlarge={"12": 6, "24": 12},
    flagship="xxlarge",
    long_steps=(60_000, 90_000),
    same_time=(60_000, 30_000),
    second_release_steps=dict.fromkeys(_SIZE_NAMES, 90_000),
    rates=((384, 5e-4), (640, 3e-4), (1024, 2e-4)),
    tasks=SMALL_TASKS,
)
"""A GPU for hours, or two cores for days. The rates of wider models go by those of "tiny"; they were not tried here."""

_PAPER_SIZES: dict[Size, AlbertConfig] = {
    "base": ALBERT_BASE,
    "large": ALBERT_LARGE,
    "xlarge": ALBERT_XLARGE,
    "xxlarge": ALBERT_XXLARGE,
}
_PAPER_DEPTHS = {str(layers): layers for layers in (1, 3, 6, 12, 24, 48)}
_PAPER_WIDTHS = {str(width): width for width in (1024, 2048, 4096, 6144)}
PAPER = Scale(
    name="paper",
    decides="the paper's own recipes, for a cluster",
    sizes={size: _with_dropout(config) for size, config in _PAPER_SIZES.items()},
    recipe=replace(PAPER_BASE, model=_with_dropout(ALBERT_BASE)),
    embedding_sizes=(64, 128, 256, 768),
    depths=_PAPER_DEPTHS,
    widths=_PAPER_WIDTHS,
    depth_of_widths=3,
    depths_of_xxlarge={"12": 12, "24": 24},
    flagship="xxlarge",
    long_steps=(1_000_000, 1_500_000),
    same_time=(400_000, 125_000),
    second_release_steps={"base": 10_000_000, **dict.fromkeys(_SIZE_NAMES[1:], 3_000_000)},
    curve_steps=550_000,
    flagship_reads_all=True,
    dropout=0.1,
    dropout_off_from=0.9,
    start_of_xxlarge=6,
    seeds=(0,),
    task_seeds=(0, 1, 2, 3, 4),
    tasks=(*FIVE_TASKS, *GLUE_TASKS),
)
"""What was published: LAMB, batch 4096, 125,000 updates, dropout 0.1 until it is taken away (§4.1, §4.8, A.1).

Masked are 15 % of the tokens, not the reference's 20 of 512; sentence order is that of the paper, not of its code."""

BASE = replace(
    PAPER,
    name="base",
    decides="the paper's shapes on one GPU, at a sixteenth of its batch: days for a table",
    sizes=_PAPER_SIZES,
    recipe=replace(scaled_recipe(PAPER_BASE, 256), micro_batch_size=64, workers=4),
    dropout=0.0,
    dropout_off_from=0.0,
    flagship="base",
    long_steps=(250_000, 375_000),
    second_release_steps=dict.fromkeys(_SIZE_NAMES, 375_000),
    curve_steps=None,
    flagship_reads_all=False,
)
"""The paper's shapes and updates, 256 sequences each, with the rate that goes with them (You et al., 2019)."""

SCALES: dict[ScaleName, Scale] = {scale.name: scale for scale in (TINY, SMALL, BASE, PAPER)}
