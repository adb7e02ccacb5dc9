"""Kill pre-training runs with SIGKILL, again and again, and see whether they end as the run that nobody killed.

Each run is killed in every phase of its work: while it starts, in an update, in a save, while an old checkpoint goes,
in an evaluation; then it goes on to its end. Its final weights, moments and journal are compared, byte for byte, with
those of the undisturbed run. Every start is a process of its own, forked from one that has imported everything. Prints
kills by the phase that they met, and appends a row to a CSV.

    python benchmarks/random_kills.py --data corpus --kills 200
"""

import csv
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.pretraining.killable_runs import PHASES, ForkServer, Killer, final_files, told

from albert.cli.command_line import parse
from albert.model.config import AlbertConfig
from albert.optim.schedule import ScheduleRecipe
from albert.pretraining.recipes import PretrainingRecipe
from albert.pretraining.samples import SequenceRecipe
from albert.runtime.devices import describe_machine
from albert.runtime.progress import progress
from albert.runtime.strict_json import save_json

STEPS_LOST = 16
"""Most updates that a run comes forward while it is killed once in each phase."""


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Kill runs and compare how they end.

    Example: python benchmarks/random_kills.py --data corpus --kills 200
    """

    data: Path
    """What `albert prepare` wrote."""
    kills: int = 200
    kills_of_a_run: int = 25
    workers: int = 0
    """Processes that make batches, which die with their parent."""
    seed: int = 0
    """Where the moments come from."""
    output: Path = Path("results/benchmark-random-kills.csv")


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "random_kills.py")
    draws = random.Random(asked.seed)
    died_in: Counter[str] = Counter()
    runs = identical = 0
    with tempfile.TemporaryDirectory() as place:
        words = _words(asked, Path(place))
        server = ForkServer(Path(place))
        undisturbed = server.start([*words, "--output", f"{place}/undisturbed"])
        _finish(undisturbed)
        expected = final_files(Path(place) / "undisturbed"), told(Path(place) / "undisturbed")
        killer = Killer(server, undisturbed, draws)
        with progress("Killing", asked.kills, "kills") as bar:
            while died_in.total() < asked.kills:
                run = Path(place) / f"run-{runs}"
                for turn in range(min(asked.kills_of_a_run, asked.kills - died_in.total())):
                    met = killer.start_and_kill([*words, "--output", str(run)], PHASES[turn % len(PHASES)])
                    assert met is not None, "a run ended before it was killed"
                    died_in[met] += 1
                    bar.advance()
                _finish(server.start([*words, "--output", str(run)]))
                runs += 1
                identical += (final_files(run), told(run)) == expected
        server.close()
    _report(asked, died_in, runs, identical)


def _words(asked: Benchmark, place: Path) -> list[str]:
    """The command, without its output."""
    model = AlbertConfig(
        embedding_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        hidden_dropout_prob=0.1,
        attention_probs_dropout_prob=0.1,
    )
    recipe = PretrainingRecipe(
        model=model,
        sequences=SequenceRecipe(max_length=32),
        schedule=ScheduleRecipe(total_steps=STEPS_LOST * (asked.kills_of_a_run // len(PHASES) + 1), warmup_steps=3),
        batch_size=8,
        micro_batch_size=4,
        checkpoint_every=2,
        evaluate_every=3,
        evaluation_sequences=24,
        log_every=4,
        workers=asked.workers,
    )
    save_json(place / "recipe.json", recipe)
    return ["pretrain", str(place / "recipe.json"), "--data", str(asked.data.absolute()), "--device", "cpu"]


def _finish(run) -> None:
    assert run.finish() == 0, run.printed


def _report(asked: Benchmark, died_in: Counter[str], runs: int, identical: int) -> None:
    machine = describe_machine()
    met = ", ".join(f"{phase} {count}" for phase, count in sorted(died_in.items()))
    print(f"{died_in.total()} kills ({met}); {identical} of {runs} runs ended as the undisturbed one")
    new = not asked.output.exists()
    with open(asked.output, "a", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        if new:
            writer.writerow(["date", "processor", "torch", "workers", "kills", "killed_in", "runs", "identical"])
        writer.writerow([time.strftime("%Y-%m-%d"), machine["processor"], machine["torch"], asked.workers,
                         died_in.total(), met, runs, identical])  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
