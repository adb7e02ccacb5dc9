"""ALBERT's tokenizer: ids, offsets, files, the training of its vocabulary, other languages."""

import copy
import json
import random
import shutil
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tests.refusals import refusal
from tests.text.helpers import check_offsets, texts
from tokenizers import Tokenizer as HuggingFaceTokenizer
from transformers import AutoTokenizer

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.text.sentencepiece import (
    SentencePieceTokenizer,
    TrainingReport,
    VocabularySettings,
    accents_per_million,
    sample_documents,
    train_tokenizer,
)
from albert.text.tokenizer import MODEL_NAME, begins_word
from albert.text.tokenizer_loading import load_tokenizer

# ---- ids and offsets -----------------------------------------------------------------------------------------------


@given(text=texts)
@example(text="▁a ▁ b▁")
@example(text="x\u200by")
@example(text="½ﷺ")
@example(text="``")
def test_offsets_are_slices_of_the_text(tokenizer, text):
    check_offsets(tokenizer, text)
    for lower_case in (False, True):
        check_offsets(SentencePieceTokenizer(tokenizer.model, lower_case, keep_accents=True), text)


def test_an_accent_belongs_to_its_letter_in_the_slice(tokenizer):
    text = "Cafe\u0301 z\u0301\u0302\u0303."
    slices = [text[start:end] for start, end in tokenizer.encode_with_offsets(text)[1]]
    assert "".join(slices) == text.replace(" ", "")
    spans = tokenizer.encode_with_offsets("…\u0301")[1]  # every dot of "…" has the accent
    assert {span for span in spans if span[0] != span[1]} == {(0, 2)}


@pytest.mark.parametrize("special", ["[MASK]", "[CLS]", "[SEP]", "<pad>", "<unk>"])
def test_literal_special_piece_is_text(tokenizer, special):
    special_ids = set(tokenizer.special_ids) - {tokenizer.unk_id}
    assert not special_ids & set(tokenizer.encode(f"The {special} of France"))
    kept = SentencePieceTokenizer(tokenizer.model, lower_case=False, keep_accents=True)
    assert not special_ids & set(kept.encode(f"The {special} of France"))


def test_special_pieces_have_the_ids_of_the_released_models(tokenizer):
    pieces = [tokenizer.piece(number) for number in range(13)]
    assert pieces == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "(", ")", '"', "-", ".", "–", "£", "€"]
    ids = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    assert ids == (0, 1, 2, 3, 4)
    assert tokenizer.piece_to_id("[SEP]") == 3
    assert tokenizer.piece_to_id("no such piece") == tokenizer.unk_id


def test_no_piece_joins_a_digit_and_a_comma(tokenizer):
    proto = ModelProto()
    proto.ParseFromString(tokenizer.model)
    for entry, piece in zip(proto.pieces[-3:], ["▁1,", "0,", "00,"], strict=True):
        entry.piece, entry.score = piece, -1.0
    changed = SentencePieceTokenizer(proto.SerializeToString())
    text = "In 2010, and 1, it cost 4,000,"
    pieces = [changed.piece(number) for number in changed.encode(text)]
    assert all(piece == "," or "," not in piece for piece in pieces)
    assert pieces.count(",") == 4
    assert SentencePieceTokenizer(changed.model).model == changed.model  # the penalty is applied once


# ---- files and fingerprints ----------------------------------------------------------------------------------------


def test_ids_equal_those_of_transformers(tokenizer, tokenizer_directory, documents):
    theirs = AutoTokenizer.from_pretrained(tokenizer_directory)
    library = HuggingFaceTokenizer.from_file(str(tokenizer_directory / "tokenizer.json"))
    assert type(theirs).__name__ == "AlbertTokenizer"
    texts = [*documents, "CAFÉ naïve ``quoted'' 1,000, ﬁne １２３ ½ … ガ 가 Ünïcödé", "", "  a \u00a0 b  "]
    for text in texts:
        ids = tokenizer.encode(text)
        assert theirs(text, add_special_tokens=False)["input_ids"] == ids, text
        assert library.encode(text, add_special_tokens=False).ids == ids, text
    assert library.encode("a", "b").type_ids[-1] == 1
    first, second = tokenizer.encode("bating foha"), tokenizer.encode("gudi")
    pair = theirs("bating foha", "gudi")
    assert pair["input_ids"] == [2, *first, 3, *second, 3]
    assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert theirs.model_max_length == 512
    assert (theirs.mask_token_id, theirs.pad_token_id, theirs.unk_token_id) == (4, 0, 1)


def test_saved_tokenizer_is_loaded_unchanged(tokenizer, tokenizer_directory):
    for path in (tokenizer_directory, tokenizer_directory / MODEL_NAME):
        loaded = load_tokenizer(path)
        assert (loaded.model, loaded.fingerprint) == (tokenizer.model, tokenizer.fingerprint)
    assert copy.deepcopy(tokenizer).fingerprint == tokenizer.fingerprint


def test_missing_vocabulary_is_named(tmp_path):
    with refusal(MissingInput, "spiece.model"):
        load_tokenizer(tmp_path)
    with refusal(MissingInput, "nowhere"):
        load_tokenizer(tmp_path / "nowhere")


@given(st.integers(0, 10_000), st.integers(0, 255))
@example(36, 128)  # a special piece that is not UTF-8
def test_damaged_vocabulary_is_refused_or_harmless(tokenizer, position, value):
    data = bytearray(tokenizer.model)
    data[position % len(data)] = value
    try:
        SentencePieceTokenizer(bytes(data)).encode("bating 2010, foha")
    except DamagedData as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("data", [b"", b"no model", b"\x0a\x03abc", b"\0" * 100])
def test_invalid_model_is_refused(tmp_path, data):
    (tmp_path / MODEL_NAME).write_bytes(data)
    with refusal(DamagedData, "spiece.model"):
        load_tokenizer(tmp_path)
    (tmp_path / "30k-clean.vocab").write_text("<pad>\t0\n")
    with refusal(DamagedData, "30k-clean.vocab", ".model"):
        load_tokenizer(tmp_path / "30k-clean.vocab")


def test_flag_that_is_not_boolean_is_refused(tokenizer_directory, tmp_path):
    shutil.copy(tokenizer_directory / MODEL_NAME, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": "yes"}))
    with refusal(InvalidConfiguration, "do_lower_case"):
        load_tokenizer(tmp_path)


def test_begins_word():
    first = ["▁the", "▁", "▁'", ".", ",", "(", "€", "£", "–", "—", "7", "2010", "語", "か", "가", "<x>"]
    others = ["ing", "s", "'s", "n't", "é", "ство", "ος", "ά", "\u0301"]
    assert [piece for piece in (*first, *others) if begins_word(piece)] == first


# ---- training a vocabulary -----------------------------------------------------------------------------------------


def test_training_does_not_depend_on_the_order_of_documents(documents, tokenizer):
    shuffled = documents.copy()
    random.Random(1).shuffle(shuffled)
    assert train_tokenizer(shuffled, vocab_size=300).fingerprint == tokenizer.fingerprint


def test_sample_does_not_depend_on_the_order_of_documents(documents):
    settings = VocabularySettings(maximum_bytes=5_000)
    report = TrainingReport()
    sample = sample_documents(documents, settings, report)
    assert sample == sample_documents(documents[::-1], settings, TrainingReport())
    assert len(documents) > report.documents_used == len(sample)
    assert report.bytes_used == sum(len(text.encode()) for text in sample) <= 5_000
    other = sample_documents(documents, VocabularySettings(maximum_bytes=5_000, seed=1), TrainingReport())
    assert set(other) != set(sample)


def test_vocabulary_smaller_than_the_characters_is_refused(documents):
    with refusal(InvalidConfiguration, "characters"):
        train_tokenizer(documents, vocab_size=20)


@pytest.mark.parametrize("texts", [[], ["", " \n"], ["\u0301"]])
def test_training_without_text_is_refused(texts):
    with refusal(MissingInput, "sentence"):
        train_tokenizer(texts, vocab_size=300)


@pytest.mark.parametrize(
    "values", [{"vocab_size": 0}, {"maximum_bytes": 0}, {"character_coverage": 1.5}, {"maximum_sentences": 100}]
)
def test_settings_out_of_range_are_refused(values):
    with pytest.raises(InvalidConfiguration):
        VocabularySettings(**values)


def test_no_sentence_is_dropped(documents, capfd):
    """SentencePiece drops long ones, and those with reserved characters."""
    report = TrainingReport()
    texts = ["zyzzyva" * 700 + " " + "quokka " * 1000, "jjj\0jjj ▅ jjj" * 50]
    settings = VocabularySettings(as_lines=True)  # without it long sentences are divided before
    trained = train_tokenizer([*documents, *texts], vocab_size=300, settings=settings, report=report)
    assert report.sentences_cut == 1
    assert {"z", "j"} <= {letter for number in range(13, 300) for letter in trained.piece(number)}
    assert capfd.readouterr().out == ""


# ---- languages with accents ----------------------------------------------------------------------------------------

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
LOSES_NOTHING = "Korean"  # SentencePiece composes the decomposed syllables


def composed(text):
    """Return the text as SentencePiece normalises it."""
    return " ".join(unicodedata.normalize("NFKC", text).split())


@pytest.fixture(scope="module")
def trained():
    """A vocabulary of all characters of all texts, including capitals."""
    settings = VocabularySettings(keep_accents=True, lower_case=False, character_coverage=1.0)
    texts = [*TEXTS.values(), *map(str.lower, TEXTS.values())]
    return train_tokenizer(texts, vocab_size=330, settings=settings)


# SentencePiece composes only neighbours: in decomposed Arabic a vowel sign is between a letter and its hamza.
FORMS = [(language, form) for language in TEXTS for form in ("NFC", "NFD") if (language, form) != ("Arabic", "NFD")]


@pytest.mark.parametrize(("language", "form"), FORMS)
def test_text_survives_encoding_with_accents(trained, language, form):
    text = unicodedata.normalize(form, TEXTS[language])
    assert trained.decode(trained.encode(text)) == composed(text)
    assert trained.unk_id not in trained.encode(text)
    lower = SentencePieceTokenizer(trained.model, lower_case=True, keep_accents=True)
    letters = "".join(letter.lower() for letter in composed(text))  # `str.lower` would change a final sigma
    assert lower.decode(lower.encode(text)) == composed(letters)
    for tokenizer in (trained, lower):
        check_offsets(tokenizer, text)
        covered = {index for span in tokenizer.encode_with_offsets(text)[1] for index in range(*span)}
        assert covered == {index for index, character in enumerate(text) if character != " "}


@pytest.mark.parametrize("language", TEXTS)
def test_dropped_accents_are_counted(trained, language):
    text = TEXTS[language]
    dropping = SentencePieceTokenizer(trained.model, lower_case=False, keep_accents=False)
    is_lossy = dropping.decode(dropping.encode(text)) != composed(text)
    assert is_lossy == (language != LOSES_NOTHING)
    accents = sum(unicodedata.combining(character) > 0 for character in unicodedata.normalize("NFKD", text))
    assert accents_per_million([text]) == round(1e6 * accents / len(text))
    assert (accents_per_million([text]) > 5_000) == is_lossy


def test_accents_are_counted_in_a_bounded_sample(monkeypatch):
    monkeypatch.setattr("albert.text.sentencepiece.COUNTED_CHARACTERS", 1000)
    assert accents_per_million(["plain " * 100, "é" * 400, "é" * 100_000]) == 400_000
    assert accents_per_million(["plain"]) == accents_per_million([]) == 0
