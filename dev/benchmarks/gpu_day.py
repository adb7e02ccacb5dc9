"""All measurements that need a GPU, within a time limit; the same command continues a stopped run.

    python dev/benchmarks/gpu_day.py --data corpus --output gpu --minutes 45
    python dev/benchmarks/gpu_day.py --data corpus --output toy --toy  # the same on a CPU, at toy size

Stages: the tests that need a GPU; pre-training steps of base and xxlarge at 128 and 512 and transformers'; LAMB
and torch's AdamW; tokens per second by `albert info --measure`; a run that is killed and resumed, which must end
bit-identical with --deterministic; and pre-training of ALBERT-base for the time that is left, whose weights (float16),
journal and scores are copied into OUTPUT/home. The result of each stage is written to OUTPUT/stages.json. The same
command skips finished stages and repeats failed ones.

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

from albert.cli.command_line import parse
from albert.cli.main import run
from albert.pretraining.sampling import PretrainingSamples
from albert.recipes.architecture import EncoderConfig
from albert.recipes.pretraining import RECIPES, PretrainingRecipe, ScheduleRecipe
from albert.runtime.devices import describe_machine, pick_device
from albert.runtime.json_files import read_journal, save_json, save_versioned
from albert.runtime.manifest import file_hash, files_below
from albert.text.shards import TokenCorpus
from albert.training.run_folder import RunFolder
from albert.training.state import TENSORS_NAME

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/pretraining/test_fixed_shape.py", "tests/model/test_packing.py",
         "tests/inference/test_on_a_gpu.py")  # fmt: skip
SAVING_MINUTES = 3.0  # reserved for evaluating, saving and copying at the end
TOY = EncoderConfig(embedding_size=16, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                   max_position_embeddings=64)  # fmt: skip
BATCH_SIZES = {("albert-base", 128): 256, ("albert-base", 512): 64, ("albert-xxlarge", 128): 32}
"""Sequences of a step that fit into 80 GB with transformers' padded model; otherwise 8."""


@dataclass(frozen=True, kw_only=True)
class Day:
    """Measure on a GPU, and pre-train for the remaining time."""

    data: Path
    """A prepared corpus."""
    output: Path = Path("results/gpu")
    minutes: float = 45.0
    """In total, from the first start."""
    toy: bool = False
    """On a CPU with two layers of 32, to try the script."""
    memory: bool = True
    """Also measure the peak memory of pre-training steps, which compiles each system again."""
    stages: tuple[str, ...] = ()
    """Stages to run; empty: all."""

    @property
    def device(self) -> torch.device:
        """Where to compute."""
        return pick_device("cpu" if self.toy else "cuda")


def main(arguments: list[str]) -> int:
    """Run the remaining stages; 1 if one failed."""
    args = parse(Day, arguments, "gpu_day.py")
    args.output.mkdir(parents=True, exist_ok=True)
    record_path = args.output / "stages.json"
    record = json.loads(record_path.read_text()) if record_path.exists() else {"began": time.time(), "stages": {}}
    failed = False
    for name, stage in STAGES.items():
        if record["stages"].get(name, {}).get("done") or (args.stages and name not in args.stages):
            continue
        left = args.minutes - (time.time() - record["began"]) / 60
        print(f"gpu_day: {name}, {left:.1f} minutes left", flush=True)
        started = time.monotonic()
        try:
            result, why = stage(args, left), None
        except Exception as error:  # any error: the other stages are still measured
            result, why, failed = None, f"{type(error).__name__}: {error}"[:2000], True
            print(f"gpu_day: {name} failed: {why}", flush=True)
        seconds = time.monotonic() - started
        record["stages"][name] = {"done": why is None, "seconds": seconds, "found": result, "why": why}
        record["machine"] = describe_machine()
        save_json(record_path, record)
    return int(failed)


def call(args: Day, name: str, *words: object, minutes: float = 12.0) -> str:
    """Run a command: its output, which is also written to a log; a failure raises."""
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60 * minutes)
    (args.output / f"{name}.log").write_text(done.stdout + done.stderr, encoding="utf-8")
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {(done.stdout + done.stderr)[-600:]}")
    return done.stdout


def corpus(args: Day, _: float) -> object:
    """Open and pack the corpus once, so that damage is found first."""
    corpus = TokenCorpus.open(args.data, "train", verify=True)
    recipe = recipe_of(args, 10)
    samples = PretrainingSamples(corpus, recipe.sequences, recipe.masking, recipe.seed)
    return {"tokens": corpus.n_tokens, "sequences": samples.per_epoch, "device": str(args.device)}


def tests(args: Day, _: float) -> object:
    """Run the tests that need a GPU."""
    return call(args, "tests", "-m", "pytest", "-q", "-rs", *TESTS, "-k", "gpu").splitlines()[-1]


def table_of(args: Day, name: str, script: str, *words: object) -> object:
    """Run another benchmark: its rows."""
    table = args.output / f"{name}.csv"
    call(args, name, f"dev/benchmarks/{script}.py", *words, "--output", table.resolve())
    return table.read_text(encoding="utf-8").splitlines()


def pretraining_steps(preset: str, length: int, args: Day, _: float) -> object:
    """Pre-training steps of ours and of transformers."""
    words: list[object] = ["--data", args.data.resolve(), "--lengths", length]
    if args.toy:
        words += ["--device", "cpu", "--fixed-shape=true", "--compiler", "none", "--batch-size", 2, "--rounds", 1,
                  "--precisions", "fp32", "--systems", "sdpa", "--layers", 1, "--hidden-size", 64]  # fmt: skip
    else:
        words += ["--preset", preset, "--device", "cuda", "--batch-size", BATCH_SIZES.get((preset, length), 8),
                  "--rounds", 10, "--precisions", "bf16", "--memory", args.memory,
                  "--systems", "compiled", "sdpa", "eager", "cuda-graphs"]  # fmt: skip
    return table_of(args, f"pretraining-{preset}-{length}", "pretraining_step", *words)


def lamb(args: Day, _: float) -> object:
    """An update of all parameters, by LAMB and by torch's fused AdamW."""
    models = ("albert-base",) if args.toy else ("albert-base", "albert-xxlarge")
    return table_of(args, "lamb", "lamb_step", "--models", *models, "--device", args.device.type)


def throughput(args: Day, _: float) -> object:
    """Tokens per second of inference and training, by `albert info --measure`."""
    model = "models/tiny" if args.toy else "albert-base"
    return call(args, "throughput", "-m", "albert", "info", model, "--measure").splitlines()


def recipe_of(args: Day, steps: int, **changes: object) -> PretrainingRecipe:
    """ALBERT-base, or the toy model, for `steps` updates."""
    recipe = replace(RECIPES["one-gpu"], schedule=ScheduleRecipe(total_steps=steps, warmup_steps=steps // 10))
    if args.toy:
        small = replace(recipe.sequences, max_length=64)
        recipe = replace(recipe, model=TOY, sequences=small, batch_size=8, micro_batch_size=4, precision="fp32",
                         fixed_shape=True, workers=0, evaluation_sequences=20)  # fmt: skip
    return replace(recipe, **changes)


def pretrain(args: Day, name: str, recipe: PretrainingRecipe, run: Path) -> list[object]:
    """The arguments of `albert pretrain`."""
    path = args.output / f"{name}.json"
    save_versioned(path, recipe)
    words = ["--data", args.data.resolve(), "--output", run.resolve(), "--device", args.device.type]
    return ["-m", "albert", "pretrain", path.resolve(), *words]


def kill_and_resume(args: Day, _: float) -> object:
    """Hashes of the last checkpoints of a killed and resumed run and of an uninterrupted one, which must be equal."""
    sums = {}
    recipe = recipe_of(args, 40, deterministic=True, checkpoint_every=10, log_every=5, evaluate_every=40)
    for name in ("whole", "killed"):
        run = args.output / f"resume-{name}"
        shutil.rmtree(run, ignore_errors=True)
        words = pretrain(args, "resume", recipe, run)
        if name == "killed":
            silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen([sys.executable, *map(str, words)], cwd=ROOT, **silent)
            while process.poll() is None and not any(step >= 10 for step, _ in RunFolder(run).checkpoints()):
                time.sleep(0.02)
            process.kill()
            ended = process.wait()
            assert ended == -signal.SIGKILL, f"the run to be killed ended by itself, with {ended}"
        call(args, f"resume-{name}", *words)
        sums[name] = file_hash(RunFolder(run).checkpoints()[-1][1] / TENSORS_NAME)
    assert sums["whole"] == sums["killed"], f"the resumed run ended with other numbers: {sums}"
    return sums


def base(args: Day, left: float) -> object:
    """Pre-train ALBERT-base for the remaining time; weights, journal and scores are copied to OUTPUT/home."""
    minutes = 0.05 if args.toy else left - SAVING_MINUTES
    assert minutes > 0, f"{left:.1f} minutes are left, more than {SAVING_MINUTES} are needed"
    recipe = recipe_of(args, 200_000, max_minutes=minutes, evaluate_every=1000, checkpoint_minutes=5.0)
    # About as many updates as the time allows, of which the warm-up is a twentieth.
    recipe = replace(recipe, schedule=replace(recipe.schedule, warmup_steps=200, anneal="budget"))
    run, home = args.output / "base", args.output / "home"
    call(args, "base", *pretrain(args, "base", recipe, run), minutes=minutes + 10)
    home.mkdir(exist_ok=True)
    for name in ("journal.jsonl", "recipe.json"):
        shutil.copy(run / name, home / name)
    half = ["--dtype", "float16", "--output", (home / "model").resolve(), "--replace"]
    call(args, "float16", "-m", "albert", "convert", (run / "model").resolve(), *half)
    scores = [line for line in read_journal(run / "journal.jsonl") if line["event"] == "evaluation"]
    return {"scores": scores[-1:], "files": files_below(home)}


STAGES: dict[str, Callable[[Day, float], object]] = {
    "corpus": corpus,
    "tests": tests,
    "base-512": partial(pretraining_steps, "albert-base", 512),
    "base-128": partial(pretraining_steps, "albert-base", 128),
    "xxlarge-512": partial(pretraining_steps, "albert-xxlarge", 512),
    "xxlarge-128": partial(pretraining_steps, "albert-xxlarge", 128),
    "lamb": lamb,
    "throughput": throughput,
    "kill and resume": kill_and_resume,
    "base": base,
}

if __name__ == "__main__":
    sys.exit(run(command=main))
