"""The same commands in fresh processes that differ in all that must not matter, and in a forked one: the same bytes.

Tokenizer, corpus, pre-trained model, fine-tuned model and evaluation are made from text whose files lie in another
order and have other times, with another hash seed, locale, time zone, umask and working directory, and with other
numbers of workers.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from albert.runtime.manifest import MANIFEST_NAME
from albert.training.state import TENSORS_NAME
from reliability.crash_points import SAVES
from reliability.killable_runs import fork_server
from reliability.promises import SAME_BYTES
from reliability.report import CHECKOUT
from reliability.small_material import PIECES, Material, small_material, sums
from reliability.trial import Asked, Outcome, Trial

LOCALES = ("C", "C.UTF-8", "tr_TR.UTF-8", "de_DE.UTF-8")
"""Those that the machine has are tried; Turkish has an i of its own."""
TIME_ZONES = ("UTC", "Asia/Kathmandu", "Pacific/Apia")
UMASKS = (0o022, 0o077, 0o002)
EVERYTHING = """
import json, os, sys
from albert.cli.main import run
umask, *commands = json.loads(sys.argv[1])
os.umask(umask)
for words in commands:
    if code := run(words):
        sys.exit(f"{words[0]} ended with {code}")
"""


@dataclass(frozen=True)
class Surroundings:
    """What must not matter."""

    hash_seed: int
    locale: str
    time_zone: str
    umask: int
    folder: str
    workers: int
    backwards: bool
    age: int

    def environment(self) -> dict[str, str]:
        """As variables."""
        mine = {"PYTHONHASHSEED": str(self.hash_seed), "LC_ALL": self.locale, "TZ": self.time_zone}
        return {**os.environ, **mine, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT)}


def run(asked: Asked) -> Outcome:
    """Make everything under other circumstances each time."""
    draws = random.Random(asked.seed)
    material = small_material(asked.folder / "material")
    locales = available_locales()
    first = made(material, asked.folder, Surroundings(0, "C", "UTC", 0o022, "first", 1, False, 0), forked=True)
    if isinstance(first, str):
        raise RuntimeError(first)
    failures: list[str] = []
    for number in range(asked.count):
        around = Surroundings(
            hash_seed=draws.randrange(1, 2**32),
            locale=locales[number % len(locales)],
            time_zone=draws.choice(TIME_ZONES),
            umask=draws.choice(UMASKS),
            folder=f"place-{number} of its own",
            workers=draws.choice((1, 2)),
            backwards=draws.random() < 0.5,
            age=draws.randrange(10**9),
        )
        failures += [f"{around}: {what}" for what in differences(first, made(material, asked.folder, around))]
        asked.report(1)
    return Outcome(
        tried=asked.count,
        failed=len(failures),
        what="sets of tokenizer, corpus, models and evaluation, made in other surroundings",
        details={"files compared": len(first), "locales": ", ".join(locales)},
        failures=tuple(failures),
    )


def made(material: Material, folder: Path, around: Surroundings, forked: bool = False) -> dict[str, str] | str:
    """SHA-256 of everything that the commands make by its name, or what went wrong."""
    place = folder / around.folder
    text = place / "text"
    text.mkdir(parents=True)
    for source in sorted(material.text.iterdir(), reverse=around.backwards):
        (text / source.name).write_bytes(source.read_bytes())
        os.utime(text / source.name, (around.age, around.age))
    here = Material(place)
    for table in ("train.jsonl", "dev.jsonl"):
        (place / table).write_bytes((material.folder / table).read_bytes())
    workers = ["--workers", str(around.workers)]
    vocabulary = ["--vocab-size", str(PIECES)]
    commands = [
        ["tokenizer", "train", str(text), "--output", str(here.tokenizer), *vocabulary],
        [*here.prepare(here.corpus), *workers],
        [*here.pretrain(place / "run", SAVES), *workers],
        [*here.finetune(place / "run" / "model", place / "fine"), *workers],
        ["evaluate", "--model", str(place / "fine"), "--predictions", str(place / "answers.jsonl")],
    ]
    if forked:
        (place / "everything.py").write_text(EVERYTHING, encoding="utf-8")
        child = fork_server().start(["python", str(place / "everything.py"), json.dumps([around.umask, *commands])])
        return sums(place, is_a_result) if child.finish() == 0 else child.printed[-500:]
    working = place / "working directory"
    working.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", EVERYTHING, json.dumps([around.umask, *commands])],
        cwd=working,
        env=around.environment(),
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        return done.stderr[-500:]
    return sums(place, is_a_result)


def is_a_result(name: str) -> bool:
    """Whether a file holds what was computed, and not also where, when and how: cards and settings name the place."""
    path = Path(name)
    if path.parts[0] in ("tokenizer", "corpus"):
        return True
    of_a_model = "model" in path.parts and path.name not in ("README.md", MANIFEST_NAME)
    return of_a_model or path.name in ("answers.jsonl", "predictions-dev.jsonl", TENSORS_NAME)


def differences(first: dict[str, str], other: dict[str, str] | str) -> Iterator[str]:
    """What is not the same."""
    if isinstance(other, str):
        yield other
        return
    different = sorted(name for name in first.keys() | other.keys() if first.get(name) != other.get(name))
    if different:
        yield f"other bytes in {', '.join(different[:6])}"


def available_locales() -> list[str]:
    """Of those above, the ones that this machine has."""
    if shutil.which("locale") is None:
        return ["C"]
    done = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=True)
    have = {name.lower().replace("utf8", "utf-8") for name in done.stdout.split()}
    return [name for name in LOCALES if name.lower() in have]


TRIAL = Trial(
    name="determinism",
    guarantee=SAME_BYTES,
    counts={"quick": 1, "full": 30, "soak": 200},
    run=run,
)
