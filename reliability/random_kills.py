"""SIGKILL at random moments: a run that is killed again and again ends as the run that nobody killed.

Each run is killed in every phase of its work: while it starts, in an update, in a save, while an old checkpoint goes,
in an evaluation; then it goes on to its end. Its final weights, moments and journal are compared, byte for byte, with
those of the undisturbed run. Most starts are processes forked from one that has imported everything; one in each
`FRESH_EVERY` is a Python process of its own, as a user starts it, killed at a moment from its first to a checkpoint.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from albert.runtime.errors import AlbertError
from albert.runtime.manifest import verify_directory
from albert.training.run_folder import RunFolder
from reliability.killable_runs import PHASES, ForkServer, Killer, final_files, fork_server, told
from reliability.promises import KILL_IT_ANY_TIME
from reliability.report import CHECKOUT
from reliability.small_material import small_material, with_steps
from reliability.trial import Asked, Outcome, Trial

STEPS_LOST = 16
"""Most updates that a run comes forward while it is killed once in each phase."""
KILLS_OF_A_RUN = 25
FRESH_EVERY = 20


def run(asked: Asked) -> Outcome:
    """Kill and compare."""
    draws = random.Random(asked.seed)
    material = small_material(asked.folder / "material")
    of_a_run = min(KILLS_OF_A_RUN, asked.count)
    recipe = with_steps(STEPS_LOST * (-(-of_a_run // len(PHASES)) + 1))
    server = fork_server()
    undisturbed = server.start(material.pretrain(asked.folder / "undisturbed", recipe))
    if undisturbed.finish() != 0:
        raise RuntimeError(undisturbed.printed)
    expected = final_files(asked.folder / "undisturbed"), told(asked.folder / "undisturbed")
    killer = Killer(server, undisturbed, draws)
    rehearsal = material.pretrain(asked.folder / "rehearsal", recipe)
    to_a_checkpoint = seconds_to_a_checkpoint(rehearsal) if asked.count >= FRESH_EVERY else 0.0
    died_in: Counter[str] = Counter()
    failures: list[str] = []
    runs = 0
    while died_in.total() < asked.count:
        words = material.pretrain(asked.folder / f"run-{runs}", recipe)
        killed = 0
        for turn in range(min(of_a_run, asked.count - died_in.total())):
            phase = PHASES[turn % len(PHASES)]
            if turn % FRESH_EVERY < FRESH_EVERY - 1:
                met = killer.start_and_kill(words, phase)
            else:
                met = kill_fresh(words, draws.uniform(0, to_a_checkpoint))
            if met is None:  # it had come to its end, and there is nothing more to kill
                break
            died_in[met] += 1
            killed += 1
            failures += [f"run {runs}, kill {killed}: {what}" for what in damaged(asked.folder / f"run-{runs}")]
            asked.report(1)
        failures += [f"run {runs}, {killed} kills: {what}" for what in ending(server, words, expected)]
        runs += 1
    return Outcome(
        tried=died_in.total(),
        failed=len(failures),
        what="kills of runs that then went on to their end",
        details={"runs": runs, **{f"killed in {phase}": count for phase, count in sorted(died_in.items())}},
        failures=tuple(failures),
    )


def kill_fresh(words: list[str], after: float) -> str | None:
    """Start a Python process as a user does, and kill its group after so many seconds; None when it had ended."""
    with fresh_process(words) as process:
        time.sleep(after)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return "a process of its own" if process.returncode == -signal.SIGKILL else None


def fresh_process(words: list[str]) -> subprocess.Popen[str]:
    """`albert` in a Python process and a group of its own; what it says on standard error can be read."""
    return subprocess.Popen(
        [sys.executable, "-m", "albert", *words],
        cwd=CHECKOUT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def seconds_to_a_checkpoint(words: list[str]) -> float:
    """From the start of such a process to its first checkpoint, on this machine now."""
    run = RunFolder(Path(words[words.index("--output") + 1]))
    started = time.monotonic()
    with fresh_process(words) as process:
        while not run.checkpoints() and process.poll() is None:
            time.sleep(0.01)
        seconds = time.monotonic() - started
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return seconds


def damaged(folder: Path) -> list[str]:
    """What stands under a final name and is not whole."""
    found = []
    run = RunFolder(folder)
    for place in [path for _, path in run.checkpoints()] + ([run.model_path] if run.model_path.exists() else []):
        try:
            verify_directory(place)
        except AlbertError as error:
            found.append(str(error))
    return found


def ending(server: ForkServer, words: list[str], expected: tuple[object, object]) -> list[str]:
    """What a run that goes on to its end has otherwise than the undisturbed one."""
    last = server.start(words)
    folder = Path(words[words.index("--output") + 1])
    if last.finish() != 0:
        return [f"exit code {last.code} when it went on: {last.printed[-200:]!r}"]
    found = final_files(folder), told(folder)
    left = [entry.name for entry in folder.rglob(".*") if entry.name != ".lock"]
    return [
        *(["its last bytes are not those of the undisturbed run"] if found[0] != expected[0] else []),
        *(["its journal is not that of the undisturbed run"] if found[1] != expected[1] else []),
        *([f"left behind: {', '.join(left)}"] if left else []),
    ]


TRIAL = Trial(
    name="random-kills",
    guarantee=KILL_IT_ANY_TIME,
    counts={"quick": 2, "full": 200, "soak": 2000},
    run=run,
)
