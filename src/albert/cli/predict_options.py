"""What `albert predict` is asked for."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional

from albert.cli.command_line import parse
from albert.cli.main import load_command
from albert.model.config import Activation

Asked = Literal["classify", "score", "answer", "choose", "tag", "fill-mask", "order", "embed"]


@dataclass(frozen=True)
class Predict:
    """Ask a trained model: fill masks, judge an order, classify, score, answer a question, tag words, choose, embed.

    What a model can do depends on its head: `albert pretrain` makes models that fill masks and judge orders,
    and `albert finetune` the others. Give one question, or with --input a file of them: it is checked from end to
    end first, then answered row by row, whatever its size. A run that was stopped or killed goes on with the same
    command; OUTPUT is there when it is whole.

    Example: albert predict run/model --fill-mask "The cat [MASK] on the mat."

    Example: albert predict run/model --tag "U.N. official Ekeus heads for Baghdad ." --words

    Example: albert predict run/model --input reviews.csv --text-field review --output answered.parquet
    """

    model: Positional[str]
    """A model directory, a run directory, or a Hugging Face Hub id."""
    fill_mask: str | None = None
    """A text with [MASK] in it, once or several times."""
    order: tuple[str, str] | None = None
    """Two adjacent segments: are they in their order, or swapped?"""
    classify: str | None = None
    """A text to classify, or to score where the model predicts a number."""
    pair: str | None = None
    """The second text, where the classifier was trained on pairs."""
    question: str | None = None
    """A question, to be answered from --context, or about it where --choose gives the options."""
    context: str | None = None
    """The text that holds the answer."""
    tag: str | None = None
    """A text whose words get a label each."""
    words: bool = False
    """The words to tag are what stands between blanks, as in tagged text; else the tokenizer says what a word is."""
    choose: Annotated[tuple[str, ...], tyro.conf.arg(metavar="OPTION...", help_behavior_hint="")] = ()
    """Two or more options, to be chosen from after reading --context."""
    input: str | None = None
    """Many rows: .txt with a text a line, .jsonl, .csv, .tsv, .parquet, plain or packed (.gz); - is standard input."""
    output: Path | None = None
    """Where they go with their answers: .jsonl, .csv, .parquet, or .npy for vectors; JSON on standard output if not
    given."""
    ask: Asked | None = None
    """What is asked of every row; what the model's head is for if not given."""
    text_field: str = "text"
    """The field of a row that holds its text."""
    pair_field: str = "text_pair"
    """The field of the second text, which rows may lack."""
    question_field: str = "question"
    """The field of a question."""
    context_field: str = "context"
    """The field of the text that holds its answer."""
    options_field: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FIELD...")] = ("options",)
    """The field with a list of options, or one field for each option."""
    prefix: str = "predicted_"
    """What the names of an answer's fields begin with, beside those of the row."""
    pooling: Literal["mean", "cls"] = "mean"
    """How tokens become the vector of a text."""
    normalize: bool = False
    """Vectors of length 1."""
    replace: bool = False
    """Replace an existing output, or one that was begun with other settings."""
    top_k: int | None = None
    """How many pieces a mask, or how many answers a question gets; 5, but one answer to a question of a file."""
    revision: str | None = None
    """A branch, tag or commit of a Hub repository."""
    hidden_act: Activation | None = None
    """The activation, in place of config.json's: gelu_new is the tanh form that Google trained with."""
    num_attention_heads: int | None = None
    """The number of heads, in place of config.json's; the shapes of the weights do not show it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16", "int8"] = "auto"
    """Of the products in the encoder; auto is bf16 where the machine has it in hardware, else fp32."""
    depth: int | None = None
    """Layers to apply; a shared layer can be applied as often as you like."""
    patience: int | None = None
    """Decide a text early, as soon as so many depths in a row agree; the model must have learnt it (--exits)."""
    json: bool = False
    """JSON in place of a table."""


def main(arguments: list[str]) -> int:
    """Read the options, and run `albert predict`."""
    asked = parse(Predict, arguments, "albert predict")
    return load_command("albert.cli.predict").run(asked)
