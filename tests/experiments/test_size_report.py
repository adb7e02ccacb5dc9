"""Reports of sizes hold what the formulas give, under names that programs can rely on."""

import json

import pytest
import torch

from albert.experiments.sizes import size_report
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
