"""A task is what its declaration says, and its name stands nowhere else."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.tasks.metrics import baseline_scores
from albert.tasks.submission import DECLARED, find_task
from albert.tasks.task import Choice, Span, TaskRecipe

STEPS = {  # the paper's Table 14: learning rate, batch, steps, warm-up
    "cola": (1e-5, 16, 5336, 320),
    "sts-b": (2e-5, 16, 3598, 214),
    "sst-2": (1e-5, 32, 20935, 1256),
    "mnli": (3e-5, 128, 10000, 1000),
    "qnli": (1e-5, 32, 33112, 1986),
    "qqp": (5e-5, 128, 14000, 1000),
    "rte": (3e-5, 32, 800, 200),
    "mrpc": (2e-5, 32, 800, 200),
    "wnli": (2e-5, 16, 2000, 250),
    "squad-1.1": (5e-5, 48, 3649, 365),
    "squad-2.0": (3e-5, 48, 8144, 814),
    "race": (2e-5, 32, 12000, 1000),
    "race-middle": (2e-5, 32, 12000, 1000),
    "race-high": (2e-5, 32, 12000, 1000),
}


METRICS = {  # GLUE, SQuAD and RACE as their own papers score them, the one that is named first in front
    "cola": ["matthews_correlation"],
    "sst-2": ["accuracy"],
    "mrpc": ["f1", "accuracy"],
    "sts-b": ["pearson", "spearman"],
    "qqp": ["f1", "accuracy"],
    "mnli": ["accuracy"],
    "qnli": ["accuracy"],
    "rte": ["accuracy"],
    "wnli": ["accuracy"],
    "ax": ["matthews_correlation"],
    "squad-1.1": ["span_f1", "span_exact_match"],
    "squad-2.0": ["open_question_scores"],
    "race": ["accuracy"],
    "race-middle": ["accuracy"],
    "race-high": ["accuracy"],
}


def test_metrics_are_the_official_ones_in_their_order():
    assert {name: [metric.__name__ for metric in task.metrics] for name, task in DECLARED.items()} == METRICS


@pytest.mark.parametrize("name", STEPS)
def test_recipes_are_the_papers(name):
    recipe = DECLARED[name].recipe
    steps = recipe.total_steps(recipe.examples)
    found = (recipe.learning_rate, recipe.batch_size, steps, round(recipe.warmup_share * steps))
    assert found == STEPS[name]
    assert recipe.total_steps(recipe.examples * 2) == steps * 2  # the number of epochs is kept
    recipe.check()


def test_every_published_score_is_of_a_metric_of_the_task():
    for task in DECLARED.values():
        gold = [("a",), ()] if isinstance(task.target, Span) else np.array([0, 1])
        names = baseline_scores(task, gold) or [metric.__name__ for metric in task.metrics]
        assert {published.metric for published in task.published} <= set(names)
        if isinstance(task.target, Choice):
            assert len(task.target.shown) == len(task.target.labels)


def test_labels_are_shown_in_their_own_words_and_numbers_as_what_they_mean():
    numbered = {
        "cola": ("unacceptable", "acceptable"),
        "sst-2": ("negative", "positive"),
        "mrpc": ("not_equivalent", "equivalent"),
        "qqp": ("not_duplicate", "duplicate"),
        "wnli": ("not_entailment", "entailment"),
    }
    for name, task in DECLARED.items():
        if isinstance(task.target, Choice):
            assert task.target.shown == numbered.get(name, task.target.labels)


def test_the_second_release_learns_race_more_gently():
    first, second = DECLARED["race"].recipe, DECLARED["race"].second_recipe
    assert second == replace(first, learning_rate=1e-5, encoder_dropout=0.0)
    assert all(task.second_recipe is None for name, task in DECLARED.items() if not name.startswith("race"))


def test_no_task_is_named_outside_its_declaration(checkout):
    names = [re.escape(name) for name in DECLARED]
    values = "COLA|SST2|MRPC|STSB|QQP|MNLI|QNLI|RTE|WNLI|AX|SQUAD_1|SQUAD_2"
    pattern = re.compile(rf"""["']({"|".join(names)}|{values})["']|\b({values})\b""")
    rooms = [checkout / "src/albert" / room for room in ("tasks", "finetuning", "inference", "training", "cli")]
    for file in (file for room in rooms for file in room.rglob("*.py")):
        if file.name not in ("glue.py", "squad.py", "race.py", "submission.py"):
            assert not pattern.search(file.read_text(encoding="utf-8")), file


def test_tasks_are_found_by_name_and_a_slip_is_answered():
    assert find_task("SST-2") is find_task("sst2") is DECLARED["sst-2"]
    assert find_task("SQuAD1.1") is DECLARED["squad-1.1"]
    with pytest.raises(UsageError, match="did you mean 'mrpc'"):
        find_task("mrcp")


@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.0},
        {"batch_size": 0},
        {"epochs": None},
        {"steps": 5},
        {"warmup_share": 1.0},
        {"head_dropout": -0.1},
        {"max_length": 7},
        {"stride": 0},
    ],
)
def test_a_recipe_that_cannot_work_is_refused(wrong):
    fields = {"learning_rate": 1e-5, "batch_size": 8, "epochs": 1.0} | wrong
    with pytest.raises(InvalidConfiguration):
        TaskRecipe(**fields).check()


def test_tasks_do_not_import_torch():
    modules = ("submission", "custom", "answers", "race", "features")
    names = ", ".join(f"albert.tasks.{module}" for module in modules)
    code = f"import sys, {names}; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
