"""The functions of the package that do what commands do: `albert.prepare`, `pretrain`, `finetune`, `evaluate`, `push`
and `albert.tokenizer`. What each is asked stands in `options`; the work is in `text`, `pretraining` and `tasks`."""

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert.api.keywords import Call, Keyword, by_keyword, keywords_of, plain_value, read_options, takes
from albert.api.options import Evaluate, Finetune, Prepare, Pretrain, Push, TrainTokenizer
from albert.pretraining.recipe import PretrainingRecipe
from albert.runtime.environment import load_by_name
from albert.runtime.errors import UsageError, without_inner_frames
from albert.runtime.json_files import from_json

if TYPE_CHECKING:
    from albert.api.pretraining import PretrainResult
    from albert.api.results import EvaluateResult, FinetuneResult
    from albert.api.text import PrepareResult, TokenizerResult
    from albert.checkpoints.hub import PushedModel
    from albert.text.tokenizer import Tokenizer

RECIPE = Keyword(
    "recipe",
    Path | PretrainingRecipe,
    dataclasses.MISSING,
    "A name (quickstart, two-cores, one-gpu, small, base, large, xlarge, xxlarge, continue), a TOML or JSON file, as "
    "for --recipe, a dict, or a PretrainingRecipe; the keywords below change single values of it.",
)
OPTIONS = Keyword(
    "recipe",
    Path | Mapping[str, Any] | None,
    None,
    "A TOML or JSON file with keywords, as for --recipe of the command, or a dict of them; the others go before it.",
)
ROWS_FOLDER = "data"
"""In a run's directory: the rows that were given in memory, as JSON lines."""


@takes(Finetune, "albert.finetune", first=("task",), rows=("train", "dev"), more=(OPTIONS,))
def finetune(call: Call) -> "FinetuneResult":
    """Fine-tune a model on a declared task or on your own table, and evaluate it.

    The same as `albert finetune`, with the same result and files. The same call goes on with a run that was stopped.
    Data frames and lists of dicts are kept in the run's directory.
    """
    recipe = call.given.pop("recipe", None)
    if isinstance(recipe, Mapping):
        known = {one.name: one for one in keywords_of(Finetune)}
        call.given.update(by_keyword(recipe.items(), known, "albert.finetune: recipe") | call.given)
    elif recipe is not None:
        call.given.update(read_options(Finetune, Path(recipe)) | call.given)
    output = call.path("output")
    if output is not None and not call.given.get("statistics_only"):
        with call.rows_in(output / ROWS_FOLDER, keep=True):
            return load_by_name("albert.api.tasks").run_finetune(call.asked())
    with tempfile.TemporaryDirectory() as folder, call.rows_in(Path(folder)):
        return load_by_name("albert.api.tasks").run_finetune(call.asked())


@takes(Evaluate, "albert.evaluate", first=("task",), rows=("dev",), without=("json", "csv"))
def evaluate(call: Call) -> "EvaluateResult":
    """Score a model, or several together, with a task's official metrics, beside a constant answer.

    The same as `albert evaluate`.
    """
    with tempfile.TemporaryDirectory() as folder, call.rows_in(Path(folder)):
        return load_by_name("albert.api.tasks").run_evaluate(call.asked())


@takes(Prepare, "albert.prepare", first=("corpus",), rows=("corpus",))
def prepare(call: Call) -> "PrepareResult":
    """Turn text into token shards for pre-training, in parallel.

    The same as `albert prepare`, with the same files. The same call goes on with work that was stopped.
    """
    with call.rows_in(_beside(call.path("output"))):
        return load_by_name("albert.api.text").run_prepare(call.asked())


@takes(Pretrain, "albert.pretrain", first=("recipe",), more=(RECIPE,))
def pretrain(call: Call) -> "PretrainResult":
    """Pre-train an ALBERT encoder with n-gram masking and sentence order.

    The same as `albert pretrain`, with the same files. The same call goes on with a run that was stopped. Values
    of the recipe have the names that the command has: `steps=2000, hidden_size=192`; or stand in dicts, as in a file:
    `schedule={"total_steps": 2000}, model={"hidden_size": 192}`.
    """
    work, given = load_by_name("albert.api.pretraining"), call.given
    recipe = given.pop("recipe", None)
    if recipe is None:
        raise UsageError(
            "albert.pretrain: recipe", "is missing", "it is a name, quickstart or small say, a file or a dict"
        )
    if isinstance(recipe, Mapping):
        recipe = from_json(PretrainingRecipe, plain_value(recipe), "albert.pretrain: recipe")
    elif not isinstance(recipe, PretrainingRecipe):
        recipe = work.recipe_of(os.fspath(recipe), call.path("output"), given.get("init"), given.get("revision"))
    if given.get("scale_batch") is not None:
        recipe, _ = work.scaled(recipe, given["scale_batch"])
    return work.run_pretrain(call.asked(recipe=recipe))


@takes(Push, "albert.push", first=("model", "repository"))
def push(call: Call) -> "PushedModel":
    """Put a model on the Hugging Face Hub: weights, configuration, tokenizer and card, and no other file.

    The same as `albert push`: a token that may write stands in HF_TOKEN or comes from `hf auth login`.
    """
    given = dict(vars(call.asked()))
    return load_by_name("albert.checkpoints.hub").push_model(given.pop("model"), given.pop("repository"), **given)


class tokenizer:  # noqa: N801 (read as `albert.tokenizer.train`, as the command is)
    """Train a tokenizer, or open one."""

    @staticmethod
    @takes(TrainTokenizer, "albert.tokenizer.train", first=("corpus",), rows=("corpus",))
    def train(call: Call) -> "TokenizerResult":
        """Train a SentencePiece vocabulary (unigram, the settings of the released English models).

        The same as `albert tokenizer train`, with the same files.
        """
        with call.rows_in(_beside(call.path("output"))):
            return load_by_name("albert.api.text").run_train_tokenizer(call.asked())

    @staticmethod
    @without_inner_frames
    def load(path: str | os.PathLike[str]) -> "Tokenizer":
        """Open a tokenizer: a directory with one (a model has one), a spiece.model, vocab.txt or tokenizer.json.

        Raises:
            MissingInput, DamagedData: there is none, or it is damaged.
        """
        return load_by_name("albert.text.tokenizer_loading").load_tokenizer(Path(path))


def _beside(output: Path | None) -> Path:
    """Where rows lie while a directory is made of them: the same place for the same call, which may be repeated."""
    place = output or Path("albert")
    return place.parent / f"{place.name}.{ROWS_FOLDER}"
