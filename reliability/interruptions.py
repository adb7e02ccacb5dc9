"""Runs interrupted at random moments, which end as the run that nobody disturbed: SIGKILL, SIGTERM, SIGINT, lost ranks.

A run is interrupted in every phase of its work: while it starts, in an update, in a save, while an old checkpoint goes,
in an evaluation; then it goes on to its end. Its final weights, moments and journal are compared, byte for byte, with
those of the undisturbed run. A signal goes to the whole process group, worker processes included, as schedulers send
it. Most starts are processes forked from one that has imported everything; some are Python processes of their own, as a
user starts them, which may still be importing.

On a busy machine a kill may come late. The run that it is meant for therefore stands still at the end of the phase: it
can neither end nor get far before it dies.
"""

import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from albert.pretraining.recipe import PretrainingRecipe
from albert.training.run_folder import RunFolder
from reliability.material import RECIPE, Material, with_steps
from reliability.report import KILL_IT_ANY_TIME, NEVER_HANGS, SIGNALS_SAVE
from reliability.runs import ForkServer, Run, damages, final_files, fork_server, fresh_process, journal_of, output_of
from reliability.trials import Tries, trial

PHASES = ("start", "training", "save", "rotation", "evaluation")
"""What an interruption can be meant for."""
LONGEST = 30.0
"""Seconds that the system's schedulers give a job to end."""


@trial(KILL_IT_ANY_TIME, "kills of runs that then went on to their end", len(PHASES), 200, 2000)
def random_kills(tries: Tries) -> None:
    """SIGKILL; 16 updates at most are the way of a run that is killed once in each phase."""
    of_a_run = min(25, tries.count)
    recipe = with_steps(16 * (-(-of_a_run // len(PHASES)) + 1))
    interrupt_runs(tries, recipe, (signal.SIGKILL,), of_a_run, fresh_every=20, told="killed in")


@trial(SIGNALS_SAVE, "signals to runs that then went on to their end", 3, 120, 1200)
def signals(tries: Tries) -> None:
    """SIGTERM and SIGINT in turn. A run comes forward meanwhile and must not end, so it has 30 updates for each."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background jobs, and all that they start
        signal.signal(signal.SIGINT, signal.default_int_handler)
    of_a_run = min(10, tries.count)
    recipe = with_steps(30 * of_a_run, workers=1, checkpoint_every=5)
    interrupt_runs(tries, recipe, (signal.SIGTERM, signal.SIGINT), of_a_run, fresh_every=6, told="met in")


def interrupt_runs(
    tries: Tries,
    recipe: PretrainingRecipe,
    numbers: tuple[signal.Signals, ...],
    of_a_run: int,
    fresh_every: int,
    told: str,
) -> None:
    """Interrupt runs in turn with some signals, each run so many times, let them go on to their end, and compare.

    One in `fresh_every` interruptions meets a Python process of its own.
    """
    draws = random.Random(tries.seed)
    material, server = Material(tries.folder / "material"), fork_server()
    words = material.pretrain(tries.folder / "undisturbed", recipe)
    undisturbed = server.finished(words, output_of(words))
    expected = final_files(output_of(words)), journal_of(output_of(words))
    fresh = tries.count >= fresh_every
    to_a_checkpoint = seconds_to_a_checkpoint(material.pretrain(tries.folder / "rehearsal", recipe)) if fresh else 0.0
    runs = 0
    while tries.tried < tries.count:
        if runs == 2 * tries.count:
            raise RuntimeError("runs end before they are interrupted")
        words = material.pretrain(tries.folder / f"run-{runs}", recipe)
        for _ in range(min(of_a_run, tries.count - tries.tried)):
            turn, number = tries.tried, numbers[tries.tried % len(numbers)]
            if turn % fresh_every == fresh_every - 1:
                met = interrupt_fresh(words, number, draws.uniform(0, to_a_checkpoint))
            else:
                met = interrupt(server, undisturbed, draws, words, PHASES[turn % len(PHASES)], number)
            if met.code == 0:  # it had come to its end, and there is nothing more to interrupt
                break
            wrong = (*met.what_is_wrong(number), *damages(output_of(words)))
            tries.record((f"run {runs}, {number.name} in {met.phase}: {what}" for what in wrong), f"{told} {met.phase}")
            tries.most("longest seconds to the end", met.seconds, 1)
        tries.failures += [f"run {runs}: {what}" for what in ending(server, words, expected)]
        runs += 1
    tries.details["runs"] = runs


@dataclass(frozen=True)
class Interruption:
    """The phase that a process was in, how it ended, how long that took, and what it printed."""

    phase: str
    code: int
    seconds: float
    printed: str

    def what_is_wrong(self, number: int) -> Iterator[str]:
        """What breaks a promise; a process that a signal ended before it could answer has 128 and the number."""
        shown = 128 - self.code if self.code < 0 else self.code
        if shown != 128 + number:
            yield f"exit code {self.code}, not {128 + number}: {self.printed[-200:]!r}"
        if "Traceback" in self.printed:
            yield f"a traceback: {self.printed[-200:]!r}"
        if self.seconds > LONGEST:
            yield f"it took {self.seconds:.0f} s"


def interrupt(
    server: ForkServer, undisturbed: Run, draws: random.Random, words: list[str], phase: str, number: int
) -> Interruption:
    """Start a run and send it a signal at a moment drawn within a phase, which takes what it took undisturbed."""
    occurrence = draws.randint(1, 2)
    last = "training 1" if phase == "start" else f"after-{phase} {occurrence}"
    run = server.start(words, stand_still=last if number == signal.SIGKILL else "")
    if phase != "start":
        run.wait_for(phase, occurrence)
    time.sleep(draws.uniform(0, statistics.median(lengths(undisturbed, phase))))
    met, signalled = run.phase, time.monotonic()
    run.signal(number)
    return Interruption(met, run.finish(), time.monotonic() - signalled, run.printed)


def lengths(run: Run, phase: str) -> list[float]:
    """Seconds of each occurrence of a phase."""
    started, found = run.began, []
    for moment, what in run.told:
        if what == phase:
            started = moment
        elif what == f"after-{phase}":
            found.append(moment - started)
    return found or [run.told[0][0] - run.began]


def interrupt_fresh(words: list[str], number: int, after: float) -> Interruption:
    """Start a Python process as a user does, and send its group a signal after so many seconds."""
    with fresh_process(words) as process:
        time.sleep(after)
        signalled = time.monotonic()
        if process.poll() is None:
            os.killpg(process.pid, number)
        _, printed = process.communicate()
    return Interruption("a process of its own", process.returncode, time.monotonic() - signalled, printed)


def seconds_to_a_checkpoint(words: list[str]) -> float:
    """From the start of such a process to its first checkpoint, on this machine now."""
    run, started = RunFolder(output_of(words)), time.monotonic()
    with fresh_process(words) as process:
        while not run.checkpoints() and process.poll() is None:
            time.sleep(0.01)
        seconds = time.monotonic() - started
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return seconds


def ending(server: ForkServer, words: list[str], expected: tuple[object, object]) -> Iterator[str]:
    """What a run that goes on to its end has otherwise than the undisturbed one."""
    last, folder = server.start(words), output_of(words)
    if last.finish() != 0:
        yield f"it went on, {last.ending}"
        return
    if final_files(folder) != expected[0]:
        yield "its last bytes are not those of the undisturbed run"
    if journal_of(folder) != expected[1]:
        yield "its journal is not that of the undisturbed run"
    if left := [entry.name for entry in folder.rglob(".*") if entry.name != ".lock"]:
        yield f"left behind: {', '.join(left)}"


# ---- two ranks of which one is lost ----------------------------------------------------------------------------------

LOST, DIVERGED = 75, 3
TWO_RANKS = replace(RECIPE, micro_batch_size=2, peer_timeout_minutes=0.15)
STEPS = RECIPE.schedule.total_steps


@dataclass(frozen=True)
class Pair:
    """Two ranks at work, and what they must end as."""

    server: ForkServer
    words: list[str]
    draws: random.Random
    expected: dict[str, bytes]  # what two undisturbed ranks leave
    samples: dict[int, list[str]]  # of each step, as one rank sees them

    def lose(self, how: str, lose: Callable[[Run], object]) -> Iterator[str]:
        """One is lost in an update; the other must say so."""
        lost, step = self.draws.randrange(2), self.draws.randint(1, STEPS - 1)
        runs = self.server.start_world([self.words] * 2, {lost: f"training {step}"})
        runs[lost].wait_for("training", step)
        lose(runs[lost])
        if runs[1 - lost].finish() != LOST:
            yield f"rank {lost} {how} in step {step}, the other does not end with {LOST}: {runs[1 - lost].ending}"
        runs[lost].kill()
        yield from self.goes_on()

    def goes_on(self) -> Iterator[str]:
        """What both have otherwise than the undisturbed ones, when they are started again."""
        codes = [run.finish() for run in self.server.start_world([self.words] * 2)]
        if codes != [0, 0]:
            yield f"started again they end with {codes}"
        elif final_files(output_of(self.words)) != self.expected:
            yield "started again they end with other bytes"


def diverging(pair: Pair) -> Iterator[str]:
    """The loss of one is no number any more."""
    lost, batch = pair.draws.randrange(2), pair.draws.randint(2, 2 * STEPS - 2)
    runs = pair.server.start_world([pair.words] * 2, diverge_at={lost: batch})
    codes = [run.finish() for run in runs]
    if codes != [DIVERGED, DIVERGED]:
        yield f"rank {lost} diverged after {batch} micro-batches, they end with {codes}: {runs[1 - lost].ending}"
    yield from pair.goes_on()


def worlds(pair: Pair) -> Iterator[str]:
    """One rank, then two, killed after a save each, then one: they see the samples that one rank sees."""
    seen: dict[int, list[str]] = {}
    for size, stand_still in ((1, {0: "after-save 2"}), (2, {0: "after-save 2"}), (1, {})):
        runs = pair.server.start_world([pair.words] * size, stand_still, tell_samples=True)
        if stand_still:
            runs[0].wait_for("after-save", 2)
            for run in runs:
                run.kill()
        elif runs[0].finish() != 0:
            yield f"the last rank: {runs[0].ending}"
        seen |= in_turn(runs)
    wrong = sorted(step for step in pair.samples if seen.get(step) != pair.samples[step])
    if wrong:
        yield f"other samples, or another order, in steps {wrong}"


def in_turn(runs: list[Run]) -> dict[int, list[str]]:
    """What the ranks were dealt in turn, by step."""
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
"""What happens to them, by its name in the report."""


@trial(NEVER_HANGS, "runs of two ranks of which one was lost, or whose number changed", 4, 60, 600)
def ranks(tries: Tries) -> None:
    """The ways in turn: nobody hangs, the exit code says what to do, and the same command ends with the same bytes."""
    draws = random.Random(tries.seed)
    material, server = Material(tries.folder / "material"), fork_server()
    two, one = tries.folder / "two", tries.folder / "one"
    both = server.start_world([material.pretrain(two, TWO_RANKS)] * 2)
    alone = server.start(material.pretrain(one, TWO_RANKS), tell_samples=True)
    for each in (*both, alone):
        if each.finish() != 0:
            raise RuntimeError(each.printed)
    expected, samples = final_files(two), in_turn([alone])
    for number in range(tries.count):
        way = list(WAYS)[number % len(WAYS)]
        words = material.pretrain(tries.folder / f"run-{number}", TWO_RANKS)
        try:
            found = list(WAYS[way](Pair(server, words, draws, expected, samples)))
        except TimeoutError as error:
            found = [f"somebody hangs: {error}"]
        tries.record((f"{way}, try {number}: {what}" for what in found), way)
