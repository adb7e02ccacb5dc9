"""Making training samples beside others: tokens per second of one process, of processor time, taken in turns.

Ours are complete: segments found and read, swapped, masked by n-grams of whole words, packed into the batches that the
model takes. transformers' collator only masks and pads; it is given the very sequences, cut and ordered, with their
special tokens and words marked. The reference's `create_pretraining_data.py` (google-research/albert) makes complete
instances of documents in memory, short of writing them; its file stays where it is and runs with stubs in the place of
TensorFlow. Prints medians and ratios, what an H200 would take for each model, and appends a row to a CSV.

    python benchmarks/pretraining_samples.py --data corpus --reference google-research-albert/create_pretraining_data.py
"""

import importlib.util
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
from harness import append_rows, ratio
from rich.console import Console
from rich.table import Table
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

from albert.cli.options import parse
from albert.model.config import PRESETS
from albert.model.cost import count_flops
from albert.pretraining.batches import micro_batches
from albert.pretraining.masking import MaskingRecipe, Words
from albert.pretraining.sampling import PretrainingSamples, SequenceRecipe
from albert.text.shards import TokenCorpus

H200_FLOPS, USED = 990e12, 0.4
"""Dense bf16, and the share of it that a good training step reaches."""
TRAINED = ("albert-base", "albert-large", "albert-xlarge", "albert-xxlarge")
COLUMNS = ("albert", "collator, tokens", "collator, whole words", "reference, complete", "reference, masks alone")


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare the making of training samples.

    Example: python benchmarks/pretraining_samples.py --data corpus --max-length 128
    """

    data: Path
    """What `albert prepare` wrote."""
    reference: Path | None = None
    """The reference's create_pretraining_data.py; without it, it is left out."""
    max_length: int = 512
    batch_size: int = 1024
    """Sequences of ours in a round; a collator gets an eighth of them, the reference a document, and 32 to mask."""
    micro_batch_size: int = 32
    rounds: int = 9
    output: Path = Path("results/benchmark-pretraining-samples.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "pretraining_samples.py")
    corpus = TokenCorpus.open(asked.data, "train", verify=False)
    samples = PretrainingSamples(corpus, SequenceRecipe(max_length=asked.max_length), MaskingRecipe(), 0)
    makers = {"albert": _ours(samples, asked), **_collators(samples, asked)}
    if asked.reference is not None:
        makers |= _reference(corpus, samples, asked)
    rates: dict[str, list[float]] = {name: [] for name in makers}
    for number in range(asked.rounds + 1):  # the first round warms up
        for name, make in sorted(makers.items(), reverse=bool(number % 2)):
            run = make(number)
            started = time.process_time()
            tokens = run()
            seconds = time.process_time() - started
            if number:
                rates[name].append(tokens / seconds)
    _report(asked, rates)


Maker = Callable[[int], Callable[[], int]]
"""The number of a round to what is timed, which returns how many tokens it made."""


def _ours(samples: PretrainingSamples, asked: Benchmark) -> Maker:
    def make(number: int) -> Callable[[], int]:
        numbers = np.arange(number * asked.batch_size, (number + 1) * asked.batch_size)
        return lambda: sum(batch.n_tokens for batch in micro_batches(samples, numbers, asked.micro_batch_size))

    return make


def _collators(samples: PretrainingSamples, asked: Benchmark) -> dict[str, Maker]:
    warnings.filterwarnings("ignore", message="Random token replacement is not supported")
    tokenizer = AutoTokenizer.from_pretrained(asked.data)

    def maker(whole_words: bool) -> Maker:
        collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15, whole_word_mask=whole_words)

        def make(number: int) -> Callable[[], int]:
            count = asked.batch_size // 8
            examples = _examples(samples, np.arange(number * count, (number + 1) * count), whole_words)
            parts = [examples[i : i + asked.micro_batch_size] for i in range(0, count, asked.micro_batch_size)]
            for part in parts if whole_words else []:  # the one thing that the collator does not pad itself
                longest = max(len(example["input_ids"]) for example in part)
                for example in part:
                    example["offset_mapping"] += [[0, 0]] * (longest - len(example["offset_mapping"]))

            def run() -> int:
                for part in parts:
                    collator(part)
                return sum(len(example["input_ids"]) for example in examples)

            return run

        return make

    return {"collator, tokens": maker(False), "collator, whole words": maker(True)}


def _examples(samples: PretrainingSamples, numbers: np.ndarray, whole_words: bool) -> list[dict[str, Any]]:
    """Unmasked sequences, with all that a collator would else have to find out."""
    examples = []
    for sample in samples.batch(numbers).unbatch():
        ids = sample.token_ids.copy()
        ids[sample.masked_positions] = sample.masked_labels
        special = samples.masking.special[ids]
        example = {"input_ids": ids.tolist(), "token_type_ids": sample.token_type_ids.tolist()}
        example["special_tokens_mask"] = special.astype(int).tolist()
        if whole_words:  # a word begins where an offset does not go on from the one before
            words = Words.find(ids, np.array([len(ids)]), samples.masking.word_starts, samples.masking.special)
            begins = np.zeros(len(ids), dtype=np.int64)
            begins[words.begin] = 1
            starts = 2 * np.arange(len(ids)) + np.cumsum(begins)
            offsets = np.stack((starts, starts + 2), axis=1)
            offsets[special] = 0
            example["offset_mapping"] = offsets.tolist()
        examples.append(example)
    return examples


def _reference(corpus: TokenCorpus, samples: PretrainingSamples, asked: Benchmark) -> dict[str, Maker]:
    assert asked.reference is not None
    theirs = _loaded(asked.reference)
    tokenizer = AutoTokenizer.from_pretrained(asked.data)
    pieces = tokenizer.convert_ids_to_tokens(list(range(corpus.vocab_size)))
    lengths = corpus.lengths(0)
    documents, sentence, place = [], 0, 0
    for count in lengths.documents[:40].tolist():
        sizes = lengths.sentences[sentence : sentence + count].tolist()
        documents.append([])
        for size in sizes:
            documents[-1].append([pieces[token] for token in corpus.read(place, place + size).tolist()])
            place += size
        sentence += count
    most, rng = round(0.15 * asked.max_length), random.Random(0)

    def complete(number: int) -> Callable[[], int]:
        chosen = number % len(documents)
        whole = documents[chosen]
        documents[chosen] = whole[: 8 * asked.max_length // 10]  # a part of a book is enough

        def run() -> int:
            made = theirs.create_instances_from_document(
                documents, chosen, asked.max_length, 0.1, 0.15, most, pieces, rng
            )
            return sum(len(instance.tokens) for instance in made)

        return run

    def masks(number: int) -> Callable[[], int]:
        numbers = np.arange(number * 32, (number + 1) * 32)
        sequences = [[pieces[i] for i in example["input_ids"]] for example in _examples(samples, numbers, False)]

        def run() -> int:
            for tokens in sequences:
                theirs.create_masked_lm_predictions(tokens, 0.15, most, pieces, rng)
            return sum(map(len, sequences))

        return run

    return {"reference, complete": complete, "reference, masks alone": masks}


def _loaded(path: Path) -> Any:
    """The reference's module, with stand-ins for what it imports and does not use here."""
    settings = SimpleNamespace(
        do_whole_word_mask=True,
        favor_shorter_ngram=True,
        do_permutation=False,
        random_next_sentence=False,
        spm_model_file="yes",
        ngram=3,
    )
    defining = {f"DEFINE_{kind}": lambda *_: None for kind in ("string", "bool", "integer", "float")}
    tensorflow = SimpleNamespace(flags=SimpleNamespace(FLAGS=settings, **defining))
    for name, content in (
        ("tensorflow", {}),
        ("tensorflow.compat", {}),
        ("tensorflow.compat.v1", vars(tensorflow)),
        ("six", {"ensure_str": str}),
        ("six.moves", {"range": range, "zip": zip}),
        ("albert.tokenization", {}),
    ):
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(content)
    spec = importlib.util.spec_from_file_location("reference", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _report(asked: Benchmark, rates: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(found) for name, found in rates.items()}
    table = Table("", "tokens/s", "ours is faster by", box=None)
    for name, found in rates.items():
        times = "" if name == "albert" else f"{ratio(rates['albert'], found):,.1f}"
        table.add_row(name, f"{medians[name]:,.0f}", times)
    console = Console(width=100)
    console.print(table)
    needs = Table("an H200 trains", "MFLOP a token", "tokens/s at 40 %", "GPUs that one process feeds", box=None)
    for name in TRAINED:
        flops = count_flops(PRESETS[name], asked.max_length)
        work = flops.training + 3 * 0.15 * flops.masked_language_model_head
        needed = USED * H200_FLOPS / work
        needs.add_row(name, f"{work / 1e6:,.0f}", f"{needed:,.0f}", f"{medians['albert'] / needed:,.0f}")
    console.print(needs)
    row = {"numpy": np.__version__, "shape": f"length {asked.max_length} batch {asked.micro_batch_size}"}
    row |= {f"{name}, tokens/s": str(round(medians[name])) if name in medians else "" for name in COLUMNS}
    append_rows(asked.output, list(row), [row])


if __name__ == "__main__":
    main(sys.argv[1:])
