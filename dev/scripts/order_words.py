r"""How well the words of two segments tell their order: what a corpus has to teach sentence-order prediction.

    python dev/scripts/order_words.py corpus 64 128 256

For each maximum length a linear classifier sees which pieces each segment has, and not their order. It learns on 80 %
of the pairs (at most 80,000, of two epochs) and is scored on the rest, which are of other documents. Segments are made
as in pre-training with `sequences.keep_pairs=true`. scikit-learn is needed (`pip install -e '.[dev]'`).
"""

import argparse
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from albert.pretraining.sampling import PretrainingSamples
from albert.pretraining.segments import NO_LABEL, TokenRanges
from albert.recipes.pretraining import MaskingRecipe, SequenceRecipe
from albert.text.shards import TokenCorpus

MAX_PAIRS = 80_000
STRENGTH = 0.01  # inverse, of the regularisation


def pieces(corpus: TokenCorpus, segments: TokenRanges) -> sparse.csr_matrix:
    """Which pieces each segment has: 1 or 0 for each segment and piece."""
    ends = np.cumsum(segments.length)
    tokens = np.zeros(ends[-1], dtype=np.int64)
    corpus.copy_runs(tokens, ends - segments.length, segments.begin, segments.length)
    rows = np.repeat(np.arange(len(ends)), segments.length)
    counts = sparse.csr_matrix((np.ones(len(tokens)), (rows, tokens)), shape=(len(ends), 1 << 18))
    counts.sum_duplicates()
    counts.data[:] = 1
    return counts


def main() -> None:
    """Print a line for each length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("lengths", type=int, nargs="+")
    options = parser.parse_args()
    corpus = TokenCorpus.open(options.corpus, "train", verify=False)
    for length in options.lengths:
        recipe = SequenceRecipe(max_length=length, keep_pairs=True)
        samples = PretrainingSamples(corpus, recipe, MaskingRecipe(), 0)
        segments = samples.segments(np.arange(min(2 * samples.per_epoch, MAX_PAIRS)))
        labelled = np.flatnonzero(segments.labels != NO_LABEL)
        in_text = labelled[np.argsort(segments.first.begin[labelled], kind="stable")]
        first, second = (
            TokenRanges(part.begin[in_text], part.length[in_text]) for part in (segments.first, segments.second)
        )
        features, labels = pieces(corpus, first) - pieces(corpus, second), segments.labels[in_text]
        train = len(labels) * 4 // 5
        model = LogisticRegression(C=STRENGTH, solver="liblinear").fit(features[:train], labels[:train])
        right = model.score(features[train:], labels[train:])
        constant = np.bincount(labels[train:]).max() / (len(labels) - train)
        print(f"length {length}: {right:.1%} of {len(labels) - train:,} pairs, a constant answer {constant:.1%}")


if __name__ == "__main__":
    main()
