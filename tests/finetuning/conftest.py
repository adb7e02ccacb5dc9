"""Tiny data for every kind of target, a tiny pre-trained model, and runs that are interrupted and resumed."""

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
from albert.finetuning.fill_in import Beginning, Recipe, RecipeLike, fill_in
from albert.finetuning.initial_model import PretrainedEncoder
from albert.finetuning.task_run import finetune
from albert.model.albert import AlbertForPreTraining
from albert.recipes.architecture import EncoderConfig
from albert.recipes.finetuning import FinetuningSettings, TaskRecipe
from albert.tables.table import Row, Table
from albert.tasks.declared import DeclaredTask
from albert.tasks.examples import Example
from albert.tasks.inputs import Single, Words
from albert.tasks.metrics import multi_label_scores, tag_metrics
from albert.tasks.multi_label import MultiLabel
from albert.tasks.submission import DECLARED
from albert.tasks.tagging import TokenTagging

NOUNS = ("ship", "sailor", "storm", "island", "captain", "window", "doctor", "letter")
SMALL = ["steps=4", "batch_size=4", "max_length=32", "--device", "cpu"]
PLAIN_WORDS = (*NOUNS, "river", "stone", "candle", "garden", "horse", "mountain", "silver", "winter")


@pytest.fixture(scope="session")
def config(tokenizer) -> EncoderConfig:
    return tiny_config(
        tokenizer.vocab_size, embedding_size=16, hidden_size=32, intermediate_size=64, max_position_embeddings=64
    )


@pytest.fixture(scope="session")
def pretrained(config, tokenizer_directory, tmp_path_factory) -> Path:
    """A model directory with pre-training heads and random weights."""
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("models") / "pretrained"
    save_model_directory(path, AlbertForPreTraining(config), tokenizer_directory)
    return path


@pytest.fixture(scope="session")
def start(pretrained) -> PretrainedEncoder:
    return PretrainedEncoder(str(pretrained))


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Path:
    """16 examples of a choice, a score, a span and an option, the same for training and development.

    SQuAD 2.0 has 32: each context also has a question without an answer.
    """
    folder = tmp_path_factory.mktemp("data")
    texts = [f"the {first} saw the {second}" for first in NOUNS for second in NOUNS[:2]]
    choice = "".join(f"{text}\t{i // 8}\n" for i, text in enumerate(texts))
    score = "".join(f"{text}\tthe {NOUNS[i % 3]}\t{(i // 4) + 0.5}\n" for i, text in enumerate(texts))
    files = {"choice/{}.tsv": "sentence\tlabel\n" + choice, "score/{}.tsv": "sentence1\tsentence2\tscore\n" + score}
    answered, open_questions = [], []
    for i, text in enumerate(texts):
        noun, level = NOUNS[i // 2], ("middle", "high")[i % 2]
        answers = [{"text": noun, "answer_start": text.index(noun)}]
        question = {"id": str(i), "question": "who saw?", "answers": answers}
        absent = {"id": f"{i}-absent", "question": "what sank there?", "answers": [], "is_impossible": True}
        answered.append({"context": text, "qas": [question]})
        open_questions.append({"context": text, "qas": [question, absent]})
        options = [NOUNS[4 + (i + shift) % 4] for shift in range(3)]
        options.insert(i % 4, NOUNS[i // 4])
        passage = {"id": f"{level}{i}.txt", "article": text, "questions": ["it was a _ ."]}
        passage |= {"options": [options], "answers": ["ABCD"[i % 4]]}
        files[f"RACE/{{}}/{level}/{level}{i}.txt"] = json.dumps(passage) + "\n\n"
    files["{}-v1.1.json"] = json.dumps({"data": [{"title": "t", "paragraphs": answered}]})
    files["{}-v2.0.json"] = json.dumps({"data": [{"paragraphs": open_questions}]})
    for name, text in files.items():
        for split in ("train", "dev"):
            path = folder / name.format(split)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return folder


def folder_of(task: str, data: Path) -> Path:
    """The folder with the files of a task."""
    return {"sst-2": data / "choice", "sts-b": data / "score"}.get(task, data)


@dataclass(frozen=True)
class InMemory:
    """A task source with the same rows for training and development."""

    columns: tuple[Mapping[str, str | tuple[str, ...]], ...]
    splits: tuple[str, ...] = ("train", "dev")

    def with_files(self, files: Mapping[str, Path]) -> "InMemory":
        return self

    def read(self, data: Path, split: str) -> Table:
        rows = [Row(str(i), f"{split}:{i + 1}", fields) for i, fields in enumerate(self.columns)]
        return Table(rows, {"rows": len(rows)})


def tagged_sentences() -> tuple[Mapping[str, tuple[str, ...]], ...]:
    """16 sentences: one is empty, one is longer than a window, some have a word without a piece."""
    sentences = []
    for i in range(13):
        first, second = NOUNS[i % 8], NOUNS[(i * 3 + 1) % 8]
        words = ("the", first, "island", "saw", "the", second, "captain", "\u0301")[: 7 + i % 2]
        tags = ("O", "B-LOC", "I-LOC", "O", "O", "B-PER", "I-PER", "O")[: 7 + i % 2]
        sentences.append({"words": words, "tags": tags})
    sentences.append({"words": (), "tags": ()})
    long = [("the", NOUNS[i % 8], "island") for i in range(20)]
    sentences.append({"words": sum(long, ()), "tags": ("O", "B-LOC", "I-LOC") * 20})
    sentences.append({"words": ("ship", "island"), "tags": ("I-LOC", "I-LOC")})
    return tuple(sentences)


TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
PAIRS_OF_NOUNS = [(NOUNS[i // 4], NOUNS[i % 4]) for i in range(16)]
UNDECLARED = {
    "tags": DeclaredTask(
        name="tags",
        source=InMemory(tagged_sentences()),
        inputs=Words("words"),
        target=TokenTagging(TAGS, "tags"),
        metrics=tag_metrics(TAGS),
        recipe=TaskRecipe(learning_rate=1e-3, batch_size=8, epochs=1.0),
    ),
    "labels": DeclaredTask(
        name="labels",
        source=InMemory(
            tuple(
                {"sentence": " ".join(pair), "about": tuple(noun for noun in NOUNS[:4] if noun in pair)}
                for pair in PAIRS_OF_NOUNS
            )
        ),
        inputs=Single("sentence"),
        target=MultiLabel(NOUNS[:4], "about"),
        metrics=(multi_label_scores,),
        recipe=TaskRecipe(learning_rate=1e-3, batch_size=8, epochs=1.0),
    ),
}


@pytest.fixture(params=["sst-2", "sts-b", "squad-1.1", "squad-2.0", "race", *UNDECLARED])
def task(request) -> DeclaredTask:
    """One task of each kind of target, with a recipe for a tiny model."""
    declared = (DECLARED | UNDECLARED)[request.param]
    steps = 240 if isinstance(declared.target, MultiLabel) else 100  # each label has a quarter of the loss
    recipe = replace(declared.recipe, learning_rate=3e-3, batch_size=8, steps=steps, epochs=None, examples=None)
    recipe = replace(recipe, warmup_share=0.1, max_length=32, question_length=8, stride=8, head_dropout=0.0)
    return replace(declared, recipe=recipe)


@pytest.fixture
def task_data(task, data) -> Path:
    return folder_of(task.name, data)


@pytest.fixture
def interrupted(monkeypatch):
    """A block in which a run is interrupted after a number of micro-batches."""

    @contextmanager
    def interrupted(after: int):
        owner, name = objective.TaskLoss, "__call__"
        inner, calls = getattr(owner, name), []

        def loss(*arguments):
            calls.append(arguments)
            if len(calls) > after:
                raise KeyboardInterrupt
            return inner(*arguments)

        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(owner, name, loss)
            yield

    return interrupted


@pytest.fixture
def command(pretrained, tmp_path):
    """The arguments of `albert finetune` for a task, its files and a name of the run."""

    def arguments(task, folder, name, *more):
        start = ["finetune", task, "--model", str(pretrained), "--data", str(folder)]
        return [*start, "--output", str(tmp_path / name), *SMALL, *more]

    return arguments


def weights_of(result) -> bytes:
    return (result.model_directory / "model.safetensors").read_bytes()


@pytest.fixture
def complete_and_resumed(tmp_path, interrupted):
    """The results of an uninterrupted run and of one that was interrupted and resumed, whose weights must be equal."""

    def run(task, start, data, settings, after):
        complete = finetune(task, start, data, tmp_path / "complete", settings=settings)
        with interrupted(after):
            finetune(task, start, data, tmp_path / "stopped", settings=settings)
        assert not (tmp_path / "stopped/model").exists()
        resumed = finetune(task, start, data, tmp_path / "stopped", settings=settings)
        assert weights_of(complete) == weights_of(resumed)
        assert not (tmp_path / "stopped/checkpoints").exists()
        return complete, resumed

    return run


def filled_in(
    task: DeclaredTask, given: RecipeLike = None, width: int = 768, rows: int = 1000, dev: int = 10
) -> Recipe:
    """The recipe of a new run with so many rows, on a model of this width."""
    beginning = Beginning(config=replace(EncoderConfig(), hidden_size=width, num_attention_heads=1))
    examples = [Example("", "", ("a text",))] * rows
    settings = FinetuningSettings(null_threshold="dev")
    return fill_in(task, beginning, given, settings, None, examples, dev, "fp32")[0]
