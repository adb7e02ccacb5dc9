"""Imports modules once and calls functions in forked children: a start costs milliseconds, a death is no less one.

`python -m reliability.fork_server NAME...` imports modules, and calls functions named as `module:function`. It then
reads lines of JSON: the name of a function, its arguments, the environment, and a file for what the child prints. It
tells on standard output, a line each: `PROCESS started`, whatever the child tells, and `PROCESS ended CODE`.

Nothing here imports the project, whose copies (see mutants.py) are to be imported anew by each child.
"""

import json
import os
import pkgutil
import select
import sys

TOLD = 99
"""The file descriptor on which children tell what they do; what they print goes elsewhere."""


def serve(names: list[str]) -> None:
    """Call a function for each line, until there are no more lines and no more children."""
    os.dup2(1, TOLD, inheritable=False)
    for name in names:
        found = pkgutil.resolve_name(name)
        if ":" in name:
            found()
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
    """Fork a child, in a process group of its own, that calls a function and ends with its exit code."""
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
    """One short line, written at once: lines of several processes do not mix."""
    os.write(TOLD, f"{process or os.getpid()} {what}\n".encode())


if __name__ == "__main__":
    serve(sys.argv[1:])
