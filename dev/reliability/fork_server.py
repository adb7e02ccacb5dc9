"""Imports modules once and calls functions in forked children, so that a process starts within milliseconds.

`python -m dev.reliability.fork_server NAME...` imports modules, and calls functions given as `module:function`. It then
reads lines of JSON: the name of a function, its arguments, the environment, and a file for the child's output. It
writes events to standard output, one per line: `PROCESS started`, events of the child, and `PROCESS ended CODE`.

Nothing here imports the project."""

import json
import os
import pkgutil
import select
import sys

EVENTS = 99
"""The file descriptor for events; the children's output goes to a file."""


def serve(names: list[str]) -> None:
    """Call a function for each line of the input, until the input and all children have ended."""
    os.dup2(1, EVENTS, inheritable=False)
    for name in names:
        resolved = pkgutil.resolve_name(name)
        if ":" in name:
            resolved()
    waiting, children, more = b"", set(), True
    while more or children:
        if more and select.select([0], [], [], 0.002)[0]:
            read = os.read(0, 1 << 16)
            more = bool(read)
            *lines, waiting = (waiting + read).split(b"\n")
            children |= {start(**json.loads(line)) for line in lines}
        for child in list(children):
            ended, status = os.waitpid(child, os.WNOHANG if more else 0)
            if ended:
                children.remove(child)
                tell(f"ended {os.waitstatus_to_exitcode(status)}", child)


def start(call: str, arguments: list, environment: dict[str, str], printed: str) -> int:
    """Fork a child, in its own process group, that calls a function and exits with its result."""
    child = os.fork()
    if child == 0:
        os.setsid()
        with open(printed, "ab", buffering=0) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(environment)
        sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
        tell("started")
        code = 1
        try:
            code = int(pkgutil.resolve_name(call)(*arguments))
        finally:
            sys.stdout.flush()
            os._exit(code)
    return child


def tell(what: str, process: int | None = None) -> None:
    """Write an event. One short write, so that lines of several processes do not mix."""
    os.write(EVENTS, f"{process or os.getpid()} {what}\n".encode())


if __name__ == "__main__":
    serve(sys.argv[1:])
