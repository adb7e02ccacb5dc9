"""Files that wait for ever, lead to themselves, grow when read, or changed meanwhile; a part of `strangers`."""

import os
import random
import re
import resource
import shutil
from pathlib import Path

from reliability.broken_disks import what_is_wrong
from reliability.durable_calls import Fault
from reliability.hostile_case import Hostile, Place
from reliability.hostile_files import refused
from reliability.killable_runs import ForkServer, Run
from reliability.report import CHECKOUT
from reliability.scene import Scene
from reliability.small_material import small_material
from reliability.trial import Checks

MODEL = str(CHECKOUT / "models" / "tiny")
ROWS = 10_000
GROWING = "\ufdfa" * 10**6
"""One character of it becomes 18 when it is normalised."""
MEGABYTES = 300


def _door(name: str, command: str, pipe: str, says: str = "is a pipe") -> Hostile:
    def make(place: Place) -> None:
        place.write("text/a.txt", "It was a day.")
        if pipe.startswith("m/"):
            place.model()
            (place.here / pipe).unlink()
        (place.here / pipe).parent.mkdir(exist_ok=True)
        os.mkfifo(place.here / pipe)

    return Hostile(f"a pipe as {name}", make, command, 66, says, ("out", "out.jsonl"))


TABLES = "finetune --train {here}/pipe.csv --dev {here}/pipe.csv --text a --label b --model {model} --output {here}/out"
DOORS = (
    _door(
        "the input of predict", "predict {model} --task embed --input {here}/in.txt --output {here}/out.jsonl", "in.txt"
    ),
    _door("text", "prepare {here}/text --tokenizer {tokenizer} --output {here}/out", "text/b.txt"),
    _door("a table", TABLES, "pipe.csv"),
    _door("a task file", "finetune --task-file {here}/pipe.json --model {model} --output {here}/out", "pipe.json"),
    _door("a recipe", "pretrain {here}/pipe.json --data {corpus} --output {here}/out", "pipe.json"),
    _door("a vocabulary", "tokenizer encode word --tokenizer {here}/t", "t/tokenizer.json"),
    _door("a configuration", "convert {here}/m --output {here}/out", "m/config.json"),
    _door("weights", "convert {here}/m --output {here}/out", "m/model.safetensors", "holds no model.safetensors"),
)
"""Where files are read, each with a pipe in the place of one; nobody writes to it."""


def odd_files(forks: ForkServer, folder: Path, draws: random.Random) -> Checks:
    """Pipes, a folder that leads to itself, a text that grows, a full disk, and files that changed meanwhile."""
    scene, tries = Scene(folder / "scene"), folder / "tries"
    for part in ("pretrained", "classifier", "tokenizer", "corpus"):
        getattr(scene, part)
    for case in DOORS:
        _, wrong = refused((case,), scene, folder)
        yield case.name, "; ".join(wrong)
    for what, check in (
        ("a text that grows 18-fold", lambda: _with_a_growing_text(forks, tries / "grows", scene)),
        ("a folder that leads to itself", lambda: _prepared(forks, tries / "circle", scene)),
        ("a full disk", lambda: _on_a_full_disk(forks, tries / "disk", draws)),
        ("a changed digit in rows so far", lambda: _with_a_changed_digit(forks, tries / "rows", scene)),
        ("a changed development set", lambda: _with_another_dev_set(forks, tries / "dev", scene)),
    ):
        yield what, check()


def _with_a_growing_text(forks: ForkServer, place: Path, scene: Scene) -> str:
    place.mkdir()
    (place / "in.txt").write_text(GROWING, encoding="utf-8")
    words = ["predict", str(scene.pretrained), "--task", "embed", "--input", str(place / "in.txt"), "--device", "cpu"]
    done = forks.start([*words, "--output", str(place / "out.jsonl")])
    pages = int(Path(f"/proc/{done.process}/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + (MEGABYTES << 20)
    resource.prlimit(done.process, resource.RLIMIT_AS, (most, most))
    return "" if done.finish() == 0 else f"exit code {done.code}: {done.printed[-300:]!r}"


def _prepared(forks: ForkServer, place: Path, scene: Scene) -> str:
    shutil.copytree(scene.text, place / "text")
    (place / "text" / "self").symlink_to(".")
    words = ["prepare", str(place / "text"), "--tokenizer", str(scene.tokenizer), "--output", str(place / "out")]
    done = forks.start([*words, "--workers", "1"])
    if done.finish() != 0:
        return f"exit code {done.code}: {done.printed[-300:]!r}"
    return "" if "met again by another path" in done.printed else "the link is not counted"


def _on_a_full_disk(forks: ForkServer, place: Path, draws: random.Random) -> str:
    def converted(output: Path, fault: Fault) -> Run:
        output.parent.mkdir(parents=True)
        return forks.start(["convert", MODEL, "--output", str(output)], fault=fault)

    log = place.with_suffix(".calls")
    converted(place / "whole" / "out", Fault(below=str(place), log=str(log))).finish()
    writes = [number for number, call in enumerate(log.read_text().splitlines()) if call.startswith("write ")]
    output = place / "full" / "out"
    number = draws.choice(writes)
    met = converted(output, Fault(below=str(output.parent), number=number, what="ENOSPC"))
    wrong = "; ".join(what_is_wrong(met, output))
    named = re.search(rf"albert: error: {re.escape(str(output))}/[\w.]+: No space left", met.printed)
    return wrong or ("" if named and met.code == 74 else f"call {number}, exit code {met.code}: {met.printed[-300:]!r}")


def _with_a_changed_digit(forks: ForkServer, place: Path, scene: Scene) -> str:
    place.mkdir()
    given = place / "in.jsonl"
    given.write_text("".join(f'{{"id": {n}, "text": "The ship saw {"it " * (n % 9)}."}}\n' for n in range(ROWS)))
    words = ["predict", str(scene.classifier), "--input", str(given), "--device", "cpu", "--precision", "fp32"]
    whole, output = place / "whole.jsonl", place / "out.jsonl"
    rows = place / "out.jsonl.partial" / "rows"
    first = forks.start([*words, "--output", str(whole)])
    if first.finish() != 0:
        return f"exit code {first.code}: {first.printed[-300:]!r}"
    dies = Fault(below=str(place), call=f"link {rows}")  # all rows are there, and have not got their name
    forks.start([*words, "--output", str(output)], fault=dies).finish()
    if not rows.exists():
        return "it died without rows that could be changed"
    content = rows.read_bytes()
    digit = re.search(rb"0\.(\d)", content)
    assert digit is not None
    rows.write_bytes(content[: digit.start(1)] + b"%d" % ((int(digit[1]) + 1) % 10) + content[digit.end(1) :])
    again = forks.start([*words, "--output", str(output)])
    if again.finish() != 0 or "predicted anew" not in again.printed:
        return f"exit code {again.code}, and nothing said of the digit: {again.printed[-300:]!r}"
    return "" if output.read_bytes() == whole.read_bytes() else "the rows are not those of the undisturbed command"


def _with_another_dev_set(forks: ForkServer, place: Path, scene: Scene) -> str:
    material = small_material(place)
    words = material.finetune(scene.pretrained, place / "run")
    stopped = forks.start(words, stand_still="after-save 1")
    stopped.wait_until(lambda: "after-save" in [what for _, what in stopped.told])
    stopped.kill()
    dev = place / "dev.jsonl"
    dev.write_text("".join(dev.read_text().splitlines(keepends=True)[:-1]))
    again = forks.start(words)
    refused = again.finish() == 78 and "another development set" in again.printed
    return "" if refused else f"exit code {again.code}: {again.printed[-300:]!r}"
