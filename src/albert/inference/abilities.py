"""Inference tasks: one table, `ABILITIES`, for prediction on files, the command line, the HTTP API and the web page.

To add a task, add an entry: `albert predict --task NAME --input FILE`, `POST /NAME`, its part of `/openapi.json` and a
tab of the web page follow from it. Nothing here imports torch: the methods of a `Predictor` compute."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from albert.runtime.environment import lazy_import
from albert.runtime.errors import DamagedData, UsageError, did_you_mean
from albert.text.readers import Record

CLASSIFYING = "classify texts"
SCORING = "score texts"
FILLING = "fill masks"
ORDERING = "judge the order of segments"
ANSWERING = "answer questions"
TAGGING = "tag words"
CHOOSING = "choose among options"

MASK = "[MASK]"
NO_MASK = f'write one, as in "The cat {MASK} on the mat."'


ENDINGS = (".jsonl", ".csv", ".parquet", ".npy")
"""Of files with predictions."""


class UnansweredTexts(UsageError):
    """Some texts of a batch have no result; `reasons` maps the index of a text to what is wrong and the remedy."""

    def __init__(self, subject: str, reasons: Mapping[int, tuple[str, str | None]]) -> None:
        self.reasons = dict(reasons)
        number, (why, remedy) = min(self.reasons.items())
        super().__init__(subject if number == 0 else f"{subject} {number + 1}", why, remedy)

    def only(self, number: int) -> "UnansweredTexts":
        """The error for a single text, without its number."""
        return UnansweredTexts(self.subject.split()[0], {0: self.reasons[number]})


# --------------------------------------------------------------------------------------------------------------------
# Rows of files to inputs.

Inputs = tuple[Any, ...]  # The texts (or lists of texts) of one example


@dataclass(frozen=True)
class Fields:
    """The names of a row's fields; an empty name of a question or context means that there is none."""

    text: str = "text"
    pair: str = "text_pair"
    question: str = "question"
    context: str = "context"
    options: tuple[str, ...] = ("options",)  # One field with a list of options, or one field per option


def _text_field(record: Record, field: str, flag: str) -> str:
    """The value of a text field; raises DamagedData if it is missing or not a string."""
    if field not in record.fields:
        hint = did_you_mean(field, record.fields)
        raise DamagedData(record.where, f"has no field {field!r}", f"{hint} ({flag} names another)")
    value = record.fields[field]
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise DamagedData(record.where, f"field {field!r} is {kind}, a text is expected")
    return value


def _text_fields(*names: str) -> Callable[[Record, Fields], Inputs]:
    """A function that reads these fields of a row; one whose name ends in "?" is None if it is absent under its usual
    name, and an error if the user named it."""

    def read(record: Record, fields: Fields) -> Inputs:
        texts: list[str | None] = []
        for name in names:
            plain = name.removesuffix("?")
            field = getattr(fields, plain)
            if name != plain and field == getattr(Fields, plain) and field not in record.fields:
                texts.append(None)
            else:
                texts.append(_text_field(record, field, f"--{plain}"))
        return tuple(texts)

    return read


one_text = _text_fields("text")


def _text_or_words(record: Record, fields: Fields) -> Inputs:
    value = record.fields.get(fields.text)
    is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return (value,) if is_words else one_text(record, fields)


def _options_in_context(record: Record, fields: Fields) -> Inputs:
    """A context, at least two options, and a question (which may be empty)."""
    question = _text_fields("question?")(record, fields)[0] if fields.question else ""
    context = _text_fields("context")(record, fields)[0] if fields.context else ""
    field, *others = fields.options
    if others or field not in record.fields:
        cells = [record.fields.get(name) or "" for name in fields.options[1:]]
        texts = [_text_field(record, fields.options[0], "--options"), *cells]
    else:
        texts = record.fields[field]
    if not isinstance(texts, list) or not all(isinstance(option, str) for option in texts):
        raise DamagedData(record.where, f"field {field!r} must be a list of at least two strings")
    options = [option for option in texts if option.strip()]
    if len(options) < 2:
        raise DamagedData(record.where, f"field {field!r} must be a list of at least two strings")
    return context, options, question or ""


# --------------------------------------------------------------------------------------------------------------------
# Definition of a task.

ERROR = "error"  # Field with the reason why a row has no result; null if it has one
Value = str | list[Any] | dict[str, Any]
"""Type of an output field: "text", "number", "count", "flag", a list of a type, or a dict of names and types. A name
that ends in "?" is optional."""


@dataclass(frozen=True)
class Settings:
    """Options of `albert predict`, and fields of requests under the same names."""

    top_k: int | None = None  # Number of predictions for a mask, or of answers to a question
    pooling: Literal["mean", "cls", "max", "weighted"] | None = None  # None: the model's own
    normalize: bool | None = None
    prompt: str | None = None
    words: bool = False  # Whether a text to tag is split into words at blanks
    explain: bool = False  # Whether the words that moved a score are given


@dataclass(frozen=True)
class Part:
    """A field of a request: its type ("text", "pair", "count", "flag", a tuple of choices, a list of types with at
    least as many items, or a dict of names and types), its default, and its description."""

    kind: Any
    default: Any = ...
    about: str = ""


def _one_text_each(body: Mapping[str, Any]) -> Iterable[Inputs]:
    return [(text,) for text in body["texts"]]


@dataclass(frozen=True, kw_only=True)
class Ability:
    """An inference task.

    Attributes:
        name: value of `--task`, and path of the HTTP endpoint (after a slash).
        needs: the ability that the model must have, as shown to users; None if any model will do.
        heads: kind of model -> prefixes of the names of the tensors that the task needs.
        row: reads the inputs from a row of a file; raises DamagedData. None: not available for files.
        request, inputs: the fields of a request, and the function from its body to inputs; the body also holds
            `layer_tokens` of the server's limits.
        compute: one result per input, by the methods of a `Predictor`; HTTP replies hold these results.
        reply: type of a result.
        to_row: the fields of a file's row for a result.
        output: the fields that are written, and their types; "depth?" only with early exit.
        windowed: whether a long text is read in windows; otherwise it is cut.
        masked: whether each mask gets `top_k` predictions, whose number per reply is limited.
    """

    name: str
    needs: str | None = None
    heads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    about: str = ""
    row: Callable[[Record, Fields], Inputs] | None = None
    request: Mapping[str, Part]
    request_about: str
    example: Mapping[str, Any]
    inputs: Callable[[Mapping[str, Any]], Iterable[Inputs]] = _one_text_each
    compute: Callable[[Any, Sequence[Inputs], Settings], Sequence[Any]]
    reply: Value
    reply_about: str
    to_row: Callable[[Any, Any], Mapping[str, Any]] = lambda predictor, result: result
    output: Callable[[Any, Settings], Mapping[str, Value]] = lambda predictor, settings: {}
    windowed: bool = False
    masked: bool = False

    def output_fields(self, predictor: Any, settings: Settings) -> dict[str, Value]:
        """The output fields of every row, in order, and their types."""
        exits_early = predictor.patience is not None
        fields = self.output(predictor, settings).items()
        return {name.removesuffix("?"): value for name, value in fields if exits_early or name != "depth?"}

    def results(self, predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[Any]:
        """A result for each input, or the error why it has none."""
        try:
            return list(self.compute(predictor, inputs, settings))
        except UnansweredTexts as error:
            reasons = error.reasons
            answerable = [entry for number, entry in enumerate(inputs) if number not in reasons]
            others = iter(self.compute(predictor, answerable, settings) if answerable else [])
            return [error.only(number) if number in reasons else next(others) for number in range(len(inputs))]

    def answers(self, predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
        """The output fields of each row; where a row has no result all are null but `error`."""
        rows: list[Mapping[str, Any]] = [
            {ERROR: result.reasons[0][0]}
            if isinstance(result, UnansweredTexts)
            else {"tokens_cut": 0, **self.to_row(predictor, result)}
            for result in self.results(predictor, inputs, settings)
        ]
        names = self.output_fields(predictor, settings)
        return [{name: row.get(name) for name in names} for row in rows]


def columns(inputs: Sequence[Inputs]) -> list[list[Any]]:
    """Transpose inputs: the list of all first texts, of all second texts, and so on."""
    return [list(column) for column in zip(*inputs, strict=True)]


def tokens_cut_field(cut: int) -> dict[str, Any]:
    """The `tokens_cut` field of a result; left out if nothing was cut."""
    return {"tokens_cut": cut} if cut else {}


def _compute_by_kind(
    inputs: Sequence[Any],
    is_first: Callable[[Any], bool],
    first: Callable[[list[Any]], list[Any]],
    second: Callable[[list[Any]], list[Any]],
) -> list[Any]:
    """Results for inputs of two kinds, in input order; each kind is computed together."""
    results = {}
    for kind, compute in ((True, first), (False, second)):
        members = [entry for entry in inputs if is_first(entry) is kind]
        results[kind] = iter(compute(members) if members else [])
    return [next(results[is_first(entry)]) for entry in inputs]


# --------------------------------------------------------------------------------------------------------------------
# Classify and score: texts or pairs to labels or numbers.

_LABEL: dict[str, Value] = {"label": "text", "score": "number", "tokens_cut?": "count", "depth?": "count"}
_DEPTH_AND_CUT: dict[str, Value] = {"depth?": "count", "tokens_cut": "count"}


def _paired_inputs(body: Mapping[str, Any]) -> Iterable[Inputs]:
    texts = body["texts"]
    pairs = body["pairs"]
    if pairs is None:
        return [(text, None) for text in texts]
    if len(pairs) != len(texts):
        raise UsageError("pairs", f"{len(pairs)} for {len(texts)} texts", "give one for each")
    return list(zip(texts, pairs, strict=True))


def _classify(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[Any]:
    how = {"explain": True} if settings.explain else {}
    return _compute_by_kind(
        inputs,
        lambda entry: entry[1] is None,
        lambda alone: predictor.classify_batch([text for text, _ in alone], **how),
        lambda paired: predictor.classify_batch(*columns(paired), **how),
    )


def _class_row(predictor: Any, ranked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores = {entry["label"]: entry["score"] for entry in ranked}
    likely = [entry["label"] for entry in ranked if entry.get("predicted")]
    row = {**ranked[0], "labels": likely, "scores": {label: scores[label] for label in predictor.labels}}
    if predictor.label_threshold is not None:
        row["explanation"] = [
            {"label": entry["label"], **word} for entry in ranked for word in entry.get("explanation", ())
        ]
    return row


def _class_fields(predictor: Any, settings: Settings) -> dict[str, Value]:
    several = predictor.extra.get("problem_type") == "multi_label_classification"
    answer: dict[str, Value] = {"labels": ["text"]} if several else {"label": "text", "score": "number"}
    answer["scores"] = dict.fromkeys(predictor.labels, "number")
    return {**answer, **_explanation_fields(predictor, settings), **_DEPTH_AND_CUT}


def _explanation_fields(predictor: Any, settings: Settings) -> dict[str, Value]:
    """The column of the words that moved a score; with several labels per text they have the label."""
    if not settings.explain:
        return {}
    word: dict[str, Value] = {"word": "text", "start": "count", "end": "count", "change": "number"}
    if predictor.label_threshold is not None:
        word = {"label": "text", **word}
    if predictor.reads_pairs is not False:
        word["part"] = "text"
    return {"explanation": [word]}


_TEXTS_OR_PAIRS: dict[str, Any] = {
    "row": _text_fields("text", "pair?"),
    "request": {
        "texts": Part(["text"]),
        "pairs": Part(["text"], None, "The second text of each pair, where the model was trained on pairs."),
    },
    "request_about": "Texts, or pairs of texts.",
    "example": {"texts": ["A fine film, from its first minute to its last.", "Dull."]},
    "inputs": _paired_inputs,
}
_CLASSIFY = Ability(
    name="classify",
    needs=CLASSIFYING,
    heads={"classification": ("classifier.", "albert.pooler."), "pair_classification": ("pair_classifier.",)},
    about="Every label with its probability, most likely first; with several labels per text, which are predicted.",
    **_TEXTS_OR_PAIRS,
    compute=_classify,
    reply=[{"label": "text", "score": "number", "predicted?": "flag", "tokens_cut?": "count", "depth?": "count"}],
    reply_about="For each text, every label, most likely first.",
    to_row=_class_row,
    output=_class_fields,
)
_SCORE = Ability(
    name="score",
    needs=SCORING,
    about="The number that a regression model predicts.",
    **_TEXTS_OR_PAIRS,
    compute=lambda predictor, inputs, settings: [number for (number,) in _classify(predictor, inputs, settings)],
    reply=_LABEL,
    reply_about="For each text, its number.",
    output=lambda predictor, settings: {
        "score": "number",
        **_explanation_fields(predictor, settings),
        **_DEPTH_AND_CUT,
    },
)


# --------------------------------------------------------------------------------------------------------------------
# Question answering and multiple choice.

_QUESTIONS: list[Any] = [{"question": Part("text"), "context": Part("text")}]
_OPTION: dict[str, Value] = {"option": "text", "index": "count", "score": "number"}
_SPAN: dict[str, Value] = {"score": "number", "start": "count", "end": "count", "answer": "text"}


def _answer_fields(predictor: Any, settings: Settings) -> dict[str, Value]:
    others: dict[str, Value] = {"others": [_SPAN]} if (settings.top_k or 1) > 1 else {}
    return {**_SPAN, **others, "tokens_cut": "count", ERROR: "text"}


def _choice_row(predictor: Any, ranked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores = [entry["score"] for entry in sorted(ranked, key=lambda entry: entry["index"])]
    return {**ranked[0], "scores": scores, "tokens_cut": sum(entry.get("tokens_cut", 0) for entry in ranked)}


_ANSWER = Ability(
    name="answer",
    needs=ANSWERING,
    heads={"question_answering": ("qa_outputs.",), "joint_question_answering": ("joint_qa_outputs.",)},
    about="The spans of a context that best answer a question, as exact slices of it; long contexts are read in full.",
    row=_text_fields("question", "context"),
    request={"questions": Part(_QUESTIONS), "top_k": Part("count", 1, "Number of answers to each question.")},
    request_about="Questions, each with its context.",
    example={
        "questions": [
            {"question": "Where was the whale seen?", "context": "In 1866 a whale was seen off the coast of Australia."}
        ],
        "top_k": 1,
    },
    inputs=lambda body: [(question["question"], question["context"]) for question in body["questions"]],
    compute=lambda predictor, inputs, settings: predictor.answer_batch(*columns(inputs), settings.top_k or 1),
    reply=[{**_SPAN, "tokens_cut?": "count"}],
    reply_about="For each question, its answers, most likely first; an empty one means that there is no answer.",
    to_row=lambda _, spans: {**spans[0], "others": [{name: other[name] for name in _SPAN} for other in spans[1:]]},
    output=_answer_fields,
    windowed=True,
)
_CHOOSE = Ability(
    name="choose",
    needs=CHOOSING,
    heads={"multiple_choice": ("classifier.", "albert.pooler.")},
    about="The options, most likely first; each counts as a text.",
    row=_options_in_context,
    request={
        "questions": Part([{"context": Part("text"), "options": Part(["text", "text"]), "question": Part("text", "")}])
    },
    request_about="Questions with options to choose from.",
    example={
        "questions": [
            {
                "context": "The sea was calm, and the sailors slept on the deck.",
                "question": "Where did the sailors sleep?",
                "options": ["on the deck", "in the harbour", "on the island"],
            }
        ]
    },
    inputs=lambda body: [
        (question["context"], tuple(question["options"]), question["question"]) for question in body["questions"]
    ],
    compute=lambda predictor, inputs, settings: predictor.choose_batch(*columns(inputs)),
    reply=[{**_OPTION, "tokens_cut?": "count", "depth?": "count"}],
    reply_about="For each question, its options, most likely first.",
    to_row=_choice_row,
    output=lambda *_: {**_OPTION, "scores": ["number"], **_DEPTH_AND_CUT},
)


# --------------------------------------------------------------------------------------------------------------------
# Tag words, fill masks, predict the order of two segments.

_TAGGED: Value = {"word": "text", "entity": "text", "score": "number", "start": "count", "end": "count"}
_FILLED: Value = {"score": "number", "token": "count", "token_str": "text", "sequence": "text"}


def _tag(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[Any]:
    return _compute_by_kind(
        [text.split() if settings.words and isinstance(text, str) else text for (text,) in inputs],
        lambda text: isinstance(text, str),
        predictor.tag_batch,
        predictor.tag_sentences,
    )


def _masked_inputs(body: Mapping[str, Any]) -> Iterable[Inputs]:
    for number, text in enumerate(body["texts"]):
        if MASK not in text:
            raise UsageError(f"texts.{number}", f"has no {MASK}", NO_MASK)
    return _one_text_each(body)


def _order_fields(predictor: Any, settings: Settings) -> dict[str, Value]:
    objective = predictor.extra.get("sentence_objective")
    probability = "probability_next" if objective == "nsp" else "probability_in_order"
    return {"label": "text", "score": "number", probability: "number", "tokens_cut": "count"}


_TAG = Ability(
    name="tag",
    needs=TAGGING,
    heads={"token_classification": ("classifier.",)},
    about="The most likely label of every word, with the word's position in the text; long texts are read in full.",
    row=_text_or_words,
    request={"texts": Part(["text"])},
    request_about="One text or many.",
    example={"texts": ["The captain of the Nautilus was a strange man."]},
    compute=_tag,
    reply=[_TAGGED],
    reply_about="For each text, its words, with their characters `start`..`end` in it.",
    to_row=lambda _, words: {"tags": words},
    output=lambda *_: {"tags": [_TAGGED]},
    windowed=True,
)
_FILL_MASK = Ability(
    name="fill-mask",
    needs=FILLING,
    heads={"pretraining": ("predictions.",), "masked_lm": ("predictions.",)},
    about="The most likely tokens for each `[MASK]`.",
    row=one_text,
    request={"texts": Part(["text"]), "top_k": Part("count", 5, "Number of predictions for each mask.")},
    request_about="Texts with one or more `[MASK]`.",
    example={"texts": ["The captain stood on the [MASK] of the ship."], "top_k": 5},
    inputs=_masked_inputs,
    compute=lambda predictor, inputs, settings: predictor.fill_mask_batch(*columns(inputs), settings.top_k or 5),
    reply=[[_FILLED]],
    reply_about="For each text and each of its masks, the most likely tokens.",
    to_row=lambda _, masks: {"masks": masks},
    output=lambda *_: {"masks": [[_FILLED]], ERROR: "text"},
    masked=True,
)
_ORDER = Ability(
    name="order",
    needs=ORDERING,
    heads={"pretraining": ("sop_classifier.", "albert.pooler.")},
    about="Whether two adjacent segments are in order or swapped.",
    row=_text_fields("text", "pair"),
    request={"pairs": Part(["pair"])},
    request_about="Pairs of segments.",
    example={"pairs": [["She opened the letter.", "It was from her brother in Lisbon."]]},
    inputs=lambda body: [tuple(pair) for pair in body["pairs"]],
    compute=lambda predictor, inputs, settings: predictor.order_batch(*columns(inputs)),
    reply={
        "label": "text",
        "score": "number",
        "probability_in_order?": "number",
        "probability_next?": "number",
        "tokens_cut?": "count",
    },
    reply_about="For each pair, its order; a model trained on next-sentence prediction gives `probability_next`.",
    output=_order_fields,
)


# --------------------------------------------------------------------------------------------------------------------
# Tasks of any model: embeddings, and a view of its layers.


def _embed(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    vectors, cut = predictor.embed_counted(*columns(inputs), settings.pooling, settings.normalize, settings.prompt)
    return [{"vector": vector, **tokens_cut_field(tokens)} for vector, tokens in zip(vectors, cut, strict=True)]


def _layers(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[Any]:
    show_layers = lazy_import("albert.inference.inspection").show_layers
    return [show_layers(predictor, text, pair, max_tokens) for text, pair, max_tokens in inputs]


_EMBED = Ability(
    name="embed",
    about="A vector for each text.",
    row=one_text,
    request={
        "texts": Part(["text"]),
        "pooling": Part(
            ("mean", "cls", "max", "weighted"),
            None,
            "Mean of the tokens, the [CLS] token, the maximum, or a mean that weights rare tokens higher; the model's "
            "own if it is not given.",
        ),
        "normalize": Part("flag", None, "Scale vectors to length 1, so that dot products are cosines."),
        "prompt": Part("text", None, "The name of one of the model's prompts, which is written before every text."),
    },
    request_about="Texts to embed.",
    example={"texts": ["A storm at sea.", "Wind and high waves."], "normalize": True},
    compute=_embed,
    reply={"vector": ["number"], "tokens_cut?": "count"},
    reply_about="For each text, its vector of numbers.",
    to_row=lambda _, result: {**result, "embedding": result["vector"]},
    output=lambda *_: {"embedding": ["number"], "tokens_cut": "count"},
)
_LAYERS = Ability(
    name="layers",
    about="Every layer's attention, how far it moves each token, and what a head would predict from its output.",
    request={"text": Part("text"), "pair": Part("text", None)},
    request_about="A text, or a pair of texts.",
    example={"text": "The captain stood on the [MASK] of the ship."},
    inputs=lambda body: [(body["text"], body["pair"], body["layer_tokens"])],
    compute=_layers,
    reply={
        "tokens": ["text"],
        "tokens_cut": "count",
        "heads": "count",
        "attention": "text",
        "distance": ["number"],
        "angle": ["number"],
        "token_distance": [["number"]],
        "masks": [{"position": "count", "layers": [[{"piece": "text", "score": "number"}]]}],
        "labels": ["text"],
        "label_scores": [["number"]],
    },
    reply_about="The layers of the text; layer 0 is the input of the first one.",
)

ABOUT_FIELDS = {
    "tokens_cut": "Tokens of the text that did not fit and were not read.",
    "depth": "Layers that were computed, with early exit.",
    "predicted": "If the model gives several labels to a text: whether it gives this one, by its threshold.",
    "start": "Its first character in the text.",
    "end": "The character after its last one.",
    "attention": "Base64 of one byte for each [layer][head][from token][to token]; 255 stands for 1.",
    "distance": "Mean L2 distance between each layer's input and output (Figure 1).",
    "angle": "Mean angle between them, in degrees (Figure 1).",
    "token_distance": "[layer][token]: the same distance, of each token.",
    "masks": "If the model fills masks and the text has any: the head's predictions after each layer.",
    "labels": "If the model classifies: the names of the labels.",
    "label_scores": "Probabilities of the classifier, [after layer][label].",
}
"""Descriptions of fields of replies."""

ABILITIES: dict[str, Ability] = {
    task.name: task for task in (_CLASSIFY, _SCORE, _ANSWER, _CHOOSE, _TAG, _FILL_MASK, _ORDER, _EMBED, _LAYERS)
}
"""Name -> task."""


def possible_abilities(needs: Sequence[str]) -> list[Ability]:
    """The tasks open to a model with these abilities."""
    return [task for task in ABILITIES.values() if task.needs is None or task.needs in needs]
