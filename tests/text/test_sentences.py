"""Paragraphs and sentences: nothing is lost, no sentence crosses a paragraph, wrapped lines are joined."""

import textwrap
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.text.paragraphs import split_paragraphs
from albert.text.sentences import WINDOW, repair_surrogates, split_sentences

texts = st.text(alphabet=st.sampled_from(list("aB. !?\n\r\u2028\x0bé\ud800\udfff語。")), max_size=80)


@pytest.fixture(scope="module")
def prose(documents):
    return " ".join(documents[:12]).replace("\n", " ")


def squeezed(text):
    return "".join(repair_surrogates(text).split())


@given(texts)
def test_sentences_hold_all_of_the_text(text):
    sentences = split_sentences(text)
    assert squeezed("".join(sentences)) == squeezed(text)
    assert all(sentence == sentence.strip() and sentence for sentence in sentences)


@given(texts)
def test_paragraphs_hold_all_of_the_text(text):
    assert "".join("".join(split_paragraphs(text)).split()) == "".join(text.split())


def test_abbreviations_end_no_sentence():
    assert split_sentences("Dr. Smith went home. He slept.") == ["Dr. Smith went home.", "He slept."]


def test_no_sentence_crosses_a_paragraph():
    assert split_sentences("A title without a stop\nThen it began. And\nso on.") == [
        "A title without a stop",
        "Then it began.",
        "And",
        "so on.",
    ]


def test_every_kind_of_line_break_ends_a_paragraph():
    assert split_paragraphs("a\r\nb\rc\u2028d\u2029e\x0bf\x0cg\n\n \nh") == list("abcdefgh")


def test_hard_wrapped_lines_are_joined(prose):
    paragraphs = [prose[:700], prose[700:1500], prose[1500:1550]]
    paragraphs = [" ".join(paragraph.split()) for paragraph in paragraphs]
    for width in (50, 72, 80, 100):
        wrapped = "\n\n".join(
            "\n".join(textwrap.wrap(paragraph, width, break_on_hyphens=False)) for paragraph in paragraphs
        )
        assert split_paragraphs(wrapped) == paragraphs
        assert split_paragraphs(wrapped.replace("\n", "\r\n")) == paragraphs


def test_one_paragraph_per_line_stays_so(documents):
    for document in documents:
        assert split_paragraphs(document) == document.split("\n")


def test_one_sentence_per_line_stays_so(prose):
    sentences = split_sentences(prose)
    assert split_paragraphs("\n".join(sentences)) == sentences


def test_verses_stay_lines():
    verses = (
        "The woods are lovely, dark and deep,\nBut I have promises to keep,\nAnd miles to go before I sleep,\nAnd so"
    )
    assert len(split_paragraphs(verses)) == 4


def test_long_paragraphs_are_split_like_short_ones(prose):
    sentences = split_sentences(prose)
    repeats = 3 * WINDOW // len(prose) + 1
    assert split_sentences(" ".join([prose] * repeats)) == sentences * repeats


def test_time_is_linear_in_the_length():
    def seconds(text):
        best = float("inf")
        for _ in range(2):
            begin = time.process_time()
            split_sentences(text)
            best = min(best, time.process_time() - begin)
        return best

    for unit in ("x", "It is so. "):
        text = unit * (1_000_000 // len(unit))
        assert seconds(text * 2) <= 4 * seconds(text) + 0.05
