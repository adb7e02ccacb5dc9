"""Runs `python -m experiments` with the scale of seconds instead of tiny: `tables_at_toy_scale.py WORD…`."""

import sys

from experiments.tables import main
from tests.experiments.toy_scale import TOY

from albert.cli.main import run
from experiments import grids

grids.SCALES["tiny"] = TOY
assert run(sys.argv[1:], main) == 0
