"""SQuAD 1.1 and 2.0 (Rajpurkar et al. 2016, 2018), declared in `squad.toml`: files and positions of answers.

Every question of a file is kept; answers that are not found in the context are counted."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from albert.runtime.errors import DamagedData, MissingInput
from albert.runtime.json_files import unique_keys
from albert.tables.split_files import SplitFiles, json_entry, read_text
from albert.tables.table import Row, Table
from albert.tasks.answer_columns import COUNTED, locate_answer
from albert.tasks.answers import open_question_scores, span_exact_match, span_f1
from albert.tasks.declared import load_tasks
from albert.tasks.inputs import QuestionInContext
from albert.tasks.span import Span
from albert.text.sentences import replace_surrogates


def read_questions(path: Path, split: str) -> Table:
    """Every question with its context and answers (see `locate_answer`); answers are None for a file without them."""
    counts: Counter[str] = Counter(dict.fromkeys(COUNTED, 0))
    try:
        content = json.loads(read_text(path), object_pairs_hook=unique_keys)
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
    return Table(rows, {"rows": len(rows), **counts})


def _rows(path: Path, articles: list[Any], counts: Counter[str]):
    for a, article in enumerate(articles):
        for p, paragraph in enumerate(_get(article, "paragraphs", list, f"{path}: data[{a}]")):
            prefix = f"{path}: data[{a}].paragraphs[{p}]"
            context = _get(paragraph, "context", str, prefix)
            for q, question in enumerate(_get(paragraph, "qas", list, prefix)):
                where = f"{prefix}.qas[{q}]"
                answers = None
                if not isinstance(question, dict) or "answers" in question:
                    items = [
                        (_get(item, "text", str, where), _start(item, where))
                        for item in _get(question, "answers", list, where)
                    ]
                    answers = tuple(locate_answer(text, start, context, counts) for text, start in items)
                if question.get("is_impossible") and answers:
                    raise DamagedData(where, "is impossible and has answers", "put them into plausible_answers")
                fields = {"question": _get(question, "question", str, where), "context": context}
                identifier = question.get("id")
                if type(identifier) is not int:
                    identifier = _get(question, "id", str, where)
                yield Row(str(identifier), where, fields, answers)


def _start(answer: Any, where: str) -> int | None:
    """The start of an answer, None if the file has none."""
    if isinstance(answer, dict) and answer.get("answer_start") is None:
        return None
    return _get(answer, "answer_start", int, where)


def _get(value: Any, key: str, expected: type, where: str) -> Any:
    found = json_entry(value, key, expected, where, "SQuAD")
    if expected is str and replace_surrogates(found) is not found:
        raise DamagedData(where, f"{key!r} holds half of a surrogate pair", "fetch the file again")
    return found


TASKS = SQUAD_1, SQUAD_2 = load_tasks(
    "squad.toml",
    (span_f1, span_exact_match, open_question_scores),
    lambda entry: (
        SplitFiles(entry["folder"], entry["files"], read_questions),
        QuestionInContext("question", "context"),
        Span(**entry["target"]),
    ),
)
