"""Small inputs for commands, made once: text, tokenizers, prepared corpora, models, a run, tables.

`albert` is imported inside functions, after the hook on annotations.
"""

import random
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

SYLLABLES = [consonant + vowel for consonant in "bcdfghlmnprstvw" for vowel in "aeiou"] + ["ing", "er", "tion"]
SHAPE = {
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
TINY = [
    *("architecture.embedding_size=16", "architecture.hidden_size=32", "architecture.num_hidden_layers=2"),
    *("architecture.num_attention_heads=2", "architecture.intermediate_size=64"),
    *("max_length=32", "batch_size=2", "micro_batch_size=2", "evaluation_sequences=4"),
    *("steps=4", "schedule.warmup_steps=1", "precision=fp32", "--device", "cpu"),
    "checkpoint_every=2",
]
"""Flags with which `albert pretrain quickstart` takes a second."""


@dataclass(frozen=True)
class Scene:
    """Paths that tests read and never write."""

    text: Path
    """A folder of 40 documents."""
    tokenizer: Path
    corpus: Path
    other_corpus: Path
    """The same text in the pieces of another tokenizer."""
    pretrained: Path
    """A model directory with the heads of pre-training, and the corpus's tokenizer."""
    classifier: Path
    """A model directory with the classes `negative` and `positive`."""
    run: Path
    """A finished run of `albert pretrain quickstart` with `TINY`, with checkpoints of steps 2 and 4."""
    tables: Path
    """A folder with train.csv and dev.csv: columns review and stars."""

    def fill(self, argument: str, here: Path) -> str:
        """The argument with paths for `{corpus}` and other fields, and for `{here}`."""
        return argument.format(**vars(self), here=here)


def make_documents(count: int) -> list[str]:
    """Documents of 4 to 12 sentences of 3 to 15 words, with 300 different words."""
    numbers = random.Random(0)
    words = ["".join(numbers.choices(SYLLABLES, k=numbers.randint(1, 3))) for _ in range(300)]

    def sentence() -> str:
        return " ".join(numbers.choices(words, k=numbers.randint(3, 15))).capitalize() + "."

    return [" ".join(sentence() for _ in range(numbers.randint(4, 12))) for _ in range(count)]


@pytest.fixture(scope="session")
def scene(tmp_path_factory) -> Scene:
    from albert.checkpoints.model_directory import save_model_directory
    from albert.cli.main import run
    from albert.model.albert import AlbertForPreTraining, AlbertForSequenceClassification
    from albert.recipes.architecture import EncoderConfig
    from albert.text.executors import PreparationSettings
    from albert.text.prepare import prepare
    from albert.text.sentencepiece import train_tokenizer

    root = tmp_path_factory.mktemp("scene")
    scene = Scene(*(root / name for name in Scene.__dataclass_fields__))
    documents = make_documents(40)
    scene.text.mkdir()
    for number, document in enumerate(documents):
        (scene.text / f"{number:02d}.txt").write_text(document, encoding="utf-8")
    for size, corpus in ((180, scene.corpus), (160, scene.other_corpus)):
        tokenizer = train_tokenizer(documents, vocab_size=size)
        prepare([scene.text], tokenizer, corpus, PreparationSettings(held_out=0.2), workers=1)
        if corpus == scene.corpus:
            scene.tokenizer.mkdir()
            tokenizer.save(scene.tokenizer)
    config = EncoderConfig(vocab_size=180, **SHAPE)
    torch.manual_seed(0)
    save_model_directory(scene.pretrained, AlbertForPreTraining(config), scene.tokenizer)
    head = {"id2label": {0: "negative", 1: "positive"}, "problem_type": "single_label_classification"}
    model = AlbertForSequenceClassification(config, 2)
    save_model_directory(scene.classifier, model, scene.tokenizer, extra=head)
    assert run(["pretrain", "quickstart", "--data", str(scene.corpus), "--output", str(scene.run), *TINY]) == 0
    scene.tables.mkdir()
    for name in ("train", "dev"):
        rows = "".join(
            f"{document[:60]},{('negative', 'positive')[n % 2]}\n" for n, document in enumerate(documents[:8])
        )
        (scene.tables / f"{name}.csv").write_text("review,stars\n" + rows, encoding="utf-8")
    return scene


@pytest.fixture
def terminal(monkeypatch, capsys):
    """A function that makes the output a terminal of a width, without colours."""

    def set_width(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TTY_COMPATIBLE", "0")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    return set_width
