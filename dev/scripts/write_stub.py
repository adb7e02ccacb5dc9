"""Write `src/albert/__init__.pyi`: the names of `import albert`, with the types of all keywords.

The keywords of the functions come from the options of the commands; a test compares the file with this output."""

import inspect
import re
from pathlib import Path

import albert

PLACE = Path(__file__).parents[2] / "src" / "albert" / "__init__.pyi"
FUNCTIONS = ("prepare", "pretrain", "finetune", "finetune_vectors", "sweep", "evaluate", "push")
HEAD = '''\
# Written by dev/scripts/write_stub.py from the options of the commands: change those, and run it again.
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal

{imports}
__version__: str
load = Predictor.open

class tokenizer:
    """{tokenizer}"""
{train}
    @staticmethod
    def load(path: str | os.PathLike[str]) -> Tokenizer: ...
'''
IMPORTS = {
    "albert.api.rows_in_memory": ("Rows",),
    "albert.api.models": ("open_model", "pack"),
    "albert.api.results": ("EvaluateResult", "FinetuneResult"),
    "albert.commands.prepare": ("PrepareResult",),
    "albert.commands.pretrain": ("PretrainResult",),
    "albert.commands.tokenizer": ("TokenizerResult",),
    "albert.checkpoints.hub": ("PushedModel",),
    "albert.inference.embedding": ("AlbertEmbedding",),
    "albert.inference.predictor": ("Predictor",),
    "albert.recipes.architecture": ("AlbertConfig",),
    "albert.recipes.optimizer": ("OptimizerRecipe",),
    "albert.recipes.pretraining": ("MaskingRecipe", "PretrainingRecipe", "ScheduleRecipe", "SequenceRecipe"),
    "albert.runtime.errors": ("AlbertError",),
    "albert.text.executors": ("SlurmSettings",),
    "albert.text.tokenizer": ("Tokenizer",),
}
PUBLIC = ("open_model", "pack", "AlbertEmbedding", "AlbertError")


def stub() -> str:
    """The text of the file."""
    imports = "".join(f"from {module} import {_names(names)}\n" for module, names in IMPORTS.items())
    train = _definition("train", albert.tokenizer.train)
    indented = "\n".join(f"    {line}" if line else "" for line in ["@staticmethod", *train.splitlines()])
    head = HEAD.format(imports=imports, tokenizer=albert.tokenizer.__doc__, train=indented)
    return head + "".join("\n" + _definition(name, getattr(albert, name)) for name in FUNCTIONS)


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"{name} as {name}" if name in PUBLIC else name for name in names)


def _definition(name: str, function: object) -> str:
    signature = inspect.signature(function)  # type: ignore[arg-type]
    lines, starred = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            lines.append("    *,")
            starred = True
        has_default = parameter.default is not inspect.Parameter.empty
        default = f" = {_default(parameter.default)}" if has_default else ""
        lines.append(f"    {parameter.name}: {parameter.annotation}{default},")
    purpose = inspect.cleandoc(function.__doc__ or "").split("\n\nArgs:")[0]
    text = "\n".join(f"    {line}" if line else "" for line in purpose.splitlines())
    result = signature.return_annotation
    return f"def {name}(\n" + "\n".join(lines) + f'\n) -> {result}:\n    """{text.strip()}\n    """\n'


def _default(value: object) -> str:
    text = repr(value)
    simple = value is None or isinstance(value, str | int | float | tuple)
    return re.sub(r"'([^']*)'", r'"\1"', text) if simple else "..."


if __name__ == "__main__":
    PLACE.write_text(stub(), encoding="utf-8")
