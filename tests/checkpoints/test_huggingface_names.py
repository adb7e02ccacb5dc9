"""The table of names is reversible for every architecture, and refuses what it would have to guess."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from albert.checkpoints.huggingface import exported_groups, from_transformers, to_transformers
from albert.checkpoints.model_directory import MODELS, Kind
from albert.model.albert import AlbertForPreTraining, AlbertModel
from albert.model.config import AlbertConfig
from albert.runtime.errors import DamagedData

MAP = "albert.encoder.embedding_hidden_mapping_in"
LAYER = "albert.encoder.albert_layer_groups.{}.albert_layers.0"


@st.composite
def configurations(draw: st.DrawFn) -> AlbertConfig:
    sharing = draw(st.sampled_from(["all", "attention", "ffn", "none"]))
    groups = draw(st.integers(1, 3)) if sharing == "all" else 1
    embedding_size = draw(st.sampled_from([4, 8]))
    return AlbertConfig(
        vocab_size=9,
        embedding_size=embedding_size,
        hidden_size=8,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=6,
        num_hidden_layers=groups * draw(st.integers(1, 3)),
        num_hidden_groups=groups,
        inner_group_num=draw(st.integers(1, 2)) if sharing == "all" else 1,
        sharing=sharing,
        embedding_projection=draw(st.sampled_from([None, True])),
    )


@settings(max_examples=80)
@given(config=configurations(), kind=st.sampled_from(sorted(MODELS)))
def test_reading_what_was_written_gives_every_tensor_back(config: AlbertConfig, kind: Kind) -> None:
    labelled = kind in ("classification", "token_classification")
    model = MODELS[kind](config, 3) if labelled else MODELS[kind](config)
    state = model.state_dict()
    written = to_transformers(state, config)
    renamed = from_transformers(written, config, "file")
    prefix = "albert." if isinstance(model, AlbertModel) else ""
    assert renamed.tensors.keys() == {prefix + name for name in state}
    for name, tensor in state.items():
        assert torch.equal(renamed.tensors[prefix + name], tensor)
    assert renamed.unexpected == ()
    assert len(renamed.dropped) == (0 if config.projects_embeddings else 2)


@settings(max_examples=40)
@given(config=configurations())
def test_every_layer_that_transformers_needs_is_written_once_in_memory(config: AlbertConfig) -> None:
    written = to_transformers(AlbertForPreTraining(config).state_dict(), config)
    layers = {name.split(".attention.query.weight")[0] for name in written if "attention.query.weight" in name}
    assert layers == {
        f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}"
        for group in range(exported_groups(config))
        for inner in range(config.inner_group_num)
    }
    addresses = [tensor.data_ptr() for tensor in written.values()]
    assert len(set(addresses)) == len(addresses)
    assert [name for name in written if "decoder" in name] == ["predictions.decoder.bias"]


@pytest.mark.parametrize(
    ("sharing", "shared", "own"), [("attention", "attention.key", "ffn"), ("ffn", "ffn", "attention.key")]
)
def test_a_shared_half_is_copied_into_each_layer(sharing: str, shared: str, own: str) -> None:
    config = AlbertConfig(
        vocab_size=9, embedding_size=4, hidden_size=8, num_attention_heads=2, intermediate_size=12,
        num_hidden_layers=3, sharing=sharing,
    )  # fmt: skip
    written = to_transformers(AlbertForPreTraining(config).state_dict(), config)
    first, second = (written[f"{LAYER.format(group)}.{shared}.weight"] for group in (0, 2))
    assert torch.equal(first, second)
    assert not torch.equal(*(written[f"{LAYER.format(group)}.{own}.weight"] for group in (0, 2)))
    second[0, 0] += 1
    with pytest.raises(DamagedData, match=r"differs from .*\"sharing\": \"none\" in config.json"):
        from_transformers(written, config, "file")


def test_a_map_that_is_no_identity_is_not_thrown_away() -> None:
    config = _square()
    written = to_transformers(AlbertForPreTraining(config).state_dict(), config)
    assert torch.equal(written[f"{MAP}.weight"], torch.eye(8))
    assert not written[f"{MAP}.bias"].any()
    for name, value in ((f"{MAP}.weight", 0.5), (f"{MAP}.bias", 0.1)):
        changed = written | {name: written[name] + value}
        with pytest.raises(DamagedData, match='set "embedding_projection": true'):
            from_transformers(changed, config, "file")


def test_equal_copies_of_tied_tensors_and_old_buffers_are_dropped() -> None:
    config = _square()
    state = AlbertForPreTraining(config).state_dict()
    written = to_transformers(state, config)
    written["predictions.decoder.weight"] = written["albert.embeddings.word_embeddings.weight"].clone()
    written["albert.embeddings.position_ids"] = torch.arange(6)[None]
    renamed = from_transformers(written, config, "file")
    assert renamed.unexpected == ()
    assert {"predictions.decoder.weight", "albert.embeddings.position_ids"} < set(renamed.dropped)
    assert renamed.tensors.keys() == state.keys()


@pytest.mark.parametrize("name", ["weight", "bias"])
def test_tied_tensors_that_disagree_are_refused(name: str) -> None:
    config = _square()
    written = to_transformers(AlbertForPreTraining(config).state_dict(), config)
    original = "albert.embeddings.word_embeddings.weight" if name == "weight" else "predictions.bias"
    written[f"predictions.decoder.{name}"] = written[original] + 1
    with pytest.raises(DamagedData, match=f"predictions.decoder.{name} and {original} are tied"):
        from_transformers(written, config, "file")


def test_one_of_a_tied_pair_is_enough() -> None:
    config = _square()
    written = to_transformers(AlbertForPreTraining(config).state_dict(), config)
    for name in ("predictions.bias", "predictions.decoder.bias"):
        one = {key: tensor for key, tensor in written.items() if key != name}
        renamed = from_transformers(one, config, "file")
        assert torch.equal(renamed.tensors["predictions.bias"], written["predictions.bias"])


def test_what_no_model_has_is_named() -> None:
    config = _square()
    written = to_transformers(AlbertForPreTraining(config).state_dict(), config)
    written["adapter.weight"] = torch.ones(1)
    assert from_transformers(written, config, "file").unexpected == ("adapter.weight",)


def _square() -> AlbertConfig:
    return AlbertConfig(
        vocab_size=9,
        embedding_size=8,
        hidden_size=8,
        num_attention_heads=2,
        intermediate_size=12,
        num_hidden_layers=2,
    )
