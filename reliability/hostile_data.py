"""Data and places made to do harm: text, tables, tasks, recipes, tokenizers, manifests, outputs through links."""

import json
import os
from collections.abc import Callable
from typing import Any

from reliability.hostile_case import Hostile, Place
from reliability.hostile_models import PICKLE

TRAIN = "tokenizer train {here}/text --output {here}/out --vocab-size 300"
ENCODE = "tokenizer encode word --tokenizer {here}/t"
FINETUNE = "finetune --task-file {here}/task.json --model {model} --output {here}/out"
PRETRAIN = "pretrain {here}/r.json --data {corpus} --output {here}/out"
ASK = "predict {model} --task embed --input {here}/in.jsonl --output {here}/out.jsonl"
NOT_JSON = "is not JSON"


def _text(content: bytes | str, name: str = "a.txt") -> Callable[[Place], object]:
    return lambda place: place.write(f"text/{name}", content)


def _vocabulary(name: str, content: Any) -> Callable[[Place], object]:
    return lambda place: place.write(f"t/{name}", content if isinstance(content, bytes | str) else json.dumps(content))


def _file(name: str, content: bytes | str) -> Callable[[Place], object]:
    return lambda place: place.write(name, content)


def _link(name: str, to: str) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        (place.here / name).parent.mkdir(exist_ok=True)
        (place.here / name).symlink_to(to)

    return make


def _pipe(name: str) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        (place.here / name).parent.mkdir(exist_ok=True)
        os.mkfifo(place.here / name)

    return make


def _output_through_a_link(place: Place) -> None:
    """The output is a link into a folder that is somebody else's."""
    (place.here / "theirs").mkdir()
    (place.here / "out").symlink_to(place.here / "theirs")
    place.write("text/a.txt", "It was a day. " * 50)


def _manifest(name: str) -> Callable[[Place], object]:
    listed = {"files": {name: {"bytes": 6, "sha256": "0" * 64}}, "self": "0" * 64}
    return lambda place: (place.write("secret", b"secret"), place.write("d/MANIFEST.json", json.dumps(listed)))


_LAUGHS = (
    '<!DOCTYPE m [<!ENTITY a "ha">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 99}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    + "]><mediawiki>&i;</mediawiki>"
)
_ENTITY = '<!DOCTYPE m [<!ENTITY x SYSTEM "file:///etc/passwd">]><mediawiki>&x;</mediawiki>'
_PAIRS = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b", "ab c"]}, "added_tokens": []}
"""In the manner of tokenizers#2094, at whose few lines the Rust library panics."""
_SPECIAL = [[piece, 0.0] for piece in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")]
_UNIGRAM = {"type": "Unigram", "unk_id": 1}

DATA: tuple[Hostile, ...] = (
    Hostile("text that is a pickle", _text(PICKLE), TRAIN, 65, "a.txt: is not", ("out", "pickle-was-run")),
    Hostile("text that leads to /dev/zero", _link("text/a.txt", "/dev/zero"), TRAIN, 66, "is a device"),
    Hostile("text that leads to itself", _link("text/a.txt", "a.txt"), TRAIN, 66, "a.txt"),
    Hostile("text that is a pipe", _pipe("text/a.txt"), TRAIN, 66, "is a pipe"),
    Hostile("JSON 200,000 deep", _text('{"text":' * 200_000, "a.jsonl"), TRAIN, 65, NOT_JSON, ("out",)),
    Hostile("number of 5,000 digits", _text('{"text": ' + "9" * 5000 + "}", "a.jsonl"), TRAIN, 65, NOT_JSON),
    Hostile("field that writes its own line", _text('{"a\\nalbert: b": 1}\n', "a.jsonl"), TRAIN, 65, "has no field"),
    Hostile("a billion laughs", _text(_LAUGHS, "a.xml"), TRAIN, 65, "damaged XML"),
    Hostile("entity out of a file", _text(_ENTITY, "a.xml"), TRAIN, 65, "damaged XML|no document"),
    Hostile("SentencePiece model of noise", _vocabulary("spiece.model", b"\x0a\xff" * 99), ENCODE, 65, "SentencePiece"),
    Hostile("byte pairs that panic", _vocabulary("tokenizer.json", _PAIRS), ENCODE, 65, "holds a BPE model"),
    Hostile(
        "piece of 500,000 characters twice",
        _vocabulary("tokenizer.json", {"model": {**_UNIGRAM, "vocab": [*_SPECIAL, *[["x" * 500_000, -1.0]] * 2]}}),
        ENCODE,
        65,
        "tokenizer.json",
    ),
    Hostile(
        "score that is no number",
        _vocabulary("tokenizer.json", '{"model":{"type":"Unigram","unk_id":1,"vocab":[["<pad>",NaN]]}}'),
        ENCODE,
        65,
        "has the score nan",
    ),
    Hostile("vocabulary of one piece a million times", _vocabulary("vocab.txt", "a\n" * 10**6), ENCODE, 65, "twice"),
    Hostile("vocabulary that is a pipe", _pipe("t/spiece.model"), ENCODE, 66, "is a pipe"),
    Hostile("manifest that leads out", _manifest("../secret"), "verify {here}/d", 65, "does not match its own hash"),
    Hostile(
        "manifest with an absolute path", _manifest("/etc/passwd"), "verify {here}/d", 65, "does not match its own"
    ),
    Hostile("recipe with a class to make", _file("r.json", '{"_target_": "os.system"}'), PRETRAIN, 78, "unknown key"),
    Hostile("recipe with NaN", _file("r.json", '{"optimizer": {"learning_rate": NaN}}'), PRETRAIN, 78, "learning_rate"),
    Hostile("recipe with 1e999", _file("r.json", '{"optimizer": {"learning_rate": 1e999}}'), PRETRAIN, 78, "learning"),
    Hostile("recipe with a key twice", _file("r.json", '{"seed": 1, "seed": 2}'), PRETRAIN, 65, "twice", ("out",)),
    Hostile("recipe that is a pickle", _file("r.json", PICKLE), PRETRAIN, 65, NOT_JSON, ("out", "pickle-was-run")),
    Hostile("task that is a device", _link("task.json", "/dev/zero"), FINETUNE, 66, "is a device", ("out",)),
    Hostile("task with an unknown key", _file("task.json", '{"__class__": "os.system"}'), FINETUNE, 78, "unknown key"),
    Hostile(
        "task with half a character",
        _file("task.json", '{"train": "\\ud800.csv"}'),
        FINETUNE,
        78,
        "is not a valid file name",
    ),
    Hostile(
        "table with NUL in its name",
        _file("task.json", '{"train": "a\\u0000.csv"}'),
        FINETUNE,
        78,
        "is not a valid file name",
    ),
    Hostile(
        "input with half a character", _file("in.jsonl", '{"text": "\\ud800"}\n'), ASK, 65, "surrogate", ("out.jsonl",)
    ),
    Hostile(
        "input with a key twice", _file("in.jsonl", '{"text": "a", "text": "b"}\n'), ASK, 65, "twice", ("out.jsonl",)
    ),
    Hostile("output through a link", _output_through_a_link, TRAIN, 73, "exists already", ("theirs/spiece.model",)),
)
