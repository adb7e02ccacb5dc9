"""What a model can be asked: one table, `ABILITIES`, that drives files, the command line, HTTP and the page.

An entry says which head an ability needs, how a row of a file and the body of a request become inputs, how these are
answered, and what an answer holds. Nothing here imports torch: the work is done by the methods of a `Predictor`.

A further ability is a further entry: `albert predict --task NAME --input FILE`, `POST /NAME`, its part of
`/openapi.json` and a tab of the page follow from it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from albert.runtime.environment import load_by_name
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


class UnansweredTexts(UsageError):
    """Some of many texts cannot be answered, and why not.

    Args:
        subject: what they are: "text", "context".
        reasons: for each of them, by its number among the texts, what is wrong with it and what to do.
    """

    def __init__(self, subject: str, reasons: Mapping[int, tuple[str, str | None]]) -> None:
        self.reasons = dict(reasons)
        number, (why, remedy) = min(self.reasons.items())
        super().__init__(subject if number == 0 else f"{subject} {number + 1}", why, remedy)

    def only(self, number: int) -> "UnansweredTexts":
        """The error of one of the texts, as if it were alone."""
        return UnansweredTexts(self.subject.split()[0], {0: self.reasons[number]})


# --------------------------------------------------------------------------------------------------------------------
# Rows of files: their fields, and the inputs that are taken from them.

Inputs = tuple[Any, ...]
"""The texts of one question to the model."""


@dataclass(frozen=True)
class Fields:
    """The names of a row's fields."""

    text: str = "text"
    pair: str = "text_pair"
    question: str = "question"
    context: str = "context"
    options: tuple[str, ...] = ("options",)
    """One field with a list, or a field for each option."""


def text_of(record: Record, field: str, flag: str) -> str:
    """A field that must be a text; raises DamagedData, which names the row, where it is absent or something else."""
    if field not in record.fields:
        hint = did_you_mean(field, record.fields)
        raise DamagedData(record.where, f"has no field {field!r}", f"{hint} ({flag} names another)")
    value = record.fields[field]
    if not isinstance(value, str):
        kind = "null" if value is None else type(value).__name__
        raise DamagedData(record.where, f"field {field!r} is {kind}, a text is expected")
    return value


def texts_of(*names: str) -> Callable[[Record, Fields], Inputs]:
    """Takes these fields of a row; one whose name ends in a question mark may be absent, and is None then."""

    def take(record: Record, fields: Fields) -> Inputs:
        texts: list[str | None] = []
        for name in names:
            field = getattr(fields, name.removesuffix("?"))
            is_absent = name.endswith("?") and field not in record.fields
            texts.append(None if is_absent else text_of(record, field, f"--{name.removesuffix('?')}-field"))
        return tuple(texts)

    return take


one_text = texts_of("text")


def text_or_words(record: Record, fields: Fields) -> Inputs:
    """A text, or a list of words."""
    value = record.fields.get(fields.text)
    is_words = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return (value,) if is_words else one_text(record, fields)


def options_in_context(record: Record, fields: Fields) -> Inputs:
    """A context, two options or more, and a question, which may be empty."""
    question, context = texts_of("question?", "context")(record, fields)
    field, *others = fields.options
    if others or field not in record.fields:
        return context, [text_of(record, each, "--options-field") for each in fields.options], question or ""
    options = record.fields[field]
    if not isinstance(options, list) or len(options) < 2 or not all(isinstance(option, str) for option in options):
        raise DamagedData(record.where, f"field {field!r} must be a list of at least two strings")
    return context, options, question or ""


# --------------------------------------------------------------------------------------------------------------------
# The entry of an ability.

ERROR = "error"
"""The field that says why a row has no answer, null where it has one."""
Value = str | list[Any] | dict[str, Any]
"""What a field of an answer holds: "text", "number", "count"; a list of such; or names with such. A name that ends in
a question mark may be absent."""


@dataclass(frozen=True)
class Settings:
    """How texts are answered: options of `albert predict`, and fields of requests under the same names."""

    top_k: int | None = None
    """Guesses for a mask, answers to a question."""
    pooling: Literal["mean", "cls", "weighted"] = "mean"
    normalize: bool = False
    words: bool = False
    """Whether the words to be tagged stand between blanks."""


@dataclass(frozen=True)
class Part:
    """A field of a request: its kind ("text", "pair", "count", "flag", some words to choose from, a list of kinds with
    at least as many members, or names with kinds), its value if it is left out, and what it is for."""

    kind: Any
    default: Any = ...
    about: str = ""


def _one_text_each(body: Mapping[str, Any]) -> Iterable[Inputs]:
    return [(text,) for text in body["texts"]]


@dataclass(frozen=True, kw_only=True)
class Ability:
    """One thing that a model can be asked.

    Attributes:
        name: on the command line (`--task`) and, behind a slash, over HTTP.
        needs: what the model must be able to do, in words; None: any model has it.
        heads: for each kind of model that has it, how the names of the tensors begin that it rests on.
        row: takes the inputs from a row of a file; raises DamagedData. None: not for files.
        request, inputs: the fields of a request, and how its body becomes inputs; `layer_tokens` of the server's limits
            is beside them.
        compute: a result for each of the inputs, by the methods of a `Predictor`; a request's reply holds these.
        reply: what a result is.
        to_row: the fields of a file's row for a result.
        output: of these fields those that are written, and what each holds; "depth?" where texts are decided early.
        windowed: whether a long text is read in windows; else it is cut.
        masked: whether each mask gets `top_k` pieces, of which a reply holds only so many.
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
    to_row: Callable[[Any, Any], Mapping[str, Any]] = lambda predictor, found: found
    output: Callable[[Any, Settings], Mapping[str, Value]] = lambda predictor, settings: {}
    windowed: bool = False
    masked: bool = False

    def output_fields(self, predictor: Any, settings: Settings) -> dict[str, Value]:
        """The fields of every row's answer, in their order, and what each holds."""
        early = predictor.patience is not None
        fields = self.output(predictor, settings).items()
        return {name.removesuffix("?"): value for name, value in fields if early or name != "depth?"}

    def answers(self, predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
        """An answer to each row; one that cannot be given has all fields null but the one that says why."""
        reasons: dict[int, tuple[str, str | None]] = {}
        try:
            results = iter(self.compute(predictor, inputs, settings))
        except UnansweredTexts as error:
            reasons = error.reasons
            others = [each for number, each in enumerate(inputs) if number not in reasons]
            results = iter(self.compute(predictor, others, settings) if others else [])
        names, answers = self.output_fields(predictor, settings), []
        for number in range(len(inputs)):
            if number in reasons:
                found = {ERROR: reasons[number][0]}
            else:
                found = {"tokens_cut": 0, **self.to_row(predictor, next(results))}
            answers.append({name: found.get(name) for name in names})
        return answers


def columns(inputs: Sequence[Inputs]) -> list[list[Any]]:
    """The first texts of all inputs, their second ones, and so on."""
    return [list(each) for each in zip(*inputs, strict=True)]


def said_of_cut(cut: int) -> dict[str, Any]:
    """The field of a result for tokens of its text that were not read; none where all were."""
    return {"tokens_cut": cut} if cut else {}


def _by_kind(
    inputs: Sequence[Any],
    is_first: Callable[[Any], bool],
    first: Callable[[list[Any]], list[Any]],
    second: Callable[[list[Any]], list[Any]],
) -> list[Any]:
    """Answers to inputs of two kinds, each kind computed together, in the order they came."""
    kinds = [is_first(each) for each in inputs]
    answers = {}
    for kind, answer in ((True, first), (False, second)):
        members = [each for each, own in zip(inputs, kinds, strict=True) if own is kind]
        answers[kind] = iter(answer(members) if members else [])
    return [next(answers[kind]) for kind in kinds]


# --------------------------------------------------------------------------------------------------------------------
# Classify, score: texts or pairs to labels or numbers.

_LABEL: dict[str, Value] = {"label": "text", "score": "number", "tokens_cut?": "count", "depth?": "count"}
_HOW_READ: dict[str, Value] = {"depth?": "count", "tokens_cut": "count"}
"""In a row of a file."""


def _paired_inputs(body: Mapping[str, Any]) -> Iterable[Inputs]:
    texts, pairs = body["texts"], body["pairs"]
    if pairs is None:
        return [(text, None) for text in texts]
    if len(pairs) != len(texts):
        raise UsageError("pairs", f"{len(pairs)} for {len(texts)} texts", "give one for each")
    return list(zip(texts, pairs, strict=True))


def _classify(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[Any]:
    return _by_kind(
        inputs,
        lambda each: each[1] is None,
        lambda alone: predictor.classify_batch([text for text, _ in alone]),
        lambda paired: predictor.classify_batch(*columns(paired)),
    )


def _class_row(predictor: Any, ranked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores = {entry["label"]: entry["score"] for entry in ranked}
    likely = [label for label, score in scores.items() if score >= 0.5]
    return {**ranked[0], "labels": likely, "scores": {label: scores[label] for label in predictor.labels}}


def _class_fields(predictor: Any, settings: Settings) -> dict[str, Value]:
    several = predictor.extra.get("problem_type") == "multi_label_classification"
    answer: dict[str, Value] = {"labels": ["text"]} if several else {"label": "text", "score": "number"}
    return {**answer, "scores": dict.fromkeys(predictor.labels, "number"), **_HOW_READ}


_OF_PAIRS: dict[str, Any] = {
    "row": texts_of("text", "pair?"),
    "request": {
        "texts": Part(["text"]),
        "pairs": Part(["text"], None, "The second text of each pair, where the model was trained on pairs."),
    },
    "request_about": "Texts, or as many pairs of a text and a second one.",
    "example": {"texts": ["A fine film, from its first minute to its last.", "Dull."]},
    "inputs": _paired_inputs,
}
"""What classify and score have in common."""
_CLASSIFY = Ability(
    name="classify",
    needs=CLASSIFYING,
    heads={"classification": ("classifier.", "albert.pooler."), "pair_classification": ("pair_classifier.",)},
    about="Every label with its probability, the likeliest first.",
    **_OF_PAIRS,
    compute=_classify,
    reply=[_LABEL],
    reply_about="For each text every label, the likeliest first.",
    to_row=_class_row,
    output=_class_fields,
)
_SCORE = Ability(
    name="score",
    needs=SCORING,
    about="The number that a regression model predicts.",
    **_OF_PAIRS,
    compute=lambda predictor, inputs, settings: [number for (number,) in _classify(predictor, inputs, settings)],
    reply=_LABEL,
    reply_about="For each text its number.",
    output=lambda *_: {"score": "number", **_HOW_READ},
)


# --------------------------------------------------------------------------------------------------------------------
# Answer a question from a text; choose among options.

_QUESTIONS: list[Any] = [{"question": Part("text"), "context": Part("text")}]
_OPTION: dict[str, Value] = {"option": "text", "index": "count", "score": "number"}
_FOUND: dict[str, Value] = {"score": "number", "start": "count", "end": "count", "answer": "text"}


def _answer_fields(predictor: Any, settings: Settings) -> dict[str, Value]:
    others: dict[str, Value] = {"others": [_FOUND]} if (settings.top_k or 1) > 1 else {}
    return {**_FOUND, **others, "tokens_cut": "count", ERROR: "text"}


def _choice_row(predictor: Any, ranked: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    scores = [entry["score"] for entry in sorted(ranked, key=lambda entry: entry["index"])]
    return {**ranked[0], "scores": scores, "tokens_cut": sum(entry.get("tokens_cut", 0) for entry in ranked)}


_ANSWER = Ability(
    name="answer",
    needs=ANSWERING,
    heads={"question_answering": ("qa_outputs.",), "joint_question_answering": ("joint_qa_outputs.",)},
    about="The parts of a context that answer a question best, as exact slices of it; long contexts are read whole.",
    row=texts_of("question", "context"),
    request={"questions": Part(_QUESTIONS), "top_k": Part("count", 1, "How many answers a question gets.")},
    request_about="Questions, each with the text that answers it.",
    example={
        "questions": [
            {"question": "Where was the whale seen?", "context": "In 1866 a whale was seen off the coast of Australia."}
        ],
        "top_k": 1,
    },
    inputs=lambda body: [(each["question"], each["context"]) for each in body["questions"]],
    compute=lambda predictor, inputs, settings: predictor.answer_batch(*columns(inputs), settings.top_k or 1),
    reply=[{**_FOUND, "tokens_cut?": "count"}],
    reply_about="For each question its answers, the likeliest first; an empty one says that there is no answer.",
    to_row=lambda _, found: {**found[0], "others": [{name: other[name] for name in _FOUND} for other in found[1:]]},
    output=_answer_fields,
    windowed=True,
)
_CHOOSE = Ability(
    name="choose",
    needs=CHOOSING,
    heads={"multiple_choice": ("classifier.", "albert.pooler.")},
    about="The options, the likeliest first; each counts as a text.",
    row=options_in_context,
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
    inputs=lambda body: [(each["context"], tuple(each["options"]), each["question"]) for each in body["questions"]],
    compute=lambda predictor, inputs, settings: predictor.choose_batch(*columns(inputs)),
    reply=[{**_OPTION, "tokens_cut?": "count", "depth?": "count"}],
    reply_about="For each question its options, the likeliest first.",
    to_row=_choice_row,
    output=lambda *_: {**_OPTION, "scores": ["number"], **_HOW_READ},
)


# --------------------------------------------------------------------------------------------------------------------
# Tag words, fill masks, judge the order of two segments.

_TAGGED: Value = {"word": "text", "entity": "text", "score": "number", "start": "count", "end": "count"}
_GUESS: Value = {"score": "number", "token": "count", "token_str": "text", "sequence": "text"}


def _tag(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[Any]:
    return _by_kind(
        [text.split() if settings.words and isinstance(text, str) else text for (text,) in inputs],
        lambda text: isinstance(text, str),
        predictor.tag_batch,
        predictor.tag_sentences,
    )


def _masked_inputs(body: Mapping[str, Any]) -> Iterable[Inputs]:
    if unmasked := [text for text in body["texts"] if MASK not in text]:
        raise UsageError("texts", f"{len(unmasked)} without {MASK}", NO_MASK)
    return _one_text_each(body)


def _order_fields(predictor: Any, settings: Settings) -> dict[str, Value]:
    objective = predictor.extra.get("sentence_objective")
    probability = "probability_next" if objective == "nsp" else "probability_in_order"
    return {"label": "text", "score": "number", probability: "number", "tokens_cut": "count"}


_TAG = Ability(
    name="tag",
    needs=TAGGING,
    heads={"token_classification": ("classifier.",)},
    about="The likeliest label of every word, with the word's place in the text; long texts are read whole.",
    row=text_or_words,
    request={"texts": Part(["text"])},
    request_about="One text or many.",
    example={"texts": ["The captain of the Nautilus was a strange man."]},
    compute=_tag,
    reply=[_TAGGED],
    reply_about="For each text its words, with their characters `start`..`end` in it.",
    to_row=lambda _, words: {"tags": words},
    output=lambda *_: {"tags": [_TAGGED]},
    windowed=True,
)
_FILL_MASK = Ability(
    name="fill-mask",
    needs=FILLING,
    heads={"pretraining": ("predictions.",), "masked_lm": ("predictions.",)},
    about="The likeliest pieces for each `[MASK]`.",
    row=one_text,
    request={"texts": Part(["text"]), "top_k": Part("count", 5, "How many pieces a mask gets.")},
    request_about="Texts with `[MASK]` in them, once or several times.",
    example={"texts": ["The captain stood on the [MASK] of the ship."], "top_k": 5},
    inputs=_masked_inputs,
    compute=lambda predictor, inputs, settings: predictor.fill_mask_batch(*columns(inputs), settings.top_k or 5),
    reply=[[_GUESS]],
    reply_about="For each text and each of its masks, the likeliest pieces.",
    to_row=lambda _, masks: {"masks": masks},
    output=lambda *_: {"masks": [[_GUESS]], ERROR: "text"},
    masked=True,
)
_ORDER = Ability(
    name="order",
    needs=ORDERING,
    heads={"pretraining": ("sop_classifier.", "albert.pooler.")},
    about="Whether two adjacent segments are in their order, or swapped.",
    row=texts_of("text", "pair"),
    request={"pairs": Part(["pair"])},
    request_about="Two segments each, which are in their order or swapped.",
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
    reply_about="For each pair its order; a model that learnt next sentences says `probability_next` instead.",
    output=_order_fields,
)


# --------------------------------------------------------------------------------------------------------------------
# What any model can do: vectors of texts, and a look at its layers.


def _embed(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    vectors, cut = predictor.embed_counted(*columns(inputs), settings.pooling, settings.normalize)
    return [{"vector": vector, **said_of_cut(tokens)} for vector, tokens in zip(vectors, cut, strict=True)]


def _layers(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[Any]:
    show_layers = load_by_name("albert.inference.inspection").show_layers
    return [show_layers(predictor, text, pair, most_tokens) for text, pair, most_tokens in inputs]


_EMBED = Ability(
    name="embed",
    about="A vector for each text.",
    row=one_text,
    request={
        "texts": Part(["text"]),
        "pooling": Part(
            ("mean", "cls", "weighted"),
            "mean",
            "The mean of a text's tokens, its [CLS], or a mean of its rarer pieces.",
        ),
        "normalize": Part("flag", False, "Vectors of length one, whose products are cosines."),
    },
    request_about="Texts to become vectors.",
    example={"texts": ["A storm at sea.", "Wind and high waves."], "normalize": True},
    compute=_embed,
    reply={"vector": ["number"], "tokens_cut?": "count"},
    reply_about="For each text its vector, of as many numbers as the model is wide.",
    to_row=lambda _, found: {**found, "embedding": found["vector"]},
    output=lambda *_: {"embedding": ["number"], "tokens_cut": "count"},
)
_LAYERS = Ability(
    name="layers",
    about="What every layer makes of a text: attention, how far it moves each token, and what a head would say there.",
    request={"text": Part("text"), "pair": Part("text", None)},
    request_about="A text, or a pair, whose way through the layers is shown.",
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
    reply_about="The one text's layers; layer 0 is what goes into the first one.",
)

ABOUT_FIELDS = {
    "tokens_cut": "Tokens of the text that did not fit and were not read.",
    "depth": "Layers after which the text was decided, where that may be early.",
    "start": "The first character of it in the text.",
    "end": "The character after its last one.",
    "attention": "Base64 of one byte for each [layer][head][from token][to token]; 255 stands for 1.",
    "distance": "Mean L2 distance between each layer's input and output (Figure 1).",
    "angle": "Mean angle between them, in degrees (Figure 1).",
    "token_distance": "[layer][token]: the same distance, of each token.",
    "masks": "Where the model fills masks and the text has some: what the head says there after each layer.",
    "labels": "Where the model classifies: the names, of the probabilities below.",
    "label_scores": "What the classifier says [after layer][label].",
}
"""What fields of replies hold, where their names do not say it."""

ABILITIES: dict[str, Ability] = {
    each.name: each for each in (_CLASSIFY, _SCORE, _ANSWER, _CHOOSE, _TAG, _FILL_MASK, _ORDER, _EMBED, _LAYERS)
}
"""All of them, by name."""


def possible_abilities(needs: Sequence[str]) -> list[Ability]:
    """The abilities of a model that can do these things, in words."""
    return [each for each in ABILITIES.values() if each.needs is None or each.needs in needs]
