"""A crash before and after every call that changes the disk: pre-training, preparation, fine-tuning, model directories.

A first process does the work and writes down its calls (see `durable_calls.py`). Then, for each call and for the moment
before and after it, a process does the same work and is killed there. What lies under a final name must be whole; the
same command must then end with the bytes of the undisturbed work, and leave nothing behind.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from albert.runtime.errors import AlbertError
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from reliability.durable_calls import NOT_COUNTED, Fault, Moment
from reliability.killable_runs import ForkServer, fork_server
from reliability.promises import KILL_IT_ANY_TIME
from reliability.small_material import Material, small_material, sums, with_steps
from reliability.trial import Asked, Outcome, Trial

FINISHED = "out.unfinished"
"""Beside a corpus that became whole in the very last moment, the work that it was made of; for a user to remove."""
SAVES = replace(with_steps(4), evaluate_every=4, log_every=2, checkpoint_every=2, keep_checkpoints=1)
"""A first save, a second one after which the first goes, a model."""
_WITH_A_CLOCK = {"journal.jsonl", "README.md", "MANIFEST.json", "training_state.json", ".lock", "results.json"}
_CLOCK = re.compile(r"journal\.jsonl|tensorboard/.*|.*/README\.md|.*MANIFEST\.json|\.lock|training_state\.json")
_CLOCK = re.compile(r'"(seconds|time|[a-z]+_per_second)": [0-9.e+-]+')


@dataclass(frozen=True)
class Work:
    """A command that makes something below a folder.

    Attributes:
        name: how it is told of.
        words: the command for an output.
        folder: of an output, what is compared.
    """

    name: str
    words: Callable[[Path], list[str]]


@dataclass(frozen=True)
class Point:
    """Where a process dies."""

    work: Work
    number: int
    moment: Moment
    call: str


def works(material: Material, model: Path) -> list[Work]:
    """What is done, and dies."""
    return [
        Work("pretrain", lambda output: material.pretrain(output, SAVES)),
        Work("prepare", material.prepare),
        Work("finetune", lambda output: material.finetune(model, output)),
    ]


def run(asked: Asked) -> Outcome:
    """Die everywhere; of more points than are asked for, those spread evenly over all."""
    material = small_material(asked.folder / "material")
    server = fork_server()
    model = finished(server, material.pretrain(asked.folder / "first", SAVES), asked.folder / "first") / "model"
    points: list[Point] = []
    expected: dict[str, dict[str, str]] = {}
    for work in works(material, model):
        whole = asked.folder / work.name / "out"
        log = asked.folder / f"{work.name}.calls"
        finished(server, work.words(whole), whole, Fault(below=str(whole.parent), log=str(log)))
        expected[work.name] = contents(whole)
        for number, call in enumerate(log.read_text().splitlines()):
            points += [Point(work, number, moment, call) for moment in ("before", "after")]
    chosen = [points[place] for place in sorted({i * len(points) // asked.count for i in range(asked.count)})]
    failures: list[str] = []
    died: Counter[str] = Counter()
    for number, point in enumerate(chosen):
        place = asked.folder / "crashed" / str(number) / "out"
        found = list(itertools.islice(what_fails(server, point, place, expected[point.work.name]), 1))
        failures += [f"{point.work.name}, {point.moment} call {point.number} ({point.call}): {what}" for what in found]
        died[point.work.name] += 1
        asked.report(1)
    return Outcome(
        tried=len(chosen),
        failed=len(failures),
        what="crashes before and after the calls that change the disk",
        details={"points there are": len(points), **{f"crashes of {name}": count for name, count in died.items()}},
        failures=tuple(failures),
    )


def what_fails(server: ForkServer, point: Point, place: Path, expected: dict[str, str]) -> Iterator[str]:
    """Die there, go on, compare."""
    place.parent.mkdir(parents=True)
    words = point.work.words(place)
    below = str(place.parent)
    died = server.start(words, fault=Fault(below=below, number=point.number, moment=point.moment))
    if died.finish() != -9:
        yield f"did not die there, but ended with {died.code}: {died.printed[-200:]!r}"
    yield from (str(damage) for damage in damages(place))
    yield from goes_on(server, words, place, expected)
    left = [path.name for path in place.parent.rglob(".*") if path.name != ".lock" and FINISHED not in path.parts]
    if left:
        yield f"left behind: {', '.join(left)}"


def goes_on(server: ForkServer, words: list[str], place: Path, expected: dict[str, str]) -> Iterator[str]:
    """What the same command leaves otherwise than the undisturbed work; a corpus that is whole is refused, not made."""
    again = server.start(words)
    if again.finish() != 0 and "exists already" not in again.printed:
        yield f"exit code {again.code} when it went on: {again.printed[-200:]!r}"
        return
    found = contents(place)
    different = sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name))
    if different:
        yield f"differs from the undisturbed work in {', '.join(different[:4])}"


def damages(place: Path) -> Iterator[AlbertError]:
    """What bears a final name and a manifest, and does not fit it."""
    for manifest in place.rglob(MANIFEST_NAME):
        parts = manifest.parent.relative_to(place.parent).parts
        if not any(part.startswith(".") for part in parts):
            try:
                verify_directory(manifest.parent)
            except AlbertError as error:
                yield error


def contents(output: Path) -> dict[str, str]:
    """What work leaves, without what its clock said."""
    found = sums(output, lambda name: Path(name).name not in _WITH_A_CLOCK and NOT_COUNTED not in Path(name).parts)
    for path in output.rglob("results.json"):
        found[path.relative_to(output).as_posix()] = _CLOCK.sub("", path.read_text(encoding="utf-8"))
    return found


def finished(server: ForkServer, words: list[str], output: Path, fault: Fault | None = None) -> Path:
    """Do work to its end."""
    output.parent.mkdir(parents=True, exist_ok=True)
    done = server.start(words, fault=fault)
    if done.finish() != 0:
        raise RuntimeError(done.printed)
    return output


TRIAL = Trial(
    name="crash-points",
    guarantee=KILL_IT_ANY_TIME,
    counts={"quick": 3, "full": 600, "soak": 4000},
    run=run,
)
