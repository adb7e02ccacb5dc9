"""RoBERTa and DistilBERT from a table to predictions, ONNX and int8, with two separators and without token types."""

import json
import random

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from tests.parity import from_texts

import albert
from albert.checkpoints.config_json import read_config
from albert.cli.main import run
from albert.inference.predictor import Predictor
from albert.text.huggingface import SPECIAL_PIECES
from albert.text.wordpiece import wordpiece_tokenizer

SENTENCE = "the cat sat on a mat while rain fell over old town and Ada wrote it for Bob"
WORDS = SENTENCE.split()
SIZES = {"vocab_size": 400, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture(scope="module")
def encoders(tmp_path_factory):
    """Masked language models of transformers with random weights, and their tokenizers."""
    torch.manual_seed(0)
    root = tmp_path_factory.mktemp("encoders")
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator([" ".join(WORDS)] * 9, vocab_size=400, special_tokens=special, show_progress=False)
    fast = tokenizers.Tokenizer.from_str(bpe.to_str())
    fast.post_processor = tokenizers.processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    config = transformers.RobertaConfig(
        **SIZES, intermediate_size=24, max_position_embeddings=66, type_vocab_size=1, initializer_range=0.2
    )
    transformers.RobertaForMaskedLM(config).save_pretrained(root / "roberta")
    fast.save(str(root / "roberta" / "tokenizer.json"))
    (root / "roberta" / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "RobertaTokenizer"}))
    pieces = [*SPECIAL_PIECES, *dict.fromkeys(SENTENCE.lower().split()), "?"]
    sizes = {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 64}
    config = transformers.DistilBertConfig(vocab_size=len(pieces), **sizes, initializer_range=0.2)
    transformers.DistilBertForMaskedLM(config).save_pretrained(root / "distilbert")
    wordpiece_tokenizer(pieces).save(root / "distilbert")
    return root


def write_rows(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def sentence(number):
    return " ".join(random.Random(number).choices(WORDS, k=6))


@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_pairs_from_a_table_to_onnx_and_int8(encoders, family, tmp_path):
    rows = [{"a": sentence(n), "b": sentence(n + 99), "label": "xy"[n % 2]} for n in range(24)]
    table = write_rows(tmp_path / "rows.jsonl", rows)
    settings = {"steps": 3, "batch_size": 4, "device": "cpu", "precision": "fp32", "max_length": 32}
    albert.finetune(train=table, text="a", pair="b", label="label", model=str(encoders / family),
                    output=tmp_path / "run", **settings)  # fmt: skip
    path = tmp_path / "run" / "model"
    config, extra = read_config(path)
    assert (config.family, config.match_embedding, extra["architectures"]) == (
        family, False, ["AlbertForSequenceClassification"])  # fmt: skip
    scores = Predictor.open(path, precision="fp32").classify("the cat", "on a mat")
    _, outputs = from_texts(path, transformers.AutoModelForSequenceClassification, "the cat", "on a mat")
    expected = outputs.logits.softmax(-1)[0].tolist()
    assert {each["label"]: each["score"] for each in scores} == pytest.approx(
        dict(zip("xy", expected, strict=True)), abs=1e-5
    )
    assert run(["export", "onnx", str(path), "--output", str(tmp_path / "model.onnx")]) == 0
    assert run(["quantize", str(path), "--output", str(tmp_path / "int8")]) == 0


@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_tags_answers_and_masks(encoders, family, tmp_path):
    rows = [{"tokens": sentence(n).split(), "tags": ["O", "B-PER"] * 3} for n in range(12)]
    settings = {"steps": 2, "batch_size": 4, "device": "cpu", "precision": "fp32", "max_length": 32}
    table = write_rows(tmp_path / "tags.jsonl", rows)
    columns = {"words": "tokens", "tags": "tags"}
    albert.finetune(train=table, model=str(encoders / family), output=tmp_path / "t", **columns, **settings)
    text = "Ada wrote  it for Bob"
    words = Predictor.open(tmp_path / "t" / "model").tag(text)
    assert [text[each["start"] : each["end"]] for each in words] == text.split()
    model = Predictor.open(encoders / family, precision="fp32")
    filled = model.fill_mask("the cat [MASK] on a mat", 3)
    theirs = transformers.pipeline("fill-mask", model=str(encoders / family), device="cpu")
    mask = theirs.tokenizer.mask_token
    expected = theirs(f"the cat {mask} on a mat", top_k=3)
    if family == "distilbert":  # this RoBERTa's mask keeps the blank before it
        assert [each["token"] for each in filled] == [each["token"] for each in expected]
        np.testing.assert_allclose([each["score"] for each in filled], [each["score"] for each in expected], atol=1e-6)
    assert len(filled) == 3


@pytest.mark.parametrize("family", ["roberta", "distilbert"])
def test_a_question_is_answered_by_a_slice(encoders, family, tmp_path):
    rows = [
        {"question": "who wrote it ?", "context": f"{sentence(n)} Ada {sentence(n + 1)}", "answer": "Ada"}
        for n in range(12)
    ]
    settings = {"steps": 2, "batch_size": 4, "device": "cpu", "precision": "fp32", "max_length": 48}
    table = write_rows(tmp_path / "questions.jsonl", rows)
    albert.finetune(train=table, question="question", context="context", answer="answer", question_length=8, stride=8,
                    model=str(encoders / family), output=tmp_path / "q", **settings)  # fmt: skip
    context = "the cat sat on Ada while  rain fell"
    found = Predictor.open(tmp_path / "q" / "model").answer("who ?", context)
    assert found["answer"] == context[found["start"] : found["end"]] != ""
