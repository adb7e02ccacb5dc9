"""`albert quickstart`: every step on the embedded sample."""

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from albert.cli.main import imports
from albert.cli.render import open_console, print_lines, table
from albert.cli.signature import PathLike
from albert.commands.function import command, on_command_line
from albert.runtime.environment import command_name

if TYPE_CHECKING:
    from albert.commands.quickstart_stages import QuickstartReport


@command("albert quickstart")
def quickstart(*, output: PathLike = "quickstart-run") -> None:
    """From raw text to answers on the embedded sample, in a few minutes on two cores.

    Trains a vocabulary, prepares shards, pre-trains a small all-shared ALBERT, fine-tunes it to tell authors apart, and
    reports. If it is stopped, the same command resumes.

    Example: albert quickstart --output my-quickstart

    Args:
        output: The directory for all files of the quickstart.
    """
    with imports():
        from albert.commands.quickstart_stages import run_stages

    console = open_console(soft_wrap=False, highlight=True)
    show_report(run_stages(Path(output), console), console)


def show_report(report: "QuickstartReport", console: Console) -> None:
    """Print figures beside their baselines, the outputs, and the next commands."""
    from albert.commands.quickstart_stages import BUNDLED_MODEL, BUNDLED_TOKENS, WHO_WROTE, accuracies

    figures = report.pretraining.evaluation
    masked, constant = (f"{figures[f'masked_tokens_{name}']:.1%}" for name in ("accuracy", "baseline"))
    (authors, constant_author), (shipped, _) = map(accuracies, (report.authorship, report.shipped_authorship))
    rows = [
        ("masked tokens, held-out text", masked, "", constant),
        ("authors, unseen chapters", f"{authors:.1%}", f"{shipped:.1%}", f"{constant_author:.1%}"),
    ]
    console.print()
    console.print(table("What came out", ("", "just trained", BUNDLED_MODEL, "majority baseline"), rows))
    training = report.pretraining.training
    model = report.pretraining.model
    classifier = report.authorship.model_directory
    trained_answer, bundled_answer = report.answers[WHO_WROTE]
    console.print(f"  {WHO_WROTE}")
    print_lines(console, Text.assemble("    just trained  ", (trained_answer, "bold")))
    print_lines(console, Text.assemble(f"    {BUNDLED_MODEL:12}  ", (bundled_answer, "bold")))
    albert = command_name()
    lines = (
        "",
        f"{training.tokens:,} tokens at {training.tokens_per_second:,.0f} a second; {report.seconds:.0f} s in all",
        f"{BUNDLED_MODEL} was trained on {BUNDLED_TOKENS / training.tokens:,.0f} times as many tokens, including these "
        "books without their authors;",
        "neither model predicts the order of sentences better than chance",
        *([f"curves      {report.curves}"] if report.curves else []),
        f"encoder     {model}",
        f"classifier  {classifier}",
        "",
        "Next: the classifier on a sentence of yours, as a server, and a model for a table of your own",
        f'  {albert} predict {classifier} --classify "It was the season of plenty, and of parties."',
        f"  {albert} serve {classifier}",
        f"  {albert} finetune --train TABLE.csv --text COLUMN --label COLUMN --model small-vectors --output runs/mine",
    )
    console.print("\n".join(lines), highlight=False, soft_wrap=True)  # not wrapped, so that it can be copied


quickstart_main = on_command_line(quickstart)
