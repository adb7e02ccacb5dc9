"""WordPiece vocabularies, byte-level BPE and Unigram by the library `tokenizers`: ids, offsets and files."""

import json
import pickle
import random
import shutil

import numpy as np
import pytest
import sentencepiece
import tokenizers
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tests.refusals import refusal
from tests.text.helpers import texts
from transformers import AutoTokenizer, BertTokenizer, RobertaConfig, RobertaForMultipleChoice

import albert
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput
from albert.tasks.examples import Example, text_features, text_sequences
from albert.tasks.multiple_choice import MultipleChoice
from albert.tasks.pipeline import Lengths
from albert.tasks.word_windows import tag_features
from albert.text.huggingface import HuggingFaceTokenizer
from albert.text.sentencepiece import SentencePieceTokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file
from albert.text.wordpiece import WordPieceNormalization, wordpiece_tokenizer

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
        ours = wordpiece_tokenizer(wordpiece.vocabulary, normalization)
        ours.save(directory)
        (directory / "config.json").write_text(json.dumps({"model_type": "albert", "architectures": ["AlbertModel"]}))
        pairs.append((ours, AutoTokenizer.from_pretrained(directory)))
    return pairs


def check_slices(tokenizer, text):
    """Offsets are ordered slices of the text without blanks around them, one for each id."""
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    assert len(ids) == len(offsets)
    for start, end in offsets:
        assert 0 <= start <= end <= len(text)
        assert text[start:end] == text[start:end].strip()
    for side in (0, 1):
        bounds = [pair[side] for pair in offsets]
        assert bounds == sorted(bounds)


@given(text=texts, setting=st.sampled_from(range(len(FLAGS))))
@example(text="中文abc，ＡＢＣ café\u0301 unaffable! [MASK]", setting=0)
@example(text="x" * 100 + " " + "x" * 101, setting=0)
@example(text="한글 가\u0301 ΟΔΟΣ İ", setting=1)
def test_ids_equal_those_of_transformers(pairs, text, setting):
    ours, theirs = pairs[setting]
    check_slices(ours, text)
    text = text.encode("utf-8", "replace").decode()  # transformers refuses half surrogates
    assert ours.encode(text) == theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    """Directories with a byte-level BPE as RoBERTa's, and a Unigram model as XLM-R's."""
    words = [
        "The",
        "quick",
        "brown",
        "fox",
        "jumps",
        "over",
        "the",
        "lazy",
        "dog;",
        "café",
        "naïve",
        "中国",
        "Zürich",
        "isn't",
        "it?",
        "👩",
    ]
    corpus = [" ".join(random.Random(number).choices(words, k=12)) for number in range(100)]
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(corpus, vocab_size=400, special_tokens=special, show_progress=False)
    bpe = tokenizers.Tokenizer.from_str(bpe.to_str())
    bpe.add_special_tokens([tokenizers.AddedToken("<mask>", lstrip=True, special=True)])
    ends = (("</s>", 2), ("<s>", 0))
    bpe.post_processor = tokenizers.processors.RobertaProcessing(*ends, trim_offsets=True, add_prefix_space=False)
    unigram = tokenizers.Tokenizer(tokenizers.models.Unigram())
    unigram.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    unigram.decoder = tokenizers.decoders.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=200, special_tokens=special, unk_token="<unk>", show_progress=False
    )
    unigram.train_from_iterator(corpus, trainer)
    unigram.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    directories = {}
    for name, tokenizer, class_name in (("bpe", bpe, "RobertaTokenizer"), ("unigram", unigram, "TokenizersBackend")):
        directories[name] = tmp_path_factory.mktemp(name)
        tokenizer.save(str(directories[name] / "tokenizer.json"))
        config = {"tokenizer_class": class_name, "cls_token": "<s>", "sep_token": "</s>"}
        config |= {"pad_token": "<pad>", "unk_token": "<unk>"} | ({} if name == "bpe" else {"mask_token": "<mask>"})
        (directories[name] / "tokenizer_config.json").write_text(json.dumps(config))
    return directories


def ids_with_masks(tokenizer, text):
    """The ids of a text whose masks are mask tokens."""
    return text_sequences([(text,)], tokenizer, 100, masked=True)[0].token_ids(0).tolist()


@pytest.mark.parametrize(("name", "kind"), [("bpe", "byte-level BPE"), ("unigram", "Unigram")])
def test_other_models_have_the_ids_of_transformers(foreign, name, kind, tmp_path):
    ours, theirs = load_tokenizer(foreign[name]), AutoTokenizer.from_pretrained(foreign[name])
    assert (ours.kind, ours.special_ids, ours.separators) == (kind, (0, 1, 2, 3, 4), 2)
    text = "The café, isn't   it 中国?  👩 <mask> [MASK]\n quick"
    assert ours.encode(text) == theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    check_slices(ours, text)
    pieces = [text[start:end] for start, end in ours.encode_with_offsets(text)[1]]
    assert "".join(dict.fromkeys("".join(pieces))) == "".join(dict.fromkeys(text.replace(" ", "").replace("\n", "")))
    assert ours.decode(theirs("The quick fox")["input_ids"]) == "The quick fox"
    assert ours.word_starts()[ours.encode(" quick")[0]]
    first, second = ours.encode("The fox"), ours.encode("jumps")
    assert theirs("The fox", "jumps")["input_ids"] == [0, *first, 2, 2, *second, 2]
    sequences, _ = text_sequences([("The fox", "jumps")], ours, 100)
    assert sequences.token_ids(0).tolist() == [0, *first, 2, 2, *second, 2]
    assert sequences.token_type_ids(0).tolist() == [0] * (len(first) + 3) + [1] * (len(second) + 1)
    again = pickle.loads(pickle.dumps(ours))
    ours.save(tmp_path)
    assert {again.fingerprint, load_tokenizer(tmp_path).fingerprint} == {ours.fingerprint}
    assert AutoTokenizer.from_pretrained(tmp_path)(text)["input_ids"] == theirs(text)["input_ids"]


@pytest.fixture(scope="module")
def families(foreign, wordpiece, tokenizer, tmp_path_factory):
    """By kind of vocabulary: our tokenizer, and that of transformers."""
    directories = dict(foreign)
    for name, own in (("wordpiece", wordpiece), ("sentencepiece", tokenizer)):
        directories[name] = tmp_path_factory.mktemp(name)
        own.save(directories[name])
        (directories[name] / "config.json").write_text(json.dumps({"model_type": "albert"}))
    return {name: (load_tokenizer(path), AutoTokenizer.from_pretrained(path)) for name, path in directories.items()}


LONG = ["The", "quick", "fox", "jumps", "over", "a", "café", "naïve", "dog"]


@given(
    kind=st.sampled_from(["bpe", "unigram", "wordpiece", "sentencepiece"]),
    words=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    max_length=st.integers(8, 24),
)
@example(kind="bpe", words=(9, 9), max_length=15)
@example(kind="wordpiece", words=(9, 9), max_length=16)
def test_long_pairs_are_cut_as_by_transformers(families, kind, words, max_length):
    """Longest first, with an odd number of tokens to divide too."""
    ours, theirs = families[kind]
    pair = [" ".join(LONG[:number]) for number in words]
    (expected,) = theirs(pair[:1], pair[1:], truncation=True, max_length=max_length)["input_ids"]
    trained = text_features([Example("0", "x:1", tuple(pair), 0)], ours, max_length)
    assert trained.sequences.token_ids(0).tolist() == expected
    assert trained.counts["tokens_cut"] == sum(len(ours.encode(text)) for text in pair) - (
        len(expected) - 2 - ours.separators
    )


TOKENIZED = ["The café, isn't   it 中国?  👩 <mask> [MASK]\n quick", " quick fox", "ﬁ １２ </s> e\u0301", "", "\t"]


def same_ids(ours, theirs):
    for text in TOKENIZED:
        assert ours.encode(text) == theirs(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
        check_slices(ours, text)
    ids = (theirs.pad_token_id, theirs.unk_token_id, theirs.cls_token_id, theirs.sep_token_id, theirs.mask_token_id)
    assert (ours.pad_id, ours.unk_id, ours.cls_id, ours.sep_id, ours.mask_id) == ids


@pytest.mark.parametrize("settings", [{}, {"add_prefix_space": True}])
def test_vocab_json_and_merges_have_the_ids_of_transformers(foreign, tmp_path, settings):
    tokenizers.Tokenizer.from_file(str(foreign["bpe"] / "tokenizer.json")).model.save(str(tmp_path))
    assert not (tmp_path / "tokenizer.json").exists()
    config = {"tokenizer_class": "RobertaTokenizer", **settings}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    ours = load_tokenizer(tmp_path)
    same_ids(ours, AutoTokenizer.from_pretrained(tmp_path))
    assert (ours.kind, ours.separators) == ("byte-level BPE", 2)
    ours.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == ours.fingerprint


@pytest.mark.parametrize(
    ("kind", "class_name"), [("xlm-roberta", "XLMRobertaTokenizer"), ("camembert", "CamembertTokenizer")]
)
def test_a_sentencepiece_model_of_xlm_r_has_the_ids_of_transformers(tmp_path, kind, class_name):
    words = ["The", "quick", "brown", "fox", "café", "naïve", "中国", "isn't", "it?"]
    corpus = [" ".join(random.Random(number).choices(words, k=12)) for number in range(100)]
    file = tmp_path / "sentencepiece.bpe.model"
    with file.open("wb") as opened:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(corpus), model_writer=opened, vocab_size=60, hard_vocab_limit=False, minloglevel=2
        )
    with refusal(InvalidConfiguration, "sentencepiece.bpe.model"):
        load_tokenizer(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    ours = load_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": class_name}))
    same_ids(ours, AutoTokenizer.from_pretrained(tmp_path))
    ours.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == ours.fingerprint


@pytest.mark.parametrize(
    ("name", "content", "subject"),
    [
        ("merges.txt", "#version: 0.2\nt h\nx\n", "line 3"),
        ("merges.txt", "t nothing\n", "line 1"),
        ("vocab.json", '{"a": "b"}', "vocab.json"),
        ("vocab.json", '{"t": 0, "h": 1, "th": 2}', "<s>"),
        ("tokenizer_config.json", '{"add_prefix_space": "yes"}', "add_prefix_space"),
    ],
)
def test_damaged_files_of_roberta_are_refused(tmp_path, name, content, subject):
    (tmp_path / "vocab.json").write_text('{"<s>": 0, "</s>": 1, "t": 2, "h": 3, "th": 4}')
    with refusal(MissingInput, "merges.txt"):
        load_tokenizer(tmp_path)
    (tmp_path / "merges.txt").write_text("t h\n")
    (tmp_path / name).write_text(content)
    with refusal((DamagedData, InvalidConfiguration), subject):
        load_tokenizer(tmp_path)


def test_a_mask_takes_the_blank_before_it(foreign):
    ours, theirs = load_tokenizer(foreign["bpe"]), AutoTokenizer.from_pretrained(foreign["bpe"])
    expected = theirs("The <mask> fox")["input_ids"]
    for text in ("The [MASK] fox", "The <mask> fox"):
        assert ids_with_masks(ours, text) == expected


def test_a_mask_takes_the_blank_before_it_in_older_files_too(foreign, tmp_path):
    """As in `tokenizer.json`; transformers 5 has a piece for that blank where it opens vocab.json alone."""
    expected = AutoTokenizer.from_pretrained(foreign["bpe"])
    tokenizers.Tokenizer.from_file(str(foreign["bpe"] / "tokenizer.json")).model.save(str(tmp_path))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"}))
    ours = load_tokenizer(tmp_path)
    for text in ("The <mask> fox", "<mask> fox", "The<mask>fox", "The <mask>.", "The  <mask>", "The <mask> <mask> fox"):
        assert ids_with_masks(ours, text) == expected(text)["input_ids"]
    assert (
        AutoTokenizer.from_pretrained(tmp_path)("The <mask> fox")["input_ids"]
        != expected("The <mask> fox")["input_ids"]
    )


def test_blanks_around_options_are_dropped(foreign, tmp_path):
    """Byte-level pieces would hold them; in training and in answers."""
    shutil.copytree(foreign["bpe"], tmp_path, dirs_exist_ok=True)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    kinds = {"vocab_size": 400, "max_position_embeddings": 66, "type_vocab_size": 1, "initializer_range": 0.5}
    RobertaForMultipleChoice(RobertaConfig(**sizes, **kinds)).save_pretrained(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    model = albert.load(tmp_path, precision="fp32")
    context = "The quick fox jumps over the dog;"
    for question in ("", "isn't it?", "The _ fox"):
        plain = model.choose(context, ["quick fox", "café"], question)
        spaced = model.choose(context, [" quick fox", "café  \n"], question)
        assert [entry["score"] for entry in spaced] == [entry["score"] for entry in plain]
    example_of_table = Example("0", "x:1", ("", context), 0, options=(" quick fox ", "café"))
    features = MultipleChoice((), "").encode([example_of_table], model.tokenizer, Lengths(64, 32, 0))
    expected = theirs([context, context], ["quick fox", "café"])["input_ids"]
    assert [features.sequences.token_ids(number).tolist() for number in (0, 1)] == expected


@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_a_word_without_pieces_is_unknown_in_a_tagger(families, kind):
    """It has a tag, as every word; transformers leaves it out. All other words have the same pieces."""
    ours, theirs = families[kind]
    words = ["The", "\u0301", "quick", "\u200b", "fox"]
    found = tag_features([words], ours, 64)
    expected = theirs(words, is_split_into_words=True)
    ids = found.sequences.token_ids(0).tolist()
    assert found.counts["words_without_pieces"] == 2
    assert [number for number in ids if number != ours.unk_id] == [
        number for number in expected["input_ids"] if number != ours.unk_id
    ]
    assert [ids[place] for place in found.first_pieces[[1, 3]]] == [ours.unk_id] * 2
    assert {1, 3}.isdisjoint(expected.word_ids())


def test_words_of_a_sentence_stand_after_blanks(foreign):
    ours = load_tokenizer(foreign["bpe"])
    assert ours.encode_words(["fox", "quick"]) == [ours.encode(" fox"), ours.encode(" quick")]


@pytest.mark.parametrize(
    ("content", "subjects"),
    [
        ({"version": "1.0"}, "tokenizer.json"),
        ({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}, "piece"),
        ({"version": "1.0", "model": {"type": "Nonsense", "vocab": {}}}, "tokenizer.json"),
    ],
)
def test_other_content_is_refused_in_one_line(tmp_path, content, subjects):
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with refusal(DamagedData, *subjects.split()):
        load_tokenizer(tmp_path)


def test_a_template_without_special_pieces_is_refused(foreign, tmp_path):
    content = json.loads((foreign["bpe"] / "tokenizer.json").read_text())
    content["post_processor"] = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    with refusal(DamagedData, "special piece"):
        load_tokenizer(tmp_path)


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


def test_an_accent_belongs_to_its_letter_in_the_slice(wordpiece):
    text = "Cafe\u0301\u0302, 中\u0301文"
    slices = [text[start:end] for start, end in wordpiece.encode_with_offsets(text)[1]]
    assert "".join(slices).replace(" ", "") == text.replace(" ", "")
    assert "中\u0301" in slices


def test_decoded_text_has_the_same_ids(wordpiece):
    text = "Hello, 中国 unaffable! 1 . 2"
    assert wordpiece.encode(wordpiece.decode(wordpiece.encode(text))) == wordpiece.encode(text)


def test_ids_of_special_pieces_come_from_the_vocabulary(wordpiece):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    ids = (wordpiece.pad_id, wordpiece.unk_id, wordpiece.cls_id, wordpiece.sep_id, wordpiece.mask_id)
    assert [wordpiece.piece(number) for number in ids] == names
    assert ids != tuple(range(5))
    turned = wordpiece_tokenizer([*reversed(wordpiece.vocabulary)])
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
    others = [wordpiece_tokenizer(pieces).fingerprint for pieces in ([*first, second, last], [*first, last])]
    for normalization in FLAGS:
        others.append(wordpiece_tokenizer(wordpiece.vocabulary, normalization).fingerprint)
    assert len(set(others)) == len(FLAGS) + 2


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
    assert isinstance(loaded, HuggingFaceTokenizer)
    assert loaded.fingerprint == wordpiece_tokenizer(loaded.vocabulary, expected).fingerprint
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
    assert vocabulary_file(saved).name == "tokenizer.json"
    (saved / "spiece.model").write_bytes(tokenizer.model)
    assert vocabulary_file(saved).name == "tokenizer.json"  # its configuration names a class of BERT
    (saved / "tokenizer_config.json").unlink()
    assert vocabulary_file(saved).name == "spiece.model"
    assert isinstance(load_tokenizer(saved), SentencePieceTokenizer)
    (saved / "spiece.model").unlink()
    (saved / "vocab.txt").unlink()
    assert isinstance(load_tokenizer(saved), HuggingFaceTokenizer)
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
    (b"", "1 blank"),
    (b"\n\n", "1 blank"),
    (b"a\nb\n", "[PAD] [UNK] [CLS] [SEP] [MASK]"),
    (SPECIALS.replace(b"[MASK]\n", b""), "[MASK]"),
    (b"<pad>\n<unk>\n[CLS]\n", "SentencePiece"),
    ("<unk>\t0\n▁the\t-3.2\n".encode(), "1 blank <unk>"),
    (SPECIALS + b"a\n\nb\n", "7 blank"),
    (SPECIALS + b"a\nb c\n", "7 blank 'b"),
    (SPECIALS + b"a\nb\na\n", "'a' 6 8"),
    (SPECIALS + b"\xff\xfe\n", "UTF-8 31"),
    ("[PAD]\n[UNK]\n".encode("utf-16"), "UTF-8"),
    (b"\0" * 50, "[PAD]"),
]


@pytest.mark.parametrize(("text", "subjects"), INVALID)
def test_invalid_vocabulary_is_refused(tmp_path, text, subjects):
    (tmp_path / "vocab.txt").write_bytes(text)
    with refusal(DamagedData, *subjects.split()) as error:
        load_tokenizer(tmp_path)
    assert "vocab.txt" in str(error.value)


def test_size_of_the_vocabulary_is_limited(tmp_path, monkeypatch):
    path = tmp_path / "vocab.txt"
    path.write_bytes(SPECIALS + b"".join(b"%d\n" % number for number in range(20_000)))
    monkeypatch.setattr("albert.text.huggingface.MAX_PIECES", 20_005)
    assert load_tokenizer(path).encode("77 19999") == [82, 20_004]
    monkeypatch.setattr("albert.text.huggingface.MAX_PIECES", 20_004)
    with refusal(DamagedData, path, "20,005"):
        load_tokenizer(path)
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a sparse file, which must not be read into memory
    with refusal(DamagedData, path, "1,099,511,627,776"):
        load_tokenizer(path)


def test_missing_vocabulary_is_named(tmp_path):
    with refusal(MissingInput, "words.txt"):
        load_tokenizer(tmp_path / "words.txt")
    (tmp_path / "vocab.txt").mkdir()
    with refusal(MissingInput, "vocab.txt", "directory"):
        load_tokenizer(tmp_path)


def set_model(**values):
    return lambda content: content["model"].update(values)


@pytest.mark.parametrize(
    ("change", "subjects"),
    [
        (set_model(vocab={"[PAD]": 0}), "[UNK] [CLS] [SEP] [MASK]"),
        (set_model(vocab={"[PAD]": 0, "[UNK]": 2}), "gap"),
        (set_model(vocab={"[PAD]": "0"}), "ids"),
        (set_model(vocab={"[PAD]": 10**12}), "gap"),
        (set_model(vocab={"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "\ud800": 5}), "text"),
        (set_model(unk_token="<unk>"), "tokenizer.json"),
    ],
)
def test_tokenizer_json_of_another_tokenizer_is_refused(write_changed, change, subjects):
    with refusal(DamagedData, *subjects.split()) as error:
        load_tokenizer(write_changed(change))
    assert "tokenizer.json" in str(error.value)


@pytest.mark.parametrize(
    ("config", "subjects"),
    [
        ({"do_lower_case": "yes"}, "do_lower_case yes"),
        ({"strip_accents": 1}, "strip_accents 1"),
        ({"tokenizer_class": "BertJapaneseTokenizer"}, "words"),
        ({"do_basic_tokenize": False}, "words"),
    ],
)
def test_settings_of_another_tokenizer_are_refused(saved, config, subjects):
    (saved / "tokenizer_config.json").write_text(json.dumps(config))
    with refusal(InvalidConfiguration, *subjects.split()):
        load_tokenizer(saved)


# ---- Tokens that were added to a vocabulary ---------------------------------------------------------------------

MARKED = ["[e1] the storm [/e1] at [city] sea", "the <user>", "[CITY]"]


def add_to_json(path, n_pieces):
    content = json.loads((path / "tokenizer.json").read_text())
    flags = {"single_word": False, "lstrip": False, "rstrip": False}
    tokens = {"[e1]": True, "[/e1]": True, "[CITY]": True, "<user>": False}
    for number, (token, special) in enumerate(tokens.items(), start=n_pieces):
        entry = {"id": number, "content": token, "normalized": not special, "special": special}
        content["added_tokens"].append(flags | entry)
    (path / "tokenizer.json").write_text(json.dumps(content))


def add_to_map(path, n_pieces):
    (path / "tokenizer.json").unlink()
    (path / "added_tokens.json").write_text(json.dumps({"[/e1]": n_pieces + 1, "[e1]": n_pieces}))


def add_to_config(path, n_pieces):
    (path / "tokenizer.json").unlink()
    config = json.loads((path / "tokenizer_config.json").read_text())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    decoder = {str(n_pieces): {"content": "[e1]", **flags}, str(n_pieces + 1): {"content": "[/e1]", **flags}}
    (path / "tokenizer_config.json").write_text(json.dumps(config | {"added_tokens_decoder": decoder}))


@pytest.mark.parametrize("add", [add_to_json, add_to_map, add_to_config])
def test_added_tokens_are_found_in_texts_as_by_transformers(wordpiece, tmp_path, add):
    wordpiece.save(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    add(tmp_path, wordpiece.vocab_size)
    ours = load_tokenizer(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert ours.vocab_size == len(theirs)
    for text in MARKED:
        assert ours.encode(text) == theirs(text, add_special_tokens=False)["input_ids"]
    assert ours.piece_to_id("[e1]") in ours.encode(MARKED[0])
    assert ours.mask_id not in ours.encode("a [MASK]")  # a role, not a mark of the user's
    (tmp_path / "saved").mkdir()
    ours.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").encode(MARKED[0]) == ours.encode(MARKED[0])


@pytest.mark.parametrize("number", ["last", 100_000, -1])
def test_an_added_token_without_the_next_number_is_refused(wordpiece, tmp_path, number):
    wordpiece.save(tmp_path)
    (tmp_path / "added_tokens.json").write_text(json.dumps({"[e1]": number}))
    with refusal(DamagedData, tmp_path, "[e1]"):
        load_tokenizer(tmp_path)


def test_a_class_of_another_name_leaves_the_normaliser_as_it_is(wordpiece, tmp_path):
    wordpiece_tokenizer(wordpiece.vocabulary, WordPieceNormalization(lower_case=False)).save(tmp_path)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_tokenizer(tmp_path).lower_case is False


def test_the_class_may_be_in_the_configuration_of_the_model(wordpiece, tmp_path):
    wordpiece.save(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    (tmp_path / "config.json").write_text('{"model_type": "bert", "tokenizer_class": "BertJapaneseTokenizer"}')
    with refusal(InvalidConfiguration, tmp_path):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("name", "config", "model"),
    [
        ("vocab.json", {"tokenizer_class": "HerbertTokenizerFast"}, {}),
        ("vocab.json", {}, {"model_type": "bert"}),
        ("vocab.txt", {"tokenizer_class": "PhobertTokenizer"}, {}),
        ("sentencepiece.bpe.model", {}, {"model_type": "bert"}),
    ],
)
def test_files_of_other_classes_are_refused(name, config, model, tmp_path):
    """BPE of other classes has the same names of files, and other ids."""
    for file, content in {name: {"a": 0}, "tokenizer_config.json": config, "config.json": model}.items():
        (tmp_path / file).write_text(json.dumps(content))
    (tmp_path / "merges.txt").write_text("")
    with refusal(InvalidConfiguration, tmp_path):
        load_tokenizer(tmp_path)
