"""Several models together: means of what they predict, spans by those that proposed them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.tasks.answers import Answers, Candidate, NullThreshold, decide
from albert.tasks.submission import EACH_ITS_OWN, averaged_answers, averaged_numbers

CONTEXT = "the old sailor saw the storm"


def said(spans, no_answer=None, none=0.0):
    """Answers with the probabilities of their spans, best first."""
    ranked = sorted(spans.items(), key=lambda item: -item[1])
    candidates = [Candidate(CONTEXT[a:b], a, b, 9.0, probability) for (a, b), probability in ranked]
    return Answers(candidates, no_answer, none)


def test_a_span_has_the_mean_of_the_models_that_proposed_it():
    one, two = said({(0, 3): 0.6, (4, 7): 0.2}), said({(4, 7): 0.7, (8, 14): 0.1})
    (found,) = averaged_answers([([one], NullThreshold()), ([two], NullThreshold())])
    means = {(each.start, each.end): each.score for each in found.candidates}
    assert means == {(0, 3): 0.6, (4, 7): pytest.approx(0.45), (8, 14): 0.1}
    assert [each.text for each in found.candidates] == ["the", "old", "sailor"]
    assert sum(each.probability for each in found.candidates) == pytest.approx(1)
    assert found.no_answer is None


def test_of_equals_the_span_that_more_models_proposed_is_first():
    models = [said({(0, 3): 0.5}), said({(4, 7): 0.5}), said({(4, 7): 0.5})]
    (found,) = averaged_answers([([each], NullThreshold()) for each in models])
    assert found.candidates[0].text == "old"


def test_no_answer_is_the_mean_over_all_models_from_each_one_s_threshold():
    one, two = said({(0, 3): 0.5}, no_answer=2.0, none=0.5), said({(0, 3): 0.9}, no_answer=-5.0, none=0.1)
    (found,) = averaged_answers([([one], NullThreshold(3.0)), ([two], NullThreshold(-6.0))])
    assert found.no_answer == pytest.approx(0.0)
    assert found.no_answer_probability == pytest.approx(0.3)
    assert decide([found], EACH_ITS_OWN)[0].answered
    (found,) = averaged_answers([([one], NullThreshold(1.0)), ([two], NullThreshold(-6.0))])
    assert not decide([found], EACH_ITS_OWN)[0].answered


def test_models_with_nothing_to_give_leave_it_to_the_others():
    nothing = Answers([], 1e30, 1.0)
    (found,) = averaged_answers([([nothing], NullThreshold()), ([nothing], NullThreshold())])
    assert (found.candidates, found.no_answer_probability) == ([], 1.0)
    (found,) = averaged_answers([([nothing], NullThreshold()), ([said({(0, 3): 1.0}, 0.0)], NullThreshold())])
    assert [each.text for each in found.candidates] == ["the"]


SPANS = st.dictionaries(st.sampled_from([(0, 3), (4, 7), (8, 14), (15, 18)]), st.floats(0.01, 0.2), min_size=1)


@given(spans=SPANS, copies=st.integers(1, 4), no_answer=st.floats(-9, 9), threshold=st.floats(-9, 9))
def test_copies_of_a_model_say_what_it_says_alone(spans, copies, no_answer, threshold):
    alone = said(spans, no_answer, 1 - sum(spans.values()))
    (found,) = averaged_answers([([alone], NullThreshold(threshold))] * copies)
    ours = {(each.start, each.end): each.probability for each in found.candidates}
    assert ours == pytest.approx(spans)
    assert decide([found], EACH_ITS_OWN)[0].answered == (no_answer - threshold <= 0)


@given(shuffled=st.permutations(range(3)))
def test_the_order_of_the_models_changes_nothing(shuffled):
    models = [said({(0, 3): 0.6, (4, 7): 0.2}), said({(4, 7): 0.6}), said({(8, 14): 0.4, (0, 3): 0.2})]
    (one,) = averaged_answers([([each], NullThreshold()) for each in models])
    (two,) = averaged_answers([([models[place]], NullThreshold()) for place in shuffled])
    assert [each.text for each in one.candidates] == [each.text for each in two.candidates]


def test_of_labels_and_numbers_it_is_the_plain_mean():
    one, two = np.array([[0.9, 0.1], [0.4, 0.6]]), np.array([[0.2, 0.8], [0.3, 0.7]])
    np.testing.assert_allclose(averaged_numbers([one, two]), [[0.55, 0.45], [0.35, 0.65]])
    np.testing.assert_allclose(averaged_numbers([np.array([1.0, 3.0]), np.array([2.0, 5.0])]), [1.5, 4.0])
