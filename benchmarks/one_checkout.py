"""Pre-training steps on request, by whatever `albert` is on PYTHONPATH, for `two_checkouts.py`.

It uses what has been in the package for long alone, as it must run with older ones. A line of its input is a case and
a number of steps; the answer is the tokens and the seconds of processor time that they took, batches included.
"""

import albert  # before torch, which reads how its threads wait when it is loaded

# isort: split
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import build_optimizer
from albert.pretraining.batches import PretrainingBatches, pretraining_objective
from albert.pretraining.recipe import PAPER_BASE
from albert.pretraining.sampling import PretrainingSamples
from albert.runtime.environment import Ranks
from albert.text.shards import TokenCorpus
from albert.training.loop import load_batches
from albert.training.update import update


def make(case: str, corpus: TokenCorpus) -> Callable[[], int]:
    """What takes a step and tells its tokens, of a case such as H256-L4-n128-b32-fp32, after two steps."""
    words = case.split("-")
    width, layers, length, batch_size = (int(word[1:]) for word in words[:4])
    precision: Any = words[4]
    model_config = replace(
        PAPER_BASE.model, vocab_size=corpus.vocab_size, hidden_size=width, num_hidden_layers=layers,
        num_attention_heads=width // 64, intermediate_size=4 * width,
    )  # fmt: skip
    recipe = replace(PAPER_BASE, model=model_config, sequences=replace(PAPER_BASE.sequences, max_length=length))
    torch.manual_seed(0)
    model = AlbertForPreTraining(recipe.model).train()
    optimizer = build_optimizer(recipe.optimizer, model)
    samples = PretrainingSamples(corpus, recipe.sequences, recipe.masking, recipe.seed)
    source, ranks = PretrainingBatches(samples, batch_size, batch_size), Ranks()
    steps = iter(load_batches(source, ranks, range(1 << 20), 0))

    def step() -> int:
        batches = next(steps)
        update(model, optimizer, batches, pretraining_objective, learning_rate=1e-4, clip_norm=1.0, precision=precision,
               device=torch.device("cpu"), ranks=ranks)  # fmt: skip
        return sum(batch.n_tokens for batch in batches)

    step(), step()
    return step


def main(data: Path) -> None:
    """Answer until the input ends."""
    torch.set_num_threads(1)
    corpus, cases = TokenCorpus.open(data, "train", verify=False), {}
    print(Path(albert.__file__).parents[2], flush=True)
    for line in sys.stdin:
        case, n = line.split()
        step = cases.get(case) or cases.setdefault(case, make(case, corpus))
        started = time.process_time()
        tokens = sum(step() for _ in range(int(n)))
        print(tokens, time.process_time() - started, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
