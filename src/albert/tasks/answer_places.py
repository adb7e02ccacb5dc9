"""Where an answer stands in its context, when a file says it, says it wrongly, or does not say it."""

from collections import Counter

from albert.tasks.rows import Answer

COUNTED = ("answers", "answers_relocated", "answers_not_found")


def placed_answer(text: str, start: int | None, context: str, counts: Counter[str]) -> Answer:
    """The answer at its place; it is added to `counts`.

    An answer that is not where it is said to be is located when its text occurs exactly once in the context; otherwise
    it keeps its text (evaluation goes by text) and has no start.

    Args:
        text: the answer.
        start: its first character in the context; None where the file does not say.
        context: the text that should hold it.
        counts: `answers`, `answers_relocated` (only of those with a start) and `answers_not_found` are added to.
    """
    counts["answers"] += 1
    if start is not None and start >= 0 and context.startswith(text, start):
        return Answer(text, start)
    if text and context.count(text) == 1:
        counts["answers_relocated"] += start is not None
        return Answer(text, context.index(text))
    counts["answers_not_found"] += 1
    return Answer(text, None)
