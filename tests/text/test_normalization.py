"""ALBERT's normalisation, and the alignment of every normalised character."""

import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.text.helpers import texts

from albert.text.normalization import character_table, normalize, normalize_aligned, normalize_words


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
def test_text_is_normalised_as_in_the_reference(text, expected):
    assert normalize(text) == expected


@given(texts, st.booleans(), st.booleans())
@example("'\u0301'", True, False)
@example("```", True, False)
@example("'''' ``", True, False)
def test_alignment_is_ordered_and_names_the_source_of_each_character(text, lower_case, keep_accents):
    aligned = normalize_aligned(text, character_table(lower_case, keep_accents, True))
    assert " ".join(aligned.text.split()) == normalize(text, lower_case, keep_accents)
    assert list(aligned.starts) == sorted(aligned.starts)
    assert list(aligned.ends) == sorted(aligned.ends)
    for character, start, end in zip(aligned.text, aligned.starts, aligned.ends, strict=True):
        assert 0 <= start < end <= len(text)
        assert character in normalize(text[start:end], lower_case, keep_accents) or character.isspace()


def normalize_by_characters(text, lower_case, keep_accents):
    """The definition: pairs of quotes, then each character alone."""
    result = []
    for character in text.replace("``", '"').replace("''", '"'):
        if "\ud800" <= character <= "\udfff":
            result.append("\ufffd")
            continue
        if keep_accents:  # SentencePiece decomposes, after the letters are lower-cased
            lowered = character.lower() if lower_case else character
            parts = unicodedata.normalize("NFKC", lowered)
            result.append(parts if len(parts) > 1 else lowered)
            continue
        parts = [part for part in unicodedata.normalize("NFKD", character) if not unicodedata.combining(part)]
        result += [part.lower() if lower_case else part for part in parts]
    return " ".join("".join(result).split())


@given(texts, st.booleans(), st.booleans())
@example("a´b ´ \u0301 c", True, False)
@example("№ ™ ℃ ℡ İX ΟΔΟΣ", True, True)
@example("№ ™ ℃ ℡ İX ΟΔΟΣ", True, False)
def test_characters_and_words_are_normalised_as_in_their_text(text, lower_case, keep_accents):
    assert normalize(text, lower_case, keep_accents) == normalize_by_characters(text, lower_case, keep_accents)
    words = normalize_words(text.split(), lower_case, keep_accents, True)
    assert words == [normalize_words([word], lower_case, keep_accents, True)[0] for word in text.split()]
    assert " ".join(" ".join(words).split()) == normalize(text, lower_case, keep_accents)


@pytest.mark.parametrize("keep_accents", [False, True])
def test_blanks_stay_blanks_and_no_other_character_becomes_one(keep_accents):
    """`normalize_words` and the word cache depend on it."""
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if character.isspace() or not unicodedata.is_normalized("NFKC", character):
            (word,) = normalize_words(["x" + character.replace("\n", " ") + "x"], True, keep_accents, True)
            assert "\n" not in word.strip("\n") or character.isspace(), hex(code)
            assert len(word.split()) == 2 or not character.isspace(), hex(code)
