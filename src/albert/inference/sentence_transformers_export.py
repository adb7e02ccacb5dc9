"""Export to sentence-transformers: a directory that `SentenceTransformer` opens, as do transformers and albert.

`modules.json` lists the modules, each with a folder of settings, as in its documentation of saved models. The vectors
are those of `Predictor.embed`."""

import shutil
from dataclasses import replace as replaced
from pathlib import Path
from typing import get_args

import torch

from albert.checkpoints import config_json, model_directory
from albert.checkpoints.card import CARD_NAME, Card, base_of, model_card
from albert.checkpoints.config_json import CONFIG_NAME
from albert.checkpoints.hub import (
    EXAMPLES_NAME,
    HUB_FILES,
    INDEX_NAME,
    MODULES_NAME,
    PROMPTS_NAME,
    WEIGHTS_NAME,
    find_model,
    first_example,
    name_of,
)
from albert.checkpoints.huggingface import kind_of
from albert.checkpoints.loading import QUANTIZATION_KEY, stored_tensors, write_tensors
from albert.checkpoints.sentence_transformers import (
    SENTENCE_KEY,
    SentencePooling,
    SentenceVectors,
    sentence_vectors_of,
    write_sentence_vectors,
)
from albert.inference.abilities import lengths_of
from albert.model.families import family_of
from albert.runtime.errors import InvalidConfiguration, UsageError
from albert.runtime.files import new_directory, write_text
from albert.runtime.json_files import read_json_object, save_json, to_json
from albert.runtime.manifest import MANIFEST_NAME

_OF_A_HEAD = ("id2label", "label2id", "num_labels", "problem_type")
"""Keys of `config.json` that say what a head predicts."""


def save_for_sentence_transformers(
    model: str | Path,
    output: Path,
    pooling: SentencePooling | None = None,
    normalize: bool | None = None,
    *,
    replace: bool = False,
) -> tuple[int, int]:
    """Copy a model to a directory that `SentenceTransformer(output)` opens, as do transformers and albert.

    Weights are written in float32, because sentence-transformers computes in the type of the file, and without a head,
    which has no part in vectors. Pooling and normalisation are the model's own unless they are given; without its own
    the mean over all tokens.

    Returns:
        The dimension of a vector, and the maximum length of a text in tokens.
    """
    known = get_args(SentencePooling)
    if pooling is not None and pooling not in known:
        raise UsageError(f"pooling {pooling!r}", "unknown to sentence-transformers", f"use {', '.join(known)}")
    directory = find_model(model)
    config, extra = config_json.read_config(directory)
    if QUANTIZATION_KEY in extra:
        why = "its matrices are integers, which sentence-transformers does not read"
        raise InvalidConfiguration(directory, why, "export the model that it was quantised from")
    if config.match_embedding:
        why = "its match embedding is not supported by sentence-transformers"
        raise InvalidConfiguration(model, why, "export the model that was fine-tuned")
    model_kind = kind_of(extra)
    opened = model_directory.open_model(directory, model_kind)  # checks the files before they are copied
    tokenizer = model_directory.tokenizer_of(opened)
    with new_directory(output, replace=replace) as copy:
        written_anew = (MANIFEST_NAME, MODULES_NAME, PROMPTS_NAME, INDEX_NAME, CONFIG_NAME, CARD_NAME, EXAMPLES_NAME)
        for file in {file for pattern in HUB_FILES for file in directory.glob(pattern)}:
            is_copied = file.name not in written_anew and file.suffix != ".safetensors"
            if file.parent == directory and is_copied:
                shutil.copyfile(file, copy / file.name)
        stored = stored_tensors(directory)
        heads = family_of(config).head_prefixes()
        encoder = [name for name in stored.by_name if name.split(".", 1)[0] not in heads]
        write_tensors(copy / WEIGHTS_NAME, stored.read(encoder, torch.float32))
        content = read_json_object(directory / CONFIG_NAME)
        for name in (*_OF_A_HEAD, "torch_dtype"):
            content.pop(name, None)
        encoder_class = config_json.written_class("AlbertModel", config)
        save_json(copy / CONFIG_NAME, content | {"architectures": [encoder_class], "dtype": "float32"})
        own = sentence_vectors_of(extra) or SentenceVectors()
        max_length = own.max_length or lengths_of(model_kind, opened).max_length
        vectors = replaced(
            own,
            pooling=pooling or own.pooling,
            normalize=own.normalize if normalize is None else normalize,
            max_length=max_length,
        )
        write_sentence_vectors(copy, vectors, config.hidden_size)
        card = Card(
            name=output.name,
            description=f"{name_of(directory)} for sentence-transformers. {vectors.description}",
            example=first_example(directory),
            base=base_of(directory),
            library="sentence-transformers",
        )
        keys = extra | {SENTENCE_KEY: to_json(vectors)}
        facts = model_directory.written_model("AlbertModel", config, None, tokenizer, keys)
        write_text(copy / CARD_NAME, model_card(card, facts))
    return vectors.kept_width(config.hidden_size), max_length
