"""``python -m albert`` is the ``albert`` command, for torchrun: ``torchrun -m albert pretrain ...``."""

from albert.cli.main import run

if __name__ == "__main__":
    raise SystemExit(run())
