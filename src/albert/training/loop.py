"""The training loop: batches, updates, evaluations, checkpoints. It knows no task and no data format.

The batch of each step is a pure function of the step's number and of the batches passed over so far, so a run goes on
from its newest checkpoint as if it had never stopped."""

import math
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, fields, is_dataclass
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
from albert.training.state import (
    TrainingState,
    Window,
    circumstances,
    read_training_state,
    report_environment_changes,
    training_tensors,
    write_training_state,
)
from albert.training.update import (
    Alarm,
    Batch,
    BatchSource,
    Guard,
    LateFigures,
    Objective,
    TellsStatistics,
    UpdateFigures,
    diverged,
    non_finite_state,
    update,
    update_without_waiting,
)

# --------------------------------------------------------------------------------------------------------------------
# The batches of a run in their order, made ahead by worker processes where there are any.
#
# A tensor that a worker process hands over is a file descriptor in this one, and a step may have thousands of tensors:
# they come as one flat tensor of each type.


@dataclass(frozen=True)
class _Piece:
    """A tensor of a batch, as a part of a flat one."""

    dtype: torch.dtype
    first: int
    shape: tuple[int, ...]

    def of(self, flat: Mapping[torch.dtype, Tensor]) -> Tensor:
        return flat[self.dtype][self.first : self.first + math.prod(self.shape)].view(self.shape)


@dataclass(frozen=True)
class _Parts:
    """A dataclass taken apart."""

    kind: type
    fields: dict[str, Any]


@dataclass(frozen=True)
class JoinedBatches:
    """The micro-batches of a step with all tensors of one type in one, which a device is sent at once."""

    pieces: tuple[Any, ...]
    """The batches taken apart, with a `_Piece` in place of each tensor."""
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

        pieces = _taken_apart(tuple(batches), put)
        return cls(pieces, {dtype: torch.cat(some) for dtype, some in rows.items()})

    def batches(self) -> Sequence[Batch]:
        """The micro-batches, whose tensors are views."""
        return _put_together(self.pieces, self.flat)


def _taken_apart(value: Any, put: Callable[[Tensor], _Piece]) -> Any:
    """A tree of tuples and dataclasses with a `_Piece` for each tensor and a `_Parts` for each dataclass."""
    if isinstance(value, Tensor):
        return put(value)
    if type(value) is tuple:
        return tuple(_taken_apart(each, put) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return _Parts(type(value), {f.name: _taken_apart(getattr(value, f.name), put) for f in fields(value)})
    return value


def _put_together(value: Any, flat: Mapping[torch.dtype, Tensor]) -> Any:
    if isinstance(value, _Piece):
        return value.of(flat)
    if type(value) is tuple:
        return tuple(_put_together(each, flat) for each in value)
    if isinstance(value, _Parts):
        return value.kind(**{name: _put_together(each, flat) for name, each in value.fields.items()})
    return value


CPU = torch.device("cpu")


def load_batches(
    source: BatchSource, ranks: Ranks, numbers: range, workers: int, device: torch.device = CPU
) -> Iterator[Sequence[Batch]]:
    """This rank's share of each batch.

    Args:
        numbers: which batches, in this order.
        workers: processes that make them; 0: this one, when a batch is asked for.
        device: a GPU is sent each batch while it computes the one before.
    """
    loader = DataLoader(
        _BatchDataset(source, ranks),
        batch_size=None,
        sampler=numbers,
        num_workers=workers,
        collate_fn=JoinedBatches.of if workers or device.type == "cuda" else _as_is,
        generator=torch.Generator(),  # or a draw from the global generator would shift every later one
    )
    with _signals_left_to_the_parent():
        steps = iter(loader)  # starts the workers
    for made in steps if device.type != "cuda" else _sent_ahead(steps, device):
        yield made.batches() if isinstance(made, JoinedBatches) else made


def _sent_ahead(steps: Iterable[JoinedBatches], device: torch.device) -> Iterator[JoinedBatches]:
    """Each step on the GPU: copied from pinned memory on a stream of its own while the step before is computed."""
    stream, ready = torch.cuda.Stream(device), None
    for step in steps:
        with torch.cuda.stream(stream):
            flat = {dtype: rows.pin_memory().to(device, non_blocking=True) for dtype, rows in step.flat.items()}
        copied = torch.cuda.Event()
        copied.record(stream)
        if ready is not None:
            yield _after(*ready)
        ready = JoinedBatches(step.pieces, flat), copied
    if ready is not None:
        yield _after(*ready)


def _after(step: JoinedBatches, copied: torch.cuda.Event) -> JoinedBatches:
    """A step that the GPU reads once its copy is there, and whose memory is kept until it has read it."""
    current = torch.cuda.current_stream()
    current.wait_event(copied)
    for rows in step.flat.values():
        rows.record_stream(current)
    return step


class _BatchDataset(Dataset[Sequence[Batch]]):
    """Batches by number, for the worker processes of a DataLoader."""

    def __init__(self, source: BatchSource, ranks: Ranks) -> None:
        self._source, self._here = source, ranks

    def __getitem__(self, number: int) -> Sequence[Batch]:
        return self._source.micro_batches(number, self._here.rank, self._here.size)


@contextmanager
def _signals_left_to_the_parent() -> Iterator[None]:
    """Processes started in the block never see SIGTERM and SIGINT; this one sees them after the block.

    Signals often go to all processes of a job; a worker that ended would keep the parent from its last step.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _as_is(batches: Sequence[Batch]) -> Sequence[Batch]:
    return batches


# --------------------------------------------------------------------------------------------------------------------
# The steps of a run: one update after the other, and what is due after each.
#
# What one process decides, that a signal came, that time is up, reaches all of them with the sums of the next
# update.


@dataclass(frozen=True)
class _Launched:
    """An update that is under way."""

    figures: LateFigures
    flops: float
    rate: float


@dataclass
class Training:
    """A run of the loop; `complete` trains until the plan's steps, tokens or minutes are used up.

    It goes on from the newest checkpoint where there is one. A run that has ended goes on when the plan has come to
    allow more tokens or minutes.
    """

    model: nn.Module
    """On `device` already; trained in place, and left in evaluation mode."""
    optimizer: Optimizer
    """Over the model's parameters."""
    learning_rate: Callable[[int, float], float]
    """The rate of update number n, counted from 0, where a share of the plan's tokens or minutes is used up."""
    source: BatchSource
    objective: Objective
    plan: TrainingPlan
    run: RunFolder
    """Where to write; the caller holds its lock."""
    _: KW_ONLY
    device: torch.device
    identity: dict[str, str]
    """Fingerprints (recipe, corpus, …) that must be equal when a run is resumed."""
    save_model: Callable[[Path], None]
    """Writes the model into a directory, for others to open; called for each checkpoint, on the first rank."""
    gather: Callable[[], None] | None = None
    """Brings up to date what `evaluate` and `save_model` see of a model that is trained in another form; called before
    them, on every rank."""
    evaluate: Callable[[], dict[str, float]] | None = None
    """Held-out figures of the model as it stands; called on the first rank. A signal ends it: what it has found so far
    is dropped, and the run that goes on evaluates first."""
    before_step: Callable[[int], Mapping[str, float]] | None = None
    """Sets what update number n changes about the model, on every rank, and says what it was: a line of the journal."""
    meter: Meter | None = None
    loggers: Sequence[Logger] = ()
    """Where else the numbers go, beside journal and TensorBoard."""
    description: str = "Training"
    """Shown beside the progress bar."""
    called: nn.Module | None = None
    """What the objective calls; None: the model itself. Its parameters are the model's."""
    compute_workers: int = 1
    """Threads that compute micro-batches at the same time (see `training_workers`); the source cuts a step into as
    many."""

    ranks: Ranks = field(default_factory=world, init=False)
    parallel: nn.Module = field(init=False)
    """The model as all processes train it together."""
    state: TrainingState = field(init=False)
    curves: Curves = field(init=False)
    bar: Bar = field(init=False)
    request: StopRequest = field(init=False)
    evaluation: dict[str, float] = field(default_factory=dict, init=False)
    ended_by: Limit | None = field(default=None, init=False)
    saved_at: float = field(init=False)
    waiting: "_Launched | None" = field(default=None, init=False)
    """The last update, where its figures are read late and have not been read."""
    most_tokens: int = field(default=0, init=False)
    """Of an update so far."""
    clock: float = field(init=False)
    """When the figures before were read, or what was due after them was done."""
    paused_until: float = field(default=0.0, init=False)

    def complete(self) -> TrainingResult:
        """Take all updates that are left.

        Raises:
            Diverged: an update would do harm and the plan says stop, or it happened too often; the newest checkpoint is
                good.
            Stopped: SIGTERM or SIGINT came; a checkpoint of the last step was saved.
            DamagedData, InvalidConfiguration: the newest checkpoint is damaged, or belongs to another run.
        """
        run, plan, first = self.run, self.plan, self.ranks.is_first
        newest = run.newest_checkpoint()
        self.state = TrainingState(identity=self.identity)
        if newest is not None:
            self.state = read_training_state(newest[1], self.model, self.optimizer, self.identity, step=newest[0])
            if first:  # a run that died right after a save has not let the older ones go
                run.keep_newest(plan.keep_checkpoints)
        now = circumstances(self.ranks, self.device, self.model, plan.precision, self.compute_workers)
        changes = report_environment_changes(self.state.circumstances, now, self.ranks)
        self.state.circumstances = now
        self.curves = Curves(run, self.state.step, active=first, more=self.loggers)
        if newest is None or changes:
            self.curves.write("circumstances", self.state.step, now=now, changes=changes)
        bar = progress(self.description, plan.likely_steps(self.state), "steps", self.state.step, quiet=not first)
        try:
            with stop_signals() as self.request, bar as self.bar:
                self.parallel = replicate(self.called or self.model, self.ranks, self.device)
                self.saved_at, self.clock = time.monotonic(), time.perf_counter()
                return self._take_updates()
        finally:
            self.curves.close()

    def _take_updates(self) -> TrainingResult:
        plan = self.plan
        self.state.seconds_of_first = self.state.seconds  # a checkpoint holds the first rank's
        self.ended_by = plan.reached(self.state)
        if self._owes_evaluation() and not self._evaluated():
            raise Stopped(self.run.path, self.request.number)
        if plan.on_divergence == "rollback" and self._on_any_rank(self.ranks.is_first and not self.run.checkpoints()):
            self._save()  # there must be something to go back to
        self.model.train()
        while self.ended_by is None:
            ahead = self.state.incidents.batches_passed_over
            numbers = range(self.state.step + ahead, plan.total_steps + ahead)
            for batches in load_batches(self.source, self.ranks, numbers, plan.workers, self.device):
                if not self._step(batches):
                    break
        self.model.eval()
        return self._result()

    def _step(self, batches: Sequence[Batch]) -> bool:
        """Take an update and do what is due after it; whether the next batch in line is wanted."""
        plan, state, number = self.plan, self.state, self.state.step + (self.waiting is not None)
        if self.before_step is not None and (changed := self.before_step(number)):
            self.curves.write("change", number, **changed)
        started = time.perf_counter()
        seed_torch("dropout", plan.seed, number, self.ranks.rank)
        save_due = time.monotonic() - self.saved_at > plan.checkpoint_minutes * 60
        rate = self.learning_rate(number, plan.budget_used(state))
        flags = (
            self.request.number is not None,
            self.ranks.is_first and save_due,
            state.seconds if self.ranks.is_first else 0.0,
        )
        settings = {
            "learning_rate": rate,
            "clip_norm": plan.clip_norm,
            "precision": plan.precision,
            "device": self.device,
            "ranks": self.ranks,
            "flags": flags,
            "workers": self.compute_workers,
        }
        taken = (self.parallel, self.optimizer, batches, self.objective)
        flops = 0.0 if self.meter is None else sum(map(self.meter.flops, batches))
        if not plan.reads_late(self.device):
            figures = update(*taken, **settings, judge=Guard(state.incidents, plan.spike_deviations))
            return self._taken(figures, time.perf_counter() - started, flops, rate)
        before, self.waiting = self.waiting, _Launched(update_without_waiting(*taken, **settings), flops, rate)
        going = before is None or self._read(before)
        if going and self._reads_at_once(number + 1):
            going = self._read_waiting()
        return going

    def _reads_at_once(self, step: int) -> bool:
        """Whether something is due after so many updates, or may be the end."""
        plan = self.plan
        every = (plan.log_every, plan.evaluate_every, plan.checkpoint_every)
        near_end = plan.max_tokens is not None and (
            not self.most_tokens or self.state.tokens + 3 * self.most_tokens >= plan.max_tokens
        )
        return step == plan.total_steps or near_end or any(n is not None and step % n == 0 for n in every)

    def _read_waiting(self, stop: bool = False, save_now: bool = False) -> bool:
        waiting, self.waiting = self.waiting, None
        assert waiting is not None
        return self._read(waiting, stop, save_now)

    def _read(self, launched: "_Launched", stop: bool = False, save_now: bool = False) -> bool:
        """Wait for an update and do what is due after it; whether the next batch in line is wanted."""
        figures = launched.figures.read()
        self.most_tokens = max(self.most_tokens, figures.tokens)
        seconds, self.clock = time.perf_counter() - self.clock, time.perf_counter()
        going = self._taken(figures, seconds, launched.flops, launched.rate, stop, save_now)
        self.clock = max(self.clock, self.paused_until)
        return going

    def _taken(
        self, figures: UpdateFigures, seconds: float, flops: float, rate: float, stop: bool = False, save: bool = False
    ) -> bool:
        """Do what is due after an update; whether the next batch in line is wanted.

        Args:
            stop, save: whether the update before has found that the run is to stop, or to save.
        """
        plan, state = self.plan, self.state
        stop, save_now = stop or figures.flags[0] > 0, save or figures.flags[1] > 0
        state.seconds_of_first = figures.flags[2]
        if figures.alarm is not None and plan.on_divergence != "rollback":
            self._leave_out(figures.alarm)
        state.add(figures, seconds, flops)
        self.bar.advance()
        if figures.alarm is not None and plan.on_divergence == "rollback":
            return self._rolled_back(figures.alarm, stop)
        self.ended_by = plan.reached(state)
        ended = self.ended_by is not None
        if self.waiting is not None and (stop or save_now or ended):
            return self._read_waiting(stop, save_now)
        if self._due(plan.log_every) or ended:
            self._log_updates(rate)
        if self._due(plan.evaluate_every) or ended:
            stop = stop or not self._evaluated()
        if self._due(plan.checkpoint_every) or save_now or stop or ended:
            damage = self._damage()
            if damage is not None and plan.on_divergence == "rollback":
                return self._rolled_back(damage, stop)
            if damage is not None:
                raise diverged(damage, "it was not saved")
            self._save()
        if stop:
            raise Stopped(self.run.path, self.request.number)
        self.paused_until = time.perf_counter()
        return not ended

    def _rolled_back(self, alarm: Alarm, stop: bool) -> bool:
        """Take weights, moments and step from the newest checkpoint; False: the batches in line are not wanted."""
        before, newest = self.state, self.run.newest_checkpoint()
        assert newest is not None, "one is saved before the first update"
        rollbacks = before.incidents.with_rollback(before.step, newest[0], alarm, self.plan.max_rollbacks)
        self.optimizer.state.clear()
        self.state = read_training_state(newest[1], self.model, self.optimizer, before.identity, newest[0])
        self.state.circumstances, self.state.seconds = before.circumstances, before.seconds
        self.state.seconds_of_first = before.seconds_of_first
        self.state.incidents.rollbacks = rollbacks
        step, told = self.state.step, {"why": str(alarm), "to_step": self.state.step, "rollbacks": len(rollbacks)}
        self.curves.write("rollback", before.step, **told)
        self.curves.rewind(step)
        self.bar.advance(step - before.step)
        self._say(f"{alarm} in step {before.step:,}: back to step {step:,}, the data since then are passed over")
        if stop:
            raise Stopped(self.run.path, self.request.number)
        return False

    def _leave_out(self, alarm: Alarm) -> None:
        """Count the update as one that is not taken, where that is allowed."""
        if self.plan.on_divergence == "stop":
            raise diverged(alarm)
        state, step = self.state, self.state.step + 1
        state.incidents.skip(state.step, alarm)
        skipped = len(state.incidents.skipped)
        self.curves.write("skip", step, why=str(alarm), skipped=skipped)
        self._say(f"{alarm} in step {step:,}: its update is left out, as are {skipped:,} by now")

    def _log_updates(self, rate: float) -> None:
        """A line on the updates since the last one; then a new window begins."""
        state, window = self.state, self.state.window
        if not window.steps:  # all were left out
            return
        self.bar.note(window.note())
        self.bar.expect(self.plan.likely_steps(state))
        statistics = self.optimizer.statistics() if isinstance(self.optimizer, TellsStatistics) else {}
        share = {} if self.meter is None else {"matmul_share": window.flops / window.seconds / self.meter.matmul_rate()}
        self.curves.write(
            "train",
            state.step,
            **window.line(),
            **statistics,
            **share,
            peak_memory_bytes=peak_memory_bytes(self.device),
            learning_rate=rate,
            tokens=state.tokens,
            seconds=state.seconds,
        )
        state.window = Window()

    def _say(self, what: str) -> None:
        if self.ranks.is_first:
            print(f"albert: note: {what}", file=sys.stderr)

    def _evaluated(self) -> bool:
        """Evaluate the model as it stands; False: a signal came, to whichever rank, and nothing is told."""
        if self.gather is not None:
            self.gather()
        given_up = False
        if self.evaluate is not None and self.ranks.is_first:
            self.model.eval()
            with self.request.giving_up() as attempt:
                self.evaluation = self.evaluate()
            self.model.train()
            given_up = attempt.given_up
            if not given_up:
                times = {"tokens": self.state.tokens, "seconds": self.state.seconds}
                self.curves.write("evaluation", self.state.step, **self.evaluation, **times)
        return not self._on_any_rank(given_up)

    def _owes_evaluation(self) -> bool:
        """Whether the evaluation of the step that the run goes on from was given up for a signal."""
        due = self.state.step > 0 and (self._due(self.plan.evaluate_every) or self.ended_by is not None)
        owed = due and self.ranks.is_first and self.evaluate is not None
        return self._on_any_rank(owed and not self._is_told("evaluation"))

    def _is_told(self, event: str) -> bool:
        """Whether the journal has this event of the step that has been reached."""
        records = read_journal(self.run.journal_path)
        return any(record["event"] == event and record.get("step") == self.state.step for record in records)

    def _damage(self) -> Alarm | None:
        """What is not finite in the weights or moments, on any rank."""
        alarm = non_finite_state(self.model, self.optimizer)
        if not self._on_any_rank(alarm is not None):
            return None
        return alarm or Alarm("the state", "of another process holds numbers that are not finite")

    def _save(self) -> None:
        """Save a checkpoint of this step."""
        if self.gather is not None:
            self.gather()
        tensors = training_tensors(self.model, self.optimizer, self.ranks)

        def write(directory: Path) -> None:
            self.save_model(directory)
            write_training_state(directory, tensors, self.state)

        self.curves.sync()  # a checkpoint never knows of steps that the journal lost
        if self.ranks.is_first:
            self.run.save_checkpoint(self.state.step, write, self.plan.keep_checkpoints)
        wait_for_all(self.ranks)
        self.saved_at = time.monotonic()

    def _result(self) -> TrainingResult:
        """What there is to tell at the end, told in the journal once."""
        assert self.ended_by is not None
        state, incidents = self.state, self.state.incidents
        result = TrainingResult(
            steps=state.step,
            tokens=state.tokens,
            seconds=state.seconds,
            evaluation=self.evaluation,
            ended_by=self.ended_by,
            total_steps=self.plan.total_steps,
            skipped=len(incidents.skipped),
            rollbacks=len(incidents.rollbacks),
        )
        if self.ranks.is_first and not self._is_told("end"):
            told = {"why": result.ending, "tokens": result.tokens, "seconds": result.seconds}
            self.curves.write("end", result.steps, **told, skipped=result.skipped, rollbacks=result.rollbacks)
        return result

    def _due(self, every: int | None) -> bool:
        return every is not None and self.state.step % every == 0

    def _on_any_rank(self, flag: bool) -> bool:
        """Whether the flag is up anywhere; all ranks must ask."""
        return float(sum_over_ranks(torch.tensor(float(flag), device=self.device), self.ranks)) > 0
