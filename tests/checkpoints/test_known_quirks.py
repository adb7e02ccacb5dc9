"""Where files disagree with each other or with what trained them, we give transformers' numbers, and say so."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from albert.checkpoints.loading import groups_of_layers, known_quirks, spread_over_layers
from albert.checkpoints.model_directory import config_to_json, open_model, read_config, write_model
from albert.model.albert import AlbertForMaskedLM, AlbertForPreTraining, AlbertForTokenClassification
from albert.model.config import PRESETS, AlbertConfig
from albert.model.packing import pack
from albert.runtime.errors import DamagedData, InvalidConfiguration

Rewrite = Callable[..., None]
RELICS = {"net_structure_type": 0, "gap_size": 0, "num_memory_blocks": 0, "down_scale_factor": 1}
IDS = torch.arange(5, 17)


def test_version_one_computes_what_transformers_does_and_says_what_google_did(directory: Path, rewrite: Rewrite):
    rewrite(directory, {"hidden_act": "gelu", **RELICS})
    opened = open_model(directory, "pretraining")
    (note,) = opened.loading_report.notes
    assert "--hidden-act gelu_new computes what Google computed" in note
    assert note in opened.loading_report.lines()
    theirs = transformers.AlbertForPreTraining.from_pretrained(directory).eval()
    exact = _masked_tokens(opened.model)
    torch.testing.assert_close(exact, theirs(IDS[None]).prediction_logits[0], rtol=1e-5, atol=1e-5)
    tanh = open_model(directory, "pretraining", overrides={"hidden_act": "gelu_new"})
    assert tanh.loading_report.notes == ()
    theirs = transformers.AlbertForPreTraining.from_pretrained(directory, hidden_act="gelu_new").eval()
    torch.testing.assert_close(_masked_tokens(tanh.model), theirs(IDS[None]).prediction_logits[0], rtol=1e-5, atol=1e-5)
    assert not torch.equal(_masked_tokens(tanh.model), exact)


def test_a_model_of_ours_with_the_exact_form_is_not_doubted(directory: Path, rewrite: Rewrite):
    rewrite(directory, {"hidden_act": "gelu"})
    assert open_model(directory, "pretraining").loading_report.notes == ()


@pytest.mark.parametrize("heads", [16, 32])
def test_xlarge_is_doubted_with_either_number_of_heads(heads: int):
    xlarge = replace(PRESETS["albert-xlarge"], num_attention_heads=heads)
    (note,) = known_quirks(xlarge, RELICS)
    assert f"is {heads}, and ALBERT-xlarge is published with 16 and with 32" in note
    assert known_quirks(xlarge, {}) == known_quirks(PRESETS["albert-large"], RELICS) == ()


def test_another_number_of_heads_is_another_model_of_the_same_weights(directory: Path):
    outputs = {}
    for heads in (2, 4):
        opened = open_model(directory, "pretraining", overrides={"num_attention_heads": heads})
        theirs = transformers.AlbertForPreTraining.from_pretrained(directory, num_attention_heads=heads).eval()
        outputs[heads] = _masked_tokens(opened.model)
        torch.testing.assert_close(outputs[heads], theirs(IDS[None]).prediction_logits[0], rtol=1e-5, atol=1e-5)
    assert not torch.equal(outputs[2], outputs[4])


@pytest.mark.parametrize("name", ["gelu_pytorch_tanh", "gelu_python"])
def test_other_names_of_the_same_activations_are_known(name: str, directory: Path, rewrite: Rewrite):
    rewrite(directory, {"hidden_act": name})
    theirs = transformers.AlbertForPreTraining.from_pretrained(directory).eval()
    ours = open_model(directory, "pretraining").model
    torch.testing.assert_close(_masked_tokens(ours), theirs(IDS[None]).prediction_logits[0], rtol=1e-5, atol=1e-5)


def test_old_names_of_layer_norms_are_read(directory: Path, rewrite: Rewrite):
    expected = _masked_tokens(open_model(directory, "pretraining").model)

    def older(held: dict) -> None:
        for name in [name for name in held if "LayerNorm." in name]:
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
            held[old] = held.pop(name)

    rewrite(directory, tensors=older)
    opened = open_model(directory, "pretraining")
    assert opened.loading_report.missing == opened.loading_report.unexpected == ()
    assert torch.equal(_masked_tokens(opened.model), expected)


def test_a_layer_norm_under_both_names_is_not_chosen_from(directory: Path, rewrite: Rewrite):
    def doubled(held: dict) -> None:
        held["albert.embeddings.LayerNorm.gamma"] = held["albert.embeddings.LayerNorm.weight"] + 1

    rewrite(directory, tensors=doubled)
    opened = open_model(directory, "pretraining")
    assert opened.loading_report.unexpected == ("albert.embeddings.LayerNorm.gamma",)
    assert not (opened.model.albert.embeddings.layer_norm.weight - 1).any()


def test_what_old_configurations_leave_out_or_hold_besides(directory: Path, rewrite: Rewrite):
    keys = {"classifier_dropout_prob": None, "layer_norm_eps": None, "dtype": None, "torch_dtype": "float32", **RELICS}
    rewrite(directory, {**keys, "output_past": True, "pruned_heads": {}, "num_labels": 2, "_num_labels": 2})
    config, extra = read_config(directory)
    assert (config.classifier_dropout_prob, config.layer_norm_eps) == (0.1, 1e-12)
    assert extra["output_past"] is True
    content = json.loads((directory / "config.json").read_text()) | {"classifier_dropout_prob": None}
    (directory / "config.json").write_text(json.dumps(content | {"hidden_dropout_prob": 0.25, "pad_token_id": None}))
    config, extra = read_config(directory)
    assert config.classifier_dropout_prob == 0.25  # as transformers' token classification takes null
    assert extra["pad_token_id"] is None
    written = config_to_json(config, "AlbertModel", torch.float32, None, extra)
    assert written["pad_token_id"] is None and "torch_dtype" not in written


def test_a_number_of_labels_without_names_makes_a_head_of_that_size(directory: Path, rewrite: Rewrite):
    rewrite(directory, {"id2label": None, "label2id": None, "num_labels": 5})
    assert open_model(directory, "token_classification").model.classifier.out_features == 5
    for number in (0, 2**40, "3"):
        rewrite(directory, {"num_labels": number})
        with pytest.raises(InvalidConfiguration, match="num_labels"):
            open_model(directory, "token_classification")


@pytest.mark.parametrize(("layers", "groups"), [(5, 2), (3, 2), (7, 3), (18, 14), (2, 3), (2, 5)])
def test_uneven_groups_give_what_transformers_gives(layers: int, groups: int, tmp_path: Path):
    sizes = {"vocab_size": 30, "embedding_size": 8, "hidden_size": 16, "intermediate_size": 24, "inner_group_num": 2,
             "num_attention_heads": 2, "max_position_embeddings": 20}  # fmt: skip
    config = transformers.AlbertConfig(**sizes, num_hidden_layers=layers, num_hidden_groups=groups)
    theirs = transformers.AlbertForMaskedLM(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(0, 0.4)
    theirs.save_pretrained(tmp_path)
    opened = open_model(tmp_path, "masked_lm")
    assert opened.config.num_hidden_groups == layers
    assert opened.loading_report.missing == opened.loading_report.unexpected == ()
    (note,) = opened.loading_report.notes
    assert f"{groups} groups do not divide {layers} layers" in note
    assert ("are left out" in note) == (groups > len(set(groups_of_layers(layers, groups))))
    expected = theirs(IDS[None]).logits[0]
    torch.testing.assert_close(_masked_tokens(opened.model), expected, rtol=1e-4, atol=1e-4)
    with torch.no_grad():  # each layer has memory of its own
        opened.model.albert.encoder.attentions[0].query.weight.fill_(0.0)
    assert opened.model.albert.encoder.attentions[2].query.weight.any()
    (tmp_path / "again").mkdir()
    write_model(tmp_path / "again", opened.model, None, extra=opened.extra)
    again = open_model(tmp_path / "again", "masked_lm")
    assert again.loading_report.notes == ()
    assert "uneven_groups" not in json.loads((tmp_path / "again" / "config.json").read_text())


def test_only_groups_are_renamed():
    names = {"albert.encoder.albert_layer_groups.1.x": 1, "encoder.albert_layer_groups.0.y": 2, "predictions.bias": 3}
    assert spread_over_layers(names, 3, 2) == {
        "albert.encoder.albert_layer_groups.2.x": 1,
        "encoder.albert_layer_groups.0.y": 2,
        "encoder.albert_layer_groups.1.y": 2,
        "predictions.bias": 3,
    }


def test_digits_that_do_not_fit_are_said(config: AlbertConfig, tmp_path: Path):
    write_model(tmp_path, AlbertForTokenClassification(config, 2).double(), None)
    (note,) = open_model(tmp_path, "token_classification").loading_report.notes
    assert note == "torch.float64 in the file, torch.float32 in memory: digits are lost"
    assert open_model(tmp_path, "token_classification", dtype=None).loading_report.notes == ()


def test_a_decoder_that_is_not_tied_has_no_place_here(directory: Path, rewrite: Rewrite):
    words = "albert.embeddings.word_embeddings.weight"
    rewrite(
        directory,
        {"tie_word_embeddings": False},
        lambda held: held.__setitem__("predictions.decoder.weight", held[words] + 1),
    )
    with pytest.raises(DamagedData, match=f"predictions.decoder.weight and {words} are tied in ALBERT but differ"):
        open_model(directory, "pretraining")


@pytest.mark.parametrize("value", ["gleu", 3, None])
def test_an_override_that_is_none_is_refused(value: object, directory: Path):
    with pytest.raises(InvalidConfiguration, match="overrides: hidden_act"):
        open_model(directory, "pretraining", overrides={"hidden_act": value})


def _masked_tokens(model: AlbertForPreTraining | AlbertForMaskedLM) -> torch.Tensor:
    packed = pack([IDS.numpy()], [np.zeros(len(IDS), np.int64)])
    with torch.inference_mode():
        found = model(packed, torch.arange(len(IDS)))
    return found if isinstance(found, torch.Tensor) else found.masked_tokens
