"""The functions of `import albert` that are commands: made from the same functions as the command line.

Each is made when it is first used, so that `import albert` loads none of them."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albert.api.keyword_functions import keyword_function
from albert.runtime.errors import without_inner_frames

if TYPE_CHECKING:
    from albert.text.tokenizer import Tokenizer


def function_of(name: str) -> Any:
    """The function of the package with this name; `tokenizer` has two."""
    match name:
        case "tokenizer":
            return make_tokenizer()
        case "finetune":
            from albert.commands.finetune import finetune, read_task_file

            return keyword_function(finetune, "albert.finetune", rows="in output", before=read_task_file)
        case "finetune_vectors":
            from albert.commands.finetune_vectors import finetune_vectors

            return keyword_function(finetune_vectors, "albert.finetune_vectors", rows="in output")
        case "sweep":
            from albert.commands.finetune import read_task_file
            from albert.commands.sweep import sweep

            return keyword_function(sweep, "albert.sweep", rows="in output", before=read_task_file)
        case "evaluate":
            from albert.commands.evaluate import evaluate

            return keyword_function(evaluate, "albert.evaluate")
        case "prepare":
            from albert.commands.prepare import prepare

            return keyword_function(prepare, "albert.prepare", rows="beside output")
        case "pretrain":
            from albert.commands.pretrain import RECIPE_KEYWORD, SCALE_BATCH, pretrain, read_recipe_keyword

            more = (RECIPE_KEYWORD, SCALE_BATCH)
            return keyword_function(pretrain, "albert.pretrain", more=more, before=read_recipe_keyword)
        case "push":
            from albert.commands.push import push

            return keyword_function(push, "albert.push")
    raise AttributeError(name)


def make_tokenizer() -> type:
    """The class `albert.tokenizer`, named as the command is."""
    from albert.commands.tokenizer import train

    class tokenizer:  # noqa: N801
        """Train a tokenizer, or open one."""

        train: Callable[..., Any]

        @staticmethod
        @without_inner_frames
        def load(path: str | os.PathLike[str]) -> "Tokenizer":
            """Open a tokenizer: a directory with one (a model has one), a spiece.model, vocab.txt or tokenizer.json.

            Raises:
                MissingInput, DamagedData: there is none, or it is damaged.
            """
            from albert.text.tokenizer_loading import load_tokenizer

            return load_tokenizer(Path(path))

    tokenizer.train = staticmethod(keyword_function(train, "albert.tokenizer.train", rows="beside output"))
    return tokenizer
