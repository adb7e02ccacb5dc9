"""Options of `albert predict`.

They are parsed without importing torch or modules of training; the modules that do the work are imported afterwards."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from albert.api.keywords import Argument, Positional, changed_flags
from albert.cli.options import Subcommand, check_at_least
from albert.inference.abilities import ABILITIES, ENDINGS
from albert.model.config import Activation
from albert.runtime.errors import UsageError
from albert.tasks.rows import Format

TASKS = tuple(ability.name for ability in ABILITIES.values() if ability.row)
if TYPE_CHECKING:
    Task = str
else:
    Task = Literal[TASKS]


@dataclass(frozen=True)
class Predict:
    """Predict with a trained model: fill masks, judge an order, classify, score, answer a question, tag words, choose,
    embed.

    The abilities of a model depend on its head: `albert pretrain` makes models that fill masks and judge orders,
    `albert finetune` the others. Give one input, or a file of any size with --input: it is checked completely first,
    then answered row by row. If it is stopped, the same command resumes. OUTPUT appears when it is complete.

    Example: albert predict run/model --fill-mask "The cat [MASK] on the mat."

    Example: albert predict run/model --tag "U.N. official Ekeus heads for Baghdad ." --words

    Example: albert predict run/model --classify "A fine film, though long." --explain

    Example: albert predict run/model --input reviews.csv --text review --output answered.parquet
    """

    model: Positional[str]
    """A model directory, a run directory, or a Hugging Face Hub id."""
    revision: str | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Precision of the encoder's matrix products; auto is bf16 if the machine supports it in hardware, otherwise fp32.
    int8 can change answers, and is slower than bf16 on a processor with AMX."""
    depth: int | None = None
    """Number of layers to apply; a shared layer can be applied any number of times."""
    patience: int | None = None
    """Early exit: stop as soon as this many depths in a row agree; the model must be trained for it (--exits)."""
    threshold: float | None = None
    """Several labels per text: the probability from which on a label is predicted; the model's own when not set."""
    fill_mask: str | None = None
    """A text with one or several [MASK]."""
    order: tuple[str, str] | None = None
    """Two adjacent segments: are they in order, or swapped?"""
    classify: str | None = None
    """A text to classify, or to score if the model predicts a number."""
    pair: str | None = None
    """The second text, if the classifier was trained on pairs; with --input the column of it."""
    question: str | None = None
    """A question to answer from --context, or with --choose a question about it; with --input the column of it."""
    context: str | None = None
    """The text that contains the answer; with --input the column of it."""
    tag: str | None = None
    """A text whose words are to be tagged."""
    words: bool = False
    """Split the text to tag at blanks only; otherwise punctuation and quotes are split off, too."""
    choose: Annotated[tuple[str, ...], Argument(metavar="OPTION...")] = ()
    """Two or more options to choose from, given --context."""
    input: str | None = None
    """Many rows: a table in any format that training reads, also compressed (.gz), or a .txt with a text on each line;
    - is standard input."""
    output: Path | None = None
    """The rows with their answers: .jsonl, .csv, .parquet, or .npy for embeddings; JSON on standard output when not
    set."""
    task: Task | None = None
    """The task for the rows; that of the model's head when not set."""
    text: str | None = None
    """The column of --input with the text, by its name or position; that of the training file when not set, else
    'text'. The columns of pairs, questions, contexts and options are named by --pair and so on, and are found in the
    same way."""
    pair_field: str | None = None
    """Another name of --pair, for --input."""
    question_field: str | None = None
    """Another name of --question, for --input."""
    context_field: str | None = None
    """Another name of --context, for --input."""
    options: Annotated[tuple[str, ...] | None, Argument(metavar="COLUMN...")] = None
    """The column of --input with a list of options, or a column for each option."""
    format: Format | None = None
    """The format of --input, if it is not recognised; see albert finetune --help-all."""
    delimiter: str | None = None
    """The separator of the columns of --input, if it is not recognised: , ; | or tab."""
    encoding: str | None = None
    """The encoding of --input, if it is not recognised: utf-8, cp1252 and so on."""
    columns: Annotated[tuple[str, ...] | None, Argument(metavar="NAME...")] = None
    """The names of the columns of an --input without a header, in their order."""
    no_header: bool = False
    """The first row of --input is a row: the columns are called 'column 1', 'column 2' and so on."""
    group: str | None = None
    """The column of --input that numbers the sentences of a table with one word in each row; that of the training file
    when not set. The output has a row for each sentence."""
    prefix: str = "predicted_"
    """Prefix of the names of answer fields."""
    pooling: Literal["mean", "cls", "max", "weighted"] | None = None
    """How tokens become the embedding of a text; weighted is a mean with larger weights for rare pieces, better for
    models that were not trained for embeddings. When not set: as the model's files say, else mean."""
    normalize: bool | None = None
    """Scale embeddings to length 1; when not set: as the model's files say, else no."""
    prompt: str | None = None
    """The name of one of the model's prompts, which is written before every text to embed."""
    replace: bool = False
    """Replace an existing output, or an unfinished one with other settings."""
    explain: bool = False
    """Show which words moved the score: each is left out in turn, which takes the time of as many texts as there are
    words. With --input they are in the column 'explanation'."""
    top_k: int | None = None
    """Number of pieces for a mask, or of answers to a question; 5 when not set, but one answer to a question of a
    file."""
    hidden_act: Activation | None = None
    num_attention_heads: int | None = None
    json: bool = False
    """Print JSON instead of a table."""


LAYOUT_OPTIONS = ("format", "delimiter", "encoding", "columns", "no_header")
FIELD_OPTIONS = ("text", "pair_field", "question_field", "context_field", "options")
_OF_FILES = (
    "output",
    "task",
    *FIELD_OPTIONS,
    *LAYOUT_OPTIONS,
    "group",
    "prefix",
    "pooling",
    "normalize",
    "prompt",
    "replace",
)
"""Options that need --input."""
_OF_TASKS = {
    "text": ("classify", "score", "tag", "fill-mask", "order", "embed"),
    "pair_field": ("classify", "score", "order"),
    "question_field": ("answer", "choose"),
    "context_field": ("answer", "choose"),
    "options": ("choose",),
    "words": ("tag",),
    "group": ("tag",),
    "top_k": ("fill-mask", "answer"),
    "explain": ("classify", "score"),
    "pooling": ("embed",),
    "normalize": ("embed",),
    "prompt": ("embed",),
}
"""Options that need one of these tasks."""


def check_predict(options: Predict) -> None:
    """Check the options of `albert predict`: one input, and what belongs to it."""
    flags = changed_flags(options, "fill_mask", "order", "classify", "tag", "choose", "question", "input")
    if "--choose" in flags and "--question" in flags:  # a question about the options
        flags.remove("--question")
    if "--input" in flags and "--question" in flags:  # its column
        flags.remove("--question")
    if len(flags) != 1:
        why = f"{', '.join(flags)} together" if flags else "there is no input"
        inputs = "--fill-mask, --order, --classify, --tag, --question with --context, --choose with --context, --input"
        raise UsageError("albert predict", why, f"give one of {inputs}")
    (flag,) = flags
    required = dict.fromkeys(_OF_FILES, ("--input",)) | {"top_k": ("--fill-mask", "--question", "--input")}
    required |= {"words": ("--tag", "--input"), "pair": ("--classify", "--input"), "explain": ("--classify", "--input")}
    required |= {"context": ("--question", "--choose", "--input")}
    for name, others in required.items():
        if flag not in others and (given := changed_flags(options, name)):
            raise UsageError(given[0], f"requires {' or '.join(others)}, not {flag}")
    if options.task is not None:
        check_used(options, options.task)
    if flag in ("--question", "--choose") and options.context is None:
        raise UsageError(flag, "needs a text to answer from", "give --context")
    if len(options.choose) == 1:
        raise UsageError("--choose", "needs at least two options", "give two or more")
    check_at_least(options, 1, "top_k")
    if options.options == ():
        raise UsageError("--options", "names no field", "name one with a list, or one for each option")
    if options.output is not None and options.output.suffix.lower() not in ENDINGS:
        raise UsageError(options.output, "unknown kind of output", f"use {', '.join(ENDINGS)}")


def check_used(options: Predict, task: str) -> None:
    """Raises UsageError for an option that another task needs."""
    for name, tasks in _OF_TASKS.items():
        if task not in tasks and (given := changed_flags(options, name)):
            raise UsageError(given[0], f"requires --task {' or '.join(tasks)}, not {task}")


predict_main = Subcommand(Predict, "albert predict", "predict:run_predict", check=check_predict)
