"""The kinds of model: which class has which head, and what transformers calls it."""

from collections.abc import Mapping
from typing import Any, Literal

from torch import Tensor, nn

from albert.model.albert import (
    AlbertForMaskedLM,
    AlbertForMultipleChoice,
    AlbertForPreTraining,
    AlbertForQuestionAnswering,
    AlbertForSequenceClassification,
    AlbertForTokenClassification,
    AlbertModel,
)
from albert.model.config import AlbertConfig
from albert.model.joint_question_answering import AlbertForJointQuestionAnswering
from albert.runtime.errors import InvalidConfiguration

Kind = Literal[
    "pretraining",
    "masked_lm",
    "classification",
    "token_classification",
    "question_answering",
    "joint_question_answering",
    "multiple_choice",
    "encoder",
]
MODELS: dict[Kind, type[nn.Module]] = {
    "pretraining": AlbertForPreTraining,
    "masked_lm": AlbertForMaskedLM,
    "classification": AlbertForSequenceClassification,
    "token_classification": AlbertForTokenClassification,
    "question_answering": AlbertForQuestionAnswering,
    "joint_question_answering": AlbertForJointQuestionAnswering,
    "multiple_choice": AlbertForMultipleChoice,
    "encoder": AlbertModel,
}
ARCHITECTURES: dict[type[nn.Module], str] = {model: model.__name__ for model in MODELS.values()}
KINDS: dict[str, Kind] = {model.__name__: kind for kind, model in MODELS.items()}
"""By the names in `architectures` of `config.json`: those of transformers' classes, and one that it has not."""
_CLASSIFIERS: tuple[Kind, ...] = ("classification", "token_classification", "multiple_choice")
_LABELLED = (AlbertForSequenceClassification, AlbertForTokenClassification)
OBJECTIVE_KEY = "sentence_objective"
_MOST_LABELS = 2**16
_OBJECTIVES = ("sop", "nsp", "none")


def kind_of(extra: Mapping[str, Any]) -> Kind:
    """What a model directory holds, by the `architectures` of its `config.json`; an encoder when it names none of ours.

    A model that was trained to tell the next sentence calls itself a masked language model, for transformers, and is
    one for pre-training here.

    Args:
        extra: the keys that `read_config` gives beside the configuration.
    """
    named = extra.get("architectures") or ["AlbertModel"]
    kind = KINDS.get(str(named[0]), "encoder")
    return "pretraining" if kind == "masked_lm" and extra.get(OBJECTIVE_KEY) == "nsp" else kind


def build_model(kind: Kind, config: AlbertConfig, num_labels: int | None) -> nn.Module:
    """A model of a kind, with so many outputs where that is for the user to say (None elsewhere)."""
    return MODELS[kind](config) if num_labels is None else MODELS[kind](config, num_labels)


def has_the_head_of_another_task(kind: Kind, extra: Mapping[str, Any]) -> bool:
    """Whether the file's `classifier` judges something else than the one of this kind, which has the same name."""
    named = kind_of(extra)
    return kind != named and kind in _CLASSIFIERS and named in _CLASSIFIERS


def labels_wanted(
    kind: Kind, asked: int | None, tensors: Mapping[str, Tensor], extra: Mapping[str, Any], new_head: bool
) -> int | None:
    """Outputs that a model of this kind gets: as asked, as many as the file's head has, or as `config.json` says.

    Returns:
        their number, or None for a kind where nobody chooses it.

    Raises:
        InvalidConfiguration: `config.json` says what no head has.
    """
    if MODELS[kind] not in _LABELLED:
        return None
    if asked is not None:
        return asked
    if "classifier.bias" in tensors and not new_head:
        return tensors["classifier.bias"].numel()
    named = extra.get("id2label")
    stated = len(named) if named else extra.get("num_labels", 2)  # transformers' default
    if not isinstance(stated, int) or not 1 <= stated <= _MOST_LABELS:
        raise InvalidConfiguration("num_labels", f"is {stated!r}, a new head has 1 to {_MOST_LABELS:,} outputs")
    return stated


def sentence_objective(model: nn.Module, extra: Mapping[str, Any]) -> str:
    """What the sentence head of a pre-training model was trained on; other models have none that could be mistaken."""
    objective = extra.get(OBJECTIVE_KEY, "sop") if isinstance(model, AlbertForPreTraining) else "sop"
    if objective not in _OBJECTIVES:
        raise InvalidConfiguration(OBJECTIVE_KEY, f"is {objective!r}", f"known: {', '.join(_OBJECTIVES)}")
    return objective


def architecture_named(model: nn.Module, objective: str) -> str:
    """The class of transformers that may open it: the one for pre-training takes its sentence head for an order."""
    return ARCHITECTURES[type(model) if objective == "sop" else AlbertForMaskedLM]


def labels_written(model: nn.Module) -> int | None:
    """Outputs whose number transformers takes from the labels; it does so for orders and answers too."""
    if isinstance(model, _LABELLED):
        return model.classifier.out_features
    return 2 if isinstance(model, AlbertForPreTraining | AlbertForQuestionAnswering) else None
