"""The texts on which a student learns the vectors of a teacher (`albert finetune-vectors`): JSON lines.

    python dev/scripts/distillation_texts.py --data DATA --output texts.jsonl

DATA is a folder with the training files of GLUE, SQuAD, SQuADShifts and some tables, and a corpus, under the names
used below. Labels are not read. A text that equals one of a development or test file (without regard to case,
punctuation and spaces) is left out, and so is one that was seen before; both are counted. Passages are divided into
sentences. The lines are in random order, so that the first N are a sample of all."""

import argparse
import csv
import gzip
import io
import json
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from albert.text.sentences import split_paragraphs, split_sentences

TEXTS_OF = {
    "STS-B": 20_000,
    "MRPC": 10_000,
    "RTE": 6_000,
    "SST-2": 15_000,
    "CoLA": 9_000,
    "QNLI": 30_000,
    "banking77": 10_000,
    "goemotions": 25_000,
    "trec": 5_500,
    "wnut17": 3_400,
    "squad": 15_000,
    "squadshifts": 30_000,
    "openstax": 20_000,
    "britannica11": 15_000,
    "books": 30_000,
}
"""At most so many texts of each source. RACE is offered for research that is not commercial, and is not used."""
GLUE_COLUMNS = {
    "STS-B": ("sentence1", "sentence2"),
    "MRPC": ("#1 String", "#2 String"),
    "RTE": ("sentence1", "sentence2"),
    "SST-2": ("sentence",),
    "QNLI": ("question", "sentence"),
    "WNLI": ("sentence1", "sentence2"),
    "MNLI": ("sentence1", "sentence2"),
}


def lines_of(path: Path) -> list[str]:
    """The lines of a compressed text file; TREC's is Latin-1."""
    raw = gzip.decompress(path.read_bytes())
    try:
        return raw.decode("utf-8").split("\n")
    except UnicodeDecodeError:
        return raw.decode("latin-1").split("\n")


def glue_texts(data: Path, task: str, file: str) -> Iterator[str]:
    """The texts of a file of GLUE, whose columns are separated by tabs and never quoted."""
    rows = [line.rstrip("\r").split("\t") for line in lines_of(data / "glue" / task / file) if line]
    if task == "CoLA":  # has no header
        yield from (row[3] for row in rows)
        return
    header = rows[0]
    columns = [header.index(name) for name in GLUE_COLUMNS[task]]
    for row in rows[1:]:
        yield from (row[column] for column in columns if column < len(row))


def conll_texts(path: Path) -> Iterator[str]:
    """The sentences of a file with a word and its tag on each line, and a blank line after each sentence."""
    words: list[str] = []
    for line in [*lines_of(path), ""]:
        if line.strip():
            words.append(line.split("\t")[0])
        elif words:
            yield " ".join(words)
            words = []


def squad_texts(path: Path) -> Iterator[str]:
    """The questions and the sentences of the passages of a file in the format of SQuAD."""
    for article in json.loads(gzip.decompress(path.read_bytes()))["data"]:
        for paragraph in article["paragraphs"]:
            yield from sentences(paragraph["context"])
            yield from (question["question"] for question in paragraph["qas"])


def race_texts(path: Path) -> Iterator[str]:
    """The sentences of the passages, the questions and the options of a file of RACE."""
    for line in lines_of(path):
        if line:
            passage = json.loads(line)
            yield from sentences(passage["article"])
            yield from passage["questions"]
            for options in passage["options"]:
                yield from options


def corpus_texts(path: Path) -> Iterator[str]:
    """The sentences of a corpus, one document a line."""
    for line in lines_of(path):
        if line:
            yield from sentences(json.loads(line)["text"])


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text."""
    for paragraph in split_paragraphs(text):
        yield from split_sentences(paragraph, "en")


def table_texts(data: Path, file: str) -> Iterator[str]:
    """The texts of a file of `tables`."""
    path = data / "tables" / file
    if file.endswith(".csv.gz"):
        for row in csv.DictReader(io.StringIO("\n".join(lines_of(path)))):
            yield row["text"]
    elif file.endswith(".tsv.gz"):
        yield from (line.split("\t")[0] for line in lines_of(path) if line)
    elif "trec" in file.lower():
        yield from (line.split(" ", 1)[1] for line in lines_of(path) if line)
    else:
        yield from conll_texts(path)


def training_texts(data: Path, source: str) -> Iterator[str]:
    """All texts of a source that may be learned from."""
    if source in GLUE_COLUMNS or source == "CoLA":
        yield from glue_texts(data, source, "train-derived.tsv.gz" if source == "QNLI" else "train.tsv.gz")
    elif source == "squad":
        yield from squad_texts(data / "squad" / "train-v1.1-subset.json.gz")
        yield from squad_texts(data / "squad" / "train-v2.0-subset.json.gz")
    elif source == "squadshifts":
        for part in ("amazon_reviews", "new_wiki", "reddit"):
            yield from squad_texts(data / "qa_extra" / f"squadshifts_{part}_v1.0.json.gz")
    elif source in ("books", "britannica11", "openstax"):
        yield from corpus_texts(data / "corpus" / f"{source}.jsonl.gz")
    else:
        files = {"trec": "trec-train_5500.label.gz", "wnut17": "wnut17train.conll.gz"}
        ending = "csv" if source == "banking77" else "tsv"
        yield from table_texts(data, files.get(source, f"{source}-train.{ending}.gz"))


def evaluation_texts(data: Path) -> Iterator[str]:
    """All texts of development and test files, which must not be learned from."""
    for task in (*GLUE_COLUMNS, "CoLA"):
        yield from glue_texts(data, task, "dev_matched.tsv.gz" if task == "MNLI" else "dev.tsv.gz")
    for file in (
        *("banking77-test.csv.gz", "goemotions-dev.tsv.gz", "trec-TREC_10.label.gz"),
        *("emerging.dev.conll.gz", "emerging.test.annotated.gz"),
    ):
        yield from table_texts(data, file)
    for version in ("1.1", "2.0"):
        yield from squad_texts(data / "squad" / f"dev-v{version}.json.gz")
    for level in ("middle", "high"):
        yield from race_texts(data / "race" / f"dev.{level}.jsonl.gz")


def key_of(text: str) -> str:
    """What two texts have in common that count as equal."""
    return re.sub(r"\W+", "", text.casefold())


def main() -> None:
    """Write the list, and print how many texts of each source it has and how many were left out."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data")
    parser.add_argument("--output", type=Path, required=True, help="the file to write")
    parser.add_argument(
        "--sources", nargs="+", metavar="NAME=COUNT", help="at most COUNT texts of each of these sources alone"
    )
    parser.add_argument("--max-words", type=int, default=40, help="leave longer texts out")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    limits = TEXTS_OF
    if options.sources:
        limits = {name: int(count) for name, _, count in (source.partition("=") for source in options.sources)}
        for name in limits:
            if name not in TEXTS_OF:
                parser.error(f"--sources: no source {name!r}, there are {', '.join(TEXTS_OF)}")
    draw = random.Random(options.seed)
    never = {key_of(text) for text in evaluation_texts(options.data)}
    seen: set[str] = set()
    counts: Counter[str] = Counter()
    chosen: list[dict[str, str]] = []
    for source, limit in limits.items():
        texts = []
        for text in training_texts(options.data, source):
            text = " ".join(text.split())
            key = key_of(text)
            if not 3 <= len(text.split()) <= options.max_words:
                counts["shorter than 3 words or too long"] += 1
            elif key in never:
                counts["equal to a development or test text"] += 1
            elif key in seen:
                counts["seen before"] += 1
            else:
                seen.add(key)
                texts.append(text)
        sample = draw.sample(texts, min(limit, len(texts)))
        counts["beyond the limit of a source"] += len(texts) - len(sample)
        chosen += [{"text": text, "source": source} for text in sample]
        print(f"{source}: {len(sample):,} of {len(texts):,}")
    draw.shuffle(chosen)
    with options.output.open("w", encoding="utf-8") as file:
        for row in chosen:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    print(f"{len(chosen):,} texts in {options.output}; left out:", dict(counts))


if __name__ == "__main__":
    main()
