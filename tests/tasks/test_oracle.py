"""Right answers score 100 on every real file at hand, and every row of it is read."""

import numpy as np
import pytest

from albert.tasks.answers import OpenAnswer, answer_exact_match
from albert.tasks.examples import to_examples
from albert.tasks.features import token_span
from albert.tasks.metrics import task_scores
from albert.tasks.submission import DECLARED
from albert.tasks.task import Span
from albert.text.tokenizer_loading import load_tokenizer

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


@pytest.mark.parametrize(
    ("name", "file", "rows"),
    [
        ("squad-1.1", "squad/train-v1.1-subset.json.gz", 8180),
        ("squad-2.0", "squad/train-v2.0-subset.json.gz", 4719),
        ("squad-1.1", "qa_extra/squadshifts_amazon_reviews_v1.0.json.gz", 9885),
        ("squad-1.1", "qa_extra/squadshifts_new_wiki_v1.0.json.gz", 7938),
        ("squad-1.1", "qa_extra/squadshifts_reddit_v1.0.json.gz", 9803),
        ("qnli", "glue/QNLI/train-derived.tsv.gz", 29356),
        ("race", "race/train.middle.jsonl.gz", 25421),
        ("race", "race/dev.middle.jsonl.gz", 1436),
        ("race", "race/dev.high.jsonl.gz", 3451),
    ],
)
def test_every_row_of_other_files_in_a_layout_is_an_example(shared, name, file, rows):
    task = DECLARED[name]
    source = task.source.with_files({"train": shared / "data" / file})
    examples = to_examples(task, source.read(shared / "data", "train").rows)
    assert len(examples) == rows
    if not isinstance(task.target, Span):
        gold = [example.target for example in examples]
        assert set(task_scores(task, gold, gold).values()) == {100.0}


LONGER = {"5726ed6cf1498d1400e8f00d", "572fe60fb2c2fd140056858e", "572878942ca10214002da3a5"}
"""Questions all of whose answers are longer than the 30 tokens of the paper's recipe."""
PART_OF_A_PIECE = {"56dfa1d34a1a83140091ebd4"}
"""A question whose answer is "four", in a context that has it only in the piece of "fourth"."""


@pytest.mark.parametrize(("name", "exceptions"), [("squad-1.1", LONGER | PART_OF_A_PIECE), ("squad-2.0", LONGER)])
def test_tokens_can_say_every_answer_but_these(shared, name, exceptions):
    """The best that any model can say, whose answers are tokens of the released vocabulary: exact but for a few."""
    task = DECLARED[name]
    tokenizer = load_tokenizer(shared / "data/checkpoints/spiece.model")
    examples = to_examples(task, task.source.read(shared / "data", "dev").rows)
    places: dict[str, np.ndarray] = {}
    missed = set()
    for example in examples:
        context = example.texts[1]
        if context not in places:
            places[context] = np.asarray(tokenizer.encode_with_offsets(context)[1])
        spans = [token_span(places[context], answer) for answer in example.answers]
        said = [
            context[places[context][first, 0] : places[context][last, 1]]
            for first, last in filter(None, spans)
            if last - first < task.target.max_answer_tokens
        ]
        gold = [answer.text for answer in example.answers]
        if gold and not any(answer_exact_match(gold, text) for text in said):
            missed.add(example.identifier)
    assert missed == exceptions
