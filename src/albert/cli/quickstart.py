"""`albert quickstart`: the whole story on the embedded sample."""

from albert.cli.console import open_console
from albert.cli.quickstart_options import Quickstart
from albert.experiments.quickstart import quickstart, show_report


def run(asked: Quickstart) -> int:
    """Run the command."""
    console = open_console(soft_wrap=False, highlight=True)
    show_report(quickstart(asked.output, console), console)
    return 0
