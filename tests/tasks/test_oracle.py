"""Right answers score 100 on every real file at hand, and every row of it is read."""

import pytest

from albert.tasks.answerability import OpenAnswer
from albert.tasks.baseline import task_scores
from albert.tasks.declared import DECLARED
from albert.tasks.examples import to_examples
from albert.tasks.task import Span

ROWS = {
    ("cola", "dev"): 1043,
    ("sst-2", "dev"): 872,
    ("mrpc", "dev"): 408,
    ("mrpc", "train"): 3668,
    ("sts-b", "dev"): 1500,
    ("sts-b", "train"): 5749,
    ("qnli", "dev"): 5463,
    ("rte", "dev"): 277,
    ("rte", "train"): 2490,
    ("wnli", "dev"): 71,
    ("wnli", "train"): 635,
    ("cola", "train"): 8551,
    ("sst-2", "train"): 67349,
    ("mnli", "dev"): 9815,
    ("squad-1.1", "dev"): 10570,
    ("squad-2.0", "dev"): 11873,
}


@pytest.mark.parametrize(("name", "split"), ROWS)
def test_right_answers_score_100(shared, name, split):
    task = DECLARED[name]
    folder = "squad" if isinstance(task.target, Span) else "glue"
    examples = to_examples(task, task.source.read(shared / "data" / folder, split).rows)
    assert len(examples) == ROWS[name, split]
    gold = said = [example.target for example in examples]
    if isinstance(task.target, Span):
        gold = [[answer.text for answer in example.answers] for example in examples]
        said = [answers[0] if answers else "" for answers in gold]
        if task.target.may_be_absent:
            said = [OpenAnswer(text, 0.0, answered=bool(text)) for text in said]
    scores = task_scores(task, gold, said)
    assert all(score == pytest.approx(100) for name, score in scores.items() if not name.endswith("thresh"))
