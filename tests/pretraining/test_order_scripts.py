"""The script that measures what words tell of sentence order."""

import re
import sys

import numpy as np
import pytest
from dev.scripts import order_words

from albert.text.shards import TokenCorpus


@pytest.fixture
def printed(monkeypatch, capsys):
    """Run a script with arguments and return what it prints."""

    def run(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script.__name__, *map(str, arguments)])
        script.main()
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("own_words", [True, False])
def test_words_tell_the_order_if_articles_begin_with_words_of_their_own(own_words, printed, corpus_of, monkeypatch):
    rng = np.random.default_rng(0)
    first, *others = [rng.integers(low, low + 100, (600, 12)) for low in (20 if own_words else 160, 160, 160, 160)]
    corpus = corpus_of(list(zip(first, *others, strict=True)))
    monkeypatch.setattr(TokenCorpus, "open", lambda *_, **__: corpus)
    told, constant = map(float, re.findall(r"([\d.]+)%", printed(order_words, "corpus", 64)))
    assert told > 90 if own_words else abs(told - 50) < 10
    assert 50 <= constant < 60
