"""How the rows of a task were read: what was recognised and inferred, counts, lengths and labels. It is shown before
training: in full where only the rows are looked at, in half a screen at the start of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from albert.columns.read import ReadTask
from albert.columns.statistics import SplitStatistics
from albert.report.display import Displayable
from albert.report.tables import Table, beginning
from albert.runtime.words import counted
from albert.tables.fields import as_number
from albert.tables.table import Field
from albert.tables.table import Table as Rows
from albert.tasks.table_task import COLUMNS, TableTask

SHOWN_LABELS = 100
SHOWN_LABELS_OF_RUN = 6
SHOWN_LABELS_AS_TEXT = 20
SHOWN_COLUMNS = 24
SHOWN_UNUSED = 8
SHOWN_CHARACTERS = 40
COUNTS = {
    "kept back for dev": "kept back for dev",
    "broken lines": "broken lines left out",
    "document marks": "lines that mark documents",
    "fields not read": "fields that are not text, and not read",
    "empty texts": "with an empty text",
    "rows without text": "left out (no text)",
    "rows without label": "left out (no label)",
    "missing labels": "without a label",
    "labels unknown to train": "with a label that train never has",
    "duplicates": "with the text of an earlier row",
    "contradictions": "of these with another label",
    "in train": "with a text that train has too",
    "unanswerable": "without an answer",
    "answers": "answers",
    "answers relocated": "answers at another position than stated",
    "answers found more than once": "answers there more than once: the first place is taken",
    "answers not found": "answers not in their context",
}
"""A count of rows -> its words."""


@dataclass(frozen=True, repr=False)
class DataReport(Displayable):
    """How the rows of a task were read, and their statistics by split."""

    read: ReadTask | None
    """Columns and what was inferred from them; None for a declared task."""
    statistics: Mapping[str, SplitStatistics]
    max_length: int
    warnings: tuple[str, ...] = ()
    """Lines about rows that say little, and about texts that the model's vocabulary does not know."""

    # ---- In Python --------------------------------------------------------------------------------------------------

    def title(self) -> str:
        return "DataReport: how the rows were read"

    def tables(self) -> list[Table]:
        return [rows_table(self.statistics, self.max_length), *self._labels(SHOWN_LABELS_AS_TEXT, with_examples=False)]

    def remarks(self) -> list[str]:
        inferred = [] if self.read is None else self.read.inferred
        because = [f"{item.what}: {item.value} (because: {item.why})" for item in inferred]
        return [*self._notes(), *because, *self.warnings]

    # ---- On the terminal --------------------------------------------------------------------------------------------

    def in_full(self) -> list[str | Table]:
        """Columns and their use, what was inferred and the option that changes it, lengths and labels."""
        parts: list[str | Table] = []
        if (read := self.read) is not None:
            split, rows = next(iter(read.raw.items()))
            parts += [*self._notes(), columns_table(f"The columns of {split}", rows, read.table_task)]
            parts += ["", inferred_table(read)] if read.inferred else []
            parts += [f"scored by {', '.join(read.table_task.metrics or ())}", ""]
        for table in (rows_table(self.statistics, self.max_length), *self._labels(SHOWN_LABELS)):
            parts += [table, ""]
        for split, statistics in self.statistics.items():
            if statistics.unlabelled is not None:
                count = statistics.counts["missing labels"]
                rows_have = "1 row has" if count == 1 else f"{count:,} rows have"
                first = f"the first is {statistics.unlabelled}; reading.drop_unlabelled=true leaves them out"
                parts.append(f"{split}: {rows_have} no label, {first}")
        return [*parts, *self.warnings]

    def in_brief(self) -> list[str | Table]:
        """What was inferred, the number of rows, and the most frequent labels."""
        parts: list[str | Table] = [*self._notes()]
        if (read := self.read) is not None:
            rows = next(iter(read.raw.values()))
            uses = uses_of_columns(read.table_task)
            unused = [name for name in rows.columns if name not in uses]
            more = f" and {len(unused) - SHOWN_UNUSED} more" if len(unused) > SHOWN_UNUSED else ""
            parts += [f"not used: {', '.join(unused[:SHOWN_UNUSED])}{more}"] if unused else []
            parts += [inferred_table(read)] if read.inferred else []
        parts += [rows_line(split, each, self.max_length) for split, each in self.statistics.items()]
        return [*parts, *self._labels(SHOWN_LABELS_OF_RUN), *self.warnings]

    def _notes(self) -> list[str]:
        raw = {} if self.read is None else self.read.raw
        return [f"{name}: {note}" for name, rows in raw.items() for note in rows.notes]

    def _labels(self, shown: int, with_examples: bool = True) -> list[Table]:
        if not any(statistics.labels for statistics in self.statistics.values()):
            return []
        names = None if self.read is None else self.read.table_task.label_names
        return [labels_table(self.statistics, names or {}, shown, with_examples)]


def inferred_table(read: ReadTask) -> Table:
    """What was inferred, why, and the option that changes it."""
    rows = [["inferred", "is", "because", "to change it"]]
    rows += [[item.what, item.value, item.why, item.override] for item in read.inferred]
    return Table(rows, words=range(4))


# --------------------------------------------------------------------------------------------------------------------
# Columns.


def uses_of_columns(task: TableTask) -> dict[str, list[str]]:
    """What the columns that are used are used as."""
    uses: dict[str, list[str]] = {}
    for name in (*COLUMNS, "id"):
        value = getattr(task, name)
        columns = value if isinstance(value, tuple) else (value,)
        for column in columns if value is not None else ():
            uses.setdefault(column, []).append(name.replace("_", " ").removesuffix("s" if name == "options" else " "))
    return uses


def columns_table(title: str, rows: Rows, task: TableTask) -> Table:
    """A row for each column: what is in it, its first value, and its use."""
    uses = uses_of_columns(task)
    names = rows.columns
    lines = [["column", "content", "first", "used as"]]
    for name in sorted(names, key=lambda name: name not in uses)[:SHOWN_COLUMNS]:
        values = [value for value in rows.values(name) if value is not None]
        first = next((value for value in values if value), "")
        first = first if isinstance(first, str) else " ".join(first)
        used = ", ".join(uses.get(name, ["-"]))
        lines.append([name, content_of(values, len(rows.rows)), beginning(first, SHOWN_CHARACTERS), used])
    if len(names) > SHOWN_COLUMNS:
        lines.append([f"and {len(names) - SHOWN_COLUMNS} more", "", "", "-"])
    return Table(lines, title, words=range(4))


def content_of(values: Sequence[Field], n_rows: int) -> str:
    """Counts of lists, numbers, texts and empty fields in a column."""
    lists = [value for value in values if isinstance(value, tuple)]
    texts = [value for value in values if isinstance(value, str) and value.strip()]
    different = set(map(str.strip, texts))
    numbers = sum(as_number(value) is not None for value in different)
    counts = {
        f"lists of {min(map(len, lists), default=0)} to {max(map(len, lists), default=0):,}": len(lists),
        "different numbers": numbers,
        "different texts": len(different) - numbers,
        "empty": n_rows - len(lists) - len(texts),
    }
    return ", ".join(f"{count:,} {what}" for what, count in counts.items() if count > 0)


# --------------------------------------------------------------------------------------------------------------------
# Rows and labels.


def rows_line(split: str, statistics: SplitStatistics, max_length: int) -> str:
    """The number of rows, what is special about some, their lengths and numbers."""
    parts = [counted(statistics.rows, "rows")]
    parts += [f"{n:,} {label}" for name, label in COUNTS.items() if (n := statistics.counts.get(name))]
    if statistics.numbers:
        smallest, mean, largest = statistics.numbers
        parts.append(f"numbers from {smallest:,.4g} to {largest:,.4g}, mean {mean:,.4g}")
    if (lengths := statistics.lengths) is not None:
        parts.append(f"{lengths.median:,.0f} tokens at the median, {lengths.longest:,} at most")
        if lengths.cut:
            parts.append(f"{lengths.cut:.1%} longer than {max_length:,}")
    return f"{split}: {', '.join(parts)}"


def rows_table(statistics: Mapping[str, SplitStatistics], max_length: int) -> Table:
    """A column for each split: its rows, what is special about some, their numbers and lengths."""
    splits = list(statistics.values())
    lengths = [split.lengths for split in splits]
    rows = [["", *statistics], ["rows", *(f"{split.rows:,}" for split in splits)]]
    for name, label in COUNTS.items():
        counts = [split.counts.get(name) for split in splits]
        if any(counts):
            rows.append([label, *("" if count is None else f"{count:,}" for count in counts)])
    if any(split.numbers for split in splits):
        for index, label in enumerate(("smallest number", "mean", "largest")):
            rows.append([label, *(f"{split.numbers[index]:,.4g}" if split.numbers else "" for split in splits)])
    if any(lengths):
        rows += [
            ["tokens, median", *(f"{each.median:,.0f}" if each else "" for each in lengths)],
            ["95 % have at most", *(f"{each.high:,.0f}" if each else "" for each in lengths)],
            ["longest", *(f"{each.longest:,}" if each else "" for each in lengths)],
            [f"longer than {max_length:,}", *(f"{each.cut:.1%}" if each else "" for each in lengths)],
        ]
        if any(split.lengths is not None and split.lengths.measured < split.rows for split in splits):
            rows.append(["rows measured", *(f"{each.measured:,}" if each else "" for each in lengths)])
    return Table(rows, "Rows")


def labels_table(
    statistics: Mapping[str, SplitStatistics], names: Mapping[str, str], shown: int, with_examples: bool
) -> Table:
    """Counts and shares of labels, with an example of each or without; labels beyond those `shown` are summed. The
    shares are of all labels (of the words, for tags); of the rows if a row may have several labels."""
    splits = list(statistics.values())
    labels = list(dict.fromkeys(label for split in splits for label in split.labels))
    may_be_several = any(split.without_labels is not None for split in splits)
    totals = [max(1, split.rows if may_be_several else sum(split.labels.values())) for split in splits]
    examples = {label: text for split in reversed(splits) for label, text in split.examples.items()}

    def cells(counts: Sequence[int], with_shares: bool = True) -> list[str]:
        pairs = zip(counts, totals, strict=True)
        return [cell for n, total in pairs for cell in (f"{n:,}", f"{n / total:.1%}" if with_shares else "")]

    share = "of the rows" if may_be_several else "share"
    rows = [["label", *(heading for split in statistics for heading in (split, share)), "for example"]]
    for label in labels[:shown]:
        name = f"{label} ({names[label]})" if label in names else label
        counts = [split.labels.get(label, 0) for split in splits]
        rows.append([name, *cells(counts), beginning(examples.get(label, ""), SHOWN_CHARACTERS)])
    if len(labels) > shown:
        counts = [sum(split.labels.get(label, 0) for label in labels[shown:]) for split in splits]
        # A row can have two of these labels, and would be counted twice in their share.
        rows.append([counted(len(labels) - shown, "others"), *cells(counts, not may_be_several), ""])
    if may_be_several:
        rows.append(["(no label)", *cells([split.without_labels or 0 for split in splits]), ""])
    if not with_examples:
        return Table([row[:-1] for row in rows])
    return Table(rows, words=(0, 1 + 2 * len(splits)))
