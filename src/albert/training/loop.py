"""The training loop: batches, updates, evaluations, checkpoints, independent of task and data format.

The batch of each step is a pure function of the step's number and of the batches skipped by rollbacks, so a run resumed
from its newest checkpoint continues as if it had never stopped."""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader, Dataset

from albert.runtime.devices import seed_torch
from albert.runtime.distributed import replicate, sum_over_ranks, wait_for_all
from albert.runtime.environment import Ranks, world
from albert.runtime.json_files import read_journal
from albert.runtime.progress import Bar, progress
from albert.training.logging import Curves, Limit, Logger, Meter, TrainingPlan, TrainingResult, peak_memory_bytes
from albert.training.run_folder import RunFolder, Stopped, StopRequest, stop_signals
from albert.training.self_check import SelfCheck
from albert.training.state import (
    MetricSums,
    TrainingState,
    read_training_state,
    report_environment_changes,
    training_environment,
    training_tensors,
    write_training_state,
)
from albert.training.update import (
    Batch,
    BatchSource,
    Objective,
    PendingMetrics,
    Rejection,
    UpdateMetrics,
    diverged,
    non_finite_state,
    update,
    update_without_waiting,
)

# --------------------------------------------------------------------------------------------------------------------
# Batch loading, with worker processes if there are any.
#
# Each tensor received from a worker process holds a file descriptor, and a step may have thousands of tensors: they are
# sent as one flat tensor of each type.


@dataclass(frozen=True)
class _Piece:
    """A tensor of a batch, as a slice of a flat tensor."""

    dtype: torch.dtype
    first: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class _Parts:
    """A dataclass split into its fields."""

    kind: type
    fields: dict[str, Any]


@dataclass(frozen=True)
class JoinedBatches:
    """The micro-batches of a step with all tensors of one dtype in a single flat tensor, for fast transfer."""

    pieces: tuple[Any, ...]
    """The batches with a `_Piece` in place of each tensor."""
    flat: Mapping[torch.dtype, Tensor]

    @classmethod
    def of(cls, batches: Sequence[Batch]) -> "JoinedBatches":
        """Join micro-batches, which are dataclasses of tensors."""
        rows: dict[torch.dtype, list[Tensor]] = {}
        lengths: dict[torch.dtype, int] = {}

        def put(tensor: Tensor) -> _Piece:
            first = lengths.get(tensor.dtype, 0)
            lengths[tensor.dtype] = first + tensor.numel()
            rows.setdefault(tensor.dtype, []).append(tensor.reshape(-1))
            return _Piece(tensor.dtype, first, tuple(tensor.shape))

        pieces = _split(tuple(batches), put)
        return cls(pieces, {dtype: torch.cat(tensors) for dtype, tensors in rows.items()})

    def batches(self) -> Sequence[Batch]:
        """The micro-batches, whose tensors are views."""
        return _join(self.pieces, self.flat)


def _split(value: Any, put: Callable[[Tensor], _Piece]) -> Any:
    """A tree of tuples and dataclasses with a `_Piece` for each tensor and a `_Parts` for each dataclass."""
    if isinstance(value, Tensor):
        return put(value)
    if type(value) is tuple:
        return tuple(_split(item, put) for item in value)
    if is_dataclass(value) and not isinstance(value, type):
        return _Parts(type(value), {f.name: _split(getattr(value, f.name), put) for f in fields(value)})
    return value


def _join(value: Any, flat: Mapping[torch.dtype, Tensor]) -> Any:
    if isinstance(value, _Piece):
        return flat[value.dtype][value.first : value.first + math.prod(value.shape)].view(value.shape)
    if type(value) is tuple:
        return tuple(_join(item, flat) for item in value)
    if isinstance(value, _Parts):
        return value.kind(**{name: _join(item, flat) for name, item in value.fields.items()})
    return value


CPU = torch.device("cpu")


def load_batches(
    source: BatchSource, ranks: Ranks, numbers: range, workers: int, device: torch.device = CPU
) -> Iterator[Sequence[Batch]]:
    """Yield this rank's micro-batches of each step.

    Args:
        numbers: batch numbers, in this order.
        workers: data loading processes; 0: batches are made in this process on demand.
        device: to a GPU, each batch is copied while the previous one is computed.
    """
    loader = DataLoader(
        _BatchDataset(source, ranks),
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        collate_fn=JoinedBatches.of if workers or device.type == "cuda" else tuple,
        generator=torch.Generator(),  # or a draw from the global generator would shift every later one
    )
    with _block_signals_in_workers():
        steps = iter(loader)  # starts the workers
    for step in steps if device.type != "cuda" else _prefetch(steps, device):
        yield step.batches() if isinstance(step, JoinedBatches) else step


def _prefetch(steps: Iterable[JoinedBatches], device: torch.device) -> Iterator[JoinedBatches]:
    """Copy each step to the GPU, from pinned memory on a separate stream, while the previous step is computed."""
    stream = torch.cuda.Stream(device)
    ready = None
    for step in steps:
        with torch.cuda.stream(stream):
            flat = {dtype: rows.pin_memory().to(device, non_blocking=True) for dtype, rows in step.flat.items()}
        copied = torch.cuda.Event()
        copied.record(stream)
        if ready is not None:
            yield _after(*ready)
        ready = replace(step, flat=flat), copied
    if ready is not None:
        yield _after(*ready)


def _after(step: JoinedBatches, copied: torch.cuda.Event) -> JoinedBatches:
    """Make the current stream wait for the copy of a step, and keep its memory until it was read."""
    current = torch.cuda.current_stream()
    current.wait_event(copied)
    for rows in step.flat.values():
        rows.record_stream(current)
    return step


class _BatchDataset(Dataset[Sequence[Batch]]):
    """Map-style dataset of batches by number."""

    def __init__(self, source: BatchSource, ranks: Ranks) -> None:
        self._source = source
        self._ranks = ranks

    def __getitem__(self, number: int) -> Sequence[Batch]:
        return self._source.micro_batches(number, self._ranks.rank, self._ranks.size)


@contextmanager
def _block_signals_in_workers() -> Iterator[None]:
    """Processes started in the block ignore SIGTERM and SIGINT; this process receives them after the block.

    Schedulers often signal all processes of a job; without its workers the parent could not finish its last step.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# --------------------------------------------------------------------------------------------------------------------
# The steps of a run: an update, then logging, evaluation and checkpoints where they are due.
#
# Decisions of one rank (a signal, the end of the time budget) reach all ranks with the sums of the next update.


@dataclass
class Training:
    """A training run; `complete` trains until the plan's steps, tokens or minutes are used up.

    It resumes from the newest checkpoint if there is one. A finished run continues if the plan now allows more.
    """

    model: nn.Module
    """On `device`; trained in place, and left in evaluation mode."""
    optimizer: Optimizer
    """Over the model's parameters."""
    learning_rate: Callable[[int, float], float]
    """Learning rate of update n (from 0), given n and the fraction of the token or time budget used."""
    source: BatchSource
    objective: Objective
    plan: TrainingPlan
    run: RunFolder
    """Output directory; the caller holds its lock."""
    _: KW_ONLY
    device: torch.device
    identity: dict[str, str]
    """Fingerprints (recipe, corpus, …) that must match on resume."""
    save_model: Callable[[Path], None]
    """Saves the model into a directory; called for each checkpoint, on the first rank."""
    gather: Callable[[], None] | None = None
    """Updates the model that `evaluate` and `save_model` see if another form of it is trained; called before them, on
    every rank."""
    evaluate: Callable[[], dict[str, float]] | None = None
    """Held-out metrics of the present model; called on the first rank. A signal interrupts it: partial results are
    dropped, and the resumed run evaluates first."""
    is_enough: Callable[[], bool] | None = None
    """Whether the evaluations so far, in the journal, end the run; called after each, on the first rank."""
    before_step: Callable[[int], Mapping[str, float]] | None = None
    """Applies scheduled changes of the model before update n, on every rank, and returns them for the journal."""
    meter: Meter | None = None
    loggers: Sequence[Logger] = ()
    """Further loggers, beside journal and TensorBoard."""
    description: str = "Training"
    """Displayable beside the progress bar."""
    called: nn.Module | None = None
    """Module that the objective calls, with the parameters of `model`; None: `model` itself."""
    compute_workers: int = 1
    """Threads that compute micro-batches in parallel (see `training_workers`); a step is split into as many."""
    self_checks: Sequence[SelfCheck] = ()
    """What the paths of a GPU gave on the first micro-batch, for the journal."""

    ranks: Ranks = field(default_factory=world, init=False)
    parallel: nn.Module = field(init=False)
    """The model wrapped for data parallelism."""
    state: TrainingState = field(init=False)
    curves: Curves = field(init=False)
    bar: Bar = field(init=False)
    request: StopRequest = field(init=False)
    evaluation: dict[str, float] = field(default_factory=dict, init=False)
    ended_by: Limit | None = field(default=None, init=False)
    saved_at: float = field(init=False)
    launched: list[tuple[PendingMetrics | UpdateMetrics, float, float]] = field(default_factory=list, init=False)
    """Metrics, FLOPs and learning rate of the updates that are not finished; at most two."""
    most_tokens: int = field(default=0, init=False)
    """Largest number of tokens of an update so far."""
    clock: float = field(init=False)
    """Time at which the previous metrics were read, or the update began if there were none to read."""
    stop: bool = field(default=False, init=False)
    """Whether a signal was received on any rank."""
    save_now: bool = field(default=False, init=False)

    def complete(self) -> TrainingResult:
        """Take all remaining updates.

        Raises:
            Diverged: training diverged and the plan says stop, or it diverged too often; the newest checkpoint is good.
            Stopped: SIGTERM or SIGINT was received; a checkpoint of the last step was saved.
            DamagedData, InvalidConfiguration: the newest checkpoint is damaged, or belongs to another run.
        """
        run = self.run
        plan = self.plan
        first = self.ranks.is_first
        newest = run.newest_checkpoint()
        self.state = TrainingState(identity=self.identity)
        if newest is not None:
            self.state = read_training_state(newest[1], self.model, self.optimizer, self.identity, step=newest[0])
            if first:  # a run killed right after a save still has the older ones
                run.keep_newest(plan.keep_checkpoints)
        now = training_environment(self.ranks, self.device, self.model, plan.precision, self.compute_workers)
        changes = report_environment_changes(self.state.circumstances, now, self.ranks)
        self.state.circumstances = now
        self.curves = Curves(run, self.state.step, active=first, more=self.loggers)
        if newest is None or changes:
            self.curves.write("circumstances", self.state.step, now=now, changes=changes)
        if self.self_checks:
            checks = [asdict(check) for check in self.self_checks]
            self.curves.write("self_check", self.state.step, checks=checks)
        bar = progress(self.description, plan.likely_steps(self.state), "steps", self.state.step, quiet=not first)
        try:
            with stop_signals() as self.request, bar as self.bar:
                self.parallel = replicate(self.called or self.model, self.ranks, self.device)
                self.saved_at = time.monotonic()
                return self._take_updates()
        finally:
            self.curves.close()

    def _take_updates(self) -> TrainingResult:
        plan = self.plan
        self.state.seconds_of_first = self.state.seconds  # a checkpoint holds the first rank's
        self.ended_by = plan.reached(self.state)
        if self._evaluation_missing() and not self._evaluate():
            raise Stopped(self.run.path, self.request.number)
        if self.ended_by is None and self.state.step > 0 and self._due(plan.evaluate_every) and self._is_enough():
            self.ended_by = "patience"
        if plan.on_divergence == "rollback" and self._on_any_rank(self.ranks.is_first and not self.run.checkpoints()):
            self._save()  # a checkpoint to roll back to
        self.model.train()
        while self.ended_by is None:
            offset = self.state.incidents.skipped_batches
            numbers = range(self.state.step + offset, plan.total_steps + offset)
            for batches in load_batches(self.source, self.ranks, numbers, plan.workers, self.device):
                if not self._step(batches):
                    break
        self.model.eval()
        return self._result()

    def _step(self, batches: Sequence[Batch]) -> bool:
        """Take an update, then log, evaluate and save where due; returns whether to continue with the next batch."""
        plan = self.plan
        state = self.state
        number = self.state.step + len(self.launched)
        if self.before_step is not None and (changed := self.before_step(number)):
            self.curves.write("change", number, **changed)
        if not self.launched:
            self.clock = time.perf_counter()
        seed_torch("dropout", plan.seed, number, self.ranks.rank)
        save_due = time.monotonic() - self.saved_at > plan.checkpoint_minutes * 60
        rate = self.learning_rate(number, plan.budget_used(state))
        first = self.ranks.is_first
        flags = (self.request.number is not None, first and save_due, state.seconds if first else 0.0)
        settings = {
            "learning_rate": rate,
            "clip_norm": plan.clip_norm,
            "precision": plan.precision,
            "device": self.device,
            "ranks": self.ranks,
            "flags": flags,
            "workers": self.compute_workers,
        }
        args = (self.parallel, self.optimizer, batches, self.objective)
        flops = 0.0 if self.meter is None else sum(map(self.meter.flops, batches))
        delayed = plan.delays_metrics(self.device)
        metrics = update_without_waiting(*args, **settings) if delayed else update(*args, **settings)
        self.launched.append((metrics, flops, rate))
        at_once = not delayed or self._reads_at_once(number + 1)
        while len(self.launched) > (0 if at_once else 1):
            if not self._finish_update(*self.launched.pop(0)):
                return False
            at_once = at_once or self._ends_or_saves
        return True

    @property
    def _ends_or_saves(self) -> bool:
        return self.stop or self.save_now or self.ended_by is not None

    def _reads_at_once(self, step: int) -> bool:
        """Whether metrics of this step are needed at once: something is due after it, or it may be the last."""
        plan = self.plan
        every = (plan.log_every, plan.evaluate_every, plan.checkpoint_every)
        near_end = plan.max_tokens is not None and (
            not self.most_tokens or self.state.tokens + 3 * self.most_tokens >= plan.max_tokens
        )
        return step == plan.total_steps or near_end or any(n is not None and step % n == 0 for n in every)

    def _finish_update(self, metrics: PendingMetrics | UpdateMetrics, flops: float, rate: float) -> bool:
        """Log, evaluate and save where due after an update; returns whether to continue with the next batch."""
        plan = self.plan
        state = self.state
        if isinstance(metrics, PendingMetrics):
            metrics = metrics.read()
        seconds = time.perf_counter() - self.clock
        self.clock = time.perf_counter()
        self.most_tokens = max(self.most_tokens, metrics.tokens)
        self.stop = self.stop or metrics.flags[0] > 0
        self.save_now = self.save_now or metrics.flags[1] > 0
        state.seconds_of_first = metrics.flags[2]
        if metrics.alarm is not None and plan.on_divergence != "rollback":
            self._skip_update(metrics.alarm)
        state.add(metrics, seconds, flops)
        self.bar.advance()
        if metrics.alarm is not None and plan.on_divergence == "rollback":
            return self._roll_back(metrics.alarm)
        self.ended_by = plan.reached(state)
        if self.launched and self._ends_or_saves:  # the weights have the next update as well
            return True
        ended = self.ended_by is not None
        if self._due(plan.log_every) or ended:
            self._log_updates(rate)
        if self._due(plan.evaluate_every) or ended:
            self.stop = self.stop or not self._evaluate()
            if not ended and not self.stop and self._is_enough():
                self.ended_by = "patience"
                ended = True
        if self._due(plan.checkpoint_every) or self._ends_or_saves:
            damage = self._damage()
            if damage is not None and plan.on_divergence == "rollback":
                return self._roll_back(damage)
            if damage is not None:
                raise diverged(damage, "it was not saved")
            self._save()
        if self.stop:
            raise Stopped(self.run.path, self.request.number)
        return not ended

    def _roll_back(self, alarm: Rejection) -> bool:
        """Restore weights, moments and step from the newest checkpoint; returns False, to reload batches."""
        before = self.state
        newest = self.run.newest_checkpoint()
        assert newest is not None, "one is saved before the first update"
        rollbacks = before.incidents.with_rollback(before.step, newest[0], alarm, self.plan.max_rollbacks)
        self.optimizer.state.clear()
        self.state = read_training_state(newest[1], self.model, self.optimizer, before.identity, newest[0])
        self.state.circumstances = before.circumstances
        self.state.seconds = before.seconds
        self.state.seconds_of_first = before.seconds_of_first
        self.state.incidents.rollbacks = rollbacks
        step = self.state.step
        self.curves.write("rollback", before.step, why=str(alarm), to_step=step, rollbacks=len(rollbacks))
        self.curves.rewind(step)
        self.bar.advance(step - before.step)
        self._print_note(f"{alarm} in step {before.step:,}: back to step {step:,}, skipping the data seen since then")
        if self.stop:
            raise Stopped(self.run.path, self.request.number)
        return False

    def _skip_update(self, alarm: Rejection) -> None:
        """Record a skipped update, if the plan allows skipping."""
        if self.plan.on_divergence == "stop":
            raise diverged(alarm)
        state = self.state
        step = self.state.step + 1
        state.incidents.skip(state.step, alarm)
        skipped = len(state.incidents.skipped)
        self.curves.write("skip", step, why=str(alarm), skipped=skipped)
        self._print_note(f"{alarm} in step {step:,}: update skipped ({skipped:,} so far)")

    def _log_updates(self, rate: float) -> None:
        """Log the means of the updates since the last line, and start a new window."""
        state = self.state
        window = self.state.window
        if not window.steps:  # all were skipped
            return
        self.bar.note(window.note())
        self.bar.expect(self.plan.likely_steps(state))
        statistics = getattr(self.optimizer, "statistics", dict)()
        share = {} if self.meter is None else {"matmul_share": window.flops / window.seconds / self.meter.matmul_rate()}
        own = {"peak_memory_bytes": peak_memory_bytes(self.device), "learning_rate": rate}
        counted = {"tokens": state.tokens, "seconds": state.seconds}
        self.curves.write("train", state.step, **window.line(), **statistics, **share, **own, **counted)
        state.window = MetricSums()

    def _print_note(self, note: str) -> None:
        if self.ranks.is_first:
            print(f"albert: note: {note}", file=sys.stderr)

    def _evaluate(self) -> bool:
        """Evaluate the present model; returns False, without a record, if a signal to any rank interrupted it."""
        if self.gather is not None:
            self.gather()
        interrupted = False
        if self.evaluate is not None and self.ranks.is_first:
            self.model.eval()
            with self.request.interruptible() as attempt:
                self.evaluation = self.evaluate()
            self.model.train()
            interrupted = attempt.interrupted
            if not interrupted:
                times = {"tokens": self.state.tokens, "seconds": self.state.seconds}
                self.curves.write("evaluation", self.state.step, **self.evaluation, **times)
        return not self._on_any_rank(interrupted)

    def _is_enough(self) -> bool:
        """Whether the evaluations so far end the run; the same on every rank."""
        if self.is_enough is None:
            return False
        return self._on_any_rank(self.ranks.is_first and self.is_enough())

    def _evaluation_missing(self) -> bool:
        """Whether the evaluation of the resumed step was interrupted by a signal."""
        due = self.state.step > 0 and (self._due(self.plan.evaluate_every) or self.ended_by is not None)
        owed = due and self.ranks.is_first and self.evaluate is not None
        return self._on_any_rank(owed and not self._is_recorded("evaluation"))

    def _is_recorded(self, event: str) -> bool:
        """Whether the journal has this event for the present step."""
        records = read_journal(self.run.journal_path)
        return any(record["event"] == event and record.get("step") == self.state.step for record in records)

    def _damage(self) -> Rejection | None:
        """An alarm if any weight or moment on any rank is not finite."""
        alarm = non_finite_state(self.model, self.optimizer)
        if not self._on_any_rank(alarm is not None):
            return None
        return alarm or Rejection("the state", "of another process holds numbers that are not finite")

    def _save(self) -> None:
        """Save a checkpoint of this step."""
        if self.gather is not None:
            self.gather()
        tensors = training_tensors(self.model, self.optimizer, self.ranks)

        def write(directory: Path) -> None:
            self.save_model(directory)
            write_training_state(directory, tensors, self.state)

        self.curves.sync()  # first, so that a checkpoint never has steps that the journal lost
        if self.ranks.is_first:
            self.run.save_checkpoint(self.state.step, write, self.plan.keep_checkpoints)
        wait_for_all(self.ranks)
        self.saved_at = time.monotonic()
        self.save_now = False

    def _result(self) -> TrainingResult:
        """The result, recorded in the journal once."""
        assert self.ended_by is not None
        state = self.state
        incidents = self.state.incidents
        figures: dict[str, Any] = {
            "tokens": state.tokens,
            "seconds": state.seconds,
            "skipped": len(incidents.skipped),
            "rollbacks": len(incidents.rollbacks),
        }
        ending = {"evaluation": self.evaluation, "ended_by": self.ended_by, "total_steps": self.plan.total_steps}
        result = TrainingResult(steps=state.step, **figures, **ending)
        if self.ranks.is_first and not self._is_recorded("end"):
            self.curves.write("end", result.steps, why=result.ending, **figures)
        return result

    def _due(self, every: int | None) -> bool:
        return every is not None and self.state.step % every == 0

    def _on_any_rank(self, flag: bool) -> bool:
        """Whether the flag is set on any rank; a collective call."""
        return float(sum_over_ranks(torch.tensor(float(flag), device=self.device), self.ranks)) > 0
