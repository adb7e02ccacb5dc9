"""`albert push`: a model on the Hub."""

import shlex

from albert.api.options import Push
from albert.checkpoints.hub import push_model
from albert.cli.render import bytes_of, key_value_table, next_line, open_console, print_lines


def run_push(args: Push) -> None:
    """Run `albert push`."""
    pushed = push_model(args.model, args.repository, private=args.private, replace=args.replace, revision=args.revision)
    rows: dict[str, object] = {name: bytes_of(size) for name, size in pushed.files.items()}
    lines = [f"{pushed.address} is ready", next_line(f"info {shlex.quote(args.repository)}")]
    if "README.md" not in pushed.files:
        lines.insert(0, "note: the model has no README.md, so it has no card on the Hub")
    print_lines(open_console(), key_value_table("albert push", rows), *lines)
