"""Fine-tuning and evaluation beside transformers' Trainer: the same weights, token ids, precision and optimiser.

Two kinds of lengths: sentences of SST-2 as long as they are, and questions of SQuAD whose contexts are filled up with
the contexts that follow, all of 384 tokens. Trainer pads each batch to its longest, and as a second peer groups like
lengths together; at one length there is nothing to group. Both systems take turns within one process, in every round
over other examples, and ratios are taken within a round. Before anything is measured, the logits of both are compared:
the work is the same. Trainer needs `accelerate`.

    python benchmarks/finetuning_speed.py --data data data/glue --tokenizer tokenizer --rounds 5
"""

import albert  # noqa: F401 (before torch, which reads how its threads wait when it is loaded)

# isort: split
import itertools
import statistics
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Literal

import numpy as np
from finetuning_systems import GROUPED, OURS, TRAINER, Lengths, Setting
from harness import append_rows
from rich.console import Console
from rich.table import Table
from task_files import find_files
from transformers.utils import logging

from albert.checkpoints.model_directory import save_model_directory
from albert.cli.options import parse
from albert.finetuning.model import head_description
from albert.model.albert import AlbertForQuestionAnswering, AlbertForSequenceClassification
from albert.model.config import PRESETS, AlbertConfig
from albert.runtime.devices import pick_device, seed_torch
from albert.runtime.environment import Precision
from albert.runtime.errors import CheckFailed
from albert.runtime.progress import progress
from albert.tasks.examples import Example, span_features, text_features
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer

SENTENCES, QUESTIONS = "sst-2", "squad-1.1"
FIXED_LENGTH = 384
LARGEST_DIFFERENCE = {"fp32": 1e-4, "bf16": 0.1}
"""Between logits of both; bf16 keeps eight bits."""
COLUMNS = (
    "shape", "lengths", "mean_tokens", "precision", "work", "batch_size", "peer", "albert_examples_per_second",
    "trainer_examples_per_second", "ratio", "least", "most", "rounds", "versions",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """Compare fine-tuning and evaluation.

    Example: python benchmarks/finetuning_speed.py --data data/glue data --tokenizer tokenizer --preset albert-base
    """

    data: tuple[Path, ...]
    """Folders of task files."""
    files: tuple[str, ...] = ()
    """TASK/SPLIT=FILE: a file in the place of the published one."""
    tokenizer: Path
    """A tokenizer or a model directory."""
    preset: str | None = None
    """Sizes of a preset, with the tokenizer's vocabulary, in place of hidden_size and layers."""
    hidden_size: int = 256
    layers: int = 4
    lengths: tuple[Literal["sst-2", "384"], ...] = ("sst-2", "384")
    precisions: tuple[Precision, ...] = ("fp32", "bf16")
    steps: int = 20
    """Steps of a round that count."""
    batch_sizes: tuple[int, int] = (32, 16)
    """Examples of a step: of sentences, and of sequences of 384 tokens."""
    evaluated: tuple[int, int] = (872, 128)
    """Examples of a round's evaluation."""
    rounds: int = 5
    """Rounds that are measured, after one that warms up."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    output: Path = Path("results/benchmark-finetuning-speed.csv")


@dataclass(frozen=True)
class Case:
    """What is measured at a time."""

    data: Lengths
    setting: Setting
    shape: str
    evaluated: int

    @property
    def systems(self) -> tuple[str, ...]:
        """Ours, and those of the peer that differ here."""
        return (OURS, TRAINER) if self.data.is_fixed else (OURS, TRAINER, GROUPED)


def main(arguments: list[str]) -> None:
    """Run and report."""
    asked = parse(Benchmark, arguments, "finetuning_speed.py")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", message=".*(lr_scheduler|use_return_dict).*")
    tokenizer = load_tokenizer(asked.tokenizer)
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        cases = list(_cases(asked, tokenizer, Path(folder)))
        for case in cases:
            _refuse_other_work(case)
        with progress("Measuring", (asked.rounds + 1) * len(cases), "rounds") as bar:
            for case in cases:
                rows += _rows(case, asked, bar.advance)
    append_rows(asked.output, COLUMNS, rows)
    _show(rows)


def _cases(asked: Benchmark, tokenizer: Tokenizer, folder: Path) -> Iterator[Case]:
    device = pick_device(asked.device).type
    config = AlbertConfig(
        hidden_size=asked.hidden_size,
        num_hidden_layers=asked.layers,
        num_attention_heads=max(1, asked.hidden_size // 64),
        intermediate_size=4 * asked.hidden_size,
    )
    config = replace(PRESETS[asked.preset] if asked.preset else config, vocab_size=tokenizer.vocab_size)
    config = replace(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, classifier_dropout_prob=0.1)
    shape = f"H{config.hidden_size} L{config.num_hidden_layers}"
    for place, name in enumerate(("sst-2", "384")):
        if name not in asked.lengths:
            continue
        found = find_files(SENTENCES if name == "sst-2" else QUESTIONS, asked.data, asked.files)
        needed = max((asked.steps + 1) * asked.batch_sizes[place], asked.evaluated[place]) * (asked.rounds + 1)
        examples = found.examples("train")
        data = sentences(examples[:needed], tokenizer) if name == "sst-2" else questions(examples, tokenizer, needed)
        seed_torch("benchmark", place)
        model = AlbertForSequenceClassification(config, 2) if name == "sst-2" else AlbertForQuestionAnswering(config)
        directory = folder / name
        extra = head_description(found.task, found.task.recipe, None)
        save_model_directory(directory, model, asked.tokenizer, extra=extra)
        for precision in asked.precisions:
            setting = Setting(directory, asked.batch_sizes[place], 2 * asked.batch_sizes[place], precision, device)
            yield Case(data, setting, shape, asked.evaluated[place])


def sentences(examples: Sequence[Example], tokenizer: Tokenizer) -> Lengths:
    """Sentences as long as they are."""
    features = text_features(examples, tokenizer, 512)
    return Lengths("sst-2", "classification", features.sequences, features.targets)


def questions(examples: Sequence[Example], tokenizer: Tokenizer, wanted: int) -> Lengths:
    """Windows of exactly 384 tokens that hold the answer, at most so many.

    A context is filled up with those that follow, which keeps the places of its answers.
    """
    contexts = list(dict.fromkeys(example.texts[1] for example in examples))
    place_of = {context: place for place, context in enumerate(contexts)}
    longer = []
    for example in examples[: 2 * wanted]:
        question, context = example.texts
        place, text = place_of[context], context
        following = itertools.islice(itertools.cycle(contexts), place + 1, place + len(contexts))
        while len(text) < 8 * FIXED_LENGTH and (more := next(following, None)) is not None:
            text += " " + more
        longer.append(replace(example, texts=(question, text)))
    features = span_features(longer, tokenizer, FIXED_LENGTH, 64, 128)
    whole = (features.sequences.lengths == FIXED_LENGTH) & (features.targets[:, 0] >= 0)
    chosen = np.flatnonzero(whole)[:wanted]
    return Lengths("384", "question_answering", features.sequences.select(chosen), features.targets[chosen])


def _refuse_other_work(case: Case) -> None:
    """CheckFailed where the systems do not say the same to the same sequences."""
    few = case.data.part(0, 8)
    ours, theirs = (case.setting.seconds_of_evaluation(name, few)[1] for name in (OURS, TRAINER))
    difference = float(np.abs(ours - theirs).max())
    if not difference < LARGEST_DIFFERENCE[case.setting.precision]:
        raise CheckFailed(case.data.name, f"logits of both systems differ by {difference:.3g}")


def _rows(case: Case, asked: Benchmark, advance: Callable[[], None]) -> list[dict[str, object]]:
    """A row for each kind of work and each peer."""
    rates: dict[tuple[str, str], list[float]] = {}
    learnt = (asked.steps + 1) * case.setting.batch_size
    for number in range(asked.rounds + 1):
        training = case.data.part(number * learnt, learnt)
        evaluated = case.data.part(number * case.evaluated, case.evaluated)
        for name in case.systems if number % 2 else reversed(case.systems):
            seconds = case.setting.seconds_of_steps(name, training)
            rates.setdefault(("fine-tuning", name), []).append(asked.steps * case.setting.batch_size / seconds)
            seconds, _ = case.setting.seconds_of_evaluation(name, evaluated)
            rates.setdefault(("evaluation", name), []).append(case.evaluated / seconds)
        advance()
    measured = {what: found[1:] for what, found in rates.items()}
    return [_row(case, asked, work, peer, measured) for (work, peer) in measured if peer != OURS]


def _row(
    case: Case, asked: Benchmark, work: str, peer: str, rates: Mapping[tuple[str, str], list[float]]
) -> dict[str, object]:
    ours, theirs = rates[work, OURS], rates[work, peer]
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return {
        "shape": case.shape,
        "lengths": case.data.name,
        "mean_tokens": f"{case.data.sequences.lengths.mean():.1f}",
        "precision": case.setting.precision,
        "work": work,
        "batch_size": case.setting.batch_size * (2 if work == "evaluation" and peer != OURS else 1),
        "peer": peer,
        "albert_examples_per_second": f"{statistics.median(ours):.1f}",
        "trainer_examples_per_second": f"{statistics.median(theirs):.1f}",
        "ratio": f"{statistics.median(ratios):.2f}",
        "least": f"{min(ratios):.2f}",
        "most": f"{max(ratios):.2f}",
        "rounds": asked.rounds,
        "versions": f"transformers {version('transformers')}, accelerate {version('accelerate')}",
    }


def _show(rows: Sequence[Mapping[str, object]]) -> None:
    table = Table(*(name.replace("_", " ") for name in COLUMNS[:-1]), box=None)
    for row in rows:
        table.add_row(*(str(row[name]) for name in COLUMNS[:-1]))
    Console(width=200).print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
