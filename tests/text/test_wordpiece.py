"""WordPiece: ids, offsets and files."""

import json
import random
import shutil
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.text.helpers import ALPHABET, check_offsets, texts
from transformers import AutoTokenizer, BertTokenizer

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.text.sentencepiece import SentencePieceTokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file
from albert.text.wordpiece import WordPieceNormalization, WordPieceTokenizer, basic_words

FLAGS = [
    WordPieceNormalization(),
    WordPieceNormalization(keep_accents=True),
    WordPieceNormalization(lower_case=False, keep_accents=True),
    WordPieceNormalization(lower_case=False),
    WordPieceNormalization(space_ideographs=False),
]


@pytest.fixture(scope="module")
def pairs(wordpiece, tmp_path_factory):
    """For each setting our tokenizer, and that of transformers opened from our files beside a model's configuration."""
    pairs = []
    for number, normalization in enumerate(FLAGS):
        directory = tmp_path_factory.mktemp(f"flags{number}")
        ours = WordPieceTokenizer(wordpiece.vocabulary, normalization)
        ours.save(directory)
        (directory / "config.json").write_text(json.dumps({"model_type": "albert", "architectures": ["AlbertModel"]}))
        pairs.append((ours, AutoTokenizer.from_pretrained(directory)))
    return pairs


def transformers_words(theirs, text):
    """Return the words of a text before WordPiece."""
    backend = theirs.backend_tokenizer
    normalized = backend.normalizer.normalize_str(text)
    return [word for word, _ in backend.pre_tokenizer.pre_tokenize_str(normalized)]


def differs(ours, theirs, character):
    """Return whether the older Unicode tables of the tokenizers library classify a character otherwise."""
    if "\ud800" <= character <= "\udfff":
        return True
    return transformers_words(theirs, f"x{character}x") != basic_words(f"x{character}x", ours.normalization)


@given(text=texts, setting=st.sampled_from(range(len(FLAGS))))
@example(text="中文abc，ＡＢＣ café\u0301 unaffable! [MASK]", setting=0)
@example(text="x" * 100 + " " + "x" * 101, setting=0)
@example(text="한글 가\u0301 ΟΔΟΣ İ", setting=1)
def test_ids_equal_those_of_transformers(pairs, text, setting):
    ours, theirs = pairs[setting]
    check_offsets(ours, text)
    text = "".join(character for character in text if not differs(ours, theirs, character))
    assert ours.encode(text) == theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    assert basic_words(text, ours.normalization) == transformers_words(theirs, text)


def test_only_recent_characters_differ_from_transformers(pairs):
    ours, theirs = pairs[0]
    characters = [*map(chr, range(0x3400)), *map(chr, range(0xA000, 0xAC00)), *ALPHABET]
    differing = [c for c in characters if differs(ours, theirs, c) and unicodedata.category(c) != "Cs"]
    assert len(differing) < 250
    assert {unicodedata.category(c)[0] for c in differing} <= {"M", "P", "C", "S", "L"}
    assert not any(ord(c) < 0x600 for c in differing)


def test_transformers_opens_saved_files_as_bert_tokenizer(pairs):
    ours, theirs = pairs[0]
    assert type(theirs).__name__ == "BertTokenizer"
    assert theirs.model_max_length == 512
    assert tuple(sorted(theirs.all_special_ids)) == ours.special_ids
    first, second = ours.encode("中文 unaffable"), ours.encode("hello")
    pair = theirs("中文 unaffable", "hello")
    assert pair["input_ids"] == [ours.cls_id, *first, ours.sep_id, *second, ours.sep_id]
    assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    ids = ours.encode("Hello, un-affable 中国人! don't")
    for some in (ids, ids[2:], [ours.cls_id, *ids, ours.mask_id], [ours.piece_to_id("##able")]):
        assert ours.decode(some, skip_special_tokens=False) == theirs.decode(some)
        assert ours.decode(some) == theirs.decode(some, skip_special_tokens=True)


def original_words(text, lower_case):
    """BasicTokenizer of the reference."""

    def alone(code):
        blocks = [(0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F)]
        return any(a <= code <= b for a, b in [*blocks, (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)])

    cleaned = ""
    for character in text:
        kind = unicodedata.category(character)
        if character in "\t\n\r" or kind == "Zs":
            cleaned += " "
        elif character not in "\0\ufffd" and kind not in ("Cc", "Cf"):
            cleaned += f" {character} " if alone(ord(character)) else character
    words = []
    for token in cleaned.strip().split():
        if lower_case:
            decomposed = unicodedata.normalize("NFD", token.lower())
            token = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
        for character in token:
            ascii_sign = "!" <= character <= "~" and not character.isalnum()
            sign = ascii_sign or unicodedata.category(character).startswith("P")
            words.append(f" {character} " if sign else character)
        words.append(" ")
    return "".join(words).split()


def original_pieces(word, vocabulary):
    """WordpieceTokenizer of the reference."""
    if len(word) > 200:
        return ["[UNK]"]
    pieces, start = [], 0
    while start < len(word):
        ends = range(len(word), start, -1)
        piece = next((p for end in ends if (p := "##" * (start > 0) + word[start:end]) in vocabulary), None)
        if piece is None:
            return ["[UNK]"]
        pieces.append(piece)
        start += len(piece) - 2 * (start > 0)
    return pieces


def test_an_accent_belongs_to_its_letter_in_the_slice(wordpiece):
    text = "Cafe\u0301\u0302, 中\u0301文"
    slices = [text[start:end] for start, end in wordpiece.encode_with_offsets(text)[1]]
    assert "".join(slices).replace(" ", "") == text.replace(" ", "")
    assert "中\u0301" in slices


@given(text=texts)
@example(text="Hello, 中国 un-affable! 1 . 2")
def test_decoded_text_has_the_same_ids(wordpiece, text):
    encoded = [wordpiece.encode(word) for word in basic_words(text, wordpiece.normalization)]
    ids = [number for word in encoded if wordpiece.unk_id not in word for number in word]
    assert wordpiece.encode(wordpiece.decode(ids)) == ids


def test_ids_of_special_pieces_come_from_the_vocabulary(wordpiece):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    ids = (wordpiece.pad_id, wordpiece.unk_id, wordpiece.cls_id, wordpiece.sep_id, wordpiece.mask_id)
    assert [wordpiece.piece(number) for number in ids] == names
    assert ids != tuple(range(5))
    turned = WordPieceTokenizer([*reversed(wordpiece.vocabulary)])
    assert [turned.piece(number) for number in sorted(turned.special_ids)] != names
    assert turned.encode("[MASK] 中") == [turned.piece_to_id(piece) for piece in ("[", "mask", "]", "中")]
    assert turned.piece_to_id("no such piece") == turned.unk_id


def test_word_starts(wordpiece):
    starts = wordpiece.word_starts()
    assert starts.dtype == np.bool_
    assert [starts[wordpiece.piece_to_id(piece)] for piece in ("un", "##able", "中", ",")] == [True, False, True, True]


def test_fingerprint_depends_on_pieces_and_settings(wordpiece, tmp_path):
    wordpiece.save(tmp_path)
    paths = [tmp_path, tmp_path / "vocab.txt", tmp_path / "tokenizer.json"]
    assert {load_tokenizer(path).fingerprint for path in paths} == {wordpiece.fingerprint}
    *first, last, second = wordpiece.vocabulary
    others = [WordPieceTokenizer(pieces).fingerprint for pieces in ([*first, second, last], [*first, last])]
    for normalization in FLAGS:
        others.append(WordPieceTokenizer(wordpiece.vocabulary, normalization).fingerprint)
    assert len(set(others)) == len(FLAGS) + 2
    assert wordpiece.matches_fingerprint(wordpiece.fingerprint)
    assert not wordpiece.matches_fingerprint(others[0])


def test_cache_is_bounded(wordpiece, monkeypatch):
    monkeypatch.setattr("albert.text.wordpiece._CACHE_SIZE", 100)
    numbers = random.Random(0)
    fresh = WordPieceTokenizer(wordpiece.vocabulary)
    text = " ".join("".join(numbers.choices("abcdexyz", k=6)) for _ in range(1000))
    assert fresh.encode(text) == wordpiece.encode(text)
    assert len(fresh._pieces) <= 100


# ---- files ---------------------------------------------------------------------------------------------------------

SPECIALS = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
TEXT = "Hello CAFÉ 中国 unaffable 人人"


@pytest.fixture
def saved(wordpiece, tmp_path):
    wordpiece.save(tmp_path)
    return tmp_path


@pytest.fixture
def write_changed(saved):
    """Write a changed `tokenizer.json` beside a `tokenizer_config.json`, and return their directory."""

    def write(change, **config):
        content = json.loads((saved / "tokenizer.json").read_text())
        (saved / "tokenizer.json").write_text(json.dumps(change(content) or content))
        (saved / "tokenizer_config.json").write_text(json.dumps(config))
        (saved / "vocab.txt").unlink()
        return saved

    return write


def test_files_of_transformers_and_a_single_vocabulary_open(wordpiece, saved, tmp_path_factory):
    theirs, single = tmp_path_factory.mktemp("theirs"), tmp_path_factory.mktemp("single")
    AutoTokenizer.from_pretrained(saved).save_pretrained(theirs)
    assert not (theirs / "vocab.txt").exists()
    shutil.copy(saved / "vocab.txt", single)
    for path in (theirs, single, single / "vocab.txt"):
        assert load_tokenizer(path).fingerprint == wordpiece.fingerprint
    expected = BertTokenizer.from_pretrained(single)(TEXT, add_special_tokens=False)["input_ids"]
    assert load_tokenizer(single).encode(TEXT) == expected


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, WordPieceNormalization()),
        ({"do_lower_case": False}, WordPieceNormalization(lower_case=False, keep_accents=True)),
        ({"do_lower_case": False, "strip_accents": True}, WordPieceNormalization(lower_case=False)),
        ({"strip_accents": False}, WordPieceNormalization(keep_accents=True)),
        ({"tokenize_chinese_chars": False}, WordPieceNormalization(space_ideographs=False)),
    ],
)
def test_settings_of_tokenizer_config_apply(saved, tmp_path_factory, config, expected):
    (saved / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **config}))
    loaded = load_tokenizer(saved)
    assert isinstance(loaded, WordPieceTokenizer)
    assert loaded.normalization == expected
    (saved / "vocab.txt").unlink()  # with a class of BERT, the normaliser of tokenizer.json is ignored
    assert load_tokenizer(saved).fingerprint == loaded.fingerprint
    theirs = AutoTokenizer.from_pretrained(saved)
    assert loaded.encode(TEXT) == theirs(TEXT, add_special_tokens=False)["input_ids"]
    saved_again = tmp_path_factory.mktemp("again")
    loaded.save(saved_again)
    assert load_tokenizer(saved_again).fingerprint == loaded.fingerprint


def test_normaliser_of_tokenizer_json_applies_without_a_class_of_bert(write_changed):
    def keep_capitals(content):
        content["normalizer"]["lowercase"] = False

    directory = write_changed(keep_capitals, tokenizer_class="PreTrainedTokenizerFast")
    loaded, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    assert not loaded.lower_case
    assert loaded.encode(TEXT) == theirs(TEXT, add_special_tokens=False)["input_ids"]


def test_order_of_several_vocabulary_files(tokenizer, saved):
    assert vocabulary_file(saved).name == "vocab.txt"
    (saved / "spiece.model").write_bytes(tokenizer.model)
    assert vocabulary_file(saved).name == "vocab.txt"  # its configuration names a class of BERT
    (saved / "tokenizer_config.json").unlink()
    assert vocabulary_file(saved).name == "spiece.model"
    assert isinstance(load_tokenizer(saved), SentencePieceTokenizer)
    (saved / "spiece.model").unlink()
    (saved / "vocab.txt").unlink()
    assert isinstance(load_tokenizer(saved), WordPieceTokenizer)
    (saved / "tokenizer.json").unlink()
    assert vocabulary_file(saved).name == "spiece.model"


@pytest.mark.parametrize(
    "text",
    [
        SPECIALS + b"hello\n",
        SPECIALS + b"hello",
        SPECIALS + b"hello\n\n\n",
        (SPECIALS + b"hello\n").replace(b"\n", b"\r\n"),
        (SPECIALS + b"hello").replace(b"\n", b"\r"),
        b"\xef\xbb\xbf" + SPECIALS + b"hello\n",
    ],
)
def test_line_ends_of_the_vocabulary(tmp_path, text):
    (tmp_path / "vocab.txt").write_bytes(text)
    assert load_tokenizer(tmp_path).vocabulary == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello")


INVALID = [
    (b"", "line 1 is blank"),
    (b"\n\n", "line 1 is blank"),
    (b"a\nb\n", r"lacks \[PAD\] \[UNK\] \[CLS\] \[SEP\] \[MASK\]$"),
    (SPECIALS.replace(b"[MASK]\n", b""), r"lacks \[MASK\]$"),
    (b"<pad>\n<unk>\n[CLS]\n", "SentencePiece's"),
    ("<unk>\t0\n▁the\t-3.2\n".encode(), "line 1 holds a blank: '<unk>.t0'"),
    (SPECIALS + b"a\n\nb\n", "line 7 is blank"),
    (SPECIALS + b"a\nb c\n", "line 7 holds a blank: 'b c'"),
    (SPECIALS + b"a\nb\na\n", "has 'a' twice, in lines 6 and 8"),
    (SPECIALS + b"\xff\xfe\n", r"not text in UTF-8 \(byte 31\)"),
    ("[PAD]\n[UNK]\n".encode("utf-16"), "not text in UTF-8"),
    (b"\0" * 50, "lacks"),
]


@pytest.mark.parametrize(("text", "why"), INVALID)
def test_invalid_vocabulary_is_refused(tmp_path, text, why):
    (tmp_path / "vocab.txt").write_bytes(text)
    with pytest.raises(DamagedData, match=why) as error:
        load_tokenizer(tmp_path)
    assert "vocab.txt" in str(error.value)
    assert "\n" not in str(error.value)


def test_size_of_the_vocabulary_is_limited(tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    path.write_bytes(SPECIALS + b"".join(b"%d\n" % number for number in range(1_000_000)))
    assert load_tokenizer(path).encode("77 999999") == [82, 1_000_004]
    monkeypatch.setattr("albert.text.wordpiece.MOST_PIECES", 999_999)
    with pytest.raises(DamagedData, match="has 1,000,005 pieces"):
        load_tokenizer(path)
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a sparse file, which must not be read into memory
    with pytest.raises(DamagedData, match="has 1,099,511,627,776 bytes"):
        load_tokenizer(path)


def test_missing_vocabulary_is_named(tmp_path):
    with pytest.raises(MissingInput, match=r"words\.txt: No such file"):
        load_tokenizer(tmp_path / "words.txt")
    (tmp_path / "vocab.txt").mkdir()
    with pytest.raises(MissingInput, match=r"vocab\.txt: is a directory, a file is expected"):
        load_tokenizer(tmp_path)


def set_model(**values):
    return lambda content: content["model"].update(values)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (set_model(vocab={"[PAD]": 0}), "lacks"),
        (set_model(vocab={"[PAD]": 0, "[UNK]": 2}), "without a gap"),
        (set_model(vocab={"[PAD]": "0"}), "no pieces with their ids"),
        (set_model(vocab={"[PAD]": 10**12}), "without a gap"),
        (set_model(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "\ud800": 5}), "not text"),
        (set_model(unk_token="<unk>"), "BERT with"),
        (set_model(continuing_subword_prefix="@@"), "BERT with"),
        (lambda content: content.update(added_tokens=[{"id": 7, "content": "[NEW]"}]), r"added tokens .*\[NEW\]"),
        (lambda content: content.update(normalizer={"type": "Lowercase"}), "does not normalise"),
        (lambda content: content.update(normalizer={**content["normalizer"], "clean_text": False}), "normalise"),
    ],
)
def test_tokenizer_json_of_another_tokenizer_is_refused(write_changed, change, why):
    with pytest.raises(DamagedData, match=why) as error:
        load_tokenizer(write_changed(change))
    assert "tokenizer.json" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"do_lower_case": "yes"}, "do_lower_case: is 'yes'"),
        ({"strip_accents": 1}, "strip_accents: is 1"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "other rules for words"),
        ({"do_basic_tokenize": False}, "other rules for words"),
        ({"preprocessing": "refrence"}, "preprocessing: is 'refrence'"),
    ],
)
def test_settings_of_another_tokenizer_are_refused(saved, config, why):
    (saved / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidConfiguration, match=why):
        load_tokenizer(saved)
