"""SIGTERM and SIGINT at moments spread over a run: it saves, says so by its exit code, and goes on as if never stopped.

A signal goes to the whole process group, worker processes included, as schedulers send it. Some processes are fresh
Python ones and are met while they still import: there is nothing to save, and the exit code is the same. A code is read
as a shell shows it: a process that a signal ended before it could answer has 128 and the number.
"""

import os
import random
import signal
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from reliability.killable_runs import PHASES, Run, final_files, fork_server, lengths, told
from reliability.promises import SIGNALS_SAVE
from reliability.random_kills import ending, fresh_process, seconds_to_a_checkpoint
from reliability.small_material import small_material, with_steps
from reliability.trial import Asked, Outcome, Trial

SIGNALS = (signal.SIGTERM, signal.SIGINT)
SIGNALS_OF_A_RUN = 10
STEPS_OF_A_SIGNAL = 30
"""A run comes forward while it is signalled and must not have ended; one that has is no try."""
FRESH_EVERY = 6
LONGEST = 30.0
"""Seconds that the system's schedulers give a job to end."""


def run(asked: Asked) -> Outcome:
    """Signal, go on, compare."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background jobs, and all that they start
        signal.signal(signal.SIGINT, signal.default_int_handler)
    draws = random.Random(asked.seed)
    material = small_material(asked.folder / "material")
    of_a_run = min(SIGNALS_OF_A_RUN, asked.count)
    recipe = replace(with_steps(STEPS_OF_A_SIGNAL * of_a_run), workers=1, checkpoint_every=5)
    server = fork_server()
    undisturbed = server.start(material.pretrain(asked.folder / "undisturbed", recipe))
    if undisturbed.finish() != 0:
        raise RuntimeError(undisturbed.printed)
    expected = final_files(asked.folder / "undisturbed"), told(asked.folder / "undisturbed")
    seconds = {phase: statistics.median(lengths(undisturbed, phase)) for phase in PHASES}
    rehearsal = material.pretrain(asked.folder / "rehearsal", recipe)
    to_a_checkpoint = seconds_to_a_checkpoint(rehearsal) if asked.count >= FRESH_EVERY else 0.0
    met: Counter[str] = Counter()
    failures: list[str] = []
    longest = 0.0
    runs = 0
    while met.total() < asked.count:
        if runs == 2 * asked.count:
            raise RuntimeError("runs end before they are signalled")
        words = material.pretrain(asked.folder / f"run-{runs}", recipe)
        for _ in range(min(of_a_run, asked.count - met.total())):
            turn, number = met.total(), SIGNALS[met.total() % 2]
            phase = PHASES[turn % len(PHASES)]
            if turn % FRESH_EVERY == FRESH_EVERY - 1:
                phase = "imports or soon after"
                code, took, printed = signal_fresh(words, number, draws.uniform(0, to_a_checkpoint))
            else:
                code, took, printed = signal_forked(server.start(words), number, phase, draws, seconds[phase])
            if code == 0:
                break
            longest = max(longest, took)
            met[phase] += 1
            wrong = what_is_wrong(number, code, took, printed)
            failures += [f"run {runs}, {signal.Signals(number).name} in {phase}: {what}" for what in wrong]
            asked.report(1)
        failures += [f"run {runs}: {what}" for what in ending(server, words, expected)]
        runs += 1
    return Outcome(
        tried=met.total(),
        failed=len(failures),
        what="signals to runs that then went on to their end",
        details={
            "runs": runs,
            "longest seconds to the end": round(longest, 1),
            **{f"met in {phase}": count for phase, count in sorted(met.items())},
        },
        failures=tuple(failures),
    )


def signal_forked(run: Run, number: int, phase: str, draws: random.Random, seconds: float) -> tuple[int, float, str]:
    """Signal a run in a phase; its exit code, how long it took, and what it printed."""
    occurrence = draws.randint(1, 2)
    if phase != "start":
        run.wait_until(lambda: [what for _, what in run.told].count(phase) >= occurrence)
    time.sleep(draws.uniform(0, seconds))
    signalled = time.monotonic()
    run.signal(number)
    return run.finish(), time.monotonic() - signalled, run.printed


def signal_fresh(words: list[str], number: int, after: float) -> tuple[int, float, str]:
    """The same of a Python process of its own, after so many seconds."""
    with fresh_process(words) as process:
        time.sleep(after)
        signalled = time.monotonic()
        if process.poll() is None:
            os.killpg(process.pid, number)
        _, printed = process.communicate()
    return process.returncode, time.monotonic() - signalled, printed


def what_is_wrong(number: int, code: int, seconds: float, printed: str) -> Iterator[str]:
    """What breaks the promise."""
    shown = 128 - code if code < 0 else code
    if shown != 128 + number:
        yield f"exit code {code}, not {128 + number}: {printed[-200:]!r}"
    if "Traceback" in printed:
        yield f"a traceback: {printed[-200:]!r}"
    if seconds > LONGEST:
        yield f"it took {seconds:.0f} s"


TRIAL = Trial(
    name="signals",
    guarantee=SIGNALS_SAVE,
    counts={"quick": 3, "full": 120, "soak": 1200},
    run=run,
)
