"""Presets are what was published: every row of the tables, the releases, names that a user guesses."""

import pytest

from albert.model.config import PRESET_ALIASES, PRESET_GROUPS, PRESETS, preset_name


def test_every_preset_is_another_architecture_and_stands_in_one_group():
    assert len(set(PRESETS.values())) == len(PRESETS)
    assert sum(map(len, PRESET_GROUPS.values())) == len(PRESETS)
    assert not set(PRESET_ALIASES) & set(PRESETS) and set(PRESET_ALIASES.values()) <= set(PRESETS)


def test_a_name_says_what_differs_from_its_size():
    sizes = {"base": "albert-base", "large": "albert-large", "xlarge": "albert-xlarge", "xxlarge": "albert-xxlarge"}
    sharings = {"not-shared": "none", "shared-attention": "attention", "shared-ffn": "ffn"}
    for name, meant in {**{name: name for name in PRESETS}, **PRESET_ALIASES}.items():
        config, words = PRESETS[meant], (name if "-" in name else f"albert-{name}").split("-")
        size = PRESETS[sizes[words[1]]]
        assert config.sharing == next((s for said, s in sharings.items() if name.endswith(said)), "all") or (
            words[0] == "bert" and config.sharing == "none"
        )
        for letter, field in (("E", "embedding_size"), ("L", "num_hidden_layers"), ("H", "hidden_size")):
            said = [int(word[1:]) for word in words if word[0] == letter and word[1:].isdigit()]
            expected = said[0] if said else getattr(size, field)
            if words[0] == "bert" and letter == "E":
                expected = config.hidden_size
            assert getattr(config, field) == expected, name
        assert config.intermediate_size == 4 * config.hidden_size


def test_heads_are_64_wide_but_where_the_released_configuration_says_otherwise():
    other = {name: c.num_attention_heads for name, c in PRESETS.items() if c.hidden_size != 64 * c.num_attention_heads}
    assert other == {"albert-xlarge-v1": 16, "albert-xlarge-zh": 16, "albert-xxlarge-zh": 16}


def test_only_version_1_and_bert_have_dropout_and_xxlarge_never_had():
    dropped = {name for name, config in PRESETS.items() if config.hidden_dropout_prob}
    assert dropped == {
        *("albert-base-v1", "albert-large-v1", "albert-xlarge-v1"),
        *("bert-base-uncased", "bert-large-uncased"),
    }
    assert all(PRESETS[name].attention_probs_dropout_prob == 0.1 for name in dropped)
    assert preset_name("albert-xxlarge-v1") == preset_name("albert-xxlarge-v2") == "albert-xxlarge"


def test_googles_alberts_have_the_tanh_gelu_and_the_chinese_ones_relu():
    acts = {name: config.hidden_act for name, config in PRESETS.items() if not name.endswith("-uncased")}
    assert all(act == ("relu" if name.endswith("-zh") else "gelu_new") for name, act in acts.items())
    chinese = {n: (c.vocab_size, c.initializer_range) for n, c in PRESETS.items() if n.endswith("-zh")}
    assert chinese == {
        "albert-base-zh": (21128, 0.02),
        "albert-large-zh": (21128, 0.02),
        "albert-xlarge-zh": (21128, 0.014),
        "albert-xxlarge-zh": (21128, 0.01),
    }


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("albert-base", "albert-base"),
        ("albert-base-v2", "albert-base"),
        ("ALBERT_xxlarge_zh", "albert-xxlarge-zh"),
        ("albert-large-l3-h6144", "albert-large-L3-H6144"),
        ("albert-base-e768-not-shared", "bert-base"),
        ("albert-large-L24", "albert-large"),
        ("bert_large_uncased", "bert-large-uncased"),
        ("albert-bse", None),
        ("albert/albert-base-v2", None),
    ],
)
def test_a_name_is_found_however_it_is_spelt(typed, meant):
    assert preset_name(typed) == meant
