"""Two checkouts in turns: inference, training, fine-tuning, start-up and preparation, each in a process of its own.

    git worktree add ../before COMMIT
    python dev/benchmarks/two_checkouts.py --other ../before --text book.txt

Each case is a program that uses only what both have: commands, and functions of `albert`. The same interpreter runs
both, with `src` of one checkout or of the other; a round runs every case with both, in alternating order. A program
prints the seconds of the part that is measured; a command is measured from start to end,
and training by the seconds of its updates, in its journal. `ratio` is the time of the
other checkout by that of this one, the median over rounds: above 1 this one is faster. A precision that the processor
does not multiply in is left out.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import harness

from albert.runtime.devices import describe_machine
from albert.runtime.progress import progress

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = ("case", "other_commit", "rounds", "seconds", "other_seconds", "ratio", "lowest", "highest",
           "processor_ratio")  # fmt: skip
TIMED = """
import sys, time
import albert
texts = open(sys.argv[2], encoding="utf-8").read().split(". ")[:{texts}]
model = albert.load(sys.argv[1], device="cpu", precision="{precision}")
model.embed(texts[:32])
began = time.perf_counter()
{body}
print("seconds", time.perf_counter() - began)
"""
PROGRAMS = {
    "sentences, fp32": TIMED.format(texts=300, precision="fp32", body="model.embed(texts)"),
    "sentences, bf16": TIMED.format(texts=300, precision="bf16", body="model.embed(texts)"),
    "sentences, int8": TIMED.format(texts=300, precision="int8", body="model.embed(texts)"),
    "one text, 200 times": TIMED.format(
        texts=232, precision="fp32", body="for text in texts[32:]: model.embed([text])"
    ),
}
"""Programs that print the seconds of their measured part."""
INSTRUCTIONS = {"bf16": "bf16", "int8": "vnni"}
COMMANDS = {
    "start-up: help": ["--help"],
    "start-up: info": ["info", "MODEL"],
    "start-up: fill one mask": ["predict", "MODEL", "--fill-mask", "The cat sat on the [MASK].", "--device", "cpu"],
    "preparation": ["prepare", "TEXT", "--tokenizer", "TOKENIZER", "--output", "NEW", "--workers", "1"],
    "pre-training": ["pretrain", "quickstart", "--data", "CORPUS", "--output", "NEW", "--device", "cpu",
                     "steps=40", "schedule.warmup_steps=4", "precision=fp32"],
    "fine-tuning": ["finetune", "--train", "TABLE", "--text", "text", "--label", "label", "--model", "MODEL",
                    "--output", "NEW", "--device", "cpu", "precision=fp32", "steps=60"],
}  # fmt: skip
"""Arguments of `albert`; words in capitals stand for paths."""
FLAGS = {
    "steps": {"pretrain": "--schedule.total-steps", "finetune": "--steps"},
    "schedule.warmup_steps": {"pretrain": "--schedule.warmup-steps"},
    "precision": {"pretrain": "--precision", "finetune": "--precision"},
}
"""Keys, and the flags of these commands in checkouts that have no keys."""


def spelled(words: Sequence[str], checkout: Path) -> list[str]:
    """The arguments as a checkout spells them."""
    if (checkout / "src" / "albert" / "cli" / "signature.py").exists():
        return list(words)
    typed = []
    for word in words:
        key, _, value = word.partition("=")
        typed += [FLAGS[key][words[0]], value] if key in FLAGS else [word]
    return typed


@dataclass(frozen=True, kw_only=True)
class TwoCheckouts:
    """Compare the speed of two checkouts."""

    other: Path
    """The other checkout."""
    text: Path
    """A text file of some megabytes."""
    tokenizer: Path = Path("models/small")
    """In each checkout, as the layout of files may differ; or an absolute path."""
    model: Path = Path("models/small")
    """The same."""
    rounds: int = 5
    threads: int = 1
    cases: tuple[str, ...] = ()
    """Cases; empty: all."""
    output: Path = Path("results/benchmark-two-checkouts.csv")


class Seconds(NamedTuple):
    """The time of one run."""

    clock: float
    processor: float
    """Of the whole process, with its children."""


def measure(args: TwoCheckouts) -> Iterator[list[object]]:
    """A row for each case."""
    cases = {**PROGRAMS, **COMMANDS}
    missing = [f"sentences, {name}" for name, word in INSTRUCTIONS.items() if word not in str(describe_machine())]
    names = args.cases or tuple(name for name in cases if name not in missing)
    harness.select("--cases", names, cases)
    command = ["git", "-C", str(args.other), "rev-parse", "--short", "HEAD"]
    other_commit = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        paths = {
            checkout: prepared(args, checkout, Path(folder) / name)
            for name, checkout in (("here", ROOT), ("other", args.other.resolve()))
        }
        found: dict[str, list[tuple[Seconds, Seconds]]] = {name: [] for name in names}
        with progress("Comparing checkouts", total=args.rounds * len(names), unit="cases") as bar:
            for number in range(args.rounds):
                for name in names:
                    found[name].append(in_turns(name, args, paths, reverse=number % 2 == 1))
                    bar.advance()
    for name, pairs in found.items():
        ratios = [theirs.clock / ours.clock for ours, theirs in pairs]
        processor_ratios = [theirs.processor / ours.processor for ours, theirs in pairs]
        yield [
            name,
            other_commit,
            args.rounds,
            f"{statistics.median(ours.clock for ours, _ in pairs):.3f}",
            f"{statistics.median(theirs.clock for _, theirs in pairs):.3f}",
            f"{statistics.median(ratios):.3f}",
            f"{min(ratios):.3f}",
            f"{max(ratios):.3f}",
            f"{statistics.median(processor_ratios):.3f}",
        ]


def prepared(args: TwoCheckouts, checkout: Path, folder: Path) -> dict[str, Path]:
    """The inputs of all cases in a checkout, made from the text; each checkout prepares its corpus."""
    folder.mkdir()
    paths = {
        "MODEL": checkout / args.model,
        "TOKENIZER": checkout / args.tokenizer,
        "TEXT": args.text.resolve(),
        "CORPUS": folder / "corpus",
        "TABLE": folder / "table.csv",
        "NEW": folder / "new",
    }
    sentences = [" ".join(sentence.split()) for sentence in args.text.read_text(encoding="utf-8").split(". ")]
    rows = [
        f'"{sentence[:200]}",{len(sentence) % 3}' for sentence in sentences[:600] if sentence and '"' not in sentence
    ]
    paths["TABLE"].write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    words = ["prepare", str(paths["TEXT"]), "--tokenizer", str(paths["TOKENIZER"]), "--output", str(paths["CORPUS"])]
    run_process([sys.executable, "-m", "albert", *words], checkout, args.threads)
    return paths


def in_turns(
    name: str, args: TwoCheckouts, paths: dict[Path, dict[str, Path]], reverse: bool
) -> tuple[Seconds, Seconds]:
    """The seconds of this checkout and of the other one."""
    checkouts = [ROOT, args.other.resolve()]
    if reverse:
        checkouts.reverse()
    seconds = {checkout: run_case(name, args, paths[checkout], checkout) for checkout in checkouts}
    return seconds[ROOT], seconds[args.other.resolve()]


def run_case(name: str, args: TwoCheckouts, paths: dict[str, Path], checkout: Path) -> Seconds:
    """Run a case in a checkout."""
    subprocess.run(["rm", "-rf", str(paths["NEW"])], check=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    if name in PROGRAMS:
        output = run_process(
            [sys.executable, "-c", PROGRAMS[name], str(paths["MODEL"]), str(paths["TEXT"])], checkout, args.threads
        )
        clock = float(output.split()[-1])
    else:
        words = [str(paths.get(word, word)) for word in spelled(COMMANDS[name], checkout)]
        run_process([sys.executable, "-m", "albert", *words], checkout, args.threads)
        clock = time.perf_counter() - began
        journal = paths["NEW"] / "journal.jsonl"
        if journal.exists():
            lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
            clock = next(line["seconds"] for line in lines if line["event"] == "end")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Seconds(clock, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def run_process(command: list[str], checkout: Path, threads: int) -> str:
    """Run a command with the package of a checkout; what it printed. A failure raises with its last lines."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "OMP_NUM_THREADS": str(threads)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users have the bytecode of both
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{checkout}: {' '.join(command)[:300]} ended with {done.returncode}: {done.stderr[-600:]}")
    return done.stdout


main = harness.script(TwoCheckouts, COLUMNS, measure)

if __name__ == "__main__":
    main()
