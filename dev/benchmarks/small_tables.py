"""Fine-tuning on small tables: eleven tables of several kinds, at several learning rates and numbers of updates.

    python dev/benchmarks/small_tables.py --model models/tiny --data ../shared/data --work runs/small-tables
    python dev/benchmarks/small_tables.py --model models/tiny --data ../shared/data --work runs/small-tables \
        --grid default

The tables are drawn from public task data by a fixed seed, with 300 to 3,000 training rows, in the format of a user's
table. Each is trained at every rate and number of updates of a grid, or with the defaults of `albert finetune`. The CSV
has a row for each run, with the score of the best constant answer. The same command continues a stopped run.
"""

import gzip
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import harness

from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.paper.quickstart import labelled_passages
from albert.runtime.errors import Diverged
from albert.runtime.random_streams import stream
from albert.tasks.custom import read_task
from albert.tasks.table_task import RecipeChanges, TableTask

Line = dict[str, Any]
COLUMNS = (
    "table", "kind", "model", "train_rows", "dev_rows", "how", "learning_rate", "batch_size", "updates", "epochs",
    "seed", "metric", "score", "constant", "processor_seconds",
)  # fmt: skip
WHAT = ("table", "model", "how", "learning_rate", "batch_size", "updates", "seed")
LENGTHS = {"max_length": 128, "question_length": 64}  # few rows have longer texts
SENTENCE_END = re.compile(r"(?<=[.!?]) +(?=[A-Z])")
WORD = re.compile(r"\w+|[^\w\s]")


class SmallTable(NamedTuple):
    """A table: its kind, its columns, and a function that reads training and development rows."""

    kind: str
    columns: Mapping[str, Any]
    read: Callable[[Path], tuple[list[Line], list[Line]]]


@dataclass(frozen=True, kw_only=True)
class Small:
    """Fine-tune on small tables with a grid of rates and updates, or with the defaults."""

    model: str = "models/tiny"
    data: Path = Path("../shared/data")
    """A folder with glue/, race/ and corpus/."""
    work: Path = Path("runs/small-tables")
    """Folder of the tables, and of each run while it lasts."""
    results: Path = Path("results/benchmark-small-tables.csv")
    tables: tuple[str, ...] = ()
    """Tables; empty: all."""
    grid: Literal["grid", "default", "random-head"] = "grid"
    """default: one run of each table with the defaults of `albert finetune`; random-head: likewise, but the head is not
    solved on frozen features first."""
    rates: tuple[float, ...] = (2e-4, 5e-4, 1e-3)
    updates: tuple[int, ...] = (250, 750)
    batch_size: int = 16
    seeds: tuple[int, ...] = (0,)


def measure(args: Small) -> Iterator[dict[str, object]]:
    """Draw the tables and fine-tune; a row for each run that is not in the CSV yet."""
    names = args.tables or tuple(TABLES)
    harness.select("--tables", names, TABLES)
    recipes = [RecipeChanges()]
    if args.grid == "grid":
        recipes = [
            RecipeChanges(learning_rate=rate, steps=updates, **LENGTHS, batch_size=args.batch_size)
            for updates, rate in product(args.updates, args.rates)
        ]
    for seed, recipe, name in product(args.seeds, recipes, names):
        row: dict[str, object] = {"table": name, "model": args.model, "how": args.grid, "seed": seed}
        if args.grid == "grid":
            row |= {"learning_rate": f"{recipe.learning_rate:g}", "batch_size": recipe.batch_size}
            row |= {"updates": recipe.steps}
        done = harness.read_rows(args.results)
        if any(all(other[key] == str(value) for key, value in row.items()) for other in done):
            continue
        try:
            yield row | fine_tune(name, recipe, seed, args)
        except Diverged:
            print(f"{row}: diverged", file=sys.stderr)


def fine_tune(name: str, recipe: RecipeChanges, seed: int, args: Small) -> dict[str, object]:
    """The result of one run."""
    table, folder, run = TABLES[name], args.work / "tables" / name, args.work / f"run-{args.grid}"
    files = {"train": folder / "train.jsonl", "dev": folder / "dev.jsonl"}
    if not folder.is_dir():
        folder.mkdir(parents=True)
        for path, lines in zip(files.values(), table.read(args.data), strict=True):
            path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    task = read_task(TableTask(**files, **table.columns, recipe=recipe)).check().task
    shutil.rmtree(run, ignore_errors=True)
    began = time.process_time()
    settings = FinetuningSettings(seed=seed, solve_head=False if args.grid == "random-head" else None)
    result = finetune(task, PretrainedEncoder(args.model), Path(), run, settings=settings)
    spent = time.process_time() - began
    shutil.rmtree(run)
    metric, score = next(iter(result.scores.items()))
    used, training = result.report["recipe"], result.report["training"]
    constant = (result.report["baseline"] or {}).get(metric)
    return {
        "kind": table.kind,
        "train_rows": training["examples"],
        "dev_rows": result.report["evaluation"]["examples"],
        "learning_rate": f"{used['learning_rate']:g}",
        "batch_size": used["batch_size"],
        "updates": training["steps"],
        "epochs": f"{training['epochs']:.3g}",
        "metric": metric,
        "score": "" if score is None else f"{score:.2f}",
        "constant": "" if constant is None else f"{constant:.2f}",
        "processor_seconds": f"{spent:.0f}",
    }


# --------------------------------------------------------------------------------------------------------------------
# The tables.


def glue(
    task: str, columns: Sequence[str], train_rows: int, dev_rows: int, train: str = "train"
) -> Callable[[Path], tuple[list[Line], list[Line]]]:
    """Draw rows of the training and the development file of a GLUE task.

    Args:
        task: the folder.
        columns: the columns to keep; for a file without a header all of them in order.
        train_rows, dev_rows: at most so many rows.
        train: the name of the training file.
    """

    def read(data: Path) -> tuple[list[Line], list[Line]]:
        train_lines, dev_lines = (
            tab_separated(data / "glue" / task / f"{name}.tsv.gz", columns) for name in (train, "dev")
        )
        return drawn(train_lines, train_rows, f"{task} train"), drawn(dev_lines, dev_rows, f"{task} dev")

    return read


def tab_separated(path: Path, columns: Sequence[str]) -> list[Line]:
    """The rows of a file with some of its columns."""
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").rstrip("\n").split("\n")
    header = lines[0].split("\t")
    if set(columns) <= set(header):
        lines = lines[1:]
    else:
        header = list(columns)
    rows = (dict(zip(header, line.split("\t"), strict=True)) for line in lines)
    return [{name: row[name] for name in columns} for row in rows]


def drawn(lines: Sequence[Line], number: int, name: str) -> list[Line]:
    """Draw lines without replacement by a fixed seed; a larger draw begins with the smaller one."""
    order = stream(f"small tables, {name}", 0).permutation(len(lines))[:number]
    return [lines[index] for index in order.tolist()]


def authors(data: Path) -> tuple[list[Line], list[Line]]:
    """The author, one of six, of passages of the package's sample; their first 40 words."""
    passages = labelled_passages()
    train, dev = [[{"text": " ".join(p.text.split()[:40]), "author": p.author} for p in part] for part in
             (passages.train, passages.dev)]  # fmt: skip
    return drawn(train, 600, "authors"), dev


def articles(data: Path) -> Iterator[tuple[str, str]]:
    """Titles and texts of an encyclopaedia's articles."""
    with gzip.open(data / "corpus" / "britannica11.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            article = json.loads(line)
            yield article["title"], article["text"]


def years(data: Path) -> tuple[list[Line], list[Line]]:
    """The birth of persons, in centuries from 1700 on; the first 40 words of their articles without digits."""
    lines = []
    for title, text in articles(data):
        dates = re.match(re.escape(title) + r"\s*\((?:c\. )?(1[5-8]\d\d)[-–—]1[5-9]\d\d\)[, ]*", text)
        if dates is not None:
            words = " ".join(text[dates.end() : dates.end() + 600].split()[:40])
            lines.append({"text": re.sub(r"\d+", "", words), "born": (int(dates[1]) - 1700) / 100})
    rows = drawn(lines, len(lines), "years")
    return rows[300:], rows[:300]


def names(data: Path) -> tuple[list[Line], list[Line]]:
    """Names and numbers in lower-case sentences: runs of words that had a capital and do not begin the sentence."""
    of_article = []
    for _, text in articles(data):
        sentences = SENTENCE_END.split(text[:4000])[1:]
        fit = [words for words in (WORD.findall(sentence) for sentence in sentences) if 8 <= len(words) <= 32]
        of_article.append([{"words": [word.lower() for word in words], "tags": tags_of(words)} for words in fit[:1]])
    lines = [line for group in of_article for line in group]
    rows = drawn(lines, 700, "names")
    return rows[300:], rows[:300]


def tags_of(words: Sequence[str]) -> list[str]:
    """Tags of names and numbers."""
    tags: list[str] = []
    for index, word in enumerate(words):
        if word[0].isdigit():
            tags.append("B-NUMBER")
        elif index and word[0].isupper():
            tags.append("I-NAME" if tags[-1].endswith("NAME") else "B-NAME")
        else:
            tags.append("O")
    return tags


def options(data: Path) -> tuple[list[Line], list[Line]]:
    """The right one of four answers; questions of school exams without their passage."""
    splits = []
    for split in ("train", "dev"):
        with gzip.open(data / "race" / f"{split}.middle.jsonl.gz", "rt", encoding="utf-8") as file:
            passages = [json.loads(line) for line in file]
        lines = [
            {"question": question, **dict(zip("abcd", answers, strict=True)), "answer": right}
            for passage in passages
            for question, answers, right in zip(
                passage["questions"], passage["options"], passage["answers"], strict=True
            )
        ]
        splits.append(drawn(lines, 600, f"options {split}"))
    return splits[0], splits[1]


_CLASS = {"kind": "classification"}
_SENTENCE = {"text": "sentence", "label": "label", **_CLASS}
_COLA = {**_SENTENCE, "metrics": ("matthews_correlation", "accuracy")}
_MRPC = {"text": "#1 String", "pair": "#2 String", "label": "Quality", **_CLASS}
_QNLI = {"text": "question", "pair": "sentence", "label": "label", **_CLASS}
_STSB = {"text": "sentence1", "pair": "sentence2", "label": "score", "kind": "regression"}
_OPTIONS = {"question": "question", "options": ("a", "b", "c", "d"), "label": "answer"}
TABLES = {
    **{
        f"sst2-{rows}": SmallTable("class", _SENTENCE, glue("SST-2", ("sentence", "label"), rows, 872))
        for rows in (300, 1000, 3000)
    },
    "cola-2000": SmallTable("class", _COLA, glue("CoLA", ("source", "label", "mark", "sentence"), 2000, 1043)),
    "mrpc-800": SmallTable("pair, class", _MRPC, glue("MRPC", ("#1 String", "#2 String", "Quality"), 800, 408)),
    "qnli-1000": SmallTable(
        "pair, class", _QNLI, glue("QNLI", ("question", "sentence", "label"), 1000, 600, "train-derived")
    ),
    "stsb-2000": SmallTable("pair, number", _STSB, glue("STS-B", ("sentence1", "sentence2", "score"), 2000, 1500)),
    "years-800": SmallTable("number", {"text": "text", "label": "born", "kind": "regression"}, years),
    "names-400": SmallTable("words", {"words": "words", "tags": "tags"}, names),
    "authors-600": SmallTable("class", {"text": "text", "label": "author", **_CLASS}, authors),
    "options-600": SmallTable("options", _OPTIONS, options),
}
main = harness.script(Small, COLUMNS, measure, same=WHAT, table="results")

if __name__ == "__main__":
    main()
