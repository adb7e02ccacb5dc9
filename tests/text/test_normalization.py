"""Normalisation is ALBERT's, and every normalised character knows where it came from."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.text.torture import texts

from albert.text.normalization import normalize, normalize_with_alignment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Hello \t\n WORLD  ", "hello world"),
        ("``Quoted''", '"quoted"'),
        ("Héllo, naïve café", "hello, naive cafe"),
        ("ﬁne １２３ ½", "fine 123 1⁄2"),
        ("É", "e"),
        ("İstanbul", "istanbul"),
        ("a\u00a0b\u3000c\u2028d", "a b c d"),
        ("", ""),
        (" \n ", ""),
    ],
)
def test_text_is_normalised_as_the_reference_does(text, expected):
    assert normalize(text) == expected


def test_accents_and_case_stay_on_request():
    assert normalize("Héllo", keep_accents=True) == "héllo"
    assert normalize("Héllo", lower_case=False) == "Hello"
    assert normalize("Héllo", lower_case=False, keep_accents=True) == "Héllo"


def test_half_a_surrogate_pair_becomes_the_replacement_character():
    assert normalize("a\ud800b") == "a\ufffdb"


@given(texts, st.booleans(), st.booleans())
@example("'\u0301'", True, False)
@example("```", True, False)
@example("'''' ``", True, False)
def test_alignment_gives_the_same_text_and_ordered_places(text, lower_case, keep_accents):
    found = normalize_with_alignment(text, lower_case, keep_accents)
    assert found.text == normalize(text, lower_case, keep_accents)
    assert len(found.starts) == len(found.ends) == len(found.text)
    assert all(0 <= start < end <= len(text) for start, end in zip(found.starts, found.ends, strict=True))
    assert list(found.starts) == sorted(found.starts)
    assert list(found.ends) == sorted(found.ends)


@given(texts, st.booleans())
def test_every_character_comes_from_its_place(text, keep_accents):
    found = normalize_with_alignment(text, True, keep_accents)
    for character, start, end in zip(found.text, found.starts, found.ends, strict=True):
        source = normalize(text[start:end], True, keep_accents)
        assert character in source or character == " "


@given(texts)
def test_nothing_but_single_blanks_separates_words(text):
    normalized = normalize(text)
    assert normalized == " ".join(normalized.split())
