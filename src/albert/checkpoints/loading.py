"""Loading weights: safetensors in one file or several, 8-bit matrices, and a report on every tensor.

A pickle is never loaded. Also: warnings about faulty published models."""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from albert.checkpoints.hub import INDEX_NAME, INT8_WEIGHTS_NAME, MODULES_NAME, WEIGHTS_NAME
from albert.checkpoints.huggingface import (
    BACKBONE_PREFIX,
    BUFFERS,
    HEADS,
    KINDS,
    RenamedTensors,
    backbone_names,
    build_model,
    n_outputs,
)
from albert.model.albert import AlbertModel
from albert.model.encoder import InputScale, LayerScales, initialize, on_meta_device
from albert.model.families import family_of
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, OutOfResources
from albert.runtime.files import library_writes
from albert.runtime.json_files import read_json_object
from albert.runtime.manifest import LAYOUT, MANIFEST_NAME, open_input, require_layout
from albert.runtime.progress import progress

# --------------------------------------------------------------------------------------------------------------------
# The header of a safetensors file.

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
_LENGTH = 8  # bytes that hold the length of the header, which is followed by the tensors without gaps
_MAX_HEADER = 2**24
"""Bytes; a thousand layers without sharing need three million."""
_PICKLE_PREFIXES = (b"PK\x03\x04", b"\x80")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file, not read yet."""

    file: Path
    offset: int
    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of a safetensors file; the library checks that their places and shapes fit the file."""
    stored: dict[str, StoredTensor] = {}
    try:
        with open_input(path) as file:
            prefix = file.read(_LENGTH)
        length = int.from_bytes(prefix, "little")
        if prefix.startswith(_PICKLE_PREFIXES) and length > _MAX_HEADER:
            raise DamagedData(path, "is a pickle, not safetensors; a pickle can run code and is never loaded")
        offset = _LENGTH + length
        with safe_open(path, framework="pt") as header:
            for name in header.offset_keys():
                tensor = header.get_slice(name)
                kind = tensor.get_dtype()
                shape = tuple(tensor.get_shape())
                if not name.isprintable() or 0 in shape:
                    raise DamagedData(path, f"a tensor is called {name!r} and has shape {shape}")
                if kind not in DTYPES:
                    raise DamagedData(path, f"{name} holds numbers of type {kind!r}", f"known: {', '.join(DTYPES)}")
                stored[name] = StoredTensor(path, offset, DTYPES[kind], shape)
                offset += stored[name].n_bytes
    except SafetensorError as error:
        why = " ".join(str(error).split()).partition(", expected")[0]
        raise DamagedData(path, f"is not a complete safetensors file ({why})") from error
    except OSError as error:
        raise MissingInput(path, error.strerror or "cannot be read") from error
    return stored


# --------------------------------------------------------------------------------------------------------------------
# Matrices stored as 8-bit integers with a scale for each row, converted to float32 when they are read.
#
# The file and the tensors have other names than in transformers, which would take the integers for weights: matrix
# `NAME` is `NAME.int8` [rows, columns] and `NAME.scale` [rows]; all other tensors keep their names and types.

QUANTIZATION_KEY = "albert_quantization"
"""In `config.json`."""
INPUT_SCALES_KEY = "input_scales"
CALIBRATION_KEY = "calibrated_on"
FORMAT = "int8-per-channel"
_VALUES = ".int8"
_SCALE = ".scale"


def stored_names(name: str) -> tuple[str, str]:
    """The names of a matrix's integers and scales in the file."""
    return name + _VALUES, name + _SCALE


def matrices_and_scales(stored: Mapping[str, StoredTensor]) -> tuple[dict[str, StoredTensor], dict[str, StoredTensor]]:
    """The tensors of such a file by their usual names, and the scales of the integer matrices."""
    by_name = dict(stored)
    scales: dict[str, StoredTensor] = {}
    for name in [name.removesuffix(_VALUES) for name in stored if name.endswith(_VALUES)]:
        values = by_name.pop(name + _VALUES)
        scale = by_name.pop(name + _SCALE, None)
        if scale is None or name in by_name:
            raise DamagedData(values.file, f"{name} {'lacks its scales' if scale is None else 'occurs twice'}")
        if (values.dtype, scale.dtype) != (torch.int8, torch.float32) or scale.shape != values.shape[:1]:
            form = f"{values.dtype} {values.shape} with scales {scale.dtype} {scale.shape}"
            raise DamagedData(values.file, f"{name} is {form}, integers with a scale for each row are expected")
        by_name[name] = values
        scales[name] = scale
    for name, tensor in by_name.items():
        if name not in scales and (name.endswith(_SCALE) or not tensor.dtype.is_floating_point):
            raise DamagedData(tensor.file, f"{name} is {tensor.dtype} without a matrix of integers")
    return by_name, scales


def quantization_notes(extra: Mapping[str, Any], directory: Path) -> tuple[str, ...]:
    """A note for a model with 8-bit matrices; empty for others."""
    settings = extra.get(QUANTIZATION_KEY)
    if settings is None:
        return ()
    stated = settings.get(LAYOUT) if isinstance(settings, Mapping) else None
    require_layout(f"{directory / 'config.json'}: {QUANTIZATION_KEY}", stated)
    return ("matrices are stored as 8-bit integers, one scale per row",)


def input_scales_to_json(scales: Sequence[LayerScales]) -> list[list[InputScale | None]]:
    """The value of `input_scales` in `config.json`: for each application of a layer and each of its products a scale
    and a zero point, or null where each row has its own scale."""
    return [list(layer) for layer in scales]


def stored_input_scales(extra: Mapping[str, Any], directory: Path) -> tuple[LayerScales, ...] | None:
    """The scales of a model with 8-bit matrices; None for others."""
    settings = extra.get(QUANTIZATION_KEY)
    if settings is None:
        return None
    try:
        return tuple(
            LayerScales(*(None if one is None else _input_scale(*one) for one in layer))
            for layer in settings[INPUT_SCALES_KEY]
        )
    except (KeyError, TypeError, ValueError) as error:
        subject = f"{directory / 'config.json'}: {QUANTIZATION_KEY}"
        why = f"{INPUT_SCALES_KEY} are not four scales with zero points for each layer"
        raise DamagedData(subject, why, "quantise the original again: albert quantize") from error


def _input_scale(scale: Any, zero_point: Any) -> InputScale:
    if not (math.isfinite(scale) and scale > 0 and type(zero_point) is int and 0 <= zero_point <= 255):
        raise ValueError((scale, zero_point))
    return InputScale(float(scale), zero_point)


_PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
_OTHER_FRAMEWORK = "open them with {}=True in transformers 4 and save them as " + WEIGHTS_NAME
_OTHERS = {
    "tf_model.h5": ("holds TensorFlow weights", _OTHER_FRAMEWORK.format("from_tf")),
    "flax_model.msgpack": ("holds Flax weights", _OTHER_FRAMEWORK.format("from_flax")),
}
_LARGE = 2**28


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as safetensors with the metadata that transformers requires."""
    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    with library_writes(path):
        save_file(contiguous, path, metadata={"format": "pt"})


@dataclass(frozen=True)
class StoredTensors:
    """The tensors of a model directory, not read yet."""

    source: str
    by_name: Mapping[str, StoredTensor]
    scales: Mapping[str, StoredTensor] = field(default_factory=dict)

    def on_meta(self) -> dict[str, Tensor]:
        """The tensors on the meta device."""
        return {
            name: torch.empty(stored.shape, dtype=torch.float32 if name in self.scales else stored.dtype, device="meta")
            for name, stored in self.by_name.items()
        }

    def read(self, names: Iterable[str], dtype: torch.dtype | None = None) -> dict[str, Tensor]:
        """Read tensors, each into separate memory, not mapped from the file."""
        selected = {name: self.by_name[name] for name in names}
        size = sum(stored.n_bytes for stored in selected.values())
        tensors: dict[str, Tensor] = {}
        with progress("Reading weights", total=size / 1e6, unit="MB", quiet=size < _LARGE) as bar:
            for path in sorted({stored.file for stored in selected.values()}):
                try:
                    with open_input(path) as file:
                        for name, stored in selected.items():
                            if stored.file == path:
                                tensor = _read(file, stored)
                                if name in self.scales:  # quantised again, this gives the same integers and scales
                                    tensor = tensor * _read(file, self.scales[name])[:, None]
                                tensor = require_finite(tensor, name, path)
                                tensors[name] = tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor
                                bar.advance(stored.n_bytes / 1e6)
                except OSError as error:
                    raise MissingInput(path, error.strerror or "cannot be read") from error
        return tensors


def stored_tensors(directory: Path) -> StoredTensors:
    """The tensors of a model directory according to the headers of its files."""
    files = _weight_files(directory)
    if files[0].name == INT8_WEIGHTS_NAME:
        return StoredTensors(str(files[0]), *matrices_and_scales(read_header(files[0])))
    by_name: dict[str, StoredTensor] = {}
    for file in files:
        for name, stored in read_header(file).items():
            if name in by_name:
                raise DamagedData(file, f"holds {name}, which {by_name[name].file.name} holds as well")
            if not (stored.dtype.is_floating_point or name.endswith(BUFFERS)):
                raise DamagedData(file, f"{name} holds {stored.dtype}, numbers with a fraction are expected")
            by_name[name] = stored
    return StoredTensors(str(files[0] if len(files) == 1 else directory / INDEX_NAME), by_name)


def _read(file: BufferedReader, stored: StoredTensor) -> Tensor:
    try:
        tensor = torch.empty(stored.shape, dtype=stored.dtype, device="cpu")
    except RuntimeError as error:
        raise OutOfResources(stored.file, f"needs {stored.n_bytes:,} bytes of memory for one tensor") from error
    file.seek(stored.offset)
    if file.readinto(tensor.view(-1).view(torch.uint8).numpy().data) < stored.n_bytes:
        raise DamagedData(stored.file, "became shorter while it was read")
    return tensor


def _weight_files(directory: Path) -> list[Path]:
    if (directory / WEIGHTS_NAME).is_file():
        return [directory / WEIGHTS_NAME]
    if (directory / INDEX_NAME).is_file():
        return _sharded(directory)
    if (directory / INT8_WEIGHTS_NAME).is_file():
        return [directory / INT8_WEIGHTS_NAME]
    for name in _PICKLES:
        if (directory / name).exists():
            why = "is a pickle, which can run code and is never loaded"
            remedy = f"if you trust it, write {WEIGHTS_NAME} in Python: {_conversion(directory)}"
            raise MissingInput(directory / name, why, remedy)
    for name, (why, remedy) in _OTHERS.items():
        if (directory / name).exists():
            raise MissingInput(directory / name, why, remedy)
    if any(directory.glob("*.onnx")):
        remedy = "name the model that it was exported from; `albert info PATH --verify` checks the files of an export"
        raise MissingInput(directory, f"holds an ONNX file and no {WEIGHTS_NAME}", remedy)
    raise MissingInput(directory, f"holds no {WEIGHTS_NAME}", "name a directory that albert or transformers wrote")


def _conversion(directory: Path) -> str:
    """The call of transformers or sentence-transformers that writes a model again, with its head and its modules."""
    for root in (directory, directory.parent):
        if (root / MODULES_NAME).is_file():
            return f"SentenceTransformer(d := {str(root)!r}).save(d)"
    config = directory / "config.json"
    names = read_json_object(config).get("architectures") if config.is_file() else None
    name = names[0] if isinstance(names, list) and names and str(names[0]).isidentifier() else "AutoModel"
    return f"transformers.{name}.from_pretrained(d := {str(directory)!r}).save_pretrained(d)"


def _sharded(directory: Path) -> list[Path]:
    index = directory / INDEX_NAME
    weight_map = read_json_object(index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise DamagedData(index, "holds no weight_map")
    files = []
    for name in sorted({str(file) for file in weight_map.values()}):
        if Path(name).name != name:
            raise DamagedData(index, f"names {name!r}, which is not a file of this directory")
        if not (directory / name).is_file():
            raise MissingInput(directory / name, f"is listed in {INDEX_NAME} but missing")
        files.append(directory / name)
    return files


def require_finite(tensor: Tensor, name: str, file: Path) -> Tensor:
    """Return the tensor; raise `DamagedData` if it holds NaN or infinity."""
    # aminmax returns NaN if there is one, and needs no mask as large as the tensor.
    if tensor.numel() and tensor.is_floating_point() and not all(map(torch.isfinite, torch.aminmax(tensor))):
        raise DamagedData(file, f"{name} holds numbers that are not finite")
    return tensor


# --------------------------------------------------------------------------------------------------------------------
# Loading tensors into a model, with a report on every one: missing, unexpected, dropped or newly initialised.

_logger = logging.getLogger(__name__)
_POOLER = BACKBONE_PREFIX + "pooler."


@dataclass(frozen=True, kw_only=True)
class LoadingReport:
    """The result of loading for every tensor, by its name in the file.

    Args:
        verified: whether every file was checked against a manifest.
        newly_initialised: tensors with random values, because they are missing or belong to a new head.
        drawn: the same by our names, `albert.` before those of the encoder.
        dropped: redundant tensors: equal copies of tied ones, saved buffers.
        identity_map: the identity map that transformers needs, which every such file has and which is not reported.
    """

    source: str
    verified: bool = False
    missing: tuple[str, ...] = ()
    newly_initialised: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    identity_map: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The report as lines: the source, then the tensors of each kind."""
        state = "checked against its manifest" if self.verified else "unverified: no manifest was checked"
        lines = [f"{self.source}: {state}"]
        groups = {
            "missing": self.missing,
            "newly initialised, at random": self.newly_initialised,
            "in the file but not used": self.unexpected,
            "in the file but not needed": self.dropped,
        }
        lines += [f"{title}: {len(names)} ({_abridged(names)})" for title, names in groups.items() if names]
        return [*lines, *self.notes]

    @property
    def not_used(self) -> str:
        """A line on unused tensors, counted by head; empty if there are none."""
        heads = Counter(name.split(".")[0] for name in self.unexpected)
        counts = ", ".join(f"{head} ({n})" for head, n in heads.items())
        return f"tensors of the file that are not used here: {counts}" if counts else ""

    def warn_if_unverified(self) -> None:
        """Log a missing manifest, once per process and model; without a handler it is a line on stderr."""
        if not self.verified:
            _warn_unverified(self.source)


@lru_cache(maxsize=1024)
def _warn_unverified(source: str) -> None:
    _logger.warning("albert: note: %s: unverified: there is no %s to check it against", source, MANIFEST_NAME)


def fit_tensors(
    model: nn.Module, renamed: RenamedTensors, config: EncoderConfig, source: str, new_head: bool
) -> tuple[dict[str, str], LoadingReport]:
    """Match tensors, which may be on the meta device, with the parameters of a model by names and shapes.

    Returns the names of loaded tensors -> their names in the model, and the report.
    """
    family = family_of(config)
    in_file = {BACKBONE_PREFIX + ours: family.prefix + theirs[0] for ours, theirs in backbone_names(config)}
    in_file |= family.heads_written(type(model).__name__, config) | renamed.in_file
    bare = BACKBONE_PREFIX if isinstance(model, AlbertModel) else ""
    shapes = {bare + name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    loaded = [name for name in renamed.tensors if name in shapes and not (new_head and name in HEADS)]
    drawn = [name for name in shapes if name not in loaded]
    absent = [in_file[name] for name in drawn if name.startswith(BACKBONE_PREFIX) and not name.startswith(_POOLER)]
    if absent:
        why = f"lacks {len(absent)} of the encoder's tensors ({_abridged(absent)})"
        raise DamagedData(source, why, f"config.json does not match these weights, or they are not {family.title}'s")
    for name in loaded:
        shape = tuple(renamed.tensors[name].shape)
        if shape != shapes[name]:
            why = f"{in_file[name]} has shape {shape}, the model needs {shapes[name]}"
            remedy = "use the number of labels of the file, or a new head" if name in HEADS else "correct config.json"
            raise InvalidConfiguration(source, why, remedy)
    return {name: name.removeprefix(bare) for name in loaded}, LoadingReport(
        source=source,
        missing=tuple(in_file[name] for name in drawn if name not in renamed.tensors),
        newly_initialised=tuple(in_file[name] for name in drawn),
        drawn=tuple(drawn),
        unexpected=tuple(sorted([*(in_file[n] for n in renamed.tensors if n not in loaded), *renamed.unexpected])),
        dropped=renamed.dropped,
        identity_map=renamed.identity_map,
    )


def fill_model(
    model: nn.Module, tensors: Mapping[str, Tensor], standard_deviation: float, dtype: torch.dtype | None
) -> None:
    """Load tensors into a model that was built on the meta device, and draw missing parameters.

    Without `dtype` loaded parameters keep their types, and drawn ones get the most common type.
    """
    dtypes = Counter(tensor.dtype for tensor in tensors.values())
    model.load_state_dict({name: t.to(dtype or t.dtype) for name, t in tensors.items()}, strict=False, assign=True)
    _draw(model, standard_deviation, dtype or dtypes.most_common(1)[0][0])


def _draw(model: nn.Module, standard_deviation: float, dtype: torch.dtype) -> None:
    """Draw initial values of the parameters that are still on the meta device."""
    for module in model.modules():
        own = dict(module.named_parameters(recurse=False))
        if not any(parameter.is_meta for parameter in own.values()):
            continue
        for name, parameter in own.items():
            if parameter.is_meta:
                drawn = torch.zeros(parameter.shape, dtype=dtype, device="cpu")
                module.register_parameter(name, nn.Parameter(drawn))
        if not any(True for _ in module.children()):  # a bias of a module with children (the decoder's) stays zero
            initialize(module, standard_deviation)
        for name, parameter in own.items():
            if not parameter.is_meta:
                module.register_parameter(name, parameter)


def _abridged(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names[:3]) + (f", and {len(names) - 3} more" if len(names) > 3 else "")


# --------------------------------------------------------------------------------------------------------------------
# Warnings about published checkpoints with doubtful settings.

_GOOGLE_KEYS = ("net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor")
"""Unused keys that only configurations made from Google's releases have."""
_XLARGE = (2048, 8192)


def checkpoint_warnings(config: EncoderConfig, extra: Mapping[str, Any]) -> tuple[str, ...]:
    """Warnings about a model's settings."""
    if not any(key in extra for key in _GOOGLE_KEYS):
        return ()
    notes = []
    if config.hidden_act == "gelu":
        notes.append(
            'hidden_act "gelu" is the exact form here as in transformers, but Google trained with the tanh form, '
            'which is "gelu_new" here; use --hidden-act gelu_new for the same results as Google'
        )
    if (config.hidden_size, config.intermediate_size) == _XLARGE:
        notes.append(
            f"num_attention_heads is {config.num_attention_heads}, and ALBERT-xlarge is published with 16 and with 32; "
            "albert info --self-check finds the right one, --num-attention-heads sets it"
        )
    return tuple(notes)


_WITHOUT_POOLER = {*KINDS} - {"AlbertForSequenceClassification", "AlbertForMultipleChoice", "AlbertForPreTraining"}


def require_complete(renamed: RenamedTensors, architecture: str, config: EncoderConfig, where: str) -> None:
    """Refuse tensors if one of the class is missing or has another shape."""
    outputs = n_outputs(architecture, renamed.tensors)
    with on_meta_device():
        models = (AlbertModel(config), build_model(KINDS[architecture], config, outputs))
    names: list[str] = []
    for model in models:
        report = fit_tensors(model, renamed, config, where, False)[1]
        pairs = zip(report.drawn, report.newly_initialised, strict=True)
        without_pooler = architecture in _WITHOUT_POOLER or config.head_pooling != "pooler"
        names += [name for ours, name in pairs if not (without_pooler and ours.startswith(_POOLER))]
    names = sorted(set(names))
    if names:
        raise DamagedData(
            where, f"lacks {len(names)} tensors of {family_of(config).class_name(architecture)} ({_abridged(names)})"
        )
