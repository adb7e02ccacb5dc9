"""A model of another layout becomes a whole model directory of ours, which transformers opens too."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from albert.checkpoints.architectures import LABELLED
from albert.checkpoints.archives import is_archive, unpacked
from albert.checkpoints.card import ModelCard
from albert.checkpoints.config_file import CONFIG_NAME, config_to_json
from albert.checkpoints.conversion_source import ConversionOptions, ConversionSource, read_source
from albert.checkpoints.file_relics import DECODER_BIAS
from albert.checkpoints.huggingface import BACKBONE_PREFIX, to_transformers, with_sentence_objective
from albert.checkpoints.kinds import OBJECTIVE_KEY, kind_of
from albert.checkpoints.loading import LoadingReport
from albert.checkpoints.model_directory import CARD_NAME, FINGERPRINT_KEY, open_model
from albert.checkpoints.tensor_files import WEIGHTS_NAME, write_tensors
from albert.runtime.durable_files import new_directory, write_text
from albert.runtime.errors import CannotCreate, DamagedData, MissingInput, UsageError
from albert.runtime.strict_json import save_json
from albert.text.tokenizer import CONFIG_NAME as TOKENIZER_CONFIG_NAME
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_directory import load_tokenizer, vocabulary_file

_PARTS = {"embedding_hidden_mapping_in": "projection", "albert_layer_groups": "layers"}


@dataclass(frozen=True, kw_only=True)
class TokenizerOptions:
    """Which tokenizer goes beside the model.

    Args:
        place: a vocabulary, or a directory that holds one; None takes what lies beside the source.
        without: write the model without one.
        lower_case, keep_accents: what a vocabulary alone does not say; a `tokenizer_config.json` beside it does.
    """

    place: Path | None = None
    without: bool = False
    lower_case: bool = True
    keep_accents: bool = False


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What was made of what.

    Args:
        source: what was read; its tensors are gone.
        names: of the tensors that were written.
        parameters: numbers by part of the model.
        tokenizer: what was written beside the weights.
        tokenizer_place: where it was.
        written: bytes of the new weights.
        opened: what became of every tensor when the result was opened.
    """

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

    Args:
        source: a directory, a file, a prefix, an archive, or a Hub id.
        output: the new directory; it is whole or absent.
        options: what the source does not say.
        tokenizer: what goes beside it.
        labels: the names of a classifier's outputs, in order; none leaves what the source says.
        replace_output: whether an existing directory may give way.

    Raises:
        CannotCreate: `output` exists and must not give way.
        AlbertError: whatever is wrong with the source, see `read_source`.
    """
    if output.exists() and not replace_output:
        raise CannotCreate(output, "exists already", "choose another name, or say --replace")
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
    content = config_to_json(source.config, source.architecture, dtype, _outputs(source.architecture, tensors), extra)
    with new_directory(output, replace=replace_output) as directory:
        if pieces is not None:
            pieces.save(directory)
        save_json(directory / CONFIG_NAME, content)
        write_tensors(directory / WEIGHTS_NAME, tensors)
        write_text(directory / CARD_NAME, source.card or _card(output.name, source, parameters))
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


def _outputs(architecture: str, tensors: Mapping[str, Tensor]) -> int | None:
    """As many as transformers is to take from the labels (see `kinds.labels_written`)."""
    if architecture in LABELLED:
        return tensors["classifier.bias"].numel()
    return 2 if architecture in ("AlbertForPreTraining", "AlbertForQuestionAnswering") else None


def _extra(source: ConversionSource, tokenizer: Tokenizer | None, labels: Sequence[str]) -> dict[str, Any]:
    extra = {key: value for key, value in source.extra.items() if key != FINGERPRINT_KEY}
    if tokenizer is not None:
        extra[FINGERPRINT_KEY] = tokenizer.fingerprint
        extra["pad_token_id"] = tokenizer.pad_id
        extra["bos_token_id"], extra["eos_token_id"] = tokenizer.cls_id, tokenizer.sep_id
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
    trained_with = source.extra.get(FINGERPRINT_KEY)
    if trained_with is not None and not tokenizer.answers_to(str(trained_with)):
        found, wanted = tokenizer.fingerprint[:12], str(trained_with)[:12]
        why = f"has fingerprint {found}, the model was trained with {wanted}"
        raise DamagedData(place, why, "take the tokenizer of the training run")
    if tokenizer.vocab_size > source.config.vocab_size:
        why = f"has {tokenizer.vocab_size} pieces, the model has {source.config.vocab_size} embeddings"
        raise DamagedData(place, why, "use the tokenizer that the model was trained with")
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


def _card(name: str, source: ConversionSource, parameters: Mapping[str, int]) -> str:
    return ModelCard(
        name=name,
        location="path/to/this/directory",
        architecture=source.architecture,
        attention_window=source.config.effective_window,
        description=f"Converted from a {source.kind} by `albert convert`.",
        parameters={**parameters, "all": sum(parameters.values())},
    ).render()
