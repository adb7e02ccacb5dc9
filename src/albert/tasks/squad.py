"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018): declarations, the official JSON, and where an answer stands.

Every question of a file is kept, and what does not fit is counted."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.json_files import each_key_once
from albert.tasks.answers import open_question_scores, span_exact_match, span_f1
from albert.tasks.examples import SplitFiles, read_text
from albert.tasks.task import Answer, Published, QuestionInContext, Row, Rows, Span, Task, TaskRecipe
from albert.text.sentences import repair_surrogates

# --------------------------------------------------------------------------------------------------------------------
# Where an answer stands in its context, when a file says it, says it wrongly, or does not say it.

COUNTED = ("answers", "answers_relocated", "answers_not_found")


def placed_answer(text: str, start: int | None, context: str, counts: Counter[str]) -> Answer:
    """The answer at its place; it is added to `counts`.

    An answer that is not where it is said to be is located when its text occurs exactly once in the context; otherwise
    it keeps its text (evaluation goes by text) and has no start.

    Args:
        start: its first character in the context; None where the file does not say.
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


_RELEASE = "google-research/albert README, v2 results, dev"
_TUNED = "dev, threshold chosen on dev"
_TABLE_10 = f"arXiv:1909.11942v6 Table 10, single model, 1.5M steps, {_TUNED}"
_TUNED_RELEASE = f"google-research/albert README, v2 results, {_TUNED}"


def _published(model: str, scores: tuple[float, float], source: str) -> tuple[Published, ...]:
    """F1 and exact match with the threshold that suits dev best, so `best_`."""
    return tuple(
        Published(model, f"best_{name}", score, source) for name, score in zip(("f1", "exact"), scores, strict=True)
    )


class QuestionFiles(SplitFiles):
    """Files in SQuAD's JSON layout."""

    def read(self, data: Path, split: str) -> Rows:
        return read_questions(self.path(data, split))


def read_questions(path: Path) -> Rows:
    """Every question with its context and answers.

    Answers that are not at their offsets are located where they can be and counted (see `placed_answer`), and no
    question is dropped. The questions of a file without any answers, as it is handed to a model that is to be scored,
    have None for them.
    """
    counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    try:
        content = json.loads(read_text(path), object_pairs_hook=each_key_once)
    except (ValueError, RecursionError) as error:
        raise DamagedData(path, f"is not JSON ({error})") from error
    rows = list(_rows(path, _get(content, "data", list, str(path)), counts))
    if not rows:
        raise MissingInput(path, "holds no question")
    seen: set[str] = set()
    for row in rows:
        if row.identifier in seen:
            raise DamagedData(row.where, f"a second question has the id {row.identifier!r}")
        seen.add(row.identifier)
    return Rows(rows, {"rows": len(rows), **counts})


def _rows(path: Path, articles: list[Any], counts: Counter[str]):
    for a, article in enumerate(articles):
        for p, paragraph in enumerate(_get(article, "paragraphs", list, f"{path}: data[{a}]")):
            place = f"{path}: data[{a}].paragraphs[{p}]"
            context = _get(paragraph, "context", str, place)
            for q, question in enumerate(_get(paragraph, "qas", list, place)):
                where = f"{place}.qas[{q}]"
                answers = None
                if not isinstance(question, dict) or "answers" in question:
                    items = _get(question, "answers", list, where)
                    stated = [
                        (_get(each, "text", str, where), _get(each, "answer_start", int, where)) for each in items
                    ]
                    answers = tuple(placed_answer(text, start, context, counts) for text, start in stated)
                if question.get("is_impossible") and answers:
                    raise DamagedData(where, "is impossible and has answers", "the plausible ones stand apart")
                fields = {"question": _get(question, "question", str, where), "context": context}
                yield Row(_get(question, "id", str, where), where, fields, answers)


def _get(value: Any, key: str, kind: type, where: str) -> Any:
    if not isinstance(value, dict) or key not in value:
        raise DamagedData(where, f"has no {key!r}", "expected the SQuAD JSON layout")
    if not isinstance(value[key], kind):
        raise DamagedData(where, f"{key!r} is not a {kind.__name__}", "expected the SQuAD JSON layout")
    if kind is str and repair_surrogates(value[key]) is not value[key]:
        raise DamagedData(where, f"{key!r} holds half of a surrogate pair", "fetch the file again")
    return value[key]


SQUAD_1 = Task(
    name="squad-1.1",
    description="Find the answer to a question in a paragraph (Rajpurkar et al. 2016)",
    source=QuestionFiles("squad", {"train": "train-v1.1.json", "dev": "dev-v1.1.json"}),
    inputs=QuestionInContext("question", "context"),
    target=Span(may_be_absent=False),
    metrics=(span_f1, span_exact_match),
    recipe=TaskRecipe(  # Table 14
        learning_rate=5e-5,
        batch_size=48,
        steps=3649,
        examples=87599,
        warmup_share=365 / 3649,
        encoder_dropout=0.0,
        head_dropout=0.1,
        max_length=384,
        question_length=64,
        stride=128,
    ),
    published=tuple(
        Published(f"albert-{size}-v2", metric, score, _RELEASE)
        for size, scores in {
            "base": (90.2, 83.2),
            "large": (91.8, 85.2),
            "xlarge": (92.9, 86.4),
            "xxlarge": (94.6, 89.1),
        }.items()
        for metric, score in zip(("span_f1", "span_exact_match"), scores, strict=True)
    ),
)

SQUAD_2 = Task(
    name="squad-2.0",
    description="Find the answer to a question in a paragraph, or that it has none there (Rajpurkar et al. 2018)",
    source=QuestionFiles("squad", {"train": "train-v2.0.json", "dev": "dev-v2.0.json"}),
    inputs=QuestionInContext("question", "context"),
    target=Span(may_be_absent=True, head="joint"),
    metrics=(open_question_scores,),
    recipe=TaskRecipe(  # Table 14; the release's own command has 5e-5 and 2 epochs
        learning_rate=3e-5,
        batch_size=48,
        steps=8144,
        examples=130319,
        warmup_share=814 / 8144,
        encoder_dropout=0.0,
        head_dropout=0.1,
        max_length=384,
        question_length=64,
        stride=128,
    ),
    published=(
        *_published("albert-xxlarge-v1", (90.2, 87.4), _TABLE_10),
        *_published("albert-base-v2", (82.1, 79.3), _TUNED_RELEASE),
        *_published("albert-large-v2", (84.9, 81.8), _TUNED_RELEASE),
        *_published("albert-xlarge-v2", (87.9, 84.1), _TUNED_RELEASE),
        *_published("albert-xxlarge-v2", (89.8, 86.9), _TUNED_RELEASE),
    ),
)

TASKS = (SQUAD_1, SQUAD_2)
