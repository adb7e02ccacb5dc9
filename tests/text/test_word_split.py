"""Plain text is split into the words of CoNLL."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.text.word_split import word_spans

CASES = [
    ("He lives in (Graz).", "He lives in ( Graz ) ."),
    ("“Boris said: 'Neil is here.'”", "“ Boris said : ' Neil is here . ' ”"),
    ("»Graz« „Wien“ ‘Rome’", "» Graz « „ Wien “ ‘ Rome ’"),
    ("U.S. aid, e.g. U.S.-based Mr. Smith of Acme Inc.", "U.S. aid , e.g. U.S.-based Mr. Smith of Acme Inc."),
    ("George W. Bush scored a C.", "George W. Bush scored a C ."),
    ("I don't, can't, won’t; it's Neil's. DON'T", "I do n't , ca n't , wo n’t ; it 's Neil 's . DO N'T"),
    ("the dogs' O'Neil rock'n'roll '90s", "the dogs ' O'Neil rock'n'roll '90s"),
    ("L'homme vit dans l'Italie d'hier; D'Angelo", "L' homme vit dans l' Italie d' hier ; D'Angelo"),
    ("a 47-year-old from Baden-Baden -- 3-0", "a 47-year-old from Baden-Baden -- 3-0"),
    ("Berlin–Hamburg—Bremen...", "Berlin – Hamburg — Bremen ..."),
    ("10,000 or 5.2%, $100, US$5, -5 on 1996-08-22.", "10,000 or 5.2 % , $ 100 , US$ 5 , -5 on 1996-08-22 ."),
    ("Write to a.b@c.org, or (https://x.org/a?q=1).", "Write to a.b@c.org , or ( https://x.org/a?q=1 ) ."),
    ("AT&T and/or C++ @you #topic", "AT&T and/or C++ @you #topic"),
    ("हिन्दी में है।", "हिन्दी में है ।"),
    ("张三在 Graz。", "张 三 在 Graz 。"),
    ("می‌خواهم بروم؟", "می‌خواهم بروم ؟"),
    ("ne\u0301e 👩‍👧 ❤️!", "ne\u0301e 👩‍👧 ❤️ !"),
    (" \u200b\ufeff\x00 ", ""),
    ("in 🇩🇪🇫🇷: 👍🏽🏴󠁧󠁢󠁥󠁮󠁧󠁿1️⃣.", "in 🇩🇪 🇫🇷 : 👍🏽 🏴󠁧󠁢󠁥󠁮󠁧󠁿 1️⃣ ."),
    ("L'Italie, l'ONU, Dell'Aquila, dov'è; aujourd'hui", "L' Italie , l' ONU , Dell' Aquila , dov' è ; aujourd'hui"),
    ("x.org:80/a?b=c, http://x.org/a_(b), x.org/.", "x.org:80/a?b=c , http://x.org/a_(b) , x.org/ ."),
    ("见https://x.org/a。写信给a@b.c给我", "见 https://x.org/a 。 写 信 给 a@b.c 给 我"),
    ("3.14 .5 −5 1.000,50 end.5 a...5", "3.14 .5 −5 1.000,50 end.5 a ... 5"),
    ("タワーに行く。Pythonは", "タワー に 行 く 。 Python は"),
    ("U.K.'s Ph.D. No. 5, No. C# F#", "U.K. 's Ph.D. No. 5 , No . C# F#"),
    ("Neil 's did n't rock 'n' roll 'so'", "Neil 's did n't rock 'n' roll ' so '"),
    ("'s-Hertogenbosch, 't Hooft", "'s-Hertogenbosch , 't Hooft"),
]


@pytest.mark.parametrize(("text", "words"), CASES)
def test_words_are_those_of_conll(text, words):
    assert [text[start:end] for start, end in word_spans(text)] == words.split()


@given(st.text() | st.text("aB1.,'-’\"(@/: \u0301\u200d漢", max_size=40))
def test_every_visible_character_belongs_to_one_word(text):
    spans = word_spans(text)
    assert all(start < end for start, end in spans)
    assert all(left <= right for (_, left), (right, _) in pairwise(spans))
    covered = {index for start, end in spans for index in range(start, end)}
    assert all(index in covered for index, character in enumerate(text) if character.isalnum())
    assert not any(text[start].isspace() or text[end - 1].isspace() for start, end in spans)
