"""Normalisation is ALBERT's, and every normalised character knows where it came from."""

import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.text.helpers import normalize_with_alignment, texts

from albert.text.normalization import maps_one_to_one, normalize, normalize_words


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


def by_characters(text, lower_case, keep_accents):
    """The definition: pairs of quotes, then every character for itself."""
    changed = []
    for character in text.replace("``", '"').replace("''", '"'):
        if "\ud800" <= character <= "\udfff":
            changed.append("\ufffd")
            continue
        parts = unicodedata.normalize("NFKC" if keep_accents else "NFKD", character)
        parts = character if keep_accents and len(parts) == 1 else parts
        parts = "".join(part for part in parts if keep_accents or not unicodedata.combining(part))
        changed += [part.lower() if lower_case else part for part in parts]
    return " ".join("".join(changed).split())


@given(texts, st.booleans(), st.booleans())
def test_normalising_a_text_is_normalising_its_characters(text, lower_case, keep_accents):
    assert normalize(text, lower_case, keep_accents) == by_characters(text, lower_case, keep_accents)


@given(texts, st.booleans(), st.booleans())
@example("a´b ´ \u0301 c", True, False)
def test_words_are_normalised_as_in_their_text(text, lower_case, keep_accents):
    words = normalize_words(text.split(), lower_case, keep_accents)
    assert words == [normalize_words([word], lower_case, keep_accents)[0] for word in text.split()]
    assert " ".join(" ".join(words).split()) == normalize(text, lower_case, keep_accents)


@pytest.mark.parametrize("keep_accents", [False, True])
def test_blanks_stay_blanks_and_no_other_character_breaks_a_line(keep_accents):
    """What `normalize_words` and words remembered as they are written rest on."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character.isspace() or not unicodedata.is_normalized("NFKC", character):
            (changed,) = normalize_words(["x" + character.replace("\n", " ") + "x"], True, keep_accents)
            assert "\n" not in changed.strip("\n") or character.isspace(), hex(code)
            assert len(changed.split()) == 2 or not character.isspace(), hex(code)


@given(texts, st.booleans(), st.booleans())
def test_places_are_kept_where_each_character_becomes_one(text, lower_case, keep_accents):
    for word in text.split():
        (changed,) = normalize_words([word], lower_case, keep_accents)
        if maps_one_to_one(word, lower_case, keep_accents) and len(changed) == len(word) and " " not in changed:
            found = normalize_with_alignment(word, lower_case, keep_accents)
            assert found.text == changed
            assert found.starts.tolist() == list(range(len(word)))
            assert found.ends.tolist() == list(range(1, len(word) + 1))
