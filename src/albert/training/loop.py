"""The training loop: `train` takes the updates of a run, independent of task and data format.

The batch of each step is a pure function of the step's number and of the batches skipped by rollbacks, so a run resumed
from its newest checkpoint continues as if it had never stopped."""

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from albert.runtime.devices import seed_torch
from albert.runtime.distributed import replicate, sum_over_ranks, wait_for_all
from albert.runtime.environment import Ranks, world
from albert.runtime.json_files import read_journal
from albert.runtime.progress import Bar, progress
from albert.training.loading import load_batches
from albert.training.logging import Limit, MetricLogger, TrainingPlan, TrainingResult, peak_memory_bytes
from albert.training.run_folder import RunFolder, Stopped, StopRequest, stop_signals
from albert.training.same_run import Run
from albert.training.state import (
    MetricSums,
    TrainingState,
    read_training_state,
    report_environment_changes,
    training_environment,
    training_tensors,
    write_training_state,
)
from albert.training.task import TrainingTask
from albert.training.update import (
    Batch,
    NonFinite,
    PendingMetrics,
    UpdateMetrics,
    diverged,
    non_finite_state,
    update,
    update_without_waiting,
)


def train(task: TrainingTask, plan: TrainingPlan, run: Run) -> TrainingResult:
    """Take all remaining updates of a run, until the plan's steps, tokens or minutes are used up.

    It resumes from the newest checkpoint if there is one. A finished run continues if the plan now allows more. The
    caller holds the lock of the run's folder.

    Raises:
        Diverged: training diverged and the plan says stop, or it diverged too often; the newest checkpoint is good.
        Stopped: a signal was received (see `STOPPING_SIGNALS`); a checkpoint of the last step was saved.
        DamagedData, InvalidConfiguration: the newest checkpoint is damaged, or belongs to another run.
    """
    folder = run.folder
    ranks = world()
    newest = folder.newest_checkpoint()
    state = TrainingState(identity=run.identity)
    if newest is not None:
        state = read_training_state(newest[1], task.module, task.optimizer, run.identity, step=newest[0])
        if ranks.is_first:  # a run killed right after a save still has the older ones
            folder.keep_newest(plan.keep_checkpoints)
    environment = training_environment(ranks, task.device, task.module, plan.precision, task.workers)
    changes = report_environment_changes(state.environment, environment, ranks)
    state.environment = environment
    logger = MetricLogger(folder, state.step, active=ranks.is_first, log=task.log, settings=run.record)
    if newest is None or changes:
        logger.write("environment", state.step, now=environment, changes=changes)
    if task.self_checks:
        logger.write("self_check", state.step, checks=[asdict(check) for check in task.self_checks])
    shown = progress(task.description, plan.likely_steps(state), "steps", state.step, quiet=not ranks.is_first)
    try:
        with stop_signals() as request, shown as bar:
            parallel = replicate(task.called or task.module, ranks, task.device)
            loop = Trainer(task, plan, folder, ranks, parallel, state, logger, bar, request, saved_at=time.monotonic())
            return loop.take_updates()
    finally:
        logger.close()


def _is_recorded(folder: RunFolder, event: str, step: int) -> bool:
    """Return whether the journal has this event for this step."""
    records = read_journal(folder.journal_path)
    return any(record["event"] == event and record.get("step") == step for record in records)


# --------------------------------------------------------------------------------------------------------------------
# The steps of a run: an update, then logging, evaluation and checkpoints where they are due.
#
# Decisions of one rank (a signal, the end of the time budget) reach all ranks with the sums of the next update.


@dataclass
class Trainer:
    """The updates of one process of a run."""

    task: TrainingTask
    plan: TrainingPlan
    folder: RunFolder
    ranks: Ranks
    parallel: nn.Module
    """The called module, wrapped for data parallelism."""
    state: TrainingState
    logger: MetricLogger
    bar: Bar
    request: StopRequest
    saved_at: float
    evaluation: dict[str, float] = field(default_factory=dict)
    ended_by: Limit | None = None
    launched: list[tuple[PendingMetrics | UpdateMetrics, float, float]] = field(default_factory=list)
    """Metrics, FLOPs and learning rate of the updates that are not finished; at most two."""
    most_tokens: int = 0
    """Largest number of tokens of an update so far."""
    clock: float = 0.0
    """Time at which the previous metrics were read, or the update began if there were none to read."""
    stop: bool = False
    """Whether a signal was received on any rank."""
    save_now: bool = False

    def take_updates(self) -> TrainingResult:
        plan = self.plan
        self.state.seconds_of_first = self.state.seconds  # a checkpoint holds the first rank's
        self.ended_by = plan.reached(self.state)
        # The evaluation of the step that is resumed may have been interrupted by a signal.
        is_due = self.state.step > 0 and (self._due(plan.evaluate_every) or self.ended_by is not None)
        is_owed = is_due and self.ranks.is_first and self.task.evaluates
        is_missing = self._on_any_rank(is_owed and not _is_recorded(self.folder, "evaluation", self.state.step))
        if is_missing and not self._evaluate():
            raise Stopped(self.folder.path, self.request.number)
        if self.ended_by is None and self.state.step > 0 and self._due(plan.evaluate_every) and self._is_enough():
            self.ended_by = "patience"
        if plan.on_divergence == "rollback" and self._on_any_rank(
            self.ranks.is_first and not self.folder.checkpoints()
        ):
            self._save()  # a checkpoint to roll back to
        self.task.module.train()
        while self.ended_by is None:
            offset = self.state.divergences.skipped_batches
            numbers = range(self.state.step + offset, plan.total_steps + offset)
            for batches in load_batches(self.task.source, self.ranks, numbers, plan.workers, self.task.device):
                if not self._step(batches):
                    break
        self.task.module.eval()
        return self._result()

    def _step(self, batches: Sequence[Batch]) -> bool:
        """Take an update, then log, evaluate and save where due; returns whether to continue with the next batch."""
        plan = self.plan
        state = self.state
        number = self.state.step + len(self.launched)
        changed = self.task.before_step(number)
        if changed:
            self.logger.write("change", number, **changed)
        if not self.launched:
            self.clock = time.perf_counter()
        seed_torch("dropout", plan.seed, number, self.ranks.rank)
        save_due = time.monotonic() - self.saved_at > plan.checkpoint_minutes * 60
        rate = self.task.learning_rate(number, plan.budget_used(state))
        first = self.ranks.is_first
        flags = (self.request.number is not None, first and save_due, state.seconds if first else 0.0)
        settings = {
            "learning_rate": rate,
            "clip_norm": plan.clip_norm,
            "precision": plan.precision,
            "device": self.task.device,
            "ranks": self.ranks,
            "flags": flags,
            "workers": self.task.workers,
        }
        args = (self.parallel, self.task.optimizer, batches, self.task.loss)
        flops = sum(map(self.task.flops, batches))
        delayed = plan.delays_metrics(self.task.device)
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
        """Return whether metrics of this step are needed at once: something is due after it, or it may be the last."""
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
        if metrics.non_finite is not None and plan.on_divergence != "rollback":
            self._skip_update(metrics.non_finite)
        state.add(metrics, seconds, flops)
        self.bar.advance()
        if metrics.non_finite is not None and plan.on_divergence == "rollback":
            return self._roll_back(metrics.non_finite)
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
            raise Stopped(self.folder.path, self.request.number)
        return not ended

    def _roll_back(self, non_finite: NonFinite) -> bool:
        """Restore weights, moments and step from the newest checkpoint; returns False, to reload batches."""
        before = self.state
        newest = self.folder.newest_checkpoint()
        assert newest is not None, "one is saved before the first update"
        rollbacks = before.divergences.with_rollback(before.step, newest[0], non_finite, self.plan.max_rollbacks)
        self.task.optimizer.state.clear()
        self.state = read_training_state(newest[1], self.task.module, self.task.optimizer, before.identity, newest[0])
        self.state.environment = before.environment
        self.state.seconds = before.seconds
        self.state.seconds_of_first = before.seconds_of_first
        self.state.divergences.rollbacks = rollbacks
        step = self.state.step
        self.logger.write("rollback", before.step, why=str(non_finite), to_step=step, rollbacks=len(rollbacks))
        self.logger.rewind(step)
        self.bar.advance(step - before.step)
        self._print_note(
            f"{non_finite} in step {before.step:,}: back to step {step:,}, skipping the data seen since then"
        )
        if self.stop:
            raise Stopped(self.folder.path, self.request.number)
        return False

    def _skip_update(self, non_finite: NonFinite) -> None:
        """Record a skipped update, if the plan allows skipping."""
        if self.plan.on_divergence == "stop":
            raise diverged(non_finite)
        state = self.state
        step = self.state.step + 1
        state.divergences.skip(state.step, non_finite)
        skipped = len(state.divergences.skipped)
        self.logger.write("skip", step, why=str(non_finite), skipped=skipped)
        self._print_note(f"{non_finite} in step {step:,}: update skipped ({skipped:,} so far)")

    def _log_updates(self, rate: float) -> None:
        """Log the means of the updates since the last line, and start a new window."""
        state = self.state
        window = self.state.window
        if not window.steps:  # all were skipped
            return
        self.bar.note(window.note())
        self.bar.expect(self.plan.likely_steps(state))
        statistics = getattr(self.task.optimizer, "statistics", dict)()
        rate_of_products = self.task.matmul_rate()
        share = {} if rate_of_products is None else {"matmul_share": window.flops / window.seconds / rate_of_products}
        own = {"peak_memory_bytes": peak_memory_bytes(self.task.device), "learning_rate": rate}
        counted = {"tokens": state.tokens, "seconds": state.seconds}
        self.logger.write("train", state.step, **window.line(), **statistics, **share, **own, **counted)
        state.window = MetricSums()

    def _print_note(self, note: str) -> None:
        if self.ranks.is_first:
            print(f"albert: note: {note}", file=sys.stderr)

    def _evaluate(self) -> bool:
        """Evaluate the present model; returns False, without a record, if a signal to any rank interrupted it."""
        self.task.gather()
        interrupted = False
        if self.task.evaluates and self.ranks.is_first:
            self.task.module.eval()
            with self.request.interruptible() as attempt:
                self.evaluation = self.task.evaluate()
            self.task.module.train()
            interrupted = attempt.interrupted
            if not interrupted:
                times = {"tokens": self.state.tokens, "seconds": self.state.seconds}
                self.logger.write("evaluation", self.state.step, **self.evaluation, **times)
        return not self._on_any_rank(interrupted)

    def _is_enough(self) -> bool:
        """Return whether the evaluations so far end the run; the same on every rank."""
        return self._on_any_rank(self.ranks.is_first and self.task.is_enough())

    def _damage(self) -> NonFinite | None:
        """The weight or moment on any rank that is not finite, or None."""
        non_finite = non_finite_state(self.task.module, self.task.optimizer)
        if not self._on_any_rank(non_finite is not None):
            return None
        return non_finite or NonFinite("the state", "of another process holds numbers that are not finite")

    def _save(self) -> None:
        """Save a checkpoint of this step."""
        self.task.gather()
        tensors = training_tensors(self.task.module, self.task.optimizer, self.ranks)

        def write(directory: Path) -> None:
            self.task.save(directory)
            write_training_state(directory, tensors, self.state)

        self.logger.sync()  # first, so that a checkpoint never has steps that the journal lost
        if self.ranks.is_first:
            self.folder.save_checkpoint(self.state.step, write, self.plan.keep_checkpoints)
        wait_for_all(self.ranks)
        self.saved_at = time.monotonic()
        self.save_now = False

    def _result(self) -> TrainingResult:
        """The result, recorded in the journal once."""
        assert self.ended_by is not None
        state = self.state
        divergences = self.state.divergences
        figures: dict[str, Any] = {
            "tokens": state.tokens,
            "seconds": state.seconds,
            "skipped": len(divergences.skipped),
            "rollbacks": len(divergences.rollbacks),
        }
        result = TrainingResult(
            steps=state.step,
            evaluation=self.evaluation,
            ended_by=self.ended_by,
            total_steps=self.plan.total_steps,
            patience=self.task.patience,
            **figures,
        )
        if self.ranks.is_first and not _is_recorded(self.folder, "end", self.state.step):
            self.logger.write("end", result.steps, why=result.ending, **figures)
        return result

    def _due(self, every: int | None) -> bool:
        return every is not None and self.state.step % every == 0

    def _on_any_rank(self, flag: bool) -> bool:
        """Return whether the flag is set on any rank; a collective call."""
        return float(sum_over_ranks(torch.tensor(float(flag), device=self.task.device), self.ranks)) > 0
