"""Paragraphs and sentences: nothing is lost, no sentence crosses a paragraph, wrapped lines are joined."""

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.runtime.errors import InvalidConfiguration
from albert.text import sentences
from albert.text.sentences import (
    LONGEST_SENTENCE,
    WINDOW,
    check_language,
    divide_sentence,
    replace_surrogates,
    split_paragraphs,
    split_sentences,
)

texts = st.text(alphabet=st.sampled_from(list("aB. !?\n\r\u2028\x0bé\ud800\udfff語。")), max_size=80)


@pytest.fixture(scope="module")
def prose(documents):
    return " ".join(documents[:12]).replace("\n", " ")


def squeezed(text):
    return "".join(replace_surrogates(text).split())


@given(texts)
def test_sentences_hold_all_of_the_text(text):
    sentences = split_sentences(text)
    assert squeezed("".join(sentences)) == squeezed(text)
    assert all(sentence == sentence.strip() and sentence for sentence in sentences)


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


@pytest.mark.parametrize("unit", ["x", "It is so. ", "word "])
def test_every_character_is_looked_at_a_few_times_at_most(unit, monkeypatch):
    """sentencex slows down on long texts, so it gets windows; time is linear in the length."""
    seen, split = [], sentences.segment

    def watched(language, text):
        seen.append(len(text))
        return split(language, text)

    monkeypatch.setattr(sentences, "segment", watched)
    text = unit * (2_000_000 // len(unit))
    assert squeezed("".join(split_sentences(text))) == squeezed(text)
    assert max(seen) <= WINDOW
    assert sum(seen) <= 1.5 * len(text)


# ---- languages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "parts"),
    [
        ("en", ["Mr. Jones vs. the U.S. Army, i.e. us.", "At 5 p.m. Mr. X came.", "It cost $3.50 today."]),
        ("en", ['He said "Stop it. Now!" and left.', '"Really?" she asked.', "J. R. R. Tolkien wrote it."]),
        ("en", ["(He left. She stayed.) Then it ended.", "See Fig. 3 below.", "It rained… Then it stopped."]),
        ("de", ["Das ist z. B. gut.", "Am 3. Oktober kam Dr. Müller.", "Er sagte: „Komm her. Sofort!“ und ging."]),
        ("fr", ["Est-ce vrai ?", "Oui.", "« Venez ici ! » dit-il.", "Puis il part."]),
        ("es", ["¿Qué hora es?", "¡Vamos!", "El Sr. López llegó.", "Adiós."]),
        ("ru", ["Он родился в 1799 г. в Москве.", "Потом он уехал."]),
        ("el", ["Πού είσαι;", "Εδώ είμαι."]),
        ("ar", ["هل أنت هنا؟", "نعم، أنا هنا.", "شكرا."]),
        ("ur", ["یہ پہلا جملہ ہے۔", "یہ دوسرا ہے۔"]),
        ("hi", ["यह पहला वाक्य है।", "यह दूसरा है।"]),
        ("hy", ["Սա առաջինն է։", "Սա երկրորդն է։"]),
        ("am", ["ይህ አንድ ነው።", "ይህ ሁለት ነው።"]),
        ("my", ["ဒါပထမဖြစ်သည်။", "ဒါဒုတိယဖြစ်သည်။"]),
    ],
)
def test_sentences_of_many_languages(language, parts):
    assert split_sentences(" ".join(parts), language) == parts


@pytest.mark.parametrize(
    ("language", "parts"),
    [
        ("zh", ["他说：“你好。我走了。”", "然后离开了。", "今天是星期一！", "你呢？"]),
        ("ja", ["「こんにちは。元気ですか？」", "と彼は言った。", "今日は晴れです。"]),
    ],
)
def test_sentences_without_blanks_between_them(language, parts):
    assert split_sentences("".join(parts), language) == parts


def test_an_unknown_language_is_split_by_the_punctuation_of_all():
    assert split_sentences("Ένα. 二。तीन। Four!", "qqq") == ["Ένα.", "二。", "तीन।", "Four!"]


def test_what_is_no_code_of_a_language_is_refused():
    for language in ("en", "de", "zh-Hant", "pt_BR", "sco"):
        check_language(language)
    for language in ("english", "", "EN", "e", "en us"):
        with pytest.raises(InvalidConfiguration, match="is not an ISO 639 code"):
            check_language(language)


# ---- lines that are sentences --------------------------------------------------------------------------------------


def test_lines_are_sentences_as_given_on_request():
    long = "word, " * 1000
    text = f"Dr. Smith. Went home.\r\n\n  two\u2028halves \r{long}\nhard\nwrapped"
    assert split_sentences(text, as_lines=True) == [
        "Dr. Smith. Went home.",
        "two\u2028halves",
        long.strip(),
        "hard",
        "wrapped",
    ]


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\n\r"), max_size=20), max_size=8))
def test_every_filled_line_is_one_sentence(lines):
    expected = [replace_surrogates(line).strip() for line in lines]
    assert split_sentences("\n".join(lines), as_lines=True) == [line for line in expected if line]


# ---- sentences that do not end -------------------------------------------------------------------------------------


@given(st.text(alphabet=st.sampled_from(list("ab ;,語\u0301😀")), max_size=4000))
def test_a_divided_sentence_is_still_whole(text):
    parts = divide_sentence(text)
    assert squeezed("".join(parts)) == squeezed(text)
    assert all(len(part.encode()) <= LONGEST_SENTENCE + 8 for part in parts)


def test_short_sentences_are_not_divided():
    for sentence in ("", "Short.", "a, b; c," * 125, "語" * 333):
        assert divide_sentence(sentence) == [sentence]


def test_a_sentence_is_divided_after_a_clause_else_after_a_word_else_anywhere():
    clauses = "a clause of some words, " * 100
    parts = divide_sentence(clauses.strip())
    assert len(parts) == 4 and all(part.endswith("words,") for part in parts)
    parts = divide_sentence(("word " * 500).strip())
    assert len(parts) == 4 and set(" ".join(parts).split()) == {"word"}
    parts = divide_sentence("x" * 2500)
    assert [len(part) for part in parts] == [625] * 4
    assert [len(part) for part in divide_sentence("語" * 1000)] == [200] * 5


def test_an_accent_stays_with_its_letter():
    parts = divide_sentence("xe\u0301" * 700)
    assert len(parts) == 5 and not any(part.startswith("\u0301") for part in parts)


@pytest.mark.parametrize(
    "text",
    ["so it goes on and on " * 300, "ไปตลาด เธออยู่บ้าน " * 150, "word" * 2000, "a, b, " * 1000],
    ids=["no full stops", "Thai", "no blanks", "a list"],
)
def test_a_document_without_full_stops_has_parts_that_can_be_ordered(text):
    """So two segments of it can be swapped, and no foreign one is needed; two parts fit into 512 tokens of 3 bytes."""
    parts = split_sentences(text, "th" if "ไ" in text else "en")
    assert len(parts) >= 5
    assert all(len(part.encode()) <= LONGEST_SENTENCE for part in parts)
