"""The GLUE tasks (Wang et al. 2018): official files, columns and metrics; recipes of the paper's Table 14.

A new task of this kind is a `Task` here, entered in `TASKS`.

The answers of the test sets are known to the benchmark's server alone, which takes one file for each.

Published scores are development-set figures of ALBERT (Lan et al. 2019): Table 9 (xxlarge v1, 1.5M steps,
single model) and the table of the v2 release's README.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from albert.runtime.errors import DamagedData
from albert.tasks.examples import absolute_names, find_split, read_rows
from albert.tasks.metrics import accuracy, f1, matthews_correlation, pearson, spearman
from albert.tasks.task import Choice, Pair, Published, Row, Rows, Score, Single, Task, TaskRecipe


@dataclass(frozen=True)
class TabSeparated:
    """Tables of a benchmark: tab-separated, no quoting, one file per split in `DATA/<folder>/` or in DATA
    itself.

    `files` maps a split to a file name (`.gz` is tried too). `columns` names the columns of files without a
    header; those of the splits in `numbered` have one, and a column of it numbers their rows. `renamed` maps columns to
    what they are called in the other files.
    """

    folder: str
    files: Mapping[str, str]
    columns: tuple[str, ...] | None = None
    numbered: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def splits(self) -> tuple[str, ...]:
        """The declared splits."""
        return tuple(self.files)

    def with_files(self, files: Mapping[str, Path]) -> "TabSeparated":
        """The same source with other files for some splits."""
        return replace(self, files={**self.files, **absolute_names(files)})

    def read(self, data: Path, split: str) -> Rows:
        """Every row of a split; ragged rows are errors, and so are two rows with one number."""
        path = find_split(data, self.folder, self.files, split)
        if split not in self.numbered:
            return read_rows(path, "TSV", self.columns)
        found = read_rows(path, "TSV")
        rows = by_number(found.rows, self.numbered[split])
        named = [{self.renamed.get(name, name): value for name, value in row.fields.items()} for row in rows]
        return Rows([replace(row, fields=fields) for row, fields in zip(rows, named, strict=True)], found.counts)


def by_number(rows: Sequence[Row], column: str) -> list[Row]:
    """The rows, called by the number in a column.

    Raises:
        DamagedData: it is absent or no number, or two rows have the same.
    """
    seen: dict[str, str] = {}
    for row in rows:
        number = row.text(column)
        if not (number.isascii() and number.isdigit()):
            raise DamagedData(row.where, f"{number!r} in column {column!r} is not a number")
        if number in seen:
            raise DamagedData(row.where, f"a second row has the number {number}", f"the first is at {seen[number]}")
        seen[number] = row.where
    return [replace(row, identifier=row.text(column)) for row in rows]


# --------------------------------------------------------------------------------------------------------------------
# The declarations.

_FILES = {"train": "train.tsv", "dev": "dev.tsv", "test": "test.tsv"}
_NUMBERED = {"test": "index"}
_INTERMEDIATE = "mnli"
"""Lan et al. 2019, footnote 4: RTE, STS-B and MRPC start from an MNLI model."""
_TEST = "arXiv:1909.11942v6 Table 9, test, ensemble"
_TABLE_9 = "arXiv:1909.11942v6 Table 9, dev, single model, 1.5M steps"
_RELEASE = "google-research/albert README, v2 results, dev"


def _xxlarge(metric: str, score: float) -> Published:
    return Published("albert-xxlarge-v1", metric, score, _TABLE_9)


def _release(metric: str, base: float, large: float, xlarge: float, xxlarge: float) -> tuple[Published, ...]:
    scores = {"base": base, "large": large, "xlarge": xlarge, "xxlarge": xxlarge}
    return tuple(Published(f"albert-{size}-v2", metric, score, _RELEASE) for size, score in scores.items())


def _table_14(
    learning_rate: float, batch_size: int, steps: int, warmup: int, examples: int, dropout: float = 0.0
) -> TaskRecipe:
    return TaskRecipe(
        learning_rate=learning_rate,
        batch_size=batch_size,
        steps=steps,
        examples=examples,
        warmup_share=warmup / steps,
        encoder_dropout=dropout,
        head_dropout=0.1,
        max_length=512,
    )


COLA = Task(
    name="cola",
    description="Is this an acceptable English sentence? (Warstadt et al. 2019)",
    source=TabSeparated("CoLA", _FILES, columns=("source", "label", "mark", "sentence"), numbered=_NUMBERED),
    inputs=Single("sentence"),
    target=Choice(("0", "1"), "label", names=("unacceptable", "acceptable")),
    metrics=(matthews_correlation,),
    recipe=_table_14(1e-5, 16, 5336, 320, examples=8551),
    published=(_xxlarge("matthews_correlation", 71.4),),
    submission={"test": "CoLA"},
)

SST2 = Task(
    name="sst-2",
    description="Is this movie review phrase positive? (Socher et al. 2013)",
    source=TabSeparated("SST-2", _FILES, numbered=_NUMBERED),
    inputs=Single("sentence"),
    target=Choice(("0", "1"), "label", names=("negative", "positive")),
    metrics=(accuracy,),
    recipe=_table_14(1e-5, 32, 20935, 1256, examples=67349),
    published=(_xxlarge("accuracy", 96.9), *_release("accuracy", 92.9, 94.9, 95.4, 96.8)),
    submission={"test": "SST-2"},
)

MRPC = Task(
    name="mrpc",
    description="Do two news sentences say the same? (Dolan and Brockett 2005)",
    source=TabSeparated("MRPC", _FILES, numbered=_NUMBERED),
    inputs=Pair("#1 String", "#2 String"),
    target=Choice(("0", "1"), "Quality", names=("not_equivalent", "equivalent")),
    metrics=(f1, accuracy),
    recipe=_table_14(2e-5, 32, 800, 200, examples=3668),
    published=(_xxlarge("accuracy", 90.9),),
    submission={"test": "MRPC"},
    intermediate=_INTERMEDIATE,
)

STSB = Task(
    name="sts-b",
    description="How similar are two sentences, 0 to 5? (Cer et al. 2017)",
    source=TabSeparated("STS-B", _FILES, numbered=_NUMBERED),
    inputs=Pair("sentence1", "sentence2"),
    target=Score("score", low=0.0, high=5.0),
    metrics=(pearson, spearman),
    recipe=_table_14(2e-5, 16, 3598, 214, examples=5749),
    published=(_xxlarge("pearson", 93.0),),
    submission={"test": "STS-B"},
    intermediate=_INTERMEDIATE,
)

QQP = Task(
    name="qqp",
    description="Do two questions ask the same? (Quora question pairs)",
    source=TabSeparated("QQP", _FILES, numbered={"test": "id"}),
    inputs=Pair("question1", "question2"),
    target=Choice(("0", "1"), "is_duplicate", names=("not_duplicate", "duplicate")),
    metrics=(f1, accuracy),
    recipe=_table_14(5e-5, 128, 14000, 1000, examples=363846, dropout=0.1),
    published=(_xxlarge("accuracy", 92.2),),
    submission={"test": "QQP"},
)

MNLI = Task(
    name="mnli",
    description="Does the premise entail or contradict the hypothesis? (Williams et al. 2018)",
    source=TabSeparated(
        "MNLI",
        {
            "train": "train.tsv",
            "dev": "dev_matched.tsv",
            "dev_mismatched": "dev_mismatched.tsv",
            "test": "test_matched.tsv",
            "test_mismatched": "test_mismatched.tsv",
        },
        numbered={"test": "index", "test_mismatched": "index"},
    ),
    inputs=Pair("sentence1", "sentence2"),
    target=Choice(("contradiction", "entailment", "neutral"), "gold_label"),
    metrics=(accuracy,),
    recipe=_table_14(3e-5, 128, 10000, 1000, examples=392702),
    published=(_xxlarge("accuracy", 90.8), *_release("accuracy", 84.6, 86.5, 87.9, 90.6)),
    further_splits=("dev_mismatched",),
    submission={"test": "MNLI-m", "test_mismatched": "MNLI-mm"},
)

AX = replace(
    MNLI,
    name="ax",
    description="MNLI's question on sentences made to show what a model knows (Wang et al. 2018); no training set",
    source=TabSeparated(
        "AX",
        {"dev": "diagnostic-full.tsv", "test": "diagnostic.tsv"},
        numbered=_NUMBERED,
        renamed={"sentence1": "Premise", "sentence2": "Hypothesis"},
    ),
    inputs=Pair("Premise", "Hypothesis"),
    target=Choice(("contradiction", "entailment", "neutral"), "Label"),
    metrics=(matthews_correlation,),
    published=(),
    further_splits=(),
    submission={"test": "AX"},
)

QNLI = Task(
    name="qnli",
    description="Does the sentence hold the answer to the question? (from SQuAD)",
    source=TabSeparated("QNLI", _FILES, numbered=_NUMBERED),
    inputs=Pair("question", "sentence"),
    target=Choice(("entailment", "not_entailment"), "label"),
    metrics=(accuracy,),
    recipe=_table_14(1e-5, 32, 33112, 1986, examples=104743),
    published=(_xxlarge("accuracy", 95.3),),
    submission={"test": "QNLI"},
)

RTE = Task(
    name="rte",
    description="Does the first text entail the second? (Dagan et al. 2005 and later)",
    source=TabSeparated("RTE", _FILES, numbered=_NUMBERED),
    inputs=Pair("sentence1", "sentence2"),
    target=Choice(("entailment", "not_entailment"), "label"),
    metrics=(accuracy,),
    recipe=_table_14(3e-5, 32, 800, 200, examples=2490, dropout=0.1),
    published=(_xxlarge("accuracy", 89.2),),
    submission={"test": "RTE"},
    intermediate=_INTERMEDIATE,
)

WNLI = Task(
    name="wnli",
    description="Is the pronoun resolved correctly? (Levesque et al. 2012)",
    source=TabSeparated("WNLI", _FILES, numbered=_NUMBERED),
    inputs=Pair("sentence1", "sentence2"),
    target=Choice(("0", "1"), "label", names=("not_entailment", "entailment")),
    metrics=(accuracy,),
    recipe=_table_14(2e-5, 16, 2000, 250, examples=635, dropout=0.1),
    published=(Published("albert-xxlarge-v1, ensemble", "accuracy", 91.8, _TEST),),
    submission={"test": "WNLI"},
)

TASKS = (COLA, SST2, MRPC, STSB, QQP, MNLI, QNLI, RTE, WNLI, AX)
