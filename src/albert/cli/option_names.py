"""What to write instead of a name that a command does not have: those of transformers, other commands, misspelt."""

import difflib
import tomllib
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from albert.cli.signature import Option

_NAMES = tomllib.loads((files("albert.cli") / "option_names.toml").read_text(encoding="utf-8"))
OTHER_NAMES: dict[str, str] = dict(pair.split("=") for pair in _NAMES["names"].split())
"""Names in transformers and in other commands -> ours."""
SWITCHES: dict[str, tuple[str, str]] = {name: tuple(setting) for name, setting in _NAMES["switches"].items()}
"""Switches of transformers and of other commands -> an option or key, and its value."""
USUAL_TEXTS: dict[str, str] = _NAMES["texts"]
"""Field -> help text of options that several commands have."""
NO_SUCH_OPTION: dict[str, str] = _NAMES["missing"]
"""Options of transformers' and the reference's scripts that albert lacks -> what to do."""
HINT_NEEDS: dict[str, str] = _NAMES["needs"]
"""Those of them whose hint is for commands with some key -> this key."""


def suggestion(name: str, known: Mapping[str, "Option"], spelled: Callable[["Option", str | None], str]) -> str | None:
    """What to write instead of an unknown name; None if nothing is similar.

    Args:
        name: without dashes, with underscores.
        known: the options and keys of a command by their names.
        spelled: an option as the reader types it, with a value if one is known.
    """
    usual = OTHER_NAMES.get(name, name)
    for ours in (name, usual, OTHER_NAMES.get(usual, usual)):
        if option := _option_called(ours, known):
            return f"write {spelled(option, None)}"
    option_and_value = SWITCHES.get(name)
    if option_and_value is not None and (option := _option_called(option_and_value[0], known)):
        return f"write {spelled(option, option_and_value[1])}"
    for other in (usual, name):
        if other in NO_SUCH_OPTION and (other not in HINT_NEEDS or HINT_NEEDS[other] in known):
            return NO_SUCH_OPTION[other]
    others = [other for other in OTHER_NAMES if _option_called(OTHER_NAMES[other], known)]
    for candidates, cutoff in ((list(known), 0.7), ([*known, *others], 0.72)):
        plain = {candidate.rpartition(".")[2].lower(): candidate for candidate in candidates}
        if close := difflib.get_close_matches(name.rpartition(".")[2].lower(), plain, n=1, cutoff=cutoff):
            found = plain[close[0]]
            option = known.get(found) or _option_called(OTHER_NAMES[found], known)
            assert option is not None
            return f"did you mean {spelled(option, None)}?"
    return None


def _option_called(name: str, known: Mapping[str, "Option"]) -> "Option | None":
    """The option of this name, or the only key of a group with this name; None if there is none."""
    if name in known:
        return known[name]
    in_groups = [option for other, option in known.items() if other.endswith(f".{name}")]
    return in_groups[0] if len(in_groups) == 1 else None
