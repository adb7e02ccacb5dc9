"""A scale whose tables take seconds: two layers of 16, six updates of two sequences."""

from dataclasses import replace

from experiments.grids import TINY, Downstream
from tests.tiny import tiny_config

from albert.recipes.finetuning import TaskRecipe
from albert.recipes.pretraining import ScheduleRecipe

_SHAPE = tiny_config(180, intermediate_size=32, max_position_embeddings=32)
_TASK = TaskRecipe(learning_rate=1e-3, batch_size=8, epochs=1, max_length=16)
TOY = replace(
    TINY,
    sizes=dict.fromkeys(TINY.sizes, _SHAPE),
    recipe=replace(
        TINY.recipe,
        model=_SHAPE,
        sequences=replace(TINY.recipe.sequences, max_length=32),
        schedule=ScheduleRecipe(total_steps=6, warmup_steps=1),
        batch_size=2,
        micro_batch_size=2,
        precision="fp32",
        log_every=2,
        evaluate_every=3,
        evaluation_sequences=4,
        checkpoint_every=2,
    ),
    embedding_sizes=(4, 8, 12, 16),
    seeds=(0,),
    held_out_sequences=24,
    tasks=(Downstream(task="sst-2", columns={"sst-2": "accuracy"}, recipe=_TASK),),
)
