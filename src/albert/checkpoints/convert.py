"""Conversion of TensorFlow checkpoints and Hugging Face models to model directories."""

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from albert.checkpoints.card import CARD_NAME, BaseModel, base_of
from albert.checkpoints.config_json import CONFIG_NAME, read_config, written_class
from albert.checkpoints.hub import copy_examples, copy_task, refuse_archive
from albert.checkpoints.huggingface import (
    BACKBONE_PREFIX,
    CLASSIFIERS,
    OBJECTIVE_KEY,
    PREDICTIONS_BIAS,
    architecture_of,
    belongs_to,
    from_transformers,
    kind_of,
    n_outputs,
    to_transformers,
    with_sentence_objective,
    written_num_labels,
)
from albert.checkpoints.loading import (
    INDEX_NAME,
    INT8_WEIGHTS_NAME,
    QUANTIZATION_KEY,
    WEIGHTS_NAME,
    LoadingReport,
    checkpoint_warnings,
    require_complete,
    require_finite,
)
from albert.checkpoints.model_directory import (
    FINGERPRINT_KEY,
    describe_model,
    open_model,
    parameters_by_part,
    require_matching_tokenizer,
    short_card,
    write_files,
)
from albert.checkpoints.sentence_transformers import stated_length
from albert.checkpoints.tensor_bundle import TensorBundle
from albert.checkpoints.tensorflow import (
    Shapes,
    Target,
    config_of,
    find_checkpoint,
    holds_tensorflow,
    map_variables,
    read_albert_config,
)
from albert.model.families import family_of
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import CannotCreate, DamagedData, InvalidConfiguration, MissingInput, UsageError
from albert.runtime.files import new_directory
from albert.runtime.json_files import save_json
from albert.runtime.manifest import read_input
from albert.runtime.progress import progress
from albert.text.tokenizer import CONFIG_NAME as TOKENIZER_CONFIG_NAME
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# Reading a source: a TensorFlow checkpoint or a Hugging Face directory.

_LARGE = 2**28


@dataclass(frozen=True, kw_only=True)
class ConversionOptions:
    """Settings of a conversion."""

    config_file: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    one_output: Literal["regression", "multiple_choice"] | None = None
    """The task of a TensorFlow classifier with one output: STS-B's or RACE's, whose checkpoints have equal shapes."""
    dtype: torch.dtype | None = None
    labels: Sequence[str] = ()
    tokenizer: Path | None = None
    without_tokenizer: bool = False
    lower_case: bool = True
    keep_accents: bool = False
    """`lower_case` and `keep_accents` are for a vocabulary without a `tokenizer_config.json`."""


@dataclass(frozen=True, kw_only=True)
class ConversionSource:
    """A model in memory, with the paths that it was read from.

    `tensors` are under our names, `dropped` those that are not part of the model (of the optimizer, equal copies, saved
    buffers); `unexpected` has those that cannot be converted, with the reasons.
    """

    kind: str
    path: str
    size: int
    config: EncoderConfig
    config_path: str | None
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

    @property
    def class_name(self) -> str:
        """The architecture as `config.json` names it."""
        return written_class(self.architecture, self.config)


def read_source(source: str, options: ConversionOptions) -> ConversionSource:
    """Read a directory, a file or prefix of a TensorFlow checkpoint, or a model of the Hub."""
    refuse_archive(Path(source))
    path = Path(source)
    if path.is_dir() and not _is_hugging_face(path):
        # The model may be the only entry, as where an archive was unpacked.
        entries = [entry for entry in path.iterdir() if not entry.name.startswith(".")]
        if len(entries) == 1 and _is_hugging_face(entries[0]):
            path = entries[0]
    if not _is_hugging_face(path) and holds_tensorflow(path):
        return read_tensorflow(path, options)
    if not path.exists() and path.parent != Path() and path.parent.is_dir():  # not a Hub id
        raise MissingInput(path, "no such file or directory, and no checkpoint of that prefix")
    for flag, value in {"--config": options.config_file, "--one-output": options.one_output}.items():
        if value is not None:
            raise UsageError(flag, f"goes with a TensorFlow checkpoint, which {source} is not")
    return _hugging_face(source if not path.exists() else path, options)


def _is_hugging_face(path: Path) -> bool:
    names = (WEIGHTS_NAME, INDEX_NAME, INT8_WEIGHTS_NAME)
    return (path / CONFIG_NAME).is_file() and any((path / name).is_file() for name in names)


def read_tensorflow(path: Path, options: ConversionOptions) -> ConversionSource:
    """Read a checkpoint of google-research/albert; everything else is checked before tensors are read."""
    files = find_checkpoint(path, options.config_file)
    tokenizer = None if options.tokenizer or options.without_tokenizer else files.tokenizer()
    bundle = TensorBundle(files.prefix)
    where = str(bundle.index)
    variables = map_variables(bundle.entries, where)
    in_file = ((target, bundle.entries[variable].shape) for variable, target in variables.mapped.items())
    shapes = {target.name: shape[::-1] if target.transposed else shape for target, shape in in_file}
    settings, ignored = read_albert_config(files.config)
    config = config_of(settings, shapes, options.overrides, files.config, where)
    all_on_meta = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    renamed = from_transformers(all_on_meta, config, where)
    head_names = renamed.head_names()
    architecture, extra = _architecture(head_names.values(), shapes, options.one_output, where)
    ours = {theirs: head_names[name] for name, theirs in renamed.in_file.items()}
    targets = {
        variable: target
        for variable, target in variables.mapped.items()
        if belongs_to(ours.get(target.name, target.name), architecture)
    }
    unused = {variable: f"is not part of {architecture}" for variable in variables.mapped if variable not in targets}
    bundle.require(targets)
    on_meta = {target.name: torch.empty(shapes[target.name], device="meta") for target in targets.values()}
    require_complete(from_transformers(on_meta, config, where), architecture, config, where)
    notes = [f"keys that the reference's code ignores too: {', '.join(ignored)}"] if ignored else []
    if config.family == "bert" and config.hidden_act == "gelu":
        notes.append(
            '"gelu" is the exact form here, as in transformers and in the first code of BERT; later it was tanh'
        )
    elif settings.get("hidden_act") == "gelu" and "hidden_act" not in options.overrides:
        notes.append('"gelu" is the tanh form in the reference: gelu_new here and in transformers')
    if config.family == "albert" and not config.projects_embeddings:
        notes.append("transformers maps E to H even if they are equal: the identity is written")
    return ConversionSource(
        kind="TensorFlow checkpoint",
        path=where,
        size=sum(bundle.entries[variable].size for variable in targets),
        config=config,
        config_path=files.config and str(files.config),
        extra=extra,
        architecture=architecture,
        tensors=from_transformers(_read(bundle, targets, options.dtype), config, where).tensors,
        dropped=variables.dropped,
        unexpected=variables.unexpected | unused,
        notes=(*notes, *checkpoint_warnings(config, dict.fromkeys(ignored))),
        tokenizer=tokenizer,
        steps=files.steps,
    )


def _architecture(
    names: Iterable[str], shapes: Shapes, one_output: str | None, where: str
) -> tuple[str, dict[str, Any]]:
    """The class of transformers, and the keys of `config.json` for the task."""
    architecture = architecture_of(names)
    if architecture not in CLASSIFIERS:
        return architecture, {}
    if shapes.get("classifier.bias", (2,))[0] > 1:
        return architecture, {"problem_type": "single_label_classification"}
    if one_output is None:
        why = "its classifier has one output: a score of a text, as for STS-B, or of an option, as for RACE"
        raise InvalidConfiguration(where, why, "add --one-output regression or --one-output multiple_choice")
    return (
        ("AlbertForMultipleChoice", {}) if one_output != "regression" else (architecture, {"problem_type": one_output})
    )


def _read(bundle: TensorBundle, targets: Mapping[str, Target], dtype: torch.dtype | None) -> dict[str, Tensor]:
    """The tensors, read from the largest to the smallest: one is in memory twice while it is transposed."""
    order = sorted(targets, key=lambda variable: -bundle.entries[variable].size)
    size = sum(bundle.entries[variable].size for variable in targets)
    tensors = {}
    with progress("Reading TensorFlow's tensors", total=size / 1e6, unit="MB", quiet=size < _LARGE) as bar:
        for variable in order:
            tensor = bundle.read(variable)
            file = bundle.data_file(bundle.entries[variable].shard)
            if not tensor.is_floating_point():
                raise DamagedData(file, f"{variable} holds {tensor.dtype}, numbers with a fraction are expected")
            target = targets[variable]
            tensor = require_finite(tensor, variable, file).to(dtype or tensor.dtype)
            tensors[target.name] = tensor.t().contiguous() if target.transposed else tensor
            bar.advance(bundle.entries[variable].size / 1e6)
    return tensors


def _hugging_face(source: str | Path, options: ConversionOptions) -> ConversionSource:
    model = describe_model(source, options.overrides)
    config = model.config
    extra = model.extra
    stored = model.stored
    in_file = model.renamed.in_file
    names = model.renamed.head_names()
    architecture = architecture_of(names.values(), next(iter(extra.get("architectures") or []), None))
    require_complete(model.renamed, architecture, config, stored.source)
    unused = {in_file[ours] for ours, name in names.items() if not belongs_to(name, architecture)}
    reasons = dict.fromkeys(model.renamed.unexpected, f"is not a tensor of {model.renamed.family.title}")
    excluded = {*unused, *model.renamed.unexpected}
    renamed = model.read(excluded, options.dtype)
    directory = model.directory
    if FINGERPRINT_KEY not in extra and "max_sequence_length" not in extra:
        # Other libraries cut texts where their files say; what is written has the fingerprint of a tokenizer of ours.
        stated = stated_length(directory)
        if stated is not None and stated < config.max_position_embeddings:
            extra = {**extra, "max_sequence_length": stated}
    path = model.directory / CARD_NAME
    card = read_input(path).decode("utf-8", "replace") if path.is_file() and QUANTIZATION_KEY not in extra else None
    return ConversionSource(
        kind="Hugging Face directory",
        path=stored.source,
        size=sum(tensor.n_bytes for name, tensor in stored.by_name.items() if name not in excluded),
        config=config,
        config_path=str(directory / CONFIG_NAME),
        extra=extra,
        architecture=architecture,
        tensors=renamed.tensors,
        dropped=renamed.dropped,
        unexpected=reasons | dict.fromkeys(unused, f"is not part of {written_class(architecture, config)}"),
        notes=model.notes,
        tokenizer=directory if vocabulary_file(directory).is_file() else None,
        card=card,
        directory=directory,
    )


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """The result of a conversion: its source, and what was written."""

    source: ConversionSource
    names: tuple[str, ...]
    parameters: dict[str, int]
    tokenizer: Tokenizer | None
    tokenizer_path: str | None
    written: int
    opened: LoadingReport


def convert(path: str, output: Path, options: ConversionOptions, replace_output: bool = False) -> Conversion:
    """Write a model directory from a TensorFlow checkpoint, a Hugging Face directory, or a model of the Hub."""
    if output.exists() and not replace_output:
        raise CannotCreate(output, "exists already", "choose another name, or add --replace")
    source = read_source(path, options)
    tokenizer, tokenizer_path = _tokenizer(source, options)
    prefix = BACKBONE_PREFIX if source.architecture == "AlbertModel" else ""
    ours = {name.removeprefix(prefix): tensor for name, tensor in source.tensors.items()}
    tensors = to_transformers(ours, source.config, source.architecture)
    if PREDICTIONS_BIAS in ours:
        default = family_of(source.config).sentence_head or "none"
        tensors = with_sentence_objective(tensors, str(source.extra.get(OBJECTIVE_KEY, default)), source.config)
    names = tuple(tensors)
    parameters = parameters_by_part(source.tensors)
    extra = {key: value for key, value in source.extra.items() if key != FINGERPRINT_KEY}
    if options.labels:
        if n_outputs(source.architecture, ours) is None:
            raise UsageError("--labels", f"{source.path} holds {source.class_name}, which has no classes to name")
        extra["id2label"] = dict(enumerate(options.labels))
    outputs = written_num_labels(source.architecture, ours)
    description = f"Converted from a {source.kind} by `albert convert`."
    base = BaseModel() if source.directory is None else base_of(source.directory)
    card = source.card if tokenizer is not None else None
    with new_directory(output, replace=replace_output) as directory:
        write_files(
            directory,
            tensors,
            source.config,
            source.architecture,
            outputs,
            tokenizer,
            extra=extra,
            card=card or short_card(output.name, source.tensors, description, base),
        )
        if source.directory is not None:
            copy_examples(source.directory, directory)
            copy_task(source.directory, directory)
        # Free the tensors, so that the opened model is the only copy in memory.
        tensors.clear()
        ours.clear()
        source.tensors.clear()
        opened = open_model(directory, kind_of(read_config(directory)[1]), dtype=None)
        written = (directory / WEIGHTS_NAME).stat().st_size
    return Conversion(
        source=source,
        names=names,
        parameters=parameters,
        tokenizer=tokenizer,
        tokenizer_path=tokenizer_path and str(tokenizer_path),
        written=written,
        opened=opened.loading_report,
    )


def _tokenizer(source: ConversionSource, options: ConversionOptions) -> tuple[Tokenizer | None, Path | None]:
    if options.without_tokenizer:
        of_tokenizer = {
            "--tokenizer": options.tokenizer is not None,
            "--keep-case": not options.lower_case,
            "--keep-accents": options.keep_accents,
        }
        for option, is_given in of_tokenizer.items():
            if is_given:
                raise UsageError("--without-tokenizer", f"contradicts {option}", "leave one of them out")
        return None, None
    path = options.tokenizer or source.tokenizer
    if path is None:
        remedy = "name one with --tokenizer, or add --without-tokenizer"
        raise MissingInput(source.path, "there is no vocabulary beside it (*.model, vocab*.txt)", remedy)
    tokenizer = _open_vocabulary(path, options)
    require_matching_tokenizer(tokenizer, path, source.config, source.extra)
    return tokenizer, path


def _open_vocabulary(path: Path, options: ConversionOptions) -> Tokenizer:
    tokenizer = load_tokenizer(path)
    if options.lower_case and not options.keep_accents:
        return tokenizer
    file = vocabulary_file(path)
    config = file.with_name(TOKENIZER_CONFIG_NAME)
    if config.is_file() or file.suffix == ".json":
        flag = "--keep-accents" if options.keep_accents else "--keep-case"
        config = config if config.is_file() else file
        raise UsageError(flag, f"{config} has its own setting of case and accents", f"change it in {config}")
    with tempfile.TemporaryDirectory(prefix="albert-") as directory:
        copy = Path(directory, file.name)
        shutil.copyfile(file, copy)
        settings = {"do_lower_case": options.lower_case, "keep_accents": options.keep_accents}
        if options.keep_accents:
            settings["strip_accents"] = False  # the key of WordPiece
        save_json(copy.with_name(TOKENIZER_CONFIG_NAME), settings)
        return load_tokenizer(copy)
