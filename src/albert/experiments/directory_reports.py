"""What lies in a directory: a model with its head, tensors and tokenizer; a prepared corpus; a tokenizer alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from albert.checkpoints.huggingface import Kind, kind_of
from albert.checkpoints.loading import LoadingReport
from albert.checkpoints.model_directory import FINGERPRINT_KEY, open_model, read_config
from albert.checkpoints.tensor_files import INDEX_NAME, INT8_WEIGHTS_NAME, WEIGHTS_NAME
from albert.model.config import AlbertConfig
from albert.runtime.json_files import to_json
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from albert.text.shards import CorpusDescription, read_description
from albert.text.tokenizer import Tokenizer
from albert.text.tokenizer_loading import load_tokenizer, vocabulary_file

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
_TOLD_ELSEWHERE = ("architectures", "model_type", "id2label", "label2id", FINGERPRINT_KEY)


@dataclass(frozen=True, kw_only=True)
class TokenizerReport:
    """A tokenizer, and whether it is the one that what lies beside it was made with.

    Args:
        file: the vocabulary that is opened.
        belongs: whether `config.json` or `corpus.json` names it; None where nothing is named.
    """

    file: str
    kind: str
    pieces: int
    lower_case: bool
    keep_accents: bool
    fingerprint: str
    belongs: bool | None


@dataclass(frozen=True, kw_only=True)
class ModelReport:
    """A model directory.

    Args:
        head: what it answers, in words.
        labels: the names of its labels, where the head has labels.
        parameters: in memory, with the head.
        weight_bytes: of the weight files.
        verified: whether every file was checked against a manifest.
        other_keys: what else `config.json` says.
    """

    directory: Path
    architecture: str
    head: str
    labels: list[str]
    parameters: int
    weight_bytes: int
    verified: bool
    configuration: AlbertConfig
    tensors: LoadingReport
    other_keys: dict[str, Any]
    tokenizer: TokenizerReport | None

    def to_json(self) -> dict[str, Any]:
        """Plain values under names that stay; the configuration is told with the sizes."""
        values = to_json(self)
        del values["configuration"]
        values["tensors"] = {name: values["tensors"][name] for name in _FINDINGS}
        return values


_FINDINGS = ("missing", "newly_initialised", "unexpected", "dropped", "notes")


def model_report(directory: Path) -> ModelReport:
    """Open a model directory with its own head and say what is in it."""
    _, extra = read_config(directory)
    kind = kind_of(extra)
    opened = open_model(directory, kind)
    objective = str(extra.get("sentence_objective")) if kind in ("pretraining", "masked_lm") else ""
    names = (WEIGHTS_NAME, INDEX_NAME.replace("index.json", "*"), INT8_WEIGHTS_NAME)
    weights = {file for name in names for file in directory.glob(name)}
    labels = dict(extra.get("id2label") or {})
    return ModelReport(
        directory=directory,
        architecture=str((extra.get("architectures") or ["AlbertModel"])[0]),
        head=_SENTENCE_OBJECTIVES.get(objective, HEADS[kind]),
        labels=[labels[index] for index in sorted(labels)] if kind.endswith("classification") else [],
        parameters=sum(p.numel() for p in opened.model.parameters()),
        weight_bytes=sum(file.stat().st_size for file in weights),
        verified=opened.loading_report.verified,
        configuration=opened.config,
        tensors=opened.loading_report,
        other_keys={key: value for key, value in extra.items() if key not in _TOLD_ELSEWHERE},
        tokenizer=tokenizer_report(directory, extra.get(FINGERPRINT_KEY)),
    )


@dataclass(frozen=True, kw_only=True)
class CorpusReport:
    """A prepared corpus."""

    directory: Path
    verified: bool
    description: CorpusDescription
    tokenizer: TokenizerReport | None

    def to_json(self) -> dict[str, Any]:
        """Plain values under names that stay; of shards and sources, how many."""
        shards = {split: len(shards) for split, shards in self.description.shards.items()}
        description = to_json(self.description) | {"sources": len(self.description.sources), "shards": shards}
        place = {"directory": str(self.directory), "verified": self.verified}
        return {**place, "corpus": description, "tokenizer": to_json(self.tokenizer)}


def corpus_report(directory: Path) -> CorpusReport:
    """Say what `albert prepare` made."""
    has_manifest = (directory / MANIFEST_NAME).is_file()
    if has_manifest:
        verify_directory(directory)
    description = read_description(directory)
    return CorpusReport(
        directory=directory,
        verified=has_manifest,
        description=description,
        tokenizer=tokenizer_report(directory, description.tokenizer_fingerprint),
    )


def tokenizer_report(directory: Path, made_with: object = None) -> TokenizerReport | None:
    """The tokenizer in a directory; None when there is none.

    Args:
        made_with: the fingerprint that is recorded beside it.
    """
    file = vocabulary_file(directory)
    if not file.is_file():
        return None
    tokenizer = load_tokenizer(directory)
    return TokenizerReport(
        file=file.name,
        kind=_kind(tokenizer),
        pieces=tokenizer.vocab_size,
        lower_case=tokenizer.lower_case,
        keep_accents=tokenizer.keep_accents,
        fingerprint=tokenizer.fingerprint,
        belongs=None if made_with is None else tokenizer.answers_to(str(made_with)),
    )


def _kind(tokenizer: Tokenizer) -> str:
    kind = type(tokenizer).__name__.removesuffix("Tokenizer").removeprefix("Reference")
    return f"{kind}, as the original code does" if tokenizer.reference else kind
