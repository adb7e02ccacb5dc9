"""ALBERT, whole: from a pile of text to a pre-trained, fine-tuned and measured encoder.

`albert.tokenizer.train`, `prepare`, `pretrain`, `finetune`, `finetune_vectors`, `sweep`, `evaluate` and `push` do what
the commands of these names do, with the same keywords, defaults and files. `albert.load` opens a trained model to be
asked. For a training loop of one's own there are `albert.open_model` and `albert.pack`; `albert.AlbertEmbedding` is a
step of a scikit-learn pipeline. Each is loaded when it is first used.
"""

import importlib
import os
import sys

from albert.runtime.threads import configure_threads

if sys.platform == "win32":
    raise ImportError(
        "albert runs on Linux and macOS, not on Windows (it locks files with fcntl); WSL is a way to run it"
    )

configure_threads(os.environ)

__version__ = "0.1.0"
_LATE = {
    "tokenizer": "albert.commands.functions",
    "prepare": "albert.commands.functions",
    "pretrain": "albert.commands.functions",
    "finetune": "albert.commands.functions",
    "finetune_vectors": "albert.commands.functions",
    "sweep": "albert.commands.functions",
    "evaluate": "albert.commands.functions",
    "push": "albert.commands.functions",
    "load": "albert.api.models",
    "open_model": "albert.api.models",
    "pack": "albert.api.models",
    "AlbertEmbedding": "albert.inference.embedding",
    "AlbertError": "albert.runtime.errors",
}
__all__ = [*_LATE]  # pyright: ignore[reportUnsupportedDunderAll] (types stand in __init__.pyi)


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    module = importlib.import_module(_LATE[name])
    if _LATE[name] == "albert.commands.functions":
        globals()[name] = module.function_of(name)
        return globals()[name]
    return getattr(module, name)


def __dir__() -> list[str]:
    return [*sorted(_LATE), "__version__"]
