"""Fingerprints that earlier versions recorded do not change; otherwise their runs could not be resumed."""

from dataclasses import replace

import pytest

from albert.finetuning.objective import Distillation
from albert.finetuning.run_record import (
    FinetuningSettings,
    examples_fingerprint,
    recorded_settings,
    task_fingerprint,
)
from albert.pretraining.recipe import RECIPES
from albert.runtime.json_files import to_json
from albert.tasks.examples import Example
from albert.tasks.glue import SST2
from albert.tasks.source import Answer
from albert.training.record import pretraining_fingerprint

EARLIER_SMALL = replace(
    RECIPES["base"],
    model=replace(
        RECIPES["base"].model, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024
    ),
    sequences=replace(RECIPES["base"].sequences, max_length=128),
    optimizer=replace(RECIPES["base"].optimizer, learning_rate=8e-3, beta2=0.99),
    schedule=replace(RECIPES["base"].schedule, total_steps=9500, warmup_steps=300),
    batch_size=32,
    micro_batch_size=32,
    checkpoint_minutes=5.0,
)
"""An earlier version of the recipe `small`."""


@pytest.mark.parametrize(
    ("recipe", "recorded"),
    [
        (RECIPES["quickstart"], "663a244f21c79b2c0246d85b7b3a0a6e307af5d4cb31b4dbfaaae6361a9433af"),
        (EARLIER_SMALL, "87cae403c7922e98826b927b90c47838c2dc8e5d5c5a7588a73105e17515ff98"),
        (RECIPES["base"], "e201e6dcb2104246c508ac49557e0ce6fe2dae64f0a534bc0e4ccd9427e440db"),
        (RECIPES["continue"], "eb756158a02cc4845bbdbd7dacc72d795dbf2989f9b03cc149379a6109df1e7b"),
    ],
)
def test_fingerprints_of_pretraining_recipes(recipe, recorded):
    assert pretraining_fingerprint(recipe) == recorded


CHANGED = FinetuningSettings(seed=3, optimizer="lamb", workers=2, device="cpu", checkpoint_every=7)
DISTILLED = FinetuningSettings(
    exits=(2, 4), freeze_encoder=True, distillation=Distillation(teacher="/a/b/run", revision="v1")
)


@pytest.mark.parametrize(
    ("settings", "changes", "recorded"),
    [
        (FinetuningSettings(), {}, "c2c13cdff61a3d7e621279250e9d3cb676226a7dabf0cddf30ddd87fa45aa3f1"),
        (CHANGED, {}, "420ea004e945c1db16b4795e4b0542f903acea5eb9c8e38e8dafd8d3f2ff590f"),
        (DISTILLED, {"num_hidden_layers": 4}, "4a2bce5f218def7f75025cf7244d7b20fd77ac2727a1b979071e3e49896e3b12"),
    ],
)
def test_fingerprints_of_finetuning_recipes_and_settings(settings, changes, recorded):
    record = {"recipe": to_json(SST2.recipe), "settings": recorded_settings(settings), "target": to_json(SST2.target)}
    assert task_fingerprint(record | ({"changes": changes} if changes else {}), SST2.target) == recorded


def test_the_fingerprint_of_examples():
    examples = [
        Example("1", "a:1", ("who", "ctx"), None, (Answer("ctx", 0),)),
        Example("2", "a:2", ("x",), 1),
        Example("3", "a:3", ("x", "y"), 0.5, (), ("A", "B"), "g"),
    ]
    assert examples_fingerprint(examples) == "4f89dd11105fcb0eb3ec19341776971975834c08462c1e0826fc5c8328a78d70"
