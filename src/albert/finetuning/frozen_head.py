"""The head solved on frozen features, before fine-tuning or in its place.

A randomly initialised head first pulls the encoder away from what it has learned. Linear probing, then fine-tuning
(Kumar et al. 2022, arXiv 2202.10054) begins with the best linear head for the encoder as it is. Features are what the
head reads, in evaluation mode and standardised over the training rows; the head is a regularised logistic regression
(one against the rest with several labels per example, ridge regression for numbers, a conditional one for options),
folded into weight and bias. Spans have no such head.

A pooler that its pre-training left unused (sentence order at chance) gives nearly the same vector for every text: of
models/small its outputs deviate by 0.002 from their mean. Solved on such features the head has weights of 14 and the
first updates destroy it. Such a pooler is replaced by one that standardises the state at [CLS], which it reads."""

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

from albert.finetuning.data import TaskBatches
from albert.finetuning.evaluation import FROZEN, ComputeOptions, model_outputs
from albert.model.packing import PackedSequences
from albert.runtime.environment import lazy_import
from albert.runtime.random_streams import stream
from albert.tasks.examples import IGNORE_INDEX
from albert.tasks.task import Choice, Labels, Option, Score, Tags, Target

INVERSE_REGULARISATION = 0.01
"""C of the logistic regression on standardised features, whose penalty is half the squared weights over C; 1 / C is the
penalty of the ridge regression."""
CANDIDATES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
"""The values of C among which cross-validation chooses."""
FOLDS = 5
MAX_EXAMPLES = 20_000
MAX_WORDS = 60_000
"""A larger training set is sampled."""
MAX_ITERATIONS = 200
UNUSED_DEVIATION = 0.05
"""A pooler whose outputs, between -1 and 1, have a smaller median deviation over the training examples is replaced."""
POOLED_DEVIATION = 0.5
"""Of the inputs of tanh in the new pooler, where it is nearly linear."""
MIN_DEVIATION = 1e-4
UNTRAINED_DEVIATION = 0.01
"""States at [CLS] with a smaller median deviation hardly depend on the text, as those of an encoder with random weights
(0.003; models/small: 0.03). Before fine-tuning, no head is solved on them: it would have to amplify them so much that
the first updates drive it into saturation."""


@dataclass(frozen=True)
class SolvedHead:
    """How a head was solved: the regularisation, the examples (words for tags) and the time."""

    inverse_regularisation: float
    examples: int
    seconds: float
    cross_validated: Mapping[float, float] | None = None
    """The mean loss of held-out examples for each C that was tried."""
    replaced_pooler: float | None = None
    """The median deviation of the outputs of a pooler that was replaced."""


def can_be_solved(target: Target | None) -> bool:
    """Whether the head of a target is one linear map."""
    return isinstance(target, Choice | Labels | Score | Option | Tags)


def solve_head(
    model: nn.Module, target: Target, batches: TaskBatches, compute: ComputeOptions, cross_validate: bool = False
) -> SolvedHead | None:
    """Set the weight and bias of the model's classifier to the best for its present features of the training examples.

    The result depends on the model and the examples alone. The targets of `batches` are what the head is trained on;
    numbers are standard scores.

    Args:
        cross_validate: for a head that is the result, choose the regularisation by cross-validation. Otherwise it is
            `INVERSE_REGULARISATION`, and nothing is changed and None is returned if the states hardly depend on the
            text, see `UNTRAINED_DEVIATION`.
    """
    assert can_be_solved(target)
    started = time.perf_counter()
    classifier: Any = model.classifier
    pooler: Any = getattr(getattr(model, "albert", None), "pooler", None)
    replaced = None
    if pooler is None:
        features, targets, groups = training_features(model, target, batches, compute, classifier)
    else:
        states, targets, groups = training_features(model, target, batches, compute, pooler)
        if not cross_validate and np.median(states.std(axis=0)) < UNTRAINED_DEVIATION:
            return None
        features = pooled(states, pooler)
        deviation = float(np.median(features.std(axis=0)))
        if deviation < UNUSED_DEVIATION:
            standardise(states, pooler)
            features = pooled(states, pooler)
            replaced = deviation
    mean = features.mean(axis=0)
    deviation = features.std(axis=0)
    deviation[deviation < MIN_DEVIATION] = 1.0
    features = (features - mean) / deviation
    best = INVERSE_REGULARISATION
    scores = None
    balanced = batches.class_weights is not None
    if cross_validate:
        scores = cross_validated_losses(target, features, targets, groups, balanced)
        best = min(scores, key=lambda value: (scores[value], value))
    weight, bias = fit(target, features, targets, groups, best, balanced)
    weight = weight / deviation
    bias = bias - weight @ mean
    with torch.no_grad():
        classifier.weight.copy_(torch.from_numpy(weight))
        classifier.bias.copy_(torch.from_numpy(bias))
    n_examples = len(np.unique(groups))
    return SolvedHead(best, n_examples, time.perf_counter() - started, scores, replaced)


# --------------------------------------------------------------------------------------------------------------------
# Features: what the classifier reads, and what the pooler reads.


def pooled(states: Float[np.ndarray, "rows H"], pooler: nn.Linear) -> Float[np.ndarray, "rows H"]:
    """The outputs of a pooler for states at [CLS]."""
    weight = pooler.weight.detach().double().cpu().numpy()
    bias = pooler.bias.detach().double().cpu().numpy()
    return np.tanh(states @ weight.T + bias)


def standardise(states: Float[np.ndarray, "rows H"], pooler: nn.Linear) -> None:
    """Let a pooler give the states themselves, standardised over these rows."""
    deviation = np.maximum(states.std(axis=0), MIN_DEVIATION)
    scale = POOLED_DEVIATION / deviation
    with torch.no_grad():
        pooler.weight.copy_(torch.from_numpy(np.diag(scale)))
        pooler.bias.copy_(torch.from_numpy(-scale * states.mean(axis=0)))


def training_features(
    model: nn.Module, target: Target, batches: TaskBatches, compute: ComputeOptions, reader: nn.Module
) -> tuple[Float[np.ndarray, "rows features"], np.ndarray, np.ndarray]:
    """The inputs of `reader`, the classifier or the pooler, for the training examples or a fixed sample of them; their
    targets; and their groups.

    A row is an example, a word with a tag, or an option, whose target says whether it is the right one. Rows of a group
    belong together: to a sentence, to a question.
    """
    n_examples = batches.n_examples
    members = np.arange(n_examples)
    if n_examples > MAX_EXAMPLES:
        members = np.sort(stream("finetuning.frozen_head", 0).permutation(n_examples)[:MAX_EXAMPLES])
    if isinstance(target, Tags):
        lengths = batches.sequences.lengths
        order = stream("finetuning.frozen_head", 0).permutation(len(members))
        within = np.cumsum(lengths[members[order]]) <= max(MAX_WORDS, int(lengths.max()))
        members = np.sort(members[order[within]])
    chosen = batches.sequences_of(members)
    with recorded_inputs(model, reader) as forward:
        selected = batches.sequences.select(chosen)
        outputs = model_outputs(model, selected, compute, "Features of the frozen model", forward)
    if isinstance(target, Tags):
        rows = np.concatenate([np.asarray(row) for row in outputs])
        targets = batches.targets[batches.sequences.token_indices(chosen)]
        groups = np.repeat(np.arange(len(chosen)), batches.sequences.lengths[chosen])
        labelled = targets != IGNORE_INDEX
        return rows[labelled].astype(np.float64), targets[labelled], groups[labelled]
    rows = np.stack([np.asarray(row) for row in outputs]).astype(np.float64)
    targets = batches.targets[members]
    if not isinstance(target, Option):
        return rows, targets, np.arange(len(members))
    present = np.ones((n_examples, batches.n_options), np.bool_) if batches.options is None else batches.options
    groups, columns = np.nonzero(present[members])
    return rows, columns == targets[groups], groups


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
    target: Target,
    features: np.ndarray,
    targets: np.ndarray,
    groups: np.ndarray,
    inverse_regularisation: float,
    balanced: bool,
) -> tuple[Float[np.ndarray, "outputs features"], Float[np.ndarray, " outputs"]]:
    """Weight and bias of the linear head for standardised features; `balanced` weights classes by inverse frequency."""
    linear_model = lazy_import("sklearn.linear_model")
    options: dict[str, Any] = {"C": inverse_regularisation, "solver": "lbfgs", "max_iter": MAX_ITERATIONS}
    if balanced:
        options["class_weight"] = "balanced"
    if isinstance(target, Score):
        ridge = linear_model.Ridge(alpha=1 / inverse_regularisation, solver="cholesky").fit(features, targets)
        return ridge.coef_[None], np.array([ridge.intercept_])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lazy_import("sklearn.exceptions").ConvergenceWarning)
        if isinstance(target, Option):
            # That the right option has the largest score: each difference to a wrong one, once with either sign.
            differences = option_differences(features, targets, groups)
            both = np.concatenate([differences, -differences])
            signs = np.repeat([1, 0], len(differences))
            regression = linear_model.LogisticRegression(fit_intercept=False, **options).fit(both, signs)
            return regression.coef_, np.zeros(1)
        if isinstance(target, Labels):
            return fit_labels(features, targets, options)
        assert isinstance(target, Choice | Tags)
        return fit_classes(features, targets, len(target.labels), options)


def fit_labels(features: np.ndarray, targets: np.ndarray, options: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """A logistic regression for each label; a label that all or no examples have gets its smoothed log-odds as bias."""
    logistic_regression = lazy_import("sklearn.linear_model").LogisticRegression
    n_labels = targets.shape[1]
    weight = np.zeros((n_labels, features.shape[1]))
    bias = np.zeros(n_labels)
    for label in range(n_labels):
        present = (targets[:, label] > 0).astype(np.int64)
        if 0 < present.sum() < len(present):
            regression = logistic_regression(**options).fit(features, present)
            weight[label] = regression.coef_[0]
            bias[label] = regression.intercept_[0]
        else:
            share = (present.sum() + 0.5) / (len(present) + 1)
            bias[label] = np.log(share / (1 - share))
    return weight, bias


def fit_classes(
    features: np.ndarray, targets: np.ndarray, n_classes: int, options: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """A multinomial logistic regression; a class without an example gets a bias below all others."""
    weight = np.zeros((n_classes, features.shape[1]))
    bias = np.zeros(n_classes)
    present = np.unique(targets)
    if len(present) == 1:
        bias[present] = 1.0
        return weight, bias
    regression = lazy_import("sklearn.linear_model").LogisticRegression(**options).fit(features, targets)
    if len(present) == 2:
        weight[present] = np.concatenate([-regression.coef_, regression.coef_]) / 2
        bias[present] = np.concatenate([-regression.intercept_, regression.intercept_]) / 2
    else:
        weight[present] = regression.coef_
        bias[present] = regression.intercept_
    absent = np.setdiff1d(np.arange(n_classes), present)
    bias[absent] = bias[present].min() - np.log(len(features))
    return weight, bias


def option_differences(features: np.ndarray, is_right: np.ndarray, groups: np.ndarray) -> np.ndarray:
    """The features of each right option less those of each wrong option of its question."""
    _, question = np.unique(groups, return_inverse=True)
    right = features[is_right]
    return right[question[~is_right]] - features[~is_right]


def cross_validated_losses(
    target: Target, features: np.ndarray, targets: np.ndarray, groups: np.ndarray, balanced: bool
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
    for number in range(n_folds):
        train = fold != number
        if isinstance(target, Choice | Tags) and len(np.unique(targets[train])) < 2:
            continue
        for value in CANDIDATES:
            weight, bias = fit(target, features[train], targets[train], groups[train], value, balanced)
            outputs = features[~train] @ weight.T + bias
            losses[value] += held_out_loss(target, outputs, targets[~train], groups[~train])
    return {value: loss / len(names) for value, loss in losses.items()}


def held_out_loss(target: Target, outputs: np.ndarray, targets: np.ndarray, groups: np.ndarray) -> float:
    """The sum of squared errors, binary cross entropies or cross entropies."""
    if isinstance(target, Score):
        return float(np.square(outputs[:, 0] - targets).sum())
    if isinstance(target, Labels):
        return float((np.logaddexp(0, outputs) - outputs * targets).sum() / targets.shape[1])
    if isinstance(target, Option):
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        return float(np.logaddexp.reduceat(outputs[:, 0], starts).sum() - outputs[targets, 0].sum())
    largest = outputs.max(axis=1, keepdims=True)
    normalizers = largest[:, 0] + np.log(np.exp(outputs - largest).sum(axis=1))
    return float((normalizers - outputs[np.arange(len(targets)), targets]).sum())


def describe(solved: SolvedHead, scores: Mapping[str, float | None], alone: bool = False) -> str:
    """One line about a solved head and its first score."""
    name, score = next(iter(scores.items()), ("", None))
    shown = "" if score is None else f": {name.replace('_', ' ')} {score:.1f}"
    what = FROZEN if alone else "head solved on frozen features"
    replaced = ""
    if solved.replaced_pooler is not None:
        replaced = f"; the pooler, whose outputs deviated by {solved.replaced_pooler:.2g}, standardises [CLS] instead"
    return f"{what}{shown} after {solved.seconds:,.0f} s{replaced}"
