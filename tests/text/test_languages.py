"""Languages that live by their accents: with them kept nothing is lost, without them much is, and it is said."""

import unicodedata

import pytest
from tests.text.torture import check_offsets

from albert.text.sentencepiece import SentencePieceTokenizer, VocabularySettings, accents_per_million, train_tokenizer

# The first article of the Universal Declaration of Human Rights, or a part of it, and a few words.
TEXTS = {
    "Vietnamese": "Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Tiếng Việt, ế ộ ữ.",
    "Hindi": "सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता और समानता प्राप्त है। हिन्दी क्षत्रिय पढ़ाई",
    "Thai": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ น้ำ ที่ ก็ ปู่",
    "Arabic": "يُولَدُ جَمِيعُ النَّاسِ أَحْرَارًا مُتَسَاوِينَ فِي الْكَرَامَةِ وَالْحُقُوقِ، آمَنَ مُؤْمِن",
    "Korean": "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 각 간 갈",
    "Russian": "Все люди рождаются свободными и равными в своём достоинстве и правах. Первый май, ёж, Йод.",
    "Japanese": "すべての人間は、生まれながらにして自由であり、尊厳と権利とについて平等である。ガギグ パピプ",
    "Greek": "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. ΰ ϊ",
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Größe, Straße, Öl, Übung.",
    "Hebrew": "כָּל בְּנֵי הָאָדָם נוֹלְדוּ בְּנֵי חוֹרִין וְשָׁוִים בְּעֶרְכָּם וּבִזְכֻיּוֹתֵיהֶם",
}
LOSES_NOTHING = "Korean"  # syllables fall apart, and SentencePiece puts them together again


def composed(text):
    """The text as SentencePiece has it: composed, with single blanks."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


@pytest.fixture(scope="module")
def trained():
    """A vocabulary of all characters of all texts, capitals too."""
    settings = VocabularySettings(keep_accents=True, lower_case=False, character_coverage=1.0)
    texts = [*TEXTS.values(), *map(str.lower, TEXTS.values())]
    return train_tokenizer(texts, vocab_size=330, settings=settings)


# SentencePiece composes neighbours only: in decomposed Arabic a vowel sign stands between a letter and its hamza.
FORMS = [(language, form) for language in TEXTS for form in ("NFC", "NFD") if (language, form) != ("Arabic", "NFD")]


@pytest.mark.parametrize(("language", "form"), FORMS)
def test_with_accents_kept_nothing_is_lost(trained, language, form):
    text = unicodedata.normalize(form, TEXTS[language])
    assert trained.decode(trained.encode(text)) == composed(text)
    assert trained.unk_id not in trained.encode(text)
    lower = SentencePieceTokenizer(trained.model, lower_case=True, keep_accents=True)
    letters = "".join(letter.lower() for letter in composed(text))  # a final sigma stays as it was written
    assert lower.decode(lower.encode(text)) == composed(letters)
    for tokenizer in (trained, lower):
        check_offsets(tokenizer, text)
        places = {place for pair in tokenizer.encode_with_offsets(text)[1] for place in range(*pair)}
        assert places == {place for place, character in enumerate(text) if character != " "}


@pytest.mark.parametrize("language", TEXTS)
def test_with_accents_dropped_much_is_lost_and_it_is_counted(trained, language):
    text = TEXTS[language]
    dropping = SentencePieceTokenizer(trained.model, lower_case=False, keep_accents=False)
    lost = dropping.decode(dropping.encode(text)) != composed(text)
    assert lost == (language != LOSES_NOTHING)
    counted = accents_per_million([text])
    assert (counted > 5_000) == lost
    assert counted == round(
        1e6 * sum(map(bool, map(unicodedata.combining, unicodedata.normalize("NFKD", text)))) / len(text)
    )


def test_accents_are_counted_in_a_sample_of_bounded_size(monkeypatch):
    monkeypatch.setattr("albert.text.sentencepiece.COUNTED_CHARACTERS", 1000)
    assert accents_per_million(["plain " * 100, "é" * 400, "é" * 100_000]) == 400_000
    assert accents_per_million(["plain"]) == accents_per_million([]) == 0
