"""What the processes of one pre-training run must have been given alike."""

from collections.abc import Sequence

import torch

from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.warm_start import Init
from albert.runtime.agreement import code_fingerprint, refuse_differences
from albert.runtime.manifests import MANIFEST_NAME, file_hash
from albert.runtime.world import World
from albert.text.preparation.shards import TokenCorpus
from albert.training.run_folder import RunFolder


def refuse_another_start_elsewhere(
    recipe: PretrainingRecipe,
    corpora: Sequence[TokenCorpus],
    run: RunFolder,
    init: Init | None,
    change_dropout: float | None,
    here: World,
    place: torch.device,
) -> None:
    """Compare code, recipe, data and the point to go on from over all ranks.

    Args:
        recipe: as it was asked for, the same on all ranks.
        corpora: as this rank sees them.
        run: as this rank sees it.
        init: the trained model that was asked for.
        change_dropout: the change that was asked for.
        here: this process among all.
        place: where it computes.

    Raises:
        InvalidConfiguration: a rank was given something else than the first, or sees other files.
    """
    facts = {
        "code": code_fingerprint(),
        "torch": torch.__version__,
        "recipe": repr((recipe, change_dropout)),
        "tokenizer": " ".join(corpus.description.tokenizer_fingerprint for corpus in corpora),
        "corpus": " ".join(file_hash(corpus.directory / MANIFEST_NAME) for corpus in corpora),
        "model to start from": repr(init),
        "newest checkpoint": repr([step for step, _ in run.checkpoints()[-1:]]),
    }
    refuse_differences(facts, here, place)
