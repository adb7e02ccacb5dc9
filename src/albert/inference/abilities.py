"""What a model can be asked, in words: that for which it has a head which something has trained."""

from albert.checkpoints.model_directory import OBJECTIVE_KEY, Kind, OpenedModel

CLASSIFYING = "classify texts"
FILLING = "fill masks"
ORDERING = "judge the order of segments"
ANSWERING = "answer questions"
TAGGING = "tag words"
CHOOSING = "choose among options"
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
    return tuple(
        ability
        for ability, tensors in _HEADS[kind].items()
        if ability not in untrained and not any(name.startswith(tensors) for name in drawn)
    )
