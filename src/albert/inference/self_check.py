"""Which settings a model was trained with, found out by asking it: masked words of a fixed text.

Two settings leave no trace in the shapes of the weights, so a wrong value loads without a word. "gelu" in Google's
configurations is the tanh form, transformers' "gelu" the exact one; and ALBERT-xlarge is published with 16 heads and
with 32. With the right values a trained model fills more masks.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from albert.checkpoints.model_directory import OpenedModel, open_model, tokenizer_of
from albert.model.albert import AlbertForMaskedLM
from albert.model.config import Activation, AlbertConfig
from albert.model.encoder import without_memory
from albert.model.packing import PackedSequences, pack
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.progress import progress
from albert.text.tokenizer import Tokenizer

EVERY, FIRST_MASKED = 7, (0, 2, 4)
"""One token in seven is masked, as in pre-training; three times over the text, another seventh each time."""
FEWEST = 10
HEAD_SIZE = 64
PUBLISHED_HEADS = (16, 32)
CERTAIN = 2.0
"""Standard errors by which two settings must differ before one of them is called better."""
_GELUS: tuple[Activation, ...] = ("gelu", "gelu_new")


@dataclass(frozen=True, kw_only=True)
class CheckedSetting:
    """What a model makes of the masked tokens under one setting.

    Args:
        hidden_act, num_attention_heads: the setting.
        stated: whether it is the one in `config.json`.
        loss: nats a masked token.
        accuracy: share of masked tokens that are right.
        excess: nats by which its loss is above the lowest one, token by token on the same tokens.
        excess_error: the standard error of that.
    """

    hidden_act: str
    num_attention_heads: int
    stated: bool
    loss: float
    accuracy: float
    excess: float
    excess_error: float

    @property
    def as_good_as_the_best(self) -> bool:
        """Whether the text cannot tell it from the setting of lowest loss."""
        return self.excess <= CERTAIN * self.excess_error

    @property
    def name(self) -> str:
        """The setting in words."""
        return f"{self.hidden_act} with {self.num_attention_heads} heads"


@dataclass(frozen=True, kw_only=True)
class SelfCheck:
    """All settings, the one of lowest loss first, and how many masked tokens they were asked for."""

    settings: tuple[CheckedSetting, ...]
    masked_tokens: int

    @property
    def best(self) -> CheckedSetting:
        """The setting of lowest loss."""
        return self.settings[0]

    @property
    def stated(self) -> CheckedSetting:
        """The setting in `config.json`."""
        return next(setting for setting in self.settings if setting.stated)

    @property
    def verdict(self) -> str:
        """One sentence: whether another setting than the stated one is better."""
        if not self.stated.as_good_as_the_best:
            by = f"{self.stated.excess:.3f} ± {self.stated.excess_error:.3f} nats"
            return f"{self.best.name} is better than the stated {self.stated.name} by {by} a masked token"
        equals = [setting.name for setting in self.settings if setting.as_good_as_the_best and not setting.stated]
        said = f"no setting is better than the stated {self.stated.name}"
        return said + (f"; {' and '.join(equals)} cannot be told apart from it by this text" if equals else "")


def check_settings(
    path_or_id: str | Path, revision: str | None = None, *, text: str | None = None, device: str = "auto"
) -> SelfCheck:
    """Ask a pre-trained model for masked tokens under its stated and every other plausible setting.

    Tried are the stated `hidden_act` and, of the two forms of GELU, the other one; and the stated number of heads,
    H/64, 16 and 32, where they divide H.

    Args:
        path_or_id: a model directory, a run, or a Hub id.
        revision: a branch, tag or commit, when it is a Hub id.
        text: a few paragraphs in the model's language, a line each; None takes the English ones of this package.
        device: where to compute.

    Raises:
        MissingInput, Unavailable, DamagedData: the model or its tokenizer cannot be had, or is damaged.
        InvalidConfiguration: it has no masked-token head, or the text is too short.
    """
    opened = open_model(path_or_id, "masked_lm", revision=revision)
    drawn = [name for name in opened.loading_report.newly_initialised if name.startswith("predictions.")]
    if drawn:
        why = f"has no masked-token head to ask ({drawn[0]} is missing)"
        raise InvalidConfiguration(opened.directory, why, "give the pre-trained model that it was fine-tuned from")
    if text is None:
        text = (files("albert.inference") / "self_check.txt").read_text("utf-8")
    tokenizer = tokenizer_of(opened)
    texts = _masked_texts(tokenizer, text, opened.config.max_position_embeddings)
    n_masked = sum(len(masked.labels) for masked in texts)
    if n_masked < FEWEST:
        raise InvalidConfiguration("text", f"gives {n_masked} tokens to mask", f"at least {FEWEST} are needed")
    return _compare(opened, texts, pick_device(device))


@dataclass(frozen=True)
class MaskedText:
    """A text with some tokens masked, where they are in the run of tokens, and what stood there."""

    packed: PackedSequences
    places: torch.Tensor
    labels: torch.Tensor


def _masked_texts(tokenizer: Tokenizer, text: str, positions: int) -> list[MaskedText]:
    """The paragraphs, cut where the model's positions end, once for each of `FIRST_MASKED`."""
    sequences: list[np.ndarray] = []
    for paragraph in text.splitlines():
        ids = tokenizer.encode(paragraph)
        for start in range(0, len(ids), positions - 2):
            cut = ids[start : start + positions - 2]
            sequences.append(np.asarray([tokenizer.cls_id, *cut, tokenizer.sep_id], np.int64))
    return [_masked_text(sequences, first, tokenizer) for first in FIRST_MASKED if sequences]


def _masked_text(sequences: Sequence[np.ndarray], first: int, tokenizer: Tokenizer) -> MaskedText:
    inputs, places, labels = [], [], []
    for ids in sequences:
        chosen = np.arange(1 + first, len(ids) - 1, EVERY)
        chosen = chosen[~np.isin(ids[chosen], tokenizer.special_ids)]
        places.append(chosen + sum(map(len, inputs)))
        labels.append(ids[chosen])
        inputs.append(ids.copy())
        inputs[-1][chosen] = tokenizer.mask_id
    packed = pack(inputs, [np.zeros_like(ids) for ids in inputs])
    return MaskedText(packed, torch.from_numpy(np.concatenate(places)), torch.from_numpy(np.concatenate(labels)))


def _compare(opened: OpenedModel, texts: Sequence[MaskedText], device: torch.device) -> SelfCheck:
    weights = opened.model.to(device).state_dict()
    losses: dict[tuple[str, int], np.ndarray] = {}
    accuracies: dict[tuple[str, int], float] = {}
    candidates = plausible_settings(opened.config)
    with progress("Checking settings", len(candidates), "settings") as bar:
        for config in candidates:
            with without_memory():
                model = AlbertForMaskedLM(config).eval()
            model.load_state_dict(weights, assign=True)
            setting = config.hidden_act, config.num_attention_heads
            losses[setting], accuracies[setting] = _ask(model, texts, device)
            bar.advance()
    ranked = sorted(losses, key=lambda setting: float(losses[setting].mean()))
    lowest = losses[ranked[0]]
    stated = opened.config.hidden_act, opened.config.num_attention_heads
    return SelfCheck(
        settings=tuple(
            CheckedSetting(
                hidden_act=setting[0],
                num_attention_heads=setting[1],
                stated=setting == stated,
                loss=float(losses[setting].mean()),
                accuracy=accuracies[setting],
                excess=float((losses[setting] - lowest).mean()),
                excess_error=float((losses[setting] - lowest).std(ddof=1) / len(lowest) ** 0.5),
            )
            for setting in ranked
        ),
        masked_tokens=len(lowest),
    )


def _ask(model: AlbertForMaskedLM, texts: Sequence[MaskedText], device: torch.device) -> tuple[np.ndarray, float]:
    """The loss of every masked token, and the share that the model has right."""
    losses, right = [], []
    with torch.inference_mode():
        for text in texts:
            labels = text.labels.to(device)
            logits = model(text.packed.to(device), text.places.to(device)).float()
            losses.append(functional.cross_entropy(logits, labels, reduction="none").double().cpu().numpy())
            right.append((logits.argmax(dim=-1) == labels).cpu().numpy())
    return np.concatenate(losses), float(np.concatenate(right).mean())


def plausible_settings(config: AlbertConfig) -> list[AlbertConfig]:
    """The stated configuration, and those with another GELU or another published number of heads."""
    stated = config.hidden_act
    activations = [stated, *(other for other in _GELUS if stated in _GELUS and other != stated)]
    heads = [config.num_attention_heads, config.hidden_size // HEAD_SIZE, *PUBLISHED_HEADS]
    dividing = [n for n in dict.fromkeys(heads) if n and config.hidden_size % n == 0]
    return [replace(config, hidden_act=act, num_attention_heads=n) for act in activations for n in dividing]
