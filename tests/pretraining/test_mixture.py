"""Mixtures of corpora: shares by weight, the samples of each corpus in its own order, and runs over several corpora."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pretraining.conftest import prepare_texts
from tests.refusals import refusal

from albert.pretraining.run import pretrain
from albert.pretraining.sampling import MixedSamples, PretrainingSamples, open_corpora
from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe
from albert.runtime.errors import CannotCreate, InvalidConfiguration
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.sentencepiece import train_tokenizer
from albert.text.tokenizer_loading import load_tokenizer


@pytest.fixture(scope="module")
def corpora(tiny_texts, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mixture")
    tokenizer = train_tokenizer(tiny_texts, vocab_size=300)
    for name, texts in (("a", tiny_texts[::2]), ("b", tiny_texts[1::2]), ("c", tiny_texts[:5])):
        (folder / f"of-{name}").mkdir()
        prepare_texts(texts, tokenizer, folder / f"of-{name}", 0.2).rename(folder / name)
    return folder


@pytest.fixture(scope="module")
def parts(corpora):
    opened = open_corpora([corpora / name for name in "abc"], verify=True)
    return [PretrainingSamples(corpus, SequenceRecipe(max_length=40), MaskingRecipe(), 7) for corpus in opened]


@pytest.mark.parametrize("weights", [(), (1, 1, 1), (0.7, 0.2, 0.1), (1, 1000, 1)])
def test_every_range_of_samples_has_the_share_of_each_corpus(parts, weights):
    corpora, _ = MixedSamples(parts, weights).locate(np.arange(60_000))
    shares = np.array(weights if weights else [part.per_epoch for part in parts], dtype=float)
    for begin, end in ((0, 60_000), (0, 500), (31_000, 31_500)):
        counts = np.bincount(corpora[begin:end], minlength=3)
        assert np.abs(counts - (end - begin) * shares / shares.sum()).max() <= 3


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=3), st.integers(0, 10**12))
def test_no_sample_is_skipped_or_repeated(weights, first):
    mixed = MixedSamples.__new__(MixedSamples)
    shares = np.array(weights)
    mixed._shares = np.maximum(1, np.rint(1e6 * shares / shares.sum())).astype(np.int64).tolist()
    corpora, within = mixed.locate(np.arange(first, first + 400))
    for corpus in range(len(weights)):
        assert (np.diff(within[corpora == corpus]) == 1).all()
        assert first > 0 or within[corpora == corpus][:1].tolist() in ([], [0])


def test_a_sample_of_a_mixture_is_a_sample_of_its_corpus(parts):
    mixed = MixedSamples(parts, (3, 2, 1))
    numbers = np.array([5, 0, 77, 3, 3, 1000, 12])
    batch = mixed.batch(numbers)
    assert mixed.lengths(numbers).tolist() == batch.lengths.tolist()
    for sample, corpus, number in zip(batch.unbatch(), *mixed.locate(numbers), strict=True):
        assert all(map(np.array_equal, sample, parts[corpus].sample(int(number))))


@pytest.mark.parametrize("weights", [(1, 1), (1, 1, 0), (1, 1, -1)])
def test_each_corpus_needs_a_weight(parts, weights):
    with refusal(InvalidConfiguration, "weights"):
        MixedSamples(parts, weights)


def test_corpora_need_the_same_tokenizer_and_different_paths(corpora, tiny_texts):
    prepare([corpora / "of-a" / "raw"], train_tokenizer(tiny_texts, vocab_size=280), corpora / "other", workers=1)
    for name, message in (("other", "another tokenizer"), ("a", "names a corpus twice")):
        with refusal(InvalidConfiguration, message):
            open_corpora([corpora / "a", corpora / name], verify=False)


def test_a_run_over_a_mixture_records_and_checks_its_corpora(corpora, tiny_recipe, tmp_path, capsys):
    recipe, both = replace(tiny_recipe, mixture=(3.0, 1.0)), [corpora / "a", corpora / "b"]
    result = pretrain(recipe, both, tmp_path / "run", "cpu")
    assert "by different shares" not in capsys.readouterr().err
    assert result.evaluation["masked_tokens_loss"] > 0
    card = (result.model / "README.md").read_text()
    assert card.count("tokens of 300 pieces") == 2 and "mixture" in card
    with refusal(InvalidConfiguration, "weights"):
        pretrain(recipe, corpora / "a", tmp_path / "other", "cpu")
    with refusal(CannotCreate, "mixture"):
        pretrain(replace(recipe, mixture=()), both, tmp_path / "run", "cpu")
    settings, tokenizer = PreparationSettings(held_out=0.5), load_tokenizer(corpora / "a")
    prepare([corpora / "of-b" / "raw"], tokenizer, tmp_path / "half", settings, workers=1)
    pretrain(recipe, [corpora / "a", tmp_path / "half"], tmp_path / "noted", "cpu")
    assert "hold out documents by different shares or seeds: a text in both may be" in capsys.readouterr().err
