"""Paragraphs and sentences: no text is lost, no sentence crosses a paragraph, wrapped lines are joined."""

import textwrap

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.refusals import refusal

from albert.runtime.errors import InvalidConfiguration
from albert.text import sentences
from albert.text.sentences import (
    MAX_SENTENCE_LENGTH,
    WINDOW,
    check_language,
    divide_sentence,
    replace_surrogates,
    split_paragraphs,
    split_sentences,
)

texts = st.text(alphabet=st.sampled_from(list("aB. \u00a0!?\n\r\u2028\x0bé\ud800\udfff語。")), max_size=80)


@pytest.fixture(scope="module")
def prose(documents):
    return " ".join(documents[:12]).replace("\n", " ")


def without_blanks(text):
    return "".join(replace_surrogates(text).split())


@given(texts)
@example("Plan B\u00a0. Then C \u2009. It ended.")
def test_sentences_hold_all_text(text):
    sentences = split_sentences(text)
    assert without_blanks("".join(sentences)) == without_blanks(text)
    assert all(sentence == sentence.strip() and sentence for sentence in sentences)


def test_no_sentence_crosses_a_paragraph():
    sentences = ["A title without a stop", "Then it began.", "And", "so on."]
    assert split_sentences("A title without a stop\nThen it began. And\nso on.") == sentences


def test_every_line_break_ends_a_paragraph():
    assert split_paragraphs("a\r\nb\rc\u2028d\u2029e\x0bf\x0cg\n\n \nh") == list("abcdefgh")


@pytest.mark.parametrize("width", [50, 72, 80, 100])
def test_hard_wrapped_lines_are_joined(prose, width):
    paragraphs = [" ".join(text.split()) for text in (prose[:700], prose[700:1500], prose[1500:1550])]
    wrapped = "\n\n".join(textwrap.fill(text, width, break_on_hyphens=False) for text in paragraphs)
    assert split_paragraphs(wrapped) == paragraphs
    assert split_paragraphs(wrapped.replace("\n", "\r\n")) == paragraphs
    chinese = "他说今天的天气很好我们一起去公园散步吧" * 20
    assert split_paragraphs(textwrap.fill(chinese, width)) == [chinese]


def test_lines_of_paragraphs_sentences_and_verses_are_not_joined(documents, prose):
    verses = ["The woods are lovely, dark and deep,", "But I have promises to keep,", "And miles to go before I sleep,"]
    chat = ["他说今天的天气很好我们一起去公园散步吧"[: 14 + n % 5] for n in range(12)]
    for lines in (*(document.split("\n") for document in documents), split_sentences(prose), [*verses, "And so"], chat):
        assert split_paragraphs("\n".join(lines)) == lines


def test_long_paragraph_is_split_like_a_short_one(prose):
    sentences = split_sentences(prose)
    repeats = 3 * WINDOW // len(prose) + 1
    assert split_sentences(" ".join([prose] * repeats)) == sentences * repeats


@pytest.mark.parametrize("unit", ["x", "It is so. ", "word "])
def test_sentencex_gets_windows_of_long_text(unit, monkeypatch):
    """It slows down on long texts; the total length of the windows is linear in the length of the text."""
    lengths, segment = [], sentences.segment

    def recorded(language, text):
        lengths.append(len(text))
        return segment(language, text)

    monkeypatch.setattr(sentences, "segment", recorded)
    text = unit * (2_000_000 // len(unit))
    assert without_blanks("".join(split_sentences(text))) == without_blanks(text)
    assert max(lengths) <= WINDOW
    assert sum(lengths) <= 1.5 * len(text)


@pytest.mark.parametrize(
    ("language", "parts"),
    [
        ("en", ["Mr. Jones vs. the U.S. Army, i.e. us.", "At 5 p.m. Mr. X came.", "It cost $3.50 today."]),
        ("en", ['He said "Stop it. Now!" and left.', '"Really?" she asked.', "J. R. R. Tolkien wrote it."]),
        ("en", ["Dr. Smith went home.", "He slept."]),
        ("en", ["(He left. She stayed.) Then it ended.", "See Fig. 3 below.", "It rained… Then it stopped."]),
        ("de", ["Das ist z. B. gut.", "Am 3. Oktober kam Dr. Müller.", "Er sagte: „Komm her. Sofort!“ und ging."]),
        ("de-AT", ["Das ist z. B. gut.", "Am 3. Oktober kam Dr. Müller."]),
        ("de_at", ["Das ist z. B. gut.", "Am 3. Oktober kam Dr. Müller."]),
        ("de_DE", ["Das ist z. B. gut.", "Am 3. Oktober kam Dr. Müller."]),
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
        ("de", ["Im 19. Jahrhundert kam der 2. Weltkrieg.", "Ludwig XIV. war König.", "Er ist 19.", "Sie ist 20."]),
        (
            "de",
            ["Die Fa. Schmidt zog in den 3. Stock.", "Sie kamen im Jahr 300.", "Rom fiel.", "Das ist Kunst.", "Ja."],
        ),
        (
            "fr",
            [
                "M. Dupont et Mme. Curie vinrent vers 300 av. J.-C. en paix.",
                "J. Berg prit de la vitamine C.",
                "Elle rit.",
            ],
        ),
        ("fr", ["C'est de l'art.", "Voir p. ex. le t. 2, chap. 5.", "Fin."]),
        ("cs", ["V 19. století a 5. května např. Dr. Novák přišel.", "Pak odešel."]),
        ("sk", ["Bol tu 5. mája 1900 a v 19. storočí.", "Zomrel."]),
        ("no", ["Han ble født 17. mai 1814, f.eks. i Oslo.", "Han døde."]),
        ("nb", ["Den 2. verdenskrig kom kl. 5.", "Han døde."]),
        ("da", ["Den 2. Verdenskrig begyndte f.eks. her.", "Han døde."]),
        ("sv", ["Det kom t.ex. bl.a. Dr. Berg.", "Han dog den 5. maj."]),
        ("ar", ["وصل د. أحمد.", "هل جاء؟"]),
        ("fi", ["Hän syntyi 5. toukokuuta, esim. Turussa, ks. s. 5.", "Niin."]),
        ("hu", ["A 19. század végén, 1848. március 15-én pl. Dr. Kovács jött.", "II. Rákóczi Ferenc is.", "Az jó."]),
        ("pl", ["W 1900 r. Maria wyjechała m.in. do Łodzi.", "Umarł w 1900 r.", "Maria płakała.", "Dał im.", "Tak."]),
        ("tr", ["19. yüzyılda M.Ö. 300 gibi oldu.", "Dr. Yılmaz geldi.", "Evet."]),
        ("es", ["La Sra. García y D. Juan, p. ej. en la pág. 5, ganaron a EE. UU. ayer.", "Sí."]),
        ("it", ["Il Sig. Rossi nel 300 a.C. vinse a pag. 5.", "S. Pietro è qui.", "Bene."]),
        ("pt", ["O Sr. Souza e D. Pedro, p. ex. na pág. 5, vieram.", "Fim."]),
        ("nl", ["Dhr. Jansen en mevr. De Vries, d.w.z. o.a. hier.", "Klaar."]),
        ("ro", ["Dl. Popescu stă pe str. Lungă nr. 5.", "Da."]),
        ("hr", ["Rođen je 5. svibnja u 19. stoljeću, npr. dr. Horvat.", "Umro je."]),
        ("sl", ["Rodil se je 5. maja, npr. v Ljubljani.", "Umrl je."]),
        ("et", ["Ta sündis 5. mail, nt. Tartus.", "Ta suri."]),
        ("lv", ["Viņš dzimis 1900. gada 5. maijā.", "Viņš mira."]),
        ("is", ["Hann fæddist 5. maí 1900.", "Hann dó t.d. hér."]),
        ("hi", ["श्री. शर्मा और ए. पी. जे. कलाम आए।", "डॉ. वर्मा गए।"]),
        ("mr", ["श्री. पाटील आले.", "ते गेले."]),
        ("bn", ["ড. রহমান এলেন।", "তিনি গেলেন।"]),
        ("ta", ["திரு. குமார் வந்தார்.", "அவர் போனார்."]),
        ("ru", ["Гр. Толстой и проф. Иванов жили на ул. Ленина, напр. тут.", "Дал им.", "Да."]),
        ("uk", ["Проф. Іваненко, напр. у 1900 р. тут.", "Див. с. 5.", "Так."]),
        ("vi", ["TP. Hồ Chí Minh lớn.", "TS. Nguyễn đi."]),
        ("km", ["នេះជាប្រយោគទីមួយ។", "នេះជាប្រយោគទីពីរ។"]),
        ("bo", ["བོད།", "ཡིག།"]),
        ("qqq", ["Ένα.", "二。", "तीन।", "Four!"]),  # unknown: the punctuation of all scripts
        ("zh", ["他说：“你好。我走了。”", "然后离开了。", "今天是星期一！", "你呢？"]),
        ("ja", ["「こんにちは。元気ですか？」", "と彼は言った。", "今日は晴れです。"]),
        ("pl", ["— Gdzie? — zapytał Jan.", "— Tu!", "— Tak."]),
        ("es", ["—¿Vienes? —preguntó él.", "—Sí."]),
        ("ru", ["— Где? — спросил он.", "— Тут!"]),
        ("nl", ["Hij sprak.", "'s Avonds ging hij.", "Ja.", "'t Is laat."]),
        ("en", ["He left.", "'Good,' she said.", "'Twas so.", "'Tis late."]),
        ("fr", ["J.-J. Rousseau vit l’av. Roux.", "C’est de l’art.", "Bien."]),
        ("it", ["L'art. 3 è dell'avv. Rossi.", "Bene."]),
        ("hu", ["Kb. 3 km volt.", "Igen."]),
        ("sl", ["Npr. tako.", "Da."]),
        ("id", ["Jl. Sudirman No. 5, dll.", "Ia datang."]),
    ],
)
def test_sentences_of_many_languages(language, parts):
    assert split_sentences(("" if language in ("zh", "ja") else " ").join(parts), language) == parts


@pytest.mark.parametrize("language", ["english", "", "EN", "e", "en us"])
def test_invalid_language_is_refused(language):
    for valid in ("en", "de", "zh-Hant", "pt_BR", "sco"):
        check_language(valid)
    with refusal(InvalidConfiguration, "ISO 639"):
        check_language(language)
    with refusal(InvalidConfiguration, "deu_AT"):
        check_language("deu_AT")


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\n\r"), max_size=20), max_size=8))
@example(["Dr. Smith. Went home.", "", "  two\u2028halves ", "word, " * 1000, "hard", "wrapped"])
def test_lines_are_sentences_on_request(lines):
    expected = [replace_surrogates(line).strip() for line in lines]
    assert split_sentences("\n".join(lines), as_lines=True) == [line for line in expected if line]


# ---- long sentences ------------------------------------------------------------------------------------------------


@given(st.text(alphabet=st.sampled_from(list("ab ;,語\u0301😀")), max_size=4000))
@example("xe\u0301" * 700)
def test_parts_of_a_long_sentence_hold_all_of_it(text):
    parts = divide_sentence(text)
    assert without_blanks("".join(parts)) == without_blanks(text)
    assert all(len(part.encode()) <= MAX_SENTENCE_LENGTH + 8 for part in parts)
    if text.startswith("xe\u0301"):
        assert not any(part.startswith("\u0301") for part in parts)  # an accent stays with its letter


@pytest.mark.parametrize("sentence", ["", "Short.", "a, b; c," * 125, "語" * 333])
def test_short_sentence_is_not_divided(sentence):
    assert divide_sentence(sentence) == [sentence]


def test_long_sentence_is_divided_after_a_clause_else_a_word_else_a_character():
    parts = divide_sentence(("a clause of some words, " * 100).strip())
    assert len(parts) == 4 and all(part.endswith("words,") for part in parts)
    parts = divide_sentence(("word " * 500).strip())
    assert len(parts) == 4 and set(" ".join(parts).split()) == {"word"}
    assert [len(part) for part in divide_sentence("x" * 2500)] == [625] * 4
    assert [len(part) for part in divide_sentence("語" * 1000)] == [200] * 5


@pytest.mark.parametrize(
    "text",
    ["so it goes on and on " * 300, "ไปตลาด เธออยู่บ้าน " * 150, "word" * 2000, "a, b, " * 1000],
    ids=["no full stops", "Thai", "no blanks", "a list"],
)
def test_document_without_full_stops_has_several_parts(text):
    """Sentence order needs at least two segments."""
    parts = split_sentences(text, "th" if "ไ" in text else "en")
    assert len(parts) >= 5
    assert all(len(part.encode()) <= MAX_SENTENCE_LENGTH for part in parts)
