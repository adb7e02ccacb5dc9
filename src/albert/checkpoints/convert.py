"""Converting TensorFlow checkpoints and Hugging Face models to model directories that transformers opens too."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from albert.checkpoints.hub import copy_examples, is_archive, unpacked
from albert.checkpoints.huggingface import (
    BACKBONE_PREFIX,
    CLASSIFIERS,
    DECODER_BIAS,
    OBJECTIVE_KEY,
    from_transformers,
    kind_of,
    labels_written,
    n_outputs,
    to_transformers,
    with_sentence_objective,
)
from albert.checkpoints.loading import (
    INDEX_NAME,
    INT8_WEIGHTS_NAME,
    QUANTIZATION_KEY,
    WEIGHTS_NAME,
    LoadingReport,
    architecture_of,
    belongs_to,
    checkpoint_warnings,
    require_finite,
    require_whole,
    write_tensors,
)
from albert.checkpoints.model_directory import (
    CARD_NAME,
    CONFIG_NAME,
    FINGERPRINT_KEY,
    config_to_json,
    describe_model,
    open_model,
    refuse_foreign_tokenizer,
    short_card,
    tokenizer_keys,
)
from albert.checkpoints.tensor_bundle import TensorBundle
from albert.checkpoints.tensorflow import (
    Place,
    Shapes,
    config_of,
    find_checkpoint,
    holds_tensorflow,
    read_albert_config,
    sort_names,
)
from albert.model.config import AlbertConfig
from albert.runtime.errors import CannotCreate, DamagedData, InvalidConfiguration, MissingInput, UsageError
from albert.runtime.files import new_directory, write_text
from albert.runtime.json_files import save_json
from albert.runtime.progress import progress
from albert.text.tokenizer import CONFIG_NAME as TOKENIZER_CONFIG_NAME
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# What can be converted, read into one form: a TensorFlow checkpoint, or a directory of Hugging Face's layout.

_LARGE = 2**28


@dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """What the caller knows about the source, and what goes beside the model."""

    config_file: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    one_output: Literal["regression", "multiple_choice"] | None = None
    """What a TensorFlow classifier with one output is, STS-B's or RACE's; their checkpoints look alike."""
    dtype: torch.dtype | None = None
    revision: str | None = None
    labels: Sequence[str] = ()
    tokenizer: Path | None = None
    without_tokenizer: bool = False
    lower_case: bool = True
    keep_accents: bool = False
    """What becomes of letters, which a vocabulary alone does not say; a `tokenizer_config.json` beside it does."""


@dataclass(frozen=True, kw_only=True)
class ConversionSource:
    """A model in memory, and where all of it came from.

    Args:
        tensors: by our names, each in memory of its own.
        dropped: tensors that say nothing of the model: an optimiser's, equal copies, saved buffers.
        unexpected: tensors that have no place, each with the reason.
    """

    kind: str
    place: str
    size: int
    config: AlbertConfig
    config_place: str | None
    extra: dict[str, Any]
    architecture: str
    tensors: dict[str, Tensor]
    dropped: tuple[str, ...]
    unexpected: dict[str, str]
    notes: tuple[str, ...]
    tokenizer: Path | None
    steps: int = 1
    card: str | None = None
    directory: Path | None = None


def read_source(source: str, options: ConversionOptions) -> ConversionSource:
    """Read a model for conversion.

    Args:
        source: a directory, a file of a TensorFlow checkpoint or its prefix, or a Hub id.
    """
    path = _only_directory_in(Path(source))
    if not _is_hugging_face(path) and holds_tensorflow(path):
        if options.revision is not None:
            raise UsageError("--revision", f"{options.revision!r} of {path}, which is not a Hub repository")
        return read_tensorflow(path, options)
    if not path.exists() and path.parent != Path() and path.parent.is_dir():  # nobody means a Hub id then
        raise MissingInput(path, "no such file or directory, and no checkpoint of that prefix")
    for flag, value in {"--config": options.config_file, "--one-output": options.one_output}.items():
        if value is not None:
            raise UsageError(flag, f"goes with a TensorFlow checkpoint, which {source} is not")
    return _hugging_face(source if not path.exists() else path, options)


def _only_directory_in(path: Path) -> Path:
    """The only directory inside a directory, as archives unpack; else the path itself."""
    if not path.is_dir() or _is_hugging_face(path):
        return path
    inside = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
    return inside[0] if len(inside) == 1 and _is_hugging_face(inside[0]) else path


def _is_hugging_face(path: Path) -> bool:
    names = (WEIGHTS_NAME, INDEX_NAME, INT8_WEIGHTS_NAME)
    return (path / CONFIG_NAME).is_file() and any((path / name).is_file() for name in names)


def read_tensorflow(path: Path, options: ConversionOptions) -> ConversionSource:
    """Read a checkpoint that google-research/albert wrote or released.

    Names, shapes, configuration and sizes of files are checked before the first number is read.

    Raises:
        MissingInput: a file is absent, or nobody says how many layers, heads or which activation.
        DamagedData: a file is damaged, of another model or another format.
        InvalidConfiguration: the configuration and the tensors contradict each other.
    """
    files = find_checkpoint(path, options.config_file)
    tokenizer = None if options.tokenizer or options.without_tokenizer else files.tokenizer()
    bundle = TensorBundle(files.prefix)
    where = str(bundle.index)
    found = sort_names(bundle.entries, where)
    shapes = {place.name: _shape(bundle, variable, place) for variable, place in found.placed.items()}
    said, ignored = read_albert_config(files.config)
    config = config_of(said, shapes, options.overrides, files.config, where)
    architecture, extra = _architecture(shapes, options.one_output, where)
    places = {variable: place for variable, place in found.placed.items() if belongs_to(place.name, architecture)}
    beside = {v: f"has no place in {architecture}" for v in found.placed if v not in places}
    bundle.require(places)
    described = {place.name: torch.empty(shapes[place.name], device="meta") for place in places.values()}
    require_whole(from_transformers(described, config, where), architecture, config, where)
    notes = [f"keys that the reference's code ignores too: {', '.join(ignored)}"] if ignored else []
    if said.get("hidden_act") == "gelu" and "hidden_act" not in options.overrides:
        notes.append('"gelu" is the tanh form in the reference: gelu_new here and in transformers')
    if not config.projects_embeddings:
        notes.append("transformers maps E to H even where they are equal: the identity is written")
    return ConversionSource(
        kind="TensorFlow checkpoint",
        place=where,
        size=sum(bundle.entries[variable].size for variable in places),
        config=config,
        config_place=files.config and str(files.config),
        extra=extra,
        architecture=architecture,
        tensors=from_transformers(_read(bundle, places, options.dtype), config, where).tensors,
        dropped=found.dropped,
        unexpected=found.unexpected | beside,
        notes=(*notes, *checkpoint_warnings(config, dict.fromkeys(ignored))),
        tokenizer=tokenizer,
        steps=files.steps,
    )


def _shape(bundle: TensorBundle, variable: str, place: Place) -> tuple[int, ...]:
    shape = bundle.entries[variable].shape
    return shape[::-1] if place.transposed else shape


def _architecture(shapes: Shapes, one_output: str | None, where: str) -> tuple[str, dict[str, Any]]:
    """The class of transformers, and what its `config.json` says of the task."""
    architecture = architecture_of(shapes)
    if architecture not in CLASSIFIERS:
        return architecture, {}
    if shapes.get("classifier.bias", (2,))[0] > 1:
        return architecture, {"problem_type": "single_label_classification"}
    if one_output is None:
        why = "its classifier has one output: a score of a text, as for STS-B, or of an option, as for RACE"
        raise InvalidConfiguration(where, why, "say which: --one-output regression, or --one-output multiple_choice")
    if one_output == "regression":
        return architecture, {"problem_type": "regression"}
    return "AlbertForMultipleChoice", {}


def _read(bundle: TensorBundle, places: Mapping[str, Place], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The tensors, the largest first: one is in memory twice while it is transposed, early enough not to matter."""
    order = sorted(places, key=lambda variable: -bundle.entries[variable].size)
    size = sum(bundle.entries[variable].size for variable in places)
    tensors = {}
    with progress("Reading TensorFlow's tensors", total=size / 1e6, unit="MB", quiet=size < _LARGE) as bar:
        for variable in order:
            tensor = bundle.read(variable)
            file = bundle.data_file(bundle.entries[variable].shard)
            if not tensor.is_floating_point():
                raise DamagedData(file, f"{variable} holds {tensor.dtype}, numbers with a fraction are expected")
            place = places[variable]
            tensor = require_finite(tensor, variable, file).to(dtype or tensor.dtype)
            tensors[place.name] = tensor.t().contiguous() if place.transposed else tensor
            bar.advance(bundle.entries[variable].size / 1e6)
    return tensors


def _hugging_face(source: str | Path, options: ConversionOptions) -> ConversionSource:
    model = describe_model(source, options.revision, options.overrides)
    config, extra, stored, described = model.config, model.extra, model.stored, model.renamed
    stated = next(iter(extra.get("architectures") or []), None)
    architecture = architecture_of(described.in_file.values(), stated)
    require_whole(described, architecture, config, stored.source)
    # A head goes by its name in the file, which tells a next-sentence head from one for sentence order.
    named = (
        (ours if ours.startswith(BACKBONE_PREFIX) else theirs, theirs) for ours, theirs in described.in_file.items()
    )
    beside = {theirs for name, theirs in named if not belongs_to(name, architecture)}
    reasons = dict.fromkeys(described.unexpected, "is not a tensor of ALBERT")
    left_out = {*beside, *described.unexpected}
    renamed = model.read(left_out, options.dtype)
    directory, card = model.directory, model.directory / CARD_NAME
    return ConversionSource(
        kind="Hugging Face directory",
        place=stored.source,
        size=sum(tensor.n_bytes for name, tensor in stored.by_name.items() if name not in left_out),
        config=config,
        config_place=str(directory / CONFIG_NAME),
        extra=extra,
        architecture=architecture,
        tensors=renamed.tensors,
        dropped=renamed.dropped,
        unexpected=reasons | dict.fromkeys(beside, f"has no place in {architecture}"),
        notes=model.notes,
        tokenizer=directory if vocabulary_file(directory).is_file() else None,
        card=card.read_text(encoding="utf-8") if card.is_file() and QUANTIZATION_KEY not in extra else None,
        directory=directory,
    )


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What was made of what."""

    source: ConversionSource
    names: tuple[str, ...]
    parameters: dict[str, int]
    tokenizer: Tokenizer | None
    tokenizer_place: str | None
    written: int
    opened: LoadingReport


def convert(source: str, output: Path, options: ConversionOptions, replace_output: bool = False) -> Conversion:
    """Write a model directory from a TensorFlow checkpoint, a Hugging Face directory, or an archive of one.

    Raises:
        CannotCreate: `output` exists and must not give way.
        AlbertError: whatever is wrong with the source, see `read_source`.
    """
    if output.exists() and not replace_output:
        raise CannotCreate(output, "exists already", "choose another name, or add --replace")
    archive = Path(source)
    if not is_archive(archive):
        return _convert(source, output, options, replace_output)
    with unpacked(archive) as directory:
        made = _convert(str(directory), output, options, replace_output)
        # The user knows the archive, not the directory that it was unpacked into.
        place, config, vocabulary = (
            path and path.replace(str(directory), str(archive))
            for path in (made.source.place, made.source.config_place, made.tokenizer_place)
        )
        named = replace(made.source, place=str(place), config_place=config)
        return replace(made, source=named, tokenizer_place=vocabulary)


def _convert(place: str, output: Path, options: ConversionOptions, replace_output: bool) -> Conversion:
    source = read_source(place, options)
    pieces, pieces_place = _tokenizer(source, options)
    tensors = _under_their_names(source)
    names, parameters = tuple(tensors), _parameters(tensors)
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors.values()))
    extra = {key: value for key, value in source.extra.items() if key != FINGERPRINT_KEY}
    extra |= {} if pieces is None else tokenizer_keys(pieces)
    if options.labels:
        if n_outputs(source.architecture, tensors) is None:
            raise UsageError("--labels", f"{source.place} holds {source.architecture}, which has no classes to name")
        extra["id2label"] = dict(enumerate(options.labels))
    outputs = labels_written(source.architecture, tensors)
    content = config_to_json(source.config, source.architecture, dtype, outputs, extra)
    with new_directory(output, replace=replace_output) as directory:
        if pieces is not None:
            pieces.save(directory)
        save_json(directory / CONFIG_NAME, content)
        write_tensors(directory / WEIGHTS_NAME, tensors)
        described = f"Converted from a {source.kind} by `albert convert`."
        card = source.card or short_card(output.name, source.architecture, source.config, parameters, described)
        write_text(directory / CARD_NAME, card)
        if source.directory is not None:
            copy_examples(source.directory, directory)
        # They are on the disk now: what is opened is the only copy in memory.
        tensors.clear()
        source.tensors.clear()
        opened = open_model(directory, kind_of(content), dtype=None)
        written = (directory / WEIGHTS_NAME).stat().st_size
    return Conversion(
        source=source,
        names=names,
        parameters=parameters,
        tokenizer=pieces,
        tokenizer_place=pieces_place and str(pieces_place),
        written=written,
        opened=opened.loading_report,
    )


def _under_their_names(source: ConversionSource) -> dict[str, Tensor]:
    bare = source.architecture == "AlbertModel"
    named = {name.removeprefix(BACKBONE_PREFIX) if bare else name: t for name, t in source.tensors.items()}
    tensors = to_transformers(named, source.config)
    if "predictions.bias" not in tensors:
        return tensors
    return with_sentence_objective(tensors, str(source.extra.get(OBJECTIVE_KEY, "sop")))


def _tokenizer(source: ConversionSource, options: ConversionOptions) -> tuple[Tokenizer | None, Path | None]:
    if options.without_tokenizer:
        if options.tokenizer is not None:
            raise UsageError("--without-tokenizer", "contradicts --tokenizer")
        return None, None
    place = options.tokenizer or source.tokenizer
    if place is None:
        remedy = "name one with --tokenizer, or say --without-tokenizer"
        raise MissingInput(source.place, "there is no vocabulary beside it (*.model, vocab*.txt)", remedy)
    tokenizer = _open_vocabulary(place, options)
    refuse_foreign_tokenizer(tokenizer, place, source.config, source.extra)
    return tokenizer, place


def _open_vocabulary(place: Path, options: ConversionOptions) -> Tokenizer:
    tokenizer = load_tokenizer(place)
    if options.lower_case and not options.keep_accents:
        return tokenizer
    file = vocabulary_file(place)
    config = file.with_name(TOKENIZER_CONFIG_NAME)
    if config.is_file() or file.suffix == ".json":
        flag = "--keep-accents" if options.keep_accents else "--no-lower-case"
        said = config if config.is_file() else file
        raise UsageError(flag, f"{said} says itself what becomes of letters", f"change it in {said}")
    with tempfile.TemporaryDirectory(prefix="albert-") as directory:
        copy = Path(directory, file.name)
        shutil.copyfile(file, copy)
        stated = {"do_lower_case": options.lower_case, "keep_accents": options.keep_accents}
        if options.keep_accents:
            stated["strip_accents"] = False  # WordPiece's word for it
        save_json(copy.with_name(TOKENIZER_CONFIG_NAME), stated)
        return load_tokenizer(copy)


_PARTS = {"embedding_hidden_mapping_in": "projection", "albert_layer_groups": "layers"}


def _parameters(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    count: Counter[str] = Counter()
    for name, tensor in tensors.items():
        if name == DECODER_BIAS:  # a copy
            continue
        parts = name.removeprefix(BACKBONE_PREFIX).split(".")
        count[_PARTS.get(parts[1], parts[0]) if parts[0] == "encoder" else parts[0]] += tensor.numel()
    return dict(count)
