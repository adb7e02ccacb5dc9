"""Files of WordPiece tokenizers: which one of a directory is opened, what is understood, what is refused."""

import json
import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, BertTokenizer

from albert.runtime.errors import AlbertError, DamagedData, InvalidConfiguration, MissingInput
from albert.text.sentencepiece import SentencePieceTokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file
from albert.text.wordpiece import WordPieceNormalization, WordPieceTokenizer

SPECIALS = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
TEXT = "Hello CAFÉ 中国 unaffable 人人"


@pytest.fixture
def saved(wordpiece, tmp_path):
    wordpiece.save(tmp_path)
    return tmp_path


@pytest.fixture
def changed(saved):
    """Change `tokenizer.json`, alone in its directory but for what `tokenizer_config.json` shall say."""

    def write(change, **config):
        content = json.loads((saved / "tokenizer.json").read_text())
        (saved / "tokenizer.json").write_text(json.dumps(change(content) or content))
        (saved / "tokenizer_config.json").write_text(json.dumps(config))
        (saved / "vocab.txt").unlink()
        return saved

    return write


def test_what_transformers_saves_opens(wordpiece, saved, tmp_path_factory):
    theirs = tmp_path_factory.mktemp("theirs")
    AutoTokenizer.from_pretrained(saved).save_pretrained(theirs)
    assert not (theirs / "vocab.txt").exists()
    assert load_tokenizer(theirs).fingerprint == wordpiece.fingerprint


def test_a_vocabulary_alone_opens_as_bert_does(wordpiece, saved, tmp_path_factory):
    alone = tmp_path_factory.mktemp("alone")
    shutil.copy(saved / "vocab.txt", alone)
    theirs = BertTokenizer.from_pretrained(alone)
    assert load_tokenizer(alone).fingerprint == load_tokenizer(alone / "vocab.txt").fingerprint == wordpiece.fingerprint
    assert load_tokenizer(alone).encode(TEXT) == theirs(TEXT, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, WordPieceNormalization()),
        ({"do_lower_case": False}, WordPieceNormalization(lower_case=False, keep_accents=True)),
        ({"do_lower_case": False, "strip_accents": True}, WordPieceNormalization(lower_case=False)),
        ({"strip_accents": False}, WordPieceNormalization(keep_accents=True)),
        ({"tokenize_chinese_chars": False}, WordPieceNormalization(space_ideographs=False)),
        ({"preprocessing": "reference"}, WordPieceNormalization(reference=True)),
    ],
)
def test_settings_are_those_of_tokenizer_config(saved, tmp_path_factory, config, expected):
    (saved / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **config}))
    loaded = load_tokenizer(saved)
    assert isinstance(loaded, WordPieceTokenizer)
    assert loaded.normalization == expected
    (saved / "vocab.txt").unlink()  # with BERT's class, what tokenizer.json says of the text does not count
    assert load_tokenizer(saved).fingerprint == loaded.fingerprint
    theirs = AutoTokenizer.from_pretrained(saved)
    assert loaded.encode(TEXT) == theirs(TEXT, add_special_tokens=False)["input_ids"]
    again = tmp_path_factory.mktemp("again")
    loaded.save(again)
    assert load_tokenizer(again).fingerprint == loaded.fingerprint


def test_without_a_class_the_normaliser_of_tokenizer_json_counts(changed, wordpiece):
    def keep_capitals(content):
        content["normalizer"]["lowercase"] = False

    directory = changed(keep_capitals, tokenizer_class="PreTrainedTokenizerFast")
    loaded, theirs = load_tokenizer(directory), AutoTokenizer.from_pretrained(directory)
    assert not loaded.lower_case
    assert loaded.encode(TEXT) == theirs(TEXT, add_special_tokens=False)["input_ids"]


def test_of_several_vocabularies_the_documented_one_is_opened(tokenizer, wordpiece, saved):
    assert vocabulary_file(saved).name == "vocab.txt"
    (saved / "spiece.model").write_bytes(tokenizer.model)
    assert vocabulary_file(saved).name == "vocab.txt"  # its configuration names BERT's class
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
def test_line_ends_make_no_pieces(tmp_path, text):
    (tmp_path / "vocab.txt").write_bytes(text)
    assert load_tokenizer(tmp_path).vocabulary == ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello")


UNUSABLE = [
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


@pytest.mark.parametrize(("text", "why"), UNUSABLE)
def test_what_is_no_wordpiece_vocabulary_is_refused_in_one_line(tmp_path, text, why):
    (tmp_path / "vocab.txt").write_bytes(text)
    with pytest.raises(DamagedData, match=why) as caught:
        load_tokenizer(tmp_path)
    assert "vocab.txt" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_million_pieces_open_and_more_than_any_model_has_are_refused(tmp_path, monkeypatch):
    place = tmp_path / "vocab.txt"
    place.write_bytes(SPECIALS + b"".join(b"%d\n" % number for number in range(1_000_000)))
    assert load_tokenizer(place).encode("77 999999") == [82, 1_000_004]
    monkeypatch.setattr("albert.text.wordpiece.MOST_PIECES", 999_999)
    with pytest.raises(DamagedData, match="has 1,000,005 pieces"):
        load_tokenizer(place)
    with place.open("r+b") as file:
        file.truncate(1 << 40)  # takes no room on the disk, and must take none in memory
    with pytest.raises(DamagedData, match="has 1,099,511,627,776 bytes"):
        load_tokenizer(place)


def test_a_missing_vocabulary_is_named(tmp_path):
    with pytest.raises(MissingInput, match=r"words\.txt: No such file"):
        load_tokenizer(tmp_path / "words.txt")
    (tmp_path / "vocab.txt").mkdir()
    with pytest.raises(MissingInput, match=r"vocab\.txt: is a directory, a file is expected"):
        load_tokenizer(tmp_path)


def _model(**values):
    def change(content):
        content["model"] |= values

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_model(vocab={"[PAD]": 0}), "lacks"),
        (_model(vocab={"[PAD]": 0, "[UNK]": 2}), "without a gap"),
        (_model(vocab={"[PAD]": "0"}), "no pieces with their ids"),
        (_model(vocab={"[PAD]": 10**12}), "without a gap"),
        (_model(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "\ud800": 5}), "no text"),
        (_model(unk_token="<unk>"), "BERT with"),
        (_model(continuing_subword_prefix="@@"), "BERT with"),
        (lambda content: content.update(added_tokens=[{"id": 7, "content": "[NEW]"}]), r"added tokens .*\[NEW\]"),
        (lambda content: content.update(normalizer={"type": "Lowercase"}), "does not normalise"),
        (lambda content: content.update(normalizer={**content["normalizer"], "clean_text": False}), "normalise"),
    ],
)
def test_a_description_of_another_tokenizer_is_refused_in_one_line(changed, change, why):
    with pytest.raises(DamagedData, match=why) as caught:
        load_tokenizer(changed(change))
    assert "tokenizer.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"do_lower_case": "yes"}, "do_lower_case: is 'yes'"),
        ({"strip_accents": 1}, "strip_accents: is 1"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "another way to find words"),
        ({"do_basic_tokenize": False}, "another way to find words"),
        ({"preprocessing": "refrence"}, '"transformers" or "reference" is expected'),
    ],
)
def test_settings_that_bert_has_not_are_refused(saved, config, why):
    (saved / "tokenizer_config.json").write_text(json.dumps(config))
    with pytest.raises(InvalidConfiguration, match=why):
        load_tokenizer(saved)


@settings(max_examples=60)
@given(st.integers(0, 1 << 20), st.binary(max_size=4), st.sampled_from(["vocab.txt", "tokenizer.json"]))
def test_a_damaged_file_is_refused_or_harmless(wordpiece, tmp_path_factory, place, inserted, name):
    directory = tmp_path_factory.mktemp("damaged")
    wordpiece.save(directory)
    data = (directory / name).read_bytes()
    place %= len(data)
    (directory / name).write_bytes(data[:place] + inserted + data[place + len(inserted) :])
    try:
        load_tokenizer(directory / name).encode(TEXT)
    except AlbertError as error:
        assert "\n" not in str(error)
