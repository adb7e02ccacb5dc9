"""The stages of the quickstart: text, vocabulary, shards, pre-training, fine-tuning, answers.

A stage whose output exists is skipped, so an interrupted quickstart continues."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from albert.columns.read import declare_custom_task
from albert.commands.sample import AUTHORS, labelled_passages, split_chapters, write_passages, write_text_corpus
from albert.finetuning.initial_model import PretrainedEncoder
from albert.finetuning.task_run import finetune
from albert.finetuning.task_training import FinetuningResult
from albert.inference.predictor import Predictor
from albert.pretraining.run import PretrainingResult, pretrain
from albert.recipes.finetuning import FinetuningSettings, TaskRecipe
from albert.recipes.pretraining import RECIPES
from albert.report.curves import read_runs
from albert.runtime.devices import describe_machine
from albert.runtime.errors import Unavailable
from albert.runtime.files import new_directory
from albert.runtime.json_files import save_json
from albert.text.corpus import read_corpus
from albert.text.executors import PreparationSettings
from albert.text.prepare import prepare
from albert.text.sentencepiece import train_tokenizer
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer

QUICKSTART = RECIPES["quickstart"]
PIECES = QUICKSTART.model.vocab_size
AUTHORSHIP = TaskRecipe(learning_rate=2e-3, batch_size=32, epochs=3.0, warmup_share=0.1, max_length=128)
"""Settings for a network of this size."""

BUNDLED_MODEL = "tiny"
BUNDLED_TOKENS = 65_597_407
"""Tokens that it was trained on, as its card says."""
"""The model in the package, for comparison: pre-trained on 66 million tokens, the quickstart's on two million."""
FILL_MASKS = ("It was a very [MASK] thing to say.", "He opened the [MASK] and went into the house.")
PASSAGE = (
    "The birds of these islands differ from those of the mainland, yet each kind is plainly allied to one that lives "
    "there; and it is by such slight, successive changes, I believe, that species have been modified."
)
WHO_WROTE = f"Who wrote:  {PASSAGE}"


@dataclass(frozen=True)
class QuickstartReport:
    """Results of the quickstart, as printed and saved in `report.json`.

    Attributes:
        shipped_authorship: the same task from `BUNDLED_MODEL`.
        answers: by question, of the new model and of `BUNDLED_MODEL`.
        curves: a picture of the pre-training; None without matplotlib.
    """

    directory: Path
    pretraining: PretrainingResult
    authorship: FinetuningResult
    shipped_authorship: FinetuningResult
    answers: Mapping[str, tuple[str, str]]
    curves: Path | None
    seconds: float


def run_stages(directory: Path, console: Console) -> QuickstartReport:
    """Run all stages below `directory`."""
    started = time.monotonic()
    corpus = directory / "text" / "corpus.jsonl"
    files = {split: directory / "text" / f"authors-{split}.jsonl" for split in ("train", "dev")}
    _heading(console, 1, "Text", f"2.6 MB of prose by {', '.join(AUTHORS)}")
    write_text_corpus(corpus, split_chapters().train)
    write_passages(files["train"], labelled_passages().train)
    write_passages(files["dev"], labelled_passages().dev)

    _heading(console, 2, "Vocabulary", f"SentencePiece, {PIECES:,} pieces")
    tokenizer = _vocabulary(corpus, directory / "tokenizer")

    _heading(console, 3, "Shards", "sentences and tokens, a tenth of the chapters held out")
    if not (directory / "corpus").exists():
        prepare([corpus], tokenizer, directory / "corpus", PreparationSettings(held_out=0.1))

    _heading(console, 4, "Pre-training", "n-gram masks and sentence order, all layers shared, LAMB")
    pretrained = pretrain(QUICKSTART, directory / "corpus", directory / "pretraining")

    _heading(console, 5, "Fine-tuning", f"which of {len(AUTHORS)} authors wrote this passage?")
    task = declare_custom_task(files, "text", "label", recipe=AUTHORSHIP)
    settings = FinetuningSettings(evaluate_every=94)
    data = files["train"].parent
    start = PretrainedEncoder(str(pretrained.model))
    tuned = finetune(task, start, data, directory / "authorship", settings=settings)
    console.print(f"The same from {BUNDLED_MODEL}, the model that comes with the package.", highlight=False)
    start = PretrainedEncoder(BUNDLED_MODEL)
    shipped = finetune(task, start, data, directory / f"authorship-{BUNDLED_MODEL}", settings=settings)

    _heading(console, 6, "Answers", f"by the model just trained and by {BUNDLED_MODEL}")
    trained = _answers(str(pretrained.model), tuned.model_directory)
    pairs = zip(trained, _answers(BUNDLED_MODEL, shipped.model_directory), strict=True)
    answers: dict[str, tuple[str, str]] = dict(zip((*FILL_MASKS, WHO_WROTE), pairs, strict=True))
    curves = _draw_curves(directory, console)
    report = QuickstartReport(directory, pretrained, tuned, shipped, answers, curves, time.monotonic() - started)
    save_json(directory / "report.json", _to_json(report))
    return report


def _draw_curves(directory: Path, console: Console) -> Path | None:
    try:
        from albert.report.pictures import draw_runs
    except Unavailable as error:
        console.print(f"No picture of the curves: {error}", highlight=False)
        return None
    picture = directory / "curves.png"
    draw_runs(read_runs([directory / "pretraining"]), picture, "tokens")
    return picture


def _heading(console: Console, number: int, stage: str, text: str) -> None:
    console.print(f"[bold]{number}/6 {stage}[/bold]  {text}", markup=True, highlight=False)


def _vocabulary(corpus: Path, directory: Path) -> Tokenizer:
    if not directory.exists():
        tokenizer = train_tokenizer(read_corpus([corpus]), PIECES)
        with new_directory(directory) as temporary:
            tokenizer.save(temporary)
    return load_tokenizer(directory)


def _answers(pretrained: str, authorship: Path) -> tuple[str, ...]:
    """Answers to `FILL_MASKS`, and the author of `PASSAGE`."""
    encoder = Predictor.open(pretrained)
    classifier = Predictor.open(authorship)
    filled = []
    for text in FILL_MASKS:
        guesses = [guess for guess in encoder.fill_mask(text, top_k=3) if isinstance(guess, dict)]
        filled.append(", ".join(f"{guess['token_str']} {guess['score']:.0%}" for guess in guesses))
    author = classifier.classify(PASSAGE)[0]
    return (*filled, f"{author['label']}, {author['score']:.0%}")


def accuracies(tuned: FinetuningResult) -> tuple[float, float]:
    """Accuracy of the classifier and of the majority class, 0 to 1 (task scores are in points of 100)."""
    score = tuned.scores["accuracy"]
    assert score is not None, "accuracy is defined for any number of passages"
    return score / 100, tuned.report["baseline"]["accuracy"] / 100


def _to_json(report: QuickstartReport) -> dict[str, Any]:
    training = report.pretraining.training
    return {
        "machine": describe_machine(),
        "seconds": round(report.seconds, 1),
        "pretraining": {
            **report.pretraining.evaluation,
            "tokens": training.tokens,
            "tokens_per_second": training.tokens_per_second,
        },
        "authorship": dict(zip(("accuracy", "baseline"), accuracies(report.authorship), strict=True))
        | {BUNDLED_MODEL: accuracies(report.shipped_authorship)[0]},
        "answers": {question: list(answers) for question, answers in report.answers.items()},
    }
