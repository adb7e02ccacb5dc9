r"""Make the SQuAD files of results/README.md from the public subsets: more questions, and questions without an answer.

    python results/squad_files.py ../shared/data squad-files
    albert finetune squad-1.1 --train squad-files/all.json --dev dev-v1.1.json --model small --output runs/squad

- `all.json`: the training subset of SQuAD 1.1 and three files of SQuADShifts.
- `moved.json`: the same, but a third of the questions stands at another paragraph, the one most like the question that
  holds none of its answers (TF-IDF; of the same article where it has several paragraphs): they have no answer there.
  The training questions of SQuAD 2.0 follow.
- `squad2-train.json`, `squad2-dev.json`: the training subset of SQuAD 2.0 with 18 articles of its development set, and
  the other 17 articles (`dev-v2.0-article-split.json.gz`).

scikit-learn is needed (`pip install -e '.[dev]'`).
"""

import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import TfidfVectorizer

Article = dict[str, Any]


def articles(path: Path) -> list[Article]:
    """The articles of a SQuAD file."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        found: list[Article] = json.load(file)["data"]
    return found


def questions(data: list[Article]) -> list[dict[str, Any]]:
    """All questions of some articles."""
    return [question for article in data for paragraph in article["paragraphs"] for question in paragraph["qas"]]


def move(data: list[Article], share: float) -> list[Article]:
    """A copy in which this share of the questions stands at a paragraph that does not answer it.

    Paragraphs of articles with one paragraph are exchanged between these articles.
    """
    alone = [article for article in data if len(article["paragraphs"]) == 1]
    groups = [article["paragraphs"] for article in data if len(article["paragraphs"]) > 1]
    groups.append([article["paragraphs"][0] for article in alone])
    result = []
    for group in groups:
        contexts = [paragraph["context"] for paragraph in group]
        words = TfidfVectorizer(stop_words="english")
        by_context = words.fit_transform(contexts)
        paragraphs: list[dict[str, Any]] = [{"context": context, "qas": []} for context in contexts]
        for here, paragraph in enumerate(group):
            for question in paragraph["qas"]:
                answers = [answer["text"].lower() for answer in question["answers"]]
                near = (by_context @ words.transform([question["question"]]).T).toarray().ravel().argsort()[::-1]
                others = (k for k in near if k != here and not any(a in contexts[k].lower() for a in answers))
                there = next(others, None) if random.random() < share else None
                if there is None:
                    paragraphs[here]["qas"].append(question | {"is_impossible": False})
                else:
                    paragraphs[there]["qas"].append(question | {"is_impossible": True, "answers": []})
        result.append({"title": "moved", "paragraphs": [paragraph for paragraph in paragraphs if paragraph["qas"]]})
    return result


def main(source: Path, target: Path) -> None:
    """Write the four files and print how many questions each has."""
    random.seed(0)
    target.mkdir(parents=True, exist_ok=True)
    squad, shifts = source / "squad", sorted((source / "qa_extra").glob("squadshifts_*.json.gz"))
    everything = [article for path in [squad / "train-v1.1-subset.json.gz", *shifts] for article in articles(path)]
    with gzip.open(squad / "dev-v2.0-article-split.json.gz", "rt", encoding="utf-8") as file:
        held_out = set(json.load(file)["eval"])
    development = articles(squad / "dev-v2.0.json.gz")
    training = articles(squad / "train-v2.0-subset.json.gz")
    training += [article for article in development if article["title"] not in held_out]
    taken = {question["id"] for question in questions(training)}
    for article in (rest := json.loads(json.dumps(everything))):
        for paragraph in article["paragraphs"]:
            paragraph["qas"] = [question for question in paragraph["qas"] if question["id"] not in taken]
    files = {
        "all": everything,
        "moved": [*move(rest, 1 / 3), *training],
        "squad2-train": training,
        "squad2-dev": [article for article in development if article["title"] in held_out],
    }
    for name, data in files.items():
        (target / f"{name}.json").write_text(json.dumps({"version": name, "data": data}), encoding="utf-8")
        asked = questions(data)
        without = sum(not question["answers"] for question in asked)
        print(f"{target / name}.json: {len(asked):,} questions, {without:,} without an answer")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]))
