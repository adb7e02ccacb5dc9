"""All there is to measure where a GPU is at hand, in order, within a time; the same command goes on where it stopped.

    python benchmarks/gpu_day.py --data corpus --output gpu --minutes 45
    python benchmarks/gpu_day.py --data corpus --output toy --toy          # the same on a CPU, at toy size, in minutes

Stages: the tests that need a GPU; pre-training steps of base and xxlarge at 128 and 512 beside transformers'; LAMB
beside torch's AdamW; tokens a second by `albert info --measure`; a run that is killed and resumed, which must end
bit-identical with --deterministic; and pre-training of ALBERT-base for the time that is left, whose weights (float16),
journal and scores are copied into OUTPUT/home. What a stage found is in
OUTPUT/stages.json before the next one begins; a finished stage is not run again, one that failed is reported and run
again by the same command.

Estimated on an H200, in minutes, most of it torch.compile (never run on one): corpus and tests 2, the four comparisons
with transformers 4 each, LAMB and throughput 2, kill and resume 4. That leaves 21 of 45 for ALBERT-base.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from albert.cli.options import parse
from albert.model.config import AlbertConfig
from albert.optim.recipe import ScheduleRecipe
from albert.pretraining.recipe import RECIPES, PretrainingRecipe
from albert.pretraining.sampling import PretrainingSamples
from albert.runtime.devices import describe_machine, pick_device
from albert.runtime.json_files import read_journal, save_json
from albert.runtime.manifest import file_hash, files_below
from albert.text.shards import TokenCorpus
from albert.training.run_folder import RunFolder
from albert.training.state import TENSORS_NAME

ROOT = Path(__file__).resolve().parents[1]
TESTS = ("tests/pretraining/test_fixed_shape.py", "tests/model/test_packing.py",
         "tests/model/test_cost.py")  # fmt: skip
SAVING_MINUTES = 3.0  # kept for evaluating, saving and copying at the end
TOY = AlbertConfig(embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                   max_position_embeddings=64)  # fmt: skip
BATCH_SIZES = {("albert-base", 128): 256, ("albert-base", 512): 64, ("albert-xxlarge", 128): 32}
"""Sequences of a step that 80 GB hold of transformers' padded model; otherwise 8."""


@dataclass(frozen=True, kw_only=True)
class Day:
    """Measure all there is on a GPU, and pre-train for the time that is left."""

    data: Path
    """What `albert prepare` wrote."""
    output: Path = Path("results/gpu")
    minutes: float = 45.0
    """Of the whole, from the first start."""
    toy: bool = False
    """On a CPU, with two layers of 32: to try the script."""
    stages: tuple[str, ...] = ()
    """Some of them; empty: all."""

    @property
    def device(self) -> torch.device:
        """Where to compute."""
        return pick_device("cpu" if self.toy else "cuda")


def main(arguments: list[str]) -> int:
    """Run what is left to run; 1 where a stage failed."""
    asked = parse(Day, arguments, "gpu_day.py")
    asked.output.mkdir(parents=True, exist_ok=True)
    record_path = asked.output / "stages.json"
    record = json.loads(record_path.read_text()) if record_path.exists() else {"began": time.time(), "stages": {}}
    failed = False
    for name, stage in STAGES.items():
        if record["stages"].get(name, {}).get("done") or (asked.stages and name not in asked.stages):
            continue
        left = asked.minutes - (time.time() - record["began"]) / 60
        print(f"gpu_day: {name}, {left:.1f} minutes left", flush=True)
        started = time.monotonic()
        try:
            found, why = stage(asked, left), None
        except Exception as error:  # whatever it is: the other stages are still to be measured
            found, why, failed = None, f"{type(error).__name__}: {error}"[:2000], True
            print(f"gpu_day: {name} failed: {why}", flush=True)
        seconds = time.monotonic() - started
        record["stages"][name] = {"done": why is None, "seconds": seconds, "found": found, "why": why}
        record["machine"] = describe_machine()
        save_json(record_path, record)
    return int(failed)


def call(asked: Day, name: str, *words: object, minutes: float = 12.0) -> str:
    """What a command prints, which is kept beside; a failure raises."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60 * minutes)
    (asked.output / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout


def corpus(asked: Day, _: float) -> object:
    """The corpus, opened and packed once, so that its damage is found first."""
    found = TokenCorpus.open(asked.data, "train", verify=True)
    recipe = recipe_of(asked, 10)
    samples = PretrainingSamples(found, recipe.sequences, recipe.masking, recipe.seed)
    return {"tokens": found.n_tokens, "sequences": samples.per_epoch, "device": str(asked.device)}


def tests(asked: Day, _: float) -> object:
    """The tests that need a GPU, and those of the same path beside them."""
    only = ("-k", "gpu") if asked.toy else ()
    return call(asked, "tests", "-m", "pytest", "-q", "-rs", *TESTS, *only).splitlines()[-1]


def table_of(asked: Day, name: str, script: str, *words: object) -> object:
    """The rows of another benchmark."""
    table = asked.output / f"{name}.csv"
    call(asked, name, f"benchmarks/{script}.py", *words, "--output", table.resolve())
    return table.read_text(encoding="utf-8").splitlines()


def beside_transformers(preset: str, length: int, asked: Day, _: float) -> object:
    """Pre-training steps."""
    words: list[object] = ["--data", asked.data.resolve(), "--lengths", length]
    if asked.toy:
        words += ["--device", "cpu", "--fixed-shape", "True", "--compiler", "none", "--batch-size", 2, "--rounds", 1,
                  "--precisions", "fp32", "--systems", "sdpa", "--layers", 1, "--hidden-size", 64]  # fmt: skip
    else:
        words += ["--preset", preset, "--device", "cuda", "--batch-size", BATCH_SIZES.get((preset, length), 8),
                  "--rounds", 10, "--precisions", "bf16",
                  "--systems", "compiled", "sdpa", "eager", "cuda-graphs"]  # fmt: skip
    return table_of(asked, f"pretraining-{preset}-{length}", "pretraining_step", *words)


def lamb(asked: Day, _: float) -> object:
    """An update of all parameters, by LAMB and by torch's fused AdamW."""
    models = ("albert-base",) if asked.toy else ("albert-base", "albert-xxlarge")
    return table_of(asked, "lamb", "lamb_step", "--models", *models, "--device", asked.device.type)


def throughput(asked: Day, _: float) -> object:
    """Tokens a second of inference and training, as users ask for them."""
    model = "models/tiny" if asked.toy else "albert-base"
    return call(asked, "throughput", "-m", "albert", "info", model, "--measure").splitlines()


def recipe_of(asked: Day, steps: int, **changes: object) -> PretrainingRecipe:
    """ALBERT-base, or the toy, for so many updates."""
    recipe = replace(RECIPES["one-gpu"], schedule=ScheduleRecipe(total_steps=steps, warmup_steps=steps // 10))
    if asked.toy:
        small = replace(recipe.sequences, max_length=64)
        recipe = replace(recipe, model=TOY, sequences=small, batch_size=8, micro_batch_size=4, precision="fp32",
                         fixed_shape=True, workers=0, evaluation_sequences=20)  # fmt: skip
    return replace(recipe, **changes)


def pretrain(asked: Day, name: str, recipe: PretrainingRecipe, run: Path) -> list[object]:
    """The words of `albert pretrain`."""
    path = asked.output / f"{name}.json"
    save_json(path, recipe)
    words = ["--data", asked.data.resolve(), "--output", run.resolve(), "--device", asked.device.type]
    return ["-m", "albert", "pretrain", path.resolve(), *words]


def kill_and_resume(asked: Day, _: float) -> object:
    """Bytes of the last checkpoint of a run that was killed, and of one that was not."""
    sums = {}
    recipe = recipe_of(asked, 40, deterministic=True, checkpoint_every=10, log_every=5, evaluate_every=40)
    for name in ("whole", "killed"):
        run = asked.output / f"resume-{name}"
        shutil.rmtree(run, ignore_errors=True)
        words = pretrain(asked, "resume", recipe, run)
        if name == "killed":
            silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen([sys.executable, *map(str, words)], cwd=ROOT, **silent)
            while process.poll() is None and not any(step >= 10 for step, _ in RunFolder(run).checkpoints()):
                time.sleep(0.02)
            process.kill()
            ended = process.wait()
            assert ended == -signal.SIGKILL, f"the run to be killed ended by itself, with {ended}"
        call(asked, f"resume-{name}", *words)
        sums[name] = file_hash(RunFolder(run).checkpoints()[-1][1] / TENSORS_NAME)
    assert sums["whole"] == sums["killed"], f"the resumed run ended with other numbers: {sums}"
    return sums


def base(asked: Day, left: float) -> object:
    """ALBERT-base on the whole corpus for the time that is left; weights, journal and scores go to OUTPUT/home."""
    minutes = 0.05 if asked.toy else left - SAVING_MINUTES
    assert minutes > 0, f"{left:.1f} minutes are left, more than {SAVING_MINUTES} are needed"
    recipe = recipe_of(asked, 200_000, max_minutes=minutes, evaluate_every=1000, checkpoint_minutes=5.0)
    # About as many updates as the time allows, of which the warm-up is a twentieth.
    recipe = replace(recipe, schedule=replace(recipe.schedule, warmup_steps=200, anneal="budget"))
    run, home = asked.output / "base", asked.output / "home"
    call(asked, "base", *pretrain(asked, "base", recipe, run), minutes=minutes + 10)
    home.mkdir(exist_ok=True)
    for name in ("journal.jsonl", "recipe.json"):
        shutil.copy(run / name, home / name)
    half = ["--dtype", "float16", "--output", (home / "model").resolve(), "--replace"]
    call(asked, "float16", "-m", "albert", "convert", (run / "model").resolve(), *half)
    scores = [line for line in read_journal(run / "journal.jsonl") if line["event"] == "evaluation"]
    return {"scores": scores[-1:], "files": files_below(home)}


STAGES: dict[str, Callable[[Day, float], object]] = {
    "corpus": corpus,
    "tests": tests,
    "base-512": partial(beside_transformers, "albert-base", 512),
    "base-128": partial(beside_transformers, "albert-base", 128),
    "xxlarge-512": partial(beside_transformers, "albert-xxlarge", 512),
    "xxlarge-128": partial(beside_transformers, "albert-xxlarge", 128),
    "lamb": lamb,
    "throughput": throughput,
    "kill and resume": kill_and_resume,
    "base": base,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
