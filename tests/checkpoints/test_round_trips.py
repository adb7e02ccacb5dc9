"""Files of transformers: several dtypes, shards, names of tensors, notes on doubtful and old models."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tests.tiny import tiny_config
from torch import nn

import albert
from albert.checkpoints.config_json import config_to_json, read_config
from albert.checkpoints.huggingface import MODELS, Kind, from_transformers, to_transformers
from albert.checkpoints.loading import checkpoint_warnings
from albert.checkpoints.model_directory import open_model, save_model_directory, write_model
from albert.model.albert import AlbertForMaskedLM, AlbertForPreTraining, AlbertForTokenClassification
from albert.model.packing import pack
from albert.recipes.architecture import PRESETS, EncoderConfig
from albert.runtime.errors import DamagedData

BASE = tiny_config(
    40, num_hidden_layers=3, num_attention_heads=4, max_position_embeddings=16, classifier_dropout_prob=0.0
)
LABELS = 3
SHARED_KEYS = {"vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "hidden_act",
              "intermediate_size", "inner_group_num", "max_position_embeddings", "layer_norm_eps", "type_vocab_size",
              "initializer_range", "classifier_dropout_prob", "hidden_dropout_prob"}  # fmt: skip


def test_file_of_several_dtypes_keeps_them(tmp_path):
    model = AlbertForPreTraining(BASE).to(torch.bfloat16)
    model.albert.encoder.attentions[0].layer_norm.float()
    first, second = (tmp_path / name for name in ("first", "second"))
    save_model_directory(first, model, None)
    opened = open_model(first, "pretraining", dtype=None)
    save_model_directory(second, opened.model, None, extra=opened.extra)
    _assert_the_same_tensors(first, second)
    assert json.loads((second / "config.json").read_text())["dtype"] == "float32"
    assert {parameter.dtype for parameter in open_model(first, "pretraining").model.parameters()} == {torch.float32}


def test_sharded_files_are_opened(tmp_path):
    config = transformers.AlbertConfig(**{key: getattr(BASE, key) for key in SHARED_KEYS})
    theirs = transformers.AlbertForPreTraining(config)
    theirs.save_pretrained(tmp_path, max_shard_size="4KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    opened = open_model(tmp_path, "pretraining")
    assert opened.loading_report.missing == opened.loading_report.unexpected == ()
    assert torch.equal(opened.model.predictions.bias, theirs.predictions.bias)
    assert torch.equal(opened.model.albert.pooler.weight, theirs.albert.pooler.weight)


def test_drawn_parameters_have_the_dtype_of_the_file(tmp_path):
    write_model(tmp_path, AlbertForPreTraining(BASE).to(torch.bfloat16), None)
    opened = open_model(tmp_path, "classification", 4, dtype=None)
    assert opened.model.classifier.weight.dtype == torch.bfloat16


@pytest.mark.parametrize("opened_as", ["classification", "token_classification", "multiple_choice"])
def test_classifier_of_another_task_is_not_loaded(opened_as, tmp_path):
    """Three heads are called `classifier`, and their shapes can agree."""
    for kind in ("classification", "token_classification", "multiple_choice"):
        path = tmp_path / kind
        path.mkdir()
        write_model(path, _ours(kind, BASE, labels=1), None)
        report = open_model(path, opened_as, None if opened_as == "multiple_choice" else 1).loading_report
        assert ("classifier.weight" in report.newly_initialised) == (kind != opened_as)
        assert ("classifier.weight" in report.unexpected) == (kind != opened_as)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("kind", ["pretraining", "masked_lm"])
def test_masked_token_bias_is_written_under_both_names(kind, dtype, tmp_path):
    """transformers 4.46 needs the second name: it ties `predictions.bias` to it after loading.

    If the dtype of the file is the requested one, 4.46.3 assigns parameters instead of copying, so both biases were
    zero without `predictions.decoder.bias`. With both names 4.46.3, 4.57.3 and 5.23.0 load the bias exactly and report
    no missing, unexpected or mismatched tensors (torch 2.13, models/tiny in fp32 and fp16).
    """
    ours = _ours(kind, BASE).to(dtype)
    write_model(tmp_path, ours, None)
    held = load_file(tmp_path / "model.safetensors")
    assert _same(held["predictions.decoder.bias"], held["predictions.bias"]) and held["predictions.bias"].any()
    assert _open_in_theirs(kind, tmp_path).predictions.decoder.bias.equal(ours.predictions.bias.float())
    report = open_model(tmp_path, kind, dtype=None).loading_report
    assert report.missing == report.unexpected == report.dropped == report.newly_initialised == ()
    del held["predictions.decoder.bias"]  # as older versions of transformers wrote it
    save_file(held, tmp_path / "model.safetensors", metadata={"format": "pt"})
    opened = open_model(tmp_path, kind, dtype=None)
    assert opened.loading_report.missing == () and _same(opened.model.predictions.bias, ours.predictions.bias)


def _ours(kind: Kind, config: EncoderConfig, labels: int = LABELS) -> nn.Module:
    model = MODELS[kind](config, labels) if kind.endswith("classification") else MODELS[kind](config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.3 if parameter.ndim == 1 else 0.2)
    return model.eval()


def _open_in_theirs(kind: Kind, directory: Path) -> transformers.PreTrainedModel:
    model_class = getattr(transformers, MODELS[kind].__name__)
    model, report = model_class.from_pretrained(directory, output_loading_info=True)
    assert not any(report.values())
    return model.eval()


def _assert_the_same_tensors(*folders: Path) -> None:
    first, second = (load_file(folder / "model.safetensors") for folder in folders)
    for tensors in (first, second):
        tensors.pop("predictions.decoder.bias", None)  # transformers 5 writes a tied tensor once
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert _same(tensor, second[name]), name


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a, b)


# ---- names of tensors ----------------------------------------------------------------------------------------------

MAP = "albert.encoder.embedding_hidden_mapping_in"


def test_non_identity_map_is_not_dropped():
    config = _square()
    written = to_transformers(AlbertForPreTraining(config).state_dict(), config)
    assert torch.equal(written[f"{MAP}.weight"], torch.eye(8))
    assert not written[f"{MAP}.bias"].any()
    for name, value in ((f"{MAP}.weight", 0.5), (f"{MAP}.bias", 0.1)):
        changed = written | {name: written[name] + value}
        with pytest.raises(DamagedData):
            from_transformers(changed, config, "file")


def test_equal_copies_of_tied_tensors_and_buffers_are_dropped():
    config = _square()
    state = AlbertForPreTraining(config).state_dict()
    written = to_transformers(state, config)
    written["predictions.decoder.weight"] = written["albert.embeddings.word_embeddings.weight"].clone()
    written["albert.embeddings.position_ids"] = torch.arange(6)[None]
    renamed = from_transformers(written, config, "file")
    assert renamed.unexpected == ()
    assert set(renamed.dropped) == {"predictions.decoder.weight", "albert.embeddings.position_ids"}
    assert set(renamed.identity_map) == {f"{MAP}.weight", f"{MAP}.bias"}
    assert renamed.tensors.keys() == state.keys()


def test_one_tensor_of_a_tied_pair_is_enough():
    config = _square()
    written = to_transformers(AlbertForPreTraining(config).state_dict(), config)
    for name in ("predictions.bias", "predictions.decoder.bias"):
        without = {key: tensor for key, tensor in written.items() if key != name}
        renamed = from_transformers(without, config, "file")
        assert torch.equal(renamed.tensors["predictions.bias"], written["predictions.bias"])


def _square() -> EncoderConfig:
    return tiny_config(9, hidden_size=8, intermediate_size=12)


# ---- doubtful and old models ---------------------------------------------------------------------------------------

GOOGLE_KEYS = {"net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "down_scale_factor": 1}
IDS = torch.arange(5, 17)


def _same_as_transformers(directory: Path, **overrides: object) -> torch.Tensor:
    """Our masked-token logits, checked against those of transformers."""
    ours = _masked_tokens(open_model(directory, "pretraining", overrides=overrides).model)
    theirs = transformers.AlbertForPreTraining.from_pretrained(directory, **overrides).eval()
    torch.testing.assert_close(ours, theirs(IDS[None]).prediction_logits[0], rtol=1e-5, atol=1e-5)
    return ours


def test_exact_gelu_of_googles_models_gives_a_note(directory, rewrite, described):
    rewrite(directory, {"hidden_act": "gelu", **GOOGLE_KEYS})
    (note,) = described(directory)["tensors"]["notes"]
    assert "--hidden-act gelu_new" in note
    assert open_model(directory, "pretraining", overrides={"hidden_act": "gelu_new"}).loading_report.notes == ()
    exact = _same_as_transformers(directory)
    assert not torch.equal(_same_as_transformers(directory, hidden_act="gelu_new"), exact)


def test_exact_gelu_of_our_models_gives_no_note(directory, rewrite, described):
    rewrite(directory, {"hidden_act": "gelu"})
    assert not described(directory)["tensors"]["notes"]


@pytest.mark.parametrize("heads", [16, 32])
def test_xlarge_gives_a_note_on_its_number_of_heads(heads):
    xlarge = replace(PRESETS["albert-xlarge"], num_attention_heads=heads)
    (note,) = checkpoint_warnings(xlarge, GOOGLE_KEYS)
    assert f"is {heads}, and ALBERT-xlarge is published with 16 and with 32" in note
    assert checkpoint_warnings(xlarge, {}) == checkpoint_warnings(PRESETS["albert-large"], GOOGLE_KEYS) == ()


def test_number_of_heads_changes_the_outputs(directory):
    two, four = (_same_as_transformers(directory, num_attention_heads=heads) for heads in (2, 4))
    assert not torch.equal(two, four)


@pytest.mark.parametrize("name", ["gelu_pytorch_tanh", "gelu_python"])
def test_other_names_of_activations_are_read(name, directory, rewrite):
    rewrite(directory, {"hidden_act": name})
    _same_as_transformers(directory)


def test_old_names_of_layer_norms_are_read(directory, rewrite):
    expected = _masked_tokens(open_model(directory, "pretraining").model)

    def use_old_names(tensors: dict) -> None:
        for name in [name for name in tensors if "LayerNorm." in name]:
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name)

    rewrite(directory, tensors=use_old_names)
    opened = open_model(directory, "pretraining")
    assert opened.loading_report.missing == opened.loading_report.unexpected == ()
    assert torch.equal(_masked_tokens(opened.model), expected)


def test_layer_norm_with_both_names_uses_the_current_one(directory, rewrite, described):
    def add_old_name(tensors: dict) -> None:
        tensors["albert.embeddings.LayerNorm.gamma"] = tensors["albert.embeddings.LayerNorm.weight"] + 1

    rewrite(directory, tensors=add_old_name)
    opened = open_model(directory, "pretraining")
    assert described(directory)["tensors"]["unexpected"] == ["albert.embeddings.LayerNorm.gamma"]
    assert not (opened.model.albert.embeddings.layer_norm.weight - 1).any()


def test_old_configurations_are_read(directory, rewrite):
    keys = {
        "classifier_dropout_prob": None,
        "layer_norm_eps": None,
        "dtype": None,
        "torch_dtype": "float32",
        **GOOGLE_KEYS,
    }
    rewrite(directory, {**keys, "output_past": True, "pruned_heads": {}, "num_labels": 2, "_num_labels": 2})
    config, extra = read_config(directory)
    assert (config.classifier_dropout_prob, config.layer_norm_eps) == (0.1, 1e-12)
    assert extra["output_past"] is True
    content = json.loads((directory / "config.json").read_text()) | {"classifier_dropout_prob": None}
    (directory / "config.json").write_text(json.dumps(content | {"hidden_dropout_prob": 0.25, "pad_token_id": None}))
    config, extra = read_config(directory)
    assert config.classifier_dropout_prob == 0.25  # as in transformers' token classification
    assert extra["pad_token_id"] is None
    written = config_to_json(config, "AlbertModel", torch.float32, None, extra)
    assert written["pad_token_id"] is None and "torch_dtype" not in written


def test_num_labels_without_names_sets_the_size_of_the_head(directory, rewrite, refused):
    rewrite(directory, {"id2label": None, "label2id": None, "num_labels": 5})
    assert open_model(directory, "token_classification").model.classifier.out_features == 5
    for number in (0, 2**40, "3"):
        rewrite(directory, {"num_labels": number})
        refused(lambda: albert.open_model(directory, "token_classification"), 78, "num_labels")


@pytest.mark.parametrize(("layers", "groups"), [(5, 2), (2, 3)])
def test_uneven_groups_are_refused_with_what_to_write(layers, groups, directory, rewrite, refused):
    rewrite(directory, {"num_hidden_layers": layers, "num_hidden_groups": groups})
    subjects = ("num_hidden_groups", f"{groups} do not divide {layers} layers", f"write num_hidden_groups {layers}")
    refused(lambda: albert.open_model(directory), 78, *subjects)


def test_loss_of_precision_gives_a_note(config, tmp_path):
    write_model(tmp_path, AlbertForTokenClassification(config, 2).double(), None)
    (note,) = open_model(tmp_path, "token_classification").loading_report.notes
    assert note == "torch.float64 in the file, torch.float32 in memory: precision is lost"
    assert open_model(tmp_path, "token_classification", dtype=None).loading_report.notes == ()


@pytest.mark.parametrize(
    ("tied", "original"), [("weight", "albert.embeddings.word_embeddings.weight"), ("bias", "predictions.bias")]
)
def test_untied_decoder_is_refused(directory, rewrite, tied, original, refused):
    name = f"predictions.decoder.{tied}"
    rewrite(directory, {"tie_word_embeddings": False}, lambda content: content.update({name: content[original] + 1}))
    refused(lambda: albert.open_model(directory), 65, name, original)


@pytest.mark.parametrize("value", ["gleu", 3, None])
def test_invalid_override_is_refused(value, directory, refused):
    refused(lambda: albert.open_model(directory, overrides={"hidden_act": value}), 78, "hidden_act")


def _masked_tokens(model: AlbertForPreTraining | AlbertForMaskedLM) -> torch.Tensor:
    packed = pack([IDS.numpy()], [np.zeros(len(IDS), np.int64)])
    with torch.inference_mode():
        outputs = model(packed, torch.arange(len(IDS)))
    return outputs if isinstance(outputs, torch.Tensor) else outputs.masked_tokens
