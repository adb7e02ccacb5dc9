"""Rows of the development set that a model's page and card show as examples."""

from collections.abc import Sequence
from itertools import groupby, zip_longest
from typing import Any

from albert.tasks.declared import DeclaredTask
from albert.tasks.examples import Example
from albert.tasks.inputs import QuestionInContext, Words
from albert.tasks.regression import Regression


def page_examples(task: DeclaredTask, examples: Sequence[Example], count: int) -> list[dict[str, str]]:
    """At most `count` short examples without labels, as the fields of the page of `albert serve`.

    Labels take turns; numbers go from low to high. Where there are fewer short ones, the beginnings of longer ones
    follow. The result depends on the examples and their order alone.
    """
    chosen = _chosen_examples(task, examples, count, shortened=False)
    if len(chosen) < count:
        chosen += _chosen_examples(task, examples, count - len(chosen), shortened=True)
    return chosen


def _chosen_examples(
    task: DeclaredTask, examples: Sequence[Example], count: int, shortened: bool
) -> list[dict[str, str]]:
    """The short examples, or those that have to be shortened."""
    names = ("question", "context", "options") if isinstance(task.inputs, QuestionInContext) else ("text", "pair")
    groups_of: dict[tuple[str, ...], Any] = {}
    for row in examples:
        texts = (" ".join(row.texts),) if isinstance(task.inputs, Words) else row.texts
        required = (*row.texts[1:], *row.options) if row.options else texts  # a choice may have no question
        texts += ("\n".join(row.options),) if row.options else ()
        limits = {name: 1000 if name == "context" else 300 for name in names}
        short = all(len(text) <= limits[name] for name, text in zip(names, texts, strict=False))
        if shortened and not short and len("\n".join(row.options)) <= limits[names[-1]]:
            texts = tuple(_beginning(text, limits[name]) for name, text in zip(names, texts, strict=False))
            short = True
        elif shortened:
            short = False
        printable = "".join("".join(texts).split()).isprintable() and "\n" not in "".join(row.options)
        if short and printable and all(map(str.strip, required)):
            n_labels = -len(set(row.target)) if isinstance(row.target, tuple) else 0
            groups_of[texts] = (not row.answers, n_labels, row.target)
    ordered = sorted(groups_of, key=groups_of.__getitem__)
    if isinstance(task.target, Regression):
        groups_of = {texts: index * count // len(ordered) for index, texts in enumerate(ordered)}
    groups = [list(group) for _, group in groupby(ordered, key=groups_of.__getitem__)]
    chosen = [texts for turn in zip_longest(*groups) for texts in turn if texts is not None]
    return [dict(zip(names, texts, strict=False)) for texts in chosen[:count]]


def _beginning(text: str, limit: int) -> str:
    """At most `limit` characters, up to the end of a word if there is one."""
    if len(text) <= limit:
        return text
    cut = text[:limit]
    return cut.rpartition(" ")[0].rstrip() or cut
