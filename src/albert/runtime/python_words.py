"""Lines about the command line in terms of Python."""

import re
from collections.abc import Iterable


def in_python(text: str, known: Iterable[str]) -> str:
    """A line about the command line in terms of Python.

    `--max-length` becomes `max_length`, `class_weights=balanced` `class_weights="balanced"`, and `reading.format=csv`
    `reading={"format": "csv"}`.

    Args:
        known: the names of the options and keys that may be meant.
    """
    names = set(known)
    groups = {name.rpartition(".")[0] for name in names} - {""}

    def keyword(match: re.Match[str]) -> str:
        name = match[1].replace("-", "_")
        return name if name in names else match[0]

    def key(match: re.Match[str]) -> str:
        if match[1] not in names or not match[2].strip("."):
            return match[0]
        group, _, field = match[1].rpartition(".")
        value = _value_in_python(match[2])
        return f'{group}={{"{field}": {value}}}' if group else f"{field}={value}"

    text = re.sub(r"--kind ([\w-]+)", r'kind="\1"', text)
    text = re.sub(r"--([a-z][a-z0-9-]*) (?=[\d.]*\d\b)", lambda match: keyword(match).rstrip() + "=", text)
    text = re.sub(r"--([a-z][a-z0-9-]*)", keyword, text)
    text = _KEY_AND_VALUE.sub(key, text)
    if groups:
        text = re.sub(rf"(?<![\w.\"'])({'|'.join(groups)})\.(\w+)(?![\w=.])", r'\1={"\2": ...}', text)
    text = re.sub(r"albert finetune-vectors\b", "albert finetune_vectors", text)
    text = re.sub(r"see albert ([a-z_]+) --help", r"see help(albert.\1)", text)
    return re.sub(r"^albert (finetune|finetune_vectors|sweep|evaluate|pretrain|prepare|push)\b", r"albert.\1", text)


_KEY_AND_VALUE = re.compile(
    r"(?<![\w.\"'])([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)?)=([^\s=)\"\[{]+?)(?=[;.)]?(?:\s|$)|,(?:\s|$))"
)
"""A key with its value in a line, up to a sign that ends a clause."""


def _value_in_python(text: str) -> str:
    """The value of a key as Python writes it."""
    if "," in text and text != ",":
        return f"[{', '.join(map(_value_in_python, text.split(',')))}]"
    if text in ("true", "false"):
        return text.capitalize()
    is_number = re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", text) is not None
    return text if is_number or text == "..." else f'"{text}"'
