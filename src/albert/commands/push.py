"""`albert push`: a model on the Hub. The options are those of `albert.push`."""

import shlex

from albert.api.options import Push
from albert.cli.main import imports
from albert.cli.options import Subcommand
from albert.cli.render import bytes_of, key_value_table, next_line, open_console, print_lines


def push(options: Push) -> None:
    """Put the model on the Hub, and print the files that it has there."""
    with imports():
        from albert.checkpoints.hub import push_model

    pushed = push_model(
        options.model,
        options.repository,
        private=options.private,
        replace=options.replace,
        revision=options.revision,
    )
    rows: dict[str, object] = {name: bytes_of(size) for name, size in pushed.files.items()}
    lines = [f"{pushed.address} is ready", next_line(f"info {shlex.quote(options.repository)}")]
    if "README.md" not in pushed.files:
        lines.insert(0, "note: the model has no README.md, so it has no card on the Hub")
    print_lines(open_console(), key_value_table("albert push", rows), *lines)


push_main = Subcommand(Push, "albert push", push)
