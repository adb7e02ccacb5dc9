"""Directories of sentence-transformers: followed by every door, and written back. With a tiny BERT, and with
all-MiniLM-L6-v2 where its package is installed."""

import csv
import gzip
import json

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import spearmanr
from tests.refusals import refusal

import albert
from albert.checkpoints.model_directory import read_config
from albert.cli.main import run
from albert.inference.predictor import Predictor
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.text.huggingface import SPECIAL_PIECES, wordpiece_tokenizer

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


def reference(path, texts, pooling, max_length):
    """The vectors by transformers, one text at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    model = transformers.AutoModel.from_pretrained(path).eval()
    vectors = []
    for text in texts:
        inputs = tokenizer(text, truncation=True, max_length=max_length, return_tensors="pt")
        with torch.no_grad():
            states = model(**inputs).last_hidden_state[0]
        vector = {"mean": states.mean(0), "max": states.amax(0), "cls": states[0]}[pooling]
        vectors.append(torch.nn.functional.normalize(vector, dim=0).numpy())
    return np.stack(vectors)


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
        ("modules.json", [{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}], "'Dense'"),
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
