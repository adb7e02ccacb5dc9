"""The model card: `README.md` of a model directory, with a header for the Hugging Face Hub (`ModelCardData`).

A card names a reader only if that reader gives the model's own scores, which `tests/checkpoints/test_cards.py` checks
with each of them: transformers, sentence-transformers, or albert. `card.toml` has their examples. Empty sections are
left out."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import huggingface_hub  # loads its parts when they are used

from albert.checkpoints.cross_encoders import ACTIVATION_KEY, score_activation
from albert.checkpoints.hub import name_of, root_of
from albert.checkpoints.sentence_transformers import POOLED, sentence_vectors_of
from albert.model.families import family_of
from albert.recipes.architecture import EncoderConfig
from albert.runtime.environment import lazy_import
from albert.runtime.manifest import read_input

CARD_NAME = "README.md"
PLACE = "path/to/this/directory"
"""Stands for the directory in the examples."""
Library = Literal["transformers", "sentence-transformers", "onnx", "albert"]
_TEXTS = tomllib.loads((files("albert.checkpoints") / "card.toml").read_text(encoding="utf-8"))
_UNSET: tuple[object, ...] = (None, [], (), {}, "")
_THRESHOLD = "no_answer_threshold"
_MOST_TOKENS = 512
_METRIC_IDS = {
    "macro_f1": "f1",
    "micro_f1": "f1",
    "matthews": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
}
"""Our names of metrics -> those of the Hub, where they differ."""
_HUB_METRICS = ("accuracy", "exact_match", *_METRIC_IDS.values())

# --------------------------------------------------------------------------------------------------------------------
# What a card is made of.


@dataclass(frozen=True, kw_only=True)
class WrittenModel:
    """The model beside a card.

    Args:
        extra: the keys of its `config.json` besides those of `config`.
        num_labels: outputs of a classification head.
        mask_piece: how its tokenizer writes a masked word; None: there is no tokenizer beside it.
        separator: how its tokenizer writes the end of a text.
    """

    architecture: str
    config: EncoderConfig
    extra: Mapping[str, Any] = field(default_factory=dict)
    num_labels: int | None = None
    mask_piece: str | None = "[MASK]"
    separator: str = "[SEP]"


@dataclass(frozen=True, kw_only=True)
class BaseModel:
    """What is known of the model from which another one was made, by its card and its place in the Hub's cache."""

    names: tuple[str, ...] = ()
    """Ids on the Hub."""
    languages: tuple[str, ...] = ()
    license: str | None = None


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Scores on a set of rows, for the `model-index` of the header."""

    dataset: str
    split: str
    scores: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Card:
    """What is known of a model besides its files.

    Args:
        recipe: training settings; those that are None or empty are left out.
        scores: metric -> value; the evaluation set belongs in the metric's name.
        question: the text with a masked word in the example.
        example: the row in the example, with the fields of `examples.json`.
        library: the reader; None: the one that gives the model's scores.
        use: the example in Markdown, with `{name}` for the location; empty: that of the reader.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    recipe: Mapping[str, object] = field(default_factory=dict)
    data: Sequence[str] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    scores_note: str = ""
    measured: Sequence[Measured] = ()
    tags: Sequence[str] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    question: str = ""
    example: Mapping[str, str] = field(default_factory=dict)
    limits: Sequence[str] = ()
    base: BaseModel = field(default_factory=BaseModel)
    base_relation: str | None = None
    library: Library | None = None
    use: str = ""


def base_of(directory: Path) -> BaseModel:
    """What is known of a model as the base of another one; a card that cannot be read says nothing."""
    directory = root_of(directory)
    header: Mapping[str, Any] = {}
    path = directory / CARD_NAME
    if path.is_file():
        text = read_input(path).decode("utf-8", "replace")
        yaml = lazy_import("yaml")
        match = re.match(r"---\r?\n(.*?)\r?\n---\s", text, re.DOTALL)
        try:
            loaded = yaml.safe_load(match[1]) if match else None
        except yaml.YAMLError:
            loaded = None
        header = loaded if isinstance(loaded, dict) else {}
    names = _strings(header.get("base_model"))
    if directory.absolute().parent.name == "snapshots":
        names = (name_of(directory),)
    stated = header.get("license")
    return BaseModel(
        names=names,
        languages=_strings(header.get("language")),
        license=stated if isinstance(stated, str) else None,
    )


def _strings(value: object) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    return tuple(each for each in values if isinstance(each, str))


# --------------------------------------------------------------------------------------------------------------------
# Who reads the model.


def reader_of(model: WrittenModel) -> tuple[Library, str]:
    """The library that gives the model's scores; and why transformers does not, if it is albert."""
    why = _why_only_albert(model)
    if why:
        return "albert", why
    vectors = sentence_vectors_of(model.extra)
    if model.architecture == "AlbertModel":
        return ("transformers" if vectors is None else "sentence-transformers"), ""
    return ("sentence-transformers" if _is_cross_encoder(model) else "transformers"), ""


def _why_only_albert(model: WrittenModel) -> str:
    reasons = _TEXTS["only_albert"]
    config = model.config
    if config.match_embedding:
        return reasons["match"]
    if model.architecture in ("AlbertForJointQuestionAnswering", "AlbertForPairClassification"):
        return reasons["head"]
    reads_pooler = model.architecture in ("AlbertForSequenceClassification", "AlbertForMultipleChoice")
    if reads_pooler and config.head_pooling != "pooler":
        return reasons["pooling"].replace("{pooling}", POOLED[config.head_pooling])
    if model.architecture == "AlbertForQuestionAnswering" and _THRESHOLD in model.extra:
        return reasons["threshold"]
    return ""


def _is_cross_encoder(model: WrittenModel) -> bool:
    """Whether the head's one output becomes a score otherwise than in the pipeline of transformers."""
    if model.architecture != "AlbertForSequenceClassification" or model.num_labels != 1:
        return False
    is_number = model.extra.get("problem_type") == "regression"
    return score_activation(model.extra) != ("Identity" if is_number else "Sigmoid")


def _example_key(model: WrittenModel) -> str:
    """The example of the reader in `card.toml`."""
    if model.mask_piece is None:
        return "without_tokenizer"
    if model.architecture not in ("AlbertForSequenceClassification", "AlbertForPairClassification"):
        return _TEXTS["kinds"][model.architecture]
    if model.num_labels == 1 and model.extra.get("problem_type") != "multi_label_classification":
        return "score"
    return "classify"


# --------------------------------------------------------------------------------------------------------------------
# The card as text.


def model_card(card: Card, model: WrittenModel) -> str:
    """The card of a model as Markdown."""
    library, why = reader_of(model)
    use = card.use
    if card.library is not None:
        library = card.library
    key = _example_key(model)
    tag = _pipeline_tag(model, library)
    if not use:
        example = _TEXTS["examples"][library][key].strip()
        use = "\n\n".join(filter(None, [why, f"```python\n{example}\n```", _note(model, library, key)]))
    values = {"name": PLACE, **_example_values(card, model)}
    settings = {key: _format(value) for key, value in card.recipe.items() if value not in _UNSET}
    sections = [
        _header(card, model, library, tag),
        f"# {_line(card.name)}",
        card.description.strip(),
        "## Use\n\n" + re.sub(r"\{(\w+)\}", lambda match: values.get(match[1], match[0]), use),
        _table("Parameters", "part", "parameters", {key: f"{n:,}" for key, n in card.parameters.items() if n}),
        _table("Scores", "metric", "score", {key: f"{value:.4g}" for key, value in card.scores.items()}),
        card.scores_note if card.scores else "",
        _list("Data", card.data),
        _table("Recipe", "setting", "value", settings),
        _list("Limits", card.limits),
        _table("Versions", "package", "version", card.versions),
    ]
    return "\n\n".join(filter(None, sections)) + "\n"


def _note(model: WrittenModel, library: Library, key: str) -> str:
    """What the example does not show: the threshold of several labels, the vectors of a model that fills masks, the
    texts that albert reads otherwise, and a pooler that nothing reads."""
    texts = _TEXTS["notes"]
    notes = []
    vectors = sentence_vectors_of(model.extra)
    if key == "fill_mask" and vectors is not None:
        notes.append(f"{vectors.description} {texts['vectors']}")
    threshold = model.extra.get("label_threshold")
    if key == "classify" and isinstance(threshold, float):
        notes.append(f"A label is predicted if its probability is at least {threshold:g}.")
    if library != "albert" and model.mask_piece is not None:
        notes.append(texts["special"].replace("{separator}", model.separator))
        if key == "embed" and family_of(model.config).has_pooler:
            notes.append(texts["pooler"])
    return "\n\n".join(notes)


def _pipeline_tag(model: WrittenModel, library: Library) -> str:
    tag = _TEXTS["pipeline_tags"][model.architecture]
    if library != "sentence-transformers":
        return tag
    return "sentence-similarity" if tag == "feature-extraction" else "text-ranking"


def _header(card: Card, model: WrittenModel, library: Library, tag: str) -> str:
    results = [
        huggingface_hub.EvalResult(
            task_type=tag,
            dataset_type=_line(measured.dataset),
            dataset_name=_line(measured.dataset),
            dataset_split=measured.split,
            metric_type=_METRIC_IDS.get(metric, metric.partition(" (")[0]),  # of "f1 (praise)" f1
            metric_name=_line(metric),
            metric_value=float(f"{value:.4g}"),
        )
        for measured in card.measured
        for metric, value in measured.scores.items()
    ]
    metrics = dict.fromkeys(each.metric_type for each in results if each.metric_type in _HUB_METRICS)
    base = card.base
    data = huggingface_hub.ModelCardData(
        base_model=_one_or_list(base.names),
        base_model_relation=card.base_relation if base.names else None,
        language=_one_or_list(base.languages),
        library_name=library,
        license=base.license,
        pipeline_tag=tag,
        tags=list(dict.fromkeys([model.config.family, *card.tags])),
        metrics=list(metrics) or None,
        model_name=_line(card.name) if results else None,
        eval_results=results or None,
    )
    return f"---\n{data.to_yaml(line_break=chr(10))}\n---"


def _one_or_list(values: Sequence[str]) -> str | list[str] | None:
    return (values[0] if len(values) == 1 else list(values)) if values else None


def _example_values(card: Card, model: WrittenModel) -> dict[str, str]:
    """Python literals for the placeholders of the examples."""
    row = card.example
    text = row.get("text") or row.get("context") or "The letter was written by Ada."
    pair = row.get("pair")
    is_of_pairs = model.architecture == "AlbertForPairClassification" or ACTIVATION_KEY in model.extra
    if not pair and (is_of_pairs or _is_cross_encoder(model)):
        pair = "Somebody wrote a letter."
    masked = card.question or "The capital of France is [MASK]."
    options = row.get("options", "It was written by Ada.\nIt was written by nobody.").split("\n")
    length = model.extra.get("max_sequence_length")
    if not isinstance(length, int):
        length = _MOST_TOKENS
    values: dict[str, object] = {
        "masked": masked.replace("[MASK]", model.mask_piece or "[MASK]"),
        "text": text,
        "pair": pair or "",
        "texts": [text, pair] if pair else [text],
        "input": {"text": text, "text_pair": pair} if pair else text,
        "question": row.get("question") or "Who wrote it?",
        "context": row.get("context") or text,
        "options": options,
        "max_length": min(length, model.config.max_position_embeddings),
    }
    texts = {name: json.dumps(value, ensure_ascii=False) for name, value in values.items()}
    texts["arguments"] = ", ".join(filter(None, [texts["text"], pair and texts["pair"]]))
    texts["class"] = "AutoModel" + model.architecture.removeprefix("Albert").removeprefix("Model")
    return texts


def _format(value: object) -> str:
    """A setting for the card: strings without quotes, floats with 6 digits."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_format(part)}" for key, part in value.items() if part not in _UNSET)
    if isinstance(value, list | tuple):
        return ", ".join(map(_format, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _line(text: str) -> str:
    return " ".join(str(text).split())


def _list(title: str, items: Sequence[str]) -> str:
    return f"## {title}\n\n" + "\n".join(f"- {_line(item)}" for item in items) if items else ""


def _table(title: str, key: str, value: str, rows: Mapping[str, str]) -> str:
    cells = [[_line(text).replace("|", "\\|") for text in row] for row in rows.items()]
    lines = [f"## {title}\n", f"| {key} | {value} |", "|---|---|", *(f"| {a} | {b} |" for a, b in cells)]
    return "\n".join(lines) if rows else ""
