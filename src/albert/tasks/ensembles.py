"""What several models say together, as the paper averages (section 4.9).

Of labels, options and numbers it is the mean of the predictions. Of spans it is the mean over those models that
proposed the span, so that one which a single model is sure of may win; and the mean of what speaks for no answer, over
all models.
"""

from collections.abc import Sequence

import numpy as np

from albert.tasks.answers import Answers, Candidate
from albert.tasks.null_threshold import NullThreshold

EACH_ITS_OWN = NullThreshold(0.0, "nothing: each model's own was subtracted before the mean")


def averaged_numbers(models: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of probabilities [examples, labels], or of numbers [examples], of models with the same labels."""
    return np.mean(np.stack(models), axis=0)


def averaged_answers(models: Sequence[tuple[Sequence[Answers], NullThreshold]]) -> list[Answers]:
    """The answers of several models to the same questions, to be decided at `EACH_ITS_OWN`.

    What speaks against an answer is measured from each model's own threshold. The probabilities are those of the
    spans' means, scaled so that with the mean probability of no answer they sum to 1.

    Args:
        models: of each, its answers in the order of the questions, and its threshold.
    """
    thresholds = [threshold for _, threshold in models]
    questions = zip(*(answers for answers, _ in models), strict=True)
    return [_together(said, thresholds) for said in questions]


def _together(said: Sequence[Answers], thresholds: Sequence[NullThreshold]) -> Answers:
    proposed: dict[tuple[int, int], list[Candidate]] = {}
    for answers in said:
        for candidate in answers.candidates:
            proposed.setdefault((candidate.start, candidate.end), []).append(candidate)
    means = {place: float(np.mean([each.probability for each in own])) for place, own in proposed.items()}
    none = float(np.mean([answers.no_answer_probability for answers in said]))
    scale = (1 - none) / total if (total := sum(means.values())) > 0 else 0.0
    ranked = sorted(proposed, key=lambda place: (-means[place], -len(proposed[place]), place))
    candidates = [Candidate(proposed[p][0].text, *p, score=means[p], probability=means[p] * scale) for p in ranked]
    against = [
        answers.no_answer - threshold.value
        for answers, threshold in zip(said, thresholds, strict=True)
        if answers.no_answer is not None
    ]
    return Answers(candidates, float(np.mean(against)) if against else None, none)
