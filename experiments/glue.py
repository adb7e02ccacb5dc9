"""GLUE as a whole: every task whose files exist, the average of its leaderboard, and the files to submit.

    python -m experiments.glue --model albert/albert-base-v2 --data glue --output runs/glue --seeds 5 select=best

OUTPUT/TASK/seed-0, …      the runs of each task (`albert.sweep`); finished ones are kept
    submission/*.tsv       the answers to the test sets (`albert.evaluate`), as the benchmark's server takes them
    summary.json           the scores of all tasks, what is missing, and the average; updated after each task

MRPC, RTE and STS-B start from the best model of MNLI, unless that failed (Lan et al. 2019, footnote 4); it also answers
the diagnostic set. Words with = are keys of `albert finetune`, for every task."""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import albert
from albert.cli.render import open_console, print_parts
from albert.report.tables import Table, format_score
from albert.runtime.errors import AlbertError, Diverged, MissingInput, UsageError
from albert.runtime.json_files import save_versioned
from albert.tasks import glue
from albert.tasks.submission import DECLARED
from albert.training.run_folder import SUMMARY_NAME

Device = Literal["auto", "cpu", "cuda"]
AVERAGED: Mapping[str, tuple[str, ...]] = {
    glue.COLA.name: ("matthews_correlation",),
    glue.SST2.name: ("accuracy",),
    glue.MRPC.name: ("f1", "accuracy"),
    glue.STSB.name: ("pearson", "spearman"),
    glue.QQP.name: ("f1", "accuracy"),
    glue.MNLI.name: ("accuracy", "accuracy/dev_mismatched"),
    glue.QNLI.name: ("accuracy",),
    glue.RTE.name: ("accuracy",),
    glue.WNLI.name: ("accuracy",),
}
"""The scores of each task that the leaderboard averages; pairs of scores count half each."""
PAPER_AVERAGE = 89.4
"""Of ALBERT's ensemble on the test sets (Lan et al. 2019, Table 9)."""


def average(scores: Mapping[str, Mapping[str, float | None]]) -> float | None:
    """The average of the leaderboard in points, from scores by task and name; None if one is missing or undefined."""
    means = []
    for task, names in AVERAGED.items():
        values = [value for name in names if (value := scores.get(task, {}).get(name)) is not None]
        if len(values) < len(names):
            return None
        means.append(sum(values) / len(values))
    return sum(means) / len(means)


def main(words: Sequence[str]) -> int:
    """Run what is not done yet, and print the table; returns an exit code."""
    parser = argparse.ArgumentParser(prog="python -m experiments.glue", description="GLUE as a whole")
    parser.add_argument("--model", required=True, help="a model directory, a run, or a Hub id")
    parser.add_argument("--data", required=True, type=Path, help="the folder of the tasks' folders")
    parser.add_argument("--output", required=True, type=Path, help="resumed if it exists")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each task; the median is reported")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("keys", nargs="*", metavar="KEY=VALUE", help="keys of albert finetune")
    options = parser.parse_args(words)
    try:
        for word in options.keys:
            if "=" not in word:
                raise UsageError(word, "is no key", "write KEY=VALUE, such as epochs=3")
        keys = {name: value_of(text) for name, text in (word.split("=", 1) for word in options.keys)}
        show(run_benchmark(options.model, options.data, options.output, options.seeds, options.device, keys))
    except AlbertError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return error.exit_code
    return 0


def value_of(text: str) -> Any:
    """A number, true or false as JSON writes them; else the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def run_benchmark(
    model: str, data: Path, output: Path, seeds: int, device: Device, keys: Mapping[str, Any]
) -> dict[str, Any]:
    """Fine-tune on every task, and answer its test sets; returns the content of summary.json.

    Raises:
        MissingInput: no task has its files.
    """
    summary: dict[str, Any] = {"tasks": {}, "missing": {}, "diagnostic": {}, "average": None}
    best: dict[str, str] = {}
    for name in (glue.MNLI.name, *(name for name in AVERAGED if name != glue.MNLI.name)):
        before = DECLARED[name].intermediate
        start = model if before is None else best.get(before, model)
        try:
            found = albert.sweep(name, model=start, data=data, output=output / name, seeds=seeds, device=device, **keys)
        except (MissingInput, Diverged) as error:
            summary["missing"][name] = str(error)
            continue
        assert found.model is not None, "runs that differ in their seed leave a model"
        runs = found.report["runs"]
        failures = {run["directory"]: run["failure"] for run in runs}
        if failures[found.model.parent.name] is None:
            best[name] = str(found.model)
        summary["tasks"][name] = {
            "started_from": start,
            "scores": found.scores,
            "runs": runs,
            "baselines": found.baselines,
            "failed": sum(failure is not None for failure in failures.values()),
        }
        summary["missing"] |= submitted(name, found.model, data, output, device)
        summary["average"] = average({task: own["scores"] for task, own in summary["tasks"].items()})
        save_versioned(output / SUMMARY_NAME, summary)
    if not summary["tasks"]:
        raise MissingInput(
            data, "has no task of GLUE with training and development files", next(iter(summary["missing"].values()))
        )
    if glue.MNLI.name in best:
        scored: dict[str, Any] = {"model": best[glue.MNLI.name]}
        try:
            scored["scores"] = albert.evaluate("ax", model=scored["model"], data=data, device=device).scores
        except MissingInput as error:
            summary["missing"]["ax"] = str(error)
        else:
            summary["missing"] |= submitted("ax", Path(scored["model"]), data, output, device)
        summary["diagnostic"] = scored
        save_versioned(output / SUMMARY_NAME, summary)
    return summary


def submitted(name: str, model: Path, data: Path, output: Path, device: Device) -> dict[str, str]:
    """Write the answers to the test sets of a task; why it has none, by its name."""
    try:
        albert.evaluate(name, model=model, data=data, submission=output / "submission", device=device)
    except MissingInput as error:
        return {f"{name}, test": str(error)}
    return {}


def show(summary: Mapping[str, Any]) -> None:
    """Print the scores beside the paper's, and what is missing."""
    rows = [["task", "score", "median", "constant answer", "runs", "paper"]]
    for name, metrics in AVERAGED.items():
        found = summary["tasks"].get(name, {"scores": {}, "runs": (), "baselines": {}})
        paper = {each.metric: f"{each.score:g}" for each in reversed(DECLARED[name].published)}
        constant = next(iter(found["baselines"].values()), {})
        for metric in metrics:
            scores = (format_score(own.get(metric)) if metric in own else "-" for own in (found["scores"], constant))
            rows.append([name, metric, *scores, str(len(found["runs"])), paper.get(metric, "-")])
    mean = summary["average"]
    rows.append(["Avg", "", "-" if mean is None else f"{mean:.1f}", "", "", f"{PAPER_AVERAGE:g}"])
    lines = [f"{name} starts from {own['started_from']}" for name, own in summary["tasks"].items()]
    lines += [
        f"{name}: {own['failed']} runs are no better than a constant answer"
        for name, own in summary["tasks"].items()
        if own["failed"]
    ]
    diagnostic = summary["diagnostic"].get("scores", {})
    lines += [f"ax: {metric} {format_score(value)}" for metric, value in diagnostic.items()]
    lines += [f"missing: {name}: {why}" for name, why in summary["missing"].items()]
    if mean is None:
        lines.append("Avg needs the scores of all tasks")
    print_parts(
        open_console(), [Table(rows, "Scores on the development sets; the paper's average is on the test sets"), *lines]
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
