"""Published files of tasks: number of rows, scores of the gold answers, answers in tokens and windows."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from albert.tasks.answers import OpenAnswer, answer_exact_match, span_exact_match, span_f1
from albert.tasks.regression import Regression
from albert.tasks.span import Span
from albert.tasks.span_windows import span_features, token_span
from albert.tasks.submission import DECLARED
from albert.text.tokenizer_loading import load_tokenizer

TRAIN = {"cola": 8551, "sst-2": 67349, "mrpc": 3668, "sts-b": 5749, "rte": 2490, "wnli": 635}
DEV = {"cola": 1043, "sst-2": 872, "mrpc": 408, "sts-b": 1500, "qnli": 5463, "rte": 277, "wnli": 71, "mnli": 9815}
DEV |= {"squad-1.1": 10570, "squad-2.0": 11873}
OFFICIAL = {(task, split): rows for split, sizes in (("train", TRAIN), ("dev", DEV)) for task, rows in sizes.items()}
OTHERS = {  # in the layout of a task
    ("squad-1.1", "squad/train-v1.1-subset.json.gz"): 8180,
    ("squad-2.0", "squad/train-v2.0-subset.json.gz"): 4719,
    ("squad-1.1", "qa_extra/squadshifts_new_wiki_v1.0.json.gz"): 7938,
    ("race", "race/dev.middle.jsonl.gz"): 1436,
    ("race", "race/dev.high.jsonl.gz"): 3451,
}


@cache
def read(data: Path, name: str, file: str):
    """The examples of a split, or of a file in a task's layout, and the counts of reading it."""
    task = DECLARED[name]
    if "/" in file:
        rows = task.source.with_files({"train": data / file}).read(data, "train")
    else:
        rows = task.source.read(data / ("squad" if isinstance(task.target, Span) else "glue"), file)
    return task.examples(rows.rows), rows.counts


@pytest.mark.parametrize(("name", "file"), [*OFFICIAL, *OTHERS])
def test_all_rows_are_examples_and_gold_scores_100(shared, name, file):
    task = DECLARED[name]
    examples, counts = read(shared / "data", name, file)
    assert len(examples) == (OFFICIAL | OTHERS)[name, file]
    assert all(text.strip() for example in examples for text in example.texts)
    gold = predicted = [example.target for example in examples]
    if isinstance(task.target, Span):
        if "/" in file:  # some answers are only punctuation, which the scores ignore
            return
        gold = [[answer.text for answer in example.answers] for example in examples]
        predicted = [answers[0] if answers else "" for answers in gold]
        if task.target.may_be_absent:
            predicted = [OpenAnswer(text, 0.0, answered=bool(text)) for text in predicted]
    else:
        assert {type(target) for target in gold} == {float if isinstance(task.target, Regression) else int}
    if name == "race":
        assert {example.group for example in examples} == {file.split(".")[1]}
    if (name, file) == ("squad-1.1", "dev"):
        assert (counts["answers"], counts["answers_not_found"]) == (34726, 0)
    scores = task.scores(gold, predicted)
    assert all(score == pytest.approx(100) for name, score in scores.items() if not name.endswith("thresh"))


LONGER = {"5726ed6cf1498d1400e8f00d", "572fe60fb2c2fd140056858e", "572878942ca10214002da3a5"}
"""Questions whose answers are all longer than the 30 tokens of the paper's recipe."""
PART_OF_A_PIECE = {"56dfa1d34a1a83140091ebd4"}
"""The answer is "four", which is only part of the piece "fourth" in the context."""


@cache
def released(shared: Path):
    return load_tokenizer(shared / "data/checkpoints/spiece.model")


@cache
def character_spans(shared: Path, context: str) -> np.ndarray:
    return np.asarray(released(shared).encode_with_offsets(context)[1])


@pytest.mark.parametrize(("name", "exceptions"), [("squad-1.1", LONGER | PART_OF_A_PIECE), ("squad-2.0", LONGER)])
def test_all_answers_but_these_are_reachable_by_tokens(shared, name, exceptions):
    """Exact match with spans of tokens of the released vocabulary."""
    missed = set()
    for example in (example for example in read(shared / "data", name, "dev")[0] if example.answers):
        context = example.texts[1]
        characters = character_spans(shared, context)
        spans = filter(None, (token_span(characters, answer) for answer in example.answers))
        texts = [
            context[characters[first, 0] : characters[last, 1]]
            for first, last in spans
            if last - first < DECLARED[name].target.max_answer_tokens
        ]
        gold = [answer.text for answer in example.answers]
        if not any(answer_exact_match(gold, text) for text in texts):
            missed.add(example.identifier)
    assert missed == exceptions


def test_windows_contain_the_gold_answers(shared):
    examples = read(shared / "data", "squad-1.1", "dev")[0][::60]
    features = span_features(examples, released(shared), 384, 64, 128)
    assert features.counts["answers_not_aligned"] == 0
    answered = {w.example for w, t in zip(features.windows, features.targets, strict=True) if t[0] >= 0}
    assert answered == set(range(len(examples)))
    predicted = []
    for index, question in enumerate(examples):
        gold, spans = question.answers[0], features.character_spans[index]
        first, last = token_span(spans, gold)
        assert spans[first, 0] <= gold.start
        assert spans[last, 1] >= gold.start + len(gold.text.rstrip())
        predicted.append(question.texts[1][spans[first, 0] : spans[last, 1]])
    golds = [[answer.text for answer in question.answers[:1]] for question in examples]
    assert span_exact_match(golds, predicted) > 98.5
    assert span_f1(golds, predicted) > 99.4
