"""Converting TensorFlow checkpoints and Hugging Face models to model directories that transformers opens too."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albert.checkpoints.hub import copy_examples, is_archive, unpacked
from albert.checkpoints.huggingface import (
    BACKBONE_PREFIX,
    DECODER_BIAS,
    OBJECTIVE_KEY,
    from_transformers,
    kind_of,
    to_transformers,
    with_sentence_objective,
)
from albert.checkpoints.loading import (
    INDEX_NAME,
    INT8_WEIGHTS_NAME,
    LABELLED,
    QUANTIZATION_KEY,
    WEIGHTS_NAME,
    LoadingReport,
    architecture_of,
    belongs_to,
    checkpoint_warnings,
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
from albert.checkpoints.tensorflow import OneOutput, holds_tensorflow, read_albert_config, read_tensorflow_checkpoint
from albert.model.config import AlbertConfig
from albert.runtime.errors import CannotCreate, MissingInput, UsageError
from albert.runtime.files import new_directory, write_text
from albert.runtime.json_files import save_json
from albert.text.tokenizer import CONFIG_NAME as TOKENIZER_CONFIG_NAME
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# What can be converted, read into one form: a TensorFlow checkpoint, or a directory of Hugging Face's layout.


@dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """Options of a conversion: what the caller knows about the source."""

    config_file: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    one_output: OneOutput | None = None
    dtype: torch.dtype | None = None
    revision: str | None = None


@dataclass(frozen=True, kw_only=True)
class ConversionSource:
    """A model in memory, and where all of it came from.

    Args:
        dropped: tensors that say nothing of the model: an optimiser's, equal copies, saved buffers.
        unexpected: tensors that have no place, each with the reason.
    """

    kind: str
    place: str
    size: int
    config: AlbertConfig
    config_place: Path | None
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
    of_tensorflow = {"--config": options.config_file, "--one-output": options.one_output}
    if not _is_hugging_face(path) and holds_tensorflow(path):
        if options.revision is not None:
            raise UsageError("--revision", f"{options.revision!r} of {path}, which is not a Hub repository")
        return _tensorflow(path, options)
    if not path.exists() and path.parent != Path() and path.parent.is_dir():  # nobody means a Hub id then
        raise MissingInput(path, "no such file or directory, and no checkpoint of that prefix")
    for flag, value in of_tensorflow.items():
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


def _tensorflow(path: Path, options: ConversionOptions) -> ConversionSource:
    read = read_tensorflow_checkpoint(
        path,
        config_file=options.config_file,
        overrides=options.overrides,
        one_output=options.one_output,
        dtype=options.dtype,
    )
    said, _ = read_albert_config(read.files.config, path)
    notes = [f"keys that the reference's code ignores too: {', '.join(read.ignored_keys)}"] if read.ignored_keys else []
    if said.get("hidden_act") == "gelu" and "hidden_act" not in options.overrides:
        notes.append('"gelu" is the tanh form in the reference: gelu_new here and in transformers')
    if not read.config.projects_embeddings:
        notes.append("transformers maps E to H even where they are equal: the identity is written")
    notes += checkpoint_warnings(read.config, dict.fromkeys(read.ignored_keys))
    return ConversionSource(
        kind="TensorFlow checkpoint",
        place=read.source,
        size=read.size,
        config=read.config,
        config_place=read.files.config,
        extra=read.extra,
        architecture=read.architecture,
        tensors=from_transformers(read.tensors, read.config, read.source).tensors,
        dropped=read.dropped,
        unexpected=read.unexpected,
        notes=tuple(notes),
        tokenizer=read.files.tokenizer,
        steps=read.files.steps,
    )


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
        config_place=directory / CONFIG_NAME,
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


_PARTS = {"embedding_hidden_mapping_in": "projection", "albert_layer_groups": "layers"}


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """Which tokenizer goes beside the model.

    Args:
        lower_case, keep_accents: what a vocabulary alone does not say; a `tokenizer_config.json` beside it does.
    """

    place: Path | None = None
    without: bool = False
    lower_case: bool = True
    keep_accents: bool = False


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What was made of what."""

    source: ConversionSource
    names: tuple[str, ...]
    parameters: dict[str, int]
    tokenizer: Tokenizer | None
    tokenizer_place: Path | None
    written: int
    opened: LoadingReport

    def as_if_in(self, archive: Path, directory: Path) -> "Conversion":
        """With the archive in place of the directory that it was unpacked into."""

        def moved(path: Path | None) -> Path | None:
            return archive / path.relative_to(directory) if path and path.is_relative_to(directory) else path

        source = replace(
            self.source, place=str(moved(Path(self.source.place))), config_place=moved(self.source.config_place)
        )
        return replace(self, source=source, tokenizer_place=moved(self.tokenizer_place))


def convert(
    source: str,
    output: Path,
    options: ConversionOptions,
    tokenizer: TokenizerOptions,
    labels: Sequence[str] = (),
    replace_output: bool = False,
) -> Conversion:
    """Write a model directory from a TensorFlow checkpoint, a Hugging Face directory, or an archive of one.

    Raises:
        CannotCreate: `output` exists and must not give way.
        AlbertError: whatever is wrong with the source, see `read_source`.
    """
    if output.exists() and not replace_output:
        raise CannotCreate(output, "exists already", "choose another name, or add --replace")
    archive = Path(source)
    if not is_archive(archive):
        return _convert(source, output, options, tokenizer, labels, replace_output)
    with unpacked(archive) as directory:
        made = _convert(str(directory), output, options, tokenizer, labels, replace_output)
        return made.as_if_in(archive, directory)


def _convert(
    place: str,
    output: Path,
    options: ConversionOptions,
    tokenizer: TokenizerOptions,
    labels: Sequence[str],
    replace_output: bool,
) -> Conversion:
    source = read_source(place, options)
    pieces, pieces_place = _tokenizer(source, tokenizer)
    extra = _extra(source, pieces, labels)
    tensors = _under_their_names(source)
    names, parameters = tuple(tensors), _parameters(tensors)
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors.values()))
    outputs = None  # as many as transformers is to take from the labels, see `labels_written`
    if source.architecture in LABELLED:
        outputs = tensors["classifier.bias"].numel()
    elif source.architecture in ("AlbertForPreTraining", "AlbertForQuestionAnswering"):
        outputs = 2
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
        tokenizer_place=pieces_place,
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


def _extra(source: ConversionSource, tokenizer: Tokenizer | None, labels: Sequence[str]) -> dict[str, Any]:
    extra = {key: value for key, value in source.extra.items() if key != FINGERPRINT_KEY}
    extra |= {} if tokenizer is None else tokenizer_keys(tokenizer)
    if labels:
        if source.architecture not in LABELLED:
            raise UsageError("--labels", f"{source.place} holds {source.architecture}, which has no classes to name")
        extra["id2label"] = dict(enumerate(labels))
    return extra


def _tokenizer(source: ConversionSource, options: TokenizerOptions) -> tuple[Tokenizer | None, Path | None]:
    if options.without:
        if options.place is not None:
            raise UsageError("--without-tokenizer", "contradicts --tokenizer")
        return None, None
    place = options.place or source.tokenizer
    if place is None:
        remedy = "name one with --tokenizer, or say --without-tokenizer"
        raise MissingInput(source.place, "there is no vocabulary beside it (*.model, vocab*.txt)", remedy)
    tokenizer = _open_vocabulary(place, options)
    refuse_foreign_tokenizer(tokenizer, place, source.config, source.extra)
    return tokenizer, place


def _open_vocabulary(place: Path, options: TokenizerOptions) -> Tokenizer:
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


def _parameters(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    count: Counter[str] = Counter()
    for name, tensor in tensors.items():
        if name == DECODER_BIAS:  # a copy
            continue
        parts = name.removeprefix(BACKBONE_PREFIX).split(".")
        count[_PARTS.get(parts[1], parts[0]) if parts[0] == "encoder" else parts[0]] += tensor.numel()
    return dict(count)
