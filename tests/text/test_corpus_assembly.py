"""Corpora are put together without writing a shard again, and what does not belong together is refused."""

import json
import os

import pytest

from albert.cli.main import run
from albert.runtime.errors import InvalidConfiguration, MissingInput
from albert.runtime.manifest import verify_directory
from albert.text.executors import PreparationSettings
from albert.text.prepare import merge_corpora, prepare
from albert.text.sentencepiece import train_tokenizer
from albert.text.shards import TokenCorpus

SETTINGS = PreparationSettings(held_out=0.2, shard_bytes=20_000)


@pytest.fixture
def halves(documents, tokenizer, tmp_path):
    """Two corpora, and the files they are made of."""
    for name, texts in (("a", documents[:70]), ("b", documents[70:])):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        prepare([path], tokenizer, tmp_path / name, SETTINGS, workers=1)
    return tmp_path


def tokens(directory, split="train"):
    corpus = TokenCorpus.open(directory, split)
    return corpus.read(0, corpus.n_tokens).tolist()


def test_a_merged_corpus_holds_both_one_after_the_other(halves):
    description = merge_corpora([halves / "a", halves / "b"], halves / "both")
    for split in ("train", "held_out"):
        assert tokens(halves / "both", split) == tokens(halves / "a", split) + tokens(halves / "b", split)
    assert description.documents_in == 150
    assert [source.name for source in description.sources] == ["a.jsonl", "b.jsonl"]
    verify_directory(halves / "both")


def test_merging_writes_no_shard_again(halves):
    merge_corpora([halves / "a", halves / "b"], halves / "both")
    for file in (halves / "a" / "train").iterdir():
        assert os.path.samefile(file, halves / "both" / "train" / file.name)


def test_names_stay_short_however_often_corpora_are_merged(halves):
    place = halves / "a"
    for number in range(5):
        merge_corpora([place, halves / "b", place], halves / f"m{number}")
        place = halves / f"m{number}"
    assert max(len(file.name) for file in (place / "train").iterdir()) <= len("000+00000-00000.sentences.npy")
    assert len(tokens(place)) == 32 * len(tokens(halves / "a")) + 31 * len(tokens(halves / "b"))


def test_appending_gives_what_merging_gives(halves, tokenizer):
    merge_corpora([halves / "a", halves / "b"], halves / "merged")
    prepare([halves / "b.jsonl"], tokenizer, halves / "a", SETTINGS, workers=1, append=True)
    for file in (halves / "merged").rglob("*"):
        if file.is_file():
            assert file.read_bytes() == (halves / "a" / file.relative_to(halves / "merged")).read_bytes()
    assert {p.name for p in halves.iterdir()} == {"a", "b", "a.jsonl", "b.jsonl", "merged"}


def test_appending_needs_something_to_append_to(halves, tokenizer):
    with pytest.raises(MissingInput, match="holds no corpus.json"):
        prepare([halves / "b.jsonl"], tokenizer, halves / "new", SETTINGS, workers=1, append=True)
    assert not (halves / "new").exists()


@pytest.mark.parametrize(
    "settings, why",
    [(PreparationSettings(held_out=0.1), "share of held-out"), (PreparationSettings(held_out=0.2, seed=1), "seed")],
)
def test_a_document_cannot_come_into_both_splits(halves, tokenizer, settings, why):
    before = (halves / "a" / "corpus.json").read_bytes()
    with pytest.raises(InvalidConfiguration, match=why):
        prepare([halves / "b.jsonl"], tokenizer, halves / "a", settings, workers=1, append=True)
    assert (halves / "a" / "corpus.json").read_bytes() == before


def test_tokens_of_two_tokenizers_are_not_mixed(halves, documents):
    other = train_tokenizer(documents[:50], vocab_size=200)
    prepare([halves / "b.jsonl"], other, halves / "c", SETTINGS, workers=1)
    with pytest.raises(InvalidConfiguration, match="another tokenizer"):
        merge_corpora([halves / "a", halves / "c"], halves / "both")
    assert not (halves / "both").exists()


def test_merge_is_a_command(halves, capsys):
    places = [str(halves / name) for name in ("a", "b")]
    assert run(["merge", *places, "--output", str(halves / "both")]) == 0
    assert "is ready" in capsys.readouterr().out
    assert run(["merge", *places, "--output", str(halves / "both")]) == 73
    assert run(["merge", places[0], "--output", str(halves / "one")]) == 2
