"""`python -m dev.reliability`: run a lane and write its report."""

import sys
from dataclasses import dataclass
from pathlib import Path

from dev.reliability.report import CHECKOUT, Entry, Lane, Report, new_report, summary
from dev.reliability.trials import find_trials, run_side_by_side, run_trial

from albert.cli.command_line import parse
from albert.cli.main import one_line
from albert.runtime.errors import CheckFailed, InvalidConfiguration, did_you_mean, translate
from albert.runtime.json_files import load_json, save_json


@dataclass(frozen=True, kw_only=True)
class Reliability:
    """Test the promises of docs/promises.md: kills, damage, power loss, hostile files.

    An existing report of the same lane and seed keeps its other trials, each with its date, commit and processor, so a
    lane can be run in parts.
    Exit code 4 if a promise was broken.

    Example: python -m dev.reliability --lane full --only random-kills fuzzing
    """

    lane: Lane = "quick"
    """The number of tries: for seconds, an hour and a half, or a night."""
    only: tuple[str, ...] = ()
    """Trials by name; all by default."""
    jobs: int = 1
    """Trials to run at a time, each in its own process."""
    seed: int = 0
    """Seed of all random draws; the same seed repeats a failure."""
    output: Path | None = None
    """The report; results/reliability.json for the full lane, runs/reliability-LANE.json for the others by default."""
    names: bool = False
    """List the trials and exit."""


def main(arguments: list[str]) -> int:
    """Run a lane or list the trials; CheckFailed when a promise was broken."""
    args = parse(Reliability, arguments, "python -m dev.reliability")
    if args.jobs < 1:
        raise InvalidConfiguration(f"--jobs {args.jobs}", "is below 1", "pass 1 or more")
    known_trials = find_trials()
    for name in args.only:
        if name not in known_trials:
            raise InvalidConfiguration(f"--only {name}", "no such trial", did_you_mean(name, known_trials))
    trials = [known_trials[name] for name in args.only or known_trials]
    if args.names:
        print("\n".join(f"{trial.name:<24}{trial.counts[args.lane]:>10,}  {trial.guarantee}" for trial in trials))
        return 0
    default = "results/reliability.json" if args.lane == "full" else f"runs/reliability-{args.lane}.json"
    output = args.output or CHECKOUT / default
    older = load_json(Report, output) if output.exists() else None
    entries: list[Entry] = []
    results = (run_trial(trial, args.lane, args.seed) for trial in trials)
    if args.jobs > 1:
        results = run_side_by_side(trials, args.lane, args.seed, args.jobs)
    for entry in results:  # saved after each: an interrupted lane keeps its results
        entries.append(entry)
        save_json(output, new_report(args.lane, args.seed, tuple(entries), older))
    print(summary(entries))
    failed = [entry.name for entry in entries if entry.has_failed]
    if failed:
        raise CheckFailed(", ".join(failed), "did not hold", f"see {output}")
    return 0


def run(arguments: list[str]) -> int:
    """`main`, with users' errors reported in one line."""
    try:
        return main(arguments)
    except Exception as error:
        error_known = translate(error)
        if error_known is None:
            raise
        print(one_line(f"reliability: error: {error_known}"), file=sys.stderr)
        return error_known.exit_code


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
