"""Runs `albert` with the scale of seconds instead of tiny: `tables_at_toy_scale.py WORD…`; for test_tables.py."""

import sys

from tests.paper.tables.toy_scale import TOY

from albert.cli.main import run
from albert.paper import grids

grids.SCALES["tiny"] = TOY
assert run(sys.argv[1:]) == 0
