"""The command that a user goes on with."""

import shlex
from collections.abc import Mapping
from pathlib import Path

from albert.checkpoints.hub import EXAMPLES_NAME
from albert.runtime.json_files import read_json_object
from albert.tasks.declared import DeclaredTask
from albert.tasks.inputs import Pair, QuestionInContext, Words
from albert.tasks.multiple_choice import MultipleChoice

MOST_CHARACTERS = 80
"""Of a text in the command."""


def predict_command(model: Path, task: DeclaredTask) -> str:
    """`albert predict` on the first row that was saved beside a model, or on words that stand for one."""
    file = model / EXAMPLES_NAME
    rows = read_json_object(file)["examples"] if file.is_file() else []
    return f"predict {shlex.quote(str(model))} {_options(task, rows[0] if rows else {})}"


def _options(task: DeclaredTask, row: Mapping[str, str]) -> str:
    match task.inputs:
        case QuestionInContext():
            question = f"--question {_quoted(row, 'question')} " if row.get("question", "QUESTION") else ""
            options = row.get("options", "OPTION 1\nOPTION 2").split("\n")
            choices = f" --choose {shlex.join(options)}" if isinstance(task.target, MultipleChoice) else ""
            return f"{question}--context {_quoted(row, 'context')}{choices}"
        case Pair():
            return f"--classify {_quoted(row, 'text')} --pair {_quoted(row, 'pair')}"
        case Words():
            return f"--tag {_quoted(row, 'text')}"
        case _:
            return f"--classify {_quoted(row, 'text')}"


def _quoted(row: Mapping[str, str], field: str) -> str:
    """The beginning of a text in quotation marks for a shell."""
    text = " ".join(row.get(field, field.upper()).split())
    if len(text) > MOST_CHARACTERS:
        text = text[:MOST_CHARACTERS].rpartition(" ")[0] or text[:MOST_CHARACTERS]
    if "'" not in text:
        return f"'{text}'"
    return shlex.quote(text) if set(text) & set('"$`!\\') else f'"{text}"'
