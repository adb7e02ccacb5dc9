"""Options of `albert evaluate`."""

from albert.api.checks import check_evaluate
from albert.api.options import Evaluate
from albert.cli.options import Subcommand

evaluate_main = Subcommand(Evaluate, "albert evaluate", "tasks:evaluate", check=check_evaluate)
