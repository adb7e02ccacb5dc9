"""`python -m reliability`: run a lane and write its report, or the table of docs/promises.md from a report."""

import sys
from dataclasses import dataclass
from pathlib import Path

from albert.cli.main import one_line
from albert.cli.options import parse
from albert.runtime.errors import CheckFailed, InvalidConfiguration, did_you_mean, translate
from albert.runtime.json_files import load_json, save_json
from reliability.report import CHECKOUT, Entry, Lane, Report, new_report, summary, write_table
from reliability.trials import find_trials, run_side_by_side, run_trial


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
    """Run a lane, list the trials, or write the table; CheckFailed when a promise was broken."""
    asked = parse(Reliability, arguments, "python -m reliability")
    if asked.table is not None:
        write_table(CHECKOUT / "docs" / "promises.md", load_json(Report, asked.table))
        return 0
    if asked.jobs < 1:
        raise InvalidConfiguration(f"--jobs {asked.jobs}", "at least one trial runs at a time", "pass 1 or more")
    found = find_trials()
    for name in asked.only:
        if name not in found:
            raise InvalidConfiguration(f"--only {name}", "no such trial", did_you_mean(name, found))
    trials = [found[name] for name in asked.only or found]
    if asked.names:
        print("\n".join(f"{trial.name:<24}{trial.counts[asked.lane]:>10,}  {trial.guarantee}" for trial in trials))
        return 0
    default = "results/reliability.json" if asked.lane == "full" else f"runs/reliability-{asked.lane}.json"
    output = asked.output or CHECKOUT / default
    older = load_json(Report, output) if output.exists() else None
    entries: list[Entry] = []
    ended = (run_trial(trial, asked.lane, asked.seed) for trial in trials)
    if asked.jobs > 1:
        ended = run_side_by_side(trials, asked.lane, asked.seed, asked.jobs)
    for entry in ended:  # written after each: what a night found is not lost with the night
        entries.append(entry)
        save_json(output, new_report(asked.lane, asked.seed, tuple(entries), older))
    print(summary(entries))
    failed = [entry.name for entry in entries if entry.has_failed]
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
