"""Metrics of every kind of task, averages, ensembles and constant answers."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sklearn_metrics

from albert.runtime.errors import DamagedData
from albert.tasks.answers import Answers, Candidate, NullThreshold, decide
from albert.tasks.metrics import (
    Entity,
    accuracy,
    baseline_scores,
    count_invalid_continuations,
    entities_of,
    entity_scores,
    f1,
    is_better,
    macro_f1,
    matthews_correlation,
    mean_absolute_error,
    multi_label_scores,
    pearson,
    predictions_in_order,
    run_scores,
    runs_of,
    spearman,
    tag_metrics,
    tag_scheme,
    word_scores,
)
from albert.tasks.submission import (
    DECLARED,
    GLUE_AVERAGE,
    OWN_THRESHOLDS,
    average_answers,
    average_numbers,
)
from albert.tasks.task import Labels, Single, Span, Tags, Task, TaskRecipe, Words

# --------------------------------------------------------------------------------------------------------------------
# Scores are scikit-learn's and SciPy's, times 100.


LABEL_PAIRS = st.integers(2, 5).flatmap(
    lambda n: st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=40)
)
NUMBER_PAIRS = st.lists(
    st.tuples(st.floats(-5, 5).map(lambda x: round(x, 2)), st.floats(-5, 5).map(lambda x: round(x, 2))),
    min_size=2,
    max_size=40,
)


@given(LABEL_PAIRS, st.randoms(use_true_random=False))
def test_another_order_of_labels_or_rows_gives_the_same_score(pairs, randomness):
    gold, predicted = np.array(pairs).T
    labels = list(range(5))
    randomness.shuffle(labels)
    rows = list(range(len(pairs)))
    randomness.shuffle(rows)
    turned = np.array(labels)[gold][rows], np.array(labels)[predicted][rows]
    for metric in (accuracy, macro_f1, matthews_correlation):
        assert metric(*turned) == pytest.approx(metric(gold, predicted), abs=1e-12)


@given(LABEL_PAIRS)
def test_label_metrics_equal_scikit_learn(pairs):
    gold, predicted = np.array(pairs).T
    assert accuracy(gold, predicted) == 100 * sklearn_metrics.accuracy_score(gold, predicted)
    assert macro_f1(gold, predicted) == 100 * sklearn_metrics.f1_score(
        gold, predicted, average="macro", zero_division=0.0
    )
    if len(set(gold) | set(predicted)) > 1:
        assert matthews_correlation(gold, predicted) == 100 * sklearn_metrics.matthews_corrcoef(gold, predicted)


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=40))
def test_f1_equals_scikit_learn(pairs):
    gold, predicted = np.array(pairs).T
    assert f1(gold, predicted) == 100 * sklearn_metrics.f1_score(gold, predicted, zero_division=0.0)


@given(NUMBER_PAIRS, st.integers(-6, 6))
def test_correlations_equal_scipy(pairs, exponent):
    gold, predicted = np.array(pairs).T * 10.0**exponent
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        assert pearson(gold, predicted) is None
        assert spearman(gold, predicted) is None
    else:
        assert pearson(gold, predicted) == pytest.approx(100 * stats.pearsonr(gold, predicted)[0], abs=1e-12)
        assert spearman(gold, predicted) == pytest.approx(100 * stats.spearmanr(gold, predicted)[0], abs=1e-12)


@pytest.mark.parametrize("metric", [accuracy, f1, macro_f1, matthews_correlation, pearson, spearman])
def test_a_score_without_rows_is_undefined_not_nan(metric):
    assert metric(np.zeros(0, int), np.zeros(0, int)) is None
    assert set(multi_label_scores([], []).values()) == {None}


def test_degenerate_predictions():
    assert matthews_correlation([0, 1, 1], [1, 1, 1]) == 0.0
    assert matthews_correlation([1, 1], [1, 1]) == 0.0
    assert f1([0, 0], [0, 0]) == 0.0
    assert pearson([1.0], [2.0]) is None
    assert pearson([1.0, 2.0], [3.0, 3.0]) is None
    assert spearman([1.0, 2.0], [math.nan, 1.0]) is None
    assert mean_absolute_error([1.0, 3.0], [2.0, 5.0]) == 1.5


def test_a_missing_prediction_is_refused():
    with pytest.raises(DamagedData, match="2 of 3 rows have no prediction, the first is 'b'"):
        predictions_in_order(["a", "b", "c"], {"a": 1, "z": 2}, "predictions.jsonl")
    assert predictions_in_order(["b", "a"], {"a": 1, "b": 2}, "x") == [2, 1]


def declared(inputs, target, metric):
    recipe = TaskRecipe(learning_rate=1e-3, batch_size=8, epochs=1.0)
    source = DECLARED["sst-2"].source
    return Task(name="t", source=source, inputs=inputs, target=target, metrics=(metric,), recipe=recipe)


def tagging(labels):
    return declared(Words("words"), Tags(tuple(labels), "tags"), entity_scores)


# --------------------------------------------------------------------------------------------------------------------
# Tags become entities as conlleval and seqeval read them, valid or not, and only exact entities count.


TYPES = ("PER", "LOC", "a-b")
IOB2 = ("O", *(f"{prefix}-{kind}" for prefix in "BI" for kind in TYPES))
IOBES = (*IOB2, *(f"{prefix}-{kind}" for prefix in "ES" for kind in TYPES))
SENTENCES = st.lists(st.lists(st.sampled_from(IOBES), max_size=12), min_size=1, max_size=6)
LAID_OUT = st.lists(st.tuples(st.sampled_from([*TYPES, "O"]), st.integers(1, 4)), max_size=6)


def written(spans, scheme):
    """Tags of spans laid end to end."""
    tags = []
    for kind, length in spans:
        first, inside, last, only = {"IOB2": "BIIB", "IOBES": "BIES", "BILOU": "BILU"}[scheme]
        prefixes = [only] if length == 1 else [first, *[inside] * (length - 2), last]
        tags += ["O"] * length if kind == "O" else [f"{prefix}-{kind}" for prefix in prefixes]
    return tags


def placed(spans):
    found, start = [], 0
    for kind, length in spans:
        if kind != "O":
            found.append(Entity(kind, start, start + length))
        start += length
    return found


@given(LAID_OUT, st.sampled_from(["IOB2", "IOBES", "BILOU"]))
def test_valid_tags_give_back_the_entities_that_they_were_written_from(spans, scheme):
    assert entities_of(written(spans, scheme)) == placed(spans)
    assert count_invalid_continuations(written(spans, scheme)) == 0


@pytest.mark.parametrize(
    ("tags", "entities", "contradictions"),
    [
        ("I-PER I-PER O", [("PER", 0, 2)], 1),
        ("O I-PER B-PER", [("PER", 1, 2), ("PER", 2, 3)], 1),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)], 1),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)], 0),
        ("B-PER O I-PER", [("PER", 0, 1), ("PER", 2, 3)], 1),
        ("E-LOC I-LOC", [("LOC", 0, 1), ("LOC", 1, 2)], 2),
        ("S-LOC E-LOC O", [("LOC", 0, 1), ("LOC", 1, 2)], 1),
        ("B-LOC I-LOC", [("LOC", 0, 2)], 0),
        ("B I O I", [("", 0, 2), ("", 3, 4)], 1),
        ("", [], 0),
    ],
)
def test_contradictions_are_read_and_nothing_is_thrown_away(tags, entities, contradictions):
    """As conlleval (the official script of CoNLL-2003) and seqeval read them."""
    assert entities_of(tags.split()) == [Entity(*each) for each in entities]
    assert count_invalid_continuations(tags.split()) == contradictions


@given(st.lists(st.sampled_from(IOBES), max_size=15))
def test_every_word_that_is_not_outside_is_in_one_entity_of_its_type(tags):
    kinds = [None] * len(tags)
    for entity in entities_of(tags):
        for place in range(entity.start, entity.end):
            assert kinds[place] is None
            kinds[place] = entity.type
    assert kinds == [None if tag == "O" else tag.partition("-")[2] for tag in tags]


def test_the_labels_tell_the_scheme_and_the_scheme_the_metrics():
    assert tag_scheme(IOB2) == tag_scheme(("I-PER", "O")) == tag_scheme(("B", "I", "O")) == "IOB2"
    assert tag_scheme(IOBES) == tag_scheme(("B-X", "I-X", "L-X", "U-X", "O")) == "IOBES"
    assert tag_scheme(("NOUN", "VERB", "B-side")) == tag_scheme(("PER", "O")) == tag_scheme(("S", "O")) == "plain"
    assert tag_metrics(IOB2) == (entity_scores,)
    assert tag_metrics(("PER", "O")) == (run_scores,)
    assert tag_metrics(("NOUN", "VERB")) == (word_scores,)


def test_only_exact_entities_count():
    gold = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "I-LOC"]]
    scores = entity_scores(gold, predicted)
    assert scores["entity_precision"] == scores["entity_recall"] == scores["entity_f1"] == pytest.approx(100 / 3)
    assert (scores["entity_f1_PER"], scores["entity_f1_LOC"]) == (pytest.approx(200 / 3), 0.0)
    assert scores["tag_accuracy"] == pytest.approx(400 / 6)
    assert entity_scores([["O"]], [["O"]])["entity_f1"] == 0.0
    assert entity_scores([[]], [[]])["tag_accuracy"] is None


def test_plain_tags_are_runs_or_words():
    assert runs_of(["PER", "PER", "O", "LOC", "PER"]) == [("PER", 0, 2), ("LOC", 3, 4), ("PER", 4, 5)]
    assert run_scores([["PER", "O"]], [["PER", "PER"]])["entity_f1"] == 0.0
    scores = word_scores([["NOUN", "VERB"], ["NOUN"]], [["NOUN", "NOUN"], ["NOUN"]])
    assert scores == {"tag_accuracy": pytest.approx(200 / 3), "tag_macro_f1": pytest.approx(40.0)}


@given(SENTENCES, st.randoms(use_true_random=False))
def test_another_order_of_labels_or_sentences_gives_the_same_score(gold, randomness):
    predicted = [[randomness.choice(IOBES) if randomness.random() < 0.3 else tag for tag in tags] for tags in gold]
    order = list(range(len(gold)))
    randomness.shuffle(order)
    expected = entity_scores(gold, predicted)
    assert entity_scores([gold[i] for i in order], [predicted[i] for i in order]) == expected
    labels = list(IOBES)
    randomness.shuffle(labels)
    constant = [baseline_scores(tagging(labels), [tuple(tags) for tags in gold]) for labels in (list(IOBES), labels)]
    assert constant[0] == constant[1]
    assert set(constant[0]) == set(expected)


# --------------------------------------------------------------------------------------------------------------------
# For each metric the best constant answer: of spans what a question has most often, whatever it asks.


SQUAD, MRPC = DECLARED["squad-1.1"], DECLARED["mrpc"]
NUMBERS = replace(DECLARED["sts-b"], metrics=(pearson, mean_absolute_error))
NO_ENTITY = dict.fromkeys(("entity_f1", "entity_precision", "entity_recall"), 0.0)
SAID_TWICE = [("the two", "two", "Two."), ("red",), ("red ships", "red"), ("old ships",)]  # counts once for a question


@pytest.mark.parametrize(
    ("task", "gold", "scores"),
    [
        (tagging(IOB2), [("O", "O", "B-PER"), ("O",), ()], {**NO_ENTITY, "tag_accuracy": 75.0}),
        (MRPC, [0, 0, 0, 1], {"f1": 40.0, "accuracy": 75.0}),  # F1 of the rarer class has a constant of its own
        (MRPC, [0, 1], {"f1": 200 / 3, "accuracy": 50.0}),
        (NUMBERS, [0.0, 1.0, 11.0], {"pearson": None, "mean_absolute_error": 11 / 3}),  # of the median
        (SQUAD, SAID_TWICE, {"span_f1": 50.0, "span_exact_match": 50.0}),
        (SQUAD, [(), ()], {"span_f1": 0.0, "span_exact_match": 0.0}),
        (SQUAD, [], {"span_f1": None, "span_exact_match": None}),
    ],
)
def test_the_best_constant_answer(task, gold, scores):
    assert baseline_scores(task, gold) == pytest.approx(scores)


def test_less_is_better_of_errors_alone_and_undefined_is_worst():
    assert is_better("mean_absolute_error", 1.0, 2.0) and not is_better("mean_absolute_error", 2.0, 1.0)
    assert is_better("accuracy", 2.0, 1.0) and not is_better("accuracy", 1.0, 1.0)
    assert is_better("accuracy", 0.0, None) and not is_better("accuracy", None, 0.0)
    assert is_better("hamming_loss", 0.0, None)


# --------------------------------------------------------------------------------------------------------------------
# The averages are those of the paper's tables.


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


def test_averages_are_of_scores_that_the_tasks_have():
    for name, parts in GLUE_AVERAGE.parts.items():
        task = DECLARED[name]
        gold = [("a",), ()] if isinstance(task.target, Span) else [0, 1]
        scores = baseline_scores(task, gold) or [metric.__name__ for metric in task.metrics]
        assert {part.split("/")[0] for part in parts} <= set(scores)
        assert {part.split("/")[1] for part in parts if "/" in part} <= set(task.further_splits)


# --------------------------------------------------------------------------------------------------------------------
# Several models together: means of what they predict, spans by those that proposed them.


CONTEXT = "the old sailor saw the storm"


def said(spans, no_answer=None, none=0.0):
    """Answers with the probabilities of their spans, best first."""
    ranked = sorted(spans.items(), key=lambda item: -item[1])
    candidates = [Candidate(CONTEXT[a:b], a, b, 9.0, probability) for (a, b), probability in ranked]
    return Answers(candidates, no_answer, none)


def test_a_span_has_the_mean_of_the_models_that_proposed_it():
    one, two = said({(0, 3): 0.6, (4, 7): 0.2}), said({(4, 7): 0.7, (8, 14): 0.1})
    (found,) = average_answers([([one], NullThreshold()), ([two], NullThreshold())])
    means = {(each.start, each.end): each.score for each in found.candidates}
    assert means == {(0, 3): 0.6, (4, 7): pytest.approx(0.45), (8, 14): 0.1}
    assert [each.text for each in found.candidates] == ["the", "old", "sailor"]
    assert sum(each.probability for each in found.candidates) == pytest.approx(1)
    assert found.no_answer is None


def test_of_equals_the_span_that_more_models_proposed_is_first():
    models = [said({(0, 3): 0.5}), said({(4, 7): 0.5}), said({(4, 7): 0.5})]
    (found,) = average_answers([([each], NullThreshold()) for each in models])
    assert found.candidates[0].text == "old"


def test_no_answer_is_the_mean_over_all_models_from_each_one_s_threshold():
    one, two = said({(0, 3): 0.5}, no_answer=2.0, none=0.5), said({(0, 3): 0.9}, no_answer=-5.0, none=0.1)
    (found,) = average_answers([([one], NullThreshold(3.0)), ([two], NullThreshold(-6.0))])
    assert found.no_answer == pytest.approx(0.0)
    assert found.no_answer_probability == pytest.approx(0.3)
    assert decide([found], OWN_THRESHOLDS)[0].answered
    (found,) = average_answers([([one], NullThreshold(1.0)), ([two], NullThreshold(-6.0))])
    assert not decide([found], OWN_THRESHOLDS)[0].answered


def test_models_with_nothing_to_give_leave_it_to_the_others():
    nothing = Answers([], 1e30, 1.0)
    (found,) = average_answers([([nothing], NullThreshold()), ([nothing], NullThreshold())])
    assert (found.candidates, found.no_answer_probability) == ([], 1.0)
    (found,) = average_answers([([nothing], NullThreshold()), ([said({(0, 3): 1.0}, 0.0)], NullThreshold())])
    assert [each.text for each in found.candidates] == ["the"]


SPANS = st.dictionaries(st.sampled_from([(0, 3), (4, 7), (8, 14), (15, 18)]), st.floats(0.01, 0.2), min_size=1)


@given(spans=SPANS, copies=st.integers(1, 4), no_answer=st.floats(-9, 9), threshold=st.floats(-9, 9))
def test_copies_of_a_model_say_what_it_says_alone(spans, copies, no_answer, threshold):
    alone = said(spans, no_answer, 1 - sum(spans.values()))
    (found,) = average_answers([([alone], NullThreshold(threshold))] * copies)
    ours = {(each.start, each.end): each.probability for each in found.candidates}
    assert ours == pytest.approx(spans)
    assert decide([found], OWN_THRESHOLDS)[0].answered == (no_answer - threshold <= 0)


@given(shuffled=st.permutations(range(3)))
def test_the_order_of_the_models_changes_nothing(shuffled):
    models = [said({(0, 3): 0.6, (4, 7): 0.2}), said({(4, 7): 0.6}), said({(8, 14): 0.4, (0, 3): 0.2})]
    (one,) = average_answers([([each], NullThreshold()) for each in models])
    (two,) = average_answers([([models[place]], NullThreshold()) for place in shuffled])
    assert [each.text for each in one.candidates] == [each.text for each in two.candidates]


def test_of_labels_and_numbers_it_is_the_plain_mean():
    one, two = np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([[0.2, 0.8], [0.3, 0.7]])
    np.testing.assert_allclose(average_numbers([one, two]), [[0.55, 0.45], [0.35, 0.65]])
    np.testing.assert_allclose(average_numbers([np.array([1.0, 3.0]), np.array([2.0, 5.0])]), [1.5, 4.0])


# --------------------------------------------------------------------------------------------------------------------
# Sets of labels are scored by their definition, whatever the order of labels, and the constant answer is the best.


SETS = st.integers(1, 5).flatmap(
    lambda n: st.lists(
        st.tuples(*(st.lists(st.booleans(), min_size=n, max_size=n) for _ in range(2))), min_size=1, max_size=20
    )
)


def by_definition(gold, predicted):
    right, said, there = ((gold & predicted).sum(0), predicted.sum(0), gold.sum(0))
    each = [2 * r / (s + t) if s + t else 0.0 for r, s, t in zip(right, said, there, strict=True)]
    whole = said.sum() + there.sum()
    return {
        "micro_f1": 200 * right.sum() / whole if whole else 0.0,
        "macro_f1": 100 * sum(each) / len(each),
        "exact_match": 100 * (gold == predicted).all(axis=1).mean(),
        "hamming_loss": 100 * (gold != predicted).mean(),
    }


@given(SETS, st.randoms(use_true_random=False))
def test_scores_are_those_of_the_definition_in_any_order_of_labels(pairs, randomness):
    gold, predicted = (np.array([pair[side] for pair in pairs], bool) for side in (0, 1))
    scores = multi_label_scores(gold, predicted)
    assert scores == pytest.approx(by_definition(gold, predicted), abs=1e-12)
    order = list(range(gold.shape[1]))
    randomness.shuffle(order)
    assert multi_label_scores(gold[:, order], predicted[:, order]) == pytest.approx(scores, abs=1e-12)


@given(SETS)
def test_no_constant_set_is_better_by_any_metric_than_the_baseline(pairs):
    gold = np.array([pair[0] for pair in pairs], bool)
    n = gold.shape[1]
    task = declared(Single("text"), Labels(tuple(f"label {i}" for i in range(n)), "about"), multi_label_scores)
    constants = []
    for size in range(n + 1):
        for chosen in combinations(range(n), size):
            always = np.zeros(n, bool)
            always[list(chosen)] = True
            constants.append(by_definition(gold, np.tile(always, (len(gold), 1))))
    best = {name: max(scores[name] for scores in constants) for name in ("micro_f1", "macro_f1", "exact_match")}
    best["hamming_loss"] = min(scores["hamming_loss"] for scores in constants)
    assert baseline_scores(task, gold) == pytest.approx(best, abs=1e-9)
