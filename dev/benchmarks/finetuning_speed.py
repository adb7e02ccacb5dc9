"""Fine-tuning and evaluation compared with transformers' Trainer: the same weights, token ids, precision and optimiser.

    python dev/benchmarks/finetuning_speed.py --data data data/glue --tokenizer tokenizer --rounds 5

Two kinds of lengths: sentences of SST-2 with their own lengths, and questions of SQuAD whose contexts are extended by
the contexts that follow, all of 384 tokens. Trainer pads each batch to its longest sequence; as a second peer it groups
similar lengths. Neither logs, evaluates or saves while training. A step is the time between two requests for a batch:
making it, forward, backward, update. Systems alternate, on new examples in every round, and ratios are taken within a
round. Before measuring, the logits of both are compared: the work is the same. Trainer needs `accelerate`.
"""

import itertools
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, NamedTuple

import harness
import numpy as np
import torch
from harness import ModelSize
from task_files import find_files
from torch import nn
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
)
from transformers.utils import logging

from albert.checkpoints.huggingface import Kind
from albert.checkpoints.model_directory import open_model, save_model_directory
from albert.finetuning.batches import TaskBatch, TaskBatches
from albert.finetuning.evaluation import ComputeOptions, model_outputs
from albert.finetuning.objective import TaskLoss
from albert.finetuning.opened_model import head_description
from albert.model.albert import AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.runtime.devices import seed_torch
from albert.runtime.environment import Precision
from albert.runtime.errors import CheckFailed
from albert.tasks.examples import Example, Sequences, text_features
from albert.tasks.single_label import SingleLabel
from albert.tasks.span import Span
from albert.tasks.span_windows import span_features
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer
from albert.training.logging import TrainingPlan
from albert.training.loop import train
from albert.training.run_folder import RunFolder
from albert.training.same_run import Run
from albert.training.task import TrainingTask
from albert.training.update import Batch, Sums

OURS, TRAINER, GROUPED = "albert", "trainer", "trainer, grouped by length"
RECIPE = OptimizerRecipe(kind="adamw", learning_rate=2e-5, weight_decay=0.01)
MICRO_BATCH_TOKENS = 8192
CPU = torch.device("cpu")
FIXED_LENGTH = 384
MAX_DIFFERENCE = {"fp32": 1e-4, "bf16": 0.1}  # between logits of both; bf16 keeps eight bits
COLUMNS = (
    "shape", "lengths", "mean_tokens", "precision", "work", "batch_size", "peer", "albert_examples_per_second",
    "trainer_examples_per_second", "ratio", "least", "most", "rounds", "versions",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark(ModelSize):
    """Compare fine-tuning and evaluation."""

    data: tuple[Path, ...]
    """Folders of task files."""
    tokenizer: Path
    """A tokenizer or a model directory; the model has its vocabulary."""
    lengths: tuple[Literal["sst-2", "384"], ...] = ("sst-2", "384")
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    steps: int = 20
    """Steps of a round that count, after one that warms up."""
    batch_sizes: tuple[int, int] = (32, 16)
    """Examples of a step: of sentences, and of sequences of 384 tokens; of an evaluation twice as many."""
    evaluated: tuple[int, int] = (872, 128)
    """Examples of a round's evaluation."""
    rounds: int = 5
    """Rounds that are measured, after one that warms up."""
    output: Path = Path("results/benchmark-finetuning-speed.csv")


class Lengths(NamedTuple):
    """Sequences of one kind of task, and their targets: label ids, or first and last token."""

    name: str
    kind: Kind
    sequences: Sequences
    targets: np.ndarray

    def part(self, first: int, count: int) -> "Lengths":
        """`count` of them from an index on, cyclically."""
        members = np.arange(first, first + count) % len(self.sequences)
        return self._replace(sequences=self.sequences.select(members), targets=self.targets[members])

    @property
    def is_fixed(self) -> bool:
        """Whether all have one length, so that nothing is padded."""
        return bool((self.sequences.lengths == self.sequences.lengths[0]).all())


class Setting(NamedTuple):
    """Settings of all systems: the model's directory, examples of a step, and the precision, on a CPU."""

    directory: Path
    batch_size: int
    precision: Precision


def measure(args: Benchmark) -> Iterator[dict[str, object]]:
    """Rows of both kinds of lengths in each precision."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*(lr_scheduler|use_return_dict).*")
    tokenizer = load_tokenizer(args.tokenizer)
    config = args.config(vocab_size=tokenizer.vocab_size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
                          classifier_dropout_prob=0.1)  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for index, name in enumerate(("sst-2", "384")):
            if name not in args.lengths:
                continue
            inputs = find_files("sst-2" if name == "sst-2" else "squad-1.1", args.data)
            batch_size, evaluated = args.batch_sizes[index], args.evaluated[index]
            needed = max((args.steps + 1) * batch_size, evaluated) * (args.rounds + 1)
            examples, directory = inputs.examples("train"), Path(folder) / name
            seed_torch("benchmark", index)
            if name == "sst-2":
                data, model = sentences(examples[:needed], tokenizer), AlbertForSequenceClassification(config, 2)
            else:
                data, model = questions(examples, tokenizer, needed), AlbertForQuestionAnswering(config)
            extra = head_description(inputs.task, inputs.task.recipe, None)
            save_model_directory(directory, model, args.tokenizer, extra=extra)
            for precision in args.precisions:
                setting = Setting(directory, batch_size, precision)
                shape = f"H{config.hidden_size} L{config.num_hidden_layers}"
                for row in compare(data, setting, args.steps, evaluated, args.rounds):
                    yield {"shape": shape, **row}


def sentences(examples: Sequence[Example], tokenizer: Tokenizer) -> Lengths:
    """Sentences of SST-2 with their own lengths."""
    features = text_features(examples, tokenizer, 512)
    return Lengths("sst-2", "classification", features.sequences, features.targets)


def questions(examples: Sequence[Example], tokenizer: Tokenizer, wanted: int) -> Lengths:
    """At most `wanted` windows of exactly 384 tokens with the answer.

    A context is extended by the contexts that follow, which keeps the offsets of its answers.
    """
    contexts = list(dict.fromkeys(example.texts[1] for example in examples))
    index_of = {context: index for index, context in enumerate(contexts)}
    longer = []
    for example in examples[: 2 * wanted]:
        question, context = example.texts
        index, text = index_of[context], context
        following = itertools.islice(itertools.cycle(contexts), index + 1, index + len(contexts))
        while len(text) < 8 * FIXED_LENGTH and (more := next(following, None)) is not None:
            text += " " + more
        longer.append(replace(example, texts=(question, text)))
    features = span_features(longer, tokenizer, FIXED_LENGTH, 64, 128)
    usable = (features.sequences.lengths == FIXED_LENGTH) & (features.targets[:, 0] >= 0)
    members = np.flatnonzero(usable)[:wanted]
    return Lengths("384", "question_answering", features.sequences.select(members), features.targets[members])


def compare(data: Lengths, setting: Setting, steps: int, evaluated: int, rounds: int) -> Iterator[dict[str, object]]:
    """A row for each kind of work and each peer.

    Raises:
        CheckFailed: the systems give different logits for the same sequences.
    """
    few = data.part(0, 8)
    difference = float(np.abs(our_evaluation(setting, few)[1] - their_evaluation(setting, TRAINER, few)[1]).max())
    if not difference < MAX_DIFFERENCE[setting.precision]:
        raise CheckFailed(data.name, f"logits of both systems differ by {difference:.3g}")
    peers = (TRAINER,) if data.is_fixed else (TRAINER, GROUPED)
    n_trained = (steps + 1) * setting.batch_size

    def fine_tune(run: Callable[[Lengths], float], number: int) -> float:
        return steps * setting.batch_size / run(data.part(number * n_trained, n_trained))

    def evaluate(run: Callable[[Lengths], tuple[float, Any]], number: int) -> float:
        return evaluated / run(data.part(number * evaluated, evaluated))[0]

    systems: dict[tuple[str, str], Callable[[int], float]] = {
        ("fine-tuning", OURS): partial(fine_tune, partial(our_steps, setting)),
        ("evaluation", OURS): partial(evaluate, partial(our_evaluation, setting)),
    }
    for peer in peers:
        systems["fine-tuning", peer] = partial(fine_tune, partial(their_steps, setting, peer))
        systems["evaluation", peer] = partial(evaluate, partial(their_evaluation, setting, peer))
    rates = harness.alternate(systems, rounds, lambda number: number)
    for work, peer in systems:
        if peer == OURS:
            continue
        ours, theirs = rates[work, OURS], rates[work, peer]
        times = harness.spread(harness.ratios(ours, theirs), ".2f")
        yield {
            "lengths": data.name, "mean_tokens": f"{data.sequences.lengths.mean():.1f}",
            "precision": setting.precision, "work": work, "peer": peer,
            "batch_size": setting.batch_size * (2 if work == "evaluation" else 1),
            "albert_examples_per_second": harness.spread(ours, ".1f")[0],
            "trainer_examples_per_second": harness.spread(theirs, ".1f")[0],
            **dict(zip(("ratio", "least", "most"), times, strict=True)), "rounds": rounds,
            "versions": f"transformers {version('transformers')}, accelerate {version('accelerate')}",
        }  # fmt: skip


# --------------------------------------------------------------------------------------------------------------------
# Ours.


class _Clocked(NamedTuple):
    """Batches that record when those of each step are requested."""

    batches: TaskBatches
    requested: list[float]

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[TaskBatch]:
        self.requested.append(time.perf_counter())
        return self.batches.micro_batches(step, rank, world_size)


class _OneEpoch(TrainingTask):
    """Training at a constant rate, without evaluation; nothing is saved."""

    def learning_rate(self, step: int, budget_used: float) -> float:
        return RECIPE.learning_rate

    def loss(self, model: nn.Module, batch: Batch) -> Sums:
        assert isinstance(batch, TaskBatch)
        target = Span() if batch.term == "span" else SingleLabel(("0", "1"), "label")
        return TaskLoss(target)(model, batch)

    def evaluate(self) -> dict[str, float]:
        return {}

    def save(self, directory: Path) -> None:
        pass


def our_steps(setting: Setting, data: Lengths) -> float:
    """Seconds of all steps but the first, on each sequence once."""
    model = open_model(setting.directory, data.kind).model
    steps = len(data.targets) // setting.batch_size
    term = "choice" if data.targets.ndim == 1 else "span"
    batches = TaskBatches(data.sequences, data.targets, term, setting.batch_size, 0, MICRO_BATCH_TOKENS)
    clocked = _Clocked(batches, [])
    plan = TrainingPlan(total_steps=steps + 1, precision=setting.precision, log_every=10**6, checkpoint_minutes=1e6)
    with tempfile.TemporaryDirectory() as folder:
        work = _OneEpoch(
            module=model, optimizer=build_optimizer(RECIPE, model), source=clocked, device=CPU, evaluates=False
        )
        train(work, plan, Run(folder=RunFolder(Path(folder) / "run"), record={}, identity={}))
    return clocked.requested[steps] - clocked.requested[1]


def our_evaluation(setting: Setting, data: Lengths) -> tuple[float, np.ndarray]:
    """Seconds to evaluate all sequences, and the logits [sequences, labels], or [sequences, length] of starts."""
    model = open_model(setting.directory, data.kind).model
    compute = ComputeOptions(CPU, setting.precision, MICRO_BATCH_TOKENS)
    started = time.perf_counter()
    outputs = model_outputs(model, data.sequences, compute, "Evaluating")
    seconds = time.perf_counter() - started
    return seconds, np.stack([np.asarray(row)[:, 0] if data.targets.ndim == 2 else np.asarray(row) for row in outputs])


# --------------------------------------------------------------------------------------------------------------------
# transformers'.


class _StepClock(TrainerCallback):
    """Records the end of each step."""

    def __init__(self) -> None:
        self.ended: list[float] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.ended.append(time.perf_counter())


def their_steps(setting: Setting, peer: str, data: Lengths) -> float:
    """As `our_steps`."""
    clock = _StepClock()
    _trainer(setting, peer, data, _rows(data), [clock]).train()
    return clock.ended[-1] - clock.ended[0]


def their_evaluation(setting: Setting, peer: str, data: Lengths) -> tuple[float, np.ndarray]:
    """As `our_evaluation`."""
    rows = _rows(data)
    trainer = _trainer(setting, peer, data, rows, [])
    started = time.perf_counter()
    output = trainer.predict(rows)
    seconds = time.perf_counter() - started
    return seconds, np.asarray(output.predictions[0] if data.targets.ndim == 2 else output.predictions)


def _trainer(
    setting: Setting, peer: str, data: Lengths, rows: list[dict[str, Any]], callbacks: list[TrainerCallback]
) -> Trainer:
    """A Trainer with its options for speed: batches padded to their longest or not at all, no reports, no saves."""
    loader = AutoModelForQuestionAnswering if data.targets.ndim == 2 else AutoModelForSequenceClassification
    padded = DataCollatorWithPadding(AutoTokenizer.from_pretrained(setting.directory))
    arguments = TrainingArguments(
        output_dir=str(setting.directory / "trainer"),
        per_device_train_batch_size=setting.batch_size,
        per_device_eval_batch_size=2 * setting.batch_size,
        max_steps=len(rows) // setting.batch_size,
        learning_rate=RECIPE.learning_rate,
        weight_decay=RECIPE.weight_decay,
        adam_beta1=RECIPE.beta1,
        adam_beta2=RECIPE.beta2,
        adam_epsilon=RECIPE.eps,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        bf16=setting.precision == "bf16",
        use_cpu=True,
        train_sampling_strategy="group_by_length" if peer == GROUPED else "random",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    collator = default_data_collator if data.is_fixed else padded
    return Trainer(model=loader.from_pretrained(setting.directory), args=arguments, train_dataset=rows,
                   data_collator=collator, callbacks=callbacks)  # fmt: skip


def _rows(data: Lengths) -> list[dict[str, Any]]:
    """Sequences in the format of Trainer."""
    names = ("labels",) if data.targets.ndim == 1 else ("start_positions", "end_positions")
    return [
        {
            "input_ids": data.sequences.token_ids(index).tolist(),
            "token_type_ids": data.sequences.token_type_ids(index).tolist(),
            "attention_mask": [1] * int(data.sequences.lengths[index]),
            **dict(zip(names, np.atleast_1d(target).tolist(), strict=True)),
        }
        for index, target in enumerate(data.targets)
    ]


main = harness.script(Benchmark, COLUMNS, measure)

if __name__ == "__main__":
    main()
