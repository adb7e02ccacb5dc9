"""The whole story on the embedded sample: text, vocabulary, shards, pre-training, fine-tuning, answers, a report.

Every stage writes where the next one reads, and leaves alone what is there already, so a stopped quickstart goes on.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from albert.experiments.figures import draw_pretraining_curves
from albert.experiments.sample_corpus import (
    AUTHORS,
    labelled_passages,
    split_chapters,
    write_passages,
    write_text_corpus,
)
from albert.finetuning.finetune import finetune
from albert.finetuning.run_record import FinetuningResult, FinetuningSettings
from albert.finetuning.start import PretrainedEncoder
from albert.inference.predictor import Predictor
from albert.pretraining.named_recipes import QUICKSTART
from albert.pretraining.pretrain import PretrainingResult, pretrain
from albert.runtime.devices import describe_machine
from albert.runtime.durable_files import new_directory
from albert.runtime.strict_json import save_json
from albert.tasks.custom import declare_custom_task
from albert.tasks.task import TaskRecipe
from albert.text.preparation.prepare import prepare
from albert.text.preparation.unit_preparation import PreparationSettings
from albert.text.readers.corpus import read_corpus
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_directory import load_tokenizer
from albert.text.unigram.sentencepiece_tokenizer import train_tokenizer

PIECES = QUICKSTART.model.vocab_size
AUTHORSHIP = TaskRecipe(learning_rate=2e-3, batch_size=32, epochs=3.0, warmup_share=0.1, max_length=128)
"""Settings for a network this small; the paper's tasks have their own."""

FILL_MASK = "It was a very [MASK] thing to say."
PASSAGE = (
    "The birds of these islands differ from those of the mainland, yet each kind is plainly allied to one that lives "
    "there; and it is by such slight, successive changes, I believe, that species have been modified."
)


@dataclass(frozen=True)
class QuickstartReport:
    """What the quickstart found, as shown and as saved in `report.json`."""

    directory: Path
    pretraining: PretrainingResult
    authorship: FinetuningResult
    answers: Mapping[str, str]
    seconds: float


def quickstart(directory: Path, console: Console) -> QuickstartReport:
    """Run all stages below `directory`.

    Args:
        directory: where everything is written.
        console: where headings and the report are shown.
    """
    began = time.monotonic()
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
    start = PretrainedEncoder(str(pretrained.model))
    settings = FinetuningSettings(evaluate_every=94)
    tuned = finetune(task, start, files["train"].parent, directory / "authorship", settings=settings)

    _heading(console, 6, "Answers", "three inputs")
    answers = _answers(pretrained.model, tuned.model_directory)
    report = QuickstartReport(directory, pretrained, tuned, answers, time.monotonic() - began)
    draw_pretraining_curves(
        directory / "pretraining" / "journal.jsonl", directory / "curves.png", "Quickstart: pre-training on the sample"
    )
    save_json(directory / "report.json", _plain(report))
    return report


def show_report(report: QuickstartReport, console: Console) -> None:
    """Print figures beside their baselines, where everything is, and what to try next."""
    table = Table(title="\nWhat came out", title_justify="left")
    for column in ("", "score", "a constant answer"):
        table.add_column(column, justify="left" if not column else "right")
    figures = report.pretraining.evaluation
    for task, name in (
        ("masked_tokens", "masked tokens, held-out text"),
        ("sentence_order", "sentence order, held-out text"),
    ):
        table.add_row(name, f"{figures[f'{task}_accuracy']:.1%}", f"{figures[f'{task}_baseline']:.1%}")
    authors, constant = _accuracies(report.authorship)
    table.add_row("authors, unseen chapters", f"{authors:.1%}", f"{constant:.1%}")
    console.print(table)
    for question, answer in report.answers.items():
        console.print(f"  {question}\n    [bold]{answer}[/bold]")
    training = report.pretraining.training
    model = report.pretraining.model
    lines = (
        "",
        f"{training.tokens:,} tokens at {training.tokens_per_second:,.0f} a second; {report.seconds:.0f} s in all",
        f"curves  {report.directory / 'curves.png'}",
        f"model   {model}",
        "",
        "Next:",
        f'  albert predict {model} --fill-mask "She had a [MASK] voice."',
        f"  albert info {model}",
        "  albert tokenizer train YOUR_TEXT/ --output tokenizer",
    )
    console.print("\n".join(lines), highlight=False, soft_wrap=True)  # what is to be copied is not wrapped


def _heading(console: Console, number: int, name: str, what: str) -> None:
    console.print(f"[bold]{number}/6 {name}[/bold]  {what}", highlight=False)


def _vocabulary(corpus: Path, directory: Path) -> Tokenizer:
    if not directory.exists():
        tokenizer = train_tokenizer((document.text for document in read_corpus([corpus])), PIECES)
        with new_directory(directory) as temporary:
            tokenizer.save(temporary)
    return load_tokenizer(directory)


def _answers(pretrained: Path, authorship: Path) -> dict[str, str]:
    encoder, classifier = Predictor.open(pretrained), Predictor.open(authorship)
    filled = [guess for guess in encoder.fill_mask(FILL_MASK, top_k=3) if isinstance(guess, dict)]
    first, second = _adjacent_sentences()
    order = encoder.order(first, second)
    author = classifier.classify(PASSAGE)[0]
    return {
        FILL_MASK: ", ".join(f"{guess['token_str']} {guess['score']:.0%}" for guess in filled),
        f"Are these in order?  {first}  |  {second}": f"{order['label']}, {order['score']:.0%}",
        f"Who wrote:  {PASSAGE}": f"{author['label']}, {author['score']:.0%}",
    }


def _adjacent_sentences() -> tuple[str, str]:
    """Two neighbouring sentences of a chapter that training never saw."""
    passage = labelled_passages().dev[0].text
    first, _, rest = passage.partition(". ")
    return first + ".", rest


def _accuracies(tuned: FinetuningResult) -> tuple[float, float]:
    """The classifier's accuracy and the majority class's, as shares (task scores are in points of 100)."""
    score = tuned.scores["accuracy"]
    assert score is not None, "accuracy is defined for any number of passages"
    return score / 100, tuned.report["baseline"]["accuracy"] / 100


def _plain(report: QuickstartReport) -> dict:
    return {
        "machine": describe_machine(),
        "seconds": round(report.seconds, 1),
        "pretraining": dict(report.pretraining.evaluation)
        | {
            "tokens": report.pretraining.training.tokens,
            "tokens_per_second": report.pretraining.training.tokens_per_second,
        },
        "authorship": dict(zip(("accuracy", "baseline"), _accuracies(report.authorship), strict=True)),
        "answers": dict(report.answers),
    }
