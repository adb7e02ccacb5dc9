"""What of a training split is learnt, and in which batches."""

import numpy as np

from albert.finetuning.batches import TaskBatches
from albert.finetuning.objectives import term_of
from albert.finetuning.run_record import FinetuningSettings
from albert.finetuning.splits import PreparedSplit
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.number_scale import check_numbers
from albert.tasks.options import OptionFeatures
from albert.tasks.task import Score, Span, Task, TaskRecipe
from albert.tasks.windows import SpanFeatures
from albert.tasks.words import TagFeatures


def task_batches(task: Task, split: PreparedSplit, recipe: TaskRecipe, settings: FinetuningSettings) -> TaskBatches:
    """The batches of a run.

    Raises:
        InvalidConfiguration: no window of the training set holds an answer, or no sentence a word; the numbers to learn
            are all the same, or too large.
    """
    features = split.features
    sequences, targets = features.sequences, features.targets
    if isinstance(task.target, Score):
        check_numbers(task.target, targets)
    if isinstance(features, SpanFeatures):
        learnt = learnt_windows(task, split, features)
        sequences, targets = sequences.select(learnt), np.maximum(targets[learnt], 0)
    if isinstance(features, TagFeatures):
        learnt = features.learnable
        if not len(learnt):
            raise InvalidConfiguration(task.name, "no sentence of the training set has a word")
        sequences, targets = sequences.select(learnt), targets[sequences.places(learnt)]
    return TaskBatches(
        sequences,
        targets,
        term_of(task.target),
        recipe.batch_size,
        settings.seed,
        settings.micro_batch_tokens,
        features.n_options if isinstance(features, OptionFeatures) else 1,
        isinstance(features, TagFeatures),
    )


def learnt_windows(task: Task, split: PreparedSplit, features: SpanFeatures) -> np.ndarray:
    """Indices of the windows that say something.

    Where every question has an answer, those that hold it: the others have nothing to point at. Where it may be
    absent, they all do, and those without it point at [CLS]; but not those of a question whose answer no window holds.
    """
    holds = features.targets[:, 0] >= 0
    if not holds.any():
        raise InvalidConfiguration(task.name, "no window of the training set holds an answer")
    if not (isinstance(task.target, Span) and task.target.may_be_absent):
        return np.flatnonzero(holds)
    of_example = np.array([window.example for window in features.windows])
    placed = np.array([not example.answers for example in split.examples])
    placed[of_example[holds]] = True
    return np.flatnonzero(placed[of_example])
