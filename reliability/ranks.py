"""Two ranks of which one is killed, stands still or diverges: nobody hangs, and the exit code says what to do.

After a loss the same command ends with the bytes of the two ranks that nobody disturbed. And a run that goes on with
one rank, then two, then one sees the samples that one rank sees, in their order, masks and labels included.
"""

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from reliability.killable_runs import ForkServer, Run, final_files, fork_server
from reliability.promises import NEVER_HANGS
from reliability.small_material import RECIPE, Material, small_material
from reliability.trial import Asked, Outcome, Trial

PATIENCE_MINUTES = 0.15
LOST, DIVERGED = 75, 3
TWO_RANKS = replace(RECIPE, micro_batch_size=2, peer_timeout_minutes=PATIENCE_MINUTES)
STEPS = RECIPE.schedule.total_steps


@dataclass(frozen=True)
class Pair:
    """Two ranks at work, and what they must end as.

    Attributes:
        server: starts them.
        words: the command of both.
        draws: which rank, and when.
        expected: what two undisturbed ranks leave.
        samples: of each step, as one rank sees them.
    """

    server: ForkServer
    words: list[str]
    draws: random.Random
    expected: dict[str, bytes]
    samples: dict[int, list[str]]

    @property
    def folder(self) -> Path:
        """Where the run is."""
        return Path(self.words[self.words.index("--output") + 1])

    def goes_on(self) -> Iterator[str]:
        """What both have otherwise than the undisturbed ones, when they are started again."""
        codes = [run.finish() for run in self.server.start_world([self.words] * 2)]
        if codes != [0, 0]:
            yield f"started again they end with {codes}"
        elif final_files(self.folder) != self.expected:
            yield "started again they end with other bytes"


def killed(pair: Pair) -> Iterator[str]:
    """One is killed in an update."""
    lost, step = pair.draws.randrange(2), pair.draws.randint(1, STEPS - 1)
    runs = pair.server.start_world([pair.words] * 2, {lost: f"training {step}"})
    runs[lost].wait_until(lambda: [what for _, what in runs[lost].told].count("training") >= step)
    runs[lost].kill()
    yield from survivor(runs[1 - lost], f"rank {lost} was killed in step {step}")
    yield from pair.goes_on()


def stopped(pair: Pair) -> Iterator[str]:
    """One stands still for good in an update."""
    lost, step = pair.draws.randrange(2), pair.draws.randint(1, STEPS - 1)
    runs = pair.server.start_world([pair.words] * 2, {lost: f"training {step}"})
    yield from survivor(runs[1 - lost], f"rank {lost} stood still in step {step}")
    runs[lost].signal(signal.SIGKILL)
    runs[lost].finish()
    yield from pair.goes_on()


def diverging(pair: Pair) -> Iterator[str]:
    """The loss of one is no number any more."""
    lost, batch = pair.draws.randrange(2), pair.draws.randint(2, 2 * STEPS - 2)
    runs = pair.server.start_world([pair.words] * 2, diverge_at={lost: batch})
    codes = [run.finish() for run in runs]
    if codes != [DIVERGED, DIVERGED]:
        told = runs[1 - lost].printed[-200:]
        yield f"rank {lost} diverged after {batch} micro-batches, they end with {codes}: {told!r}"
    yield from pair.goes_on()


def worlds(pair: Pair) -> Iterator[str]:
    """One rank, then two, then one, killed after a save each."""
    seen: dict[int, list[str]] = {}
    for number, size in enumerate((1, 2, 1)):
        last = number == 2
        runs = pair.server.start_world([pair.words] * size, {} if last else {0: "after-save 2"}, tell_samples=True)
        if last:
            codes = [run.finish() for run in runs]
            if codes != [0]:
                yield f"the last rank ends with {codes}"
        else:
            first = runs[0]
            first.wait_until(lambda first=first: [what for _, what in first.told].count("after-save") >= 2)
            for run in runs:
                run.kill()
        seen |= in_turn(runs)
    wrong = sorted(step for step in pair.samples if seen.get(step) != pair.samples[step])
    if wrong:
        yield f"other samples, or another order, in steps {wrong}"


WAYS: tuple[Callable[[Pair], Iterator[str]], ...] = (killed, stopped, diverging, worlds)


def run(asked: Asked) -> Outcome:
    """Take the ways in turn."""
    draws = random.Random(asked.seed)
    material = small_material(asked.folder / "material")
    server = fork_server()
    expected, samples = undisturbed(server, material, asked.folder)
    tried: Counter[str] = Counter()
    failures: list[str] = []
    for number in range(asked.count):
        way = WAYS[number % len(WAYS)]
        words = material.pretrain(asked.folder / f"run-{number}", TWO_RANKS)
        pair = Pair(server, words, draws, expected, samples)
        try:
            found = list(way(pair))
        except AssertionError as error:  # the deadline of a wait
            found = [f"somebody hangs: {str(error)[-200:]!r}"]
        failures += [f"{way.__name__}, try {number}: {what}" for what in found]
        tried[way.__name__] += 1
        asked.report(1)
    return Outcome(
        tried=tried.total(),
        failed=len(failures),
        what="runs of two ranks of which one was lost, or whose number changed",
        details=dict(sorted(tried.items())),
        failures=tuple(failures),
    )


def undisturbed(server: ForkServer, material: Material, folder: Path) -> tuple[dict[str, bytes], dict[int, list[str]]]:
    """What two ranks leave, and the samples that one sees."""
    both = server.start_world([material.pretrain(folder / "two", TWO_RANKS)] * 2)
    alone = server.start(material.pretrain(folder / "one", TWO_RANKS), tell_samples=True)
    for each in (*both, alone):
        if each.finish() != 0:
            raise RuntimeError(each.printed)
    return final_files(folder / "two"), in_turn([alone])


def survivor(run: Run, why: str) -> Iterator[str]:
    """What is wrong about the end of the rank that is left."""
    if run.finish() != LOST:
        yield f"{why}, the other ends with {run.code}, not {LOST}: {run.printed[-200:]!r}"


def in_turn(runs: list[Run]) -> dict[int, list[str]]:
    """What the ranks were dealt in turn, by step."""
    steps = set.intersection(*(set(run.samples) for run in runs))
    return {
        step: [digest for turn in zip(*(run.samples[step] for run in runs), strict=True) for digest in turn]
        for step in steps
    }


TRIAL = Trial(
    name="ranks",
    guarantee=NEVER_HANGS,
    counts={"quick": 4, "full": 60, "soak": 600},
    run=run,
)
