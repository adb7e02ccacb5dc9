"""Other names of options, for the command line and for keywords of Python: those of transformers and of other
commands."""

import difflib
import re
import tomllib
from collections import Counter
from collections.abc import Collection
from importlib.resources import files

_NAMES = tomllib.loads((files("albert.api") / "option_names.toml").read_text(encoding="utf-8"))
TRANSFORMERS_NAMES, SAME_THING = (
    {f"--{name}": f"--{ours}" for name, ours in (pair.split("=") for pair in _NAMES[kind].split())}
    for kind in ("transformers", "same")
)
"""Names in transformers and in other commands -> ours."""
SETTINGS: dict[str, tuple[str, str]] = {name: tuple(setting) for name, setting in _NAMES["switches"].items()}
"""Switches of transformers and of other commands -> an option and its value."""
USUAL_TEXTS: dict[str, str] = _NAMES["texts"]
"""Field -> help text of options that several commands have."""
NO_SUCH_OPTION: dict[str, str] = _NAMES["missing"]
"""Options of transformers' and the reference's scripts that albert lacks -> what to do."""


def short_names(options: Collection[str]) -> dict[str, list[str]]:
    """`--group.field` -> its names without the group, the usual one first.

    The name of the field itself is among them if no other option ends in it.
    """
    ends = Counter(option.rpartition(".")[2].removeprefix("--") for option in options)
    usual = {long: short for short, long in SAME_THING.items() if short not in options}
    names = {}
    for option in (option for option in options if "." in option):
        field = option.rpartition(".")[2]
        names[option] = [usual[option]] if option in usual else []
        names[option] += [f"--{field}"] if ends[field] == 1 else []
    return names


def switch_value(name: str) -> tuple[str, str]:
    """The option and the value that a switch stands for; empty strings for no switch."""
    return SETTINGS.get(TRANSFORMERS_NAMES.get(name, name), ("", ""))


def canonical_name(name: str, known: Collection[str]) -> str | None:
    """The known option that a name stands for; None if there is none."""
    usual = TRANSFORMERS_NAMES.get(name, name)
    names = (name, usual, SAME_THING.get(usual))
    return next((option for option in names if option in known), None)


def suggestion(name: str, known: Collection[str]) -> str | None:
    """A remedy for an unknown option: a hint, or the most similar option; None if none is similar."""
    hint = NO_SUCH_OPTION.get(TRANSFORMERS_NAMES.get(name, name))
    if hint is not None and (not (named := re.findall(r"--[a-z-]+", hint)) or any(option in known for option in named)):
        return hint
    aliases = {alias for alias in (*TRANSFORMERS_NAMES, *SAME_THING) if canonical_name(alias, known)}
    typed = name.lower().replace("--", "")  # compared without the dashes, which all of them have
    for candidates, cutoff in ((known, 0.75), ({*known, *aliases}, 0.6)):
        plain = sorted(option[2:] for option in candidates)
        if close := difflib.get_close_matches(typed, plain, n=1, cutoff=cutoff):
            return f"did you mean {canonical_name(f'--{close[0]}', known)!r}?"
    return None
