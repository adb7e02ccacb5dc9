"""What a run tells on its way: lines of the journal with their curves, the note beside the bar, words to the user."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch.optim import Optimizer

from albert.runtime.journal import read_journal
from albert.runtime.progress import Bar
from albert.training.curves import Curves
from albert.training.machine_figures import Meter, machine_figures
from albert.training.objective import TellsStatistics
from albert.training.plan import TrainingPlan, TrainingResult
from albert.training.run_folder import RunFolder
from albert.training.training_state import TrainingState
from albert.training.update import Alarm
from albert.training.window import Window


@dataclass(frozen=True, kw_only=True)
class Reports:
    """Tells what happens, each event in its own words; silent on ranks other than the first."""

    run: RunFolder
    plan: TrainingPlan
    curves: Curves
    bar: Bar
    meter: Meter | None
    device: torch.device
    active: bool

    def updates(self, state: TrainingState, optimizer: Optimizer, learning_rate: float) -> None:
        """The updates since the last line; then a new window begins."""
        if not state.window.steps:  # all were left out
            return
        self.bar.note(state.window.note())
        self.bar.expect(self.plan.likely_steps(state))
        self.curves.write(
            "train",
            state.step,
            **state.window.line(),
            **(optimizer.statistics() if isinstance(optimizer, TellsStatistics) else {}),
            **machine_figures(state.window.flops, state.window.seconds, self.meter, self.device),
            learning_rate=learning_rate,
            tokens=state.tokens,
            seconds=state.seconds,
        )
        state.window = Window()

    def evaluation(self, state: TrainingState, found: Mapping[str, float]) -> None:
        """Held-out figures."""
        self.curves.write("evaluation", state.step, **found, tokens=state.tokens, seconds=state.seconds)

    def left_out(self, state: TrainingState, alarm: Alarm) -> None:
        """The update after those of `state` is not taken."""
        skipped = len(state.incidents.skipped)
        self.curves.write("skip", state.step + 1, why=str(alarm), skipped=skipped)
        self._say(f"{alarm} in step {state.step + 1:,}: its update is left out, as are {skipped:,} by now")

    def rolled_back(self, before: TrainingState, now: TrainingState, alarm: Alarm) -> None:
        """The run went back to a checkpoint; what was told of later steps is told again."""
        rollbacks = len(now.incidents.rollbacks)
        self.curves.write("rollback", before.step, why=str(alarm), to_step=now.step, rollbacks=rollbacks)
        self.curves.rewind(now.step)
        self.bar.advance(now.step - before.step)
        self._say(f"{alarm} in step {before.step:,}: back to step {now.step:,}, the data since then are passed over")

    def end(self, result: TrainingResult) -> None:
        """What ended the run; told once."""
        if self.active and not self.told("end", result.steps):
            told = {"why": result.ending, "tokens": result.tokens, "seconds": result.seconds}
            self.curves.write("end", result.steps, **told, skipped=result.skipped, rollbacks=result.rollbacks)

    def told(self, event: str, step: int) -> bool:
        """Whether the journal has this event of this step."""
        records = read_journal(self.run.journal_path)
        return any(record["event"] == event and record.get("step") == step for record in records)

    def _say(self, what: str) -> None:
        if self.active:
            print(f"albert: note: {what}", file=sys.stderr)
