"""`python -m reliability`: run a lane and write its report, or the table of docs/promises.md from a report."""

import sys
from dataclasses import dataclass
from pathlib import Path

from albert.cli.main import one_line
from albert.cli.options import parse
from albert.runtime.errors import CheckFailed, InvalidConfiguration, translate
from reliability.guarantees import write_table
from reliability.lanes import chosen, find_trials, has_failed, run_trial, told
from reliability.report import CHECKOUT, Entry, new_report, read_report, write_report
from reliability.side_by_side import run_side_by_side
from reliability.trial import Lane


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Try the promises of docs/promises.md: kills, damage, lost power, hostile files, deliberate defects.

    The report keeps its other trials of the same lane and seed, each with its date, commit and processor, so that a
    lane may run in parts.
    Exit code 4 where a promise was broken.

    Example: python -m reliability --lane full --only random-kills mutants
    """

    lane: Lane = "quick"
    """How much is tried: seconds, an hour and a half, or a night."""
    only: tuple[str, ...] = ()
    """Trials by name; all by default."""
    jobs: int = 1
    """Trials at a time, each in a process of its own; as many as there are cores, say."""
    seed: int = 0
    """Where all draws come from; a failure comes again with the same seed."""
    output: Path | None = None
    """The report; results/reliability.json for the full lane, runs/reliability-LANE.json for the others by default."""
    names: bool = False
    """Only list the trials."""
    table: Path | None = None
    """Run nothing; write the table of docs/promises.md from this report."""


def main(arguments: list[str]) -> int:
    """Run a lane, list the trials, or write the table.

    Raises:
        CheckFailed: a promise was broken.
        InvalidConfiguration: no jobs, an unknown trial, a page without markers, a report that is none.
    """
    asked = parse(Reliability, arguments, "python -m reliability")
    if asked.table is not None:
        write_table(CHECKOUT / "docs" / "promises.md", read_report(asked.table))
        return 0
    if asked.jobs < 1:
        raise InvalidConfiguration(f"--jobs {asked.jobs}", "at least one trial runs at a time", "pass 1 or more")
    trials = chosen(find_trials(), asked.only)
    if asked.names:
        print("\n".join(f"{trial.name:<24}{trial.counts[asked.lane]:>10,}  {trial.guarantee}" for trial in trials))
        return 0
    output = asked.output or CHECKOUT / {"full": "results/reliability.json"}.get(
        asked.lane, f"runs/reliability-{asked.lane}.json"
    )
    older = read_report(output) if output.exists() else None
    entries: list[Entry] = []
    if asked.jobs > 1:
        ended = run_side_by_side(trials, asked.lane, asked.seed, asked.jobs)
    else:
        ended = (run_trial(trial, asked.lane, asked.seed) for trial in trials)
    for entry in ended:  # written after each: what a night found is not lost with the night
        entries.append(entry)
        write_report(output, new_report(asked.lane, asked.seed, tuple(entries), older))
    print(told(entries))
    failed = [entry.name for entry in entries if has_failed(entry)]
    if failed:
        raise CheckFailed(", ".join(failed), "did not hold", f"see {output}")
    return 0


def run(arguments: list[str]) -> int:
    """`main`, with what a user can mend told in one line."""
    try:
        return main(arguments)
    except Exception as error:
        known = translate(error)
        if known is None:
            raise
        print(one_line(f"reliability: error: {known}"), file=sys.stderr)
        return known.exit_code


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
