"""Whatever a command may be given, small and made once: text, tokenizers, prepared corpora, models, a run, tables.

`albert` is imported late: the hook on annotations comes first.
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
    *("--model.embedding-size", "16", "--model.hidden-size", "32", "--model.num-hidden-layers", "2"),
    *("--model.num-attention-heads", "2", "--model.intermediate-size", "64"),
    *("--sequences.max-length", "32", "--batch-size", "2", "--micro-batch-size", "2", "--evaluation-sequences", "4"),
    *("--schedule.total-steps", "4", "--schedule.warmup-steps", "1", "--precision", "fp32", "--device", "cpu"),
    *("--checkpoint-every", "2"),
]
"""Flags that make `albert pretrain quickstart` a matter of a second."""


@dataclass(frozen=True)
class Scene:
    """Places that tests read and never write."""

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
    """A finished run of `albert pretrain quickstart` with `TINY`; it keeps the checkpoints of steps 2 and 4."""
    tables: Path
    """A folder with train.csv and dev.csv: columns review and stars."""

    def fill(self, argument: str, here: Path) -> str:
        """The argument with `{corpus}` and the like, and `{here}`, as paths."""
        return argument.format(**vars(self), here=here)


def make_documents(count: int) -> list[str]:
    """Documents of 4 to 12 sentences of 3 to 15 words; of 300 different words."""
    numbers = random.Random(0)
    words = ["".join(numbers.choices(SYLLABLES, k=numbers.randint(1, 3))) for _ in range(300)]

    def sentence() -> str:
        return " ".join(numbers.choices(words, k=numbers.randint(3, 15))).capitalize() + "."

    return [" ".join(sentence() for _ in range(numbers.randint(4, 12))) for _ in range(count)]


@pytest.fixture(scope="session")
def scene(tmp_path_factory) -> Scene:
    """Everything of `Scene`."""
    from albert.checkpoints.model_directory import save_model_directory
    from albert.cli.main import run
    from albert.model.albert import AlbertForPreTraining, AlbertForSequenceClassification
    from albert.model.config import AlbertConfig
    from albert.text.executors import PreparationSettings
    from albert.text.prepare import prepare
    from albert.text.sentencepiece import train_tokenizer

    root = tmp_path_factory.mktemp("scene")
    places = Scene(*(root / name for name in Scene.__dataclass_fields__))
    documents = make_documents(40)
    places.text.mkdir()
    for number, document in enumerate(documents):
        (places.text / f"{number:02d}.txt").write_text(document, encoding="utf-8")
    for size, corpus in ((180, places.corpus), (160, places.other_corpus)):
        tokenizer = train_tokenizer(documents, vocab_size=size)
        prepare([places.text], tokenizer, corpus, PreparationSettings(held_out=0.2), workers=1)
        if corpus == places.corpus:
            places.tokenizer.mkdir()
            tokenizer.save(places.tokenizer)
    config = AlbertConfig(vocab_size=180, **SHAPE)
    torch.manual_seed(0)
    save_model_directory(places.pretrained, AlbertForPreTraining(config), places.tokenizer)
    head = {"id2label": {0: "negative", 1: "positive"}, "problem_type": "single_label_classification"}
    model = AlbertForSequenceClassification(config, 2)
    save_model_directory(places.classifier, model, places.tokenizer, extra=head)
    assert run(["pretrain", "quickstart", "--data", str(places.corpus), "--output", str(places.run), *TINY]) == 0
    places.tables.mkdir()
    for name in ("train", "dev"):
        rows = "".join(
            f"{document[:60]},{('negative', 'positive')[n % 2]}\n" for n, document in enumerate(documents[:8])
        )
        (places.tables / f"{name}.csv").write_text("review,stars\n" + rows, encoding="utf-8")
    return places


@pytest.fixture
def terminal(monkeypatch, capsys):
    """A function: from now on the output is a terminal of so many columns, without colours."""

    def of(columns: int) -> None:
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TTY_COMPATIBLE", "0")
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    return of
