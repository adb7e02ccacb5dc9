"""Keep what a finished run found: `python scripts/record_run.py RUN --name NAME --command "albert pretrain …"`.

Writes rows to results/results.csv and the run's recipe, thinned journal and curves to results/NAME.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from albert.cli.options import parse
from albert.experiments.curves import record_finetuning, record_pretraining
from albert.runtime.devices import describe_machine


@dataclass(frozen=True, kw_only=True)
class Record:
    """Keep what a finished run found.

    Example: python scripts/record_run.py --run runs/small --name small-en --command "albert pretrain small"
    """

    run: Path
    name: str
    command: str
    """What made it."""
    commit: str | None = None
    """The commit it was made with; the present one when not given."""
    results: Path = Path("results")


def main(arguments: list[str]) -> None:
    """Record one run."""
    asked = parse(Record, arguments, "record_run.py")
    commit = asked.commit or subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], text=True).strip()
    machine = describe_machine()
    place = f"{machine['processor']}, {machine['cores']} cores, torch {machine['torch']}"
    finetuned = (asked.run / "results.json").exists()
    record = record_finetuning if finetuned else record_pretraining
    for row in record(asked.run, asked.results, asked.name, commit, place, asked.command):
        print(f"{row.figure}: {row.value}" + (f" (constant answer {row.baseline})" if row.baseline != "" else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
