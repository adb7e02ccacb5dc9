"""Interrupts runs at random moments (SIGKILL, SIGTERM, SIGINT, lost ranks); resumed, they must give the same bytes.

A run is interrupted in every phase: at its start, in an update, in a save, while an old checkpoint is removed, in an
evaluation; then it is resumed to its end. Its final weights, state and journal are compared with those of an
undisturbed run. Signals go to the whole process group, as schedulers send them. Most processes are forked from one that
has imported everything; some are new Python processes, which may still be importing.

On a busy machine a kill may come late, so the run pauses itself at the end of the phase to be killed in."""

import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from dev.reliability.material import RECIPE, Material, with_steps
from dev.reliability.report import KILL_IT_ANY_TIME, NEVER_HANGS, SIGNALS_SAVE
from dev.reliability.runs import (
    ForkServer,
    Run,
    final_files,
    find_damage,
    fork_server,
    fresh_process,
    journal_of,
    output_of,
)
from dev.reliability.trials import Tries, trial

from albert.recipes.pretraining import PretrainingRecipe
from albert.training.run_folder import RunFolder

PHASES = ("start", "training", "save", "rotation", "evaluation")
"""Phases to interrupt."""
LONGEST = 30.0
"""Seconds that schedulers wait for a job to end after a signal."""


@trial(KILL_IT_ANY_TIME, "runs killed with SIGKILL and resumed to their end", len(PHASES), 200, 2000)
def random_kills(tries: Tries) -> None:
    """SIGKILL. A run that is killed once in each phase makes at most 16 updates on the way."""
    per_run = min(25, tries.count)
    recipe = with_steps(16 * (-(-per_run // len(PHASES)) + 1))
    interrupt_runs(tries, recipe, (signal.SIGKILL,), per_run, fresh_every=20, kind="killed in")


@trial(SIGNALS_SAVE, "signals to runs that were then resumed to their end", 3, 120, 1200)
def signals(tries: Tries) -> None:
    """SIGTERM and SIGINT in turn. A run makes progress meanwhile and must not end, so it has 30 updates per signal."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in background jobs of a shell, and their children
        signal.signal(signal.SIGINT, signal.default_int_handler)
    per_run = min(10, tries.count)
    recipe = with_steps(30 * per_run, workers=1, checkpoint_every=5)
    interrupt_runs(tries, recipe, (signal.SIGTERM, signal.SIGINT), per_run, fresh_every=6, kind="met in")


def interrupt_runs(
    tries: Tries,
    recipe: PretrainingRecipe,
    numbers: tuple[signal.Signals, ...],
    per_run: int,
    fresh_every: int,
    kind: str,
) -> None:
    """Interrupt each run `per_run` times with the given signals in turn, resume it to its end, and compare.

    One in `fresh_every` interruptions is of a new Python process.
    """
    rng = random.Random(tries.seed)
    material, server = Material(tries.folder / "material"), fork_server()
    words = material.pretrain(tries.folder / "undisturbed", recipe)
    undisturbed = server.run_to_end(words, output_of(words))
    expected = final_files(output_of(words)), journal_of(output_of(words))
    fresh = tries.count >= fresh_every
    to_a_checkpoint = seconds_to_a_checkpoint(material.pretrain(tries.folder / "rehearsal", recipe)) if fresh else 0.0
    runs = 0
    while tries.tried < tries.count:
        if runs == 2 * tries.count:
            raise RuntimeError("runs end before they are interrupted")
        words = material.pretrain(tries.folder / f"run-{runs}", recipe)
        for _ in range(min(per_run, tries.count - tries.tried)):
            turn, number = tries.tried, numbers[tries.tried % len(numbers)]
            if turn % fresh_every == fresh_every - 1:
                result = interrupt_fresh(words, number, rng.uniform(0, to_a_checkpoint))
            else:
                result = interrupt(server, undisturbed, rng, words, PHASES[turn % len(PHASES)], number)
            if result.code == 0:  # the run had ended before the signal
                break
            failures = (*result.failures(number), *find_damage(output_of(words)))
            described = (f"run {runs}, {number.name} in {result.phase}: {failure}" for failure in failures)
            tries.record(described, f"{kind} {result.phase}")
            tries.most("longest seconds to the end", result.seconds, 1)
        tries.failures += [f"run {runs}: {failure}" for failure in check_end(server, words, expected)]
        runs += 1
    tries.details["runs"] = runs


@dataclass(frozen=True)
class Interruption:
    """An interrupted process: its phase, exit code, seconds from the signal to its end, and output."""

    phase: str
    code: int
    seconds: float
    printed: str

    def failures(self, number: int) -> Iterator[str]:
        """Broken promises. A process ended by the signal itself counts as one with exit code 128 + number."""
        shown = 128 - self.code if self.code < 0 else self.code
        if shown != 128 + number:
            yield f"exit code {self.code}, not {128 + number}: {self.printed[-200:]!r}"
        if "Traceback" in self.printed:
            yield f"a traceback: {self.printed[-200:]!r}"
        if self.seconds > LONGEST:
            yield f"it took {self.seconds:.0f} s to end"


def interrupt(
    server: ForkServer, undisturbed: Run, rng: random.Random, words: list[str], phase: str, number: int
) -> Interruption:
    """Start a run and send it a signal at a random moment of a phase, by the duration of the undisturbed one."""
    occurrence = rng.randint(1, 2)
    last = "training 1" if phase == "start" else f"after-{phase} {occurrence}"
    run = server.start(words, pause_at=last if number == signal.SIGKILL else "")
    if phase != "start":
        run.wait_for(phase, occurrence)
    time.sleep(rng.uniform(0, statistics.median(durations(undisturbed, phase))))
    reached, signalled = run.phase, time.monotonic()
    run.signal(number)
    return Interruption(reached, run.finish(), time.monotonic() - signalled, run.printed)


def durations(run: Run, phase: str) -> list[float]:
    """The duration of each occurrence of a phase."""
    started, found = run.started, []
    for moment, what in run.events:
        if what == phase:
            started = moment
        elif what == f"after-{phase}":
            found.append(moment - started)
    return found or [run.events[0][0] - run.started]


def interrupt_fresh(words: list[str], number: int, after: float) -> Interruption:
    """Start a new Python process, and send its process group a signal after some seconds."""
    with fresh_process(words) as process:
        time.sleep(after)
        signalled = time.monotonic()
        if process.poll() is None:
            os.killpg(process.pid, number)
        _, printed = process.communicate()
    return Interruption("a process of its own", process.returncode, time.monotonic() - signalled, printed)


def seconds_to_a_checkpoint(words: list[str]) -> float:
    """Seconds from the start of a new process to its first checkpoint."""
    run, started = RunFolder(output_of(words)), time.monotonic()
    with fresh_process(words) as process:
        while not run.checkpoints() and process.poll() is None:
            time.sleep(0.01)
        seconds = time.monotonic() - started
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return seconds


def check_end(server: ForkServer, words: list[str], expected: tuple[object, object]) -> Iterator[str]:
    """Resume a run to its end; yields differences from the undisturbed one."""
    last, folder = server.start(words), output_of(words)
    if last.finish() != 0:
        yield f"resumed, {last.ending}"
        return
    if final_files(folder) != expected[0]:
        yield "its final bytes differ from the undisturbed run"
    if journal_of(folder) != expected[1]:
        yield "its journal differs from the undisturbed run"
    if left := [entry.name for entry in folder.rglob(".*") if entry.name != ".lock"]:
        yield f"left behind: {', '.join(left)}"


# ---- lost ranks ------------------------------------------------------------------------------------------------------

LOST, DIVERGED = 75, 3
TWO_RANKS = replace(RECIPE, micro_batch_size=2, peer_timeout_minutes=0.15)
STEPS = RECIPE.schedule.total_steps


@dataclass(frozen=True)
class Pair:
    """A command for two ranks, and its expected results."""

    server: ForkServer
    words: list[str]
    rng: random.Random
    expected: dict[str, bytes]  # of two undisturbed ranks
    samples: dict[int, list[str]]  # by step, of a single rank

    def lose(self, how: str, lose: Callable[[Run], object]) -> Iterator[str]:
        """Lose one rank in an update; the other must report it."""
        lost, step = self.rng.randrange(2), self.rng.randint(1, STEPS - 1)
        runs = self.server.start_world([self.words] * 2, {lost: f"training {step}"})
        runs[lost].wait_for("training", step)
        lose(runs[lost])
        if runs[1 - lost].finish() != LOST:
            yield f"rank {lost} {how} in step {step}, the other does not end with {LOST}: {runs[1 - lost].ending}"
        runs[lost].kill()
        yield from self.check_end()

    def check_end(self) -> Iterator[str]:
        """Resume both ranks; yields differences from the undisturbed ones."""
        codes = [run.finish() for run in self.server.start_world([self.words] * 2)]
        if codes != [0, 0]:
            yield f"started again they end with {codes}"
        elif final_files(output_of(self.words)) != self.expected:
            yield "started again they end with other bytes"


def diverging(pair: Pair) -> Iterator[str]:
    """The loss of one rank becomes NaN."""
    lost, batch = pair.rng.randrange(2), pair.rng.randint(2, 2 * STEPS - 2)
    runs = pair.server.start_world([pair.words] * 2, diverge_at={lost: batch})
    codes = [run.finish() for run in runs]
    if codes != [DIVERGED, DIVERGED]:
        yield f"rank {lost} diverged after {batch} micro-batches, they end with {codes}: {runs[1 - lost].ending}"
    yield from pair.check_end()


def worlds(pair: Pair) -> Iterator[str]:
    """One rank, then two, each killed after a save, then one: they must get the samples of a single rank."""
    seen: dict[int, list[str]] = {}
    for size, pause_at in ((1, {0: "after-save 2"}), (2, {0: "after-save 2"}), (1, {})):
        runs = pair.server.start_world([pair.words] * size, pause_at, tell_samples=True)
        if pause_at:
            runs[0].wait_for("after-save", 2)
            for run in runs:
                run.kill()
        elif runs[0].finish() != 0:
            yield f"the last rank: {runs[0].ending}"
        seen |= interleaved(runs)
    wrong = sorted(step for step in pair.samples if seen.get(step) != pair.samples[step])
    if wrong:
        yield f"other samples, or another order, in steps {wrong}"


def interleaved(runs: list[Run]) -> dict[int, list[str]]:
    """The samples of the ranks in turn, by step."""
    steps = set.intersection(*(set(run.samples) for run in runs))
    return {
        step: [digest for turn in zip(*(run.samples[step] for run in runs), strict=True) for digest in turn]
        for step in steps
    }


WAYS: dict[str, Callable[[Pair], Iterator[str]]] = {
    "killed": lambda pair: pair.lose("was killed", Run.kill),
    "stopped": lambda pair: pair.lose("stood still", lambda run: None),
    "diverging": diverging,
    "worlds": worlds,
}
"""Ways to lose a rank, by their names in the report."""


@trial(NEVER_HANGS, "runs of two ranks that lost a rank or were resumed with another number of ranks", 4, 60, 600)
def ranks(tries: Tries) -> None:
    """All ways in turn: no process hangs, the exit code is right, and the same command gives the same bytes."""
    rng = random.Random(tries.seed)
    material, server = Material(tries.folder / "material"), fork_server()
    two, one = tries.folder / "two", tries.folder / "one"
    both = server.start_world([material.pretrain(two, TWO_RANKS)] * 2)
    alone = server.start(material.pretrain(one, TWO_RANKS), tell_samples=True)
    for each in (*both, alone):
        if each.finish() != 0:
            raise RuntimeError(each.printed)
    expected, samples = final_files(two), interleaved([alone])
    for number in range(tries.count):
        way = list(WAYS)[number % len(WAYS)]
        words = material.pretrain(tries.folder / f"run-{number}", TWO_RANKS)
        try:
            found = list(WAYS[way](Pair(server, words, rng, expected, samples)))
        except TimeoutError as error:
            found = [f"a process hangs: {error}"]
        tries.record((f"{way}, try {number}: {what}" for what in found), way)
