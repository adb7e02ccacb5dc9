"""Spearman correlation of text-vector cosines with human similarity scores on the development set of STS-B.

    python dev/benchmarks/text_vectors.py --data ../shared/data/glue tiny runs/vectors

For each model: the mean over the last layer's tokens (`albert.load(MODEL).embed`), the same by `pooling="weighted"`,
the mean of its word embeddings, the same weighted by inverse document frequency (of the training sentences), and all
without their three largest common directions. Nothing is trained.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer

import albert
from albert.tasks.submission import find_task


def without_common_directions(vectors: np.ndarray, sample: np.ndarray, count: int = 3) -> np.ndarray:
    """Vectors without the mean and the main directions of a sample."""
    mean = sample.mean(axis=0)
    directions = np.linalg.svd(sample - mean, full_matrices=False)[2][:count]
    centred = vectors - mean
    return centred - centred @ directions.T @ directions


def main() -> None:
    """Print the correlations of every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", type=Path, required=True, help="the folder with STS-B/train.tsv and dev.tsv")
    args = parser.parse_args()
    source = find_task("sts-b").source
    dev, train = (source.read(args.data, split).rows for split in ("dev", "train"))
    texts = [[row.text(column) for row in dev] for column in ("sentence1", "sentence2")]
    sample = [row.text("sentence1") for row in train]
    gold = [float(row.text("score")) for row in dev]

    def correlation(name: str, first: np.ndarray, second: np.ndarray) -> None:
        products = (first * second).sum(axis=1)
        cosines = products / (np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1))
        print(f"{name}: {100 * spearmanr(cosines, gold)[0]:.1f}", flush=True)

    def correlations(name: str, first: np.ndarray, second: np.ndarray, common: np.ndarray) -> None:
        correlation(name, first, second)
        without = (without_common_directions(vectors, common) for vectors in (first, second))
        correlation(f"{name}, without three common directions", *without)

    for model in args.models:
        predictor = albert.load(model, precision="fp32")
        correlations(f"{model}: embed", *map(predictor.embed, texts), predictor.embed(sample))
        weighted = partial(predictor.embed, pooling="weighted")
        correlations(f"{model}: embed, pooling weighted", *map(weighted, texts), weighted(sample))
        encode = predictor.tokenizer.encode_batch
        network = predictor.network
        words = getattr(network, "albert", network).embeddings.word_embeddings.weight.detach().float().numpy()
        token_sets = [set(ids) for ids in encode(sample)]
        counts = np.bincount([token for ids in token_sets for token in ids], minlength=len(words))
        for name, weights in (
            ("word embeddings", np.ones(len(words))),
            ("word embeddings by tf-idf", np.log((1 + len(token_sets)) / (1 + counts))),
        ):
            means = [
                np.stack([weights[ids] @ words[ids] / max(1, len(ids)) for ids in encode(part)])
                for part in (*texts, sample)
            ]
            correlations(f"{model}: {name}", *means)
    matrix = TfidfVectorizer().fit(sample)
    first, second = (matrix.transform(part) for part in texts)
    print(f"tf-idf of words, cosine: {100 * spearmanr(np.asarray(first.multiply(second).sum(1)).ravel(), gold)[0]:.1f}")


if __name__ == "__main__":
    main()
