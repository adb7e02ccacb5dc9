"""Runs the same commands in different environments; they must give the same bytes.

Tokenizer, corpus, pre-trained model, fine-tuned model and evaluation are made from files in another order and with
other times, with another hash seed, locale, time zone, umask and working directory, and other numbers of workers."""

import json
import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dev.reliability.material import PIECES, SAVES, Material, differences, sums
from dev.reliability.report import CHECKOUT, SAME_BYTES
from dev.reliability.runs import fork_server
from dev.reliability.trials import Tries, trial

from albert.runtime.manifest import MANIFEST_NAME
from albert.training.state import TENSORS_NAME

LOCALES = ("C", "C.UTF-8", "tr_TR.UTF-8", "de_DE.UTF-8")
"""Used if installed; Turkish changes the case of i differently."""
TIME_ZONES = ("UTC", "Asia/Kathmandu", "Pacific/Apia")
UMASKS = (0o022, 0o077, 0o002)
EVERYTHING = """
if __name__ == "__main__":  # worker processes import this file again
    import json, os, sys
    from albert.cli.main import run
    umask, *commands = json.loads(sys.argv[1])
    os.umask(umask)
    for words in commands:
        if code := run(words):
            sys.exit(f"{words[0]} ended with {code}")
"""


@dataclass(frozen=True)
class Environment:
    """An environment."""

    hash_seed: int = 0
    locale: str = "C"
    time_zone: str = "UTC"
    umask: int = 0o022
    folder: str = "first"
    workers: int = 1
    backwards: bool = False
    age: int = 0


@trial(SAME_BYTES, "sets of tokenizer, corpus, models and evaluation, made in different environments", 1, 30, 200)
def determinism(tries: Tries) -> None:
    """Make everything in a different environment each time."""
    rng = random.Random(tries.seed)
    material = Material(tries.folder / "material")
    locales = available_locales()
    expected, error = make_everything(material, tries.folder, Environment(), forked=True)
    if error:
        raise RuntimeError(error)
    tries.details |= {"files compared": len(expected), "locales": ", ".join(locales)}
    for number in range(tries.count):
        environment = Environment(
            hash_seed=rng.randrange(1, 2**32),
            locale=locales[number % len(locales)],
            time_zone=rng.choice(TIME_ZONES),
            umask=rng.choice(UMASKS),
            folder=f"place-{number} of its own",
            workers=rng.choice((1, 2)),
            backwards=rng.random() < 0.5,
            age=rng.randrange(10**9),
        )
        results, error = make_everything(material, tries.folder, environment)
        if not error and (different := differences(expected, results)):
            error = f"other bytes in {', '.join(different[:6])}"
        tries.record([f"{environment}: {error}"] if error else [])


def make_everything(
    material: Material, folder: Path, environment: Environment, forked: bool = False
) -> tuple[dict[str, str], str]:
    """The SHA-256 of each result of the commands, and the error if one failed."""
    root = folder / environment.folder
    text, tokenizer, corpus = root / "text", root / "tokenizer", root / "corpus"
    text.mkdir(parents=True)
    for source in sorted(material.text.iterdir(), reverse=environment.backwards):
        shutil.copyfile(source, text / source.name)
        os.utime(text / source.name, (environment.age, environment.age))
    for table in material.tables.glob("*.jsonl"):
        shutil.copyfile(table, root / table.name)
    copy = Material(root, text=text, tokenizer=tokenizer, corpus=corpus, tables=root)
    workers = f"workers={environment.workers}"
    commands = [
        ["tokenizer", "train", str(text), "--output", str(tokenizer), "--vocab-size", str(PIECES)],
        [*copy.prepare(corpus), "--workers", str(environment.workers)],
        [*copy.pretrain(root / "run", SAVES), workers],
        [*copy.finetune(root / "run" / "model", root / "fine"), workers],
        ["evaluate", "--model", str(root / "fine"), "--predictions", str(root / "answers.jsonl")],
    ]
    program = root / "everything.py"
    program.write_text(EVERYTHING, encoding="utf-8")
    words = [str(program), json.dumps([environment.umask, *commands])]
    if forked:
        child = fork_server().start(["python", *words])
        error = "" if child.finish() == 0 else child.printed
    else:
        working = root / "working directory"
        working.mkdir()
        own = {"PYTHONHASHSEED": str(environment.hash_seed), "LC_ALL": environment.locale, "TZ": environment.time_zone}
        variables = {**os.environ, **own, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(CHECKOUT)}
        done = subprocess.run([sys.executable, *words], cwd=working, env=variables, capture_output=True, check=False)
        error = done.stderr.decode("utf-8", "replace") if done.returncode else ""
    return sums(root, is_a_result), error[-500:]


def is_a_result(name: str) -> bool:
    """Whether a file has only computed results; cards and settings also have paths and times."""
    path = Path(name)
    if path.parts[0] in ("tokenizer", "corpus"):
        return True
    of_a_model = "model" in path.parts and path.name not in ("README.md", MANIFEST_NAME)
    return of_a_model or path.name in ("answers.jsonl", "predictions-dev.jsonl", TENSORS_NAME)


def available_locales() -> list[str]:
    """The installed ones of LOCALES."""
    if shutil.which("locale") is None:
        return ["C"]
    done = subprocess.run(["locale", "-a"], capture_output=True, text=True, check=True)
    installed = {name.lower().replace("utf8", "utf-8") for name in done.stdout.split()}
    return [name for name in LOCALES if name.lower() in installed]
