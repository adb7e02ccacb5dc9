"""`python -m experiments list | run | show | export`, in the root of the repository."""

from albert.cli.main import run
from experiments.tables import main

if __name__ == "__main__":
    raise SystemExit(run(command=main))
