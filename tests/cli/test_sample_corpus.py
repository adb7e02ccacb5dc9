"""The embedded sample: balance, held-out text, sources."""

import gzip
from collections import Counter

import pytest

from albert.commands import sample
from albert.text.sentences import split_sentences


def test_authors_are_balanced():
    sizes = Counter()
    for chapter in sample.load_chapters():
        sizes[chapter.author] += len(chapter.text.encode())
    assert set(sizes) == set(sample.AUTHORS)
    assert min(sizes.values()) > 400_000 and max(sizes.values()) < 460_000
    assert 2_000_000 < sizes.total() < 3_000_000


@pytest.mark.parametrize("author", sample.AUTHORS)
def test_held_out_share_of_each_author(author):
    split = sample.split_chapters()
    held_out = sum(len(chapter.text) for chapter in split.dev if chapter.author == author)
    train = sum(len(chapter.text) for chapter in split.train if chapter.author == author)
    assert 1 / 6 <= held_out / (held_out + train) <= 1 / 4


def test_development_passages_are_held_out_of_pretraining():
    chapters, passages = sample.split_chapters().train, sample.labelled_passages()
    train_ids = {chapter.id for chapter in chapters}
    assert {passage.chapter for passage in passages.dev}.isdisjoint(train_ids)
    assert {passage.chapter for passage in passages.train} <= train_ids
    train = "\n".join(chapter.text for chapter in chapters)
    for passage in passages.dev:
        assert max(split_sentences(passage.text), key=len) not in train


def test_passages_are_balanced_and_unique():
    passages = sample.labelled_passages()
    assert Counter(passage.author for passage in passages.train) == dict.fromkeys(sample.AUTHORS, 500)
    assert Counter(passage.author for passage in passages.dev) == dict.fromkeys(sample.AUTHORS, 100)
    texts = [passage.text for passage in passages.train + passages.dev]
    assert len(set(texts)) == len(texts)


def test_too_long_sentences_are_left_out():
    endless, short = "word " * 150 + "end.", "Here is a sentence of just nine words, plainly."
    chapter = sample.Chapter("id", "Jane Austen", "title", f"{short}\n{endless}\n" + f"{short}\n" * 8)
    passages = sample.cut_passages(chapter)
    assert [passage.text for passage in passages] == [" ".join([short] * 7)]


def test_sources_page_lists_all_chapters(checkout):
    page = (checkout / "src/albert/commands/sample/SOURCE.md").read_text(encoding="utf-8")
    for chapter in sample.load_chapters():
        book, _, name = chapter.id.partition(":")
        assert f"standardebooks/{book}`" in page and f"`{name}`" in page
    assert "CC0 1.0" in page


def test_script_rebuilds_the_sample(shared, checkout, script, tmp_path):
    script("make_sample").main(shared / "data/corpus/books.jsonl.gz", tmp_path)
    embedded = checkout / "src/albert/commands/sample"
    assert (tmp_path / "SOURCE.md").read_bytes() == (embedded / "SOURCE.md").read_bytes()
    # The compressed bytes depend on the build of zlib; the text they hold does not.
    rebuilt, stored = (gzip.decompress((folder / "prose.jsonl.gz").read_bytes()) for folder in (tmp_path, embedded))
    assert rebuilt == stored
