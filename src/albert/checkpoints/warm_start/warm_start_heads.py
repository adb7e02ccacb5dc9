"""A head that is kept: its outputs put into the order of the labels that are asked for, by their names."""

from collections.abc import Mapping, Sequence

from albert.runtime.errors import InvalidConfiguration


def outputs_by_name(id2label: Mapping[int, str] | None, spellings: Sequence[Sequence[str]], model: str) -> list[int]:
    """For each label, the output of the kept head that has its name.

    Args:
        id2label: the names of the head's outputs.
        spellings: the labels as files have them, and as people read them; one of the two must fit as a whole.
        model: whose head it is, for the error.

    Raises:
        InvalidConfiguration: other names, or none (`LABEL_0`, ...), whose order nobody can know.
    """
    names = [id2label[index] for index in sorted(id2label)] if id2label else []
    for labels in spellings:
        if sorted(names) == sorted(labels):
            return [names.index(label) for label in labels]
    why = f"has a head for {', '.join(names) or 'nothing that has a name'}, not for {', '.join(spellings[-1])}"
    raise InvalidConfiguration(model, why, "leave --keep-head out: a new head is drawn, the rest of the model stays")
