"""The functions `albert.prepare`, `pretrain`, `finetune`, `evaluate`, `push` and `albert.tokenizer`, and the text and
HTML of their results. Their options are in `options`. Torch is imported when a function is called."""

import contextlib
import html
import io
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert.api.checks import check_evaluate, check_finetune, check_model, check_options
from albert.api.keywords import (
    Call,
    Option,
    Values,
    by_option,
    option_name,
    options_as_keywords,
    options_of,
    read_options,
    with_options,
)
from albert.api.options import Evaluate, Finetune, Prepare, Pretrain, Push, TrainTokenizer
from albert.pretraining.recipe import (
    PretrainingRecipe,
    find_recipe,
    saved_recipe,
    scaled_recipe,
    with_steps,
)
from albert.runtime.environment import lazy_import, world
from albert.runtime.errors import MissingInput, Unavailable, UsageError, without_inner_frames
from albert.runtime.json_files import read_journal
from albert.training.record import recorded_start
from albert.training.run_folder import ROWS_FOLDER, RunFolder

if TYPE_CHECKING:
    from albert.api.results import EvaluateResult, FinetuneResult
    from albert.api.text import PrepareResult, TokenizerResult
    from albert.checkpoints.hub import PushedModel
    from albert.pretraining.run import PretrainingResult
    from albert.text.tokenizer import Tokenizer

# --------------------------------------------------------------------------------------------------------------------
# Results as text and, in a notebook, as tables with curves.

Points = Sequence[tuple[float, float]]


class Displayable:
    """Base of results: `repr` gives aligned text, a notebook shows a table with curves."""

    def title(self) -> str:
        """What the result is, on one line."""
        raise AssertionError("every result has a title")

    def rows(self) -> list[tuple[str, ...]]:
        """A table, headings first; empty for no table."""
        return []

    def remarks(self) -> list[str]:
        """Lines below the table."""
        return []

    def tables(self) -> list[tuple[str, list[tuple[str, ...]]]]:
        """Further tables of a notebook, with their titles."""
        return []

    def curves(self) -> dict[str, Points]:
        """Name -> (step, value) pairs."""
        return {}

    def __repr__(self) -> str:
        rows = [[cell.replace("\n", " ") for cell in row] for row in self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for first, *rest in rows:
            cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
            lines.append("  ".join(["", first.ljust(widths[0]), *cells]).rstrip())
        return "\n".join([self.title(), *lines, *self.remarks()])

    def _repr_html_(self) -> str:
        parts = []
        for title, rows in [(self.title(), self.rows()), *self.tables()]:
            lines = [_html_row(row, "td" if number else "th") for number, row in enumerate(rows)]
            parts.append(f"<p><b>{html.escape(title)}</b></p>")
            parts += [f"<table>{''.join(lines)}</table>"] if lines[1:] else []
        parts += [f"<p>{html.escape(line)}</p>" for line in self.remarks()]
        try:
            parts += [svg_curve(name, points) for name, points in self.curves().items()]
        except Unavailable as error:
            parts.append(f"<p>No curves are drawn: {html.escape(str(error))}</p>")
        return "<div>" + "\n".join(parts) + "</div>"


def _html_row(cells: Sequence[str], tag: str) -> str:
    aligned = [f'style="text-align:{"right" if column else "left"}">{html.escape(c)}' for column, c in enumerate(cells)]
    return f"<tr>{''.join(f'<{tag} {cell}</{tag}>' for cell in aligned)}</tr>"


def svg_curve(name: str, points: Points) -> str:
    """A curve as an SVG picture."""
    figure = lazy_import("matplotlib.figure", "plots").Figure(figsize=(3.2, 1.8))
    axes = figure.subplots()
    axes.plot([x for x, _ in points], [y for _, y in points])
    axes.set(title=name, xlabel="step")
    picture = io.StringIO()
    figure.savefig(picture, format="svg", bbox_inches="tight")
    return picture.getvalue().partition("?>")[2]


def journal_curves(run: Path, evaluations: Sequence[str] = ()) -> dict[str, Points]:
    """The training loss of a run and the named evaluation figures; curves of fewer than two points are left out."""
    journal = RunFolder(run).journal_path
    records = read_journal(journal) if journal.is_file() else []
    curves = {}
    for event, name in (("train", "loss"), *(("evaluation", name) for name in evaluations)):
        values = [(r["step"], r.get(name)) for r in records if r["event"] == event]
        points = [(float(x), float(y)) for x, y in values if isinstance(y, int | float) and math.isfinite(y)]
        if len(points) > 1:
            curves[f"{'training ' if event == 'train' else ''}{name.replace('_', ' ')}"] = points
    return curves


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


CURVES_NAME = "curves.png"


def draw_curves(run: Path) -> None:
    """Draw the curves of a finished run into its folder, if they changed and matplotlib is installed."""
    picture = run / CURVES_NAME
    journal = RunFolder(run).journal_path
    is_current = picture.exists() and picture.stat().st_mtime >= journal.stat().st_mtime
    if is_current:
        return
    with contextlib.suppress(Unavailable, MissingInput):  # no matplotlib, or no update that was taken
        pictures = lazy_import("albert.paper.pictures", "plots")
        runs = lazy_import("albert.paper.curves").read_runs([run])
        pictures.draw_runs(runs, picture)


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
OPTIONS = Option(
    path=("recipe",),
    names=("--recipe",),
    hint=Path | Mapping[str, Any] | None,
    default=None,
    text="A TOML or JSON file with keywords, as for --recipe of the command, or a dict of them; others override it.",
)


@with_options(Finetune, "albert.finetune", positional=("task",), rows=("train", "dev", "test"), extra=(OPTIONS,))
def finetune(call: Call) -> "FinetuneResult":
    """Fine-tune a model on a declared task or on your own table, and evaluate it.

    The same as `albert finetune`, with the same result and files. The same call resumes a run that was stopped.
    Data frames and lists of dicts are saved in the run's directory.
    """
    recipe = call.pop("recipe")
    if isinstance(recipe, Mapping):
        call.add(by_option(recipe.items(), options_of(Finetune), "albert.finetune: recipe"))
    elif recipe is not None:
        call.add(read_options(Finetune, recipe))
    run = None if call.get("statistics_only") else call.get("output")
    with (
        tempfile.TemporaryDirectory() as folder,
        call.rows_in(Path(folder) if run is None else run / ROWS_FOLDER, keep=run is not None),
    ):
        options = call.options()
        check_finetune(options)
        return lazy_import("albert.api.tasks").run_finetune(options, on_rows=_say_what_was_read)


def _say_what_was_read(report: Any) -> None:
    """What the command line shows above the rows: what was recognised and inferred, and warnings."""
    lines = []
    if report.read is not None:
        lines += [f"{split}: {note}" for split, rows in report.read.raw.items() for note in rows.notes]
        for item in report.read.inferred:
            lines.append(f"{item.what}: {item.value}, because: {item.why}; to change it: {item.instead}")
    lines += [line.removeprefix("warning: ") for line in report.warnings]
    keywords = {option.path[-1] for option in options_of(Finetune)}
    for line in lines:
        print(f"albert: note: {options_as_keywords(line, keywords)}", file=sys.stderr)


@with_options(Evaluate, "albert.evaluate", positional=("task",), rows=("dev",), omit=("json", "csv"))
def evaluate(call: Call) -> "EvaluateResult":
    """Score a model, or several together, with a task's official metrics, beside the majority baseline.

    The same as `albert evaluate`.
    """
    with tempfile.TemporaryDirectory() as folder, call.rows_in(Path(folder)):
        options = call.options()
        check_evaluate(options)
        *_, last = lazy_import("albert.api.tasks").evaluations(options)
        return last


@with_options(Prepare, "albert.prepare", positional=("corpus",), rows=("corpus",))
def prepare(call: Call) -> "PrepareResult":
    """Turn text into token shards for pre-training, in parallel.

    The same as `albert prepare`, with the same files. The same call resumes work that was stopped.
    """
    with call.rows_in(_rows_folder(call.get("output"))):
        return lazy_import("albert.api.text").run_prepare(call.options())


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


@with_options(Push, "albert.push", positional=("model", "repository"))
def push(call: Call) -> "PushedModel":
    """Put a model on the Hugging Face Hub: weights, configuration, tokenizer and card, and no other file.

    The same as `albert push`: it needs a token with write access, in HF_TOKEN or from `hf auth login`.
    """
    options = dict(vars(call.options()))
    return lazy_import("albert.checkpoints.hub").push_model(options.pop("model"), options.pop("repository"), **options)


class tokenizer:  # noqa: N801 (named as the command is: `albert.tokenizer.train`)
    """Train a tokenizer, or open one."""

    @staticmethod
    @with_options(TrainTokenizer, "albert.tokenizer.train", positional=("corpus",), rows=("corpus",))
    def train(call: Call) -> "TokenizerResult":
        """Train a SentencePiece vocabulary (unigram, the settings of the released English models).

        The same as `albert tokenizer train`, with the same files.
        """
        with call.rows_in(_rows_folder(call.get("output"))):
            return lazy_import("albert.api.text").run_train_tokenizer(call.options())

    @staticmethod
    @without_inner_frames
    def load(path: str | os.PathLike[str]) -> "Tokenizer":
        """Open a tokenizer: a directory with one (a model has one), a spiece.model, vocab.txt or tokenizer.json.

        Raises:
            MissingInput, DamagedData: there is none, or it is damaged.
        """
        return lazy_import("albert.text.tokenizer_loading").load_tokenizer(Path(path))


def _rows_folder(output: Path | None) -> Path:
    """A temporary folder beside the output. A repeated call finds the same path, so that it can resume."""
    path = output or Path("albert")
    return path.parent / f"{path.name}.{ROWS_FOLDER}"
