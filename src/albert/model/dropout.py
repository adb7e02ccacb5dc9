"""Dropout of a model that exists already: changed while it trains (Lan et al. 2019, §4.8, Fig. 2b)."""

from dataclasses import replace

from torch import nn

from albert.model.albert import AlbertForPreTraining


def set_dropout(model: AlbertForPreTraining, probability: float) -> None:
    """Drop hidden values and attention probabilities with `probability` from now on; the configuration says so too."""
    config = replace(model.config, hidden_dropout_prob=probability, attention_probs_dropout_prob=probability)
    model.config = model.albert.config = config
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.p = probability
