"""The linear probe: the head solved on frozen features, before fine-tuning or in its place.

A randomly initialised head first pulls the encoder away from what it has learned. Linear probing, then fine-tuning
(Kumar et al. 2022, arXiv 2202.10054) begins with the best linear head for the encoder as it is. Features are what the
head reads, in evaluation mode and standardised over the training rows; the head is a regularised logistic regression
(one against the rest with several labels per example, ridge regression for numbers, a conditional one for options),
folded into weight and bias. Spans have no such head.

A pooler that its pre-training left unused (sentence order at chance) gives nearly the same vector for every text: of
models/small its outputs deviate by 0.002 from their mean. Solved on such features the head has weights of 14 and the
first updates destroy it. Such a pooler is replaced by one that standardises the state at [CLS], which it reads.

A dimension that hardly varies is not amplified. After a short pre-training with LAMB, some dimensions at [CLS] deviate
by a hundredth of the median, or not at all. Divided by their own deviation, at least 1e-4, these were multiplied by up
to 5,000: the gradient had a norm of 100,000, and the first updates drove the pooler into saturation."""

import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from albert.finetuning.batches import TaskBatches
from albert.finetuning.evaluation import ComputeOptions, model_outputs
from albert.model.packing import PackedSequences
from albert.report.advice import FROZEN
from albert.runtime.environment import lazy_import
from albert.runtime.progress import progress
from albert.runtime.random_streams import stream
from albert.tasks.task import LinearHead, LinearTask, Task

INVERSE_REGULARISATION = 0.01
"""C of the logistic regression on standardised features, whose penalty is half the squared weights over C; 1 / C is the
penalty of the ridge regression."""
CANDIDATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""The values of C among which cross-validation chooses."""
FOLDS = 5
MAX_EXAMPLES = 20_000
MAX_WORDS = 60_000
"""A larger training set is sampled before fine-tuning."""
MAX_COMPARED = 20_000
"""Examples or words by which cross-validation chooses; a larger training set is sampled."""
MAX_FEATURES = 60_000_000
"""Numbers in the features of a head that is the result, 480 MB: 156,000 rows of width 384. Above, rows are sampled."""
MAX_ITERATIONS = 200
UNUSED_DEVIATION = 0.05
"""A pooler whose outputs, between -1 and 1, have a smaller median deviation over the training examples is replaced."""
POOLED_DEVIATION = 0.5
"""Of the inputs of tanh in the new pooler, where it is nearly linear."""
MIN_DEVIATION = 1e-4
LEAST_SHARE = 0.25
"""A dimension is divided by its deviation, or by this share of the median deviation if that is larger."""
UNTRAINED_DEVIATION = 0.01
"""States at [CLS] with a smaller median deviation hardly depend on the text, as those of an encoder with random weights
(0.003; models/small: 0.03). Before fine-tuning, no head is solved on them: it would have to amplify them so much that
the first updates drive it into saturation."""


@dataclass(frozen=True)
class SolvedHead:
    """How a head was solved: the regularisation, the examples, and the time."""

    inverse_regularisation: float
    examples: int
    seconds: float
    of_examples: int
    """So many examples there are; fewer `examples` are a random sample of them."""
    cross_validated: Mapping[float, float] | None = None
    """The mean loss of held-out examples for each C that was tried."""
    replaced_pooler: float | None = None
    """The median deviation of the outputs of a pooler that was replaced."""


def solve_head(
    model: nn.Module, target: Task, batches: TaskBatches, compute: ComputeOptions, cross_validate: bool = False
) -> SolvedHead | None:
    """Set the weight and bias of the model's classifier to the best for its present features of the training examples.

    The result depends on the model and the examples alone. The targets of `batches` are what the head is trained on;
    numbers are standard scores.

    Args:
        cross_validate: for a head that is the result, choose the regularisation by cross-validation. Otherwise it is
            `INVERSE_REGULARISATION`, and nothing is changed and None is returned if the states hardly depend on the
            text, see `UNTRAINED_DEVIATION`.
    """
    assert isinstance(target, LinearTask)
    started = time.perf_counter()
    classifier: Any = model.classifier
    pooler: Any = getattr(getattr(model, "albert", None), "pooler", None)
    replaced = None
    members = head_members(target, batches, classifier.weight.shape[1], is_result=cross_validate)
    if pooler is None:
        features, targets, groups = training_features(model, target, batches, compute, classifier, members)
    else:
        states, targets, groups = training_features(model, target, batches, compute, pooler, members)
        if not cross_validate and np.median(states.std(axis=0)) < UNTRAINED_DEVIATION:
            return None
        features = pooled(states, pooler)
        deviation = float(np.median(features.std(axis=0)))
        if deviation < UNUSED_DEVIATION:
            standardise(states, pooler)
            features = pooled(states, pooler)
            replaced = deviation
    mean = features.mean(axis=0)
    deviation = divisors(features)
    features = (features - mean) / deviation
    best = INVERSE_REGULARISATION
    scores = None
    balanced = batches.class_weights is not None
    if cross_validate:
        part = np.ones(len(groups), np.bool_)
        if len(groups) > MAX_COMPARED:
            names = np.unique(groups)
            n_chosen = max(2, int(len(names) * MAX_COMPARED / len(groups)))
            chosen = stream("finetuning.frozen_head.sample", 0).permutation(len(names)) < n_chosen
            part = chosen[np.searchsorted(names, groups)]
        scores = cross_validated_losses(target, features[part], targets[part], groups[part], balanced)
        best = min(scores, key=lambda value: (scores[value], value))
    head = fit(target, features, targets, groups, best, balanced)
    weight = head.weight / deviation
    bias = head.bias - weight @ mean
    with torch.no_grad():
        classifier.weight.copy_(torch.from_numpy(weight))
        classifier.bias.copy_(torch.from_numpy(bias))
    seconds = time.perf_counter() - started
    return SolvedHead(best, len(members), seconds, batches.n_examples, scores, replaced)


# --------------------------------------------------------------------------------------------------------------------
# Features: what the classifier reads, and what the pooler reads.


def pooled(states: Float[np.ndarray, "rows H"], pooler: nn.Linear) -> Float[np.ndarray, "rows H"]:
    """The outputs of a pooler for states at [CLS]."""
    weight = pooler.weight.detach().double().cpu().numpy()
    bias = pooler.bias.detach().double().cpu().numpy()
    return np.tanh(states @ weight.T + bias)


def standardise(states: Float[np.ndarray, "rows H"], pooler: nn.Linear) -> None:
    """Let a pooler give the states themselves, standardised over these rows."""
    scale = POOLED_DEVIATION / divisors(states)
    with torch.no_grad():
        pooler.weight.copy_(torch.from_numpy(np.diag(scale)))
        pooler.bias.copy_(torch.from_numpy(-scale * states.mean(axis=0)))


def divisors(features: Float[np.ndarray, "rows features"]) -> Float[np.ndarray, " features"]:
    """What each dimension is divided by to standardise it: its deviation over these rows, but at least `LEAST_SHARE` of
    the median one, and 1 where it is constant."""
    deviation = features.std(axis=0)
    least = LEAST_SHARE * np.median(deviation)
    return np.where(deviation < MIN_DEVIATION, 1.0, np.maximum(deviation, least))


def head_members(target: LinearTask, batches: TaskBatches, width: int, is_result: bool) -> np.ndarray:
    """The indices of the examples that a head is solved on: all, or a fixed sample of them within the limits."""
    n_examples = batches.n_examples
    most_rows = MAX_FEATURES // width
    most_examples = most_rows if is_result else MAX_EXAMPLES
    most_words = most_rows if is_result else MAX_WORDS
    members = np.arange(n_examples)
    if n_examples > most_examples:
        members = np.sort(stream("finetuning.frozen_head", 0).permutation(n_examples)[:most_examples])
    if target.per_token:
        lengths = batches.sequences.lengths
        order = stream("finetuning.frozen_head", 0).permutation(len(members))
        within = np.cumsum(lengths[members[order]]) <= max(most_words, int(lengths.max()))
        members = np.sort(members[order[within]])
    return members


def training_features(
    model: nn.Module,
    target: LinearTask,
    batches: TaskBatches,
    compute: ComputeOptions,
    reader: nn.Module,
    members: np.ndarray,
) -> tuple[Float[np.ndarray, "rows features"], np.ndarray, np.ndarray]:
    """The inputs of `reader`, the classifier or the pooler, for some training examples; their targets; and their
    groups.

    A row is an example, a word with a tag, or an option, whose target says whether it is the right one. Rows of a group
    belong together: to a sentence, to a question.
    """
    chosen = batches.sequences_of(members)
    with recorded_inputs(model, reader) as forward:
        selected = batches.sequences.select(chosen)
        outputs = model_outputs(model, selected, compute, "Features of the frozen model", forward)
    return target.head_rows(outputs, batches, members)


@contextmanager
def recorded_inputs(model: nn.Module, reader: nn.Module) -> Iterator[Callable[[PackedSequences], Tensor]]:
    """A function that gives the inputs of a module inside a model for a batch; threads may call it at the same time."""
    of_thread = threading.local()
    hook = reader.register_forward_pre_hook(lambda _, inputs: setattr(of_thread, "features", inputs[0]))

    def forward(packed: PackedSequences) -> Tensor:
        model(packed)
        return of_thread.features

    try:
        yield forward
    finally:
        hook.remove()


# --------------------------------------------------------------------------------------------------------------------
# The fit, and the choice of its regularisation.


def fit(
    target: LinearTask,
    features: np.ndarray,
    targets: np.ndarray,
    groups: np.ndarray,
    inverse_regularisation: float,
    balanced: bool,
) -> LinearHead:
    """The linear head for standardised features; `balanced` weights classes by inverse frequency.

    On one thread: an iteration multiplies such small matrices that two threads of BLAS spend fifteen times its time
    waiting for each other.
    """
    options: dict[str, Any] = {"C": inverse_regularisation, "solver": "lbfgs", "max_iter": MAX_ITERATIONS}
    if balanced:
        options["class_weight"] = "balanced"
    with warnings.catch_warnings(), lazy_import("threadpoolctl").threadpool_limits(1, user_api="blas"):
        warnings.simplefilter("ignore", lazy_import("sklearn.exceptions").ConvergenceWarning)
        return target.solve(features, targets, groups, options)


def cross_validated_losses(
    target: LinearTask, features: np.ndarray, targets: np.ndarray, groups: np.ndarray, balanced: bool
) -> dict[float, float]:
    """The mean loss of held-out examples for each candidate of C; a group is held out as a whole."""
    names = np.unique(groups)
    n_folds = min(FOLDS, len(names))
    if n_folds < 2:
        return {INVERSE_REGULARISATION: 0.0}
    fold_of_group = np.empty(len(names), np.int64)
    fold_of_group[stream("finetuning.frozen_head.folds", 0).permutation(len(names))] = np.arange(len(names)) % n_folds
    fold = fold_of_group[np.searchsorted(names, groups)]
    losses = dict.fromkeys(CANDIDATES, 0.0)
    with progress("Choosing the regularisation", total=n_folds * len(CANDIDATES), unit="heads") as bar:
        for number in range(n_folds):
            train = fold != number
            for value in CANDIDATES:
                head = fit(target, features[train], targets[train], groups[train], value, balanced)
                if not head.is_constant:
                    losses[value] += head.loss_on(features[~train], targets[~train], groups[~train])
                bar.advance(1)
    return {value: loss / len(names) for value, loss in losses.items()}


def describe(solved: SolvedHead, scores: Mapping[str, float | None], alone: bool = False) -> str:
    """One line about a solved head and its first score."""
    name, score = next(iter(scores.items()), ("", None))
    shown = "" if score is None else f": {name} {score:.1f}"
    what = FROZEN if alone else "head solved on frozen features"
    replaced = ""
    if solved.replaced_pooler is not None:
        deviation = f"(standard deviation {solved.replaced_pooler:.2g})"
        replaced = f"; the pooler's outputs hardly varied {deviation}: it is replaced by one that standardises [CLS]"
    sampled = ""
    if solved.examples < solved.of_examples:
        sampled = f", solved on {solved.examples:,} of {solved.of_examples:,} training rows"
    return f"{what}{shown} after {solved.seconds:,.0f} s{sampled}{replaced}"
