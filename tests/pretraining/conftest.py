"""A tiny prepared corpus and a recipe for it, and corpora in memory.

`albert` is imported late, after the hook that checks annotations."""

import random
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

SYLLABLES = [consonant + vowel for consonant in "bcdfghlmnprstvw" for vowel in "aeiou"] + ["ing", "er", "tion"]


def make_documents(count: int, seed: int = 0) -> list[str]:
    """Documents of 2 to 14 sentences of 2 to 18 words; of 400 different words."""
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 3))) for _ in range(400)]

    def sentence() -> str:
        return " ".join(rng.choices(words, k=rng.randint(2, 18))).capitalize() + rng.choice(".?!")

    return [" ".join(sentence() for _ in range(rng.randint(2, 14))) for _ in range(count)]


def events(run, name):
    """The records of an event in a run's journal."""
    from albert.runtime.json_files import read_journal

    return [record for record in read_journal(run / "journal.jsonl") if record["event"] == name]


def model_bytes(run):
    return (run / "model" / "model.safetensors").read_bytes()


@pytest.fixture
def killed_at(monkeypatch):
    """A block in which pre-training ends without saving, as if killed, at a given call of the objective."""
    from albert.pretraining import task

    inner = task.pretraining_objective

    @contextmanager
    def killed(call: int):
        calls = []

        def objective(model, batch):
            calls.append(batch)
            if len(calls) == call:
                raise KeyboardInterrupt
            return inner(model, batch)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(task, "pretraining_objective", objective)
            yield calls

    return killed


def prepare_texts(texts, tokenizer, directory, held_out):
    """Prepare a corpus of one file per text; returns its directory."""
    from albert.text.executors import PreparationSettings
    from albert.text.prepare import prepare

    raw = directory / "raw"
    raw.mkdir()
    for number, text in enumerate(texts):
        (raw / f"{number:03d}.txt").write_text(text, encoding="utf-8")
    prepare([raw], tokenizer, directory / "corpus", PreparationSettings(held_out=held_out), workers=1)
    return directory / "corpus"


@pytest.fixture(scope="session")
def tiny_texts():
    """The documents of the tiny corpus."""
    return make_documents(60)


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_texts):
    """A vocabulary of 300 pieces."""
    from albert.text.sentencepiece import train_tokenizer

    return train_tokenizer(tiny_texts, vocab_size=300)


@pytest.fixture(scope="session")
def tiny_corpus(tiny_texts, tiny_tokenizer, tmp_path_factory):
    """The directory of a prepared corpus: 60 documents, about a fifth held out."""
    return prepare_texts(tiny_texts, tiny_tokenizer, tmp_path_factory.mktemp("tiny"), held_out=0.2)


@pytest.fixture(scope="session")
def tiny_samples(tiny_corpus):
    """Training samples of up to 32 tokens."""
    from albert.pretraining.sampling import PretrainingSamples
    from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe
    from albert.text.shards import TokenCorpus

    corpus = TokenCorpus.open(tiny_corpus, "train", verify=False)
    return PretrainingSamples(corpus, SequenceRecipe(max_length=32), MaskingRecipe(), 0)


@pytest.fixture(scope="session")
def tiny_recipe():
    """Two layers of 32, sequences of 32, batches of 8, twelve updates; no dropout, in float32."""
    from dev.reliability.material import RECIPE

    model = replace(RECIPE.model, vocab_size=300, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return replace(RECIPE, model=model, evaluate_every=6, checkpoint_every=None)


@pytest.fixture(scope="session")
def corpus_of(tiny_corpus):
    """A function that makes a corpus in memory from the token ids of documents and sentences."""
    from albert.text.shards import ShardDescription, ShardLengths, TokenCorpus

    real = TokenCorpus.open(tiny_corpus, "train", verify=False)

    class CorpusInMemory(TokenCorpus):
        def __init__(self, documents, shards=1):
            self.directory, self.split, self.description = real.directory, "train", real.description
            parts = [
                documents[len(documents) * i // shards : len(documents) * (i + 1) // shards] for i in range(shards)
            ]
            self._runs = [np.concatenate([np.concatenate(document) for document in part]) for part in parts]
            self._lengths = [
                ShardLengths(
                    np.array([len(sentence) for document in part for sentence in document], dtype="<u4"),
                    np.array([len(document) for document in part], dtype="<u4"),
                )
                for part in parts
            ]
            self._shards = [
                ShardDescription(str(i), len(lengths.documents), len(lengths.sentences), len(run))
                for i, (run, lengths) in enumerate(zip(self._runs, self._lengths, strict=True))
            ]
            self.shard_starts = np.cumsum([0, *map(len, self._runs)], dtype=np.int64)

        def tokens(self, shard):
            return self._runs[shard]

        def lengths(self, shard):
            return self._lengths[shard]

    return CorpusInMemory
