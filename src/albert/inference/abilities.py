"""What a model can be asked: one table, `ABILITIES`, that drives files, the command line, HTTP and the page.

An entry says which head an ability needs, how a row of a file and the body of a request become inputs, how these are
answered, and what an answer holds. Nothing here imports torch: the work is done by the methods of a `Predictor`.

A further ability is a further entry: `albert predict --task NAME --input FILE`, `POST /NAME`, its part of
`/openapi.json` and a tab of the page follow from it."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
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
    """How a row is answered: guesses for a mask, answers to a question, how vectors are pooled, what the words are."""

    top_k: int | None = None
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


@dataclass(frozen=True, kw_only=True)
class Ability:
    """One thing that a model can be asked.

    Attributes:
        name: on the command line (`--task`) and, behind a slash, over HTTP.
        needs: what the model must be able to do, in words; None: any model has it.
        heads: for each kind of model that has it, how the names of the tensors begin that it rests on.
        row: takes the inputs from a row of a file; raises DamagedData. None: not for files.
        predict: answers to many inputs of rows, each with the fields that `gives` names.
        gives: the fields of an answer, and what each holds.
        options: the fields of a request that are passed to `compute` by name.
        compute: answers to the inputs of requests, in their order.
        windowed: whether a long text is read in windows; else it is cut.
        masked: whether each mask gets `top_k` pieces, of which a reply holds only so many.
        page: the tab of the page: title, hint, fields, examples, and the script's function that shows an answer.
    """

    name: str
    needs: str | None = None
    heads: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    about: str = ""
    row: Callable[[Record, Fields], Inputs] | None = None
    predict: Callable[[Any, Sequence[Inputs], Settings], list[dict[str, Any]]] | None = None
    gives: Callable[[Any, Settings], dict[str, Value]] = lambda predictor, settings: {}
    request: Mapping[str, Part]
    request_about: str
    example: Mapping[str, Any]
    inputs: Callable[[Mapping[str, Any]], Iterable[Inputs]]
    options: Callable[[Mapping[str, Any]], dict[str, Hashable]] = lambda body: {}
    compute: Callable[..., Sequence[Any]]
    reply: Value
    reply_about: str
    windowed: bool = False
    masked: bool = False
    page: Mapping[str, Any] | None = None

    def answers(self, predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
        """An answer to each row; one that cannot be given has all fields null but the one that says why."""
        assert self.predict is not None, f"{self.name} is not for files"
        names = self.gives(predictor, settings)
        refused: dict[int, tuple[str, str | None]] = {}
        try:
            answers = self.predict(predictor, inputs, settings)
        except UnansweredTexts as error:
            refused = error.reasons
            others = [each for number, each in enumerate(inputs) if number not in refused]
            answered = iter(self.predict(predictor, others, settings) if others else [])
            nothing: dict[str, Any] = dict.fromkeys(names)
            answers = [nothing if number in refused else next(answered) for number in range(len(inputs))]
        if ERROR not in names:
            return answers
        why = [refused[number][0] if number in refused else None for number in range(len(inputs))]
        return [{**answer, ERROR: reason} for answer, reason in zip(answers, why, strict=True)]


def columns(inputs: Sequence[Inputs]) -> list[list[Any]]:
    """The first texts of all inputs, their second ones, and so on."""
    return [list(each) for each in zip(*inputs, strict=True)]


def said_of_cut(cut: int) -> dict[str, Any]:
    """The field of a result for tokens of its text that were not read; none where all were."""
    return {"tokens_cut": cut} if cut else {}


# --------------------------------------------------------------------------------------------------------------------
# Classify, score: texts or pairs to labels or numbers.

_LABEL: dict[str, Value] = {"label": "text", "score": "number", "tokens_cut?": "count", "depth?": "count"}


def _paired_inputs(body: Mapping[str, Any]) -> Iterable[Inputs]:
    texts, pairs = body["texts"], body["pairs"]
    if pairs is None:
        return [(text, None) for text in texts]
    if len(pairs) != len(texts):
        raise UsageError("pairs", f"{len(pairs)} for {len(texts)} texts", "give one for each")
    return list(zip(texts, pairs, strict=True))


def _labels(predictor: Any, inputs: Sequence[Inputs], paired: bool) -> Sequence[Any]:
    texts, pairs = columns(inputs)
    return predictor.classify_batch(texts, pairs if paired else None)


def _labels_of_rows(predictor: Any, inputs: Sequence[Inputs]) -> list[Any]:
    return _by_kind(
        inputs,
        lambda each: each[1] is None,
        lambda alone: predictor.classify_batch([text for text, _ in alone]),
        lambda paired: predictor.classify_batch([text for text, _ in paired], [pair for _, pair in paired]),
    )


def _by_kind(
    inputs: Sequence[Any],
    is_first: Callable[[Any], bool],
    first: Callable[[list[Any]], list[Any]],
    second: Callable[[list[Any]], list[Any]],
) -> list[Any]:
    """Answers to inputs of two kinds, each kind computed together, in the order they came."""
    answers = {
        kind: iter(answer(members) if members else [])
        for kind, answer in ((True, first), (False, second))
        for members in [[each for each in inputs if is_first(each) == kind]]
    }
    return [next(answers[is_first(each)]) for each in inputs]


def _depth(predictor: Any, entry: dict[str, Any]) -> dict[str, int]:
    return {} if predictor.patience is None else {"depth": entry["depth"]}


def _depth_field(predictor: Any) -> dict[str, Value]:
    return {} if predictor.patience is None else {"depth": "count"}


def _classify(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    answers = []
    for ranked in _labels_of_rows(predictor, inputs):
        scores = {entry["label"]: entry["score"] for entry in ranked}
        best = ranked[0]
        answer = {"label": best["label"], "score": best["score"]}
        if predictor.extra.get("problem_type") == "multi_label_classification":
            answer = {"labels": [label for label, score in scores.items() if score >= 0.5]}
        ordered = {label: scores[label] for label in predictor.labels}
        cut = best.get("tokens_cut", 0)
        answers.append({**answer, "scores": ordered, **_depth(predictor, best), "tokens_cut": cut})
    return answers


def _class_fields(predictor: Any, settings: Settings) -> dict[str, Value]:
    several = predictor.extra.get("problem_type") == "multi_label_classification"
    answer: dict[str, Value] = {"labels": ["text"]} if several else {"label": "text", "score": "number"}
    scores: dict[str, Value] = {"scores": dict.fromkeys(predictor.labels, "number")}
    return {**answer, **scores, **_depth_field(predictor), "tokens_cut": "count"}


def _score(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    return [
        {"score": entry["score"], **_depth(predictor, entry), "tokens_cut": entry.get("tokens_cut", 0)}
        for (entry,) in _labels_of_rows(predictor, inputs)
    ]


def _box(name: str, label: str, rows: int, **more: bool) -> dict[str, Any]:
    """A field of the page: its name in the script, its label, and how many lines it shows."""
    return {"name": name, "label": label, "rows": rows, **more}


_OF_PAIRS: dict[str, Any] = {
    "row": texts_of("text", "pair?"),
    "request": {
        "texts": Part(["text"]),
        "pairs": Part(["text"], None, "The second text of each pair, where the model was trained on pairs."),
    },
    "request_about": "Texts, or as many pairs of a text and a second one.",
    "example": {"texts": ["A fine film, from its first minute to its last.", "Dull."]},
    "inputs": _paired_inputs,
    "options": lambda body: {"paired": body["pairs"] is not None},
}
"""What classify and score have in common."""
_SHIP = "The captain stood on the deck of the ship and looked at the dark water."
_PASSAGE = (
    "The Nautilus left the harbour of Lisbon in the spring of 1867. Captain Nemo stood on the bridge; beside him lay a "
    "chart of the Pacific Ocean, on which a small island had been marked in red."
)
_CLASSIFY = Ability(
    name="classify",
    needs=CLASSIFYING,
    heads={"classification": ("classifier.", "albert.pooler."), "pair_classification": ("pair_classifier.",)},
    about="Every label with its probability, the likeliest first.",
    predict=_classify,
    gives=_class_fields,
    **_OF_PAIRS,
    compute=_labels,
    reply=[_LABEL],
    reply_about="For each text every label, the likeliest first.",
    page={
        "title": "Classify",
        "hint": "Every label with its probability.",
        "fields": [_box("text", "Text", 4), _box("pair", "Second text", 2, optional=True, only_pairs=True)],
        "examples": [
            {"text": _SHIP},
            {"text": "A fine film, from its first minute to its last."},
            {"text": "Two hours that nobody will give me back."},
        ],
    },
)
_SCORE = Ability(
    name="score",
    needs=SCORING,
    about="The number that a regression model predicts.",
    predict=_score,
    gives=lambda predictor, _: {"score": "number", **_depth_field(predictor), "tokens_cut": "count"},
    **_OF_PAIRS,
    compute=lambda predictor, inputs, paired: [number for (number,) in _labels(predictor, inputs, paired)],
    reply=_LABEL,
    reply_about="For each text its number.",
    page={
        "title": "Score",
        "hint": "The number that the model predicts.",
        "fields": [_box("text", "Text", 4), _box("pair", "Second text", 2, optional=True, only_pairs=True)],
        "examples": [{"text": "A man plays a guitar.", "pair": "Somebody makes music."}, {"text": _SHIP}],
    },
)


# --------------------------------------------------------------------------------------------------------------------
# Answer a question from a text; choose among options.

_QUESTIONS: list[Any] = [{"question": Part("text"), "context": Part("text")}]
_FOUND: dict[str, Value] = {"score": "number", "start": "count", "end": "count", "answer": "text"}


def _answer(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    questions, contexts = columns(inputs)
    answers = []
    for best, *others in predictor.answer_batch(questions, contexts, settings.top_k or 1):
        cut = best.pop("tokens_cut", 0)
        more = [{key: other[key] for key in best} for other in others]
        answers.append({**best, **({"others": more} if (settings.top_k or 1) > 1 else {}), "tokens_cut": cut})
    return answers


def _answer_fields(predictor: Any, settings: Settings) -> dict[str, Value]:
    others: dict[str, Value] = {"others": [_FOUND]} if (settings.top_k or 1) > 1 else {}
    return {**_FOUND, **others, "tokens_cut": "count", ERROR: "text"}


def _choose(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    answers = []
    for ranked in predictor.choose_batch(*columns(inputs)):
        best = ranked[0]
        scores = [entry["score"] for entry in sorted(ranked, key=lambda entry: entry["index"])]
        cut = sum(entry.get("tokens_cut", 0) for entry in ranked)
        answer = {key: best[key] for key in ("option", "index", "score")}
        answers.append({**answer, "scores": scores, **_depth(predictor, best), "tokens_cut": cut})
    return answers


def _choice_fields(predictor: Any, settings: Settings) -> dict[str, Value]:
    answer: dict[str, Value] = {"option": "text", "index": "count", "score": "number", "scores": ["number"]}
    return {**answer, **_depth_field(predictor), "tokens_cut": "count"}


_ANSWER = Ability(
    name="answer",
    needs=ANSWERING,
    heads={"question_answering": ("qa_outputs.",), "joint_question_answering": ("joint_qa_outputs.",)},
    about="The parts of a context that answer a question best, as exact slices of it; long contexts are read whole.",
    row=texts_of("question", "context"),
    predict=_answer,
    gives=_answer_fields,
    request={"questions": Part(_QUESTIONS), "top_k": Part("count", 1, "How many answers a question gets.")},
    request_about="Questions, each with the text that answers it.",
    example={
        "questions": [
            {"question": "Where was the whale seen?", "context": "In 1866 a whale was seen off the coast of Australia."}
        ],
        "top_k": 1,
    },
    inputs=lambda body: [(each["question"], each["context"]) for each in body["questions"]],
    options=lambda body: {"top_k": body["top_k"]},
    compute=lambda predictor, inputs, top_k: predictor.answer_batch(*columns(inputs), top_k),
    reply=[{**_FOUND, "tokens_cut?": "count"}],
    reply_about="For each question its answers, the likeliest first; an empty one says that there is no answer.",
    windowed=True,
    page={
        "title": "Answer",
        "hint": "The answer is a part of the text, word for word.",
        "fields": [_box("question", "Question", 2), _box("context", "Text", 8)],
        "examples": [
            {"question": "Who stood on the bridge?", "context": _PASSAGE},
            {"question": "When did the Nautilus leave?", "context": _PASSAGE},
        ],
    },
)
_CHOOSE = Ability(
    name="choose",
    needs=CHOOSING,
    heads={"multiple_choice": ("classifier.", "albert.pooler.")},
    about="The options, the likeliest first; each counts as a text.",
    row=options_in_context,
    predict=_choose,
    gives=_choice_fields,
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
    compute=lambda predictor, inputs: predictor.choose_batch(*columns(inputs)),
    reply=[{"option": "text", "index": "count", "score": "number", "tokens_cut?": "count", "depth?": "count"}],
    reply_about="For each question its options, the likeliest first.",
    page={
        "title": "Choose",
        "hint": "One option a line, two at least.",
        "fields": [
            _box("context", "Text", 5),
            _box("question", "Question", 2, optional=True),
            _box("options", "Options", 4),
        ],
        "examples": [
            {
                "context": _PASSAGE,
                "question": "What was marked on the chart?",
                "options": "an island\na harbour\na ship\nLisbon",
            }
        ],
    },
)


# --------------------------------------------------------------------------------------------------------------------
# Tag words, fill masks, judge the order of two segments.

_TAGGED: Value = {"word": "text", "entity": "text", "score": "number", "start": "count", "end": "count"}
_GUESS: Value = {"score": "number", "token": "count", "token_str": "text", "sequence": "text"}


def _tag(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    tags = _by_kind(
        [text.split() if settings.words and isinstance(text, str) else text for (text,) in inputs],
        lambda text: isinstance(text, str),
        predictor.tag_batch,
        predictor.tag_sentences,
    )
    return [{"tags": words} for words in tags]


def _fill(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    return [{"masks": masks} for masks in predictor.fill_mask_batch([text for (text,) in inputs], settings.top_k or 5)]


def _masked_inputs(body: Mapping[str, Any]) -> Iterable[Inputs]:
    if unmasked := [text for text in body["texts"] if MASK not in text]:
        raise UsageError("texts", f"{len(unmasked)} without {MASK}", NO_MASK)
    return [(text,) for text in body["texts"]]


def _order(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    answers = predictor.order_batch(*columns(inputs))
    return [{**answer, "tokens_cut": answer.get("tokens_cut", 0)} for answer in answers]


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
    predict=_tag,
    gives=lambda *_: {"tags": [_TAGGED]},
    request={"texts": Part(["text"])},
    request_about="One text or many.",
    example={"texts": ["The captain of the Nautilus was a strange man."]},
    inputs=lambda body: [(text,) for text in body["texts"]],
    compute=lambda predictor, inputs: predictor.tag_batch([text for (text,) in inputs]),
    reply=[_TAGGED],
    reply_about="For each text its words, with their characters `start`..`end` in it.",
    windowed=True,
    page={
        "title": "Tag words",
        "hint": "Every word with its label.",
        "fields": [_box("text", "Text", 6)],
        "examples": [{"text": _PASSAGE}, {"text": _SHIP}],
    },
)
_FILL_MASK = Ability(
    name="fill-mask",
    needs=FILLING,
    heads={"pretraining": ("predictions.",), "masked_lm": ("predictions.",)},
    about="The likeliest pieces for each `[MASK]`.",
    row=one_text,
    predict=_fill,
    gives=lambda *_: {"masks": [[_GUESS]], ERROR: "text"},
    request={"texts": Part(["text"]), "top_k": Part("count", 5, "How many pieces a mask gets.")},
    request_about="Texts with `[MASK]` in them, once or several times.",
    example={"texts": ["The captain stood on the [MASK] of the ship."], "top_k": 5},
    inputs=_masked_inputs,
    options=lambda body: {"top_k": body["top_k"]},
    compute=lambda predictor, inputs, top_k: predictor.fill_mask_batch([text for (text,) in inputs], top_k),
    reply=[[_GUESS]],
    reply_about="For each text and each of its masks, the likeliest pieces.",
    masked=True,
    page={
        "title": "Fill a mask",
        "hint": "Write [MASK] where a word is to be found, once or several times.",
        "fields": [_box("text", "Text", 4)],
        "examples": [
            {"text": "The captain stood on the [MASK] of the ship."},
            {"text": "She opened the [MASK] and read it by the fire."},
            {"text": "It was a [MASK] and [MASK] night."},
        ],
    },
)
_ORDER = Ability(
    name="order",
    needs=ORDERING,
    heads={"pretraining": ("sop_classifier.", "albert.pooler.")},
    about="Whether two adjacent segments are in their order, or swapped.",
    row=texts_of("text", "pair"),
    predict=_order,
    gives=_order_fields,
    request={"pairs": Part(["pair"])},
    request_about="Two segments each, which are in their order or swapped.",
    example={"pairs": [["She opened the letter.", "It was from her brother in Lisbon."]]},
    inputs=lambda body: [tuple(pair) for pair in body["pairs"]],
    compute=lambda predictor, inputs: predictor.order_batch(*columns(inputs)),
    reply={
        "label": "text",
        "score": "number",
        "probability_in_order?": "number",
        "probability_next?": "number",
        "tokens_cut?": "count",
    },
    reply_about="For each pair its order; a model that learnt next sentences says `probability_next` instead.",
    page={
        "title": "Order",
        "hint": "Are two adjacent segments in the order in which they were written?",
        "fields": [_box("first", "First segment", 3), _box("second", "Second segment", 3)],
        "examples": [
            {"first": "She opened the letter.", "second": "It was from her brother in Lisbon."},
            {"first": "It was from her brother in Lisbon.", "second": "She opened the letter."},
        ],
    },
)


# --------------------------------------------------------------------------------------------------------------------
# What any model can do: vectors of texts, and a look at its layers.


def _embed(predictor: Any, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    vectors, cut = predictor.embed_counted([text for (text,) in inputs], settings.pooling, settings.normalize)
    return [{"embedding": vector, "tokens_cut": count} for vector, count in zip(vectors, cut, strict=True)]


def _vectors(predictor: Any, inputs: Sequence[Inputs], pooling: Any, normalize: bool) -> Sequence[Any]:
    vectors, cut = predictor.embed_counted([text for (text,) in inputs], pooling, normalize)
    return [{"vector": vector, **said_of_cut(tokens)} for vector, tokens in zip(vectors, cut, strict=True)]


def _layers(predictor: Any, inputs: Sequence[Inputs], most_tokens: int) -> Sequence[Any]:
    show_layers = load_by_name("albert.inference.inspection").show_layers
    return [show_layers(predictor, text, pair, most_tokens) for text, pair in inputs]


_EMBED = Ability(
    name="embed",
    about="A vector for each text.",
    row=one_text,
    predict=_embed,
    gives=lambda *_: {"embedding": ["number"], "tokens_cut": "count"},
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
    inputs=lambda body: [(text,) for text in body["texts"]],
    options=lambda body: {"pooling": body["pooling"], "normalize": body["normalize"]},
    compute=_vectors,
    reply={"vector": ["number"], "tokens_cut?": "count"},
    reply_about="For each text its vector, of as many numbers as the model is wide.",
    page={
        "title": "Compare",
        "hint": "How near two texts are: the cosine of their vectors.",
        "fields": [_box("first", "One text", 3), _box("second", "Another", 3)],
        "examples": [
            {"first": "A storm at sea.", "second": "Wind and high waves."},
            {"first": "A storm at sea.", "second": "The doctor wrote a letter."},
        ],
    },
)
_LAYERS = Ability(
    name="layers",
    about="What every layer makes of a text: attention, how far it moves each token, and what a head would say there.",
    request={"text": Part("text"), "pair": Part("text", None)},
    request_about="A text, or a pair, whose way through the layers is shown.",
    example={"text": "The captain stood on the [MASK] of the ship."},
    inputs=lambda body: [(body["text"], body["pair"])],
    options=lambda body: {"most_tokens": body["layer_tokens"]},
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
