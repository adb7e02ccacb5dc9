"""Every key of `config.json` in transformers' classes: followed with the same numbers, without effect, or refused."""

import dataclasses
import importlib
import inspect
import json
import re

import pytest
import torch
import transformers
from tests.parity import FAMILIES, assert_same, make, ours, theirs

import albert
from albert.checkpoints.config_json import NEEDED, WITHOUT_EFFECT, followed_keys
from albert.checkpoints.model_directory import open_model, write_model
from albert.cli.main import run
from albert.model import families

MODEL_TYPES = {getattr(transformers, name + "Config").model_type: name for name in FAMILIES}


def rewrite(path, **keys):
    """Change keys of `config.json`; a missing file of weights stays missing."""
    content = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(content | keys))


def keys_of(name):
    """The keys of a configuration, and those that the code of its models reads."""
    config = getattr(transformers, name + "Config")
    module = importlib.import_module(config.__module__.replace("configuration_", "modeling_"))
    read = re.findall(
        r"""\bconfig\.([a-z_]+)\b(?!\()|getattr\((?:self\.)?config, "([a-z_]+)\"""", inspect.getsource(module)
    )
    fields = {field.name for field in dataclasses.fields(config)}
    return fields | set(config().to_dict()) | {first or second for first, second in read}


def listed(family):
    needed = {each.key for each in (*NEEDED, *families.FAMILIES[family].needed)}
    return needed | set(WITHOUT_EFFECT) | followed_keys(families.FAMILIES[family])


@pytest.mark.parametrize("family", families.FAMILIES)
def test_every_key_of_a_configuration_is_listed(family):
    """A version of transformers with a further key fails here: is it followed, refused or without effect?"""
    assert keys_of(MODEL_TYPES[family]) - listed(family) == set()


def test_a_further_key_would_be_found(monkeypatch):
    further = dataclasses.make_dataclass("BertConfig", [("scale", float, 1.0)], bases=(transformers.BertConfig,))
    further.__module__ = transformers.BertConfig.__module__
    monkeypatch.setattr(transformers, "BertConfig", further)
    assert keys_of("Bert") - listed("bert") == {"scale"}


def test_no_key_is_listed_twice():
    for family in families.FAMILIES:
        keys = [each.key for each in (*NEEDED, *families.FAMILIES[family].needed)]
        assert len(set(keys)) == len(keys)
        assert followed_keys(families.FAMILIES[family]).isdisjoint(WITHOUT_EFFECT)


OTHER_VALUES = {
    "transformers_version": "9.9.9",
    "_name_or_path": "elsewhere",
    "_attn_implementation": "eager",
    "dtype": "float32",
    "output_attentions": True,
    "output_hidden_states": True,
    "return_dict": True,
    "chunk_size_feed_forward": 1,
    "use_cache": False,
    "label2id": {"a": 1, "b": 0},
    "tie_word_embeddings": False,
    "pad_token_id": 9,
    "bos_token_id": 7,
    "eos_token_id": 8,
    "sinusoidal_pos_embds": True,
    "qa_dropout": 0.5,
    "summary_first_dropout": 0.5,
    "summary_last_dropout": 0.5,
}


@pytest.mark.parametrize("name", FAMILIES)
def test_keys_without_effect_have_none(name, tmp_path):
    """With another value of each, the numbers of transformers are still ours."""
    assert OTHER_VALUES.keys() == WITHOUT_EFFECT.keys()
    family = getattr(transformers, name + "Config").model_type
    needed = {each.key for each in families.FAMILIES[family].needed}
    values = {key: value for key, value in OTHER_VALUES.items() if key not in needed}
    for head in ("ForSequenceClassification", "ForQuestionAnswering", "ForMultipleChoice"):
        path = tmp_path / head
        make(name, head).save_pretrained(path)
        rewrite(path, **values)
        again = getattr(transformers, name + head).from_pretrained(path, dtype=torch.float64).eval()
        assert_same(ours(path)[0], theirs(again, head))


FOLLOWED = [
    *((name, "ForMaskedLM", {"layer_norm_eps": 0.05}) for name in FAMILIES if name != "DistilBert"),
    *((name, "Model", {"num_attention_heads": 2}) for name in FAMILIES if name != "DistilBert"),
    ("Albert", "ForMaskedLM", {"hidden_act": "relu"}),
    ("Bert", "ForMaskedLM", {"hidden_act": "gelu_new"}),
    ("DistilBert", "ForMaskedLM", {"activation": "relu"}),
    ("DistilBert", "Model", {"n_heads": 2}),
    ("DistilBert", "Model", {"num_attention_heads": 2}),
    ("DistilBert", "Model", {"layer_norm_eps": 0.05, "type_vocab_size": 7, "hidden_act": "relu"}),
]


@pytest.mark.parametrize(("name", "head", "keys"), FOLLOWED)
def test_keys_that_change_the_numbers_change_ours_likewise(name, head, keys, tmp_path):
    model = make(name, head)
    model.save_pretrained(tmp_path)
    rewrite(tmp_path, **keys)
    again = type(model).from_pretrained(tmp_path, dtype=torch.float64).eval()
    assert_same(ours(tmp_path)[0], theirs(again, head))


REFUSED = {
    "position_embedding_type": ["relative_key", "relative_key_query"],
    "is_encoder_decoder": [True],
    "is_decoder": [True],
    "add_cross_attention": [True],
    "pruned_heads": [{"0": [1]}],
    "per_layer_config": [{"0": {"num_attention_heads": 2}}],
    "quantization_config": [{"quant_method": "bitsandbytes", "load_in_8bit": True}],
    "pad_token_id": [0, None],
    "hidden_act": ["relu", "gelu_new"],
    "summary_type": ["last", "mean", "cls_index", None],
    "summary_use_proj": [False],
    "summary_proj_to_labels": [True],
    "summary_activation": ["tanh", "relu", "gelu_new", None, ""],
}


@pytest.mark.parametrize("name", FAMILIES)
def test_keys_with_which_transformers_computes_something_else_are_refused_by_name(name, tmp_path, refused):
    """At `albert.load` and `albert convert`; the values that are needed open."""
    of_families = [each for family in families.FAMILIES.values() for each in family.needed]
    assert {each.key for each in (*NEEDED, *of_families)} == REFUSED.keys()
    model = make(name, "ForMultipleChoice")
    model.save_pretrained(tmp_path)
    plain = (tmp_path / "config.json").read_text()
    family = model.config.model_type
    for needed in (*NEEDED, *families.FAMILIES[family].needed):
        for value in REFUSED[needed.key]:
            rewrite(tmp_path, **{needed.key: value})
            refused(lambda: albert.load(tmp_path), 78, needed.key, json.dumps(value)[:20])
        output = str(tmp_path / "converted")
        assert run(["convert", str(tmp_path), "--output", output, "--without-tokenizer"]) == 78
        for value in needed.values:
            rewrite(tmp_path, **{needed.key: value})
            assert open_model(tmp_path, "multiple_choice").config.family == family
        (tmp_path / "config.json").write_text(plain)


def test_the_ranking_of_options_would_be_another_with_other_summaries(tmp_path):
    """What a refused key of ELECTRA changes in transformers."""
    model = make("Electra", "ForMultipleChoice")
    usual = theirs(model, "ForMultipleChoice")
    for key, value in {"summary_type": "mean", "summary_activation": "tanh"}.items():
        model.save_pretrained(tmp_path)
        rewrite(tmp_path, **{key: value})
        other = type(model).from_pretrained(tmp_path, dtype=torch.float64).eval()
        assert not torch.allclose(theirs(other, "ForMultipleChoice")[0], usual[0], atol=1e-3)


@pytest.mark.parametrize("head", ["Model", "ForSequenceClassification", "ForMaskedLM"])
def test_summaries_of_electra_concern_multiple_choice_alone(head, tmp_path):
    """Other classes do not read them; a multiple choice that is trained on such an encoder does not have them."""
    model = make("Electra", head)
    model.save_pretrained(tmp_path / "theirs")
    rewrite(tmp_path / "theirs", summary_type="mean", summary_activation="tanh", summary_use_proj=False)
    assert_same(ours(tmp_path / "theirs")[0], theirs(model, head))
    opened = open_model(tmp_path / "theirs", "multiple_choice", dtype=torch.float64)
    (tmp_path / "ours").mkdir()
    write_model(tmp_path / "ours", opened.model, None, extra=opened.extra)
    again = transformers.ElectraForMultipleChoice.from_pretrained(tmp_path / "ours", dtype=torch.float64).eval()
    assert_same(ours(tmp_path / "ours")[0], theirs(again, "ForMultipleChoice"))


def test_a_value_of_the_file_is_refused_by_its_key_not_by_an_option_of_that_name(directory, rewrite, refused, tmp_path):
    rewrite(directory, {"num_attention_heads": 0})
    for command in (
        ["predict", directory, "--fill-mask", "a [MASK]"],
        ["convert", directory, "--output", tmp_path / "x"],
    ):
        assert "--num-attention-heads: is" not in refused(command, 78, "num_attention_heads: is 0")
