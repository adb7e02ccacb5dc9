r"""Make a task of sentence order: neighbouring passages of one document, in order or swapped.

    python results/order_pairs.py britannica11.jsonl.gz pairs
    albert finetune --train pairs/train.csv --dev pairs/dev.csv --text first --pair second --label order \
        --model small --encode-pairs separately --epochs 2 --learning-rate 2e-4 --max-length 256 --precision bf16 \
        --output runs/order

A passage is three whole sentences of 30 to 100 words together; the first sentence of a document is left out. A passage
must not be cut by a number of words: the sentence in which the count is reached tends to be long, and lengths reveal
the order. How much they reveal is printed. A sixth of the documents is the development set.
Each line of the source is a JSON object with a `text`; scikit-learn is needed (`pip install -e '.[dev]'`).
"""

import csv
import gzip
import json
import random
import sys
from pathlib import Path

from sklearn.ensemble import GradientBoostingClassifier

from albert.text.sentences import split_sentences

Row = tuple[str, str, str]


def pairs(documents: list[str], most: int) -> list[Row]:
    """At most so many pairs of each document, half of them swapped."""
    rows = []
    for text in documents:
        sentences = [str(sentence).strip() for sentence in split_sentences(text)]
        if len(sentences) < 10:
            continue
        cuts = range(4, len(sentences) - 3)
        for cut in random.sample(cuts, min(most, len(cuts))):
            first, second = " ".join(sentences[cut - 3 : cut]), " ".join(sentences[cut : cut + 3])
            if all(30 <= len(passage.split()) <= 100 for passage in (first, second)):
                rows.append((second, first, "swapped") if random.random() < 0.5 else (first, second, "in order"))
    random.shuffle(rows)
    return rows


def lengths(row: Row) -> list[int]:
    """Words and letters of both passages and of their outer sentences."""
    numbers = []
    for passage in row[:2]:
        sentences = split_sentences(passage)
        for part in (passage, str(sentences[0]), str(sentences[-1])):
            numbers += [len(part.split()), len(part)]
    return numbers + [a - b for a, b in zip(numbers[:6], numbers[6:], strict=True)]


def main() -> None:
    """Write train.csv and dev.csv, and say how well lengths predict the order."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, output = map(Path, sys.argv[1:])
    with gzip.open(source, "rt", encoding="utf-8") as file:
        documents = [json.loads(line)["text"] for line in file]
    random.seed(7)
    random.shuffle(documents)
    n = len(documents) * 5 // 6
    parts = {"train": pairs(documents[:n], 6), "dev": pairs(documents[n:], 4)}
    output.mkdir(parents=True, exist_ok=True)
    for name, rows in parts.items():
        with open(output / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("first", "second", "order"), *rows])
    numbers, labels = (
        {name: [of(row) for row in rows] for name, rows in parts.items()} for of in (lengths, lambda r: r[2])
    )
    judge = GradientBoostingClassifier(random_state=0).fit(numbers["train"], labels["train"])
    right = judge.score(numbers["dev"], labels["dev"])
    print(f"{len(labels['train'])} and {len(labels['dev'])} pairs; lengths predict {100 * right:.1f}% of the latter")


if __name__ == "__main__":
    main()
