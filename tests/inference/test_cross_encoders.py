"""Cross-encoders: the scores of `CrossEncoder.predict` of sentence-transformers, through every door."""

import csv
import json

import numpy as np
import pytest
import torch
import transformers
from tests.parity import from_texts
from tests.refusals import refusal

import albert
from albert.cli.main import run
from albert.inference.predictor import Predictor
from albert.runtime.errors import InvalidConfiguration
from albert.text.huggingface import SPECIAL_PIECES
from albert.text.wordpiece import wordpiece_tokenizer

WORDS = ["a", "the", "storm", "sea", "wind", "waves", "letter", "friend", "wrote", "to", "at", "and", "high", "from"]
TEXTS = ["a storm at sea", "wind and high waves", "the letter from a friend"]
PAIRS = ["the wind", "a friend wrote", "to the sea and to the storm and to the waves"]
IDENTITY = "torch.nn.modules.linear.Identity"
SIGMOID = "torch.nn.modules.activation.Sigmoid"


def change(path, **keys):
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(content | keys))


def make(path, num_labels=1):
    torch.manual_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.BertConfig(
        **sizes, intermediate_size=24, max_position_embeddings=32, initializer_range=0.5, num_labels=num_labels
    )
    transformers.BertForSequenceClassification(config).save_pretrained(path)
    wordpiece_tokenizer([*SPECIAL_PIECES, *WORDS]).save(path)
    return path


@pytest.fixture
def encoder(tmp_path):
    """A tiny cross-encoder; its files do not name an activation."""
    return make(tmp_path / "encoder")


def logits(path, texts=TEXTS, pairs=PAIRS):
    """The outputs by transformers, one pair at a time."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(path)
    rows = [from_texts(path, model, *row, truncation=True)[1].logits[0] for row in zip(texts, pairs, strict=True)]
    return torch.stack(rows)


def as_version_5(path, activation):
    """The files that sentence-transformers 5 writes beside a cross-encoder."""
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
    ]
    (path / "modules.json").write_text(json.dumps(modules))
    keys = {"model_type": "CrossEncoder", "activation_fn": activation, "prompts": {}, "default_prompt_name": None}
    change(path / "config_sentence_transformers.json", **keys)


@pytest.mark.parametrize("version", ["3", "4", "5"])
@pytest.mark.parametrize("activation", [IDENTITY, SIGMOID])
def test_scores_have_the_activation_that_the_files_name(encoder, version, activation, tmp_path):
    match version:
        case "3":
            change(encoder / "config.json", sbert_ce_default_activation_function=activation)
        case "4":
            change(encoder / "config.json", sentence_transformers={"activation_fn": activation, "version": "4.1.0"})
        case "5":
            as_version_5(encoder, activation)
    expected = logits(encoder)[:, 0]
    expected = (expected if activation == IDENTITY else expected.sigmoid()).numpy()
    model = albert.load(encoder, precision="fp32")
    assert model.reads_pairs is True
    np.testing.assert_allclose(model.score_batch(TEXTS, PAIRS), expected, atol=1e-5)
    assert run(["quantize", str(encoder), "--output", str(tmp_path / "int8")]) == 0
    assert run(["convert", str(encoder), "--output", str(tmp_path / "converted")]) == 0
    for copy in ("int8", "converted"):
        of_copy = albert.load(tmp_path / copy, precision="fp32").score_batch(TEXTS, PAIRS)
        np.testing.assert_allclose(of_copy, expected, atol=0.3)
    written = json.loads((tmp_path / "converted" / "config.json").read_text())
    assert written["sentence_transformers"] == {"activation_fn": activation}
    assert run(["export", "sentence-transformers", str(encoder), "--output", str(tmp_path / "exported")]) == 0
    assert albert.load(tmp_path / "exported").embed(TEXTS).shape == (3, 16)


def test_one_output_without_a_meaning_is_a_sigmoid_and_a_note(encoder, tmp_path, capsys):
    expected = logits(encoder)[:, 0]
    rows = tmp_path / "rows.csv"
    with rows.open("w", newline="") as file:
        csv.writer(file).writerows([["q", "p", "gold"], *zip(TEXTS, PAIRS, "123", strict=True)])
    output = tmp_path / "scores.jsonl"
    command = ["predict", str(encoder), "--input", str(rows), "--text", "q", "--pair", "p", "--precision", "fp32"]
    assert run([*command, "--output", str(output)]) == 0
    assert "sigmoid" in capsys.readouterr().err
    assert run(["info", str(encoder)]) == 0
    assert "Sigmoid of its output" in capsys.readouterr().out
    scores = [json.loads(line)["predicted_score"] for line in output.read_text().splitlines()]
    np.testing.assert_allclose(scores, expected.sigmoid().numpy(), atol=1e-5)
    command = ["evaluate", "--model", str(encoder), "--dev", str(rows), "--text", "q", "--pair", "p", "--label", "gold"]
    assert run([*command, "--predictions", str(tmp_path / "evaluated.jsonl")]) == 0
    scores = [json.loads(line)["prediction"] for line in (tmp_path / "evaluated.jsonl").read_text().splitlines()]
    np.testing.assert_allclose(scores, expected.sigmoid().numpy(), atol=1e-5)
    for key, value in (("problem_type", "regression"), ("finetuning_task", "sts-b")):
        change(encoder / "config.json", problem_type=None, finetuning_task=None)
        change(encoder / "config.json", **{key: value})
        np.testing.assert_allclose(
            albert.load(encoder, precision="fp32").score_batch(TEXTS, PAIRS), expected.numpy(), atol=1e-5
        )


def test_several_outputs_are_classes_and_with_a_sigmoid_labels(tmp_path):
    path = make(tmp_path / "nli", 3)
    for activation, expected in ((IDENTITY, logits(path).softmax(1)), (SIGMOID, logits(path).sigmoid())):
        change(path / "config.json", sentence_transformers={"activation_fn": activation})
        model = albert.load(path, precision="fp32")
        ranked = model.classify_batch(TEXTS, PAIRS)
        scores = [
            [{entry["label"]: entry["score"] for entry in row}[label] for label in model.labels] for row in ranked
        ]
        np.testing.assert_allclose(scores, expected.numpy(), atol=1e-5)


def test_texts_are_cut_where_the_tokenizer_says(encoder):
    change(encoder / "tokenizer_config.json", model_max_length=9)
    change(encoder / "config.json", problem_type="regression")
    model = albert.load(encoder, precision="fp32")
    assert model.max_length == 9
    np.testing.assert_allclose(model.score_batch(TEXTS, PAIRS), logits(encoder)[:, 0].numpy(), atol=1e-5)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "tokenizer.json"])
def test_a_tokenizer_that_cuts_texts_at_their_start_is_refused(encoder, file, refused):
    change(encoder / "config.json", problem_type="regression")
    change(encoder / "tokenizer_config.json", model_max_length=9)

    def write(side):
        truncation = {"direction": side.title(), "max_length": 9, "strategy": "LongestFirst", "stride": 0}
        change(encoder / file, **({"truncation_side": side} if "config" in file else {"truncation": truncation}))

    for side in ("right", "left"):
        write(side)
        expected = logits(encoder)[:, 0].numpy()
        if side == "right":
            usual = expected
            np.testing.assert_allclose(
                albert.load(encoder, precision="fp32").score_batch(TEXTS, PAIRS), usual, atol=1e-5
            )
        else:
            assert not np.allclose(expected, usual, atol=1e-3)
            refused(
                lambda: albert.load(encoder), 78, file, "truncation", side.title() if file == "tokenizer.json" else side
            )


@pytest.mark.parametrize("length", [10, 11, 12, 13])
def test_long_pairs_have_the_scores_of_transformers(encoder, length):
    """Both texts are cut; the odd token is that of the longer one."""
    change(encoder / "tokenizer_config.json", model_max_length=length)
    change(encoder / "config.json", problem_type="regression")
    texts = [" ".join(WORDS[:count]) for count in (9, 9, 10, 4, 5, 12)]
    pairs = [" ".join(WORDS[-count:]) for count in (9, 10, 9, 12, 12, 5)]
    expected = logits(encoder, texts, pairs)[:, 0].numpy()
    scores = albert.load(encoder, precision="fp32").score_batch(texts, pairs)
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def test_a_fine_tuned_pair_regression_says_that_its_score_is_the_number(encoder, tmp_path):
    rows = [
        {"q": f"{q} {w}", "p": p, "gold": n / 2} for n, w in enumerate(WORDS) for q, p in zip(TEXTS, PAIRS, strict=True)
    ]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"text": "q", "pair": "p", "label": "gold"}
    settings = {"steps": 3, "batch_size": 4, "device": "cpu", "precision": "fp32"}
    albert.finetune(train=tmp_path / "rows.jsonl", model=str(encoder), output=tmp_path / "run", **columns, **settings)
    path = tmp_path / "run" / "model"
    assert json.loads((path / "config.json").read_text())["sentence_transformers"] == {"activation_fn": IDENTITY}
    actual = Predictor.open(path, precision="fp32").score_batch(TEXTS, PAIRS)
    np.testing.assert_allclose(actual, logits(path)[:, 0].numpy(), atol=1e-4)


def test_the_head_of_a_sigmoid_is_not_trained_further_on_numbers(encoder, tmp_path):
    rows = [{"q": q, "p": p, "gold": n / 2} for n, (q, p) in enumerate(zip(TEXTS * 8, PAIRS * 8, strict=True))]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"train": tmp_path / "rows.jsonl", "text": "q", "pair": "p", "label": "gold"}
    settings = {"steps": 1, "batch_size": 4, "device": "cpu", "precision": "fp32", "model": str(encoder)}
    albert.finetune(**columns, **settings, keep_head=True, output=tmp_path / "unstated")
    change(encoder / "config.json", sentence_transformers={"activation_fn": SIGMOID})
    with refusal(InvalidConfiguration, str(encoder), "sigmoid"):
        albert.finetune(**columns, **settings, keep_head=True, output=tmp_path / "kept")
    change(encoder / "config.json", sentence_transformers={"activation_fn": IDENTITY})
    albert.finetune(**columns, **settings, keep_head=True, output=tmp_path / "kept")


def test_what_is_no_model_with_a_head_is_refused(encoder):
    change(encoder / "config.json", sentence_transformers={"activation_fn": "torch.nn.Hardtanh"})
    with refusal(InvalidConfiguration, "config.json", "Hardtanh", "Sigmoid"):
        albert.load(encoder)
    as_version_5(encoder, IDENTITY)
    modules = [{"type": "a.Transformer", "path": ""}, {"type": "a.LogitScore", "path": "1_LogitScore"}]
    (encoder / "modules.json").write_text(json.dumps(modules))
    with refusal(InvalidConfiguration, "modules.json", "LogitScore"):
        albert.load(encoder)


@pytest.mark.parametrize(
    "settings",
    [
        {"model_input_names": ["input_ids", "attention_mask"]},
        {"tokenizer_class": "PreTrainedTokenizerFast"},
        {"tokenizer_class": "BertTokenizer"},
    ],
)
def test_the_second_text_has_a_type_where_the_tokenizer_gives_one(encoder, settings, tmp_path):
    """BERTs with the tokenizer of XLM-R have two types, and read a pair without the second."""
    change(encoder / "config.json", problem_type="regression")
    content = json.loads((encoder / "tokenizer.json").read_text())
    if (
        settings["tokenizer_class" if "tokenizer_class" in settings else "model_input_names"]
        == "PreTrainedTokenizerFast"
    ):
        processor = {"type": "RobertaProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
        content["post_processor"] = processor | {"trim_offsets": True, "add_prefix_space": False}
        (encoder / "tokenizer.json").write_text(json.dumps(content))
    change(encoder / "tokenizer_config.json", **settings)
    expected = logits(encoder)[:, 0].numpy()
    model = albert.load(encoder, precision="fp32")
    assert model.config.segment_types is (settings.get("tokenizer_class") == "BertTokenizer")
    np.testing.assert_allclose(model.score_batch(TEXTS, PAIRS), expected, atol=1e-5)
    assert run(["convert", str(encoder), "--output", str(tmp_path / "converted")]) == 0
    copy = albert.load(tmp_path / "converted", precision="fp32")
    np.testing.assert_allclose(copy.score_batch(TEXTS, PAIRS), expected, atol=1e-5)
    np.testing.assert_allclose(logits(tmp_path / "converted")[:, 0].numpy(), expected, atol=1e-5)
    assert run(["export", "onnx", str(encoder), "--output", str(tmp_path / "model.onnx")]) == 0
