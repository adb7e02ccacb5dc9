"""What pre-trained models know, as a table for people and as rows for programs."""

import csv
import io

from rich.markup import escape
from rich.table import Table

from albert.cli.light_tables import table
from albert.pretraining.cross_evaluation import CrossEvaluation, Score

_HEADINGS = {
    "masked_tokens": "MLM",
    "next_sentence": "NSP",
    "sentence_order": "SOP",
    "reference_order": "SOP of the reference",
}
_CSV_COLUMNS = ("model", "sentence_objective", "test", "accuracy", "low", "high", "baseline", "loss", "count")


def accuracies(found: CrossEvaluation) -> Table:
    """Rows of models, columns of tests, in percent; then what a constant answer scores, and of how many items."""
    made = table(None, "right, %", "head learnt", *(_HEADINGS[test] for test in found.counts), "loss")
    for one in found.models:
        loss = f"{one.scores['masked_tokens'].loss:.3f}"
        made.add_row(escape(one.model), one.learnt, *(_cell(one.scores.get(test)) for test in found.counts), loss)
    baselines = {test: score.baseline for one in found.models for test, score in one.scores.items()}
    shares = (f"{100 * baselines[test]:.1f}" if test in baselines else "-" for test in found.counts)
    made.add_row("a constant answer", "", *shares, "", style="dim")
    made.add_row("of", "", *(f"{count:,}" for count in found.counts.values()), "", style="dim")
    return made


def remarks(found: CrossEvaluation) -> list[str]:
    """What there is to say about the table."""
    masked = "single words" if found.max_ngram == 1 else f"1 to {found.max_ngram} words at a time"
    lines = [
        f"{found.sequences:,} held-out sequences of at most {found.max_length} tokens, {masked} masked, the same for "
        "all; below a share its 95 % interval; loss: of masked tokens, in nats"
    ]
    if not all(found.counts.values()):
        lines.append("none of these sequences has two segments: ask more with --sequences, or longer ones")
    headless = [one.model for one in found.models if one.learnt == "none"]
    if headless and len(found.counts) > 1:
        verb = "has" if len(headless) == 1 else "have"
        lines.append(
            f"-: {', '.join(headless)} {verb} no sentence head; the paper's 52.4 (NSP) and 53.3 (SOP) for such a model "
            "are chance (Table 5)"
        )
    return lines


def as_csv(found: CrossEvaluation) -> str:
    """A line for each model and test; without figures where a model has no head for it."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([*_CSV_COLUMNS, "sequences", "max_length", "max_ngram"])
    for one in found.models:
        for test, count in found.counts.items():
            figures = one.scores[test].to_json() if test in one.scores else {"count": count}
            cells = [figures.get(name, "") for name in _CSV_COLUMNS[3:]]
            writer.writerow([one.model, one.learnt, test, *cells, found.sequences, found.max_length, found.max_ngram])
    return lines.getvalue()


def _cell(score: Score | None) -> str:
    if score is None:
        return "-"
    low, high = score.interval
    return f"{100 * score.accuracy:.1f}\n{100 * low:.1f}–{100 * high:.1f}"
