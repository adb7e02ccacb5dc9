"""A mixture draws from each corpus by its weight, in that corpus's own order, and each sample is what it is alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.pretraining.conftest import prepare_texts

from albert.pretraining.batches import MixedSamples, open_corpora
from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.run import pretrain
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.runtime.errors import InvalidConfiguration
from albert.text.prepare import prepare
from albert.text.sentencepiece import train_tokenizer


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
def test_every_corpus_gets_its_share_of_every_stretch(parts, weights):
    mixed = MixedSamples(parts, weights)
    corpora, _ = mixed.locate(np.arange(60_000))
    asked = np.array(weights if weights else [part.per_epoch for part in parts], dtype=float)
    for begin, end in ((0, 60_000), (0, 500), (31_000, 31_500)):
        counts = np.bincount(corpora[begin:end], minlength=3)
        assert np.abs(counts - (end - begin) * asked / asked.sum()).max() <= 3


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=3), st.integers(0, 10**12))
def test_no_sample_is_left_out_or_repeated(weights, first):
    mixed = MixedSamples.__new__(MixedSamples)
    shares = np.array(weights)
    mixed._shares = np.maximum(1, np.rint(1e6 * shares / shares.sum())).astype(np.int64).tolist()
    numbers = np.arange(first, first + 400)
    corpora, within = mixed.locate(numbers)
    for corpus in range(len(weights)):
        assert (np.diff(within[corpora == corpus]) == 1).all()
    if first == 0:
        assert all(within[corpora == corpus][:1].tolist() in ([], [0]) for corpus in range(len(weights)))


def test_a_sample_of_a_mixture_is_a_sample_of_its_corpus(parts):
    mixed = MixedSamples(parts, (3, 2, 1))
    numbers = np.array([5, 0, 77, 3, 3, 1000, 12])
    corpora, within = mixed.locate(numbers)
    for found, corpus, number in zip(mixed.batch(numbers).unbatch(), corpora, within, strict=True):
        for ours, theirs in zip(found, parts[corpus].sample(int(number)), strict=True):
            assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("weights", [(1, 1), (1, 1, 0), (1, 1, -1)])
def test_each_corpus_needs_a_weight(parts, weights):
    with pytest.raises(InvalidConfiguration, match="need as many weights above 0"):
        MixedSamples(parts, weights)


def test_corpora_of_two_tokenizers_are_not_mixed(corpora, tiny_texts):
    prepare([corpora / "of-a" / "raw"], train_tokenizer(tiny_texts, vocab_size=280), corpora / "other", workers=1)
    with pytest.raises(InvalidConfiguration, match="another tokenizer"):
        open_corpora([corpora / "a", corpora / "other"], verify=False)
    with pytest.raises(InvalidConfiguration, match="names a corpus twice"):
        open_corpora([corpora / "a", corpora / "a"], verify=False)


def test_a_run_over_a_mixture_ends_in_a_model_and_minds_its_corpora(corpora, tiny_recipe, tmp_path):
    recipe = replace(tiny_recipe, mixture=(3.0, 1.0))
    both = [corpora / "a", corpora / "b"]
    result = pretrain(recipe, both, tmp_path / "run", "cpu")
    assert result.evaluation["masked_tokens_loss"] > 0
    card = (result.model / "README.md").read_text()
    assert card.count("tokens of 300 pieces") == 2
    assert "mixture" in card
    with pytest.raises(InvalidConfiguration, match="need as many weights"):
        pretrain(recipe, corpora / "a", tmp_path / "other", "cpu")
    with pytest.raises(InvalidConfiguration, match="mixture"):
        pretrain(replace(recipe, mixture=()), both, tmp_path / "run", "cpu")
