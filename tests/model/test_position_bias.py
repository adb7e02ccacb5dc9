"""What an encoder adds to the scores of attention by positions reaches every way in which attention is computed."""

import pytest
import torch
from torch import nn

from albert.inference.fast_encoder import FastEncoder
from albert.model import encoder
from albert.model.albert import AlbertModel
from albert.model.packing import pack


class OfDistance(nn.Module):
    """A value for each head and distance."""

    def __init__(self, heads):
        super().__init__()
        self.table = nn.Embedding(64, heads)

    def forward(self, length):
        places = torch.arange(length)
        return self.table((places[None, :] - places[:, None]).abs()).permute(2, 0, 1)


@pytest.fixture
def model(config, monkeypatch):
    monkeypatch.setattr(encoder, "position_bias", lambda config: OfDistance(config.num_attention_heads))
    torch.manual_seed(0)
    model = AlbertModel(config).eval()
    with torch.no_grad():
        model.encoder.position_bias.table.weight.normal_()
    return model


def sequences():
    rng = torch.Generator().manual_seed(0)
    ids = [torch.randint(0, 30, (length,), generator=rng).numpy() for length in (12, 3, 7, 7, 1)]
    return ids, [0 * each for each in ids]


def attended(block, hidden, bias):
    """Attention of one sequence, by its definition."""
    maps = (block.query, block.key, block.value)
    query, key, value = (part(hidden).unflatten(1, (block.heads, -1)).transpose(0, 1) for part in maps)
    scores = query @ key.transpose(1, 2) * query.shape[-1] ** -0.5 + bias
    mixed = (scores.softmax(-1) @ value).transpose(0, 1).flatten(1)
    return block.layer_norm(hidden + block.dense(mixed))


def expected(model, ids, types):
    outputs = []
    for own_ids, own_types in zip(ids, types, strict=True):
        hidden = model.embeddings(pack([own_ids], [own_types]))
        for layer in model.encoder.plan:
            block, feed_forward = model.encoder.attentions[layer.attention], model.encoder.feed_forwards[0]
            hidden = attended(block, hidden, model.encoder.position_bias(len(own_ids)))
            hidden = feed_forward(hidden, feed_forward.matrices())
        outputs.append(hidden)
    return torch.cat(outputs)


@pytest.mark.parametrize("groups", [True, False])
def test_training_and_inference_add_it(model, groups):
    ids, types = sequences()
    packed = pack(ids, types) if groups else pack(ids, types).without_groups(torch.device("cpu"))
    hidden = model.embeddings(packed)
    output = model.encoder(hidden, packed)
    torch.testing.assert_close(output, expected(model, ids, types), rtol=0, atol=1e-5)
    fast = FastEncoder(model.encoder)(hidden, packed)
    torch.testing.assert_close(fast, output, rtol=0, atol=1e-5)
    output.square().sum().backward()
    assert model.encoder.position_bias.table.weight.grad[:12].abs().min() > 0
