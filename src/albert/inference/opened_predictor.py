"""A model opened to be asked: its tokenizer, what it can do, how deep and how exactly it computes."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from albert.checkpoints.config_file import labels_of
from albert.checkpoints.location import find_model
from albert.checkpoints.model_directory import Kind, OpenedModel, kind_of, open_model, read_config
from albert.checkpoints.model_tokenizer import refuse_foreign_tokenizer
from albert.inference.abilities import (
    CLASSIFYING,
    SCORING,
    TAGGING,
    abilities_of,
)
from albert.inference.early_exit import early_exit_of
from albert.inference.embedding import Pooling
from albert.inference.lengths import lengths_of
from albert.inference.packed_model import PackedModel
from albert.inference.precision import PrecisionAsked, choose_precision
from albert.model.depth import run_to_depth
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration
from albert.tasks.null_threshold import THRESHOLD_KEY, stated_threshold
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_directory import load_tokenizer

Opened = TypeVar("Opened", bound="OpenedPredictor")


class OpenedPredictor:
    """A trained model with its tokenizer, and how it computes.

    Args:
        opened: the model.
        kind: which heads it was opened with.
        tokenizer: the tokenizer it was trained with.
        device: where it computes.
        precision: of the encoder's matrix products; "auto" is bf16 where the device has it in hardware, else fp32.
        depth: layers that are applied; None: as many as it was trained with.
        patience: so many depths in a row must agree until a text is decided early; None goes through all layers.

    Raises:
        DamagedData: the tokenizer is not the one that the model was trained with.
        InvalidConfiguration: the model has not so many layers, or nothing to decide early.
        Unavailable: the device does not compute at that precision.
    """

    def __init__(
        self,
        opened: OpenedModel,
        kind: Kind,
        tokenizer: Tokenizer,
        device: torch.device,
        precision: PrecisionAsked = "auto",
        depth: int | None = None,
        patience: int | None = None,
    ) -> None:
        self.name, self.config, self.extra = str(opened.directory), opened.config, opened.extra
        self.loading_report, self.tokenizer, self.device = opened.loading_report, tokenizer, device
        refuse_foreign_tokenizer(tokenizer, opened.directory, opened.config, opened.extra)
        self.abilities = abilities_of(kind, opened)
        """What it can do, in words; a head that the file lacks, or that was never trained, does not count."""
        self._lengths = lengths_of(kind, opened)
        self.precision = choose_precision(precision, device)
        """Of the encoder's matrix products: fp32, bf16 or int8."""
        self.depth = opened.config.num_hidden_layers if depth is None else depth
        """Layers that are applied, or at most, with `patience`."""
        if depth is not None:
            run_to_depth(opened.model, depth)
        self.patience = patience
        self._model = PackedModel(opened.model, device, precision=self.precision)
        self._deciding = (
            self._model if patience is None else early_exit_of(self._model, patience, self.extra, self.name)
        )
        may_be_absent = kind == "joint_question_answering" or THRESHOLD_KEY in self.extra
        self._null_threshold = stated_threshold(self.extra, self.name) if may_be_absent else None
        self._pooled: dict[Pooling, PackedModel] = {}

    @classmethod
    def open(
        cls: type[Opened],
        path_or_id: str | Path,
        device: str = "auto",
        *,
        revision: str | None = None,
        overrides: Mapping[str, Any] | None = None,
        precision: PrecisionAsked = "auto",
        depth: int | None = None,
        patience: int | None = None,
    ) -> Opened:
        """Open a model directory, a run directory, or a Hub id, for whatever its head can do.

        Args:
            path_or_id: where the model is.
            device: where to compute.
            revision: a branch, tag or commit, when it is a Hub id.
            overrides: fields of the configuration to set anew, `{"hidden_act": "gelu_new"}` say.
            precision, depth, patience: see the class.

        Raises:
            MissingInput, Unavailable, DamagedData: it cannot be had, or is damaged.
            InvalidConfiguration: a shape or a setting does not fit.
        """
        computing = pick_device(device)
        choose_precision(precision, computing)
        directory = find_model(path_or_id, revision)
        config, extra = read_config(directory)
        tokenizer = load_tokenizer(directory)
        refuse_foreign_tokenizer(tokenizer, directory, config, extra)  # before any weight is read
        kind = kind_of(extra)
        opened = open_model(directory, kind, overrides=overrides)
        opened.loading_report.warn_if_unverified()
        return cls(opened, kind, tokenizer, computing, precision, depth, patience)

    def __repr__(self) -> str:
        """What it is, what it can do and how it computes, on one line."""
        can = ", ".join(self.abilities) or "embed texts; no trained head"
        shown: dict[str, object] = {}
        if {CLASSIFYING, TAGGING} & set(self.abilities):
            shown = {"labels": self.labels if len(self.labels) <= 10 else f"{len(self.labels)} of them"}
        shown |= {"depth": self.depth} | ({} if self.patience is None else {"patience": self.patience})
        shown |= {"max_length": self.max_length, "precision": self.precision, "device": str(self.device)}
        settings = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"<{type(self).__name__} {self.name!r}: {can}; {settings}>"

    @property
    def network(self) -> nn.Module:
        """The model with its head, as it computes."""
        return self._model.model

    @property
    def max_length(self) -> int:
        """Tokens in a sequence, `[CLS]` and `[SEP]` included."""
        return self._lengths.max_length

    @cached_property
    def labels(self) -> list[str]:
        """The names of the classes, of a word's tags, or of the one number that is predicted."""
        self._require(*(TAGGING,) if TAGGING in self.abilities else (CLASSIFYING, SCORING))
        return labels_of(self.extra, self._model.model.classifier.out_features)

    @cached_property
    def _word_starts(self) -> np.ndarray:
        return self.tokenizer.word_starts()

    def _require(self, *abilities: str) -> None:
        if not any(ability in self.abilities for ability in abilities):
            can = " and ".join(self.abilities) or "nothing yet: fine-tune it first"
            raise InvalidConfiguration(self.name, f"has no trained head to {abilities[0]}", f"this model can {can}")
