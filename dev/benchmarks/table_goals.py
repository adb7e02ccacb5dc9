"""Fine-tuning on public tables with the defaults of `albert finetune`, beside simpler models and the goals.

    python dev/benchmarks/table_goals.py --data ../shared/data/tables --work runs/table-goals
    python dev/benchmarks/table_goals.py --data ../shared/data/tables --work runs/table-goals --seeds 0 1 2

The files are those that their authors published (gzip, and nothing else, is ours). Each set is written as training and
test rows; the development rows are a tenth of the training rows, and the test rows are scored once, at the end. The CSV
has a row for each set, seed and score: of the fine-tuned model, of the frozen model with a linear head, of the
classical model and of the majority baseline, all on the test rows. A run that is in the CSV is not repeated. At the
end the medians over all seeds of the CSV are printed beside the goals.
"""

import csv
import gzip
import io
import json
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import harness

import albert
from albert.finetuning.evaluation import FROZEN, MAJORITY
from albert.runtime.random_streams import stream

Line = dict[str, Any]
COLUMNS = (
    "set", "model", "how", "seed", "train_rows", "test_rows", "metric", "goal", "score", "frozen", "classical",
    "majority", "dev_score", "learning_rate", "batch_size", "updates", "epochs", "best_step", "frozen_seconds",
    "processor_seconds",
)  # fmt: skip
WHAT = ("set", "model", "how", "seed", "metric")


class PublicSet(NamedTuple):
    """A set: its columns, a function that reads training and test rows, and the goals by metric."""

    columns: Mapping[str, str]
    read: Callable[[Path], tuple[list[Line], list[Line]]]
    goals: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Goals:
    """Fine-tune on public tables with the defaults."""

    data: Path = Path("../shared/data/tables")
    """The folder with the published files, each packed with gzip."""
    work: Path = Path("runs/table-goals")
    """Folder of the tables, and of each run while it lasts."""
    model: str = "models/small"
    sets: tuple[str, ...] = ()
    """Sets; empty: all."""
    seeds: tuple[int, ...] = (0,)
    frozen: bool = False
    """Only the linear head (`--frozen`)."""
    results: Path = Path("results/benchmark-table-goals.csv")


def measure(args: Goals) -> Iterator[dict[str, object]]:
    """Fine-tune on each set; a row for each score of a run that is not in the CSV yet."""
    names = args.sets or tuple(SETS)
    harness.select("--sets", names, SETS)
    how = "frozen" if args.frozen else "default"
    for seed in args.seeds:
        for name in names:
            done = harness.read_rows(args.results)
            this = {"set": name, "model": args.model, "how": how, "seed": str(seed)}
            if not any(all(row[key] == value for key, value in this.items()) for row in done):
                yield from ({**this, **row} for row in fine_tune(name, seed, args))
    print_medians(harness.read_rows(args.results))


def fine_tune(name: str, seed: int, args: Goals) -> list[dict[str, object]]:
    """The rows of one run."""
    public = SETS[name]
    folder = args.work / "tables" / name
    files = {split: folder / f"{split}.jsonl" for split in ("train", "test")}
    if not folder.is_dir():
        folder.mkdir(parents=True)
        for path, lines in zip(files.values(), public.read(args.data), strict=True):
            path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    run = args.work / f"run-{name}-{seed}"
    began = time.process_time()
    options: dict[str, Any] = {**files, **public.columns, "model": args.model, "output": run, "seed": seed}
    result = albert.finetune(**options, frozen=args.frozen, device="cpu")
    spent = time.process_time() - began
    report = result.report
    shutil.rmtree(run)
    training = report["training"]
    test_scores = report["further_scores"]["test"]
    others = dict(report["further_baselines"]["test"])
    majority = others.pop(MAJORITY)
    frozen = others.pop(FROZEN, None)
    classical = next(iter(others.values()), None)
    metrics = list(public.goals) or list(test_scores)[:1]
    return [
        {
            "train_rows": training["examples"],
            "test_rows": len(files["test"].read_text(encoding="utf-8").splitlines()),
            "metric": metric,
            "goal": public.goals.get(metric, ""),
            "score": shown(test_scores, metric),
            "frozen": shown(frozen, metric),
            "classical": shown(classical, metric),
            "majority": shown(majority, metric),
            "dev_score": shown(report["scores"], metric),
            "learning_rate": f"{report['recipe']['learning_rate']:g}",
            "batch_size": report["recipe"]["batch_size"],
            "updates": training["steps"],
            "epochs": f"{training['epochs']:.3g}",
            "best_step": report["selection"]["step"],
            "frozen_seconds": f"{(report['frozen_head'] or {'seconds': 0})['seconds']:.0f}",
            "processor_seconds": f"{spent:.0f}",
        }
        for metric in metrics
    ]


def shown(scores: Mapping[str, float | None] | None, metric: str) -> str:
    """A score with two decimals; empty if there is none."""
    value = (scores or {}).get(metric)
    return "" if value is None else f"{value:.2f}"


def print_medians(rows: Sequence[Mapping[str, str]]) -> None:
    """Print the median over seeds of each score beside its goal."""
    groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    for row in rows:
        groups.setdefault((row["set"], row["model"], row["how"], row["metric"]), []).append(row)
    for (name, model, how, metric), members in groups.items():
        scores = [float(row["score"]) for row in members if row["score"]]
        if not scores:
            continue
        median = statistics.median(scores)
        goal = members[0]["goal"]
        verdict = "" if not goal else f"; goal {goal}: {'reached' if median >= float(goal) else 'MISSED'}"
        beside = ", ".join(f"{other} {members[-1][other] or '-'}" for other in ("frozen", "classical", "majority"))
        print(f"{name}, {model}, {how}: {metric} {median:.2f} (median of {len(scores)}); {beside}{verdict}")


# --------------------------------------------------------------------------------------------------------------------
# The sets, from their published files.


def published(path: Path, encoding: str = "utf-8") -> str:
    """The text of a published file that is packed with gzip."""
    return gzip.decompress(path.read_bytes()).decode(encoding)


def sampled(lines: Sequence[Line], number: int, name: str) -> list[Line]:
    """Lines drawn without replacement by a fixed seed, in the order of the file."""
    order = stream(f"table goals, {name}", 0).permutation(len(lines))[:number]
    return [lines[index] for index in sorted(order.tolist())]


def banking(rows: int | None) -> Callable[[Path], tuple[list[Line], list[Line]]]:
    """Banking77: questions of customers, 77 intents (Casanueva et al. 2020)."""

    def read(data: Path) -> tuple[list[Line], list[Line]]:
        train = list(csv.DictReader(io.StringIO(published(data / "banking77-train.csv.gz"))))
        test = list(csv.DictReader(io.StringIO(published(data / "banking77-test.csv.gz"))))
        return train if rows is None else sampled(train, rows, "banking77"), test

    return read


def goemotions(data: Path) -> tuple[list[Line], list[Line]]:
    """GoEmotions: comments with one or several of 28 emotions (Demszky et al. 2020); tested on the development file."""
    names = published(data / "goemotions-labels.txt.gz").split()
    splits = []
    for split in ("train", "dev"):
        lines = []
        for line in published(data / f"goemotions-{split}.tsv.gz").splitlines():
            text, numbers, _ = line.split("\t")
            lines.append({"text": text, "labels": [names[int(number)] for number in numbers.split(",")]})
        splits.append(lines)
    return sampled(splits[0], 3000, "goemotions"), splits[1]


def trec(data: Path) -> tuple[list[Line], list[Line]]:
    """TREC: questions by the kind of their answer, six classes (Li and Roth 2002)."""
    splits = []
    for name in ("train_5500", "TREC_10"):
        lines = []
        for line in published(data / f"trec-{name}.label.gz", "latin-1").splitlines():
            label, text = line.split(" ", 1)
            lines.append({"text": text, "label": label.split(":")[0]})
        splits.append(lines)
    return splits[0], splits[1]


def spam(data: Path) -> tuple[list[Line], list[Line]]:
    """SMS spam (Almeida et al. 2011): a fifth of the messages, drawn, is the test set."""
    rows = list(csv.reader(io.StringIO(published(data / "sms-spam.csv.gz", "latin-1"))))[1:]
    lines = [{"text": row[1], "label": row[0]} for row in rows if row]
    order = stream("table goals, spam", 0).permutation(len(lines)).tolist()
    return [lines[index] for index in order[:4459]], [lines[index] for index in order[4459:]]


def wnut17(test: str) -> Callable[[Path], tuple[list[Line], list[Line]]]:
    """WNUT-17: emerging entities in posts (Derczynski et al. 2017), 1,500 training sentences."""

    def sentences(path: Path) -> list[Line]:
        found: list[Line] = []
        words: list[str] = []
        tags: list[str] = []
        for line in [*published(path).split("\n"), ""]:
            fields = line.rstrip("\r").split("\t")
            if len(fields) > 1 and fields[0].strip():
                words.append(fields[0])
                tags.append(fields[1].strip())
            elif words:
                found.append({"words": words, "tags": tags})
                words, tags = [], []
        return found

    def read(data: Path) -> tuple[list[Line], list[Line]]:
        return sampled(sentences(data / "wnut17train.conll.gz"), 1500, "wnut17"), sentences(data / test)

    return read


_LABEL = {"text": "text", "label": "label"}
_TAGS = {"words": "words", "tags": "tags"}
SETS = {
    "banking77-4900": PublicSet({"text": "text", "label": "category"}, banking(4900), {"accuracy": 85.0}),
    "goemotions-3000": PublicSet({"text": "text", "label": "labels"}, goemotions, {"micro_f1": 46.0, "macro_f1": 20.0}),
    "wnut17-1500": PublicSet(_TAGS, wnut17("emerging.dev.conll.gz"), {"entity_f1": 25.0}),
    "spam": PublicSet(_LABEL, spam, {"f1 (spam)": 96.0}),
    "trec": PublicSet(_LABEL, trec, {"accuracy": 93.0}),
    "banking77": PublicSet({"text": "text", "label": "category"}, banking(None), {"accuracy": 88.0}),
    "wnut17-1500-test": PublicSet(_TAGS, wnut17("emerging.test.annotated.gz"), {}),
}
main = harness.script(Goals, COLUMNS, measure, same=WHAT, table="results")

if __name__ == "__main__":
    main()
