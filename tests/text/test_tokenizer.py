"""The tokenizer: ids, offsets, files, fingerprints."""

import copy
import json
import os
import shutil

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tests.text.torture import WRITING, check_offsets, texts
from tokenizers import Tokenizer as HuggingFaceTokenizer
from transformers import AutoTokenizer

from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.runtime.files import new_directory
from albert.text.sentencepiece import SentencePieceTokenizer
from albert.text.tokenizer import MODEL_NAME
from albert.text.tokenizer_loading import load_tokenizer
from albert.text.wordpiece import WordPieceNormalization, WordPieceTokenizer


@given(text=texts)
@example(text="▁a ▁ b▁")
@example(text="x\u200by")
@example(text="½ﷺ")
@example(text="``")
def test_offsets_are_slices_of_the_original_text(tokenizer, text):
    check_offsets(tokenizer, text)


@given(text=texts, lower_case=st.booleans())
@example(text="½ﷺ a½b", lower_case=False)
def test_offsets_are_slices_of_the_original_text_when_accents_stay(tokenizer, text, lower_case):
    check_offsets(SentencePieceTokenizer(tokenizer.model, lower_case, keep_accents=True), text)


@pytest.mark.parametrize("writing", WRITING)
def test_no_writing_of_the_world_loses_its_places(tokenizer, wordpiece, writing):
    for kept in (False, True):
        for lower_case in (False, True):
            check_offsets(SentencePieceTokenizer(tokenizer.model, lower_case, kept), WRITING[writing])
            rules = WordPieceNormalization(lower_case=lower_case, keep_accents=kept)
            check_offsets(WordPieceTokenizer(wordpiece.vocabulary, rules), WRITING[writing])


def test_an_accent_belongs_to_its_letter_in_the_slice(tokenizer):
    text = "Cafe\u0301 z\u0301\u0302\u0303."
    slices = [text[start:end] for start, end in tokenizer.encode_with_offsets(text)[1]]
    assert "".join(slices) == text.replace(" ", "")


def test_offsets_cover_words_as_written(tokenizer):
    text = "  Gudi \u00a0 ``CAFÉ''  １２"
    ids, offsets = tokenizer.encode_with_offsets(text)
    surfaces = "".join(text[start:end] for start, end in offsets)
    assert surfaces == "Gudi``CAFÉ''１２"
    assert len(ids) == len(offsets)


@given(st.lists(texts, max_size=5))
def test_a_batch_gives_the_ids_of_single_texts(tokenizer, batch):
    assert tokenizer.encode_batch(batch) == [tokenizer.encode(text) for text in batch]


@pytest.mark.parametrize("special", ["[MASK]", "[CLS]", "[SEP]", "<pad>", "<unk>"])
def test_literal_mask_in_text_is_text(tokenizer, special):
    special_ids = set(tokenizer.special_ids) - {tokenizer.unk_id}
    assert not special_ids & set(tokenizer.encode(f"The {special} of France"))
    kept = SentencePieceTokenizer(tokenizer.model, lower_case=False, keep_accents=True)
    assert not special_ids & set(kept.encode(f"The {special} of France"))


def test_transformers_takes_literal_special_pieces_for_text_when_it_is_told_to(tokenizer, tokenizer_directory):
    theirs = AutoTokenizer.from_pretrained(tokenizer_directory)

    def told(text):
        return theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]

    text = "The [MASK] of [SEP]France[CLS]"
    assert told(text) == tokenizer.encode(text)
    assert theirs.mask_token_id in theirs(text)["input_ids"]  # its own usage, which fill-mask needs
    # Its Unigram model knows no control pieces: what is spelled as one in small letters becomes one all the same.
    assert theirs.pad_token_id in told("a <pad> b")
    assert tokenizer.pad_id not in tokenizer.encode("a <pad> b")


def test_special_pieces_have_the_ids_of_the_released_models(tokenizer):
    pieces = [tokenizer.piece(number) for number in range(13)]
    assert pieces == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "(", ")", '"', "-", ".", "–", "£", "€"]
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (
        0,
        1,
        2,
        3,
        4,
    )
    assert tokenizer.piece_to_id("[SEP]") == 3
    assert tokenizer.piece_to_id("no such piece") == tokenizer.unk_id


def test_a_comma_never_sticks_to_a_digit(tokenizer):
    proto = ModelProto()
    proto.ParseFromString(tokenizer.model)
    for entry, piece in zip(proto.pieces[-3:], ["▁1,", "0,", "00,"], strict=True):
        entry.piece, entry.score = piece, -1.0
    changed = SentencePieceTokenizer(proto.SerializeToString())
    text = "In 2010, and 1, it cost 4,000,"
    pieces = [changed.piece(number) for number in changed.encode(text)]
    assert all(piece == "," or "," not in piece for piece in pieces)
    assert pieces.count(",") == 4
    assert SentencePieceTokenizer(changed.model).model == changed.model  # the penalty is given once


def test_ids_of_a_word_do_not_depend_on_its_neighbours(tokenizer, documents):
    for document in documents[:30]:
        words = tokenizer.normalize(document).split()
        assert tokenizer.encode(document) == [number for word in words for number in tokenizer.encode(word)]


def test_decoding_gives_the_normalised_text(tokenizer, documents):
    for document in documents[:20]:
        assert tokenizer.decode(tokenizer.encode(document)) == tokenizer.normalize(document)


def test_ids_equal_those_of_transformers(tokenizer, tokenizer_directory, documents):
    theirs = AutoTokenizer.from_pretrained(tokenizer_directory)
    assert type(theirs).__name__ == "AlbertTokenizer"
    texts = [*documents, "CAFÉ naïve ``quoted'' 1,000, ﬁne １２３ ½ … ガ 가 Ünïcödé", "", "  a \u00a0 b  "]
    for text in texts:
        assert theirs(text, add_special_tokens=False)["input_ids"] == tokenizer.encode(text), text


def test_transformers_returns_segment_ids_and_the_maximum_length(tokenizer, tokenizer_directory):
    theirs = AutoTokenizer.from_pretrained(tokenizer_directory)
    first, second = tokenizer.encode("bating foha"), tokenizer.encode("gudi")
    pair = theirs("bating foha", "gudi")
    assert pair["input_ids"] == [2, *first, 3, *second, 3]
    assert pair["token_type_ids"] == [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert theirs.model_max_length == 512
    assert (theirs.mask_token_id, theirs.pad_token_id, theirs.unk_token_id) == (4, 0, 1)


@pytest.mark.parametrize(("lower_case", "keep_accents"), [(True, True), (False, False), (False, True)])
def test_ids_equal_those_of_transformers_with_case_and_accents(tokenizer, tmp_path, lower_case, keep_accents):
    ours = SentencePieceTokenizer(tokenizer.model, lower_case, keep_accents)
    ours.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in ["Bating CAFÉ, naïve ½ ﬁne.", "``Don't'' 2010, (£3.50)"]:
        assert theirs(text, add_special_tokens=False)["input_ids"] == ours.encode(text)
    assert load_tokenizer(tmp_path).fingerprint == ours.fingerprint


def test_the_tokenizers_library_opens_the_file_alone(tokenizer, tokenizer_directory, documents):
    theirs = HuggingFaceTokenizer.from_file(str(tokenizer_directory / "tokenizer.json"))
    for text in documents[:30]:
        assert theirs.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)
    assert theirs.encode("a", "b").type_ids[-1] == 1


def test_what_is_saved_is_what_is_loaded(tokenizer, tokenizer_directory):
    for path in (tokenizer_directory, tokenizer_directory / MODEL_NAME):
        again = load_tokenizer(path)
        assert (again.model, again.fingerprint) == (tokenizer.model, tokenizer.fingerprint)
    assert copy.deepcopy(tokenizer).fingerprint == tokenizer.fingerprint


def test_the_fingerprint_tells_models_and_flags_apart(tokenizer):
    prints = {SentencePieceTokenizer(tokenizer.model, a, b).fingerprint for a in (True, False) for b in (True, False)}
    assert len(prints) == 4


def test_a_missing_vocabulary_is_named(tmp_path):
    with pytest.raises(MissingInput, match=r"spiece\.model: No such file"):
        load_tokenizer(tmp_path)
    with pytest.raises(MissingInput, match="nowhere"):
        load_tokenizer(tmp_path / "nowhere")


@given(st.integers(0, 10_000), st.integers(0, 255))
@example(36, 128)  # a special piece that is not UTF-8
def test_a_damaged_vocabulary_is_refused_or_harmless(tokenizer, place, value):
    data = bytearray(tokenizer.model)
    data[place % len(data)] = value
    try:
        SentencePieceTokenizer(bytes(data)).encode("bating 2010, foha")
    except DamagedData as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("data", [b"", b"no model", b"\x0a\x03abc", b"\0" * 100])
def test_what_is_no_vocabulary_is_refused(tmp_path, data):
    (tmp_path / MODEL_NAME).write_bytes(data)
    with pytest.raises(DamagedData, match=r"spiece\.model: is not"):
        load_tokenizer(tmp_path)


def test_a_list_of_pieces_is_no_model(tmp_path):
    (tmp_path / "30k-clean.vocab").write_text("<pad>\t0\n")
    with pytest.raises(DamagedData, match=r"30k-clean\.vocab: lists the pieces .* give the \.model file"):
        load_tokenizer(tmp_path / "30k-clean.vocab")


def test_a_cut_vocabulary_is_refused(tokenizer, tmp_path):
    (tmp_path / MODEL_NAME).write_bytes(tokenizer.model[: len(tokenizer.model) // 2])
    with pytest.raises(DamagedData):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["spiece.model", "tokenizer_config.json"])
def test_files_beside_a_manifest_are_checked_against_it(tokenizer, tmp_path, name):
    with new_directory(tmp_path / "tokenizer") as directory:
        tokenizer.save(directory)
    assert load_tokenizer(tmp_path / "tokenizer").fingerprint == tokenizer.fingerprint
    file = tmp_path / "tokenizer" / name
    content = bytearray(file.read_bytes())
    content[content.index(b"a") if name.endswith("json") else len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedData, match=rf"{name}: SHA-256 differs from MANIFEST\.json"):
        load_tokenizer(tmp_path / "tokenizer")


@pytest.mark.parametrize("name", ["spiece.model", "vocab.txt", "tokenizer.json"])
def test_a_pipe_for_a_vocabulary_is_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(MissingInput, match=rf"{name}: is a pipe, a file is expected"):
        load_tokenizer(tmp_path)


def test_a_flag_that_is_no_truth_value_is_refused(tokenizer_directory, tmp_path):
    shutil.copy(tokenizer_directory / MODEL_NAME, tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": "yes"}))
    with pytest.raises(InvalidConfiguration, match="do_lower_case"):
        load_tokenizer(tmp_path)


def test_released_vocabulary_gives_the_ids_of_transformers(shared, tmp_path, documents):
    released = load_tokenizer(shared / "data" / "checkpoints" / MODEL_NAME)
    released.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for text in [*documents, "``CAFÉ'' in 2010, ½ ﬁne – £3.50; Σίσυφος"]:
        assert theirs(text, add_special_tokens=False)["input_ids"] == released.encode(text)
