"""What is said beside scores: what was cut, left out or moved in the rows, published scores, and settings."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from albert.recipes.architecture import FULL_WIDTH
from albert.runtime.words import counted, in_epochs

HEAD_NOT_SOLVED = "the encoder's states hardly depend on the text: the head was not solved on them"
_COUNTS = {
    "unlabelled": "examples without a label: nothing is scored",
    "rows_without_text": "rows without text left out",
    "rows_without_label": "rows without a label left out",
    "broken_lines": "lines of the file left out, because they are broken",
    "questions_of_another_level": "questions of another level left out",
    "truncated": "examples cut to the maximum length",
    "passages_truncated": "questions whose passage was cut",
    "questions_truncated": "questions cut",
    "sentences_in_several_windows": "sentences in several windows",
    "sentences_without_words": "sentences without a word",
    "words_without_pieces": "words without a piece, read as the unknown one",
    "tags_that_continue_nothing": "tags inside an entity that no tag began, read as its beginning, as in conlleval",
    "contexts_in_several_windows": "contexts in several windows",
    "answers_relocated": "answers found away from the stated offset",
    "answers_found_more_than_once": "answers with several places in the context, of which the first is taken",
    "answers_not_found": "answers not in the context",
    "answers_not_aligned": "answers without matching tokens in the context",
    "windows_left_out": "windows dropped (no answer)",
    "held_out": "rows held out to tune on",
    "repeated_texts": "texts left out, because an earlier one is equal",
    "truncated_for_teacher": "texts cut for the teacher",
    "rows_without_negative": "rows without a negative kept",
    "rows_that_share_a_text_with_dev": "rows left out, because dev has the same text",
    "rows_not_scored": "rows beyond the first 1,000 not scored",
}
"""A count of rows or examples -> its words."""
COUNTED_BEFORE = ("rows_without_text", "rows_without_label", "broken_lines")
"""Counts of a table that are shown before training."""


def count_lines(counts: Mapping[str, Any]) -> list[str]:
    """A line for each count of rows or examples that were cut, moved, left out or not found."""
    return [counted(counts[key], what) for key, what in _COUNTS.items() if counts.get(key)]


def counts_of_rows(report: Mapping[str, Any], leave_out: Collection[str] = ()) -> list[str]:
    """The counts of training and development rows of a run."""
    lines = []
    for part, name in (("training", "training"), ("development set", "evaluation")):
        counts = {key: count for key, count in (report.get(name) or {}).items() if key not in leave_out}
        lines += [f"{part}: {line}" for line in count_lines(counts)]
    return lines


def published_lines(published: Sequence[Mapping[str, Any]]) -> list[str]:
    """Published scores, a line for each metric and source."""
    groups: dict[tuple[str, str], list[str]] = {}
    for each in published:
        groups.setdefault((each["metric"], each["source"]), []).append(f"{each['model']} {each['score']:g}")
    return [f"published {name}: {', '.join(models)} ({source})" for (name, source), models in groups.items()]


def start_lines(figures: Mapping[str, Any]) -> list[str]:
    """How a run is going to train; for the figures see `announce` of `albert.finetuning.task_run.finetune`."""
    lines = [*figures.get("before_training", ())]
    where = f"at most {figures['max_length']:,} tokens, {figures['precision']} on {figures['device']}"
    if figures.get("frozen"):
        return [*lines, f"only the linear head is learned; {where}"]
    factor = figures["rate_factor"]
    why = "" if factor == 1 else f" ({factor:.3g} times the recipe's, as the model is narrower than {FULL_WIDTH})"
    learning = f"learning rate {figures['learning_rate']:.3g}{why}, batch size {figures['batch_size']:,}"
    length = f"{in_epochs(figures['epochs'])} of {counted(figures['examples'], 'examples')}"
    workers = f", {figures['workers']} workers" if figures["workers"] > 1 else ""
    return [*lines, f"{learning}, {length}: {counted(figures['steps'], 'updates')}; {where}{workers}"]


def settings_line(report: Mapping[str, Any]) -> str:
    """How a finished run was trained."""
    recipe = report["recipe"]
    if report.get("settings", {}).get("frozen"):
        return f"only the linear head was learned, at most {recipe['max_length']:,} tokens"
    return (
        f"learning rate {recipe['learning_rate']:.3g}, batch size {recipe['batch_size']:,}, "
        f"at most {recipe['max_length']:,} tokens, seed {report['seed']}"
    )
