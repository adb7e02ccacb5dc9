"""Two ways to fine-tune and evaluate one model directory: this package's loop, and transformers' Trainer.

Both open the same weights, learn from the same token ids with the same loss, AdamW, clipping and schedule, and neither
logs, evaluates or saves under way. A step is what lies between two requests for a batch: making it, forward, backward,
update. The first step of a call warms up and does not count.
"""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
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

from albert.checkpoints.huggingface import Kind
from albert.checkpoints.model_directory import open_model
from albert.finetuning.data import TaskBatch, TaskBatches
from albert.finetuning.evaluation import Computing, model_outputs
from albert.finetuning.objective import task_loss
from albert.optim.optimizer import OptimizerRecipe, build_optimizer
from albert.optim.recipe import warmup_then_linear
from albert.runtime.environment import Precision
from albert.tasks.examples import Sequences
from albert.training.logging import TrainingPlan
from albert.training.loop import train
from albert.training.run_folder import RunFolder

OURS, TRAINER, GROUPED = "albert", "trainer", "trainer, grouped by length"
RECIPE = OptimizerRecipe(kind="adamw", learning_rate=2e-5, weight_decay=0.01)
MICRO_BATCH_TOKENS = 8192


class Lengths(NamedTuple):
    """Sequences of one kind of task, and what is learnt from them: label ids, or first and last token."""

    name: str
    kind: Kind
    sequences: Sequences
    targets: np.ndarray

    def part(self, first: int, count: int) -> "Lengths":
        """So many of them, from a place on; behind the last comes the first."""
        members = np.arange(first, first + count) % len(self.sequences)
        return self._replace(sequences=self.sequences.select(members), targets=self.targets[members])

    @property
    def is_fixed(self) -> bool:
        """Whether all are equally long, so that nothing is padded."""
        return bool((self.sequences.lengths == self.sequences.lengths[0]).all())


@dataclass(frozen=True)
class Setting:
    """What both have in common: the model's directory, examples of a step, and how it is computed."""

    directory: Path
    batch_size: int
    evaluation_batch_size: int
    precision: Precision
    device: str

    def seconds_of_steps(self, system: str, data: Lengths) -> float:
        """All steps but the first over some sequences, each of which is learnt once."""
        return (_our_steps if system == OURS else _their_steps)(self, system, data)

    def seconds_of_evaluation(self, system: str, data: Lengths) -> tuple[float, np.ndarray]:
        """Time to answer all sequences, and the logits [sequences, labels], or [sequences, length] of starts."""
        return (_our_evaluation if system == OURS else _their_evaluation)(self, system, data)


class _Clocked(NamedTuple):
    """Batches that note when each step's are asked for."""

    batches: TaskBatches
    asked: list[float]
    synchronize: Callable[[], None]

    def micro_batches(self, step: int, rank: int, world_size: int) -> Sequence[TaskBatch]:
        self.synchronize()
        self.asked.append(time.perf_counter())
        return self.batches.micro_batches(step, rank, world_size)


class _StepClock(TrainerCallback):
    """Notes when each step is over."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        self.ended: list[float] = []
        self.synchronize = synchronize

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self.synchronize()
        self.ended.append(time.perf_counter())


def _synchronize(setting: Setting) -> Callable[[], None]:
    return torch.cuda.synchronize if setting.device == "cuda" else lambda: None


def _our_steps(setting: Setting, system: str, data: Lengths) -> float:
    device = torch.device(setting.device)
    model = open_model(setting.directory, data.kind).model.to(device)
    steps = len(data.targets) // setting.batch_size
    term = "choice" if data.targets.ndim == 1 else "span"
    batches = TaskBatches(data.sequences, data.targets, term, setting.batch_size, 0, MICRO_BATCH_TOKENS)
    clocked = _Clocked(batches, [], _synchronize(setting))
    plan = TrainingPlan(total_steps=steps + 1, precision=setting.precision, log_every=10**6, checkpoint_minutes=1e6)
    with tempfile.TemporaryDirectory() as folder:
        train(
            model,
            build_optimizer(RECIPE, model),
            lambda step, _: warmup_then_linear(step, RECIPE.learning_rate, 0, steps + 1),
            clocked,
            task_loss,
            plan,
            RunFolder(Path(folder) / "run"),
            device=device,
            identity={},
            save_model=lambda directory: None,
        )
    return clocked.asked[steps] - clocked.asked[1]


def _their_steps(setting: Setting, system: str, data: Lengths) -> float:
    clock = _StepClock(_synchronize(setting))
    _trainer(setting, system, data, _rows(data), clock).train()
    return clock.ended[-1] - clock.ended[0]


def _our_evaluation(setting: Setting, system: str, data: Lengths) -> tuple[float, np.ndarray]:
    device = torch.device(setting.device)
    model = open_model(setting.directory, data.kind).model.to(device)
    computing = Computing(device, setting.precision, MICRO_BATCH_TOKENS)
    started = time.perf_counter()
    outputs = model_outputs(model, data.sequences, computing, "Evaluating")
    seconds = time.perf_counter() - started
    return seconds, np.stack([np.asarray(row)[:, 0] if data.targets.ndim == 2 else np.asarray(row) for row in outputs])


def _their_evaluation(setting: Setting, system: str, data: Lengths) -> tuple[float, np.ndarray]:
    rows = _rows(data)
    trainer = _trainer(setting, system, data, rows, None)
    started = time.perf_counter()
    said = trainer.predict(rows)  # pyright: ignore[reportArgumentType]  # a list is a data set to it
    seconds = time.perf_counter() - started
    return seconds, np.asarray(said.predictions[0] if data.targets.ndim == 2 else said.predictions)


def _trainer(
    setting: Setting, system: str, data: Lengths, rows: list[dict[str, Any]], clock: TrainerCallback | None
) -> Trainer:
    """A Trainer with what it offers for speed: batches padded to their longest, or not at all; no reports, no saves."""
    loader = AutoModelForQuestionAnswering if data.targets.ndim == 2 else AutoModelForSequenceClassification
    padded = DataCollatorWithPadding(AutoTokenizer.from_pretrained(setting.directory))
    arguments = TrainingArguments(
        output_dir=str(setting.directory / "trainer"),
        per_device_train_batch_size=setting.batch_size,
        per_device_eval_batch_size=setting.evaluation_batch_size,
        max_steps=len(rows) // setting.batch_size,
        learning_rate=RECIPE.learning_rate,
        weight_decay=RECIPE.weight_decay,
        adam_beta1=RECIPE.beta1,
        adam_beta2=RECIPE.beta2,
        adam_epsilon=RECIPE.eps,
        max_grad_norm=1.0,
        lr_scheduler_type="linear",
        bf16=setting.precision == "bf16",
        use_cpu=setting.device == "cpu",
        train_sampling_strategy="group_by_length" if system == GROUPED else "random",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=setting.device == "cuda",
    )
    return Trainer(
        model=loader.from_pretrained(setting.directory),
        args=arguments,
        train_dataset=rows,  # pyright: ignore[reportArgumentType]  # a list is a data set to it
        data_collator=default_data_collator if data.is_fixed else padded,
        callbacks=[] if clock is None else [clock],
    )


def _rows(data: Lengths) -> list[dict[str, Any]]:
    """Sequences as Trainer takes them."""
    return [
        {
            "input_ids": data.sequences.token_ids(index).tolist(),
            "token_type_ids": data.sequences.token_type_ids(index).tolist(),
            "attention_mask": [1] * int(data.sequences.lengths[index]),
            **_labels(target),
        }
        for index, target in enumerate(data.targets)
    ]


def _labels(target: Any) -> Mapping[str, int]:
    if np.ndim(target) == 0:
        return {"labels": int(target)}
    return {"start_positions": int(target[0]), "end_positions": int(target[1])}
