"""Tasks from columns, and the linear baseline."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from albert.columns.read import declare_custom_task
from albert.tasks import linear_baseline as linear
from albert.tasks.examples import Example
from albert.tasks.inputs import Pair, Single, Words
from albert.tasks.linear_baseline import word_shape
from albert.tasks.metrics import accuracy, mean_absolute_error, multi_label_scores, pearson, tag_metrics
from albert.tasks.multi_label import MultiLabel
from albert.tasks.regression import Regression
from albert.tasks.single_label import SingleLabel
from albert.tasks.submission import DECLARED
from albert.tasks.tagging import TokenTagging


def test_declare_custom_task(tmp_path):
    (tmp_path / "train.csv").write_text("q,a,ok\nwho,me,yes\nwho,you,no\n")
    (tmp_path / "dev.csv").write_text("q,a,ok\nwho,me,yes\n")
    files = {"train": tmp_path / "train.csv", "dev": tmp_path / "dev.csv"}
    task = declare_custom_task(files, "q", "ok", pair="a")
    assert task.target == SingleLabel(("no", "yes"), "ok")
    assert task.inputs == Pair("q", "a")
    examples = task.examples(task.source.read(tmp_path, "dev").rows)
    assert (examples[0].texts, examples[0].target) == (("who", "me"), 1)


# --------------------------------------------------------------------------------------------------------------------
# The linear baseline


COLOURS, THINGS = ("red", "blue", "green"), ("ship", "house", "coat")
SINGLE, PAIR = Single("text"), Pair("text", "other")


def declared(target, metrics, inputs=SINGLE):
    return replace(DECLARED["sst-2"], inputs=inputs, target=target, metrics=metrics)


def examples(target, n=60, pair=False):
    """Texts with a colour and a thing, in one text or in one of two each; `target` is a function of both."""
    rows = []
    for number in range(n):
        colour, thing = number % 3, number // 3 % 3
        words = (f"it was {COLOURS[colour]}, number {number}", f"a {THINGS[thing]} of old")
        texts = words if pair else (" ".join(words),)
        rows.append(Example(str(number), f"file:{number}", texts, target(colour, thing)))
    return rows


@pytest.mark.parametrize("inputs", [SINGLE, PAIR])
@pytest.mark.parametrize(
    ("target", "metrics", "function", "score"),
    [
        (SingleLabel(("a", "b"), "y"), (accuracy,), lambda colour, thing: int(colour == 1), 100.0),
        (SingleLabel(("a", "b", "c"), "y"), (accuracy,), lambda colour, thing: thing, 100.0),
        (Regression("y"), (pearson, mean_absolute_error), lambda colour, thing: 2000.0 + 10 * colour + thing, 99.0),
        (MultiLabel(("r", "s"), "y"), (multi_label_scores,), lambda colour, thing: (0, 1)[colour % 2 :], 100.0),
    ],
)
def test_linear_model_learns_from_words(inputs, target, metrics, function, score):
    task, rows = declared(target, metrics, inputs), examples(function, pair=inputs == PAIR)
    torch_state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].tolist()
    result = task.target.word_model(task.metrics, rows[:45], rows[45:], {})
    assert next(iter(result.scores.values())) >= score and result.train_examples == 45 and result.left_out is None
    if isinstance(target, Regression):
        assert result.scores["mean_absolute_error"] < 2
    assert result == task.target.word_model(task.metrics, rows[:45], rows[45:], {})
    assert np.random.get_state()[1].tolist() == numpy_state
    assert torch.equal(torch.random.get_rng_state(), torch_state)


def test_tags_are_learnt_from_the_form_of_words_and_several_sets_are_scored():
    sentences = []
    for number in range(30):
        words = ("the", f"Captain{number % 5}", "saw", str(100 + number))
        sentences.append(Example(str(number), f"file:{number}", words, (0, 1, 0, 2)))
    sentences.append(Example("empty", "file:31", (), ()))
    labels = ("O", "B-PER", "B-NUM")
    task = declared(TokenTagging(labels, "tags"), tag_metrics(labels), Words("words"))
    result = task.target.word_model(task.metrics, sentences[:20], sentences[20:], {"test": sentences[:5]})
    assert result.scores["entity_f1"] == 100.0
    assert result.further_scores["test"]["entity_f1"] == 100.0
    assert [word_shape(word) for word in ("McDonald", "U.N.", "1,234", "")] == ["XxXxx", "X.X.", "0,00", ""]


def test_several_labels_have_a_tuned_threshold():
    """One label in six: with a threshold of 0.5 the linear model predicts none."""
    rows = [
        Example(
            str(n), f"file:{n}", (f"it was {'dark' if n % 6 == 0 else 'light'} {n % 7}",), (n % 6,) if n % 2 else ()
        )
        for n in range(90)
    ]
    task = declared(MultiLabel(tuple("abcdef"), "y"), (multi_label_scores,))
    assert task.target.word_model(task.metrics, rows[:60], rows[60:], {}).scores["micro_f1"] > 10


def test_large_sets_are_sampled_or_left_out(monkeypatch):
    task = declared(SingleLabel(("a", "b"), "y"), (accuracy,))
    rows = examples(lambda colour, thing: int(colour == 1))
    monkeypatch.setattr(linear, "MAX_TRAIN_CHARACTERS", sum(len(row.texts[0]) for row in rows) // 2)
    result = task.target.word_model(task.metrics, rows, rows, {})
    assert result.scores["accuracy"] == 100.0 and 25 < result.train_examples < 35
    monkeypatch.setattr(linear, "MAX_TRAIN_ROWS", 20)
    assert task.target.word_model(task.metrics, rows, rows, {}).train_examples == 20
    monkeypatch.setattr(linear, "MAX_DEV_CHARACTERS", 100)
    result = task.target.word_model(task.metrics, rows, rows, {})
    assert result.scores == {} and result.left_out == "the development set has more than 100 characters"


def test_reasons_for_leaving_out():
    two, many = SingleLabel(("a", "b"), "y"), SingleLabel(tuple(map(str, range(300))), "y")
    same, blank = examples(lambda colour, thing: 0), [Example(str(n), "", ("?!",), n % 2) for n in range(6)]
    for target, rows, reason in ((two, same, "one class"), (many, same, "300 labels"), (two, blank, "no words")):
        assert reason in target.word_model((accuracy,), rows, rows, {}).left_out
    assert DECLARED["race"].target.word_model((accuracy,), [], [], {}) is None
