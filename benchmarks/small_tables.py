"""What a first own table needs: eleven small tables of several kinds, learnt at several rates and for several lengths.

The tables are drawn from public task data in the same way every time, 300 to 3,000 rows to learn from, and written as a
user would have them. Each is learnt at every rate and number of updates of a grid, and once with the defaults of
`albert finetune`; a row of the CSV for each run, with the score of the best constant answer. The same command goes on
where it was stopped. With --report nothing is learnt: the table of the rows that are there, in Markdown.

    python benchmarks/small_tables.py --model models/tiny --data ../shared/data --work runs/small-tables
    python benchmarks/small_tables.py --model models/tiny --data ../shared/data --work runs/small-tables --grid default
    python benchmarks/small_tables.py --report
"""

import csv
import gzip
import json
import re
import shutil
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness import append_rows

from albert.cli.options import parse
from albert.experiments.quickstart import labelled_passages
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
from albert.runtime.errors import Diverged, UsageError, did_you_mean
from albert.runtime.random_streams import stream
from albert.tasks.custom import read_task
from albert.tasks.table_task import RecipeChanges, TableTask

Line = dict[str, Any]
COLUMNS = (
    "table", "kind", "model", "train_rows", "dev_rows", "how", "learning_rate", "batch_size", "updates", "epochs",
    "seed", "metric", "score", "constant", "processor_seconds",
)  # fmt: skip
WHAT = ("table", "model", "how", "learning_rate", "batch_size", "updates", "seed")
LENGTHS = {"max_length": 128, "question_length": 64}
"""None of the tables has longer texts, but for a few rows."""
SENTENCE_END = re.compile(r"(?<=[.!?]) +(?=[A-Z])")
WORD = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True, kw_only=True)
class SmallTable:
    """A table to learn from and one to score on: `read` gives both, given the data folder."""

    name: str
    read: Callable[[Path], tuple[list[Line], list[Line]]]
    columns: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Small:
    """Learn small tables with a grid of rates and updates, and with the defaults."""

    model: str = "models/tiny"
    data: Path = Path("../shared/data")
    """A folder with glue/, race/ and corpus/, as described in the text above."""
    work: Path = Path("runs/small-tables")
    """For the tables, and each run while it lasts."""
    results: Path = Path("results/benchmark-small-tables.csv")
    tables: tuple[str, ...] = ()
    """Which of them; all when not set."""
    grid: Literal["grid", "default"] = "grid"
    """default: one run of each table as `albert finetune` has it when nothing else is asked for."""
    rates: tuple[float, ...] = (2e-4, 5e-4, 1e-3)
    updates: tuple[int, ...] = (250, 750)
    batch_size: int = 16
    seeds: tuple[int, ...] = (0,)
    report: bool = False


def main(arguments: list[str]) -> None:
    """Draw the tables, learn them, and write down what came of it."""
    asked = parse(Small, arguments, "small_tables.py")
    if asked.report:
        print(report(asked.results))
        return
    known = {table.name: table for table in TABLES}
    for name in asked.tables:
        if name not in known:
            raise UsageError(f"--tables {name}", "is not one of them", did_you_mean(name, known))
    chosen = [known[name] for name in asked.tables or known]
    for table in chosen:
        write_table(table, asked)
    for seed in asked.seeds:
        if asked.grid == "default":
            for table in chosen:
                learn(table, RecipeChanges(), "default", seed, asked)
            continue
        for updates in asked.updates:
            for table in chosen:
                for rate in asked.rates:
                    recipe = RecipeChanges(learning_rate=rate, steps=updates, **LENGTHS, batch_size=asked.batch_size)
                    learn(table, recipe, "grid", seed, asked)


def write_table(table: SmallTable, asked: Small) -> None:
    """The two files of a table, where they are not there yet."""
    folder = asked.work / "tables" / table.name
    if folder.is_dir():
        return
    folder.mkdir(parents=True)
    for split, lines in zip(("train", "dev"), table.read(asked.data), strict=True):
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        (folder / f"{split}.jsonl").write_text(text, encoding="utf-8")


def learn(table: SmallTable, recipe: RecipeChanges, how: str, seed: int, asked: Small) -> None:
    """One run and its row, unless the row is there."""
    known = {"table": table.name, "model": asked.model, "how": how, "seed": seed}
    if how == "grid":
        known |= {"learning_rate": f"{recipe.learning_rate:g}", "batch_size": recipe.batch_size}
        known |= {"updates": recipe.steps}
    if any(all(row[name] == str(value) for name, value in known.items()) for row in rows_of(asked.results)):
        return
    folder, place = asked.work / "tables" / table.name, asked.work / f"run-{how}"
    files = {"train": folder / "train.jsonl", "dev": folder / "dev.jsonl"}
    task = read_task(TableTask(**files, **table.columns, recipe=recipe)).check().task
    shutil.rmtree(place, ignore_errors=True)
    began = time.process_time()
    try:
        result = finetune(task, PretrainedEncoder(asked.model), Path(), place, settings=FinetuningSettings(seed=seed))
    except Diverged:
        print(f"{known}: diverged", file=sys.stderr)
        return
    spent = time.process_time() - began
    metric, score = next(iter(result.scores.items()))
    used, training = result.report["recipe"], result.report["training"]
    baseline = (result.report["baseline"] or {}).get(metric)
    row = known | {
        "kind": kind_of(table),
        "train_rows": training["examples"],
        "dev_rows": result.report["evaluation"]["examples"],
        "learning_rate": f"{used['learning_rate']:g}",
        "batch_size": used["batch_size"],
        "updates": training["steps"],
        "epochs": f"{training['epochs']:.3g}",
        "metric": metric,
        "score": "" if score is None else f"{score:.2f}",
        "constant": "" if baseline is None else f"{baseline:.2f}",
        "processor_seconds": f"{spent:.0f}",
    }
    append_rows(asked.results, COLUMNS, [row], same=WHAT)
    print(*row.values(), sep=" | ", flush=True)
    shutil.rmtree(place)


def rows_of(path: Path) -> list[dict[str, str]]:
    """What was measured so far."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def report(path: Path) -> str:
    """For each table the constant answer, the best of the grid and where it was, and the defaults, as Markdown."""
    groups: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in rows_of(path):
        groups[row["table"]].append(row)
    lines = ["| table | rows | metric | constant | grid: best | at rate, updates | default | at rate, updates |"]
    lines.append("|" + "---|" * 8)
    for table, rows in groups.items():
        cells: dict[tuple[str, str, str], list[float]] = defaultdict(list)
        for row in rows:
            cells[row["how"], row["learning_rate"], row["updates"]].append(float(row["score"] or 0))
        medians = {cell: statistics.median(scores) for cell, scores in cells.items()}
        said = []
        for how in ("grid", "default"):
            own = {cell: score for cell, score in medians.items() if cell[0] == how}
            best = max(own, key=lambda cell: own[cell], default=None)
            said += ["", ""] if best is None else [f"{own[best]:.1f}", f"{best[1]}, {best[2]}"]
        first = rows[0]
        told = [table, first["train_rows"], first["metric"], first["constant"] or "undefined", *said]
        lines.append("| " + " | ".join(told) + " |")
    return "\n".join(lines)


def kind_of(table: SmallTable) -> str:
    """A word on what is asked."""
    if "options" in table.columns:
        return "options"
    if "tags" in table.columns:
        return "words"
    what = "number" if table.columns.get("kind") == "regression" else "class"
    return f"pair, {what}" if "pair" in table.columns else what


def glue(
    task: str, columns: Sequence[str], train_rows: int, dev_rows: int, names: Mapping[str, str] | None = None
) -> Callable[[Path], tuple[list[Line], list[Line]]]:
    """Rows of a GLUE task: so many drawn of its training file and of its development file.

    Args:
        task: its folder.
        columns: those that are kept; of a file without a header, all of them in their order.
        train_rows, dev_rows: how many; all where there are fewer.
        names: files that are called otherwise, by split.
    """

    def read(data: Path) -> tuple[list[Line], list[Line]]:
        train, dev = (
            tab_separated(data / "glue" / task / f"{(names or {}).get(split, split)}.tsv.gz", columns)
            for split in ("train", "dev")
        )
        return drawn(train, train_rows, f"{task} train"), drawn(dev, dev_rows, f"{task} dev")

    return read


def tab_separated(path: Path, columns: Sequence[str]) -> list[Line]:
    """The rows of a file, some of its columns."""
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").rstrip("\n").split("\n")
    header = lines[0].split("\t")
    if set(columns) <= set(header):
        lines = lines[1:]
    else:
        header = list(columns)
    rows = (dict(zip(header, line.split("\t"), strict=True)) for line in lines)
    return [{name: row[name] for name in columns} for row in rows]


def drawn(lines: Sequence[Line], number: int, name: str) -> list[Line]:
    """So many of them, without replacement, the same every time; a larger draw begins with the smaller one."""
    order = stream(f"small tables, {name}", 0).permutation(len(lines))[:number]
    return [lines[place] for place in order.tolist()]


def authors(data: Path) -> tuple[list[Line], list[Line]]:
    """Who of six wrote this? The first 40 words of passages of the sample that comes with the package."""
    passages = labelled_passages()
    parts = [[{"text": " ".join(p.text.split()[:40]), "author": p.author} for p in part] for part in
             (passages.train, passages.dev)]  # fmt: skip
    return drawn(parts[0], 600, "authors"), parts[1]


def articles(data: Path) -> Iterator[tuple[str, str]]:
    """Titles and texts of the encyclopaedia's articles."""
    with gzip.open(data / "corpus" / "britannica11.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            article = json.loads(line)
            yield article["title"], article["text"]


def years(data: Path) -> tuple[list[Line], list[Line]]:
    """When were they born, in centuries from 1700 on? The first 40 words on a person, digits and dates taken out."""
    found = []
    for title, text in articles(data):
        dates = re.match(re.escape(title) + r"\s*\((?:c\. )?(1[5-8]\d\d)[-–—]1[5-9]\d\d\)[, ]*", text)
        if dates is not None:
            words = " ".join(text[dates.end() : dates.end() + 600].split()[:40])
            found.append({"text": re.sub(r"\d+", "", words), "born": (int(dates[1]) - 1700) / 100})
    chosen = drawn(found, len(found), "years")
    return chosen[300:], chosen[:300]


def names(data: Path) -> tuple[list[Line], list[Line]]:
    """Which words are names? Sentences of the encyclopaedia in small letters; a name is what was written with a capital
    and does not begin the sentence, words in a row are one name, numbers are tagged as such.
    """
    of_article = []
    for _, text in articles(data):
        sentences = SENTENCE_END.split(text[:4000])[1:]
        fit = [words for words in (WORD.findall(sentence) for sentence in sentences) if 8 <= len(words) <= 32]
        of_article.append([{"words": [word.lower() for word in words], "tags": tags_of(words)} for words in fit[:1]])
    lines = [line for group in of_article for line in group]
    chosen = drawn(lines, 700, "names")
    return chosen[300:], chosen[:300]


def tags_of(words: Sequence[str]) -> list[str]:
    """What is a name, what a number, and what neither."""
    tags: list[str] = []
    for place, word in enumerate(words):
        if word[0].isdigit():
            tags.append("B-NUMBER")
        elif place and word[0].isupper():
            tags.append("I-NAME" if tags[-1].endswith("NAME") else "B-NAME")
        else:
            tags.append("O")
    return tags


def options(data: Path) -> tuple[list[Line], list[Line]]:
    """Which of four answers is right? Questions of school exams without their text: what sounds like an answer."""
    found = []
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
        found.append(drawn(lines, 600, f"options {split}"))
    return found[0], found[1]


_SENTENCE, _CLASS = {"text": "sentence", "label": "label"}, {"kind": "classification"}
_COLA = ("source", "label", "mark", "sentence")
TABLES = (
    SmallTable(name="sst2-300", read=glue("SST-2", ("sentence", "label"), 300, 872), columns=_SENTENCE | _CLASS),
    SmallTable(name="sst2-1000", read=glue("SST-2", ("sentence", "label"), 1000, 872), columns=_SENTENCE | _CLASS),
    SmallTable(name="sst2-3000", read=glue("SST-2", ("sentence", "label"), 3000, 872), columns=_SENTENCE | _CLASS),
    SmallTable(
        name="cola-2000",
        read=glue("CoLA", _COLA, 2000, 1043),
        columns=_SENTENCE | _CLASS | {"metrics": ("matthews_correlation", "accuracy")},
    ),
    SmallTable(
        name="mrpc-800",
        read=glue("MRPC", ("#1 String", "#2 String", "Quality"), 800, 408),
        columns={"text": "#1 String", "pair": "#2 String", "label": "Quality"} | _CLASS,
    ),
    SmallTable(
        name="qnli-1000",
        read=glue("QNLI", ("question", "sentence", "label"), 1000, 600, {"train": "train-derived"}),
        columns={"text": "question", "pair": "sentence", "label": "label"} | _CLASS,
    ),
    SmallTable(
        name="stsb-2000",
        read=glue("STS-B", ("sentence1", "sentence2", "score"), 2000, 1500),
        columns={"text": "sentence1", "pair": "sentence2", "label": "score", "kind": "regression"},
    ),
    SmallTable(name="years-800", read=years, columns={"text": "text", "label": "born", "kind": "regression"}),
    SmallTable(name="names-400", read=names, columns={"words": "words", "tags": "tags"}),
    SmallTable(name="authors-600", read=authors, columns={"text": "text", "label": "author"} | _CLASS),
    SmallTable(
        name="options-600",
        read=options,
        columns={"question": "question", "options": ("a", "b", "c", "d"), "label": "answer"},
    ),
)

if __name__ == "__main__":
    main(sys.argv[1:])
