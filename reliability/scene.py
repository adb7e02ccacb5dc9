"""Everything that `albert` writes, once and small: a tokenizer, a corpus, models, runs; the same bytes every time."""

import contextlib
import io
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.main import run
from albert.experiments.quickstart import load_chapters
from albert.inference.int8 import quantize_directory
from albert.model.albert import AlbertForPreTraining, AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.model.config import AlbertConfig
from albert.runtime.files import new_directory
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.sentencepiece import train_tokenizer
from albert.text.tokenizer_loading import load_tokenizer

PIECES = 300
SHAPE: dict[str, Any] = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
_FLAGS = (
    *(f"--model.{name.replace('_', '-')}={value}" for name, value in SHAPE.items()),
    *("--sequences.max-length", "32", "--batch-size", "2", "--micro-batch-size", "2", "--evaluation-sequences", "4"),
    *("--schedule.total-steps", "4", "--schedule.warmup-steps", "1", "--precision", "fp32", "--device", "cpu"),
    *("--checkpoint-every", "2"),
)
_LABELS = {"id2label": {0: "negative", 1: "positive"}, "problem_type": "single_label_classification"}


class Scene:
    """Each part is made when it is first asked for; nobody writes into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.documents = [chapter.text[:3000] for chapter in load_chapters()[::8][:12]]

    @cached_property
    def text(self) -> Path:
        """A folder of documents."""
        place = self.folder / "text"
        place.mkdir()
        for number, document in enumerate(self.documents):
            (place / f"{number:02d}.txt").write_text(document, encoding="utf-8")
        return place

    @cached_property
    def tokenizer(self) -> Path:
        """A tokenizer's directory, with its manifest."""
        return self._tokenizer("tokenizer", PIECES)

    @cached_property
    def other_tokenizer(self) -> Path:
        """One of as many pieces, of other text."""
        return self._tokenizer("other-tokenizer", PIECES, [text.upper()[::-1] for text in self.documents])

    @cached_property
    def corpus(self) -> Path:
        """The text in pieces; a quarter of it held out."""
        return self._corpus("corpus", 0)

    @cached_property
    def other_corpus(self) -> Path:
        """The same text, other documents of it held out."""
        return self._corpus("other-corpus", 1)

    @cached_property
    def pretrained(self) -> Path:
        """A model with the heads of pre-training, of random weights."""
        return self._model("pretrained", AlbertForPreTraining(self._config(0)))

    @cached_property
    def other_pretrained(self) -> Path:
        """Another, of the same shape."""
        return self._model("other-pretrained", AlbertForPreTraining(self._config(1)))

    @cached_property
    def classifier(self) -> Path:
        """A model with the classes negative and positive."""
        return self._model("classifier", AlbertForSequenceClassification(self._config(2), 2), _LABELS)

    @cached_property
    def answerer(self) -> Path:
        """A model that answers questions."""
        return self._model("answerer", AlbertForQuestionAnswering(self._config(3)))

    @cached_property
    def quantized(self) -> Path:
        """The pre-trained one with integers for matrices."""
        quantize_directory(self.pretrained, self.folder / "quantized")
        return self.folder / "quantized"

    @cached_property
    def pretraining_run(self) -> Path:
        """A finished run that keeps the checkpoints of steps 2 and 4."""
        return self._run("run", 0)

    @cached_property
    def other_run(self) -> Path:
        """Another, of another seed."""
        return self._run("other-run", 1)

    @cached_property
    def table(self) -> Path:
        """A table of texts and their labels."""
        rows = (f'"{text[:60]}",{label}' for text in self.documents for label in ("negative", "positive"))
        path = self.folder / "reviews.csv"
        path.write_text("review,stars\n" + "\n".join(row.replace("\n", " ") for row in rows) + "\n", encoding="utf-8")
        return path

    @cached_property
    def finetuning_run(self) -> Path:
        """A finished run on that table."""
        place = self.folder / "tuned"
        words = ["finetune", "--train", str(self.table), "--dev", str(self.table), "--text", "review"]
        words += ["--label", "stars", "--model", str(self.pretrained), "--output", str(place), "--steps", "2"]
        _done([*words, "--batch-size", "4", "--max-length", "16", "--device", "cpu"])
        return place

    def _tokenizer(self, name: str, pieces: int, documents: list[str] | None = None) -> Path:
        with new_directory(self.folder / name) as directory:
            train_tokenizer(documents or self.documents, vocab_size=pieces).save(directory)
        return self.folder / name

    def _corpus(self, name: str, seed: int) -> Path:
        settings = PreparationSettings(held_out=0.25, seed=seed)
        prepare([self.text], load_tokenizer(self.tokenizer), self.folder / name, settings, workers=1)
        return self.folder / name

    def _config(self, seed: int) -> AlbertConfig:
        torch.manual_seed(seed)
        return AlbertConfig(vocab_size=PIECES, **SHAPE)

    def _model(self, name: str, model: torch.nn.Module, extra: dict | None = None) -> Path:
        save_model_directory(self.folder / name, model, self.tokenizer, extra=extra)
        return self.folder / name

    def _run(self, name: str, seed: int) -> Path:
        place = self.folder / name
        words = ["pretrain", "quickstart", "--data", str(self.corpus), "--output", str(place), "--seed", str(seed)]
        _done([*words, *_FLAGS])
        return place


def _done(words: list[str]) -> None:
    with contextlib.redirect_stdout(io.StringIO()):
        code = run(words)
    if code != 0:
        raise RuntimeError(f"albert {' '.join(words)} ended with {code}")
