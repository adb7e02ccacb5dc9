"""The kinds of directories that are kept and read again, and everything that reading one gives, as one hash."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from albert.checkpoints.huggingface import Kind
from albert.checkpoints.model_directory import open_model, tokenizer_of
from albert.model.albert import AlbertForPreTraining
from albert.optim.optimizer import build_optimizer
from albert.pretraining.recipe import PretrainingRecipe
from albert.runtime.json_files import load_json, to_json
from albert.text.shards import TokenCorpus
from albert.text.tokenizer_loading import load_tokenizer
from albert.training.run_folder import RunFolder
from albert.training.state import STATE_NAME, TrainingState, read_training_state
from reliability.scene import Scene

PROBE = "It was a DAY, in 1,234 Zürichs: ﬁne “quotes” — …"
"""Text whose pieces tell tokenizers apart."""


@dataclass(frozen=True)
class KeptKind:
    """One kind.

    Args:
        name: what it is called in reports.
        original: where there is one.
        others: others of the same shapes, which must not be taken for it.
        reader: gives the function that reads a directory as `albert` does and hashes all that came of it.
        bound: whether something outside says which one is wanted, so that another whole one is a wrong load.
    """

    name: str
    original: Callable[[Scene], Path]
    others: Callable[[Scene], tuple[Path, ...]]
    reader: Callable[[Scene], Callable[[Path], str]]
    bound: bool = False


def digest(*values: Any) -> str:
    """SHA-256 of arrays, tensors and plain values."""
    whole = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            value = value.detach().contiguous().view(-1).view(torch.uint8).numpy()
        data = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode("utf-8", "surrogatepass")
        whole.update(len(data).to_bytes(8, "little") + data)
    return whole.hexdigest()


def _items(tensors: Iterable[tuple[str, torch.Tensor]]) -> list[Any]:
    return [part for name, tensor in sorted(tensors, key=lambda item: item[0]) for part in (name, tensor)]


def _read_tokenizer(path: Path) -> str:
    tokenizer = load_tokenizer(path)
    return digest(tokenizer.fingerprint, tokenizer.encode_with_offsets(PROBE))


def _read_corpus(path: Path) -> str:
    parts: list[Any] = []
    for split in ("train", "held_out"):
        corpus = TokenCorpus.open(path, split)
        parts += [corpus.read(0, corpus.n_tokens), corpus.sentence_starts, corpus.document_starts]
        parts += [corpus.tokenizer_fingerprint, to_json(corpus.description)]
    return digest(*parts)


def _model_reader(kind: Kind) -> Callable[[Path], str]:
    def read(path: Path) -> str:
        torch.manual_seed(0)  # a head that another model lacks is drawn
        opened = open_model(path, kind)
        tokenizer = tokenizer_of(opened)
        plain = to_json(opened.config), sorted(opened.extra.items(), key=str), tokenizer.encode(PROBE)
        return digest(*_items(opened.model.state_dict().items()), *plain)

    return read


def _checkpoint_reader(scene: Scene) -> Callable[[Path], str]:
    """As a run that goes on reads its newest checkpoint: whole, and its own."""
    run = scene.pretraining_run
    recipe = load_json(PretrainingRecipe, run / "recipe.json")
    identity = load_json(TrainingState, run / "checkpoints" / "step-00000004" / STATE_NAME).identity

    def read(path: Path) -> str:
        torch.manual_seed(0)
        model = AlbertForPreTraining(recipe.model)
        optimizer = build_optimizer(recipe.optimizer, model)
        newest = RunFolder(path.parent.parent).newest_checkpoint()
        assert newest is not None, "it is there"
        step, directory = newest
        state = read_training_state(directory, model, optimizer, identity, step)
        moments = [
            part
            for name, parameter in sorted(model.named_parameters(), key=lambda item: item[0])
            for key, value in sorted(optimizer.state[parameter].items())
            for part in (name, key, value)
        ]
        return digest(step, to_json(state), *_items(model.named_parameters()), *moments)

    return read


KINDS = (
    KeptKind("tokenizer", lambda s: s.tokenizer, lambda s: (s.other_tokenizer,), lambda s: _read_tokenizer),
    KeptKind("corpus", lambda s: s.corpus, lambda s: (s.other_corpus,), lambda s: _read_corpus),
    KeptKind(
        "model",
        lambda s: s.pretrained,
        lambda s: (s.other_pretrained, s.pretraining_run / "model"),
        lambda s: _model_reader("pretraining"),
    ),
    KeptKind(
        "classifier", lambda s: s.classifier, lambda s: (s.pretrained,), lambda s: _model_reader("classification")
    ),
    KeptKind("int8 model", lambda s: s.quantized, lambda s: (s.pretrained,), lambda s: _model_reader("pretraining")),
    KeptKind(
        "checkpoint",
        lambda s: s.pretraining_run / "checkpoints" / "step-00000004",
        lambda s: (s.other_run / "checkpoints" / "step-00000004", s.pretraining_run / "checkpoints" / "step-00000002"),
        _checkpoint_reader,
        bound=True,
    ),
)
