"""Which of transformers' classes a set of tensors is, by the head that is there, and whether it is all of it."""

from collections.abc import Iterable

from albert.checkpoints.huggingface import BACKBONE_PREFIX, Renamed
from albert.checkpoints.kinds import KINDS, build_model
from albert.checkpoints.loading import fit_tensors
from albert.model.albert import AlbertModel
from albert.model.config import AlbertConfig
from albert.model.initialization import without_memory
from albert.runtime.errors import DamagedData

CLASSIFIERS = ("AlbertForSequenceClassification", "AlbertForTokenClassification", "AlbertForMultipleChoice")
_HEADS = {
    "AlbertForPreTraining": ("predictions", "sop_classifier"),
    "AlbertForMaskedLM": ("predictions", "nsp_classifier"),
    **dict.fromkeys(CLASSIFIERS, ("classifier",)),
    "AlbertForQuestionAnswering": ("qa_outputs",),
    "AlbertForJointQuestionAnswering": ("joint_qa_outputs",),
    "AlbertModel": (),
}
LABELLED = CLASSIFIERS[:2]
_POOLER = BACKBONE_PREFIX + "pooler."
_ANSWERING = ("AlbertForQuestionAnswering", "AlbertForJointQuestionAnswering")
_WITHOUT_POOLER = ("AlbertForMaskedLM", *_ANSWERING, "AlbertModel")


def architecture_of(names: Iterable[str], stated: str | None = None) -> str:
    """The class that holds most of some tensors; the head of a task goes before those of pre-training.

    Args:
        names: of the tensors, transformers' ones.
        stated: what says so itself; it tells apart the classes whose head is the same linear map.
    """
    heads = {name.split(".", 1)[0] for name in names}
    if "joint_qa_outputs" in heads:
        return "AlbertForJointQuestionAnswering"
    if "qa_outputs" in heads:
        return "AlbertForQuestionAnswering"
    if "classifier" in heads:
        return stated if stated in CLASSIFIERS else CLASSIFIERS[0]
    if "predictions" in heads:
        return "AlbertForPreTraining" if "sop_classifier" in heads else "AlbertForMaskedLM"
    return "AlbertModel"


def belongs_to(name: str, architecture: str) -> bool:
    """Whether a tensor is the encoder's, or of the head that a class has.

    A masked language model keeps its pooler, which the class itself does not use: so do the published ones, for
    whoever fine-tunes them.
    """
    part, _, inside = name.partition(".")
    if architecture in _ANSWERING and inside.startswith("pooler."):
        return False
    return name.startswith(BACKBONE_PREFIX) or part in _HEADS[architecture]


def require_whole(renamed: Renamed, architecture: str, config: AlbertConfig, where: str) -> None:
    """Refuse tensors of which a part is missing or has another shape than the model's.

    Args:
        renamed: what there is; tensors on the meta device will do.
        architecture: the class that they should be; those that work without a pooler need none.
        config: of the model.
        where: how to call the file in an error.

    Raises:
        DamagedData: something is missing.
        InvalidConfiguration: a shape is another.
    """
    outputs = renamed.tensors["classifier.bias"].numel() if architecture in LABELLED else None
    with without_memory():
        models = (AlbertModel(config), build_model(KINDS[architecture], config, outputs))
    missing = {name for model in models for name in fit_tensors(model, renamed, config, where, new_head=False).missing}
    if architecture in _WITHOUT_POOLER:
        missing = {name for name in missing if not name.startswith(_POOLER)}
    if missing:
        names = sorted(missing)
        shown = ", ".join(names[:3]) + (f", and {len(names) - 3} more" if len(names) > 3 else "")
        raise DamagedData(where, f"lacks {len(names)} tensors of {architecture} ({shown})")
