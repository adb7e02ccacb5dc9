"""How well surface features predict sentence order, for every option that cuts or orders segments.

    python dev/benchmarks/order_probe.py --data corpus

A linear classifier sees the edges and lengths of segments: the way in which text is cut may reveal which segment came
first (a cut sentence, a long last sentence, a short second segment). Its accuracy is compared with that on text that
was never cut to a length (for next sentences: 0.5) and with that of the more frequent label. It sees the tokens under
the masks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import harness
import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from albert.pretraining.masking import MaskingRecipe
from albert.pretraining.sampling import CorpusBlocks, PretrainingSamples, SequenceRecipe
from albert.pretraining.segments import (
    NO_LABEL,
    Documents,
    Segments,
    SentenceObjective,
    SequenceTable,
    TokenRanges,
    adjacent_segments,
    order_segments,
    pack_sentences,
)
from albert.text.shards import TokenCorpus

COLUMNS = (
    "objective", "max_length", "short", "keep_pairs", "pairs", "accuracy", "deviation", "majority", "text_allows",
    "above",
)  # fmt: skip

EDGE = 3  # tokens seen at each end of a segment
BINS = 20  # a length is a feature as a number and as one of so many classes
STRENGTHS = (0.001, 0.01, 0.1)  # inverse, of the regularisation
RAREST = 20  # a token is a feature of its own if it occurs this often at an end of a segment


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Predict the order of segments from surface features."""

    data: Path
    """A prepared corpus."""
    samples: int = 120_000
    """At most so many samples of each kind."""
    lengths: tuple[int, ...] = (64, 128, 512)
    objectives: tuple[SentenceObjective, ...] = ("sop", "nsp")
    short: tuple[float, ...] = (0.0, 0.1, 0.5)
    keep_pairs: tuple[bool, ...] = (False, True)
    seed: int = 0
    output: Path = Path("results/benchmark-order-probe.csv")


@dataclass(frozen=True)
class Pairs:
    """Features of pairs of segments.

    `edges` are the first and last tokens of the first, then of the second segment, -1 beyond its end (int64 [pairs,
    4·EDGE]); `lengths` in tokens (int64 [pairs, 2]); `cut` is whether the first, then the second segment begins and
    ends inside a sentence (bool [pairs, 4]); `labels` are int64 [pairs].
    """

    edges: np.ndarray
    lengths: np.ndarray
    cut: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


class Verdict(NamedTuple):
    """The accuracy on test pairs, that of the more frequent label, and the number of pairs."""

    accuracy: float
    majority: float
    pairs: int

    @property
    def deviation(self) -> float:
        """One standard deviation of the accuracy."""
        return float(np.sqrt(self.accuracy * (1 - self.accuracy) / self.pairs))


def pairs_of(samples: PretrainingSamples, count: int) -> Pairs:
    """The pairs among the first samples of a run."""
    return _features_of_pairs(samples.corpus, samples.segments(np.arange(count)))


def untruncated_pairs(corpus: TokenCorpus, sentences: int, count: int, seed: int) -> Pairs:
    """Pairs of adjacent segments that were cut by the number of sentences alone, at most `sentences` of both."""
    blocks = CorpusBlocks(corpus)
    tables = []
    for block in range(len(blocks)):
        documents = blocks.documents(block)
        as_units = Documents(np.arange(len(documents.sentence_starts)), documents.starts, documents.first_sentence)
        table = pack_sentences(as_units, sentences, 0.1, seed, 0)
        begin, split, end = (documents.sentence_starts[column] for column in (table.begin, table.split, table.end))
        tables.append(SequenceTable(begin, split, end, table.document))
    table = SequenceTable.concatenate(tables)
    table = table.take(np.flatnonzero(table.split < table.end))
    draws = np.random.default_rng(seed)
    table = table.take(draws.permutation(len(table))[:count])
    segments = order_segments(
        "sop", *adjacent_segments(table), lambda which: TokenRanges(which, which), draws.random(len(table)) < 0.5
    )
    return _features_of_pairs(corpus, segments)


def judge(pairs: Pairs, seed: int = 0) -> Verdict:
    """Train a logistic regression on half of the pairs and score it on the other half.

    The strength of the regularisation is chosen on a part of the first half.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    features, labels = _features(pairs, train), pairs.labels
    fit, check = train[: len(train) * 4 // 5], train[len(train) * 4 // 5 :]
    models = [
        LogisticRegression(C=strength, solver="liblinear", tol=1e-3).fit(features[fit], labels[fit])
        for strength in STRENGTHS
    ]
    best = max(models, key=lambda model: model.score(features[check], labels[check]))
    accuracy = float(best.score(features[test], labels[test]))
    return Verdict(accuracy, float(np.bincount(labels[test]).max() / len(test)), len(test))


def _features_of_pairs(corpus: TokenCorpus, segments: Segments) -> Pairs:
    labelled = segments.labels != NO_LABEL
    first, second = (
        TokenRanges(run.begin[labelled], run.length[labelled]) for run in (segments.first, segments.second)
    )
    starts = corpus.sentence_starts
    edges, cut = [], []
    for run in (first, second):
        end = run.begin + run.length
        for offset in range(EDGE):
            edges.append(_tokens(corpus, run.begin + offset, offset < run.length))
        for offset in range(EDGE):
            edges.append(_tokens(corpus, end - EDGE + offset, EDGE - offset <= run.length))
        cut += [starts[np.searchsorted(starts, edge)] != edge for edge in (run.begin, end)]
    return Pairs(
        np.stack(edges, axis=1),
        np.stack((first.length, second.length), axis=1),
        np.stack(cut, axis=1),
        segments.labels[labelled],
    )


def _tokens(corpus: TokenCorpus, positions: np.ndarray, valid: np.ndarray) -> np.ndarray:
    tokens = np.full(len(positions), -1, dtype=np.int64)
    which = np.flatnonzero(valid)
    corpus.copy_runs(tokens, which, positions[which], np.ones(len(which), dtype=np.int64))
    return tokens


def _features(pairs: Pairs, train: np.ndarray) -> sparse.csr_matrix:
    """Edge tokens, classes of lengths and cuts as 0 and 1; lengths also as numbers."""
    first, second = pairs.lengths.T
    numbers = np.stack(
        (first, second, first + second, first - second, np.log(first / second), first > second), axis=1
    ).astype(float)
    numbers = (numbers - numbers[train].mean(axis=0)) / np.maximum(numbers[train].std(axis=0), 1e-9)
    classes = [*pairs.cut.T.astype(np.int64), *_edge_classes(pairs.edges, train)]
    for column in (first, second, first - second):
        classes.append(np.searchsorted(np.quantile(column[train], np.linspace(0, 1, BINS + 1)[1:-1]), column))
    return sparse.csr_matrix(sparse.hstack([sparse.csr_matrix(numbers), *map(_one_hot, classes)]))


def _edge_classes(edges: np.ndarray, train: np.ndarray) -> list[np.ndarray]:
    classes = []
    for column in edges.T:
        counts = np.bincount(column[train] + 1, minlength=int(column.max()) + 2)
        numbers = np.where(counts >= RAREST, np.cumsum(counts >= RAREST), 0)
        classes.append(numbers[column + 1])
    return classes


def _one_hot(classes: np.ndarray) -> sparse.csr_matrix:
    rows = np.arange(len(classes))
    return sparse.csr_matrix((np.ones(len(classes)), (rows, classes)), shape=(len(classes), int(classes.max()) + 1))


def measure(args: Benchmark) -> Iterator[list[object]]:
    """A row for each kind of samples."""
    corpus = TokenCorpus.open(args.data, "train", verify=False)
    allowed: dict[int, float] = {}
    for length, objective, short, keep_pairs in product(args.lengths, args.objectives, args.short, args.keep_pairs):
        recipe = SequenceRecipe(max_length=length, objective=objective, short_probability=short, keep_pairs=keep_pairs)
        samples = PretrainingSamples(corpus, recipe, MaskingRecipe(), args.seed)
        pairs = pairs_of(samples, min(args.samples, samples.per_epoch))
        if length not in allowed:
            allowed[length] = judge(_similar_pairs(pairs, corpus, args.seed)).accuracy
        verdict, text = judge(pairs), 0.5 if objective == "nsp" else allowed[length]
        shares = (verdict.accuracy, verdict.deviation, verdict.majority, text)
        above = f"{100 * (verdict.accuracy - max(text, verdict.majority)):+.2f}"
        yield [objective, length, short, keep_pairs, len(pairs), *(f"{share:.4f}" for share in shares), above]


def _similar_pairs(pairs: Pairs, corpus: TokenCorpus, seed: int) -> Pairs:
    """As many untruncated pairs with about as many tokens."""
    wanted, sentences = pairs.lengths.sum(axis=1).mean(), 2
    best = untruncated_pairs(corpus, sentences, len(pairs), seed)
    while True:
        sentences += 1
        more = untruncated_pairs(corpus, sentences, len(pairs), seed)
        if abs(more.lengths.sum(axis=1).mean() - wanted) > abs(best.lengths.sum(axis=1).mean() - wanted):
            return best
        best = more


main = harness.script(Benchmark, COLUMNS, measure, same=COLUMNS[:4])

if __name__ == "__main__":
    main()
