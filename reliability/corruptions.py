"""Directories damaged in every way that disks and hands know: read exactly as they were, or refused, in time.

A damaged directory may be read: a flipped bit in a byte that nobody looks at harms nobody. What is read must then be
what was written, to the last bit of every tensor, token and setting.
"""

import random
import time
from collections import Counter
from pathlib import Path

from albert.runtime.errors import AlbertError
from reliability.confined import Broken, Limits, confined
from reliability.damage import DAMAGES, Victim, exchange
from reliability.kept_kinds import KINDS
from reliability.promises import NO_WRONG_LOAD
from reliability.scene import Scene
from reliability.trial import FAILURES_TOLD, Asked, Outcome, Trial

SECONDS = 10.0
CODES = (65, 66, 78)
"""Damaged, missing, or settings that cannot be: what docs/troubleshooting.md promises for such files."""


def run(asked: Asked) -> Outcome:
    """Damage the kinds in turn; a try is one damage to one directory."""
    tries = _Tries(Scene(asked.folder / "scene"), asked.folder / "victims", asked.seed, asked.count)
    kinds: Counter[str] = Counter()
    broken: dict[int, str] = {}
    seconds: list[float] = []
    started = time.monotonic()
    for verdict in confined(tries.work, asked.count, Limits(asked.folder, SECONDS)):
        asked.report(1)
        seconds.append(verdict.seconds)
        if verdict.failure:
            broken[verdict.number] = verdict.failure
        else:
            kinds[verdict.kind] += 1
    # Described once the other process has ended: to describe a try is to damage its directory again.
    failures = [f"{tries.describe(number)}: {failure}" for number, failure in list(broken.items())[:FAILURES_TOLD]]
    return Outcome(
        tried=asked.count,
        failed=len(broken),
        what=f"corruptions of {len(tries.names)} kinds of directories: " + ", ".join(tries.names),
        details={
            **dict(sorted(kinds.items())),
            "slowest_refusal_seconds": round(max(seconds), 3),
            "seconds_for_all": round(time.monotonic() - started, 1),
        },
        failures=tuple(failures),
    )


class _Tries:
    """What is damaged, and what reading it gave when it was whole."""

    def __init__(self, scene: Scene, folder: Path, seed: int, count: int) -> None:
        self._seed, kinds = seed, KINDS[:count]
        self.names = [kind.name for kind in kinds]
        self._kinds = kinds
        self._readers = [kind.reader(scene) for kind in kinds]
        self._victims, self._whole, self._others = [], [], []
        for number, (kind, read) in enumerate(zip(kinds, self._readers, strict=True)):
            original, others = kind.original(scene), kind.others(scene)
            path = folder / str(number) / "checkpoints" / original.name
            self._victims.append(Victim(original, others, path))
            self._whole.append(read(path))
            self._others.append({_reading(read, other) for other in others} - {None})

    def work(self, number: int) -> str:
        """One try: whole again, damaged, read."""
        which = number % len(self._kinds)
        kind, victim, read = self._kinds[which], self._victims[which], self._readers[which]
        victim.restore()
        self._damage(number, victim)
        try:
            found = read(victim.path)
        except AlbertError as refusal:
            if refusal.exit_code not in CODES:
                raise Broken(f"refused with exit code {refusal.exit_code}: {refusal}") from refusal
            if "\n" in str(refusal):
                raise Broken(f"refused in more than one line: {refusal}") from refusal
            return "refused"
        if found == self._whole[which]:
            return "read_exactly"
        if found in self._others[which] and not kind.bound:
            return "another_whole_one"  # not damage: someone put another model there
        raise Broken("a wrong load: what was read is not what was written")

    def describe(self, number: int) -> str:
        """What was done in a try, for whoever wants to see it again."""
        which = number % len(self._kinds)
        self._victims[which].restore()
        return f"try {number}, {self._kinds[which].name}: {self._damage(number, self._victims[which])}"

    def _damage(self, number: int, victim: Victim) -> str:
        numbers = random.Random(f"{self._seed}/corruptions/{number}")
        kind = self._kinds[number % len(self._kinds)]
        damages = [damage for damage in DAMAGES if kind.bound or damage is not exchange]
        return numbers.choice(damages)(victim, numbers)


def _reading(read, path: Path) -> str | None:
    """What another one gives; None where it cannot be read in this one's place."""
    try:
        return read(path)
    except AlbertError:
        return None


TRIAL = Trial("corruptions", NO_WRONG_LOAD, {"quick": 120, "full": 20_400, "soak": 200_000}, run)
