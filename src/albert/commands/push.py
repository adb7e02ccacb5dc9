"""`albert push` and `albert.push`: a model on the Hub."""

import os
import shlex
from typing import TYPE_CHECKING

from albert.cli.main import imports
from albert.cli.render import key_value_table, next_line, open_console, print_lines
from albert.cli.signature import PathLike
from albert.commands.function import command, on_command_line
from albert.runtime.words import bytes_of

if TYPE_CHECKING:
    from albert.checkpoints.hub import PushedModel


@command("albert push")
def push(
    model: PathLike,
    repository: str,
    *,
    private: bool = False,
    replace: bool = False,
    dry_run: bool = False,
) -> "PushedModel":
    """Put a model on the Hugging Face Hub: weights, configuration, tokenizer, card and example rows, and no other file.

    It needs a token with write access, in HF_TOKEN or from `hf auth login`. An existing repository requires --replace.
    albert opens the result by its name; the card says whether transformers or sentence-transformers gives the same
    scores.

    Example: albert push runs/stars/model someone/stars --dry-run

    Args:
        model: A model directory, a run, or a Hub id.
        repository: USER/NAME; created if it does not exist.
        private: Create a private repository; with --replace make an existing one private.
        replace: Write into an existing repository.
        dry_run: List what would be uploaded, with the example rows, and upload nothing.
    """
    with imports():
        from albert.checkpoints.hub import push_model

    return push_model(os.fspath(model), repository, private=private, replace=replace, dry_run=dry_run)


def show_pushed(pushed: "PushedModel") -> None:
    """Print the files of the repository, and the rows of data among them."""
    rows: dict[str, object] = {name: bytes_of(size) for name, size in pushed.files.items()}
    lines = []
    if "README.md" not in pushed.files:
        lines.append("note: the model has no README.md, so it has no card on the Hub")
    if pushed.examples:
        lines.append(f"rows of your data in examples.json: {len(pushed.examples)}")
        lines += [f"  {', '.join(f'{name}: {value}' for name, value in row.items())}" for row in pushed.examples]
    if pushed.uploaded:
        lines += [f"{pushed.address} is ready", next_line(f"info {shlex.quote(pushed.repository)}")]
    else:
        lines.append(f"nothing was uploaded (--dry-run); these files would go to {pushed.address}")
    print_lines(open_console(), key_value_table("albert push", rows), *lines)


push_main = on_command_line(push, show_pushed)
