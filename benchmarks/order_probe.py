"""How much of a sentence-order question the surface answers, under every option that cuts or orders segments.

    python benchmarks/order_probe.py --data corpus

A linear judge sees the edges and lengths of segments, no meaning: whoever cuts text may leave traces of which came
first (a cut sentence, a long last sentence, a short second segment).

Beside each stands what the same judge gets on text that was never cut to a length (for next sentences: a coin), and how
many points it is above that, or above the more frequent answer. Masks have no say: the judge sees what was under them.
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
BINS = 20  # a length is seen as a number and as one of so many classes
STRENGTHS = (0.001, 0.01, 0.1)  # of the regularisation, inverse
RAREST = 20  # a token is told from other rare ones where it stands at one end of a segment this often


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Ask a judge of surfaces for the order of segments."""

    data: Path
    """What `albert prepare` wrote."""
    samples: int = 120_000
    """Most samples of each kind."""
    lengths: tuple[int, ...] = (64, 128, 512)
    objectives: tuple[SentenceObjective, ...] = ("sop", "nsp", "sop-reference")
    short: tuple[float, ...] = (0.0, 0.1, 0.5)
    keep_pairs: tuple[bool, ...] = (False, True)
    """The reference's pairs know no such thing, and are asked once."""
    seed: int = 0
    output: Path = Path("results/benchmark-order-probe.csv")


@dataclass(frozen=True)
class Pairs:
    """Pairs of segments as the judge sees them.

    `edges` are the first and last tokens of the first segment, then of the second, -1 beyond its end (int64 [pairs,
    4·EDGE]); `lengths` in tokens (int64 [pairs, 2]); `cut` says whether the first segment begins and ends inside a
    sentence, then the second (bool [pairs, 4]); `labels` are int64 [pairs].
    """

    edges: np.ndarray
    lengths: np.ndarray
    cut: np.ndarray
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)


class Verdict(NamedTuple):
    """The judge's accuracy on pairs it was not trained on, that of the more frequent label, and how many pairs."""

    accuracy: float
    majority: float
    pairs: int

    @property
    def deviation(self) -> float:
        """One standard deviation of the accuracy."""
        return float(np.sqrt(self.accuracy * (1 - self.accuracy) / self.pairs))


def pairs_of(samples: PretrainingSamples, count: int) -> Pairs:
    """The pairs among so many first samples of a run."""
    return _seen(samples.corpus, samples.segments(np.arange(count)))


def untruncated_pairs(corpus: TokenCorpus, sentences: int, count: int, seed: int) -> Pairs:
    """Pairs of adjacent segments of documents that were halved by their number of sentences alone, whatever its length.

    Args:
        corpus: token shards.
        sentences: most of both segments.
        count: pairs.
        seed: of the draws.
    """
    blocks = CorpusBlocks(corpus)
    found = []
    for block in range(len(blocks)):
        documents = blocks.documents(block)
        as_units = Documents(np.arange(len(documents.sentence_starts)), documents.starts, documents.first_sentence)
        table = pack_sentences(as_units, sentences, 0.1, seed, 0)
        begin, split, end = (documents.sentence_starts[column] for column in (table.begin, table.split, table.end))
        found.append(SequenceTable(begin, split, end, table.document))
    table = SequenceTable.concatenate(found)
    table = table.take(np.flatnonzero(table.split < table.end))
    draws = np.random.default_rng(seed)
    table = table.take(draws.permutation(len(table))[:count])
    segments = order_segments(
        "sop", *adjacent_segments(table), lambda which: TokenRanges(which, which), draws.random(len(table)) < 0.5
    )
    return _seen(corpus, segments)


def judge(pairs: Pairs, seed: int = 0) -> Verdict:
    """Train a logistic regression on half of the pairs and score it on the other half.

    The strength of its regularisation is chosen on a part of the first half.
    """
    order = np.random.default_rng(seed).permutation(len(pairs))
    train, test = order[: len(order) // 2], order[len(order) // 2 :]
    features, labels = _features(pairs, train), pairs.labels
    fit, check = train[: len(train) * 4 // 5], train[len(train) * 4 // 5 :]
    judges = [
        LogisticRegression(C=strength, solver="liblinear", tol=1e-3).fit(features[fit], labels[fit])
        for strength in STRENGTHS
    ]
    best = max(judges, key=lambda one: one.score(features[check], labels[check]))
    accuracy = float(best.score(features[test], labels[test]))
    return Verdict(accuracy, float(np.bincount(labels[test]).max() / len(test)), len(test))


def _seen(corpus: TokenCorpus, segments: Segments) -> Pairs:
    asked = segments.labels != NO_LABEL
    first, second = (TokenRanges(run.begin[asked], run.length[asked]) for run in (segments.first, segments.second))
    starts = corpus.sentence_starts
    edges, cut = [], []
    for run in (first, second):
        end = run.begin + run.length
        for place in range(EDGE):
            edges.append(_tokens(corpus, run.begin + place, place < run.length))
        for place in range(EDGE):
            edges.append(_tokens(corpus, end - EDGE + place, EDGE - place <= run.length))
        cut += [starts[np.searchsorted(starts, edge)] != edge for edge in (run.begin, end)]
    return Pairs(
        np.stack(edges, axis=1),
        np.stack((first.length, second.length), axis=1),
        np.stack(cut, axis=1),
        segments.labels[asked],
    )


def _tokens(corpus: TokenCorpus, places: np.ndarray, there: np.ndarray) -> np.ndarray:
    tokens = np.full(len(places), -1, dtype=np.int64)
    which = np.flatnonzero(there)
    corpus.copy_runs(tokens, which, places[which], np.ones(len(which), dtype=np.int64))
    return tokens


def _features(pairs: Pairs, train: np.ndarray) -> sparse.csr_matrix:
    """Edge tokens, classes of lengths and what was cut as 0 and 1; lengths as numbers, too."""
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
    found = []
    for column in edges.T:
        counts = np.bincount(column[train] + 1, minlength=int(column.max()) + 2)
        numbers = np.where(counts >= RAREST, np.cumsum(counts >= RAREST), 0)
        found.append(numbers[column + 1])
    return found


def _one_hot(classes: np.ndarray) -> sparse.csr_matrix:
    rows = np.arange(len(classes))
    return sparse.csr_matrix((np.ones(len(classes)), (rows, classes)), shape=(len(classes), int(classes.max()) + 1))


def measure(asked: Benchmark) -> Iterator[list[object]]:
    """A row for each kind of samples."""
    corpus = TokenCorpus.open(asked.data, "train", verify=False)
    allowed: dict[int, float] = {}
    for length, objective, short, keep_pairs in product(asked.lengths, asked.objectives, asked.short, asked.keep_pairs):
        if keep_pairs and objective == "sop-reference":
            continue
        recipe = SequenceRecipe(max_length=length, objective=objective, short_probability=short, keep_pairs=keep_pairs)
        samples = PretrainingSamples(corpus, recipe, MaskingRecipe(), asked.seed)
        pairs = pairs_of(samples, min(asked.samples, samples.per_epoch))
        if length not in allowed:
            allowed[length] = judge(_like(pairs, corpus, asked.seed)).accuracy
        found, text = judge(pairs), 0.5 if objective == "nsp" else allowed[length]
        shares = (found.accuracy, found.deviation, found.majority, text)
        above = f"{100 * (found.accuracy - max(text, found.majority)):+.2f}"
        yield [objective, length, short, keep_pairs, len(pairs), *(f"{share:.4f}" for share in shares), above]


def _like(pairs: Pairs, corpus: TokenCorpus, seed: int) -> Pairs:
    """As many untruncated pairs, of about as many tokens."""
    wanted, sentences = pairs.lengths.sum(axis=1).mean(), 2
    found = untruncated_pairs(corpus, sentences, len(pairs), seed)
    while True:
        sentences += 1
        more = untruncated_pairs(corpus, sentences, len(pairs), seed)
        if abs(more.lengths.sum(axis=1).mean() - wanted) > abs(found.lengths.sum(axis=1).mean() - wanted):
            return found
        found = more


main = harness.script(Benchmark, COLUMNS, measure, same=COLUMNS[:4])

if __name__ == "__main__":
    main()
