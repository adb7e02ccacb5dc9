"""A little of everything that trials need, made of chapters of the sample: text, tokenizer, corpus, recipe, table."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from albert.experiments.quickstart import Passage, cut_passages, load_chapters, write_passages, write_text_corpus
from albert.model.config import AlbertConfig
from albert.optim.optimizer import OptimizerRecipe
from albert.optim.recipe import ScheduleRecipe
from albert.pretraining.recipe import PretrainingRecipe
from albert.pretraining.sampling import SequenceRecipe
from albert.runtime.json_files import save_json
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.sentencepiece import train_tokenizer

CHAPTERS = 40
CHARACTERS = 1_500
"""Of each chapter, from its begin."""
PIECES = 400
RECIPE = PretrainingRecipe(
    model=AlbertConfig(
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
"""Twelve updates of two layers, dropout included, that evaluate and save every few."""


@dataclass(frozen=True)
class Material:
    """What lies in a folder, and the words of commands on it."""

    folder: Path

    @property
    def text(self) -> Path:
        """A folder of two files of documents."""
        return self.folder / "text"

    @property
    def tokenizer(self) -> Path:
        """A tokenizer."""
        return self.folder / "tokenizer"

    @property
    def corpus(self) -> Path:
        """The text, prepared."""
        return self.folder / "corpus"

    def pretrain(self, output: Path, recipe: PretrainingRecipe = RECIPE, *more: str) -> list[str]:
        """`albert pretrain` of a recipe, which is kept beside the output."""
        path = output.with_suffix(".recipe.json")
        if not path.exists():
            save_json(path, recipe)
        return ["pretrain", str(path), "--data", str(self.corpus), "--output", str(output), "--device", "cpu", *more]

    def prepare(self, output: Path, *more: str) -> list[str]:
        """`albert prepare` of the text, in shards of some documents each."""
        words = ["prepare", str(self.text), "--tokenizer", str(self.tokenizer), "--output", str(output)]
        return [*words, "--held-out", "0.2", "--shard-megabytes", "0.012", "--workers", "1", *more]

    def finetune(self, model: Path, output: Path, *more: str) -> list[str]:
        """`albert finetune` of a model on passages of three kinds: three updates, the best model of all is taken."""
        tables = ["--train", str(self.folder / "train.jsonl"), "--dev", str(self.folder / "dev.jsonl")]
        names = ["--text", "text", "--label", "label", "--device", "cpu", "--select", "best"]
        often = ["--epochs", "1", "--batch-size", "8", "--evaluate-every", "1", "--checkpoint-every", "1"]
        return ["finetune", *tables, *names, *often, "--model", str(model), "--output", str(output), *more]


def small_material(folder: Path) -> Material:
    """Make it; always the same bytes."""
    made = Material(folder)
    made.text.mkdir(parents=True)
    chapters = [replace(chapter, text=chapter.text[:CHARACTERS]) for chapter in load_chapters()[-CHAPTERS:]]
    write_text_corpus(made.text / "one.jsonl", chapters[::2])
    write_text_corpus(made.text / "two.jsonl", chapters[1::2])
    tokenizer = train_tokenizer([chapter.text for chapter in chapters], vocab_size=PIECES)
    tokenizer.save(made.tokenizer)
    prepare([made.text], tokenizer, made.corpus, PreparationSettings(held_out=0.2), workers=1)
    cut = [passage for chapter in chapters for passage in cut_passages(chapter)]
    passages = [Passage(passage.text, str(number % 3), passage.chapter) for number, passage in enumerate(cut)]
    write_passages(folder / "train.jsonl", passages[:24])
    write_passages(folder / "dev.jsonl", passages[24:36])
    return made


def with_steps(steps: int, recipe: PretrainingRecipe = RECIPE) -> PretrainingRecipe:
    """The recipe with another number of updates."""
    return replace(recipe, schedule=replace(recipe.schedule, total_steps=steps))


def sums(folder: Path, counts: Callable[[str], bool] = lambda name: True) -> dict[str, str]:
    """SHA-256 of every file below a folder by its name, of those that count."""
    return {
        name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and counts(name := path.relative_to(folder).as_posix())
    }
