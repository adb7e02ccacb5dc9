"""Many runs of tokens at once, wherever shards end, whatever is mapped."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.text import shards
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.shards import TokenCorpus


@pytest.fixture(scope="module")
def corpus(documents, tokenizer, tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    (place / "raw").mkdir()
    for number, text in enumerate(documents[:60]):
        (place / "raw" / f"{number:03d}.txt").write_text(text, encoding="utf-8")
    prepare([place / "raw"], tokenizer, place / "data", PreparationSettings(held_out=0.0, shard_bytes=5_000), workers=1)
    return TokenCorpus.open(place / "data")


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20))
def test_runs_are_copied_to_their_places(corpus, bounds):
    assert corpus.n_shards > 4
    everything = corpus.read(0, corpus.n_tokens)
    starts, ends = np.sort(np.array(bounds) * corpus.n_tokens, axis=1).astype(np.int64).T
    lengths = ends - starts
    places = np.cumsum(lengths + 1) - lengths
    out = np.full(int((lengths + 1).sum()) + 1, -1)
    corpus.copy_runs(out, places, starts, lengths)
    expected = np.full_like(out, -1)
    for place, start, end in zip(places, starts, ends, strict=True):
        expected[place : place + end - start] = everything[start:end]
    assert (out == expected).all()


def test_no_more_shards_are_mapped_than_allowed(corpus, monkeypatch):
    monkeypatch.setattr(shards, "OPEN_SHARDS", 2)
    everything = corpus.read(0, corpus.n_tokens)
    assert len(corpus._mapped) <= max(2, corpus.n_shards)
    fresh = TokenCorpus.open(corpus.directory)
    for place in np.linspace(0, corpus.n_tokens - 5, 40).astype(int).tolist():
        assert (fresh.read(place, place + 5) == everything[place : place + 5]).all()
        assert len(fresh._mapped) <= 2
