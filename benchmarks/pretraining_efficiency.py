"""What pre-training yields for its tokens and its time: held-out loss of ours and of transformers' Trainer.

    python benchmarks/pretraining_efficiency.py --data corpus --recipe runs/mine/recipe.json --tokens 8000000

The same text, tokenizer, architecture, precision, threads, tokens and tokens of an update; each with a schedule that
ends with them. Ours takes samples, masks, positions and objectives of its recipe, two objectives where it has SOP.
Trainer has `AlbertForMaskedLM` with its own initial weights, and is fed as transformers' example `run_mlm.py` does by
default: every document is [CLS] document [SEP], all are put one after the other and cut into blocks of the length, so
that nothing is padded; `DataCollatorForLanguageModeling` masks 15 % of the tokens, each by itself; AdamW, linear
warm-up and decay are those of Trainer. Blocks are full, sequences of ours are not: its batch has fewer, so that an
update sees as many tokens, and there are about as many updates. Where E is H, its model has a projection all the same,
and learns it.

Both take turns, a slice of tokens each, within one process, and after each slice both are asked the same, while their
clocks stand still: `whole words` are samples of ours with the masks of the recipe, `tokens` are blocks as Trainer
learns them, masked by its collator; both of documents that nobody has read. Trainer needs `accelerate`.
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import itertools
import math
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import harness
import numpy as np
import torch
from pictures import draw
from transformers import AlbertConfig as TheirConfig
from transformers import (
    AlbertForMaskedLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.utils import logging

from albert.checkpoints.model_directory import open_model, write_model
from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import build_optimizer
from albert.optim.recipe import warmup_then_linear
from albert.pretraining.batches import PretrainingBatch, PretrainingBatches, collate, pretraining_objective
from albert.pretraining.evaluation import EVALUATION_SEED, MASKED_TOKENS, HeldOutSamples
from albert.pretraining.recipe import PretrainingRecipe, find_recipe
from albert.pretraining.run import untrained_model
from albert.pretraining.sampling import PretrainingSamples, Sample
from albert.pretraining.segments import NO_LABEL
from albert.runtime.devices import autocast, default_precision
from albert.runtime.environment import Ranks
from albert.runtime.errors import UsageError
from albert.text.shards import TokenCorpus
from albert.training.loop import load_batches
from albert.training.update import update

CPU = torch.device("cpu")
OURS, TRAINER = "albert", "trainer"
FIGURES = ("whole_words_loss", "whole_words_accuracy", "tokens_loss", "tokens_accuracy")
COLUMNS = ("shape", "batch", "precision", "system", "step", "million_tokens", "seconds", *FIGURES)
SAMPLED_STEPS = 64
"""Steps of ours that tell how many tokens a step has."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare pre-training with transformers' Trainer, by tokens and by time.

    Example: python benchmarks/pretraining_efficiency.py --data corpus --tokens 8000000 --slices 16
    """

    data: Path
    """What `albert prepare` wrote."""
    recipe: str = "two-cores"
    """A recipe's name, or the recipe.json of a run; its schedule is shortened to the tokens."""
    tokens: int = 4_000_000
    """Of each."""
    slices: int = 16
    """Pauses at which both are measured."""
    learning_rate: float | None = None
    """Of Trainer; the recipe's when it has AdamW."""
    whole_words: bool = False
    """Let Trainer's collator mask whole words."""
    sequences: int = 1000
    """Most held-out sequences of each kind."""
    output: Path = Path("results/benchmark-pretraining-efficiency.csv")
    """The rows; the figure is beside them."""


class Point(NamedTuple):
    """How far one was at a pause, and what it knew."""

    system: str
    step: int
    tokens: int
    seconds: float
    figures: dict[str, float]


@dataclass(frozen=True)
class Contest:
    """What both have in common, and what is Trainer's; the recipe has as many updates as the tokens need."""

    recipe: PretrainingRecipe
    corpus: TokenCorpus
    slices: int
    their_batch_size: int
    their_steps: int
    their_rate: float
    whole_words: bool

    def is_pause(self, step: int, steps: int) -> bool:
        """Whether a learner of so many steps waits after this one."""
        return step * self.slices // steps > (step - 1) * self.slices // steps


def measure(asked: Benchmark) -> Iterator[dict[str, object]]:
    """A row for each system at each pause, and the picture."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    corpus = TokenCorpus.open(asked.data)
    contest = contest_of(asked, corpus)
    recipe, model = contest.recipe, contest.recipe.model
    about = {
        "shape": f"V{model.vocab_size} H{model.hidden_size} L{model.num_hidden_layers} "
        f"length {recipe.sequences.max_length}",
        "batch": recipe.batch_size,
        "precision": recipe.precision,
    }
    points: list[Point] = []
    learn(contest, HeldOut(corpus, recipe, asked.sequences).measure, points.append)
    for point in points:
        yield about | {
            "system": point.system, "step": point.step, "million_tokens": f"{point.tokens / 1e6:.3f}",
            "seconds": f"{point.seconds:.3f}", **{name: f"{point.figures[name]:.4f}" for name in FIGURES},
        }  # fmt: skip
    ours, theirs = ([point for point in points if point.system == system] for system in (OURS, TRAINER))
    for own in (ours, theirs):
        print(f"{own[0].system}: {own[-1].tokens / own[-1].seconds:,.0f} tokens a second")
    for what in ("tokens", "seconds"):
        needed = reached(ours, "whole_words_loss", theirs[-1].figures["whole_words_loss"], what)
        share = needed / getattr(theirs[-1], what)
        told = f"{share:.2f}" if math.isfinite(share) else "not reached"
        print(f"share of Trainer's {what} in which albert has its last loss: {told}")
    panels: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for kind, (what, scale, unit) in itertools.product(
        ("whole_words", "tokens"), (("tokens", 1e6, "million tokens"), ("seconds", 60.0, "minutes"))
    ):
        panels[f"{kind.replace('_', ' ')} masked, by {unit}"] = {
            own[0].system: [(getattr(point, what) / scale, point.figures[f"{kind}_loss"]) for point in own]
            for own in (ours, theirs)
        }
    draw(asked.output.with_suffix(".png"), panels, "million tokens, or minutes", "held-out loss, nats", xlim=(0, None))


def contest_of(asked: Benchmark, corpus: TokenCorpus) -> Contest:
    """The recipe with as many updates as the tokens need, and how many Trainer needs for as many.

    Raises:
        UsageError: no learning rate is known for Trainer's AdamW.
    """
    recipe = find_recipe(asked.recipe)
    rate = asked.learning_rate
    if rate is None and recipe.optimizer.kind != "adamw":
        raise UsageError("--learning-rate", f"the recipe has {recipe.optimizer.kind}, Trainer AdamW", "give Trainer's")
    precision = default_precision(CPU) if recipe.precision == "auto" else recipe.precision
    recipe = replace(recipe, model=replace(recipe.model, vocab_size=corpus.vocab_size), precision=precision)
    samples = PretrainingSamples(corpus, recipe.sequences, recipe.masking, recipe.seed)
    first = samples.batch(np.arange(SAMPLED_STEPS * recipe.batch_size))
    of_an_update = int(first.lengths.sum()) / SAMPLED_STEPS
    steps = max(asked.slices, round(asked.tokens / of_an_update))
    their_batch_size = max(1, round(of_an_update / recipe.sequences.max_length))
    warmup = round(steps * recipe.schedule.warmup_steps / recipe.schedule.total_steps)
    return Contest(
        recipe=replace(recipe, schedule=replace(recipe.schedule, total_steps=steps, warmup_steps=warmup)),
        corpus=corpus,
        slices=asked.slices,
        their_batch_size=their_batch_size,
        their_steps=max(asked.slices, round(asked.tokens / their_batch_size / recipe.sequences.max_length)),
        their_rate=recipe.optimizer.learning_rate if rate is None else rate,
        whole_words=asked.whole_words,
    )


def reached(points: Sequence[Point], figure: str, value: float, what: str) -> float:
    """How many tokens or seconds it took to come down to a value, between pauses by a straight line; inf: never."""
    before = None
    for point in points:
        if point.figures[figure] <= value:
            if before is None:
                return float(getattr(point, what))
            part = (before.figures[figure] - value) / (before.figures[figure] - point.figures[figure])
            return getattr(before, what) + part * (getattr(point, what) - getattr(before, what))
        before = point
    return math.inf


# --------------------------------------------------------------------------------------------------------------------
# What both are asked.


class HeldOut:
    """Two sets of held-out sequences, the same for both."""

    def __init__(self, corpus: TokenCorpus, recipe: PretrainingRecipe, limit: int) -> None:
        held_out = TokenCorpus.open(corpus.directory, "held_out", verify=False)
        plain = replace(recipe.sequences, objective="none", neighbours_probability=0.0)
        ours = HeldOutSamples(PretrainingSamples(held_out, plain, recipe.masking, EVALUATION_SEED), limit)
        blocks, mask = Blocks(held_out, recipe.sequences.max_length), collator(corpus, EVALUATION_SEED)
        theirs = mask([blocks[number] for number in range(min(limit, len(blocks)))])
        rows = [
            _as_sample(ids, labels)
            for ids, labels in zip(theirs["input_ids"].numpy(), theirs["labels"].numpy(), strict=True)
        ]
        batches = [collate(rows[begin : begin + 32]) for begin in range(0, len(rows), 32)]
        self._sets: dict[str, Sequence[PretrainingBatch]] = {"whole_words": ours.batches, "tokens": batches}
        self._precision = recipe.settled_precision

    def measure(self, model: AlbertForPreTraining) -> dict[str, float]:
        """Mean loss in nats and accuracy of masked tokens, of each set."""
        found = {}
        model.eval()
        for name, batches in self._sets.items():
            loss = correct = 0.0
            with torch.inference_mode(), autocast(CPU, self._precision):
                for batch in batches:
                    sums = pretraining_objective(model, batch)
                    loss += float(sums.losses[MASKED_TOKENS])
                    correct += float(sums.correct[MASKED_TOKENS])
            count = sum(batch.counts[MASKED_TOKENS] for batch in batches)
            found |= {f"{name}_loss": loss / count, f"{name}_accuracy": correct / count}
        model.train()
        return found


def _as_sample(ids: np.ndarray, labels: np.ndarray) -> Sample:
    masked = np.flatnonzero(labels != NO_LABEL)
    return Sample(ids, np.zeros_like(ids), masked, labels[masked], NO_LABEL)


# --------------------------------------------------------------------------------------------------------------------
# Learning in turns: Trainer runs its loop, and at each of its pauses ours learns a slice.

Ask = Callable[[AlbertForPreTraining], dict[str, float]]


def learn(contest: Contest, ask: Ask, tell: Callable[[Point], None]) -> None:
    """Let both learn to the end, a slice at a time in turns, and tell how far they are."""
    with tempfile.TemporaryDirectory() as folder:
        start = Path(folder) / "start"
        start.mkdir()
        write_model(start, untrained_model(contest.recipe), contest.corpus.directory)
        ours = learn_ours(contest, ask)
        _trainer(contest, start, _Turns(contest, Path(folder) / "trainer", ask, tell, ours)).train()


def learn_ours(contest: Contest, ask: Ask) -> Iterator[Point]:
    """The updates of `albert pretrain`; a point at each pause."""
    recipe = contest.recipe
    samples = PretrainingSamples(contest.corpus, recipe.sequences, recipe.masking, recipe.seed)
    model = untrained_model(recipe).train()
    optimizer, total = build_optimizer(recipe.optimizer, model), recipe.schedule.total_steps
    source = PretrainingBatches(samples, recipe.batch_size, recipe.micro_batch_size)
    tokens, seconds, went_on = 0, 0.0, time.perf_counter()
    for step, batches in enumerate(load_batches(source, Ranks(), range(total), 0)):
        rate = warmup_then_linear(step, recipe.optimizer.learning_rate, recipe.schedule.warmup_steps, total)
        update(model, optimizer, batches, pretraining_objective, learning_rate=rate, clip_norm=recipe.clip_norm,
               precision=recipe.settled_precision, device=CPU, ranks=Ranks())  # fmt: skip
        tokens += sum(batch.n_tokens for batch in batches)
        if contest.is_pause(step + 1, total):
            seconds += time.perf_counter() - went_on
            yield Point(OURS, step + 1, tokens, seconds, ask(model))
            went_on = time.perf_counter()


class _Turns(TrainerCallback):
    """Measures Trainer at its pauses, and gives ours its turn."""

    def __init__(
        self, contest: Contest, folder: Path, ask: Ask, tell: Callable[[Point], None], ours: Iterator[Point]
    ) -> None:
        self._contest, self._folder, self._ask, self._tell, self._ours = contest, folder, ask, tell, ours
        self._seconds, self._went_on = 0.0, 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._went_on = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        step, contest = state.global_step, self._contest
        if not contest.is_pause(step, contest.their_steps):
            return
        self._seconds += time.perf_counter() - self._went_on
        others["model"].save_pretrained(self._folder)
        opened = open_model(self._folder, "pretraining").model
        assert isinstance(opened, AlbertForPreTraining)
        tokens = step * contest.their_batch_size * contest.recipe.sequences.max_length
        theirs = Point(TRAINER, step, tokens, self._seconds, self._ask(opened))
        self._tell(next(self._ours))
        self._tell(theirs)
        self._went_on = time.perf_counter()


def _trainer(contest: Contest, start: Path, turns: _Turns) -> Trainer:
    recipe = contest.recipe
    torch.manual_seed(recipe.seed)
    model = AlbertForMaskedLM(TheirConfig.from_pretrained(start))
    model.config.embedding_projection = True  # which is what ours needs to be told when it reads the weights
    arguments = TrainingArguments(
        output_dir=str(start.parent / "trainer"),
        per_device_train_batch_size=contest.their_batch_size,
        max_steps=contest.their_steps,
        learning_rate=contest.their_rate,
        lr_scheduler_type="linear",
        warmup_steps=round(contest.their_steps * recipe.schedule.warmup_steps / recipe.schedule.total_steps),
        weight_decay=recipe.optimizer.weight_decay,
        adam_beta1=recipe.optimizer.beta1,
        adam_beta2=recipe.optimizer.beta2,
        adam_epsilon=recipe.optimizer.eps,
        max_grad_norm=recipe.clip_norm,
        bf16=recipe.precision == "bf16",
        use_cpu=True,
        seed=recipe.seed,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    masks = collator(contest.corpus, recipe.seed, contest.whole_words)
    blocks = Blocks(contest.corpus, recipe.sequences.max_length)
    return Trainer(model=model, args=arguments, train_dataset=blocks, data_collator=masks, callbacks=[turns])


class Blocks(torch.utils.data.Dataset[dict[str, list[int]]]):
    """Documents one after the other, cut into blocks; what is left over at the end is left out."""

    def __init__(self, corpus: TokenCorpus, length: int) -> None:
        tokenizer = corpus.tokenizer()
        self._length, self._special = length, (tokenizer.cls_id, tokenizer.sep_id)
        ends = corpus.sentence_starts[corpus.document_starts]
        run = np.empty(corpus.n_tokens + 2 * corpus.n_documents, dtype=np.int32)
        for number, (start, stop) in enumerate(itertools.pairwise(ends)):
            place = int(start) + 2 * number
            run[place] = tokenizer.cls_id
            run[place + 1 : place + 1 + stop - start] = corpus.read(int(start), int(stop))
            run[place + 1 + stop - start] = tokenizer.sep_id
        self._blocks = run[: len(run) // length * length].reshape(-1, length)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, number: int) -> dict[str, list[int]]:
        block = self._blocks[number]
        special = np.isin(block, self._special).astype(np.int64)
        return {"input_ids": block.tolist(), "special_tokens_mask": special.tolist()}


def collator(corpus: TokenCorpus, seed: int, whole_words: bool = False) -> DataCollatorForLanguageModeling:
    """transformers' own, with the corpus's tokenizer."""
    tokenizer = AutoTokenizer.from_pretrained(corpus.directory)
    return DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15, whole_word_mask=whole_words, seed=seed)


main = harness.script(Benchmark, COLUMNS, measure)

if __name__ == "__main__":
    main(sys.argv[1:])
