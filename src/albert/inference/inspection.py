"""Inspection of a model: a check of its settings, and the contents of its directory.

Two settings leave no trace in the shapes of the weights, so a wrong value loads without an error. "gelu" in Google's
configurations is the tanh form, transformers' "gelu" the exact one; and ALBERT-xlarge is published with 16 heads and
with 32. With the right values a trained model fills more masks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from albert.checkpoints.config_json import read_config, written_class
from albert.checkpoints.cross_encoders import score_activation
from albert.checkpoints.huggingface import BACKBONE_PREFIX, Kind, kind_of
from albert.checkpoints.loading import INDEX_NAME, INT8_WEIGHTS_NAME, WEIGHTS_NAME, LoadingReport
from albert.checkpoints.model_directory import FINGERPRINT_KEY, OpenedModel, open_model, tokenizer_of
from albert.checkpoints.sentence_transformers import SENTENCE_KEY, SentenceVectors, sentence_vectors_of
from albert.model.albert import AlbertForMaskedLM, AlbertModel
from albert.model.encoder import on_meta_device
from albert.model.families import family_of
from albert.model.packing import PackedSequences, pack
from albert.recipes.architecture import Activation, EncoderConfig
from albert.runtime.devices import pick_device
from albert.runtime.errors import InvalidConfiguration
from albert.runtime.json_files import to_json
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from albert.runtime.progress import progress
from albert.text.shards import CorpusDescription, read_description
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

# --------------------------------------------------------------------------------------------------------------------
# Check of the settings a model was trained with, by its masked-token loss on a fixed text.

MASK_EVERY = 7
MASK_OFFSETS = (0, 2, 4)
"""One token in seven is masked, as in pre-training; three passes over the text, with other tokens masked each time."""
MIN_MASKED_TOKENS = 10
HEAD_SIZE = 64
PUBLISHED_HEADS = (16, 32)
CERTAIN = 2.0  # Standard errors by which two settings must differ for one of them to be called better
_GELUS: tuple[Activation, ...] = ("gelu", "gelu_new")


@dataclass(frozen=True, kw_only=True)
class CheckedSetting:
    """A model's loss (nats per masked token) and accuracy on the masked tokens under one setting."""

    hidden_act: str
    num_attention_heads: int
    stated: bool
    loss: float
    accuracy: float
    excess: float  # Mean paired difference from the lowest loss, nats per masked token
    excess_error: float  # Its standard error

    @property
    def as_good_as_the_best(self) -> bool:
        """Whether it is not significantly worse than the setting of lowest loss."""
        return self.excess <= CERTAIN * self.excess_error

    @property
    def name(self) -> str:
        return f"{self.hidden_act} with {self.num_attention_heads} heads"


@dataclass(frozen=True, kw_only=True)
class SelfCheck:
    """All settings in order of loss, and the number of masked tokens."""

    settings: tuple[CheckedSetting, ...]
    masked_tokens: int

    @property
    def best(self) -> CheckedSetting:
        return self.settings[0]

    @property
    def stated(self) -> CheckedSetting:
        return next(setting for setting in self.settings if setting.stated)

    @property
    def verdict(self) -> str:
        """One sentence: whether a setting is better than the stated one."""
        if not self.stated.as_good_as_the_best:
            by = f"{self.stated.excess:.3f} ± {self.stated.excess_error:.3f} nats"
            return f"{self.best.name} is better than the stated {self.stated.name} by {by} a masked token"
        equals = [setting.name for setting in self.settings if setting.as_good_as_the_best and not setting.stated]
        verdict = f"no setting is better than the stated {self.stated.name}"
        return verdict + (f"; {' and '.join(equals)} are indistinguishable from it on this text" if equals else "")


def check_settings(directory: Path, device: str = "auto") -> SelfCheck:
    """Compare a pre-trained model's masked-token loss under its stated and every other plausible setting."""
    opened = open_model(directory, "masked_lm")
    missing = [name for name in opened.loading_report.drawn if name.startswith("predictions.")]
    if missing:
        why = f"has no masked-token head ({missing[0]} is missing)"
        raise InvalidConfiguration(opened.directory, why, "give the pre-trained model that it was fine-tuned from")
    text = (files("albert.inference") / "self_check.txt").read_text("utf-8")
    tokenizer = tokenizer_of(opened)
    length = opened.config.max_position_embeddings - 2
    sequences: list[np.ndarray] = []
    for paragraph in text.splitlines():
        ids = tokenizer.encode(paragraph)
        for start in range(0, len(ids), length):
            part = ids[start : start + length]
            sequences.append(np.asarray([tokenizer.cls_id, *part, tokenizer.sep_id], np.int64))
    texts = [_mask_sequences(sequences, offset, tokenizer) for offset in MASK_OFFSETS if sequences]
    count = sum(len(labels) for _, _, labels in texts)
    if count < MIN_MASKED_TOKENS:
        why = f"has pieces for only {count} tokens of the fixed text, which is English"
        raise InvalidConfiguration(opened.directory, why, f"at least {MIN_MASKED_TOKENS} are needed")
    return _compare(opened, texts, pick_device(device))


MaskedText = tuple[PackedSequences, Tensor, Tensor]
"""A text with some tokens masked, the positions of the masks in the packed batch, and the original tokens."""


def _mask_sequences(sequences: Sequence[np.ndarray], offset: int, tokenizer: Tokenizer) -> MaskedText:
    inputs = []
    positions = []
    labels = []
    for ids in sequences:
        chosen = np.arange(1 + offset, len(ids) - 1, MASK_EVERY)
        chosen = chosen[~np.isin(ids[chosen], tokenizer.special_ids)]
        positions.append(chosen + sum(map(len, inputs)))
        labels.append(ids[chosen])
        inputs.append(ids.copy())
        inputs[-1][chosen] = tokenizer.mask_id
    packed = pack(inputs, [np.zeros_like(ids) for ids in inputs])
    return packed, torch.from_numpy(np.concatenate(positions)), torch.from_numpy(np.concatenate(labels))


def _compare(opened: OpenedModel, texts: Sequence[MaskedText], device: torch.device) -> SelfCheck:
    weights = opened.model.to(device).state_dict()
    candidates = plausible_settings(opened.config)
    results: list[tuple[EncoderConfig, np.ndarray, float]] = []
    with progress("Checking settings", len(candidates), "settings") as bar:
        for config in candidates:
            with on_meta_device():
                model = AlbertForMaskedLM(config).eval()
            model.load_state_dict(weights, assign=True)
            results.append((config, *_evaluate(model, texts, device)))
            bar.advance()
    results.sort(key=lambda result: float(result[1].mean()))
    lowest = results[0][1]
    settings = [
        CheckedSetting(
            hidden_act=config.hidden_act,
            num_attention_heads=config.num_attention_heads,
            stated=config == opened.config,
            loss=float(losses.mean()),
            accuracy=accuracy,
            excess=float((losses - lowest).mean()),
            excess_error=float((losses - lowest).std(ddof=1) / len(lowest) ** 0.5),
        )
        for config, losses, accuracy in results
    ]
    return SelfCheck(settings=tuple(settings), masked_tokens=len(lowest))


def _evaluate(model: AlbertForMaskedLM, texts: Sequence[MaskedText], device: torch.device) -> tuple[np.ndarray, float]:
    """The loss of each masked token, and the accuracy."""
    losses = []
    correct = []
    with torch.inference_mode():
        for packed, positions, labels in texts:
            labels = labels.to(device)
            logits = model(packed.to(device), positions.to(device)).float()
            losses.append(functional.cross_entropy(logits, labels, reduction="none").double().cpu().numpy())
            correct.append((logits.argmax(dim=-1) == labels).cpu().numpy())
    return np.concatenate(losses), float(np.concatenate(correct).mean())


def plausible_settings(config: EncoderConfig) -> list[EncoderConfig]:
    """The stated configuration, and those with the other form of GELU, or with H/64, 16 or 32 heads that divide H."""
    stated = config.hidden_act
    activations = [stated, *(other for other in _GELUS if stated in _GELUS and other != stated)]
    heads = [config.num_attention_heads, config.hidden_size // HEAD_SIZE, *PUBLISHED_HEADS]
    divisors = [n for n in dict.fromkeys(heads) if n and config.hidden_size % n == 0]
    return [replace(config, hidden_act=act, num_attention_heads=n) for act in activations for n in divisors]


# --------------------------------------------------------------------------------------------------------------------
# Reports of a directory's contents: a model with its head, tensors and tokenizer; a prepared corpus; a tokenizer.

HEADS: dict[Kind, str] = {
    "pretraining": "masked tokens, and two segments' order",
    "masked_lm": "masked tokens",
    "classification": "a label for each sequence",
    "pair_classification": "a label for each pair of texts, each read by itself",
    "token_classification": "a label for each token",
    "question_answering": "start and end of an answer",
    "joint_question_answering": "start and end of an answer, and whether there is one",
    "multiple_choice": "a score for each option",
    "encoder": "none",
}
_SENTENCE_OBJECTIVES = {"nsp": "masked tokens, and next sentences", "none": "masked tokens"}
_PRETRAINING_HEADS = {"predictions": "masked-token head", "sop_classifier": "sentence-order head"}
_REPORTED_KEYS = ("architectures", "model_type", "id2label", "label2id", FINGERPRINT_KEY, SENTENCE_KEY)


@dataclass(frozen=True, kw_only=True)
class TokenizerReport:
    """A tokenizer, and whether the model or corpus beside it was made with it."""

    file: str
    kind: str
    pieces: int
    lower_case: bool
    keep_accents: bool
    fingerprint: str
    belongs: bool | None  # Whether `config.json` or `corpus.json` has its fingerprint; None if they have none


@dataclass(frozen=True, kw_only=True)
class ModelReport:
    """A model directory."""

    directory: Path
    family: str
    architecture: str
    head: str
    sentence_vectors: SentenceVectors | None
    labels: list[str]
    parameters: int
    has_pooler: bool
    head_parameters: dict[str, int]
    weight_bytes: int
    verified: bool
    configuration: EncoderConfig
    tensors: LoadingReport
    other_keys: dict[str, Any]
    tokenizer: TokenizerReport | None

    def to_json(self) -> dict[str, Any]:
        """JSON values under stable names, without `configuration`."""
        values = to_json(self)
        del values["configuration"]
        tensors = ("missing", "newly_initialised", "unexpected", "dropped", "notes")
        values["tensors"] = {name: values["tensors"][name] for name in tensors}
        return values


def model_report(directory: Path) -> ModelReport:
    """Open a model directory with its own head and describe it."""
    config, extra = read_config(directory)
    model_kind = kind_of(extra)
    opened = open_model(directory, model_kind)
    objective = str(extra.get("sentence_objective")) if model_kind in ("pretraining", "masked_lm") else ""
    patterns = (WEIGHTS_NAME, INDEX_NAME.replace("index.json", "*"), INT8_WEIGHTS_NAME)
    weights = {file for pattern in patterns for file in directory.glob(pattern)}
    labels = dict(extra.get("id2label") or {})
    random = {name.removeprefix(BACKBONE_PREFIX) for name in opened.loading_report.drawn}
    inside = {name.removeprefix(BACKBONE_PREFIX) for name, _ in opened.model.named_parameters()}
    return ModelReport(
        directory=directory,
        family=family_of(config).title,
        architecture=written_class(str((extra.get("architectures") or ["AlbertModel"])[0]), config),
        sentence_vectors=sentence_vectors_of(extra),
        head=_score_head(opened) or _SENTENCE_OBJECTIVES.get(objective, HEADS[model_kind]),
        labels=[labels[index] for index in sorted(labels)] if model_kind.endswith("classification") else [],
        parameters=sum(p.numel() for p in opened.model.parameters()),
        has_pooler="pooler.weight" in inside - random,
        head_parameters=_head_parameters(opened),
        weight_bytes=sum(file.stat().st_size for file in weights),
        verified=opened.loading_report.verified,
        configuration=opened.config,
        tensors=opened.loading_report,
        other_keys={key: value for key, value in extra.items() if key not in _REPORTED_KEYS},
        tokenizer=tokenizer_report(directory, extra.get(FINGERPRINT_KEY)),
    )


def _head_parameters(opened: OpenedModel) -> dict[str, int]:
    """The parameters of each head of an opened model, by what it is called."""
    if isinstance(opened.model, AlbertModel):
        return {}
    counts: Counter[str] = Counter()
    for name, parameter in opened.model.named_parameters():
        if not name.startswith(BACKBONE_PREFIX):
            counts[_PRETRAINING_HEADS.get(name.partition(".")[0], "its head")] += parameter.numel()
    return dict(counts)


def _score_head(opened: OpenedModel) -> str:
    """What a classification head with one output gives; empty for other heads."""
    head: Any = getattr(opened.model, "classifier", None)
    is_score = kind_of(opened.extra) in ("classification", "pair_classification") and head.out_features == 1
    if not is_score or opened.extra.get("problem_type") == "multi_label_classification":
        return ""
    activation = score_activation(opened.extra)
    meaning = "its output" if activation == "Identity" else f"{activation} of its output"
    return f"a score for each text or pair of texts: {meaning}"


def corpus_report(directory: Path) -> tuple[CorpusDescription, bool, TokenizerReport | None]:
    """The description of a corpus made by `albert prepare`, whether its files were verified, and its tokenizer."""
    has_manifest = (directory / MANIFEST_NAME).is_file()
    if has_manifest:
        verify_directory(directory)
    description = read_description(directory)
    return description, has_manifest, tokenizer_report(directory, description.tokenizer_fingerprint)


def tokenizer_report(directory: Path, expected: object = None) -> TokenizerReport | None:
    """The tokenizer in a directory, or None; `expected` is the fingerprint in `config.json` or `corpus.json`."""
    file = vocabulary_file(directory)
    if not file.is_file():
        return None
    tokenizer = load_tokenizer(directory)
    return TokenizerReport(
        file=file.name,
        kind=tokenizer.kind,
        pieces=tokenizer.vocab_size,
        lower_case=tokenizer.lower_case,
        keep_accents=tokenizer.keep_accents,
        fingerprint=tokenizer.fingerprint,
        belongs=None if expected is None else tokenizer.fingerprint == expected,
    )
