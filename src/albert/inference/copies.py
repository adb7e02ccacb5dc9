"""Fingerprint, pickles and copies of an opened model."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from copy import copy, deepcopy
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from albert.runtime.errors import DamagedData

if TYPE_CHECKING:
    from albert.inference.engine import PackedModel
    from albert.recipes.architecture import EncoderConfig
    from albert.text.tokenizer import Tokenizer


class CopiedByPath(ABC):
    """A model that was opened from a directory, which a pickle names and a deep copy does without."""

    name: str
    config: "EncoderConfig"
    extra: Mapping[str, Any]
    tokenizer: "Tokenizer"
    packed_model: "PackedModel"
    """The model with its head."""
    dense: nn.Module | None
    _pooled: "dict[Any, PackedModel]"
    _opened_from: Mapping[str, Any]
    """The absolute directory and the other arguments of `open`."""

    @classmethod
    @abstractmethod
    def open(cls, *args: Any, **kwargs: Any) -> Any:
        """Open the model of a directory."""

    @classmethod
    def open_the_same(cls, fingerprint: str, **arguments: Any) -> Any:
        """`open`, for a model that had this fingerprint; DamagedData if another one is there now."""
        predictor = cls.open(**arguments)
        if predictor.fingerprint() != fingerprint:
            remedy = "put the earlier model back, or open this one with albert.load"
            raise DamagedData(predictor.name, "is another model than the one that was pickled", remedy)
        return predictor

    def fingerprint(self) -> str:
        """SHA-256 of what decides the answers: weights as they are in memory, configuration and vocabulary."""
        settings = {"config": asdict(self.config), "extra": self.extra, "tokenizer": self.tokenizer.fingerprint}
        digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
        parts = [self.packed_model.model, *([] if self.dense is None else [self.dense])]
        for part in parts:
            for name, tensor in sorted(part.state_dict().items()):
                digest.update(name.encode())
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle has the model's absolute path and fingerprint, and refuses another model in its place."""
        return partial(type(self).open_the_same, self.fingerprint(), **self._opened_from), ()

    def __copy__(self) -> Any:
        copied = object.__new__(type(self))
        vars(copied).update(vars(self))
        return copied

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """A copy with weights of its own, which nothing that happens to the files can change."""
        copied = copy(self)
        memo[id(self)] = copied
        copied.packed_model = deepcopy(self.packed_model, memo)
        copied.dense = deepcopy(self.dense, memo)
        copied.extra = deepcopy(self.extra, memo)
        copied._pooled = {}
        return copied
