"""What a first own table needs: eleven small tables of several kinds, learnt at several rates and for several lengths.

    python benchmarks/small_tables.py --model models/tiny --data ../shared/data --work runs/small-tables
    python benchmarks/small_tables.py --model models/tiny --data ../shared/data --work runs/small-tables --grid default

The tables are drawn from public task data in the same way every time, 300 to 3,000 rows to learn from, and written as a
user would have them. Each is learnt at every rate and number of updates of a grid, or with the defaults of `albert
finetune`; a row of the CSV for each run, with the score of the best constant answer. The same command goes on where it
was stopped.
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

from albert.experiments.quickstart import labelled_passages
from albert.finetuning.model import PretrainedEncoder
from albert.finetuning.run import finetune
from albert.finetuning.run_record import FinetuningSettings
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
LENGTHS = {"max_length": 128, "question_length": 64}  # none of the tables has longer texts, but for a few rows
SENTENCE_END = re.compile(r"(?<=[.!?]) +(?=[A-Z])")
WORD = re.compile(r"\w+|[^\w\s]")


class SmallTable(NamedTuple):
    """A table: what is asked, what its columns mean, and a function that reads rows to learn from and to score on."""

    kind: str
    columns: Mapping[str, Any]
    read: Callable[[Path], tuple[list[Line], list[Line]]]


@dataclass(frozen=True, kw_only=True)
class Small:
    """Learn small tables with a grid of rates and updates, or with the defaults."""

    model: str = "models/tiny"
    data: Path = Path("../shared/data")
    """A folder with glue/, race/ and corpus/."""
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


def measure(asked: Small) -> Iterator[dict[str, object]]:
    """Draw the tables and learn them; a row for each run that is not in the CSV yet."""
    names = asked.tables or tuple(TABLES)
    harness.chosen("--tables", names, TABLES)
    recipes = [RecipeChanges()]
    if asked.grid == "grid":
        recipes = [
            RecipeChanges(learning_rate=rate, steps=updates, **LENGTHS, batch_size=asked.batch_size)
            for updates, rate in product(asked.updates, asked.rates)
        ]
    for seed, recipe, name in product(asked.seeds, recipes, names):
        known: dict[str, object] = {"table": name, "model": asked.model, "how": asked.grid, "seed": seed}
        if asked.grid == "grid":
            known |= {"learning_rate": f"{recipe.learning_rate:g}", "batch_size": recipe.batch_size}
            known |= {"updates": recipe.steps}
        done = harness.read_rows(asked.results)
        if any(all(row[key] == str(value) for key, value in known.items()) for row in done):
            continue
        try:
            yield known | learn(name, recipe, seed, asked)
        except Diverged:
            print(f"{known}: diverged", file=sys.stderr)


def learn(name: str, recipe: RecipeChanges, seed: int, asked: Small) -> dict[str, object]:
    """What came of one run."""
    table, folder, place = TABLES[name], asked.work / "tables" / name, asked.work / f"run-{asked.grid}"
    files = {"train": folder / "train.jsonl", "dev": folder / "dev.jsonl"}
    if not folder.is_dir():
        folder.mkdir(parents=True)
        for path, lines in zip(files.values(), table.read(asked.data), strict=True):
            path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    task = read_task(TableTask(**files, **table.columns, recipe=recipe)).check().task
    shutil.rmtree(place, ignore_errors=True)
    began = time.process_time()
    result = finetune(task, PretrainedEncoder(asked.model), Path(), place, settings=FinetuningSettings(seed=seed))
    spent = time.process_time() - began
    shutil.rmtree(place)
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
    """Rows of a GLUE task: so many drawn of its training file and of its development file.

    Args:
        task: its folder.
        columns: those that are kept; of a file without a header, all of them in their order.
        train_rows, dev_rows: how many; all where there are fewer.
        train: the name of the training file.
    """

    def read(data: Path) -> tuple[list[Line], list[Line]]:
        learnt, asked = (tab_separated(data / "glue" / task / f"{name}.tsv.gz", columns) for name in (train, "dev"))
        return drawn(learnt, train_rows, f"{task} train"), drawn(asked, dev_rows, f"{task} dev")

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
