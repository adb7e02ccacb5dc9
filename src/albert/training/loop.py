"""One loop for everything that learns. It knows no task and no data format.

The batch of each step is a pure function of the step's number, so a run goes on from its newest checkpoint as if it had
never stopped. Between steps the loop writes the journal, evaluates, saves, and listens for signals.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from albert.runtime.devices import Precision, seed_torch
from albert.runtime.distributed import World, replicate, wait_for_all, world
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.runtime.sharding import is_sharded
from albert.training.curves import Curves
from albert.training.objective import Batch, BatchSource, Objective
from albert.training.run_folder import RunFolder
from albert.training.stop_signals import Stopped, stop_signals
from albert.training.training_state import (
    TrainingState,
    read_training_state,
    training_tensors,
    write_training_state,
)
from albert.training.update import update
from albert.training.window import Window


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How the loop runs, whatever it trains.

    Raises:
        InvalidConfiguration: a number out of range.
    """

    total_steps: int
    """Optimiser updates."""
    seed: int = 0
    clip_norm: float = 1.0
    """Gradients are scaled down to this global norm (reference `optimization.py`: 1.0)."""
    precision: Precision = "bf16"
    log_every: int = 10
    """Steps between lines of the journal."""
    evaluate_every: int | None = None
    """Steps between evaluations; None: only at the end."""
    checkpoint_every: int | None = None
    """Steps between checkpoints; None: by time alone, and at the end."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints."""
    keep_checkpoints: int = 2
    workers: int = 0
    """Processes that make batches; the batches are the same for any number."""

    def __post_init__(self) -> None:
        for name in ("total_steps", "log_every", "evaluate_every", "checkpoint_every", "keep_checkpoints"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InvalidConfiguration(name, f"is {value}, at least 1 is needed")
        if self.workers < 0:
            raise InvalidConfiguration("workers", f"is {self.workers}, at least 0 is needed")


@dataclass(frozen=True)
class TrainingResult:
    """What a finished run gives back."""

    steps: int
    tokens: int
    seconds: float
    """Time in updates, without evaluations and saves, over all parts of the run."""
    evaluation: Mapping[str, float] = field(default_factory=dict)
    """The last evaluation."""

    @property
    def tokens_per_second(self) -> float:
        """Training throughput over all ranks."""
        return self.tokens / self.seconds if self.seconds else 0.0


def train(
    model: nn.Module,
    optimizer: Optimizer,
    learning_rate: Callable[[int], float],
    source: BatchSource,
    objective: Objective,
    plan: TrainingPlan,
    run: RunFolder,
    *,
    device: torch.device,
    identity: dict[str, str],
    save_model: Callable[[Path], None],
    gather: Callable[[], None] | None = None,
    evaluate: Callable[[], dict[str, float]] | None = None,
    before_step: Callable[[int], Mapping[str, float]] | None = None,
    description: str = "Training",
) -> TrainingResult:
    """Train to the end of the plan, from the newest checkpoint of the run where there is one.

    Args:
        model: on `device` already; trained in place, and left in evaluation mode.
        optimizer: over the model's parameters.
        learning_rate: the rate of update number n, counted from 0.
        source: batches by step.
        objective: loss sums of a micro-batch.
        plan: how long, how often.
        run: where to write; the caller holds its lock.
        device: where to compute.
        identity: fingerprints (recipe, corpus, …) that must be equal when a run is resumed.
        save_model: writes the model into a directory, for others to open; called for each checkpoint, on the first
            rank.
        gather: brings up to date what `evaluate` and `save_model` see of a model that is trained in another form;
            called before them, on every rank.
        evaluate: held-out figures of the model as it stands; called on the first rank.
        before_step: sets what update number n changes about the model, on every rank, and says what it was: a line
            of the journal.
        description: shown beside the progress bar.

    Raises:
        Diverged: a loss or a gradient is not finite; nothing of that step entered the weights.
        Stopped: SIGTERM or SIGINT came; a checkpoint of the last step was saved.
        DamagedData, InvalidConfiguration: the newest checkpoint is damaged, or belongs to another run.
    """
    here = world()
    newest = run.newest_checkpoint()
    state = TrainingState(identity=identity)
    if newest is not None:
        state = read_training_state(newest[1], model, optimizer, identity)
    circumstances = _circumstances(here, device, model)
    _note_changes(state.circumstances, circumstances, here)
    state.circumstances = circumstances
    parallel = replicate(model, here, device)
    curves = Curves(run, state.step, active=here.is_first)
    evaluation: dict[str, float] = {}
    saved_at = time.monotonic()

    def save() -> None:
        if gather is not None:
            gather()
        tensors = training_tensors(model, optimizer, here)

        def write_checkpoint(directory: Path) -> None:
            save_model(directory)
            write_training_state(directory, tensors, state)

        if here.is_first:
            run.save_checkpoint(state.step, write_checkpoint, plan.keep_checkpoints)
        wait_for_all(here)

    def due(every: int | None) -> bool:
        return every is not None and state.step % every == 0

    bar_of_steps = progress(description, plan.total_steps, "steps", state.step, quiet=not here.is_first)
    try:
        with stop_signals() as request, bar_of_steps as bar:
            model.train()
            for batches in _batches(source, here, plan, state.step):
                if before_step is not None and (changed := before_step(state.step)):
                    curves.write("change", state.step, **changed)
                started = time.perf_counter()
                seed_torch("dropout", plan.seed, state.step, here.rank)
                save_due = here.is_first and time.monotonic() - saved_at > plan.checkpoint_minutes * 60
                figures = update(
                    parallel,
                    optimizer,
                    batches,
                    objective,
                    learning_rate=learning_rate(state.step),
                    clip_norm=plan.clip_norm,
                    precision=plan.precision,
                    device=device,
                    here=here,
                    flags=(request.number is not None, save_due),
                )
                stop, save_now = (flag > 0 for flag in figures.flags)
                state.add(figures, time.perf_counter() - started)
                bar.advance()
                last = state.step == plan.total_steps
                if due(plan.log_every) or last:
                    line = state.window.line()
                    bar.note(f"loss {line['loss']:.3f}")
                    rate = learning_rate(state.step - 1)
                    curves.write("train", state.step, **line, learning_rate=rate, tokens=state.tokens)
                    state.window = Window()
                if due(plan.evaluate_every) or last:
                    if gather is not None:
                        gather()
                    if evaluate is not None and here.is_first:
                        model.eval()
                        evaluation = evaluate()
                        model.train()
                        curves.write("evaluation", state.step, **evaluation, tokens=state.tokens)
                    wait_for_all(here)
                if due(plan.checkpoint_every) or save_now or stop or last:
                    save()
                    saved_at = time.monotonic()
                if stop and not last:
                    raise Stopped(run.path, request.number)
    finally:
        curves.close()
    model.eval()
    return TrainingResult(state.step, state.tokens, state.seconds, evaluation)


class _StepDataset(Dataset[Sequence[Batch]]):
    """Batches by step, for the worker processes of a DataLoader."""

    def __init__(self, source: BatchSource, here: World) -> None:
        self._source, self._here = source, here

    def __getitem__(self, step: int) -> Sequence[Batch]:
        return self._source.micro_batches(step, self._here.rank, self._here.size)


def _batches(source: BatchSource, here: World, plan: TrainingPlan, first_step: int) -> Iterator[Sequence[Batch]]:
    """The batches of all steps left, made ahead by worker processes where the plan has them."""
    loader = DataLoader(
        _StepDataset(source, here),
        batch_size=None,
        sampler=range(first_step, plan.total_steps),
        num_workers=plan.workers,
        collate_fn=_as_is,
        worker_init_fn=_leave_signals_to_the_parent,
        generator=torch.Generator(),  # or a draw from the global generator would shift every later one
    )
    yield from loader


def _leave_signals_to_the_parent(_: int) -> None:
    """Signals often go to all processes of a job; a worker that ended would keep the parent from its last step."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _as_is(batches: Sequence[Batch]) -> Sequence[Batch]:
    return batches


def _note_changes(before: Mapping[str, str | int], now: Mapping[str, str | int], here: World) -> None:
    """Say so when a run goes on under circumstances that may change the last bits of its numbers."""
    changes = [f"{name} {before[name]} → {now[name]}" for name in before if before[name] != now.get(name)]
    if changes and here.is_first:
        print(f"albert: note: the run goes on with {', '.join(changes)}: not bit for bit as before", file=sys.stderr)


def _circumstances(here: World, device: torch.device, model: nn.Module) -> dict[str, str | int]:
    return {
        "torch": torch.__version__,
        "device": device.type,
        "threads": torch.get_num_threads(),
        "world_size": here.size,
        "parallelism": "sharded" if is_sharded(model) else "data",
    }
