"""Options of the commands that have a Python function: fields with types, defaults and help.

A field is an option of the command line and a keyword argument in Python. This module does not import torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from albert.api.keywords import GROUP, Positional
from albert.api.table_options import NO_TABLE, TableOptions
from albert.model.config import Activation, ArchitectureChanges
from albert.pretraining.segments import SentenceObjective

# --------------------------------------------------------------------------------------------------------------------
# The options of `albert evaluate` about the depth of a model.


@dataclass(frozen=True, kw_only=True)
class DepthOptions:
    """How many layers of a model to apply."""

    depth: tuple[int, ...] = ()
    """Number of layers to apply; as many as in training when not set. Several give a table of scores and costs."""
    patience: tuple[int, ...] = ()
    """Early exit: an example is decided as soon as this many depths in a row agree with the one before. For models of
    `albert finetune --exits`; each patience is a row of the table as well."""
    curve: Path | None = None
    """Draw that table, score against compute, as a PNG; the figures are written beside it as .csv."""
    rounds: int = 1
    """Number of timings of each row of that table."""

    @property
    def makes_table(self) -> bool:
        """Whether several depths, or costs, are asked for."""
        return len(self.depth) > 1 or bool(self.patience) or self.curve is not None


# --------------------------------------------------------------------------------------------------------------------
# `albert finetune` and `albert evaluate`.


NO_CHANGES = ArchitectureChanges()
ALL_LAYERS = DepthOptions()


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Models, task and data."""

    task: Positional[str | None] = None
    """A declared task, or pretraining; leave it out for your own file."""
    model: tuple[str, ...]
    """A model directory, a run that made one, or a Hub id. Several are scored each and together: the mean of their
    predictions, for spans over the models that proposed them. With pretraining, several are compared on the same
    texts, and a running run is evaluated at its newest checkpoint."""
    data: Path | None = None
    """The task's data folder; for pretraining a prepared corpus."""
    split: str | None = None
    """The split of a declared task; when not set dev, or with --submission the splits that its server scores."""
    dev: Path | None = None
    """Your own file, the one that the model was scored on when not set; with TASK a file in its layout."""
    table: Annotated[TableOptions, GROUP] = NO_TABLE
    predictions: Path | None = None
    """Write one JSON object for each example."""
    submission: Path | None = None
    """A directory for files in the format of a benchmark's server: GLUE's tables of labels, SQuAD's answers as JSON.
    Files without labels are answered and not scored."""
    results: Path | None = None
    """Write the scores as JSON, with those of each class, confusions, errors and calibration."""
    report: Path | None = None
    """Write the same as a page: one HTML file, like the report of a run."""
    threshold: float | None = None
    """Several labels per row: the probability from which on a label is predicted; the model's own when not set."""
    max_length: int | None = None
    """Maximum tokens of a sequence; when not set the length used in training, of several models the shortest."""
    objective: tuple[SentenceObjective, ...] | None = None
    """For pretraining: which sentence tasks to score, whatever the model was trained on; none: masked tokens alone.
    When not set, nsp and sop, or sop alone if a single document is held out."""
    sequences: int = 2000
    """For pretraining: maximum number of sequences."""
    max_ngram: int = 3
    """For pretraining: maximum number of words that are masked together; 1 masks single words, as for tiny's card."""
    json: bool = False
    """For pretraining: print a JSON object instead of the table."""
    depths: Annotated[DepthOptions, GROUP] = ALL_LAYERS
    micro_batch_tokens: int = 8192
    """Tokens in one pass through the model; depths are compared with those of `albert predict`."""
    revision: str | None = None
    hidden_act: Activation | None = None
    num_attention_heads: int | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: tuple[Literal["auto", "fp32", "bf16", "int8"], ...] = ("auto",)
    """Precision of matrix products; auto is that of albert predict, bf16 if the device has instructions for it.
    Several, or int8, are compared in one table; if the score moves by more than the tolerance the command fails
    (exit 4)."""
    tolerance: float = 0.5
    """Points by which another precision may move the first score."""
