"""Published sizes beside exact counts; size reports."""

import json
from dataclasses import replace
from itertools import product

import pytest
import torch
import transformers

from albert.cli.main import run
from albert.model.cost import count_parameters
from albert.model.sizes import PUBLISHED_SIZES, differences, preset_of_shape
from albert.recipes.architecture import PRESETS

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "size"),
    [(name, size) for name, published in PUBLISHED_SIZES.items() for size in published],
    ids=lambda value: getattr(value, "stated", value),
)
def test_published_size_equals_its_count_or_none(name, size):
    assert size.reason
    millions = int(size.stated.removesuffix("M"))
    assert size.counted is None or round(size.exact / 1e6) == millions
    count = count_parameters(PRESETS[name])
    parts = (count.pooler, count.masked_language_model_head, count.sentence_order_head)
    sums = {
        count.encoder + sum(part for part, counted in zip(parts, chosen, strict=True) if counted)
        for chosen in product((True, False), repeat=3)
    }
    assert (millions in {round(total / 1e6) for total in sums}) == (size.counted is not None)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_have_distinct_shapes(name):
    assert preset_of_shape(PRESETS[name]) == name
    assert differences(PRESETS[name], name) == {}


@pytest.mark.parametrize(
    ("base", "changes", "preset", "differing"),
    [
        ("albert-base-v1", {"hidden_act": "gelu"}, "albert-base-v1", {"hidden_act": ("gelu", "gelu_new")}),
        ("albert-xlarge", {"num_attention_heads": 16}, "albert-xlarge", {"num_attention_heads": (16, 32)}),
        ("albert-base", {"num_hidden_groups": 12}, "albert-base-not-shared", {}),
        (
            "albert-base-E768",
            {"embedding_projection": True},
            "albert-base-E768",
            {"embedding_projection": (True, False)},
        ),
        ("albert-base", {"num_hidden_layers": 5}, None, None),
        ("albert-base", {"vocab_size": 30_001}, None, None),
    ],
)
def test_preset_of_shape_and_its_differences(base, changes, preset, differing):
    config = replace(PRESETS[base], **changes)
    assert preset_of_shape(config) == preset
    assert preset is None or differences(config, preset) == differing


# --------------------------------------------------------------------------------------------------------------------
# Reports


def described(name, capsys):
    """What `albert info --json` says of a preset."""
    assert run(["info", name, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_size_report_of_a_preset(capsys):
    report = described("albert-base", capsys)
    assert report["parameters"]["model"] == report["parameters"]["transformers"] == 11_683_584
    assert report["preset"] == "albert-base" and report["differs_from_preset"] == {}
    assert report["published"] == [
        {"stated": "12M", "where": "Tables 1 to 4", "exact": 11_683_584, "reason": "with the pooler"}
    ]
    assert report["sequence_length"] == 512 and report["flops_per_token"]["forward"] == 188_940_288


@pytest.mark.parametrize("name", ["albert-base", "albert-base-E768", "bert-large"])
def test_parameters_equal_transformers(name, capsys):
    report = described(name, capsys)
    config = report["configuration"]
    names = ("vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "num_attention_heads",
             "intermediate_size")  # fmt: skip
    groups = 1 if config["sharing"] == "all" else config["num_hidden_layers"]
    theirs = transformers.AlbertConfig(num_hidden_groups=groups, **{name: config[name] for name in names})
    with torch.device("meta"):
        model = transformers.AlbertModel(theirs)
    assert report["parameters"]["transformers"] == sum(p.numel() for p in model.parameters())
