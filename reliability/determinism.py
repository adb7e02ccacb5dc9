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
from dataclasses import dataclass
from pathlib import Path

from albert.runtime.manifest import MANIFEST_NAME
from albert.training.state import TENSORS_NAME
from reliability.material import PIECES, SAVES, Material, differences, sums
from reliability.report import CHECKOUT, SAME_BYTES
from reliability.runs import fork_server
from reliability.trials import Tries, trial

LOCALES = ("C", "C.UTF-8", "tr_TR.UTF-8", "de_DE.UTF-8")
"""Those that the machine has are tried; Turkish has an i of its own."""
TIME_ZONES = ("UTC", "Asia/Kathmandu", "Pacific/Apia")
UMASKS = (0o022, 0o077, 0o002)
EVERYTHING = """
if __name__ == "__main__":  # processes that prepare a corpus import this file again
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

    hash_seed: int = 0
    locale: str = "C"
    time_zone: str = "UTC"
    umask: int = 0o022
    folder: str = "first"
    workers: int = 1
    backwards: bool = False
    age: int = 0


@trial(SAME_BYTES, "sets of tokenizer, corpus, models and evaluation, made in other surroundings", 1, 30, 200)
def determinism(tries: Tries) -> None:
    """Make everything under other circumstances each time."""
    draws = random.Random(tries.seed)
    material = Material(tries.folder / "material")
    locales = available_locales()
    first, wrong = made(material, tries.folder, Surroundings(), forked=True)
    if wrong:
        raise RuntimeError(wrong)
    tries.details |= {"files compared": len(first), "locales": ", ".join(locales)}
    for number in range(tries.count):
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
        found, wrong = made(material, tries.folder, around)
        if not wrong and (different := differences(first, found)):
            wrong = f"other bytes in {', '.join(different[:6])}"
        tries.record([f"{around}: {wrong}"] if wrong else [])


def made(material: Material, folder: Path, around: Surroundings, forked: bool = False) -> tuple[dict[str, str], str]:
    """SHA-256 of everything that the commands make by its name, and what went wrong."""
    place = folder / around.folder
    text, tokenizer, corpus = place / "text", place / "tokenizer", place / "corpus"
    text.mkdir(parents=True)
    for source in sorted(material.text.iterdir(), reverse=around.backwards):
        shutil.copyfile(source, text / source.name)
        os.utime(text / source.name, (around.age, around.age))
    for table in material.tables.glob("*.jsonl"):
        shutil.copyfile(table, place / table.name)
    here = Material(place, text=text, tokenizer=tokenizer, corpus=corpus, tables=place)
    workers = ["--workers", str(around.workers)]
    commands = [
        ["tokenizer", "train", str(text), "--output", str(tokenizer), "--vocab-size", str(PIECES)],
        [*here.prepare(corpus), *workers],
        [*here.pretrain(place / "run", SAVES), *workers],
        [*here.finetune(place / "run" / "model", place / "fine"), *workers],
        ["evaluate", "--model", str(place / "fine"), "--predictions", str(place / "answers.jsonl")],
    ]
    program = place / "everything.py"
    program.write_text(EVERYTHING, encoding="utf-8")
    words = [str(program), json.dumps([around.umask, *commands])]
    if forked:
        child = fork_server().start(["python", *words])
        wrong = "" if child.finish() == 0 else child.printed
    else:
        working = place / "working directory"
        working.mkdir()
        mine = {"PYTHONHASHSEED": str(around.hash_seed), "LC_ALL": around.locale, "TZ": around.time_zone}
        environment = {**os.environ, **mine, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT)}
        done = subprocess.run([sys.executable, *words], cwd=working, env=environment, capture_output=True, check=False)
        wrong = done.stderr.decode("utf-8", "replace") if done.returncode else ""
    return sums(place, is_a_result), wrong[-500:]


def is_a_result(name: str) -> bool:
    """Whether a file holds what was computed, and not also where, when and how: cards and settings name the place."""
    path = Path(name)
    if path.parts[0] in ("tokenizer", "corpus"):
        return True
    of_a_model = "model" in path.parts and path.name not in ("README.md", MANIFEST_NAME)
    return of_a_model or path.name in ("answers.jsonl", "predictions-dev.jsonl", TENSORS_NAME)


def available_locales() -> list[str]:
    """Of those above, the ones that this machine has."""
    if shutil.which("locale") is None:
        return ["C"]
    done = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=True)
    have = {name.lower().replace("utf8", "utf-8") for name in done.stdout.split()}
    return [name for name in LOCALES if name.lower() in have]
