"""The averages are those of the paper's tables."""

import pytest

from albert.tasks.metrics import baseline_scores
from albert.tasks.submission import DECLARED, FIVE_TASKS_AVERAGE, GLUE_AVERAGE
from albert.tasks.task import Span

# SQuAD 1.1, SQuAD 2.0 (F1 and EM each), MNLI, SST-2, RACE, Avg
PAPER = {
    "Table 5, no sentence objective": (88.6, 81.5, 78.1, 75.3, 81.5, 89.9, 61.7, 79.0),
    "Table 5, SOP": (89.3, 82.3, 80.0, 77.1, 82.0, 90.3, 64.0, 80.1),
    "Table 8, without dropout": (94.8, 89.5, 89.9, 87.2, 90.4, 96.5, 86.1, 90.7),
    "Table 11, 12 layers": (89.8, 83.3, 80.7, 77.9, 83.3, 91.7, 66.7, 81.5),
    "README, base v2": (90.2, 83.2, 82.1, 79.3, 84.6, 92.9, 66.8, 82.3),
    "README, xxlarge v2": (94.6, 89.1, 89.8, 86.9, 90.6, 96.8, 86.8, 90.9),
}


@pytest.mark.parametrize("row", PAPER)
def test_the_paper_averages_five_tasks_with_half_a_weight_for_f1_and_exact_match(row):
    f1, exact, open_f1, open_exact, mnli, sst, race, average = PAPER[row]
    scores = {
        "squad-1.1": {"span_f1": f1, "span_exact_match": exact},
        "squad-2.0": {"best_f1": open_f1, "best_exact": open_exact},
        "mnli": {"accuracy": mnli},
        "sst-2": {"accuracy": sst},
        "race": {"accuracy": race},
    }
    assert FIVE_TASKS_AVERAGE.of(scores) == pytest.approx(average, abs=0.06)


def test_the_leaderboard_of_glue_averages_pairs_first():
    """ALBERT's row: the pairs as on gluebenchmark.com (from memory), of which Table 9 shows one figure, and its Avg."""
    scores = {
        "cola": {"matthews_correlation": 69.1},
        "sst-2": {"accuracy": 97.1},
        "mrpc": {"f1": 93.4, "accuracy": 91.2},
        "sts-b": {"pearson": 92.5, "spearman": 92.0},
        "qqp": {"f1": 74.2, "accuracy": 90.5},
        "mnli": {"accuracy": 91.3, "accuracy/dev_mismatched": 91.0},
        "qnli": {"accuracy": 99.2},
        "rte": {"accuracy": 89.2},
        "wnli": {"accuracy": 91.8},
    }
    assert GLUE_AVERAGE.of(scores) == pytest.approx(89.4, abs=0.05)
    del scores["wnli"]
    assert GLUE_AVERAGE.of(scores) is None


@pytest.mark.parametrize("average", [GLUE_AVERAGE, FIVE_TASKS_AVERAGE], ids=lambda average: average.name)
def test_averages_are_of_scores_that_the_tasks_have(average):
    for name, parts in average.parts.items():
        task = DECLARED[name]
        gold = [("a",), ()] if isinstance(task.target, Span) else [0, 1]
        scores = baseline_scores(task, gold) or [metric.__name__ for metric in task.metrics]
        assert {part.split("/")[0] for part in parts} <= set(scores)
        assert {part.split("/")[1] for part in parts if "/" in part} <= set(task.further_splits)
