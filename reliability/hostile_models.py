"""Model directories made to do harm: code in the place of numbers, sizes that fill the memory, names that lead out."""

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from reliability.hostile_case import Hostile, Place

OPEN = "predict {here}/m --fill-mask [MASK]"
CONVERT = "convert {here}/m --output {here}/out"


class _Command:
    """Makes a file when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch pickle-was-run",)


PICKLE = pickle.dumps(_Command(), protocol=4)
OLD_PICKLE = pickle.dumps(_Command(), protocol=0)
BROKEN_TAIL = PICKLE[:-1] + b"\xff" * 40  # the command comes before the damage


def torch_archive(content: bytes = PICKLE) -> bytes:
    """A zip file as `torch.save` writes it."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), content)
        archive.writestr(zipfile.ZipInfo("archive/version"), b"3\n")
    return stream.getvalue()


def header(content: object, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file of a header, whatever it says."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _tensor(begin: int, end: int, shape: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def _weights(content: bytes) -> Callable[[Place], object]:
    return lambda place: place.model(model_safetensors=content)


def _pickled(name: str, content: bytes) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        place.model(model_safetensors=None)
        place.write(f"m/{name}", content)

    return make


def _config(**changes: Any) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        content = json.loads((place.scene.pretrained / "config.json").read_bytes())
        place.model(config_json=json.dumps({**content, **changes}))

    return make


def _raw_config(key: str, token: str) -> Callable[[Place], object]:
    """A configuration with a value that JSON's writers do not write."""

    def make(place: Place) -> None:
        content = json.loads((place.scene.pretrained / "config.json").read_bytes())
        place.model(config_json=json.dumps({**content, key: "@"}).replace('"@"', token))

    return make


def _twice(place: Place) -> None:
    text = (place.scene.pretrained / "config.json").read_text()
    place.model(config_json=text.replace('"hidden_size"', '"hidden_size": 8, "hidden_size"', 1))


def _index(files: object) -> Callable[[Place], object]:
    def make(place: Place) -> None:
        place.model(model_safetensors=None)
        place.write("m/model.safetensors.index.json", json.dumps({"weight_map": files}))

    return make


_GAP = {"a": _tensor(0, 4, [1]), "b": _tensor(8, 12, [1])}
_OVERLAP = {"a": _tensor(0, 8, [2]), "b": _tensor(4, 12, [2])}
_NAMED_TWICE = (
    b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}'
)
_PICKLES_ARE = "is a pickle, which can run any code and is never loaded"
_NOT_WHOLE = "is not a whole safetensors file"
_NO_MARK = ("pickle-was-run", "out")

MODELS: tuple[Hostile, ...] = (
    Hostile("pickle as pytorch_model.bin", _pickled("pytorch_model.bin", PICKLE), OPEN, 66, _PICKLES_ARE, _NO_MARK),
    Hostile(
        "zip of torch.save as pytorch_model.bin", _pickled("pytorch_model.bin", torch_archive()), OPEN, 66, _PICKLES_ARE
    ),
    Hostile("pickle to convert", _pickled("pytorch_model.bin", PICKLE), CONVERT, 66, _PICKLES_ARE, _NO_MARK),
    Hostile("pickle as model.pt", _pickled("model.pt", PICKLE), OPEN, 66, "holds no model.safetensors", _NO_MARK),
    Hostile("pickle as model.ckpt", _pickled("model.ckpt", PICKLE), OPEN, 66, "holds no model.safetensors", _NO_MARK),
    Hostile("pickle as model.safetensors", _weights(PICKLE), OPEN, 65, "is a pickle under the name of safetensors"),
    Hostile(
        "zip of torch.save as model.safetensors", _weights(torch_archive()), OPEN, 65, "is a pickle under the name"
    ),
    Hostile("pickle with a broken tail", _weights(BROKEN_TAIL), OPEN, 65, "is a pickle under the name", _NO_MARK),
    Hostile("pickle of protocol 0", _weights(OLD_PICKLE), OPEN, 65, _NOT_WHOLE, _NO_MARK),
    Hostile("7z around a pickle", _weights(b"7z\xbc\xaf\x27\x1c\0\x04" + PICKLE), OPEN, 65, _NOT_WHOLE, _NO_MARK),
    Hostile("pickle behind a header", _weights(header({}, PICKLE)), OPEN, 65, _NOT_WHOLE, _NO_MARK),
    Hostile(
        "pickle as spiece.model", lambda p: p.model(spiece_model=PICKLE), OPEN, 65, "SentencePiece model", _NO_MARK
    ),
    Hostile("pickle as config.json", lambda p: p.model(config_json=PICKLE), OPEN, 65, "is not JSON", _NO_MARK),
    Hostile(
        "weights of TensorFlow's pickle age",
        _pickled("tf_model.h5", b"\x89HDF\r\n"),
        OPEN,
        66,
        "holds TensorFlow weights",
    ),
    Hostile("header of 2^63 bytes", _weights(header({}, length=2**63)), OPEN, 65, _NOT_WHOLE),
    Hostile("header longer than the file", _weights(header({}, length=3000)), OPEN, 65, _NOT_WHOLE),
    Hostile("header of no bytes", _weights(header(b"", length=0)), OPEN, 65, _NOT_WHOLE),
    Hostile("header of 200,000 brackets", _weights(header(b"[" * 200_000)), OPEN, 65, "header is not JSON"),
    Hostile("tensors that overlap", _weights(header(_OVERLAP, bytes(12))), OPEN, 65, "does not lie where"),
    Hostile("tensors with a gap", _weights(header(_GAP, bytes(12))), OPEN, 65, "does not lie where"),
    Hostile("tensor beyond the end", _weights(header({"a": _tensor(0, 400, [100])}, bytes(8))), OPEN, 65, _NOT_WHOLE),
    Hostile(
        "shape that its place contradicts",
        _weights(header({"a": _tensor(0, 8, [9])}, bytes(8))),
        OPEN,
        65,
        "does not lie",
    ),
    Hostile(
        "shape of 2^80 numbers",
        _weights(header({"a": _tensor(0, 8, [2**40, 2**40])}, bytes(8))),
        OPEN,
        65,
        "has invalid sizes",
    ),
    Hostile("negative shape", _weights(header({"a": _tensor(0, 8, [-2])}, bytes(8))), OPEN, 65, "has invalid sizes"),
    Hostile("name of a tensor twice", _weights(header(_NAMED_TWICE, bytes(8))), OPEN, 65, "occurs twice"),
    Hostile(
        "number type that nobody knows",
        _weights(header({"a": _tensor(0, 8, [2], "O")}, bytes(8))),
        OPEN,
        65,
        "of type 'O'",
    ),
    Hostile(
        "name that paints the screen",
        _weights(header({"\x1b[2J": _tensor(0, 8, [2])}, bytes(8))),
        OPEN,
        65,
        "is called",
    ),
    Hostile(
        "index that leads out", _index({"a": "../../secret.safetensors"}), OPEN, 65, "not a file of this directory"
    ),
    Hostile(
        "index that names an absolute path", _index({"a": "/etc/passwd"}), OPEN, 65, "not a file of this directory"
    ),
    Hostile("index of no files", _index({}), OPEN, 65, "holds no weight_map"),
    Hostile("vocabulary of 10^12 pieces", _config(vocab_size=10**12), OPEN, 78, "vocab_size: is 1000000000000"),
    Hostile("10^9 layers", _config(num_hidden_layers=10**9), OPEN, 78, "num_hidden_layers"),
    Hostile("10^7 layers' worth of inner groups", _config(inner_group_num=10**7), OPEN, 78, "layers, at most"),
    Hostile("no heads", _config(num_attention_heads=0), OPEN, 78, "num_attention_heads"),
    Hostile("dropout NaN", _raw_config("hidden_dropout_prob", "NaN"), OPEN, 78, "hidden_dropout_prob"),
    Hostile("dropout 1e999", _raw_config("hidden_dropout_prob", "1e999"), OPEN, 78, "hidden_dropout_prob"),
    Hostile("epsilon NaN", _raw_config("layer_norm_eps", "NaN"), OPEN, 78, "layer_norm_eps"),
    Hostile("size of 5,000 digits", _raw_config("hidden_size", "9" * 5000), OPEN, 65, "is not JSON"),
    Hostile("configuration 200,000 deep", lambda p: p.model(config_json='{"a":' * 200_000), OPEN, 65, "is not JSON"),
    Hostile("configuration with a key twice", _twice, OPEN, 65, "twice"),
    Hostile(
        "class to import",
        _config(model_type="os.system", auto_map={"AutoModel": "evil.Model"}),
        OPEN,
        78,
        "'os.system'",
    ),
    Hostile("half a character for an activation", _raw_config("hidden_act", '"\\ud800"'), OPEN, 78, "hidden_act"),
    Hostile(
        "log injection by an activation", _config(hidden_act="gelu\nalbert: error: all is well"), OPEN, 78, r"gelu\\n"
    ),
    Hostile("labels that are no object", _config(id2label="positive"), "predict {here}/m --classify x", 78, "id2label"),
    Hostile(
        "model by a path out of the hub", lambda p: None, "predict ../../x --fill-mask [MASK]", 66, "no such directory"
    ),
    Hostile(
        "revision that leads out",
        lambda p: None,
        "predict a/b --revision ../../x --fill-mask [MASK]",
        2,
        "is not a branch, tag or commit",
    ),
)
