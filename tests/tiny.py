"""Small models and tasks that many tests share."""

from dataclasses import replace
from typing import Any

from albert.recipes.architecture import EncoderConfig
from albert.tasks.declared import DeclaredTask
from albert.tasks.submission import DECLARED


def tiny_config(vocab_size: int, **changes: Any) -> EncoderConfig:
    """Two layers of 16, embeddings of 8, no dropout; `changes` are other values of any field."""
    sizes = {"embedding_size": 8, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return EncoderConfig(vocab_size=vocab_size, **{**sizes, "intermediate_size": 24, **changes})


def short_task(name: str = "sst-2", **recipe: Any) -> DeclaredTask:
    """A task of the paper that is fine-tuned for some steps; `recipe` are other values of any field."""
    task = DECLARED[name]
    values = {"examples": None, "batch_size": 4, "learning_rate": 1e-3, "max_length": 32, **recipe}
    return replace(task, recipe=replace(task.recipe, **values))
