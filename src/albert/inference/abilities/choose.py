"""Multiple choice: which of the options fits a context and a question.

Each option becomes a sequence, `[CLS] context [SEP] question option [SEP]`, as in training
(`albert.tasks.multiple_choice`); the head gives a score to each, and the scores of a question's options compete."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, NotRequired, TypedDict

import numpy as np

from albert.inference.abilities.base import (
    Ability,
    Bounds,
    Fields,
    Lengths,
    Settings,
    TokensCut,
    optional_text_of,
    text_of,
    tokens_cut_field,
)
from albert.inference.texts import check_lists, check_pairs, check_texts
from albert.runtime.errors import DamagedData, UsageError
from albert.runtime.words import counted
from albert.tables.records import Record

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output
    from albert.inference.predictor import Predictor


class Choice(NamedTuple):
    """An input: what the options are about, the options, and a question, which may be empty."""

    context: str
    options: tuple[str, ...]
    question: str


@dataclass(frozen=True)
class ChooseQuestion:
    """One of them."""

    context: str
    options: Annotated[list[str], Bounds(2)]
    question: str = ""


@dataclass(frozen=True)
class ChooseRequest:
    """Questions with options to choose from."""

    questions: Annotated[list[ChooseQuestion], Bounds(1)]


class RankedOption(TypedDict):
    """An option, its index in the input, and its probability."""

    option: str
    index: int
    score: float
    tokens_cut: NotRequired[TokensCut]


class Choose(Ability):
    """The options of a question, most likely first."""

    name = "choose"
    about = "The options, most likely first; each counts as a text."
    needs = "choose among options"
    heads: ClassVar = {"multiple_choice": ("classifier.", "albert.pooler.")}
    lengths = Lengths(512, 128, 128)  # of the paper's recipe for RACE (Table 14)

    # ---- A row of a file: a context, at least two options, and a question if there is one --------------------------

    options = ("--question-field", "--context-field", "--options")

    def read(self, record: Record, fields: Fields) -> Choice:
        """Options are a list in one field, or each has its own field, where empty ones are absent."""
        question = None
        if fields.question:
            question = optional_text_of(record, fields.question, Fields.question, "--question")
        context = text_of(record, fields.context, "--context") if fields.context else ""
        field, *others = fields.options
        texts: Any
        if others or field not in record.fields:
            texts = [text_of(record, field, "--options"), *(record.fields.get(name) or "" for name in others)]
        else:
            texts = record.fields[field]
        is_list = isinstance(texts, list) and all(isinstance(option, str) for option in texts)
        options = tuple(option for option in texts if option.strip()) if is_list else ()
        if len(options) < 2:
            raise DamagedData(record.where, f"field {field!r} must be a list of at least two strings")
        return Choice(context, options, question or "")

    # ---- A request -------------------------------------------------------------------------------------------------

    request = ChooseRequest
    example: ClassVar = {
        "questions": [
            {
                "context": "The sea was calm, and the sailors slept on the deck.",
                "question": "Where did the sailors sleep?",
                "options": ["on the deck", "in the harbour", "on the island"],
            }
        ]
    }

    def inputs(self, request: ChooseRequest) -> list[Choice]:
        return [Choice(each.context, tuple(each.options), each.question) for each in request.questions]

    # ---- How it is computed ----------------------------------------------------------------------------------------

    def compute(self, predictor: "Predictor", inputs: Sequence[Choice], settings: Settings) -> list[list[RankedOption]]:
        contexts = [entry.context for entry in inputs]
        options = [entry.options for entry in inputs]
        questions = [entry.question for entry in inputs]
        return rank_options(predictor, contexts, options, questions)

    # ---- The reply -------------------------------------------------------------------------------------------------

    reply = list[RankedOption]
    about_reply = "For each question, its options, most likely first."

    # ---- The columns of a file: the best option, and the scores of all in the order of the row ---------------------

    def columns(self, predictor: "Predictor", settings: Settings) -> dict[str, Any]:
        return {"option": str, "index": int, "score": float, "scores": [float], "tokens_cut": int}

    def row(self, predictor: "Predictor", result: list[RankedOption]) -> dict[str, Any]:
        scores = [entry["score"] for entry in sorted(result, key=lambda entry: entry["index"])]
        return {**result[0], "scores": scores, "tokens_cut": sum(entry.get("tokens_cut", 0) for entry in result)}

    # ---- Its output in an ONNX file: the encoder reads all options as one batch ------------------------------------

    onnx_axes = ("batch", "choices", "sequence")

    def prepare_onnx_inputs(self, graph: "GraphWriter", model: Any) -> None:
        shape = graph.node("Concat", [-1], graph.node("Shape", graph.ids, start=2, end=3), axis=0)
        graph.ids = graph.node("Reshape", graph.ids, shape)
        graph.mask = graph.node("Reshape", graph.mask, shape)
        if model.albert.embeddings.has_types:
            graph.types = graph.node("Reshape", graph.types, shape)

    def onnx_outputs(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        from albert.inference.onnx_graph import INPUTS, Output, read_by_head

        scores = graph.layer(read_by_head(graph, model, hidden), "classifier", model.classifier)
        batch_and_choices = graph.node("Shape", INPUTS[0], start=0, end=2)
        return [Output("logits", graph.node("Reshape", scores, batch_and_choices), ("batch", "choices"))]


CHOOSE = Choose()


def rank_options(
    predictor: "Predictor",
    contexts: Sequence[str],
    options: Sequence[Sequence[str]],
    questions: Sequence[str] | None = None,
) -> list[list[RankedOption]]:
    """What `Predictor.choose_batch` gives; without questions they are empty."""
    from albert.tasks.multiple_choice import join_option, question_with_option
    from albert.tasks.task import softmax

    predictor.require(CHOOSE)
    check_texts("contexts", contexts)
    questions = [""] * len(contexts) if questions is None else questions
    check_pairs("questions", questions, "contexts", contexts)
    check_lists("options", options)
    if len(options) != len(contexts):
        raise UsageError(
            "options", f"{counted(len(options), 'lists')} for {counted(len(contexts), 'contexts')}", "give one for each"
        )
    for own in options:
        if len(own) < 2:
            raise UsageError("options", f"{len(own)} of them", "give at least two to choose from")

    # A sequence for each option. If no run accepts the question length, question and option take at most half.
    tokenizer = predictor.tokenizer
    max_length, question_length, _ = predictor.lengths
    if question_length >= max_length - 3:
        question_length = (max_length - 3) // 2
    ids = []
    types = []
    cut = []
    option_texts = [
        question_with_option(question, option)
        for question, own in zip(questions, options, strict=True)
        for option in own
    ]
    passages = tokenizer.encode_batch(contexts)
    passage_of_option = [passage for passage, own in zip(passages, options, strict=True) for _ in own]
    for passage, question in zip(passage_of_option, tokenizer.encode_batch(option_texts), strict=True):
        joined, first, *lost = join_option(passage, question, tokenizer, max_length, question_length)
        ids.append(np.asarray(joined, np.int64))
        types.append((np.arange(len(joined)) >= first).astype(np.int64))
        cut.append(sum(lost))

    # The options of a question compete.
    counts = [len(own) for own in options]
    scores = np.array(predictor.packed_model.rows(ids, types), np.float64)
    ranked: list[list[RankedOption]] = []
    for own, (start, stop) in zip(options, pairwise(accumulate(counts, initial=0)), strict=True):
        probabilities = softmax(scores[start:stop]).tolist()
        entries: list[RankedOption] = [
            {
                "option": option,
                "index": index,
                "score": probabilities[index],
                **tokens_cut_field(cut[start + index]),
            }
            for index, option in enumerate(own)
        ]
        ranked.append(sorted(entries, key=lambda entry: -entry["score"]))
    return ranked
