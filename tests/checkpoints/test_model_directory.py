"""Model directories: writing, opening and checking them, memory, model cards."""

import contextlib
import io
import json
import os
import pickle
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import transformers
import yaml
from huggingface_hub import ModelCard as HubCard
from safetensors.torch import load_file
from tests.tiny import tiny_config

import albert
from albert.checkpoints.card import BaseModel, Card, Measured, WrittenModel, model_card
from albert.checkpoints.config_json import read_config
from albert.checkpoints.huggingface import MODELS, kind_of
from albert.checkpoints.model_directory import open_model, save_model_directory, write_model
from albert.cli.main import run
from albert.commands.sample import load_chapters
from albert.model.albert import AlbertForMaskedLM, AlbertForPreTraining, AlbertForSequenceClassification, AlbertModel
from albert.model.packing import pack
from albert.recipes.architecture import PRESETS, EncoderConfig
from albert.runtime.errors import CannotCreate, InvalidConfiguration, MissingInput
from albert.text.sentencepiece import train_tokenizer

TRANSFORMERS_KEYS = {
    "architectures", "model_type", "vocab_size", "embedding_size", "hidden_size", "num_hidden_layers",
    "num_hidden_groups", "inner_group_num", "num_attention_heads", "intermediate_size", "hidden_act",
    "hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob", "max_position_embeddings",
    "type_vocab_size", "initializer_range", "layer_norm_eps", "pad_token_id", "bos_token_id", "eos_token_id",
    "tie_word_embeddings", "dtype", "id2label", "label2id",
}  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_config_round_trip_writes_every_key(name, tmp_path):
    config = replace(
        PRESETS[name], vocab_size=7, embedding_size=4, hidden_size=4, num_attention_heads=2, intermediate_size=3,
        classifier_dropout_prob=0.25, layer_norm_eps=1e-6,
    )  # fmt: skip
    write_model(
        tmp_path, AlbertForPreTraining(config), None, extra={"sentence_objective": "sop", "max_sequence_length": 128}
    )
    content = json.loads((tmp_path / "config.json").read_text())
    assert content.keys() >= TRANSFORMERS_KEYS
    read, extra = read_config(tmp_path)
    assert read == config
    assert (extra["sentence_objective"], extra["max_sequence_length"]) == ("sop", 128)
    assert content["architectures"] == ["AlbertForPreTraining"]


@pytest.mark.parametrize("mask", [0o022, 0o007, 0o077], ids=oct)
def test_files_have_the_permissions_of_the_umask(config, tmp_path, mask):
    before = os.umask(mask)
    try:
        save_model_directory(tmp_path / "model", AlbertModel(config), None)
    finally:
        os.umask(before)
    modes = {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "model").iterdir()}
    assert modes == {0o666 & ~mask}


def test_equal_models_give_equal_bytes(config, tmp_path):
    model = AlbertForPreTraining(config)
    for name in ("first", "second"):
        save_model_directory(tmp_path / name, model, None, extra={"sentence_objective": "sop"})
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


@pytest.mark.parametrize("labels", [{0: "a"}, {0: "a", 1: "a"}, {1: "a", 2: "b"}, ["a", "b"]])
def test_incomplete_labels_are_refused(config, tmp_path, labels):
    with pytest.raises(InvalidConfiguration) as refusal:
        write_model(tmp_path, AlbertForSequenceClassification(config, 2), None, extra={"id2label": labels})
    assert "id2label" in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


def test_existing_directory_is_not_overwritten(directory, config):
    before = (directory / "model.safetensors").read_bytes()
    with pytest.raises(CannotCreate):
        save_model_directory(directory, AlbertForPreTraining(config), None)
    assert (directory / "model.safetensors").read_bytes() == before
    save_model_directory(str(directory), AlbertForPreTraining(config), None, replace=True)
    assert run(["info", str(directory), "--verify"]) == 0


def test_missing_head_is_drawn_and_reported(directory):
    report = open_model(directory, "classification", num_labels=4).loading_report
    assert report.newly_initialised == report.missing == ("classifier.weight", "classifier.bias")
    assert any(name.startswith("predictions.") for name in report.unexpected)
    text = "\n".join(report.lines())
    assert not report.verified and "unverified" in text
    assert "newly initialised, at random: 2 (classifier.weight, classifier.bias)" in text


def test_other_number_of_labels_needs_a_new_head(config, tmp_path, refused):
    model = AlbertForSequenceClassification(config, 3)
    write_model(tmp_path, model, None)
    refused(lambda: albert.open_model(tmp_path, "classification", 2), 78, tmp_path, "classifier")
    opened = open_model(tmp_path, "classification", num_labels=2, new_head=True)
    assert opened.model.classifier.out_features == 2
    assert opened.loading_report.newly_initialised == ("classifier.weight", "classifier.bias")
    assert opened.loading_report.missing == ()
    assert torch.equal(opened.model.albert.pooler.weight, model.albert.pooler.weight)
    with torch.device("meta"):  # as torch.set_default_device
        new = open_model(tmp_path, "classification", num_labels=3, new_head=True).model
    assert not torch.equal(new.classifier.weight, model.classifier.weight)
    for labels in (0, -1, True):
        refused(lambda: albert.open_model(tmp_path, "classification", labels), 78, f"num_labels: is {labels!r}")  # noqa: B023


def test_dropout_heads_and_depth_can_be_overridden(directory, refused):
    overrides = {"hidden_dropout_prob": 0.1, "num_attention_heads": 4, "num_hidden_layers": 7}
    opened = open_model(directory, "pretraining", overrides=overrides)
    assert opened.config.hidden_dropout_prob == 0.1
    assert len(opened.model.albert.encoder.plan) == 7
    assert opened.model.albert.encoder.attentions[0].heads == 4
    refused(lambda: albert.open_model(directory, overrides={"hiden_size": 3}), 78, "hiden_size", "'hidden_size'")


def test_damaged_file_is_refused_by_its_hash(config, tmp_path, refused):
    path = tmp_path / "model"
    save_model_directory(path, AlbertForPreTraining(config), None)
    for file in ("config.json", "model.safetensors"):
        content = (path / file).read_bytes()
        flipped = bytearray(content)
        flipped[len(content) // 2] ^= 1
        (path / file).write_bytes(flipped)
        refused(lambda: albert.open_model(path), 65, path / file, "SHA-256")
        (path / file).write_bytes(content)
    (path / "README.md").write_text("# a card that its user has edited")
    open_model(path, "pretraining")
    assert run(["info", str(path), "--verify"]) == 0


def test_non_finite_weights_are_refused(directory, rewrite, refused):
    rewrite(directory, tensors=lambda tensors: tensors["albert.pooler.bias"].__setitem__(3, float("nan")))
    refused(lambda: albert.open_model(directory), 65, directory, "albert.pooler.bias")


def test_pickle_is_never_loaded(directory, refused):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was executed",))

    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(pickle.dumps(Bomb()))
    refused(lambda: albert.open_model(directory), 66, directory, "pickle", "save_pretrained")


def test_missing_weights_or_configuration_are_named(directory, refused):
    """dev/reliability/hostile_files.py has invalid indices and weights of other frameworks."""
    (directory / "model.safetensors").unlink()
    refused(lambda: albert.open_model(directory), 66, directory, "model.safetensors")
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "absent.safetensors"}}))
    refused(lambda: albert.open_model(directory), 66, "absent.safetensors", "model.safetensors.index.json")


def test_missing_layers_are_refused(directory, rewrite, refused):
    rewrite(directory, {"num_hidden_groups": 3})
    refused(lambda: albert.open_model(directory), 65, directory, "32", "albert.encoder")


def test_missing_keys_have_transformers_defaults(directory, rewrite):
    rewrite(directory, dict.fromkeys(("hidden_size", "intermediate_size", "num_attention_heads")))
    config, _ = read_config(directory)
    assert (config.hidden_size, config.intermediate_size, config.num_attention_heads) == (4096, 16384, 64)


@pytest.mark.parametrize(
    ("keys", "subject"),
    [
        ({"model_type": "t5"}, "T5"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"hidden_size": "16"}, "hidden_size"),
        ({"hidden_size": 16.0}, "hidden_size"),
        ({"hidden_act": "swish"}, "'swish'"),
        ({"num_attention_heads": 3}, "3 heads"),
        ({"sharing": "some"}, "'some'"),
        ({"id2label": {"x": "y"}}, "id2label"),
        ({"architectures": "AlbertModel"}, "architectures"),
    ],
)
def test_invalid_configuration_is_refused(directory, rewrite, refused, keys, subject):
    rewrite(directory, keys)
    refused(lambda: albert.open_model(directory), 78, subject)


def test_model_of_equal_sizes_keeps_transformers_map(tmp_path, config, rewrite):
    wide = replace(config, embedding_size=16)
    write_model(tmp_path, AlbertForPreTraining(wide), None)
    assert read_config(tmp_path)[0] == wide
    rewrite(tmp_path, {"embedding_projection": None})
    opened = open_model(tmp_path, "pretraining")
    assert opened.config.embedding_projection is True
    assert torch.equal(opened.model.albert.embeddings.projection.weight, torch.eye(16))


def test_different_copies_of_a_shared_block_are_refused(tmp_path, config, rewrite, refused):
    write_model(tmp_path, AlbertForPreTraining(replace(config, sharing="attention")), None)
    name = "albert.encoder.albert_layer_groups.2.albert_layers.0.attention.query.bias"
    rewrite(tmp_path, tensors=lambda tensors: tensors[name].add_(0.5))
    refused(lambda: albert.open_model(tmp_path), 65, '"sharing": "none"')
    rewrite(tmp_path, {"sharing": "none"})
    opened = open_model(tmp_path, "pretraining")
    assert len(opened.model.albert.encoder.attentions) == 3
    assert opened.loading_report.missing == ()


def test_opened_model_does_not_depend_on_its_file(directory):
    model = open_model(directory, "pretraining").model
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with open(directory / "model.safetensors", "r+b") as file:
        file.seek(-4000, 2)
        file.write(b"\xff" * 4000)
    shutil.rmtree(directory)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_missing_tokenizer_is_refused(config, tmp_path):
    with pytest.raises(MissingInput):
        save_model_directory(tmp_path / "model", AlbertForPreTraining(config), tmp_path)
    assert not (tmp_path / "model").exists()


# ---- memory --------------------------------------------------------------------------------------------------------

MEASURE = """
import json, sys
from albert.checkpoints.model_directory import open_model
def memory(key):
    with open("/proc/self/status") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(key + ":"))
small, large = sys.argv[1:]
open_model(small, "pretraining")  # the first call needs memory for code
before = memory("VmRSS")
with open("/proc/self/clear_refs", "w") as file:  # resets the peak
    file.write("5")
model = open_model(large, "pretraining").model
print(json.dumps({"peak": memory("VmHWM") - before, "compiler": "torch._dynamo" in sys.modules}))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux reports peak memory")
def test_weights_are_in_memory_once_and_no_compiler_is_imported(config, tmp_path):
    large = EncoderConfig(vocab_size=100_000, num_hidden_layers=2, hidden_size=256, num_attention_heads=4,
                         intermediate_size=1024)  # fmt: skip
    for name, shape in (("small", config), ("large", large)):
        (tmp_path / name).mkdir()
        with torch.device("meta"):
            model = AlbertForPreTraining(shape)
        write_model(tmp_path / name, model.to_empty(device="cpu").apply(_zeros), None)
    size = (tmp_path / "large" / "model.safetensors").stat().st_size
    assert size > 50_000_000
    command = [sys.executable, "-c", MEASURE, str(tmp_path / "small"), str(tmp_path / "large")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr
    measured = json.loads(result.stdout)
    assert 0.9 * size < measured["peak"] < 1.1 * size
    assert not measured["compiler"]


def _zeros(module: torch.nn.Module) -> None:
    for parameter in module.parameters(recurse=False):
        torch.nn.init.zeros_(parameter)


# ---- sentence objectives ---------------------------------------------------------------------------------------------

HEAD = ("sop_classifier.classifier.weight", "sop_classifier.classifier.bias")
POOLER = ("albert.pooler.weight", "albert.pooler.bias")


@pytest.fixture
def written(tmp_path: Path, config: EncoderConfig) -> Callable[[str], tuple[AlbertForPreTraining, Path]]:
    """Writes a pre-training model with a sentence objective."""

    def write(objective: str) -> tuple[AlbertForPreTraining, Path]:
        model = AlbertForPreTraining(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(0, 0.3)
        write_model(tmp_path, model, None, extra={"sentence_objective": objective})
        return model, tmp_path

    return write


def test_next_sentence_head_round_trip_is_not_sentence_order_in_transformers(written, config):
    model, path = written("nsp")
    assert json.loads((path / "config.json").read_text())["architectures"] == ["AlbertForMaskedLM"]
    assert "nsp_classifier.classifier.bias" in open_model(path, "masked_lm").loading_report.unexpected
    opened = open_model(path, kind_of(read_config(path)[1]))
    assert isinstance(opened.model, AlbertForPreTraining)
    assert opened.loading_report.missing == opened.loading_report.unexpected == ()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, opened.model.state_dict()[name])
    _, report = transformers.AlbertForPreTraining.from_pretrained(path, output_loading_info=True)
    assert set(report["missing_keys"]) == set(HEAD)
    assert set(report["unexpected_keys"]) == {name.replace("sop", "nsp") for name in HEAD}
    masked, report = transformers.AlbertForMaskedLM.from_pretrained(path, output_loading_info=True)
    assert not report["missing_keys"]
    assert set(report["unexpected_keys"]) == {*POOLER, *(name.replace("sop", "nsp") for name in HEAD)}
    _assert_equal_masked_tokens(masked, model, config)


def test_untrained_heads_are_not_written(written, config):
    model, path = written("none")
    assert not {*HEAD, *POOLER} & load_file(path / "model.safetensors").keys()
    assert kind_of(read_config(path)[1]) == "masked_lm"
    report = open_model(path, "masked_lm").loading_report
    assert report.missing == report.unexpected == ()
    drawn = open_model(path, "pretraining").loading_report.newly_initialised
    assert set(drawn) == {*HEAD, *POOLER}
    masked, report = transformers.AlbertForMaskedLM.from_pretrained(path, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    _assert_equal_masked_tokens(masked, model, config)


def test_sentence_objective_does_not_change_a_fine_tuned_model(tmp_path, config):
    model = AlbertForSequenceClassification(config, 2)
    write_model(tmp_path, model, None, extra={"sentence_objective": "none"})
    assert read_config(tmp_path)[1]["architectures"] == ["AlbertForSequenceClassification"]
    assert set(POOLER) < load_file(tmp_path / "model.safetensors").keys()


def test_unknown_objective_is_refused_before_writing(tmp_path, config):
    with pytest.raises(InvalidConfiguration):
        write_model(tmp_path, AlbertForPreTraining(config), None, extra={"sentence_objective": "nps"})
    assert list(tmp_path.iterdir()) == []


def _assert_equal_masked_tokens(theirs: torch.nn.Module, ours: AlbertForPreTraining, config: EncoderConfig) -> None:
    ids = torch.arange(5, 17)
    packed = pack([ids.numpy()], [torch.zeros_like(ids).numpy()])
    masked_lm = AlbertForMaskedLM(config)
    masked_lm.load_state_dict(ours.state_dict(), strict=False)
    with torch.inference_mode():
        expected = theirs.eval()(ids[None]).logits[0]
        logits = ours(packed, torch.arange(12)).masked_tokens
        assert torch.equal(masked_lm.eval()(packed, torch.arange(12)), logits)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


LABELLED = ("classification", "pair_classification", "token_classification")


# ---- model cards -----------------------------------------------------------------------------------------------------

HOSTILE = 'no: "yes" | {x} \\ # --- \n---\nlicense: evil'


def test_card_shows_all_fields_and_escapes_special_characters():
    card = Card(
        name=HOSTILE,
        description="A model for tests.",
        parameters={"embeddings": 1_234_567},
        recipe={
            "optimizer": {"kind": "lamb", "clamp": None},
            "learning_rate": 0.00012000000000000002,
            "max_tokens": None,
            "mixture": [],
            "favor_shorter": True,
            "layers": (1, 2),
            HOSTILE: HOSTILE,
        },
        data=["a corpus", HOSTILE],
        scores={"MLM accuracy": 0.54321},
        measured=[Measured(dataset=HOSTILE, split="test", scores={"accuracy": 54.321, HOSTILE: 1})],
        tags=["sop", HOSTILE],
        versions={"torch": "2.13"},
        limits=["knows little"],
        base=BaseModel(names=("someone/base",), languages=("en", "no"), license="mit"),
        base_relation="finetune",
    )
    text = model_card(card, WrittenModel(architecture="AlbertForPreTraining", config=tiny_config(50)))
    for part in ("1,234,567", "| optimizer | kind lamb |", "a corpus", "0.5432", "2.13", "knows little"):
        assert part in text
    for row in ("| learning_rate | 0.00012 |", "| favor_shorter | yes |", "| layers | 1, 2 |"):
        assert row in text
    assert "max_tokens" not in text and "mixture" not in text and "clamp" not in text
    match = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    assert match is not None
    header = yaml.safe_load(match[1])
    line = " ".join(HOSTILE.split())
    (index,) = header.pop("model-index")
    assert index["name"] == line
    assert index["results"][0]["task"] == {"type": "fill-mask"}
    assert index["results"][0]["dataset"] == {"name": line, "type": line, "split": "test"}
    metrics = [(each["type"], each["value"]) for each in index["results"][0]["metrics"]]
    assert metrics == [("accuracy", 54.32), (HOSTILE, 1)]
    assert header == {
        "base_model": "someone/base",
        "base_model_relation": "finetune",
        "language": ["en", "no"],
        "library_name": "transformers",
        "license": "mit",
        "metrics": ["accuracy"],
        "pipeline_tag": "fill-mask",
        "tags": ["albert", "sop", HOSTILE],
    }
    assert HubCard(text).data.eval_results[0].metric_value == 54.32
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 3 for row in rows)


@pytest.mark.parametrize(
    ("kind", "extra"),
    [
        *((kind, {}) for kind in MODELS),
        ("classification", {"problem_type": "multi_label_classification", "label_threshold": 0.3}),
        *(("pretraining", {"sentence_objective": objective}) for objective in ("nsp", "none")),
    ],
)
def test_card_example_runs(kind, extra, tmp_path):
    tokenizer = train_tokenizer([load_chapters()[0].text[:20_000]], vocab_size=200)
    (tmp_path / "tokenizer").mkdir()
    tokenizer.save(tmp_path / "tokenizer")
    config = tiny_config(tokenizer.vocab_size)
    path = tmp_path / "model"
    model = MODELS[kind](config, 2) if kind in LABELLED else MODELS[kind](config)
    save_model_directory(path, model, tmp_path / "tokenizer", extra=extra)
    card = (path / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert "path/to/this/directory" in code
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code.replace("path/to/this/directory", str(path)), "card", "exec"), {})
    assert printed.getvalue()
    assert f"| all | {sum(p.numel() for p in model.parameters()):,} |" in card
