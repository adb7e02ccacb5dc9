"""Drop near duplicates from a corpus with datatrove's MinHash; `albert prepare` reads the result.

    pip install 'datatrove>=0.10,<0.11' orjson regex
    python examples/near_duplicates.py my_text/ unique/ --workers 4
    albert prepare unique/ --tokenizer tokenizer --output corpus

One document of each group is kept. Two are near duplicates with a probability of 92 % if they have 80 % of their runs
of five words in common, 99.96 % at 90 %, and 1 % at 40 %. Documents of fewer than five words are kept. On a cluster,
replace `LocalPipelineExecutor` by datatrove's `SlurmPipelineExecutor` or `RayPipelineExecutor`."""

import argparse
import re
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup.minhash import (
    MinhashConfig,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.writers import JsonlWriter
from datatrove.utils.hashing import HashConfig
from datatrove.utils.word_tokenizers import WordTokenizer

from albert.text.corpus import find_corpus_files, read_files
from albert.text.readers import CorpusReport

CONFIG = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8, hash_config=HashConfig(hash_fc="sha1"))
WORD = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W\u3400-\u4dbf\u4e00-\u9fff]+")


class Words(WordTokenizer):
    """Runs of letters and digits, and single ideographs: for every language, without a further library."""

    def word_tokenize(self, text: str) -> list[str]:
        return WORD.findall(text)

    def span_tokenize(self, text: str) -> list[tuple[int, int]]:
        return [match.span() for match in WORD.finditer(text)]

    def sent_tokenize(self, text: str) -> list[str]:
        return [text]


def read(corpus: Path, _: object, rank: int, world_size: int) -> Iterator[Document]:
    """Yield the documents of every `world_size`-th file, all of them in the order in which albert reads them."""
    files = find_corpus_files([corpus]).files[rank::world_size]
    for number, text in enumerate(read_files(files, report=CorpusReport())):
        yield Document(text=text, id=f"{rank}/{number}")


def drop_near_duplicates(corpus: Path, output: Path, workers: int) -> None:
    """Write the documents of a corpus that resemble no other, and one of those that do, as JSON lines."""
    work = output.with_name(f"{output.name}.unfinished")
    shutil.rmtree(work, ignore_errors=True)
    tasks = len(find_corpus_files([corpus]).files)
    reader = partial(read, corpus)
    signatures, pairs, repeated, kept = (str(work / name) for name in ("signatures", "pairs", "repeated", "kept"))
    stages = (
        ([reader, MinhashDedupSignature(signatures, CONFIG, Words())], tasks),
        ([MinhashDedupBuckets(signatures, pairs, config=CONFIG)], CONFIG.num_buckets),
        ([MinhashDedupCluster(pairs, repeated, CONFIG)], 1),
        ([reader, MinhashDedupFilter(repeated), JsonlWriter(kept)], tasks),
    )
    for number, (pipeline, n_tasks) in enumerate(stages, start=1):
        logs = str(work / f"logs-{number}")
        LocalPipelineExecutor(pipeline, tasks=n_tasks, workers=workers, logging_dir=logs, skip_completed=False).run()
    Path(kept).rename(output)
    shutil.rmtree(work)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, help="a file or a folder that `albert prepare` can read")
    parser.add_argument("output", type=Path, help="the folder to create")
    parser.add_argument("--workers", type=int, default=1, help="number of processes")
    options = parser.parse_args()
    if options.output.exists():
        sys.exit(f"{options.output}: exists already")
    drop_near_duplicates(options.corpus, options.output, options.workers)
