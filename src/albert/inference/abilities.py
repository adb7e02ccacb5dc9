"""What a model can be asked, in words: that for which it has a head which something has trained."""

from typing import Any

from albert.checkpoints.model_directory import OBJECTIVE_KEY, Kind, OpenedModel

CLASSIFYING = "classify texts"
SCORING = "score texts"
FILLING = "fill masks"
ORDERING = "judge the order of segments"
ANSWERING = "answer questions"
TAGGING = "tag words"
CHOOSING = "choose among options"

Prediction = dict[str, Any]
"""One answer, under the keys of transformers' pipelines."""

_HEADS: dict[Kind, dict[str, tuple[str, ...]]] = {
    "pretraining": {FILLING: ("predictions.",), ORDERING: ("sop_classifier.", "albert.pooler.")},
    "masked_lm": {FILLING: ("predictions.",)},
    "classification": {CLASSIFYING: ("classifier.", "albert.pooler.")},
    "question_answering": {ANSWERING: ("qa_outputs.",)},
    "joint_question_answering": {ANSWERING: ("joint_qa_outputs.",)},
    "token_classification": {TAGGING: ("classifier.",)},
    "multiple_choice": {CHOOSING: ("classifier.", "albert.pooler.")},
    "encoder": {},
}
"""Kind -> ability -> the tensors that it rests on, beside the encoder."""


def abilities_of(kind: Kind, opened: OpenedModel) -> tuple[str, ...]:
    """What a model opened as this kind can do; a head that was drawn at random, or never trained, does not count."""
    drawn = opened.loading_report.newly_initialised
    untrained = {ORDERING} if opened.extra.get(OBJECTIVE_KEY) == "none" else set()
    can = tuple(
        ability
        for ability, tensors in _HEADS[kind].items()
        if ability not in untrained and not any(name.startswith(tensors) for name in drawn)
    )
    return (SCORING,) if can == (CLASSIFYING,) and _predicts_numbers(opened) else can


def is_number(n_labels: int, problem_type: str | None) -> bool:
    """Whether a head's outputs are numbers to predict: it says so, or it has one output and says nothing else."""
    return problem_type == "regression" or (n_labels == 1 and problem_type != "multi_label_classification")


def _predicts_numbers(opened: OpenedModel) -> bool:
    model: Any = opened.model
    return is_number(model.classifier.out_features, opened.extra.get("problem_type"))
