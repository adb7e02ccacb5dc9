"""Every parser given samples that were made wrong: one error of ours or an answer, in time, within memory, and no act.

A parser is one file or body that somebody else may have written (parsers.py), the samples are mutated with fixed seeds
(mutations.py), and each is read in a process that is watched (confined.py).
"""

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from albert.runtime.errors import AlbertError
from albert.runtime.manifest import MANIFEST_NAME
from reliability.confined import Broken, Limits, confined
from reliability.mutations import mutated
from reliability.parsers import PARSERS, Parser
from reliability.promises import LOADING_RUNS_NOTHING
from reliability.scene import Scene
from reliability.trial import FAILURES_TOLD, Asked, Outcome, Trial

SECONDS = 5.0


def run(asked: Asked) -> Outcome:
    """Mutate a sample for each parser in turn; inputs that failed are kept in the folder, for tests/museum."""
    tries = Tries(Scene(asked.folder / "scene"), asked.folder, asked.seed)
    kinds: Counter[str] = Counter()
    slowest = 0.0
    failures: list[str] = []
    for verdict in confined(tries.work, asked.count, Limits(asked.folder, SECONDS)):
        asked.report(1)
        slowest = max(slowest, verdict.seconds)
        if verdict.failure:
            kept = tries.keep(verdict.number, asked.folder / "failing")
            failures.append(f"try {verdict.number}, {kept.parent.name}: {verdict.failure} ({kept})")
        else:
            kinds[verdict.kind] += 1
    return Outcome(
        tried=asked.count,
        failed=len(failures),
        what=f"mutated inputs of {len(PARSERS)} parsers",
        details={**dict(sorted(kinds.items())), "slowest_seconds": round(slowest, 3)},
        failures=tuple(failures[:FAILURES_TOLD]),
    )


class Tries:
    """A folder for each parser, with what lies beside its file."""

    def __init__(self, scene: Scene, folder: Path, seed: int, parsers: Sequence[Parser] = PARSERS) -> None:
        self._seed, self._folder, self._parsers = seed, folder / "read", parsers
        self._samples = [parser.samples(scene) for parser in parsers]
        for parser in parsers:
            arrange(parser, scene, self._folder / parser.name)

    def work(self, number: int) -> str:
        """One try: a sample made wrong, and read."""
        parser = self._parsers[number % len(self._parsers)]
        path = self._folder / parser.name / parser.file
        path.write_bytes(self._mutated(number))
        return read_watched(parser, path)

    def keep(self, number: int, folder: Path) -> Path:
        """Write what a try read to a place where it stays, by the name of its parser."""
        parser = self._parsers[number % len(self._parsers)]
        path = folder / parser.name / f"{self._seed}-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._mutated(number))
        return path

    def _mutated(self, number: int) -> bytes:
        which = number % len(self._parsers)
        numbers = random.Random(f"{self._seed}/fuzzing/{self._parsers[which].name}/{number}")
        return mutated(self._samples[which], self._parsers[which].form, numbers)


def arrange(parser: Parser, scene: Scene, folder: Path) -> None:
    """Make the folder that a parser's file is to lie in."""
    if parser.beside is None:
        folder.mkdir(parents=True)
    else:
        shutil.copytree(parser.beside(scene), folder)
        if parser.file != MANIFEST_NAME:
            (folder / MANIFEST_NAME).unlink(missing_ok=True)


def read_watched(parser: Parser, path: Path) -> str:
    """Read a file: "read" or "refused".

    Raises:
        Broken: a refusal in more than one line, or what the parser itself says.
    """
    try:
        parser.read(path)
    except AlbertError as refusal:
        if "\n" in str(refusal):
            raise Broken(f"refused in more than one line: {refusal}") from refusal
        return "refused"
    return "read"


TRIAL = Trial("fuzzing", LOADING_RUNS_NOTHING, {"quick": 96, "full": 24_000, "soak": 2_000_000}, run)
