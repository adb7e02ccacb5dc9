"""ALBERT, whole: from a pile of text to a pre-trained, fine-tuned and measured encoder.

`albert.tokenizer.train`, `prepare`, `pretrain`, `finetune`, `finetune_vectors`, `sweep`, `evaluate` and `push` do what
the commands of these names do, with the same keywords, defaults and files. `albert.load` opens a trained model to be
asked. For a training loop of one's own there are `albert.open_model` and `albert.pack`; `albert.AlbertEmbedding` is a
step of a scikit-learn pipeline. Each is loaded when it is first used.
"""

import importlib
import os
import sys
from typing import TYPE_CHECKING

from albert.runtime.threads import configure_threads

if TYPE_CHECKING:
    from albert.commands import tokenizer as tokenizer
    from albert.commands.evaluate import evaluate as evaluate
    from albert.commands.finetune import finetune as finetune
    from albert.commands.finetune_vectors import finetune_vectors as finetune_vectors
    from albert.commands.prepare import prepare as prepare
    from albert.commands.pretrain import pretrain as pretrain
    from albert.commands.push import push as push
    from albert.commands.sweep import sweep as sweep
    from albert.inference.embedding import AlbertEmbedding as AlbertEmbedding
    from albert.inference.models import load as load
    from albert.inference.models import open_model as open_model
    from albert.inference.models import pack as pack
    from albert.runtime.errors import AlbertError as AlbertError

if sys.platform == "win32":
    raise ImportError(
        "albert runs on Linux and macOS, not on Windows (it locks files with fcntl); WSL is a way to run it"
    )

configure_threads(os.environ)

__version__ = "0.1.0"
_COMMANDS = ("prepare", "pretrain", "finetune", "finetune_vectors", "sweep", "evaluate", "push")
_OTHERS = {
    "load": "albert.inference.models",
    "open_model": "albert.inference.models",
    "pack": "albert.inference.models",
    "AlbertEmbedding": "albert.inference.embedding",
    "AlbertError": "albert.runtime.errors",
}
__all__ = ["tokenizer", *_COMMANDS, *_OTHERS]  # pyright: ignore[reportUnsupportedDunderAll] (imported when first used)


def __getattr__(name: str) -> object:
    if name in _OTHERS:
        return getattr(importlib.import_module(_OTHERS[name]), name)
    if name != "tokenizer" and name not in _COMMANDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    module = importlib.import_module(f"albert.commands.{name}")
    describe = importlib.import_module("albert.commands.function").describe
    if name == "tokenizer":
        describe(module.train)
        return module
    function = getattr(module, name)
    describe(function)
    globals()[name] = function
    return function


def __dir__() -> list[str]:
    return [*sorted(__all__), "__version__"]
