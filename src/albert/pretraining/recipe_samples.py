"""The samples that a recipe asks of its corpora: what is learnt from, and what is held out to judge by."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from albert.pretraining.intrinsic_evaluation import EVALUATION_SEED, HeldOutSamples, HeldOutTests
from albert.pretraining.mixture import MixedSamples, SampleSource
from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.samples import PretrainingSamples
from albert.pretraining.sentence_order import SentenceObjective
from albert.runtime.errors import MissingInput
from albert.text.preparation.shards import TokenCorpus


def training_samples(recipe: PretrainingRecipe, corpora: Sequence[TokenCorpus]) -> SampleSource:
    """What a run learns from, of all corpora by the recipe's weights.

    Raises:
        InvalidConfiguration: the weights do not fit the corpora.
    """
    return _samples(recipe, corpora, recipe.seed)


def held_out_samples(recipe: PretrainingRecipe, corpora: Sequence[TokenCorpus]) -> HeldOutSamples | HeldOutTests | None:
    """What a run is judged by, of all corpora that have held-out documents, by their sizes; None where none has.

    Raises:
        DamagedData: what is held out is not as it was written.
    """
    found = []
    for corpus in corpora:
        with contextlib.suppress(MissingInput):
            found.append(TokenCorpus.open(corpus.directory, "held_out", verify=False))
    if not found:
        return None

    def samples(objective: SentenceObjective) -> SampleSource:
        sequences = replace(recipe.sequences, objective=objective, neighbours_probability=0.0)
        plain = replace(recipe, mixture=(), sequences=sequences, evaluation_objectives=())
        return _samples(plain, found, EVALUATION_SEED)

    if recipe.evaluation_objectives:
        return HeldOutTests(samples, recipe.evaluation_objectives, recipe.evaluation_sequences)
    return HeldOutSamples(samples(recipe.sequences.objective), recipe.evaluation_sequences)


def _samples(recipe: PretrainingRecipe, corpora: Sequence[TokenCorpus], seed: int) -> SampleSource:
    parts = [PretrainingSamples(corpus, recipe.sequences, recipe.masking, seed) for corpus in corpora]
    if recipe.mixture or len(parts) > 1:
        return MixedSamples(parts, recipe.mixture)
    return parts[0]
