"""Question answering: the spans of a context that best answer a question.

A long context is read in overlapping windows, as in training (`albert.tasks.kinds.span`). A model that was trained with
unanswerable questions gives an empty answer where its threshold decides so."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple, NotRequired, TypedDict

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
from albert.text.readers import Record

if TYPE_CHECKING:
    from albert.inference.predictor import Predictor
    from albert.tasks.answers import NullThreshold
    from albert.tasks.kinds.span import Answers

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

    def compute(self, predictor: "Predictor", inputs: Sequence[QuestionInContext], settings: Settings) -> list[Any]:
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


ANSWER = Answer()


def find_answers(
    predictor: "Predictor", questions: Sequence[str], contexts: Sequence[str], top_k: int = 1
) -> list[list[FoundAnswer]]:
    """What `Predictor.answer_batch` gives.

    Probabilities are over all spans of at most 30 tokens in all windows, and over no answer if the model has a
    threshold, which decides whether that comes first.
    """
    from albert.tasks.examples import Example
    from albert.tasks.kinds.span import best_answers, span_features

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
    from albert.tasks.kinds.span import decide

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
