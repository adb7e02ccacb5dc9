"""One loop for everything that learns. It knows no task and no data format.

The batch of each step is a pure function of the step's number and of the batches passed over so far, so a run goes on
from its newest checkpoint as if it had never stopped.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from albert.runtime.distributed import replicate
from albert.runtime.progress import progress
from albert.runtime.world import world
from albert.training.circumstances import circumstances, note_changes
from albert.training.curves import Curves, Logger
from albert.training.machine_figures import Meter
from albert.training.objective import BatchSource, Objective
from albert.training.plan import TrainingPlan, TrainingResult
from albert.training.reports import Reports
from albert.training.run_folder import RunFolder
from albert.training.steps import Training
from albert.training.stop_signals import stop_signals
from albert.training.training_state import TrainingState, read_training_state


def train(
    model: nn.Module,
    optimizer: Optimizer,
    learning_rate: Callable[[int, float], float],
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
    meter: Meter | None = None,
    loggers: Sequence[Logger] = (),
    description: str = "Training",
) -> TrainingResult:
    """Train until the plan's steps, tokens or minutes are used up, from the newest checkpoint where there is one.

    A run that has ended goes on when the plan has come to allow more tokens or minutes.

    Args:
        model: on `device` already; trained in place, and left in evaluation mode.
        optimizer: over the model's parameters.
        learning_rate: the rate of update number n, counted from 0, where a share of the plan's tokens or minutes is
            used up.
        source: batches by number.
        objective: loss sums of a micro-batch.
        plan: how long, how often.
        run: where to write; the caller holds its lock.
        device: where to compute.
        identity: fingerprints (recipe, corpus, …) that must be equal when a run is resumed.
        save_model: writes the model into a directory, for others to open; called for each checkpoint, on the first
            rank.
        gather: brings up to date what `evaluate` and `save_model` see of a model that is trained in another form;
            called before them, on every rank.
        evaluate: held-out figures of the model as it stands; called on the first rank. A signal ends it: what it has
            found so far is dropped, and the run that goes on evaluates first.
        before_step: sets what update number n changes about the model, on every rank, and says what it was: a line
            of the journal.
        meter: tells how much of the machine is used.
        loggers: where else the numbers go, beside journal and TensorBoard.
        description: shown beside the progress bar.

    Raises:
        Diverged: an update would do harm and the plan says stop, or it happened too often; the newest checkpoint is
            good.
        Stopped: SIGTERM or SIGINT came; a checkpoint of the last step was saved.
        DamagedData, InvalidConfiguration: the newest checkpoint is damaged, or belongs to another run.
    """
    here = world()
    newest = run.newest_checkpoint()
    state = TrainingState(identity=identity)
    if newest is not None:
        state = read_training_state(newest[1], model, optimizer, identity, step=newest[0])
        if here.is_first:  # a run that died right after a save has not let the older ones go
            run.keep_newest(plan.keep_checkpoints)
    now = circumstances(here, device, model, plan.precision)
    changes = note_changes(state.circumstances, now, here)
    state.circumstances = now
    curves = Curves(run, state.step, active=here.is_first, more=loggers)
    if newest is None or changes:
        curves.write("circumstances", state.step, now=now, changes=changes)
    bar = progress(description, plan.likely_steps(state), "steps", state.step, quiet=not here.is_first)
    try:
        with stop_signals() as request, bar as shown:
            reports = Reports(
                run=run, plan=plan, curves=curves, bar=shown, meter=meter, device=device, active=here.is_first
            )
            return Training(
                model=model,
                parallel=replicate(model, here, device),
                optimizer=optimizer,
                learning_rate=learning_rate,
                source=source,
                objective=objective,
                plan=plan,
                run=run,
                device=device,
                save_model=save_model,
                gather=gather,
                evaluate=evaluate,
                before_step=before_step,
                meter=meter,
                here=here,
                state=state,
                reports=reports,
                request=request,
            ).complete()
    finally:
        curves.close()
