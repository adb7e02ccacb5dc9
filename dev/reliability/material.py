"""Small corpora, models and tables, always with the same bytes, and commands that use them."""

import contextlib
import io
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import torch
from dev.reliability.report import CHECKOUT

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.commands.sample import Passage, cut_passages, load_chapters, write_passages, write_text_corpus
from albert.inference.int8 import quantize_directory
from albert.model.albert import AlbertForPreTraining, AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.optim.optimizer import OptimizerRecipe
from albert.recipes.architecture import EncoderConfig
from albert.recipes.pretraining import PretrainingRecipe, ScheduleRecipe, SequenceRecipe
from albert.runtime.files import new_directory
from albert.runtime.json_files import save_versioned
from albert.runtime.manifest import file_hash, files_below
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.sentencepiece import train_tokenizer
from albert.text.tokenizer_loading import load_tokenizer

TENSORFLOW = CHECKOUT / "tests" / "checkpoints" / "tensorflow" / "classifier"
"""A checkpoint written by TensorFlow."""
CHAPTERS, CHARACTERS = 40, 1_500
"""Number of chapters of the sample texts, and characters of each."""
PIECES = 300
RECIPE = PretrainingRecipe(
    model=EncoderConfig(
        vocab_size=PIECES,
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    ),
    sequences=SequenceRecipe(max_length=32),
    optimizer=OptimizerRecipe(learning_rate=4e-3, beta2=0.99),
    schedule=ScheduleRecipe(total_steps=12, warmup_steps=3),
    batch_size=8,
    micro_batch_size=4,
    precision="fp32",
    log_every=4,
    evaluate_every=3,
    evaluation_sequences=24,
    checkpoint_every=2,
)
"""Two layers with dropout, twelve updates, with frequent evaluations and checkpoints."""


def with_steps(steps: int, **changes: int) -> PretrainingRecipe:
    """The recipe with another number of updates and other changes."""
    return replace(RECIPE, schedule=replace(RECIPE.schedule, total_steps=steps), **changes)


SHORT = with_steps(4, evaluate_every=4, log_every=2)
SAVES = replace(SHORT, keep_checkpoints=1)
"""Saves two checkpoints, removes the first, and writes a model."""
LABELS = {"id2label": {0: "negative", 1: "positive"}, "problem_type": "single_label_classification"}


class Material:
    """Parts that are made on first use, unless given; they are never written to."""

    def __init__(self, folder: Path, **parts: Path) -> None:
        self.folder = folder
        vars(self).update(parts)
        folder.mkdir(parents=True, exist_ok=True)
        self._chapters = [replace(each, text=each.text[:CHARACTERS]) for each in load_chapters()[-CHAPTERS:]]
        self._documents = [chapter.text for chapter in self._chapters]

    @cached_property
    def text(self) -> Path:
        """A folder with two files of documents."""
        (self.folder / "text").mkdir()
        write_text_corpus(self.folder / "text" / "one.jsonl", self._chapters[::2])
        write_text_corpus(self.folder / "text" / "two.jsonl", self._chapters[1::2])
        return self.folder / "text"

    @cached_property
    def tables(self) -> Path:
        """A folder with train.jsonl and dev.jsonl, tables of passages with three labels."""
        cut = [passage for chapter in self._chapters for passage in cut_passages(chapter)]
        passages = [Passage(passage.text, str(number % 3), passage.chapter) for number, passage in enumerate(cut)]
        write_passages(self.folder / "train.jsonl", passages[:24])
        write_passages(self.folder / "dev.jsonl", passages[24:36])
        return self.folder

    tokenizer = cached_property(lambda self: self._tokenizer("tokenizer", self._documents))
    other_tokenizer = cached_property(
        lambda self: self._tokenizer("other-tokenizer", [text.upper()[::-1] for text in self._documents])
    )
    corpus = cached_property(lambda self: self._corpus("corpus", 0))
    other_corpus = cached_property(lambda self: self._corpus("other-corpus", 1))  # with other held-out documents
    pretrained = cached_property(lambda self: self._model("pretrained", AlbertForPreTraining(_config(0))))
    other_pretrained = cached_property(lambda self: self._model("other-pretrained", AlbertForPreTraining(_config(1))))
    classifier = cached_property(
        lambda self: self._model("classifier", AlbertForSequenceClassification(_config(2), 2), LABELS)
    )
    answerer = cached_property(lambda self: self._model("answerer", AlbertForQuestionAnswering(_config(3))))
    pretraining_run = cached_property(lambda self: self._run("run", 0))  # keeps the checkpoints of steps 2 and 4
    other_run = cached_property(lambda self: self._run("other-run", 1))

    @cached_property
    def quantized(self) -> Path:
        """The pre-trained model in int8."""
        quantize_directory(self.pretrained, self.folder / "quantized")
        return self.folder / "quantized"

    def _tokenizer(self, name: str, documents: list[str]) -> Path:
        with new_directory(self.folder / name) as directory:
            train_tokenizer(documents, vocab_size=PIECES).save(directory)
        return self.folder / name

    def _corpus(self, name: str, seed: int) -> Path:
        settings = PreparationSettings(held_out=0.2, seed=seed)
        prepare([self.text], load_tokenizer(self.tokenizer), self.folder / name, settings, workers=1)
        return self.folder / name

    def _model(self, name: str, model: torch.nn.Module, extra: dict | None = None) -> Path:
        save_model_directory(self.folder / name, model, self.tokenizer, extra=extra)
        return self.folder / name

    def _run(self, name: str, seed: int) -> Path:
        code, printed = albert(self.pretrain(self.folder / name, replace(SHORT, seed=seed)))
        if code != 0:
            raise RuntimeError(printed)
        return self.folder / name

    def pretrain(self, output: Path, recipe: PretrainingRecipe = RECIPE) -> list[str]:
        """`albert pretrain` with a recipe, which is saved beside the output."""
        path = output.with_suffix(".recipe.json")
        if not path.exists():
            save_versioned(path, recipe)
        return ["pretrain", str(path), "--data", str(self.corpus), "--output", str(output), "--device", "cpu"]

    def prepare(self, output: Path) -> list[str]:
        """`albert prepare` of the text, in shards of some documents each."""
        words = ["prepare", str(self.text), "--tokenizer", str(self.tokenizer), "--output", str(output)]
        return [*words, "--held-out", "0.2", "--shard-megabytes", "0.012", "--workers", "1"]

    def finetune(self, model: Path, output: Path) -> list[str]:
        """`albert finetune` of a model on the tables: three updates, of which the best is kept."""
        words = ["finetune", "--train", str(self.tables / "train.jsonl"), "--dev", str(self.tables / "dev.jsonl")]
        words += ["--text", "text", "--label", "label", "--device", "cpu", "select=best", "epochs=1"]
        words += ["batch_size=8", "evaluate_every=1", "checkpoint_every=1"]
        return [*words, "--model", str(model), "--output", str(output)]


def _config(seed: int) -> EncoderConfig:
    torch.manual_seed(seed)
    return replace(RECIPE.model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


def albert(words: list[str]) -> tuple[int, str]:
    """Run a command in this process; returns its exit code and standard error."""
    stderr = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(stderr):
        code = run(words)
    return code, stderr.getvalue()


# ---- trees of files --------------------------------------------------------------------------------------------------


def sums(folder: Path, include: Callable[[str], bool] = lambda name: True) -> dict[str, str]:
    """The SHA-256 of the files below a folder, by name."""
    return {name: file_hash(folder / name) for name in sorted(files_below(folder)) if include(name)}


def differences(first: dict[str, str], other: dict[str, str]) -> list[str]:
    """Names of files that differ or are missing on one side."""
    return sorted(name for name in first.keys() | other.keys() if first.get(name) != other.get(name))
