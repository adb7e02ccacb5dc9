"""The steps of a run: one update after the other, and what is due after each.

What one process decides, that a signal came, that time is up, reaches all of them with the sums of the next update.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from albert.runtime.devices import seed_torch
from albert.runtime.distributed import sum_over_ranks, wait_for_all
from albert.runtime.world import World
from albert.training.batch_loading import load_batches
from albert.training.divergence import Guard, diverged, non_finite_state
from albert.training.machine_figures import Meter
from albert.training.objective import Batch, BatchSource, Objective
from albert.training.plan import Limit, TrainingPlan, TrainingResult
from albert.training.reports import Reports
from albert.training.run_folder import RunFolder
from albert.training.stop_signals import Stopped, StopRequest
from albert.training.training_state import TrainingState, read_training_state, training_tensors, write_training_state
from albert.training.update import Alarm, update


@dataclass(kw_only=True)
class Training:
    """A run under way: what it is made of (see `loop.train`), and how far it has come."""

    model: nn.Module
    parallel: nn.Module
    """The model as all processes train it together."""
    optimizer: Optimizer
    learning_rate: Callable[[int, float], float]
    source: BatchSource
    objective: Objective
    plan: TrainingPlan
    run: RunFolder
    device: torch.device
    save_model: Callable[[Path], None]
    gather: Callable[[], None] | None
    evaluate: Callable[[], dict[str, float]] | None
    before_step: Callable[[int], Mapping[str, float]] | None
    meter: Meter | None
    here: World
    state: TrainingState
    reports: Reports
    request: StopRequest
    evaluation: dict[str, float] = field(default_factory=dict)
    ended_by: Limit | None = None
    saved_at: float = field(default_factory=time.monotonic)

    def complete(self) -> TrainingResult:
        """Take all updates that are left."""
        plan = self.plan
        self.state.seconds_of_first = self.state.seconds  # a checkpoint holds the first rank's
        self.ended_by = plan.reached(self.state)
        if self._owes_evaluation() and not self._evaluated():
            raise Stopped(self.run.path, self.request.number)
        if plan.on_divergence == "rollback" and self._on_any_rank(self.here.is_first and not self.run.checkpoints()):
            self._save()  # there must be something to go back to
        self.model.train()
        while self.ended_by is None:
            ahead = self.state.incidents.batches_passed_over
            numbers = range(self.state.step + ahead, plan.total_steps + ahead)
            for batches in load_batches(self.source, self.here, numbers, plan.workers):
                if not self._step(batches):
                    break
        self.model.eval()
        return self._result()

    def _step(self, batches: Sequence[Batch]) -> bool:
        """Take an update and do what is due after it; whether the next batch in line is wanted."""
        plan, state = self.plan, self.state
        if self.before_step is not None and (changed := self.before_step(state.step)):
            self.reports.curves.write("change", state.step, **changed)
        started = time.perf_counter()
        seed_torch("dropout", plan.seed, state.step, self.here.rank)
        save_due = time.monotonic() - self.saved_at > plan.checkpoint_minutes * 60
        rate = self.learning_rate(state.step, plan.budget_used(state))
        figures = update(
            self.parallel,
            self.optimizer,
            batches,
            self.objective,
            learning_rate=rate,
            clip_norm=plan.clip_norm,
            precision=plan.precision,
            device=self.device,
            here=self.here,
            flags=(
                self.request.number is not None,
                self.here.is_first and save_due,
                state.seconds if self.here.is_first else 0.0,
            ),
            judge=Guard(state.incidents, plan.spike_deviations),
        )
        stop, save_now = (flag > 0 for flag in figures.flags[:2])
        state.seconds_of_first = figures.flags[2]
        seconds = time.perf_counter() - started
        if figures.alarm is not None and plan.on_divergence != "rollback":
            self._leave_out(figures.alarm)
        state.add(figures, seconds, 0.0 if self.meter is None else sum(map(self.meter.flops, batches)))
        self.reports.bar.advance()
        if figures.alarm is not None and plan.on_divergence == "rollback":
            return self._rolled_back(figures.alarm, stop)
        self.ended_by = plan.reached(state)
        ended = self.ended_by is not None
        if self._due(plan.log_every) or ended:
            self.reports.updates(state, self.optimizer, rate)
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
        self.reports.rolled_back(before, self.state, alarm)
        if stop:
            raise Stopped(self.run.path, self.request.number)
        return False

    def _leave_out(self, alarm: Alarm) -> None:
        """Count the update as one that is not taken, where that is allowed."""
        if self.plan.on_divergence == "stop":
            raise diverged(alarm)
        self.state.incidents.skip(self.state.step, alarm)
        self.reports.left_out(self.state, alarm)

    def _evaluated(self) -> bool:
        """Evaluate the model as it stands; False: a signal came, to whichever rank, and nothing is told."""
        if self.gather is not None:
            self.gather()
        given_up = False
        if self.evaluate is not None and self.here.is_first:
            self.model.eval()
            with self.request.giving_up() as attempt:
                self.evaluation = self.evaluate()
            self.model.train()
            given_up = attempt.given_up
            if not given_up:
                self.reports.evaluation(self.state, self.evaluation)
        return not self._on_any_rank(given_up)

    def _owes_evaluation(self) -> bool:
        """Whether the evaluation of the step that the run goes on from was given up for a signal."""
        due = self.state.step > 0 and (self._due(self.plan.evaluate_every) or self.ended_by is not None)
        owed = due and self.here.is_first and self.evaluate is not None
        return self._on_any_rank(owed and not self.reports.told("evaluation", self.state.step))

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
        tensors = training_tensors(self.model, self.optimizer, self.here)

        def write(directory: Path) -> None:
            self.save_model(directory)
            write_training_state(directory, tensors, self.state)

        self.reports.curves.sync()  # a checkpoint never knows of steps that the journal lost
        if self.here.is_first:
            self.run.save_checkpoint(self.state.step, write, self.plan.keep_checkpoints)
        wait_for_all(self.here)
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
        self.reports.end(result)
        return result

    def _due(self, every: int | None) -> bool:
        return every is not None and self.state.step % every == 0

    def _on_any_rank(self, flag: bool) -> bool:
        """Whether the flag is up anywhere; all ranks must ask."""
        return float(sum_over_ranks(torch.tensor(float(flag), device=self.device), self.here)) > 0
