"""Question answering: the answer to a question is a part of its context, or absent.

Long contexts are cut into overlapping windows, `[CLS] question [SEP] context piece [SEP]`
(`albert.tasks.span_windows`); `albert.tasks.span_answers` makes answers of the outputs for them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NotRequired, TypedDict

import numpy as np

from albert.recipes.finetuning import PairEncoding, SpanHeadKind, TaskRecipe
from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.tables.records import Record
from albert.tables.table import Row, Table
from albert.tasks.answer_columns import with_answers
from albert.tasks.answers import (
    THRESHOLD_KEY,
    NullThreshold,
    never_answered,
    normalize_answer,
    open_question_scores,
    saved_threshold,
    span_exact_match,
    span_f1,
)
from albert.tasks.cells import lists_read
from albert.tasks.error_analysis import calibration, most_confident, text_of
from albert.tasks.examples import Example, Features, asked
from albert.tasks.from_table import Inferred, Recognised, TableDeclaration, metrics_by_name
from albert.tasks.inputs import QuestionInContext, ReadColumns
from albert.tasks.metrics import Metric
from albert.tasks.pipeline import (
    ERROR,
    Bounds,
    End,
    Fields,
    Head,
    Lengths,
    Settings,
    Start,
    TokensCut,
    TopK,
    UnansweredTexts,
    tokens_cut_field,
)
from albert.tasks.pipeline import text_of as text_in
from albert.tasks.span_answers import (
    OWN_THRESHOLDS,
    Answers,
    average_answers,
    best_answers,
    best_null_threshold,
    decide,
    keep_back_questions,
)
from albert.tasks.span_windows import SpanFeatures, span_features
from albert.tasks.table_task import TableTask
from albert.tasks.task import Predictions, Task, object_file
from albert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert.inference.onnx_graph import GraphWriter, Output

SHOWN_ANSWERS = 5
CANDIDATES = 20
"""Answers of each question that are kept while scoring."""

CHOSEN_ON_THESE = "best_: with the threshold that is best for the scored questions, as the reference reports it"


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


class PossibleAnswer(TypedDict):
    """A span, `answer == context[start:end]`, and its probability; an empty one means that there is no answer."""

    score: float
    start: Start
    end: End
    answer: str


class FoundAnswer(PossibleAnswer):
    """An answer to a question, of which tokens may have been cut."""

    tokens_cut: NotRequired[TokensCut]


@dataclass(frozen=True)
class Span(Task):
    """A part of the context; `may_be_absent` if a question may have no answer, which the `threshold` decides.

    A reply has the `top_k` best answers.
    """

    may_be_absent: bool = False
    max_answer_tokens: int = 30
    head: SpanHeadKind = "independent"
    threshold: NullThreshold | None = None
    top_k: int | None = None

    name = "answer"
    about = "The spans of a context that best answer a question, as exact slices of it; long contexts are read in full."
    needs = "answer questions"
    kind: ClassVar[str] = "question-answering"
    loss_name: ClassVar[str] = "span"
    per_sequence: ClassVar[bool] = False
    may_be_unlabelled: ClassVar[bool] = True
    heads: ClassVar = {"question_answering": ("qa_outputs.",), "joint_question_answering": ("joint_qa_outputs.",)}
    lengths = Lengths(384, 64, 128)  # of the paper's recipe for SQuAD (Table 14)

    @classmethod
    def of_head(cls, head: Head) -> "Span | None":
        if not head.is_trained(cls.heads):
            return None
        is_joint = head.model_kind == "joint_question_answering"
        may_be_absent = is_joint or THRESHOLD_KEY in head.config
        task = cls(may_be_absent, head="joint" if is_joint else "independent", top_k=1)
        return task.tuned_as(head.config, head.model) if may_be_absent else task

    def fitted(self, lengths: Lengths) -> Lengths:
        """Shorter ones if no run accepts these."""
        length, question_length, stride = lengths
        if question_length + stride <= length - 3:
            return lengths
        question_length = min(question_length, max(1, (length - 3) // 3))
        return Lengths(length, question_length, max(1, min(stride, (length - 3 - question_length) // 2)))

    # ---- From a table to the task -----------------------------------------------------------------------------------

    needed_columns = ("question", "context", "answer")
    further_columns = ("answer_start",)
    table_recipe = TaskRecipe(
        learning_rate=3e-5, batch_size=32, epochs=2.0, max_length=384, stride=128, encoder_dropout=0.0
    )

    @classmethod
    def named_columns(cls, task: TableTask, table: Table, inferred: list[Inferred]) -> TableTask | None:
        """Question, context and answer; an answer may be an object as in SQuAD."""
        known = table.columns
        if task.answer is not None:
            start = f"{task.answer}.answer_start"
            if task.answer not in known and f"{task.answer}.text" in known:
                start = task.answer_start or (start if start in known else None)
                return replace(task, answer=f"{task.answer}.text", answer_start=start)
            return task
        if task.given_columns or task.label_columns is not None or not {"question", "context"} <= set(known):
            return None
        answer = next((name for name in ("answers.text", "answer", "answer_text", "text") if name in known), None)
        if answer is None:
            return None
        start = "answers.answer_start" if answer == "answers.text" else "answer_start"
        for name, column in (("question", "question"), ("context", "context"), ("answer", answer)):
            inferred.append(Inferred(name, column, "a column has this name", f"--{name}"))
        start = start if start in known else None
        return replace(task, question="question", context="context", answer=answer, answer_start=start)

    @classmethod
    def recognised(cls, task: TableTask, table: Table) -> Recognised | None:
        if task.options is not None or not {"question", "context", "answer"} & set(task.given_columns):
            return None
        return Recognised(task, "a question, its context and an answer are named", "name --text and --label")

    @classmethod
    def converted(
        cls, task: TableTask, table: Table, source: object, inferred: list[Inferred]
    ) -> tuple[TableTask, Table]:
        """An answer, or a list of answers, in each row."""
        return task, lists_read(table, (task.answer, task.answer_start))

    @classmethod
    def prepared(cls, task: TableTask, table: Table) -> Table:
        return with_answers(task, table)

    @classmethod
    def of_table(cls, task: TableTask, tables: Mapping[str, Table]) -> TableDeclaration:
        """A question may have no answer if one of the rows has none."""
        assert task.question is not None and task.context is not None
        if task.may_be_absent is None:
            task = replace(task, may_be_absent=any(row.answers == () for each in tables.values() for row in each.rows))
        target = cls(bool(task.may_be_absent), head="joint" if task.may_be_absent else "independent")
        about = f"Answers `{task.question}` with a part of `{task.context}`"
        return TableDeclaration(task, QuestionInContext(str(task.question), str(task.context)), target, about)

    @classmethod
    def possible_metrics(cls, task: TableTask) -> dict[str, Metric]:
        if task.may_be_absent:
            return metrics_by_name(open_question_scores)
        return metrics_by_name(span_f1, span_exact_match)

    # ---- From a row of a table to an example ------------------------------------------------------------------------

    @property
    def gold_column(self) -> None:
        """Gold answers are `Row.answers`."""
        return None

    def is_labelled(self, rows: Iterable[Row]) -> bool:
        return any(row.answers is not None for row in rows)

    def gold(self, row: Row, texts: Sequence[str]) -> None:
        """Gold answers are those of the example."""
        return None

    def example(self, row: Row, inputs: ReadColumns, labelled: bool = True) -> Example:
        """Question, context and gold answers."""
        texts = inputs.texts(row)
        if labelled and row.answers is None:
            remedy = "expected the SQuAD JSON layout, or the column --answer of your table"
            raise DamagedData(row.where, "has no 'answers'", remedy)
        return Example(row.identifier, row.where, texts, answers=row.answers or (), group=row.group)

    # ---- A row of a file, and a request -----------------------------------------------------------------------------

    file_options = ("--question", "--context", "--top-k")

    def read(self, record: Record, fields: Fields) -> Example:
        question = text_in(record, fields.question, "--question")
        return asked(question, text_in(record, fields.context, "--context"))

    Request = AnswerRequest
    request_example: ClassVar = {
        "questions": [
            {"question": "Where was the whale seen?", "context": "In 1866 a whale was seen off the coast of Australia."}
        ],
        "top_k": 1,
    }
    is_windowed = True

    def examples(self, request: AnswerRequest) -> list[Example]:
        return [asked(entry.question, entry.context) for entry in request.questions]

    def with_options_of(self, request: AnswerRequest) -> "Span":
        return replace(self, top_k=request.top_k)

    def with_settings(self, settings: Settings) -> "Span":
        return replace(self, top_k=settings.top_k or 1)

    # ---- From examples to token ids ---------------------------------------------------------------------------------

    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, lengths: Lengths) -> SpanFeatures:
        """The windows of every example."""
        return span_features(examples, tokenizer, *lengths)

    def to_train(self, examples: Sequence[Example], features: Features, title: str) -> Features:
        """The windows to train on.

        If every question has an answer: the windows that contain it. If answers may be absent: all windows, with [CLS]
        as the target of those without an answer, except windows of a question whose answer is in none of them.
        """
        has_answer = features.targets[:, 0] >= 0
        if not has_answer.any():
            raise InvalidConfiguration(title, "no window of the training set holds an answer")
        if self.may_be_absent:
            usable = np.array([not example.answers for example in examples])
            usable[features.example_of[has_answer]] = True
            windows = np.flatnonzero(usable[features.example_of])
        else:
            windows = np.flatnonzero(has_answer)
        return features.only(windows, np.maximum(features.targets[windows], 0))

    # ---- The head and its loss --------------------------------------------------------------------------------------

    def model_kind(self, pairs: PairEncoding = "together") -> Any:
        return "joint_question_answering" if self.head == "joint" else "question_answering"

    def model_kind_of(self, saved: str) -> Any:
        """Either head, as the model has it."""
        return saved if saved in ("question_answering", "joint_question_answering") else self.model_kind()

    @property
    def term(self) -> str:
        return "joint_span" if self.head == "joint" else self.loss_name

    def head_inputs(self, batch: Any) -> tuple[Any, ...]:
        """A joint head needs the start of the answer while training."""
        return (batch.packed.first_positions + batch.targets[:, 0],) if self.head == "joint" else ()

    def loss(self, output: Any, batch: Any) -> tuple[Any, Any]:
        """The mean of the cross entropies of start and end over the tokens of their own sequence.

        A window without an answer points at its [CLS]. A joint head adds half the cross entropy of "no answer", as the
        reference does.

        Args:
            output: start and end logits, Tensors [tokens]; or a `SpanFromStart` of a joint head.
        """
        import torch
        from torch.nn import functional

        joint = self.head == "joint"
        starts, ends = (output.starts, output.ends) if joint else (output[0].float(), output[1].float())
        lengths = batch.packed.lengths
        loss = torch.zeros((), device=starts.device)
        right = torch.ones(len(lengths), dtype=torch.bool, device=starts.device)
        for logits, positions in zip((starts, ends), batch.targets.T, strict=True):
            gold = logits[batch.packed.first_positions + positions]
            pieces = logits.split(lengths)
            loss = loss + (torch.stack([piece.logsumexp(0) for piece in pieces]) - gold).sum()
            right &= gold.detach() >= torch.stack([piece.detach().max() for piece in pieces])
        loss = loss / 2
        if joint:
            absent = batch.targets[:, 0] == 0
            logits = output.unanswerable
            decision = functional.binary_cross_entropy_with_logits(logits.float(), absent.float(), reduction="sum")
            right &= (logits > 0) == absent
            loss = loss + decision / 2
        return loss, right.sum()

    # ---- From outputs to a reply ------------------------------------------------------------------------------------

    def decode(self, outputs: Iterable[Any], features: Features) -> list[Answers]:
        """The best answers of every example."""
        assert isinstance(features, SpanFeatures)
        kept = self.top_k or CANDIDATES
        return best_answers(features, outputs, self.max_answer_tokens, kept, self.may_be_absent)

    Reply = list[FoundAnswer]
    about_reply = "For each question, its answers, most likely first; an empty one means that there is no answer."

    def reply(self, example: Example, decoded: Answers, cut: Sequence[int]) -> list[FoundAnswer]:
        """The spans and, if there is a threshold, no answer; the first is the one that the threshold decides for."""
        if not decoded.candidates:
            raise UnansweredTexts("context", {0: ("holds no text to answer from", None)})
        ranked: list[PossibleAnswer] = [
            {"score": span.probability, "start": span.start, "end": span.end, "answer": span.text}
            for span in decoded.candidates
        ]
        if self.threshold is not None:
            none: PossibleAnswer = {"score": decoded.no_answer_probability, "start": 0, "end": 0, "answer": ""}
            if decide([decoded], self.threshold)[0].answered:
                others = [none, *ranked[1:]]
                ranked = [ranked[0], *sorted(others, key=lambda answer: -answer["score"])]
            else:
                ranked = [none, *ranked]
        return [{**answer, **tokens_cut_field(cut[0])} for answer in ranked[: self.top_k]]

    def cell_types(self) -> dict[str, Any]:
        """The best answer, and the others if there are any."""
        columns: dict[str, Any] = {"score": float, "start": int, "end": int, "answer": str}
        if (self.top_k or 1) > 1:
            columns["others"] = [PossibleAnswer]
        return {**columns, "tokens_cut": int, ERROR: str}

    def cells(self, reply: list[FoundAnswer]) -> dict[str, Any]:
        others = [{name: other[name] for name in ("score", "start", "end", "answer")} for other in reply[1:]]
        return {**reply[0], "others": others}

    # ---- Its outputs in an ONNX file: starts and ends, or those of the joint head -----------------------------------

    def onnx(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        if self.head == "joint":
            return graph.joint_span_outputs(model, hidden)
        both = graph.layer(hidden, "qa_outputs", model.qa_outputs.outputs)
        start, end = (graph.node("Squeeze", part, [2]) for part in graph.nodes("Split", 2, both, [1, 1], axis=-1))
        axes = ("batch", "sequence")
        return [graph.output("start_logits", start, axes), graph.output("end_logits", end, axes)]

    def onnx_expected(self, model: Any, hidden: Any, packed: Any) -> dict[str, Any]:
        output = model.head_outputs(hidden, packed)
        if self.head == "independent":
            return {"start_logits": output[0], "end_logits": output[1]}
        return {
            "start_logits": output.starts,
            "start_places": output.beam,
            "end_logits": output.ends,
            "unanswerable_logits": output.unanswerable,
        }

    # ---- The no-answer threshold ------------------------------------------------------------------------------------

    def keep_back(self, examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
        return keep_back_questions(examples, seed)

    def tuned(self, examples: Sequence[Example], decoded: list[Answers]) -> "Span":
        about = f"{len(examples):,} questions held out of the training set"
        return replace(self, threshold=best_null_threshold(examples, decoded, about))

    def tuned_as(self, config: Mapping[str, Any], model: str, threshold: float | None = None) -> "Span":
        saved = saved_threshold(config, model)
        return replace(self, threshold=saved) if self.may_be_absent else self

    def tuned_on_scored(self, examples: Sequence[Example], decoded: list[Answers]) -> "Span":
        if self.threshold is not None or not self.may_be_absent:
            return self
        about = "the very questions that are scored"
        return replace(self, threshold=best_null_threshold(examples, decoded, about))

    @property
    def tuned_keys(self) -> dict[str, Any]:
        return {} if self.threshold is None else self.threshold.keys

    @property
    def tuned_note(self) -> str | None:
        return None if self.threshold is None else self.threshold.note

    @property
    def score_note(self) -> str | None:
        return CHOSEN_ON_THESE if self.may_be_absent else None

    def averaged(self, models: Sequence[tuple[Any, Any]]) -> "tuple[Span, list[Answers]]":
        answers = average_answers([(decoded, task.threshold or OWN_THRESHOLDS) for task, decoded in models])
        return replace(self, threshold=OWN_THRESHOLDS if self.may_be_absent else None), answers

    # ---- From answers to scores -------------------------------------------------------------------------------------

    def judge(self, examples: Sequence[Example], decoded: list[Answers]) -> Predictions:
        """The best spans; no answer by the threshold, if a question may have none."""
        open_answers = None if self.threshold is None else decide(decoded, self.threshold)
        texts = []
        entries = []
        for index, (example, answer) in enumerate(zip(examples, decoded, strict=True)):
            best = answer.candidates[0] if answer.candidates else None
            texts.append("" if best is None else best.text)
            entry: dict[str, Any] = {"id": example.identifier, "prediction": texts[-1]}
            entry["gold"] = [gold.text for gold in example.answers]
            if best is not None:
                entry |= {"start": best.start, "end": best.end, "score": best.score}
            if open_answers is not None:
                entry["prediction"] = texts[-1] if open_answers[index].answered else ""
                entry["no_answer"] = answer.no_answer
                entry["no_answer_probability"] = answer.no_answer_probability
            entry["best"] = [
                {"answer": span.text, "start": span.start, "end": span.end, "probability": span.probability}
                for span in answer.candidates[:SHOWN_ANSWERS]
            ]
            entries.append(entry)
        gold = [tuple(answer.text for answer in example.answers) for example in examples]
        return Predictions(gold, texts if open_answers is None else open_answers, entries)

    def of_entries(self, entries: Sequence[Mapping[str, Any]]) -> None:
        return None

    def constants(self, gold: Any) -> Iterator[Any]:
        """No answer; where every question has one, the answer that is right for most, the first of equals."""
        counts = Counter(normal for answers in gold for normal in dict.fromkeys(map(normalize_answer, answers)))
        most_frequent = max(counts, key=lambda normal: counts[normal], default="")
        yield never_answered(gold) if self.may_be_absent else [most_frequent] * len(gold)

    def analysis(self, examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """An answer is right if it equals a gold one, as SQuAD compares; there are no classes."""
        confidence = []
        right = []
        errors = []
        for example, entry in zip(examples, predictions, strict=True):
            gold = {normalize_answer(answer) for answer in entry["gold"]} or {normalize_answer("")}
            right.append(normalize_answer(entry["prediction"]) in gold)
            if not entry["prediction"] and "no_answer_probability" in entry:
                confidence.append(entry["no_answer_probability"])
            else:
                confidence.append(entry["best"][0]["probability"] if entry["best"] else 0.0)
            if right[-1]:
                continue
            error = {
                "id": example.identifier,
                "text": text_of(example),
                "gold": list(dict.fromkeys(entry["gold"])),
                "predicted": entry["prediction"],
                "probability": float(confidence[-1]),
            }
            errors.append(error)
        return {
            "per_class": None,
            "confusion": None,
            "errors": most_confident(errors),
            "calibration": calibration(np.array(confidence), np.array(right, np.bool_)),
        }

    def submission_files(self, name: str, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """An object of question to text, "" for no answer; if there may be none, also its probability.

        The official script takes the probabilities as `--na-prob-file`; they are never above its threshold of 1, so
        they change no decision.
        """
        files = {f"{name}.json": object_file(entries, "prediction")}
        if self.may_be_absent:
            files[f"{name}-null-odds.json"] = object_file(entries, "no_answer_probability")
        return files
