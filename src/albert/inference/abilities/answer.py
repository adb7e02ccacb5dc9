"""Question answering: the spans of a context that best answer a question.

A long context is read in overlapping windows, as in training (`albert.tasks.span`). A model that was trained with
unanswerable questions gives an empty answer where its threshold decides so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, NotRequired, TypedDict

import numpy as np

from albert.inference.abilities.base import (
    ERROR,
    Ability,
    Bounds,
    End,
    Fields,
    Lengths,
    Settings,
    Start,
    TokensCut,
    TopK,
    UnansweredTexts,
    text_of,
    tokens_cut_field,
)
from albert.inference.texts import check_pairs, check_top_k
from albert.tables.records import Record

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output
    from albert.inference.predictor import Predictor
    from albert.tasks.answers import NullThreshold
    from albert.tasks.span import Answers

QUESTIONS = Lengths(384, 64, 128)
"""Of the paper's recipe for SQuAD (Table 14)."""
ANSWER_TOKENS = 30
"""Tokens that an answer has at most."""


class QuestionInContext(NamedTuple):
    """An input."""

    question: str
    context: str


@dataclass(frozen=True)
class AnswerQuestion:
    """One of them."""

    question: str
    context: str


@dataclass(frozen=True)
class AnswerRequest:
    """Questions, each with its context."""

    questions: Annotated[list[AnswerQuestion], Bounds(1)]
    top_k: Annotated[TopK, "Number of answers to each question."] = 1


class Span(TypedDict):
    """A span, `answer == context[start:end]`, and its probability; an empty one means that there is no answer."""

    score: float
    start: Start
    end: End
    answer: str


class FoundAnswer(Span):
    """An answer to a question, of which tokens may have been cut."""

    tokens_cut: NotRequired[TokensCut]


class Answer(Ability):
    """The answers to a question in a context, most likely first."""

    name = "answer"
    about = "The spans of a context that best answer a question, as exact slices of it; long contexts are read in full."
    needs = "answer questions"
    heads: ClassVar = {"question_answering": ("qa_outputs.",), "joint_question_answering": ("joint_qa_outputs.",)}
    lengths = QUESTIONS

    # ---- A row of a file -------------------------------------------------------------------------------------------

    options = ("--question-field", "--context-field", "--top-k")

    def read(self, record: Record, fields: Fields) -> QuestionInContext:
        question = text_of(record, fields.question, "--question")
        return QuestionInContext(question, text_of(record, fields.context, "--context"))

    # ---- A request -------------------------------------------------------------------------------------------------

    request = AnswerRequest
    example: ClassVar = {
        "questions": [
            {"question": "Where was the whale seen?", "context": "In 1866 a whale was seen off the coast of Australia."}
        ],
        "top_k": 1,
    }
    windowed = True

    def inputs(self, request: AnswerRequest) -> list[QuestionInContext]:
        return [QuestionInContext(each.question, each.context) for each in request.questions]

    def settings(self, request: AnswerRequest) -> Settings:
        return Settings(top_k=request.top_k)

    # ---- How it is computed ----------------------------------------------------------------------------------------

    def compute(
        self, predictor: "Predictor", inputs: Sequence[QuestionInContext], settings: Settings
    ) -> list[list[FoundAnswer]]:
        questions = [entry.question for entry in inputs]
        contexts = [entry.context for entry in inputs]
        return find_answers(predictor, questions, contexts, settings.top_k or 1)

    # ---- The reply -------------------------------------------------------------------------------------------------

    reply = list[FoundAnswer]
    about_reply = "For each question, its answers, most likely first; an empty one means that there is no answer."

    # ---- The columns of a file: the best answer, and the others if there are any -----------------------------------

    def columns(self, predictor: "Predictor", settings: Settings) -> dict[str, Any]:
        columns: dict[str, Any] = {"score": float, "start": int, "end": int, "answer": str}
        if (settings.top_k or 1) > 1:
            columns["others"] = [Span]
        return {**columns, "tokens_cut": int, ERROR: str}

    def row(self, predictor: "Predictor", result: list[FoundAnswer]) -> dict[str, Any]:
        others = [{name: other[name] for name in ("score", "start", "end", "answer")} for other in result[1:]]
        return {**result[0], "others": others}

    # ---- Its outputs in an ONNX file: starts and ends, or those of the joint head ---------------------------------

    def onnx_outputs(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        from albert.inference.onnx_graph import Output

        if hasattr(model, "joint_qa_outputs"):
            return _joint_outputs(graph, model, hidden)
        both = graph.layer(hidden, "qa_outputs", model.qa_outputs.outputs)
        start, end = (graph.node("Squeeze", part, [2]) for part in graph.nodes("Split", 2, both, [1, 1], axis=-1))
        axes = ("batch", "sequence")
        return [Output("start_logits", start, axes), Output("end_logits", end, axes)]

    def head_outputs(self, model: Any, hidden: Any, packed: Any) -> dict[str, list[Any]]:
        from albert.model.albert import output_rows

        rows: list[Any] = output_rows(model.head_outputs(hidden, packed), packed.lengths)
        if not hasattr(model, "joint_qa_outputs"):
            return {"start_logits": [row[:, 0] for row in rows], "end_logits": [row[:, 1] for row in rows]}
        return {
            "start_logits": [row.starts for row in rows],
            "start_places": [row.beam for row in rows],
            "end_logits": [row.ends for row in rows],
            "unanswerable_logits": [row.unanswerable for row in rows],
        }


ANSWER = Answer()


def find_answers(
    predictor: "Predictor", questions: Sequence[str], contexts: Sequence[str], top_k: int = 1
) -> list[list[FoundAnswer]]:
    """What `Predictor.answer_batch` gives.

    Probabilities are over all spans of at most 30 tokens in all windows, and over no answer if the model has a
    threshold, which decides whether that comes first.
    """
    from albert.tasks.examples import Example
    from albert.tasks.span import best_answers, span_features

    predictor.require(ANSWER)
    check_pairs("contexts", contexts, "questions", questions)
    check_top_k(top_k)
    tokenizer = predictor.tokenizer
    length, question_length, stride = predictor.lengths
    if question_length + stride > length - 3:  # no run accepts these
        question_length = min(question_length, max(1, (length - 3) // 3))
        stride = max(1, min(stride, (length - 3 - question_length) // 2))
    examples = [Example("question", "question", texts) for texts in zip(questions, contexts, strict=True)]
    features = span_features(examples, tokenizer, length, question_length, stride)
    sequences = features.sequences
    ids = [sequences.token_ids(index) for index in range(len(sequences))]
    types = [sequences.token_type_ids(index) for index in range(len(sequences))]
    rows = predictor.packed_model.rows(ids, types)
    threshold = predictor.null_threshold
    answers = best_answers(examples, features, rows, ANSWER_TOKENS, top_k, threshold is not None)
    empty = {i: ("holds no text to answer from", None) for i, spans in enumerate(answers) if not spans.candidates}
    if empty:
        raise UnansweredTexts("context", empty)
    cut = [max(len(ids) - question_length, 0) for ids in tokenizer.encode_batch(questions)]
    return [
        [{**answer, **tokens_cut_field(tokens)} for answer in _ranked(spans, threshold)[:top_k]]
        for spans, tokens in zip(answers, cut, strict=True)
    ]


def _ranked(answers: "Answers", threshold: "NullThreshold | None") -> list[Span]:
    """The spans and, if there is a threshold, no answer; the first is the one that the threshold decides for."""
    from albert.tasks.span import decide

    spans: list[Span] = [
        {"score": span.probability, "start": span.start, "end": span.end, "answer": span.text}
        for span in answers.candidates
    ]
    if threshold is None:
        return spans
    no_answer: Span = {"score": answers.no_answer_probability, "start": 0, "end": 0, "answer": ""}
    if not decide([answers], threshold)[0].answered:
        return [no_answer, *spans]
    others = [no_answer, *spans[1:]]
    return [spans[0], *sorted(others, key=lambda answer: -answer["score"])]


def _joint_outputs(graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
    """The joint head (SQuAD 2.0): the top starts, and for each of them a logit for every end."""
    from albert.inference.onnx_graph import Output
    from albert.model.albert import IMPOSSIBLE

    head = model.joint_qa_outputs
    mask = graph.cast(graph.mask, np.bool_)
    position = graph.columns()
    last = graph.node("Sub", graph.node("ReduceSum", graph.mask, [1], keepdims=1), 1)
    at_cls = graph.node("Equal", position, 0)
    second = graph.node("And", graph.node("Equal", graph.types, 1), graph.node("Less", position, last))
    passage = graph.node("And", second, graph.node("Not", at_cls))
    possible = graph.node("Or", passage, graph.node("And", at_cls, mask))

    starts = graph.node("Squeeze", graph.layer(hidden, "joint.start", head.start), [2])
    start_logits = graph.node("Where", possible, starts, IMPOSSIBLE)
    weights = graph.node("Unsqueeze", graph.node("Softmax", start_logits, axis=-1), [1])
    first = graph.node("Gather", hidden, 0, axis=1)
    expected = graph.node("Squeeze", graph.node("MatMul", weights, hidden), [1])
    joint = graph.node("Concat", expected, first, axis=-1)
    joint = graph.node("Tanh", graph.layer(joint, "joint.answer_dense", head.answer_dense))
    unanswerable = graph.node("Squeeze", graph.layer(joint, "joint.answer", head.answer), [1])

    beam = _beam(graph, graph.node("Where", passage, starts, IMPOSSIBLE), mask, last)
    index = graph.node("Expand", graph.node("Unsqueeze", beam, [2]), [1, 1, model.config.hidden_size])
    from_start = graph.node("Unsqueeze", graph.node("GatherElements", hidden, index, axis=1), [1])
    by_token = graph.node("Unsqueeze", hidden, [2])
    bounds = ((hidden, {"end": 2}), (beam, {"start": 1}), (hidden, {"start": 2}))
    shape = graph.node("Concat", *(graph.node("Shape", value, **part) for value, part in bounds), axis=0)
    pair = [graph.node("Expand", state, shape) for state in (by_token, from_start)]
    dense = graph.layer(graph.node("Concat", *pair, axis=-1), "joint.end_dense", head.end_dense)
    dense = graph.layer_norm(graph.node("Tanh", dense), "joint.end_layer_norm", head.end_layer_norm)
    ends = graph.node("Squeeze", graph.layer(dense, "joint.end", head.end), [3])
    ends = graph.node("Where", graph.node("Unsqueeze", possible, [2]), ends, IMPOSSIBLE)
    return [
        Output("start_logits", start_logits, ("batch", "sequence")),
        Output("start_places", beam, ("batch", "beam"), np.int64),
        Output("end_logits", ends, ("batch", "sequence", "beam")),
        Output("unanswerable_logits", unanswerable, ("batch",)),
    ]


def _beam(graph: "GraphWriter", starts: str, mask: str, last: str) -> str:
    """Positions of the top starts; a sequence with fewer tokens than the beam repeats its last position."""
    from albert.inference.onnx_graph import PADDED
    from albert.model.albert import BEAM

    ranked = graph.node("Where", mask, starts, PADDED)
    length = graph.node("Gather", graph.node("Shape", starts), [1], axis=0)
    width = graph.node("Min", [BEAM], length)
    _, positions = graph.nodes("TopK", 2, ranked, width, axis=1)
    order = graph.node("Range", 0, graph.node("Squeeze", width, [0]), 1)
    return graph.node("GatherElements", positions, graph.node("Min", order, last), axis=1)
