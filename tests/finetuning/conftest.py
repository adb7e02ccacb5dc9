"""A small vocabulary, a tiny model directory, and tiny data for every kind of target."""

import json
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from tests.tiny import tiny_config

from albert.checkpoints.model_directory import save_model_directory
from albert.finetuning import objective
from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig
from albert.tasks.metrics import multi_label_scores, tag_metrics
from albert.tasks.submission import DECLARED
from albert.tasks.task import Labels, Row, Rows, Single, Tags, Task, TaskRecipe, Words

NOUNS = ("ship", "sailor", "storm", "island", "captain", "window", "doctor", "letter")
PLAIN_WORDS = (*NOUNS, "river", "stone", "candle", "garden", "horse", "mountain", "silver", "winter")


@pytest.fixture(scope="session")
def config(tokenizer) -> AlbertConfig:
    return tiny_config(
        tokenizer.vocab_size, embedding_size=16, hidden_size=32, intermediate_size=64, max_position_embeddings=64
    )


@pytest.fixture(scope="session")
def pretrained(config, tokenizer_directory, tmp_path_factory) -> Path:
    """A model directory with pre-training heads (its weights are random, which no test minds)."""
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("models") / "pretrained"
    save_model_directory(path, AlbertForPreTraining(config), tokenizer_directory)
    return path


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """16 examples of a choice, a score, a span and an option, the same for training and development.

    Of the spans that may be absent there are 32: each text is asked something that it does not say, too.
    """
    folder = tmp_path_factory.mktemp("data")
    texts = [f"the {first} saw the {second}" for first in NOUNS for second in NOUNS[:2]]
    choice = "".join(f"{text}\t{i // 8}\n" for i, text in enumerate(texts))
    score = "".join(f"{text}\tthe {NOUNS[i % 3]}\t{(i // 4) + 0.5}\n" for i, text in enumerate(texts))
    paragraphs, open_paragraphs, passages = [], [], []
    for i, text in enumerate(texts):
        noun = NOUNS[i // 2]
        answer = {"text": noun, "answer_start": text.index(noun)}
        paragraphs.append({"context": text, "qas": [{"id": str(i), "question": "who saw?", "answers": [answer]}]})
        qas = paragraphs[-1]["qas"]
        absent = {"id": f"{i}-absent", "question": "what sank there?", "answers": [], "is_impossible": True}
        open_paragraphs.append({"context": text, "qas": [*qas, absent]})
        options = [NOUNS[4 + (i + shift) % 4] for shift in range(3)]
        options.insert(i % 4, NOUNS[i // 4])
        answer = "ABCD"[i % 4]
        level = ("middle", "high")[i % 2]
        passages.append(
            {
                "id": f"{level}{i}.txt",
                "article": text,
                "questions": ["it was a _ ."],
                "options": [options],
                "answers": [answer],
            }
        )
    questions = json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]})
    for split in ("train", "dev"):
        for name, header, body in (
            ("choice", "sentence\tlabel\n", choice),
            ("score", "sentence1\tsentence2\tscore\n", score),
        ):
            (folder / name).mkdir(exist_ok=True)
            (folder / name / f"{split}.tsv").write_text(header + body)
        (folder / f"{split}-v1.1.json").write_text(questions)
        (folder / f"{split}-v2.0.json").write_text(json.dumps({"data": [{"paragraphs": open_paragraphs}]}))
        for passage in passages:
            place = folder / "RACE" / split / passage["id"].rstrip("0123456789.tx") / passage["id"]
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(json.dumps(passage) + "\n\n")
    return folder


@dataclass(frozen=True)
class Written:
    """The same rows for training and development, written down in a test."""

    columns: tuple[Mapping[str, str | tuple[str, ...]], ...]
    splits: tuple[str, ...] = ("train", "dev")

    def with_files(self, files: Mapping[str, Path]) -> "Written":
        return self

    def read(self, data: Path, split: str) -> Rows:
        rows = [Row(str(i), f"{split}:{i + 1}", fields) for i, fields in enumerate(self.columns)]
        return Rows(rows, {"rows": len(rows)})


def sixteen_tagged() -> tuple[Mapping[str, tuple[str, ...]], ...]:
    """Captains and islands are named; one sentence is empty, one too long for a window, one word has no piece."""
    sentences = []
    for i in range(13):
        first, second = NOUNS[i % 8], NOUNS[(i * 3 + 1) % 8]
        words = ("the", first, "island", "saw", "the", second, "captain", "\u0301")[: 7 + i % 2]
        tags = ("O", "B-LOC", "I-LOC", "O", "O", "B-PER", "I-PER", "O")[: 7 + i % 2]
        sentences.append({"words": words, "tags": tags})
    sentences.append({"words": (), "tags": ()})
    long = [(("the", NOUNS[i % 8], "island"), ("O", "B-LOC", "I-LOC")) for i in range(20)]
    sentences.append({"words": sum((w for w, _ in long), ()), "tags": sum((t for _, t in long), ())})
    sentences.append({"words": ("ship", "island"), "tags": ("I-LOC", "I-LOC")})
    return tuple(sentences)


UNDECLARED = {
    "tags": Task(
        name="tags",
        source=Written(sixteen_tagged()),
        inputs=Words("words"),
        target=Tags(("O", "B-PER", "I-PER", "B-LOC", "I-LOC"), "tags"),
        metrics=tag_metrics(("O", "B-PER", "I-PER", "B-LOC", "I-LOC")),
        recipe=TaskRecipe(learning_rate=1e-3, batch_size=8, epochs=1.0),
    ),
    "labels": Task(
        name="labels",
        source=Written(
            tuple(
                {
                    "sentence": f"{NOUNS[i // 4]} {NOUNS[i % 4]}",
                    "about": tuple(noun for noun in NOUNS[:4] if noun in (NOUNS[i // 4], NOUNS[i % 4])),
                }
                for i in range(16)
            )
        ),
        inputs=Single("sentence"),
        target=Labels(NOUNS[:4], "about"),
        metrics=(multi_label_scores,),
        recipe=TaskRecipe(learning_rate=1e-3, batch_size=8, epochs=1.0),
    ),
}


@pytest.fixture(params=["sst-2", "sts-b", "squad-1.1", "squad-2.0", "race", *UNDECLARED])
def task(request) -> Task:
    """One task of each kind of target, with a recipe for a tiny model."""
    declared = (DECLARED | UNDECLARED)[request.param]
    recipe = replace(
        declared.recipe,
        learning_rate=3e-3,
        batch_size=8,
        steps=240 if isinstance(declared.target, Labels) else 120,  # each label has a quarter of the loss
        epochs=None,
        examples=None,
        warmup_share=0.1,
        max_length=32,
        question_length=8,
        stride=8,
        head_dropout=0.0,
    )
    return replace(declared, recipe=recipe)


@pytest.fixture
def task_data(task, data) -> Path:
    """The folder of the task's files."""
    return {"sst-2": data / "choice", "sts-b": data / "score"}.get(task.name, data)


@pytest.fixture
def interrupted(monkeypatch):
    """A block in which a run is interrupted behind its first so many micro-batches."""

    @contextmanager
    def interrupted(behind: int, distilled: bool = False):
        place, name = (objective.DistillationLoss, "__call__") if distilled else (objective, "task_loss")
        inner, calls = getattr(place, name), []

        def loss(*arguments):
            calls.append(arguments)
            if len(calls) > behind:
                raise KeyboardInterrupt
            return inner(*arguments)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(place, name, loss)
            yield

    return interrupted
