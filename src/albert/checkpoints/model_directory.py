"""Hugging Face model directories: writing, opening and checking them, with their configuration and tokenizer.

They hold `config.json`, `model.safetensors`, the tokenizer's files and `README.md`; `save_model_directory` adds
`MANIFEST.json`, against which `open_model` checks every file, and `examples.json` if there are examples."""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from albert.checkpoints.card import CARD_NAME, BaseModel, Card, WrittenModel, model_card
from albert.checkpoints.config_json import CONFIG_NAME, config_to_json, read_config, with_overrides
from albert.checkpoints.cross_encoders import (
    score_note,
)
from albert.checkpoints.hub import EXAMPLES_NAME, find_model
from albert.checkpoints.huggingface import (
    ARCHITECTURES,
    BACKBONE_PREFIX,
    CLASSIFIERS,
    MODELS,
    OBJECTIVE_KEY,
    Kind,
    RenamedTensors,
    build_model,
    from_transformers,
    kind_of,
    n_outputs,
    resolve_num_labels,
    sentence_objective,
    to_transformers,
    with_sentence_objective,
    written_num_labels,
)
from albert.checkpoints.loading import (
    WEIGHTS_NAME,
    LoadingReport,
    StoredTensors,
    checkpoint_warnings,
    fill_model,
    fit_tensors,
    quantization_notes,
    stored_input_scales,
    stored_tensors,
    write_tensors,
)
from albert.checkpoints.sentence_transformers import (
    sentence_vectors_of,
    write_sentence_vectors,
)
from albert.model.albert import AlbertForPreTraining
from albert.model.encoder import on_meta_device
from albert.model.families import family_of
from albert.recipes.architecture import EncoderConfig
from albert.runtime.errors import DamagedData
from albert.runtime.files import final_path, new_directory, write_text
from albert.runtime.json_files import save_json
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# Model directories.

FINGERPRINT_KEY = "tokenizer_fingerprint"


@dataclass(frozen=True, kw_only=True)
class OpenedModel:
    """A model in evaluation mode on the CPU, with its configuration and loading report."""

    model: nn.Module
    config: EncoderConfig
    extra: dict[str, Any]
    loading_report: LoadingReport
    directory: Path


def write_model(
    directory: Path,
    model: nn.Module,
    tokenizer_directory: str | Path | None,
    *,
    extra: Mapping[str, Any] | None = None,
    card: Card | None = None,
) -> None:
    """Write a model into an existing directory, with `extra` keys in `config.json`.

    With `sentence_objective` "nsp" or "none" in `extra` a pre-training model is written as a masked language model,
    which transformers can represent exactly.
    """
    config = getattr(model, "config", None)
    if not isinstance(config, EncoderConfig) or type(model) not in ARCHITECTURES:
        raise TypeError(f"{type(model).__name__} is not one of the model classes")
    keys = dict(extra or {})
    architecture = ARCHITECTURES[type(model)]
    family = family_of(config)
    written_as = architecture
    if isinstance(model, AlbertForPreTraining):
        # The pre-training class of transformers has one sentence head: ALBERT's of order, BERT's of the next sentence.
        objective = sentence_objective(keys)
        written_as = architecture if objective == family.sentence_head else "AlbertForMaskedLM"
        if written_as != architecture:
            keys[OBJECTIVE_KEY] = objective
    tokenizer = None
    if tokenizer_directory is not None:
        tokenizer = load_tokenizer(Path(tokenizer_directory))
        require_matching_tokenizer(tokenizer, Path(tokenizer_directory), config, {})
    tensors = to_transformers(model.state_dict(), config, written_as)
    if isinstance(model, AlbertForPreTraining):
        tensors = with_sentence_objective(tensors, sentence_objective(keys), config)
    outputs = written_num_labels(architecture, model.state_dict())
    card = card or short_card(final_path(directory).name, model.state_dict())
    write_files(directory, tensors, config, written_as, outputs, tokenizer, extra=keys, card=card)


def write_files(
    directory: Path,
    tensors: Mapping[str, Tensor],
    config: EncoderConfig,
    architecture: str,
    num_labels: int | None,
    tokenizer: Tokenizer | None,
    *,
    extra: Mapping[str, Any],
    card: Card | str,
) -> dict[str, Any]:
    """Write tensors under transformers' names with all other files; returns the content of `config.json`.

    Args:
        card: what is known of the model, or the text of a card that it has already.
    """
    # The widest one, so that opening it in this type is lossless.
    dtype = reduce(torch.promote_types, (tensor.dtype for tensor in tensors.values()))
    keys = dict(extra)
    if tokenizer is not None:
        ids = {"pad_token_id": tokenizer.pad_id, "bos_token_id": tokenizer.cls_id, "eos_token_id": tokenizer.sep_id}
        keys |= {FINGERPRINT_KEY: tokenizer.fingerprint, **ids}
    content = config_to_json(config, architecture, dtype, num_labels, keys)
    if tokenizer is not None:
        tokenizer.save(directory)
    save_json(directory / CONFIG_NAME, content)
    vectors = sentence_vectors_of(extra)
    if vectors is not None:
        write_sentence_vectors(directory, vectors, config.hidden_size)
    write_tensors(directory / WEIGHTS_NAME, tensors)
    if isinstance(card, Card):
        card = model_card(card, written_model(architecture, config, num_labels, tokenizer, keys))
    write_text(directory / CARD_NAME, card)
    return content


def written_model(
    architecture: str,
    config: EncoderConfig,
    num_labels: int | None,
    tokenizer: Tokenizer | None,
    extra: Mapping[str, Any],
) -> WrittenModel:
    """What a card needs to know of a model and its tokenizer."""
    return WrittenModel(
        architecture=architecture,
        config=config,
        extra=extra,
        num_labels=num_labels,
        mask_piece=None if tokenizer is None else tokenizer.piece(tokenizer.mask_id),
        separator="[SEP]" if tokenizer is None else tokenizer.piece(tokenizer.sep_id),
    )


def save_model_directory(
    path: str | Path,
    model: nn.Module,
    tokenizer_directory: str | Path | None,
    *,
    extra: Mapping[str, Any] | None = None,
    card: Card | None = None,
    examples: Sequence[Mapping[str, str]] = (),
    replace: bool = False,
) -> None:
    """`write_model` into a new directory, atomically, with a manifest of every file.

    Raises:
        CannotCreate: `path` exists and `replace` is false.
        WriteFailed: the disk is full or failed; nothing is left behind.
    """
    with new_directory(Path(path), replace=replace) as directory:
        write_model(directory, model, tokenizer_directory, extra=extra, card=card)
        if examples:
            save_json(directory / EXAMPLES_NAME, {"examples": examples})


def open_model(
    path_or_id: str | Path,
    kind: Kind,
    num_labels: int | None = None,
    *,
    new_head: bool = False,
    overrides: Mapping[str, Any] | None = None,
    dtype: torch.dtype | None = torch.float32,
    verify: bool = True,
) -> OpenedModel:
    """Open a model directory, or download one from the Hugging Face Hub.

    Args:
        path_or_id: a directory, or a Hub id such as `albert/albert-base-v2`.
        kind: the head; if the file lacks it, it is newly initialised and reported.
        num_labels: outputs of a (token) classification head; None: as in the file.
        new_head: do not load the file's head, for training another task.
        dtype: of the parameters; None: as in the file.

    Raises:
        MissingInput: no such directory, or no weights in safetensors.
        Unavailable: the Hub does not have it, or cannot be reached.
        DamagedData: a file is damaged, or the weights do not match `config.json`.
        InvalidConfiguration: a shape or a setting does not fit.
    """
    described = describe_model(path_or_id, overrides, verify)
    config = described.config
    extra = described.extra
    stored = described.stored
    renamed = described.renamed
    own_kind = kind_of(extra)  # a `classifier` of another kind has the same name but another purpose
    classes = {MODELS[kind].__name__, MODELS[own_kind].__name__}
    new_head = new_head or (kind != own_kind and classes <= set(CLASSIFIERS))
    with on_meta_device():
        model = build_model(kind, config, resolve_num_labels(kind, num_labels, renamed.tensors, extra, new_head))
    loaded, report = fit_tensors(model, renamed, config, stored.source, new_head)  # checks before allocation
    tensors = described.read(renamed.unexpected, dtype).tensors
    fill_model(model, {ours: tensors[name] for name, ours in loaded.items()}, config.initializer_range, dtype)
    backbone: Any = getattr(model, "albert", model)
    backbone.encoder.input_scales = stored_input_scales(extra, described.directory)
    dtypes = {tensor.dtype for tensor in stored.by_name.values() if tensor.dtype.is_floating_point}
    wider = sorted(str(wide) for wide in dtypes if dtype and torch.promote_types(wide, dtype) != dtype)
    narrowed = (f"{wide} in the file, {dtype} in memory: precision is lost" for wide in wider)
    return OpenedModel(
        model=model.eval(),
        config=config,
        extra=extra,
        loading_report=replace(report, verified=described.verified, notes=(*described.notes, *narrowed)),
        directory=described.directory,
    )


@dataclass(frozen=True, kw_only=True)
class DescribedModel:
    """The configuration and tensors of a model directory; `renamed` has them under our names, on the meta device."""

    directory: Path
    config: EncoderConfig
    extra: dict[str, Any]
    stored: StoredTensors
    renamed: RenamedTensors
    notes: tuple[str, ...]
    verified: bool

    def read(self, excluded: Collection[str], dtype: torch.dtype | None) -> RenamedTensors:
        """Read the tensors under our names; `excluded` are names in the file."""
        tensors = self.stored.read([name for name in self.stored.by_name if name not in excluded], dtype)
        return from_transformers(tensors, self.config, self.stored.source)


def describe_model(
    path_or_id: str | Path, overrides: Mapping[str, Any] | None = None, verify: bool = True
) -> DescribedModel:
    """Find a model and read everything except its weights; for arguments and errors see `open_model`."""
    directory = find_model(path_or_id)
    verified = verify and (directory / MANIFEST_NAME).is_file()
    if verified:
        verify_directory(directory)
    config, extra = read_config(directory)
    config = with_overrides(config, overrides or {})
    stored = stored_tensors(directory)
    notes = [*checkpoint_warnings(config, extra), *quantization_notes(extra, directory)]
    renamed = from_transformers(stored.on_meta(), config, stored.source)
    if kind_of(extra) == "classification" and n_outputs("AlbertForSequenceClassification", renamed.tensors) == 1:
        notes += filter(None, (score_note(extra),))
    return DescribedModel(
        directory=directory,
        config=config,
        extra=extra,
        stored=stored,
        renamed=renamed,
        notes=tuple(notes),
        verified=verified,
    )


def parameters_by_part(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Number of parameters by parts of the model, of tensors under our names."""
    counts: Counter[str] = Counter()
    for name, tensor in tensors.items():
        part, *inside = name.removeprefix(BACKBONE_PREFIX).split(".")
        counts[f"{part} {inside[0]}" if part == "encoder" else part] += tensor.numel()
    return dict(counts)


def short_card(name: str, tensors: Mapping[str, Tensor], description: str = "", base: BaseModel | None = None) -> Card:
    """A model card with the number of parameters by parts."""
    parameters = parameters_by_part(tensors)
    return Card(
        name=name,
        description=description,
        parameters={**parameters, "all": sum(parameters.values())},
        base=base or BaseModel(),
    )


def tokenizer_of(opened: OpenedModel) -> Tokenizer:
    """Load the tokenizer in the directory of an opened model."""
    tokenizer = load_tokenizer(opened.directory)
    require_matching_tokenizer(tokenizer, opened.directory, opened.config, opened.extra)
    return tokenizer


def require_matching_tokenizer(
    tokenizer: Tokenizer, directory: Path, config: EncoderConfig, extra: Mapping[str, Any]
) -> None:
    """Check that the model was trained with this tokenizer."""
    path = vocabulary_file(directory)
    trained_with = extra.get(FINGERPRINT_KEY)
    if trained_with is not None and tokenizer.fingerprint != trained_with:
        why = f"has fingerprint {tokenizer.fingerprint[:12]}, the model was trained with {str(trained_with)[:12]}"
        raise DamagedData(path, why, "put the tokenizer of the training run beside the model")
    if tokenizer.vocab_size > config.vocab_size:
        why = f"has {tokenizer.vocab_size} pieces, the model has {config.vocab_size} embeddings"
        raise DamagedData(path, why, "use the tokenizer that the model was trained with")


def weights_fingerprint(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the bytes of all tensors in order, in hexadecimal."""
    digest = hashlib.sha256()
    for tensor in tensors.values():
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
