"""The named recipes; a variant is `dataclasses.replace` of another, `scaled_recipe`, or flags over it."""

import math
from dataclasses import replace

from albert.model.config import AlbertConfig
from albert.model.presets import ALBERT_BASE, ALBERT_LARGE, ALBERT_XLARGE, ALBERT_XXLARGE
from albert.optim.optimizer_recipe import OptimizerRecipe
from albert.optim.schedule import ScheduleRecipe
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.samples import SequenceRecipe
from albert.pretraining.sentence_order import SentenceObjective


def scaled_recipe(recipe: PretrainingRecipe, batch_size: int) -> PretrainingRecipe:
    """A recipe with another batch and the learning rate that goes with it, by the square root of the batches' ratio.

    The rule is that of LAMB's authors (You et al., 2019, §4 and Table 4, whose row of batch 4096 is ALBERT's 0.00176),
    and holds for Adam as well (Malladi et al., 2022). Their warm-up is the same number of steps at every batch. The
    steps stay: a smaller batch then sees as many sequences fewer, and `schedule.total_steps` can make up for it.

    Args:
        recipe: with the batch and the rate that are known to go together.
        batch_size: sequences per update.

    Raises:
        InvalidConfiguration: no sequences.
    """
    rate = recipe.optimizer.learning_rate * math.sqrt(max(batch_size, 0) / recipe.batch_size)
    optimizer = replace(recipe.optimizer, learning_rate=rate) if rate else recipe.optimizer
    micro_batch_size = min(recipe.micro_batch_size, max(batch_size, 1))
    return replace(recipe, optimizer=optimizer, batch_size=batch_size, micro_batch_size=micro_batch_size)


PAPER_BASE = PretrainingRecipe()
"""Paper §4.1: LAMB, batch 4096, peak rate 0.00176, 125,000 steps, 3,125 of warm-up, length 512.

Dropout is 0, as in the released version 2 and, in version 1, of xxlarge alone; version 1 of the others had 0.1
(--model.hidden-dropout-prob 0.1 --model.attention-probs-dropout-prob 0.1). The paper's last models took 1 M and 1.5 M
steps (Tables 9 and 10; --schedule.total-steps)."""

QUICKSTART = PretrainingRecipe(
    model=AlbertConfig(
        vocab_size=4000,
        embedding_size=64,
        hidden_size=128,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=512,
        max_position_embeddings=128,
    ),
    sequences=SequenceRecipe(max_length=64),
    optimizer=OptimizerRecipe(learning_rate=1.5e-2, beta2=0.99),
    schedule=ScheduleRecipe(total_steps=1500, warmup_steps=100),
    batch_size=32,
    evaluate_every=300,
    evaluation_sequences=400,
    checkpoint_minutes=1.0,
)
"""A few minutes on two cores; see `albert quickstart`."""

SMALL = PretrainingRecipe(
    model=replace(ALBERT_BASE, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024),
    sequences=SequenceRecipe(max_length=128),
    optimizer=OptimizerRecipe(learning_rate=8e-3, beta2=0.99),
    schedule=ScheduleRecipe(total_steps=9500, warmup_steps=300),
    batch_size=32,
    micro_batch_size=32,
    checkpoint_minutes=5.0,
)
"""About an hour on two cores, 25 million tokens, kept as it was run: LOG.md says what it did not learn. It never left
the bag of words; `TWO_CORES` did."""

TWO_CORES = PretrainingRecipe(
    model=replace(
        ALBERT_BASE,
        vocab_size=4000,
        hidden_size=256,
        num_hidden_layers=6,
        num_attention_heads=4,
        intermediate_size=1024,
    ),
    sequences=SequenceRecipe(max_length=64),
    masking=MaskingRecipe(max_ngram=1),
    optimizer=OptimizerRecipe(kind="adamw", learning_rate=1e-3, beta2=0.98),
    schedule=ScheduleRecipe(total_steps=20_000, warmup_steps=1_000),
    batch_size=32,
    evaluate_every=1000,
    checkpoint_minutes=5.0,
)
"""What two cores can learn, with a vocabulary of 4,000 pieces: a pilot left the bag of words after about 4 million
tokens, and was at 25.0 % of held-out masked tokens at step 3,000, 31.8 % at 7,000, where it was stopped (LOG.md).
Not ALBERT's recipe: AdamW for LAMB, single words for n-grams, 64 tokens. Sentence order was at chance by then."""

ONE_GPU = replace(scaled_recipe(PAPER_BASE, 256), precision="bf16", micro_batch_size=64, workers=4)
"""ALBERT-base on one GPU: the paper's recipe at a sixteenth of its batch, with 0.00176·√(256/4096) = 0.00044. Its
125,000 steps see a sixteenth of the paper's sequences. It has not been run to its end by us."""

CONTINUE = replace(scaled_recipe(PAPER_BASE, 256), schedule=ScheduleRecipe(total_steps=12_500, warmup_steps=750))
"""Go on with a pre-trained model on text of its new field: the model's own architecture (`continue_recipe`), as many
updates as Gururangan et al. (2020, §3.1) take, a fresh warm-up, and the paper's peak rate scaled to the batch,
0.00176·√(256/4096)."""

RECIPES: dict[str, PretrainingRecipe] = {
    "quickstart": QUICKSTART,
    "small": SMALL,
    "two-cores": TWO_CORES,
    "one-gpu": ONE_GPU,
    "base": PAPER_BASE,
    "large": replace(PAPER_BASE, model=ALBERT_LARGE),
    "xlarge": replace(PAPER_BASE, model=ALBERT_XLARGE),
    "xxlarge": replace(PAPER_BASE, model=ALBERT_XXLARGE),
    "continue": CONTINUE,
}
"""The named recipes. base to xxlarge are the paper's, to be run on a cluster."""


def continue_recipe(
    config: AlbertConfig, trained_length: int | None, objective: SentenceObjective
) -> PretrainingRecipe:
    """`CONTINUE` for a model: its architecture, the length it was trained with, its sentence objective.

    Args:
        config: its configuration.
        trained_length: tokens of its longest sequences; None: as many as it has positions, at most 512.
        objective: what its sentence head was trained on.
    """
    length = min(trained_length or 512, config.max_position_embeddings)
    sequences = replace(CONTINUE.sequences, max_length=length, objective=objective)
    return replace(CONTINUE, model=config, sequences=sequences)
