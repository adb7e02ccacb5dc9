"""Own tasks, and what models must beat on them."""

import numpy as np
import pytest
import torch

from albert.runtime.errors import AlbertError, DamagedData, UsageError
from albert.tasks import linear_baseline as linear
from albert.tasks.custom import declare_custom_task
from albert.tasks.examples import Example, to_examples
from albert.tasks.linear_baseline import linear_baseline
from albert.tasks.metrics import accuracy, mean_absolute_error, multi_label_scores, pearson
from albert.tasks.submission import DECLARED
from albert.tasks.task import Choice, Labels, Pair, Score, Single, Task, TaskRecipe

# --------------------------------------------------------------------------------------------------------------------
# The user's own table: labels found and sorted, mistakes named with their row.


def test_declare_custom_task(tmp_path):
    (tmp_path / "train.csv").write_text("q,a,ok\nwho,me,yes\nwho,you,no\n")
    (tmp_path / "dev.csv").write_text("q,a,ok\nwho,me,yes\n")
    files = {"train": tmp_path / "train.csv", "dev": tmp_path / "dev.csv"}
    task = declare_custom_task(files, "q", "ok", pair="a")
    assert task.target == Choice(("no", "yes"), "ok")
    assert task.inputs == Pair("q", "a")
    examples = to_examples(task, task.source.read(tmp_path, "dev").rows)
    assert (examples[0].texts, examples[0].target) == (("who", "me"), 1)


@pytest.mark.parametrize(
    ("name", "content", "kind", "message"),
    [
        ("x.csv", "t,t\na,1\n", DamagedData, "same name"),
        ("x.tsv", "t\ty\na\n", DamagedData, r"x\.tsv:2"),
        ("x.jsonl", '{"t": "a"\n', DamagedData, r"x\.jsonl:1: is not JSON"),
        ("x.jsonl", '{"t": "a", "y": 1}\n[]\n', DamagedData, r"x\.jsonl:2: is list, a JSON object is expected"),
        ("x.jsonl", '{"t": "a", "y": 1}\n{"t": "a", "y": null}\n', DamagedData, r"x\.jsonl:2: has no column 'y'"),
        ("x.jsonl", '{"t": "\\ud800", "y": 1}\n', DamagedData, "surrogate"),
        ("x.json", "{}", UsageError, "is JSON, not JSON lines; SQuAD's layout goes with the task squad-1.1"),
    ],
)
def test_damaged_files_are_refused_in_one_line(tmp_path, name, content, kind, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(AlbertError, match=message) as error:
        task = declare_custom_task({"train": path}, "t", "y")
        to_examples(task, task.source.read(tmp_path, "train").rows)
    assert type(error.value) is kind
    assert "\n" not in str(error.value)


# --------------------------------------------------------------------------------------------------------------------
# A linear model over TF-IDF learns what words say, in seconds, and says why where it is left out.


COLOURS, THINGS = ("red", "blue", "green"), ("ship", "house", "coat")
SINGLE, PAIR = Single("text"), Pair("text", "other")


def declared(target, metrics, inputs=SINGLE):
    recipe = TaskRecipe(learning_rate=1e-3, batch_size=8, epochs=1.0)
    return Task(name="t", source=DECLARED["sst-2"].source, inputs=inputs, target=target, metrics=metrics, recipe=recipe)


def examples(of, n=60, pair=False):
    """What `of` says of a colour and a thing that are both in the text, or each in one of two."""
    found = []
    for place in range(n):
        colour, thing = place % 3, place // 3 % 3
        words = (f"it was {COLOURS[colour]}, number {place}", f"a {THINGS[thing]} of old")
        texts = words if pair else (" ".join(words),)
        found.append(Example(str(place), f"file:{place}", texts, of(colour, thing)))
    return found


@pytest.mark.parametrize("inputs", [SINGLE, PAIR])
@pytest.mark.parametrize(
    ("target", "metrics", "of", "first"),
    [
        (Choice(("a", "b"), "y"), (accuracy,), lambda colour, thing: int(colour == 1), 100.0),
        (Choice(("a", "b", "c"), "y"), (accuracy,), lambda colour, thing: thing, 100.0),
        (Score("y"), (pearson, mean_absolute_error), lambda colour, thing: 2000.0 + 10 * colour + thing, 99.0),
        (Labels(("r", "s"), "y"), (multi_label_scores,), lambda colour, thing: (0, 1)[colour % 2 :], 100.0),
    ],
)
def test_linear_model_learns_from_words(inputs, target, metrics, of, first):
    task, rows = declared(target, metrics, inputs), examples(of, pair=inputs == PAIR)
    torch.manual_seed(1), np.random.seed(1)
    before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()
    found = linear_baseline(task, rows[:45], rows[45:])
    assert next(iter(found.scores.values())) >= first and found.train_examples == 45 and found.left_out is None
    if isinstance(target, Score):
        assert found.scores["mean_absolute_error"] < 2
    assert found == linear_baseline(task, rows[:45], rows[45:])
    assert np.random.get_state()[1].tolist() == before[1]
    assert torch.equal(torch.random.get_rng_state(), before[0])


def test_large_sets_are_sampled_or_left_out(monkeypatch):
    task = declared(Choice(("a", "b"), "y"), (accuracy,))
    rows = examples(lambda colour, thing: int(colour == 1))
    monkeypatch.setattr(linear, "MOST_TRAIN_CHARACTERS", sum(len(row.texts[0]) for row in rows) // 2)
    found = linear_baseline(task, rows, rows)
    assert found.scores["accuracy"] == 100.0 and 25 < found.train_examples < 35
    monkeypatch.setattr(linear, "MOST_TRAIN_ROWS", 20)
    assert linear_baseline(task, rows, rows).train_examples == 20
    monkeypatch.setattr(linear, "MOST_DEV_CHARACTERS", 100)
    found = linear_baseline(task, rows, rows)
    assert found.scores == {} and found.left_out == "the development set has more than 100 characters"


def test_reasons_for_leaving_out():
    two, many = Choice(("a", "b"), "y"), Choice(tuple(map(str, range(300))), "y")
    rows = examples(lambda colour, thing: 0)
    assert "one class" in linear_baseline(declared(two, (accuracy,)), rows, rows).left_out
    assert "300 labels" in linear_baseline(declared(many, (accuracy,)), rows, rows).left_out
    blank = [Example(str(n), "", ("?!",), n % 2) for n in range(6)]
    assert "no words" in linear_baseline(declared(two, (accuracy,)), blank, blank).left_out
    assert linear_baseline(DECLARED["race"], [], []) is None
