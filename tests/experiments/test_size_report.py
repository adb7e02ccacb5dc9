"""Reports of sizes hold what the formulas give, under names that programs can rely on."""

import json
from dataclasses import replace

import pytest
import torch

from albert.experiments.sizes import compare, size_report
from albert.model.config import PRESETS
from albert.model.cost import count_activation_memory

transformers = pytest.importorskip("transformers")


def test_a_report_tells_all_of_a_preset() -> None:
    said = json.loads(json.dumps(size_report("albert-base", PRESETS["albert-base"]).to_json()))
    assert said["parameters"]["model"] == said["parameters"]["transformers"] == 11_683_584
    assert said["preset"] == "albert-base" and said["differs_from_preset"] == {}
    assert said["published"] == [
        {"stated": "12M", "where": "Tables 1 to 4", "exact": 11_683_584, "reason": "with the pooler"}
    ]
    assert said["sequence_length"] == 512 and said["flops_per_token"]["forward"] == 188_940_288
    kept = said["bytes_per_sequence"]["cpu_bf16"]
    assert kept["training"] == count_activation_memory(PRESETS["albert-base"], precision="bf16").training
    assert said["bytes_of_training_state"] == 16 * 11_813_810


def test_work_and_memory_follow_the_sequence_length() -> None:
    short, long = (size_report("albert-base", PRESETS["albert-base"], length).to_json() for length in (128, 512))
    assert short["flops_per_token"]["attention_scores"] * 4 == long["flops_per_token"]["attention_scores"]
    probabilities = [r["bytes_per_sequence"]["cpu_fp32"]["attention_probabilities"] for r in (short, long)]
    assert probabilities[0] * 16 == probabilities[1]


@pytest.mark.parametrize("name", ["albert-base", "albert-base-E768", "bert-large"])
def test_transformers_has_as_many_parameters_as_the_report_says(name: str) -> None:
    config = PRESETS[name]
    theirs = transformers.AlbertConfig(
        vocab_size=config.vocab_size,
        embedding_size=config.embedding_size,
        hidden_size=config.hidden_size,
        num_hidden_layers=config.num_hidden_layers,
        num_hidden_groups=1 if config.sharing == "all" else config.num_hidden_layers,
        num_attention_heads=config.num_attention_heads,
        intermediate_size=config.intermediate_size,
    )
    with torch.device("meta"):
        model = transformers.AlbertModel(theirs)
    assert size_report(name, config).transformers_parameters == sum(p.numel() for p in model.parameters())


def test_a_comparison_sets_every_figure_side_by_side() -> None:
    one, other = (size_report(name, PRESETS[name]) for name in ("albert-base", "bert-base"))
    figures = {(figure.group, figure.what): figure for figure in compare(one, other).figures}
    model = figures["parameters", "model with pooler"]
    assert (model.one, model.other) == (11_683_584, 109_081_344)
    assert model.ratio == pytest.approx(0.10711, abs=1e-5)
    work = figures["FLOPs a token", "forward"]
    assert work.ratio == pytest.approx(1.00104, abs=1e-5)
    said = compare(one, other).to_json()
    assert {claim["stated"]: claim["holds"] for claim in said["claims"]} == {
        **{"80 %": True, "90 %": True, "89 %": True},
        "fewer": False,
    }


def test_any_two_architectures_can_be_compared() -> None:
    config = replace(PRESETS["albert-base"], vocab_size=77)
    comparison = compare(size_report("mine", config), size_report("albert-large", PRESETS["albert-large"]))
    assert comparison.one.preset is None and comparison.one.published == [] and comparison.claims == []
