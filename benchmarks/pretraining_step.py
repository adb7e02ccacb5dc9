"""Pre-training steps beside transformers': same architecture, sequences, masks and precision, interleaved in one run.

Ours packs sequences and computes vocabulary logits for masked tokens alone; transformers pads to the longest sequence
and computes them everywhere, as `Trainer` with its own collator does. Both take forward, backward and a step of the
same LAMB. Prints medians and the ratio, and appends rows to a CSV.

    python benchmarks/pretraining_step.py --data corpus --rounds 7
"""

import csv
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from transformers import AlbertConfig as TheirConfig
from transformers import AlbertForPreTraining as TheirModel

from albert.cli.command_line import parse
from albert.model.albert import AlbertForPreTraining
from albert.model.config import AlbertConfig
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.pretraining.batches import collate
from albert.pretraining.ngram_masking import MaskingRecipe
from albert.pretraining.objective import pretraining_objective
from albert.pretraining.samples import PretrainingSamples, Sample, SequenceRecipe
from albert.pretraining.sentence_order import NO_LABEL
from albert.runtime.devices import describe_machine
from albert.text.preparation.shards import TokenCorpus


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare pre-training steps.

    Example: python benchmarks/pretraining_step.py --data corpus --hidden-size 256 --layers 4
    """

    data: Path
    """What `albert prepare` wrote."""
    hidden_size: int = 256
    layers: int = 4
    max_length: int = 128
    batch_size: int = 32
    rounds: int = 7
    """Steps of each system, taken in turns."""
    precisions: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
    output: Path = Path("results/benchmark-pretraining-step.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "pretraining_step.py")
    corpus = TokenCorpus.open(asked.data, "train", verify=False)
    samples = PretrainingSamples(corpus, SequenceRecipe(max_length=asked.max_length), MaskingRecipe(), 0)
    sizes = {
        "vocab_size": corpus.vocab_size,
        "hidden_size": asked.hidden_size,
        "num_hidden_layers": asked.layers,
        "num_attention_heads": asked.hidden_size // 64,
        "intermediate_size": 4 * asked.hidden_size,
    }
    ours = AlbertForPreTraining(AlbertConfig(**sizes))
    no_dropout = {f"{place}_dropout_prob": 0.0 for place in ("hidden", "attention_probs", "classifier")}
    theirs = TheirModel(TheirConfig(embedding_size=128, hidden_act="gelu_new", **no_dropout, **sizes))
    steps = {"albert": _our_step(ours), "transformers": _their_step(theirs)}
    seconds: dict[tuple[str, str], list[float]] = {}
    tokens: list[int] = []
    for number in range(asked.rounds + 1):  # the first round warms up
        batch = [samples.numbered(number * asked.batch_size + i) for i in range(asked.batch_size)]
        tokens.append(sum(len(sample.token_ids) for sample in batch))
        for precision in asked.precisions:
            for name, step in sorted(steps.items(), reverse=bool(number % 2)):
                started = time.perf_counter()
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
                    loss = step(batch)
                loss()
                if number:
                    seconds.setdefault((precision, name), []).append((time.perf_counter() - started) / tokens[-1])
    _report(asked, seconds)


def _our_step(model: AlbertForPreTraining) -> Callable[[list[Sample]], Callable[[], None]]:
    optimizer = build_optimizer(OptimizerRecipe(), model)

    def step(samples: list[Sample]) -> Callable[[], None]:
        batch = collate(samples)
        sums = pretraining_objective(model, batch)
        loss = sum(sums.losses[name] / max(1, batch.counts[name]) for name in sums.losses)
        return lambda: _finish(loss, optimizer)

    return step


def _their_step(model: TheirModel) -> Callable[[list[Sample]], Callable[[], None]]:
    optimizer = build_optimizer(OptimizerRecipe(), model)

    def step(samples: list[Sample]) -> Callable[[], None]:
        shape = (len(samples), max(len(sample.token_ids) for sample in samples))
        ids, types, mask = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        labels = np.full(shape, NO_LABEL)
        for row, sample in enumerate(samples):
            length = len(sample.token_ids)
            ids[row, :length], types[row, :length], mask[row, :length] = sample.token_ids, sample.token_type_ids, 1
            labels[row, sample.masked_positions] = sample.masked_labels
        orders = torch.tensor([sample.order_label for sample in samples])
        found = model(
            input_ids=torch.from_numpy(ids),
            token_type_ids=torch.from_numpy(types),
            attention_mask=torch.from_numpy(mask),
            labels=torch.from_numpy(labels),
            sentence_order_label=orders,
        )
        return lambda: _finish(found.loss, optimizer)

    return step


def _finish(loss: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    loss.backward()
    torch.nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def _report(asked: Benchmark, seconds: dict[tuple[str, str], list[float]]) -> None:
    machine = describe_machine()
    rows = []
    for precision in asked.precisions:
        mine, other = (seconds[precision, name] for name in ("albert", "transformers"))
        ratio = statistics.median(b / a for a, b in zip(mine, other, strict=True))
        rates = {name: 1 / statistics.median(seconds[precision, name]) for name in ("albert", "transformers")}
        print(f"{precision}: ours {rates['albert']:,.0f} tokens/s, transformers {rates['transformers']:,.0f}", end="")
        print(f", ratio {ratio:.2f}")
        shape = f"H{asked.hidden_size} L{asked.layers} length {asked.max_length} batch {asked.batch_size}"
        rows.append([time.strftime("%Y-%m-%d"), machine["processor"], machine["torch"], shape, precision,
                     round(rates["albert"]), round(rates["transformers"]), round(ratio, 2)])  # fmt: skip
    new = not asked.output.exists()
    with open(asked.output, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(["date", "processor", "torch", "shape", "precision", "albert_tokens_per_second",
                             "transformers_tokens_per_second", "ratio"])  # fmt: skip
        writer.writerows(rows)


if __name__ == "__main__":
    main(sys.argv[1:])
