"""Invalid values of recipes are refused in one line that names the field and what is needed."""

import math
from dataclasses import replace

import pytest

from albert.optim.optimizer import OptimizerRecipe
from albert.recipes.architecture import ALBERT_BASE, EncoderConfig
from albert.recipes.pretraining import MaskingRecipe, PretrainingRecipe, ScheduleRecipe, SequenceRecipe
from albert.runtime.errors import InvalidConfiguration

REFUSED = {
    EncoderConfig: [
        ({"num_attention_heads": 5}, "num_attention_heads: 5 heads do not divide hidden_size 768"),
        ({"hidden_size": 0}, "hidden_size: is 0, at least 1 is needed"),
        ({"num_hidden_groups": 13}, "num_hidden_groups: 13 groups for 12 layers"),
        ({"num_hidden_groups": 5}, "num_hidden_groups: 5 groups do not divide 12 layers"),
        ({"hidden_dropout_prob": 1.0}, "hidden_dropout_prob: is 1, a share from 0 to below 1 is needed"),
        ({"classifier_dropout_prob": float("nan")}, "classifier_dropout_prob: is nan, a share"),
        ({"initializer_range": 0.0}, "initializer_range: is 0, a number above 0 is needed"),
        ({"layer_norm_eps": -1e-12}, "layer_norm_eps: is -1e-12, a number above 0 is needed"),
        ({"sharing": "none", "num_hidden_groups": 2}, "sharing: 'none' with groups; groups go with sharing \"all\""),
        ({"sharing": "ffn", "inner_group_num": 2}, "sharing: 'ffn' with groups; groups go with sharing \"all\""),
        ({"embedding_projection": False}, "embedding_projection: cannot be off: E 128 is not H 768"),
    ],
    OptimizerRecipe: [
        ({"learning_rate": 0.0}, "learning_rate: is 0, a finite number above 0 is needed"),
        ({"beta1": 1.0}, "beta1: is 1, a share from 0 to below 1 is needed"),
        ({"eps": 0.0}, "eps: is 0, a finite number above 0 is needed"),
        ({"kind": "adamw", "weight_decay": -0.1}, "weight_decay: is -0.1, at least 0 is needed"),
        ({"clamp": (2.0, 1.0)}, "clamp: is 2.0 to 1.0, two bounds from 0 upwards are needed"),
    ],
    ScheduleRecipe: [
        ({"total_steps": 0}, "steps: is 0, at least 1 is needed"),
        ({"total_steps": 10}, "warmup_steps: is 3125, a number from 0 to the 10 steps is needed"),
        ({"warmup_steps": -1}, "warmup_steps: is -1, a number from 0 to the 125000 steps is needed"),
        ({"decay_share": 0.0}, "decay_share: is 0, a share above 0 and up to 1 is needed"),
    ],
    MaskingRecipe: [
        ({"share": 0.0}, "masking.share: is 0, a share above 0 and below 1 is needed"),
        ({"share": 1.0}, "masking.share: is 1, a share above 0 and below 1 is needed"),
        ({"max_ngram": 0}, "masking.max_ngram: is 0, at least 1 is needed"),
        ({"max_predictions": 0}, "masking.max_predictions: is 0, at least 1 is needed"),
        ({"replace_with_mask": 0.95}, "masking: the shares of [MASK] and random tokens are negative or"),
        ({"replace_with_random": -0.1}, "masking: the shares of [MASK] and random tokens are negative or"),
    ],
    SequenceRecipe: [
        ({"max_length": 4}, "max_length: is 4, at least 5 is needed"),
        ({"short_probability": 1.5}, "sequences.short_probability: is 1.5, a share from 0 to 1 is needed"),
    ],
    PretrainingRecipe: [
        ({"batch_size": 0}, "batch_size: is 0, at least 1 is needed"),
        ({"evaluate_every": 0}, "evaluate_every: is 0, at least 1 is needed"),
        ({"checkpoint_every": 0}, "checkpoint_every: is 0, at least 1 is needed"),
        ({"workers": -1}, "workers: is -1, at least 0 is needed"),
        ({"clip_norm": 0.0}, "clip_norm: is 0, a finite number above 0 is needed"),
        ({"checkpoint_minutes": -1.0}, "checkpoint_minutes: is -1, a finite number above 0 is needed"),
        ({"checkpoint_minutes": math.inf}, "checkpoint_minutes: is inf, a finite number above 0 is needed"),
        ({"max_tokens": 0}, "max_tokens: is 0"),
        ({"max_minutes": -1.0}, "max_minutes: is -1, a finite number above 0 is needed"),
        ({"max_rollbacks": -1}, "max_rollbacks: is -1"),
        ({"sinusoidal_positions": 0.0}, "sinusoidal_positions"),
        ({"compile": True, "fixed_shape": False}, "compile: needs fixed_shape"),
        *(
            ({"dropout_changes": changes}, "dropout_changes")
            for changes in (((4, 1.0),), ((4, -0.1),), ((-1, 0.0),), ((4, 0.0), (4, 0.1)), ((6, 0.0), (4, 0.1)))
        ),
        (
            {"sequences": SequenceRecipe(objective="none"), "evaluation_objectives": ("sop",)},
            'evaluation_objectives: need a sentence head, which sequences.objective "none" does not train',
        ),
        (
            {"sequences": SequenceRecipe(max_length=513)},
            "max_length: 513 is more than architecture.max_position_embeddings 512",
        ),
        (
            {"model": replace(ALBERT_BASE, type_vocab_size=1)},
            "architecture.type_vocab_size: is 1, a sequence has two segments",
        ),
        (
            {"optimizer": OptimizerRecipe(kind="muon"), "parallelism": "sharded"},
            "optimizer.kind: is muon, which needs whole matrices, and parallelism is sharded; "
            "choose lamb or adamw, or parallelism data",
        ),
    ],
}


@pytest.mark.parametrize(
    ("recipe", "changes", "message"),
    [
        pytest.param(recipe, changes, message, id=f"{recipe.__name__} {changes}"[:80])
        for recipe, rows in REFUSED.items()
        for changes, message in rows
    ],
)
def test_an_invalid_value_is_refused_in_one_line(recipe, changes, message):
    with pytest.raises(InvalidConfiguration) as refusal:
        recipe(**changes)
    assert str(refusal.value).startswith(message)
    assert "\n" not in str(refusal.value)


def test_objective_none_allows_evaluation_of_none():
    PretrainingRecipe(sequences=SequenceRecipe(objective="none"), evaluation_objectives=("none",))
