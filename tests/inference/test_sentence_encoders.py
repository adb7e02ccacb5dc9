"""Directories of sentence-transformers: followed by every door, and written back. With a tiny BERT, and with
all-MiniLM-L6-v2 where its package is installed."""

import csv
import gzip
import json

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from scipy.stats import spearmanr
from tests.parity import from_texts
from tests.refusals import refusal

import albert
from albert.checkpoints.config_json import read_config
from albert.cli.main import run
from albert.inference.predictor import Predictor
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError
from albert.text.huggingface import SPECIAL_PIECES
from albert.text.wordpiece import wordpiece_tokenizer

WORDS = ["a", "the", "storm", "sea", "wind", "waves", "letter", "friend", "wrote", "to", "at", "and", "high", "from"]
TEXTS = ["a storm at sea", "wind and high waves", "the letter from a friend"]


def write(path, name, content):
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_text(json.dumps(content))


@pytest.fixture
def encoder(tmp_path):
    """A tiny BERT of transformers with the files of sentence-transformers."""
    path = tmp_path / "encoder"
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(**sizes, intermediate_size=24, max_position_embeddings=32, initializer_range=0.5)
    transformers.BertModel(config).save_pretrained(path)
    wordpiece_tokenizer([*SPECIAL_PIECES, *WORDS, ":", "query"]).save(path)
    types = ("Transformer", "Pooling", "Normalize")
    paths = ("", "1_Pooling", "2_Normalize")
    modules = [
        {"idx": n, "name": str(n), "path": p, "type": f"sentence_transformers.models.{t}"}
        for n, (p, t) in enumerate(zip(paths, types, strict=True))
    ]
    write(path, "modules.json", modules)
    write(path, "1_Pooling/config.json", {"word_embedding_dimension": 16, "pooling_mode_max_tokens": True})
    write(path, "sentence_bert_config.json", {"max_seq_length": 8, "do_lower_case": False})
    write(path, "config_sentence_transformers.json", {"prompts": {"query": "query: "}, "default_prompt_name": None})
    return path


def states_of(path, texts, max_length=8):
    """The last states by transformers, one text at a time."""
    model = transformers.AutoModel.from_pretrained(path)
    cut = {"truncation": True, "max_length": max_length}
    return [from_texts(path, model, text, **cut)[1].last_hidden_state[0] for text in texts]


def reference(path, texts, pooling, max_length):
    """The vectors of length 1."""
    pooled = {
        "mean": lambda states: states.mean(0),
        "max": lambda states: states.amax(0),
        "cls": lambda states: states[0],
    }
    vectors = [pooled[pooling](states) for states in states_of(path, texts, max_length)]
    return np.stack([torch.nn.functional.normalize(vector, dim=0).numpy() for vector in vectors])


@pytest.mark.parametrize("pooling", ["max", "mean", "cls"])
def test_vectors_are_those_of_sentence_transformers(encoder, pooling):
    key = {"max": "pooling_mode_max_tokens", "mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}
    write(encoder, "1_Pooling/config.json", {"word_embedding_dimension": 16, key[pooling]: True})
    texts = [*TEXTS, "a storm at sea and high waves and wind and a letter"]
    model = albert.load(str(encoder), precision="fp32")
    np.testing.assert_allclose(model.embed(texts), reference(encoder, texts, pooling, 8), atol=2e-6)
    with_prompt = [f"query: {text}" for text in texts]
    expected = reference(encoder, with_prompt, pooling, 8)
    np.testing.assert_allclose(model.embed(texts, prompt="query"), expected, atol=2e-6)
    write(
        encoder, "config_sentence_transformers.json", {"prompts": {"query": "query: "}, "default_prompt_name": "query"}
    )
    model = albert.load(str(encoder), precision="fp32")
    np.testing.assert_allclose(model.embed(texts), expected, atol=2e-6)
    np.testing.assert_allclose(model.embed(texts, prompt=""), reference(encoder, texts, pooling, 8), atol=2e-6)


def test_files_and_command_give_the_same_vectors(encoder, tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    output = tmp_path / "vectors.npy"
    command = ["predict", str(encoder), "--input", str(tmp_path / "texts.txt"), "--output", str(output)]
    assert run([*command, "--prompt", "query", "--precision", "fp32"]) == 0
    expected = albert.load(str(encoder), precision="fp32").embed(TEXTS, prompt="query")
    np.testing.assert_allclose(np.load(output), expected, atol=1e-6)
    assert run([*command, "--prompt", "passage", "--replace"]) != 0


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("1_Pooling/config.json", {"pooling_mode_lasttoken": True}, "lasttoken"),
        ("1_Pooling/config.json", {"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "cls and mean"),
        ("1_Pooling/config.json", {}, "nothing"),
        ("1_Pooling/config.json", {"pooling_mode": ["mean", "cls"]}, "mean and cls"),
        ("1_Pooling/config.json", {"pooling_mode": "attention"}, "attention"),
        ("1_Pooling/config.json", {"pooling_mode": [["mean"]]}, "mean"),
        ("config.json", {"model_type": "mpnet"}, "MPNet"),
        ("config.json", {"hidden_size": 16}, "model_type"),
        ("modules.json", [{"type": "sentence_transformers.models.WordEmbeddings"}], "'WordEmbeddings'"),
        ("modules.json", [{"type": "a.Transformer"}, {"type": "a.Pooling"}, {"type": "a.Normalize"}] * 2, "order"),
        ("modules.json", [{"type": "a.Transformer"}, {"type": "a.Pooling", "path": "../encoder"}], "'../encoder'"),
        ("modules.json", [{"type": "a.Pooling", "path": "1_Pooling"}], "Pooling"),
        ("modules.json", [{"type": "a.Transformer", "path": "0_T"}, {"type": "a.Pooling"}], "0_T"),
        ("sentence_bert_config.json", {"max_seq_length": "many"}, "max_length"),
        ("config_sentence_transformers.json", {"default_prompt_name": "passage"}, "passage"),
        ("config_sentence_transformers.json", {"prompts": ["query"]}, "prompts"),
    ],
)
def test_what_is_unknown_is_refused_in_one_line(encoder, name, content, why):
    write(encoder, name, content)
    with refusal(InvalidConfiguration, why) as error:
        read_config(encoder)
    assert "\n" not in str(error.value)


def add_dense(path, shape=(16, 10), **settings):
    """A Dense module between pooling and normalisation; returns its weight and bias."""
    out, width = shape[1], shape[0]
    modules = json.loads((path / "modules.json").read_text())
    dense = {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"}
    write(path, "modules.json", [*modules[:2], dense, {**modules[2], "idx": 3, "name": "3", "path": "3_Normalize"}])
    stated = {"in_features": width, "out_features": out, "bias": True}
    activation = {"activation_function": "torch.nn.modules.activation.Tanh"}
    write(path, "2_Dense/config.json", {**stated, **activation, **settings})
    torch.manual_seed(1)
    tensors = {"linear.weight": torch.randn(out, width), "linear.bias": torch.randn(out)}
    save_file(tensors, path / "2_Dense/model.safetensors")
    return tensors


def through(dense, vectors):
    mapped = torch.nn.functional.linear(torch.from_numpy(vectors), dense["linear.weight"], dense["linear.bias"]).tanh()
    return torch.nn.functional.normalize(mapped, dim=1).numpy()


def unscaled(path, texts):
    """The maxima over the tokens of a text, before the Dense module."""
    return np.stack([states.amax(0).numpy() for states in states_of(path, texts)])


def test_dense_modules_are_followed_by_every_door_and_written_back(encoder, tmp_path):
    dense = add_dense(encoder)
    expected = through(dense, unscaled(encoder, TEXTS))
    np.testing.assert_allclose(albert.load(str(encoder), precision="fp32").embed(TEXTS), expected, atol=1e-5)
    assert albert.AlbertEmbedding(str(encoder)).get_feature_names_out().shape == (10,)
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    output = tmp_path / "vectors.npy"
    command = ["predict", str(encoder), "--input", str(tmp_path / "texts.txt"), "--output", str(output)]
    assert run([*command, "--precision", "fp32"]) == 0
    np.testing.assert_allclose(np.load(output), expected, atol=1e-5)
    # Quantised and exported, the module stays as it is.
    assert run(["quantize", str(encoder), "--output", str(tmp_path / "int8")]) == 0
    assert run(["export", "sentence-transformers", str(encoder), "--output", str(tmp_path / "copy")]) == 0
    for copy in ("int8", "copy"):
        found = load_file(tmp_path / copy / "2_Dense/model.safetensors")
        assert all(torch.equal(found[name], tensor) for name, tensor in dense.items())
    copy = albert.load(tmp_path / "copy", precision="fp32")
    np.testing.assert_allclose(copy.embed(TEXTS), expected, atol=1e-5)
    # The encoder is trained through it.
    rows = [{"a": f"{text} {word}", "b": text} for word in WORDS for text in TEXTS]
    (tmp_path / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {"text": "a", "pair": "b", "steps": 2, "batch_size": 8, "device": "cpu", "precision": "fp32"}
    files = {"train": tmp_path / "pairs.jsonl", "dev": tmp_path / "pairs.jsonl", "output": tmp_path / "run"}
    albert.finetune_vectors(model=str(encoder), **files, **settings)
    trained = tmp_path / "run/model"
    vectors = albert.load(trained, precision="fp32").embed(TEXTS)
    assert np.abs(vectors - expected).max() > 1e-4
    trained_length = json.loads((trained / "sentence_bert_config.json").read_text())["max_seq_length"]
    assert trained_length == 32
    np.testing.assert_allclose(vectors, through(dense, unscaled(trained, TEXTS)), atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"use_residual": True}, "use_residual"),
        ({"module_input_name": "token_embeddings"}, "token_embeddings"),
        ({"activation_function": "torch.nn.modules.activation.SELU"}, "SELU"),
        ({"activation_function": "mine.Tanh"}, "mine.Tanh"),
        ({"in_features": 12}, "in_features"),
        ({"out_features": "many"}, "out_features"),
    ],
)
def test_other_dense_modules_are_refused(encoder, settings, why):
    add_dense(encoder, **settings)
    with refusal(InvalidConfiguration, "2_Dense", why):
        read_config(encoder)


def test_weights_of_dense_modules_are_checked(encoder):
    add_dense(encoder, out_features=9)
    with refusal(DamagedData, "2_Dense", "[10, 16]"):
        albert.load(str(encoder))
    (encoder / "2_Dense/model.safetensors").rename(encoder / "2_Dense/pytorch_model.bin")
    with refusal(MissingInput, "2_Dense", "pickle"):
        albert.load(str(encoder))


def test_the_encoder_may_be_in_a_folder_of_its_own(encoder, tmp_path):
    expected = albert.load(str(encoder), precision="fp32").embed(TEXTS)
    folder = encoder / "0_Transformer"
    folder.mkdir()
    for file in list(encoder.iterdir()):
        if file.is_file() and file.name not in ("modules.json", "config_sentence_transformers.json"):
            file.rename(folder / file.name)
    (folder / "sentence_bert_config.json").rename(folder / "sentence_roberta_config.json")
    modules = json.loads((encoder / "modules.json").read_text())
    write(encoder, "modules.json", [{**modules[0], "path": "0_Transformer"}, *modules[1:]])
    write(encoder, "config.json", {"__version__": "0.2.0"})  # as versions before 1 wrote it
    for path in (encoder, folder):
        model = albert.load(str(path), precision="fp32")
        np.testing.assert_allclose(model.embed(TEXTS), expected, atol=1e-6)
        assert model.embedding_length == 8
        assert model.embed(TEXTS, prompt="query").shape == expected.shape
    assert run(["export", "sentence-transformers", str(encoder), "--output", str(tmp_path / "copy")]) == 0
    copy = albert.load(tmp_path / "copy", precision="fp32")
    np.testing.assert_allclose(copy.embed(TEXTS), expected, atol=1e-6)
    assert copy.sentence_vectors.prompts == {"query": "query: "}


def test_the_length_of_newer_files_is_that_of_the_tokenizer(encoder):
    write(encoder, "sentence_bert_config.json", {"transformer_task": "feature-extraction"})
    settings = json.loads((encoder / "tokenizer_config.json").read_text())
    for stated, length in ((6, 6), (512, 32), (10**30, 32)):
        write(encoder, "tokenizer_config.json", {**settings, "model_max_length": stated})
        assert albert.load(str(encoder)).embedding_length == length


def test_vectors_are_cut_where_the_files_say(encoder, tmp_path):
    """Matryoshka: after the module that normalises; scaled again if that is asked for."""
    whole = albert.load(encoder, precision="fp32").embed(TEXTS)
    write(encoder, "config_sentence_transformers.json", {"truncate_dim": 6, "similarity_fn_name": "cosine"})
    model = albert.load(encoder, precision="fp32")
    assert model.vector_width == 6
    np.testing.assert_allclose(model.embed(TEXTS), whole[:, :6], atol=1e-6)
    scaled = whole[:, :6] / np.linalg.norm(whole[:, :6], axis=1, keepdims=True)
    np.testing.assert_allclose(model.embed(TEXTS, normalize=True), scaled, atol=1e-6)
    assert run(["convert", str(encoder), "--output", str(tmp_path / "converted")]) == 0
    np.testing.assert_allclose(
        albert.load(tmp_path / "converted", precision="fp32").embed(TEXTS), whole[:, :6], atol=1e-6
    )
    write(encoder, "config_sentence_transformers.json", {"truncate_dim": 0})
    with refusal(InvalidConfiguration, "truncate_dim"):
        albert.load(encoder)


def test_a_directory_without_a_tokenizer_is_named(encoder):
    for name in ("tokenizer.json", "vocab.txt"):
        (encoder / name).unlink()
    with refusal(MissingInput, encoder, "tokenizer.json", "sentencepiece.bpe.model"):
        albert.load(str(encoder))


def test_unknown_prompt_is_refused(encoder):
    with refusal(UsageError, "'passage'", "query"):
        albert.load(str(encoder)).embed(TEXTS, prompt="passage")


def test_a_fine_tuned_classifier_reads_the_pooling_and_keeps_the_files(encoder, tmp_path):
    rows = [
        {"text": f"{text} {word}", "label": label} for word in WORDS for text, label in zip(TEXTS, "abc", strict=True)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {"text": "text", "label": "label", "steps": 3, "batch_size": 4, "device": "cpu", "precision": "fp32"}
    albert.finetune(train=tmp_path / "rows.jsonl", model=str(encoder), output=tmp_path / "run", **settings)
    config, extra = read_config(tmp_path / "run" / "model")
    assert (config.family, config.head_pooling) == ("bert", "max")
    assert extra["sentence_transformers"]["prompts"] == {"query": "query: "}
    content = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    assert content["architectures"] == ["BertForPooledSequenceClassification"]
    model = Predictor.open(tmp_path / "run" / "model", precision="fp32")
    assert sum(each["score"] for each in model.classify(TEXTS[0])) == pytest.approx(1)
    np.testing.assert_allclose(model.embed(TEXTS), reference(tmp_path / "run" / "model", TEXTS, "max", 8), atol=2e-6)
    assert run(["quantize", str(tmp_path / "run" / "model"), "--output", str(tmp_path / "int8")]) == 0
    assert read_config(tmp_path / "int8")[1]["sentence_transformers"] == extra["sentence_transformers"]
    assert run(["export", "onnx", str(tmp_path / "run" / "model"), "--output", str(tmp_path / "model.onnx")]) == 0


# ---- all-MiniLM-L6-v2 ----------------------------------------------------------------------------------------------


def test_real_vectors_equal_those_of_transformers(minilm):
    texts = ["A storm at sea.", "Wind, and high waves; café!", "x" * 300, "hello world " * 200, "中文 e\u0301 [MASK]"]
    actual = albert.load(str(minilm), precision="fp32").embed(texts)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm, split_special_tokens=True)
    expected = reference(minilm, texts[:4], "mean", 256)
    assert tokenizer is not None
    np.testing.assert_allclose(actual[:4], expected, atol=2e-6)


def test_real_scores_on_sts_b(minilm, shared):
    """86.72 is what sentence-transformers' own vectors get."""
    path = shared / "data" / "glue" / "STS-B" / "dev.tsv.gz"
    if not path.is_file():
        pytest.skip("needs the shared material: data/glue/STS-B")
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    model = albert.load(str(minilm))
    first, second = (model.embed([row[column] for row in rows]) for column in ("sentence1", "sentence2"))
    scores = [float(row["score"]) for row in rows]
    assert 100 * spearmanr((first * second).sum(1), scores).statistic == pytest.approx(86.72, abs=0.1)


def test_real_int8_and_onnx(minilm, tmp_path):
    texts = ["A storm at sea.", "Wind, and high waves.", "Shares fell by 3 % after the report was published."]
    exact = albert.load(str(minilm), precision="fp32").embed(texts)
    assert run(["quantize", str(minilm), "--output", str(tmp_path / "int8")]) == 0
    assert (albert.load(str(tmp_path / "int8"), precision="fp32").embed(texts) * exact).sum(1).min() > 0.99
    assert run(["export", "onnx", str(minilm), "--output", str(tmp_path / "model.onnx")]) == 0


def test_a_real_encoder_learns_from_few_rows(minilm, tmp_path):
    texts = {"weather": ["rain all day", "a storm is coming", "sun and wind"], "money": ["my card was charged twice",
             "the bank fee", "a refund, please"]}  # fmt: skip
    rows = [{"text": text, "label": label} for label, each in texts.items() for text in each * 4]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {"text": "text", "label": "label", "epochs": 2, "batch_size": 8, "device": "cpu"}
    albert.finetune(train=tmp_path / "rows.jsonl", model=str(minilm), output=tmp_path / "run", **settings)
    model = albert.load(str(tmp_path / "run"))
    assert read_config(tmp_path / "run" / "model")[0].head_pooling == "mean"
    assert [each[0]["label"] for each in model.classify_batch(["heavy rain", "transfer my money"])] == list(texts)
