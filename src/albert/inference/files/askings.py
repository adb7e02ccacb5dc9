"""All ways to ask the rows of a file, by the names that they have on the command line."""

from collections.abc import Callable, Sequence
from typing import Any

from albert.inference.abilities import (
    ANSWERING,
    CHOOSING,
    CLASSIFYING,
    FILLING,
    ORDERING,
    SCORING,
    TAGGING,
)
from albert.inference.files.asked_fields import (
    Inputs,
    one_text,
    options_in_context,
    question_in_context,
    text_and_perhaps_pair,
    text_or_words,
    two_texts,
)
from albert.inference.files.asking import ERROR, Asking, Settings, Value
from albert.inference.predictor import Predictor
from albert.runtime.errors import InvalidConfiguration, UsageError


def asking_for(predictor: Predictor, name: str | None) -> Asking:
    """The way to ask that is named, or the one that the model is for.

    Raises:
        UsageError: nobody said which of several.
        InvalidConfiguration: the model has no head for it.
    """
    possible = [asking for asking in ASKINGS.values() if asking.ability in predictor.abilities]
    if name is None:
        if len(possible) > 1:
            known = " or ".join(asking.name for asking in possible)
            raise UsageError("--ask", f"{predictor.name} can do several things", f"say {known}")
        return possible[0] if possible else ASKINGS["embed"]
    asking = ASKINGS[name]
    if asking.ability is not None and asking not in possible:
        can = " and ".join(predictor.abilities) or "only embed texts"
        raise InvalidConfiguration(predictor.name, f"has no trained head to {asking.ability}", f"this model can {can}")
    return asking


def _classify(predictor: Predictor, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    found = []
    for ranked in _of_texts_and_pairs(predictor, inputs):
        scores = {entry["label"]: entry["score"] for entry in ranked}
        best = ranked[0]
        given = {"label": best["label"], "score": best["score"]}
        if predictor.extra.get("problem_type") == "multi_label_classification":
            given = {"labels": [label for label, score in scores.items() if score >= 0.5]}
        ordered = {label: scores[label] for label in predictor.labels}
        found.append({**given, "scores": ordered, **_depth(predictor, best), "tokens_cut": best.get("tokens_cut", 0)})
    return found


def _class_fields(predictor: Predictor, settings: Settings) -> dict[str, Value]:
    several = predictor.extra.get("problem_type") == "multi_label_classification"
    given: dict[str, Value] = {"labels": ["text"]} if several else {"label": "text", "score": "number"}
    scores: dict[str, Value] = {"scores": dict.fromkeys(predictor.labels, "number")}
    return {**given, **scores, **_depth_field(predictor), "tokens_cut": "count"}


def _score(predictor: Predictor, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    return [
        {"score": entry["score"], **_depth(predictor, entry), "tokens_cut": entry.get("tokens_cut", 0)}
        for (entry,) in _of_texts_and_pairs(predictor, inputs)
    ]


def _answer(predictor: Predictor, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    questions, contexts = ([each[place] for each in inputs] for place in range(2))
    found = []
    for best, *others in predictor.answer_batch(questions, contexts, settings.top_k or 1):
        cut = best.pop("tokens_cut", 0)
        more = [{key: other[key] for key in best} for other in others]
        found.append({**best, **({"others": more} if (settings.top_k or 1) > 1 else {}), "tokens_cut": cut})
    return found


def _answer_fields(predictor: Predictor, settings: Settings) -> dict[str, Value]:
    one: dict[str, Value] = {"score": "number", "start": "count", "end": "count", "answer": "text"}
    return {**one, **({"others": [one]} if (settings.top_k or 1) > 1 else {}), "tokens_cut": "count", ERROR: "text"}


def _choose(predictor: Predictor, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    contexts, options, questions = ([each[place] for each in inputs] for place in range(3))
    found = []
    for ranked in predictor.choose_batch(contexts, options, questions):
        best = ranked[0]
        scores = [entry["score"] for entry in sorted(ranked, key=lambda entry: entry["index"])]
        cut = sum(entry.get("tokens_cut", 0) for entry in ranked)
        given = {key: best[key] for key in ("option", "index", "score")}
        found.append({**given, "scores": scores, **_depth(predictor, best), "tokens_cut": cut})
    return found


def _tag(predictor: Predictor, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    tags = _by_kind(
        [given.split() if settings.words and isinstance(given, str) else given for (given,) in inputs],
        lambda given: isinstance(given, str),
        predictor.tag_batch,
        predictor.tag_sentences,
    )
    return [{"tags": words} for words in tags]


def _fill(predictor: Predictor, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    return [{"masks": masks} for masks in predictor.fill_mask_batch([text for (text,) in inputs], settings.top_k or 5)]


def _order(predictor: Predictor, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    firsts, seconds = ([each[place] for each in inputs] for place in range(2))
    return [{**found, "tokens_cut": found.get("tokens_cut", 0)} for found in predictor.order_batch(firsts, seconds)]


def _order_fields(predictor: Predictor, settings: Settings) -> dict[str, Value]:
    objective = predictor.extra.get("sentence_objective")
    probability = "probability_next" if objective == "nsp" else "probability_in_order"
    return {"label": "text", "score": "number", probability: "number", "tokens_cut": "count"}


def _embed(predictor: Predictor, inputs: Sequence[Inputs], settings: Settings) -> list[dict[str, Any]]:
    vectors, cut = predictor.embed_counted([text for (text,) in inputs], settings.pooling, settings.normalize)
    return [{"embedding": vector, "tokens_cut": count} for vector, count in zip(vectors, cut, strict=True)]


def _of_texts_and_pairs(predictor: Predictor, inputs: Sequence[Inputs]) -> list[Any]:
    """The labels of texts, some of which may come with a pair."""
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
    """Answers to inputs of two kinds, each kind asked together, in the order they came."""
    answers = {
        kind: iter(ask(members) if members else [])
        for kind, ask in ((True, first), (False, second))
        for members in [[each for each in inputs if is_first(each) == kind]]
    }
    return [next(answers[is_first(each)]) for each in inputs]


def _depth(predictor: Predictor, entry: dict[str, Any]) -> dict[str, int]:
    return {} if predictor.patience is None else {"depth": entry["depth"]}


def _depth_field(predictor: Predictor) -> dict[str, Value]:
    return {} if predictor.patience is None else {"depth": "count"}


_TAGGED: Value = {"word": "text", "entity": "text", "score": "number", "start": "count", "end": "count"}
_GUESS: Value = {"score": "number", "token": "count", "token_str": "text", "sequence": "text"}
ASKINGS: dict[str, Asking] = {
    asking.name: asking
    for asking in (
        Asking("classify", CLASSIFYING, text_and_perhaps_pair, _classify, _class_fields),
        Asking(
            "score",
            SCORING,
            text_and_perhaps_pair,
            _score,
            lambda predictor, _: {"score": "number", **_depth_field(predictor), "tokens_cut": "count"},
        ),
        Asking("answer", ANSWERING, question_in_context, _answer, _answer_fields),
        Asking(
            "choose",
            CHOOSING,
            options_in_context,
            _choose,
            lambda predictor, _: {
                "option": "text",
                "index": "count",
                "score": "number",
                "scores": ["number"],
                **_depth_field(predictor),
                "tokens_cut": "count",
            },
        ),
        Asking("tag", TAGGING, text_or_words, _tag, lambda *_: {"tags": [_TAGGED]}),
        Asking("fill-mask", FILLING, one_text, _fill, lambda *_: {"masks": [[_GUESS]], ERROR: "text"}),
        Asking("order", ORDERING, two_texts, _order, _order_fields),
        Asking("embed", None, one_text, _embed, lambda *_: {"embedding": ["number"], "tokens_cut": "count"}),
    )
}
