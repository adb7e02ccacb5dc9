"""`Ability`, what every inference task says about itself; each is a subclass in a file of its own.

An ability says, in this order: which models have it, what it reads of a row of a file, what a request is, how both are
computed with a `Predictor`, what a reply is, which columns a file gets, and which outputs an ONNX file has. `albert
predict`, the server with its OpenAPI document and its page, and ONNX export ask these methods.

Requests are dataclasses and results are TypedDicts, whose hints `albert.inference.server.models` turns into models of
pydantic: that is in the extra `serve`. What needs torch, or examples of tasks, is imported by the functions that
compute, so that a command's help loads neither."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypedDict

from albert.runtime.errors import DamagedData, UsageError, did_you_mean
from albert.tables.fields import text_of as written_text
from albert.tables.records import Record

if TYPE_CHECKING:
    from albert.checkpoints.model_directory import OpenedModel
    from albert.inference.onnx_graph import GraphWriter, Output
    from albert.inference.predictor import Predictor

ENDINGS = (".jsonl", ".csv", ".parquet", ".npy", ".conll")
"""Of files with predictions."""
ERROR = "error"
"""The column with the reason why a row has no result; null if it has one."""


@dataclass(frozen=True)
class Settings:
    """Options of `albert predict`, and fields of requests under the same names."""

    top_k: int | None = None  # Number of predictions for a mask, or of answers to a question
    pooling: Literal["mean", "cls", "max", "weighted"] | None = None  # None: the model's own
    normalize: bool | None = None
    prompt: str | None = None
    words: bool = False  # Whether a text to tag is split into words at blanks


class Lengths(NamedTuple):
    """Tokens of a sequence (with special ones), of a question, and of the step between windows of a context."""

    max_length: int
    question_length: int
    stride: int


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
# What abilities read of a row.


@dataclass(frozen=True)
class Fields:
    """The names of a row's fields; an empty name of a question or context means that there is none."""

    text: str = "text"
    pair: str = "text_pair"
    question: str = "question"
    context: str = "context"
    options: tuple[str, ...] = ("options",)  # One field with a list of options, or one field per option


def text_of(record: Record, field: str, option: str) -> str:
    """The text in a field, which an option names; raises DamagedData if it is missing or neither text nor number.

    Null and NaN are the empty text, and numbers and dates are written as in training.
    """
    if field not in record.fields:
        hint = did_you_mean(field, record.fields)
        raise DamagedData(record.where, f"has no field {field!r}", f"{hint} ({option} names another)")
    value = record.fields[field]
    if isinstance(value, str):
        return value
    if value is None or value != value:  # NaN is not equal to itself
        return ""
    text = written_text(value)
    if text is None:
        raise DamagedData(record.where, f"field {field!r} is {type(value).__name__}, a text is expected")
    return text


def optional_text_of(record: Record, field: str, usual: str, option: str) -> str | None:
    """`text_of`, or None if there is no field, or if it has its usual name and is absent."""
    if not field or (field == usual and field not in record.fields):
        return None
    return text_of(record, field, option)


# --------------------------------------------------------------------------------------------------------------------
# Hints of the fields of requests and results: what they are about, and bounds.


@dataclass(frozen=True)
class Bounds:
    """The values that a number may have, or the number of items of a list."""

    least: int
    most: int | None = None


Texts = Annotated[list[str], Bounds(1)]
TopK = Annotated[int, Bounds(1, 100)]
Start = Annotated[int, "Its first character in the text."]
End = Annotated[int, "The character after its last one."]
TokensCut = Annotated[int, "Tokens of the text that did not fit and were not read."]
Empty = Annotated[bool, "True if the text is empty or blank, so that the result means nothing."]


class Costs(TypedDict, total=False):
    """What every result of a text may have."""

    tokens_cut: TokensCut
    empty: Empty


def tokens_cut_field(cut: int) -> Costs:
    """The `tokens_cut` field of a result; left out if nothing was cut."""
    return {"tokens_cut": cut} if cut else {}


def empty_field(*texts: str) -> Costs:
    """The `empty` field of a result; left out if one of its texts has a character that is not blank."""
    return {} if any(text.strip() for text in texts) else {"empty": True}


# --------------------------------------------------------------------------------------------------------------------
# The base of all abilities.


class Ability(ABC):
    """An inference task. What most abilities have in common is the default of a method or attribute here."""

    name: ClassVar[str]
    """The value of `--task`, and the address of the endpoint after its slash."""
    about: ClassVar[str]
    """A sentence for the OpenAPI document and the page."""

    # ---- Which models have it --------------------------------------------------------------------------------------

    needs: ClassVar[str | None] = None
    """What a model must be able to do, as shown to users; None if any model will do."""
    heads: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})
    """Kind of model -> prefixes of the names of the tensors that it needs."""
    lengths: ClassVar[Lengths | None] = None
    """Those of the paper's recipe, for a model that does not say its own; None: as many tokens as it has positions."""
    has_labels: ClassVar[bool] = False
    """Whether the outputs of the head have names."""

    def is_trained(self, kind: str, opened: "OpenedModel") -> bool:
        """Whether a model opened as this kind has a trained head for it; one with random weights does not count."""
        prefixes = self.heads.get(kind)
        return prefixes is not None and not any(name.startswith(prefixes) for name in opened.loading_report.drawn)

    def max_length(self, predictor: "Predictor") -> int:
        """Tokens that are read of a text."""
        return predictor.max_length

    # ---- A row of a file -------------------------------------------------------------------------------------------

    reads_rows: ClassVar[bool] = True
    """Whether it answers the rows of files, and has a tab on the page."""
    has_first_tab: ClassVar[bool] = False
    """Whether its tab comes before the others."""
    options: ClassVar[tuple[str, ...]] = ()
    """Options of `albert predict` for a file that belong to it and not to every ability."""
    reads_words: ClassVar[bool] = False
    """Whether the rows of a table with one word in each are joined to sentences."""

    @abstractmethod
    def read(self, record: Record, fields: Fields) -> tuple[Any, ...]:
        """The input in a row; raises DamagedData."""

    def expects_pairs(self, predictor: "Predictor") -> bool | None:
        """Whether the model was trained on pairs of texts, where a second text is optional; None if unknown."""
        return None

    # ---- A request -------------------------------------------------------------------------------------------------

    request: ClassVar[type]
    """A dataclass; its hints are the fields of the request's JSON."""
    example: ClassVar[Mapping[str, Any]]
    windowed: ClassVar[bool] = False
    """Whether a long text is read in windows; otherwise it is cut."""

    @abstractmethod
    def inputs(self, request: Any) -> Sequence[tuple[Any, ...]]:
        """The inputs in a request; raises UsageError."""

    def settings(self, request: Any) -> Settings:
        """The settings in a request."""
        return Settings()

    def too_much(self, request: Any) -> str | None:
        """Why the reply would be too large; None if it is not."""
        return None

    def error_in_request(self, number: int, error: UnansweredTexts) -> UsageError:
        """The error of the input of this number, which names its place in the request."""
        field = fields(self.request)[0].name
        inside = "" if field == f"{error.subject}s" else f".{error.subject}"
        return UsageError(f"{field}.{number}{inside}", error.why, error.remedy)

    # ---- How it is computed ----------------------------------------------------------------------------------------

    @abstractmethod
    def compute(self, predictor: "Predictor", inputs: Sequence[Any], settings: Settings) -> list[Any]:
        """A result for each input; raises UnansweredTexts for those that have none."""

    def results(self, predictor: "Predictor", inputs: Sequence[Any], settings: Settings) -> list[Any]:
        """A result for each input, or the error why it has none."""
        try:
            return self.compute(predictor, inputs, settings)
        except UnansweredTexts as error:
            reasons = error.reasons
            answerable = [entry for number, entry in enumerate(inputs) if number not in reasons]
            others = iter(self.compute(predictor, answerable, settings) if answerable else [])
            return [error.only(number) if number in reasons else next(others) for number in range(len(inputs))]

    # ---- The reply -------------------------------------------------------------------------------------------------

    reply: ClassVar[Any]
    """The type of a result, as the reply has it in JSON."""
    about_reply: ClassVar[str]

    # ---- The columns of a file -------------------------------------------------------------------------------------

    @abstractmethod
    def columns(self, predictor: "Predictor", settings: Settings) -> dict[str, Any]:
        """The columns that every row gets, in order, and their types.

        A type is `str`, `float`, `int`, a TypedDict or a dict of names and types, or a list of one of these."""

    def row(self, predictor: "Predictor", result: Any) -> Mapping[str, Any]:
        """The values of the columns for a result; others are left out."""
        return result

    def answers(self, predictor: "Predictor", inputs: Sequence[Any], settings: Settings) -> list[dict[str, Any]]:
        """The columns of each row; where a row has no result all are null but `error`."""
        names = self.columns(predictor, settings)
        rows = []
        for result in self.results(predictor, inputs, settings):
            if isinstance(result, UnansweredTexts):
                row: Mapping[str, Any] = {ERROR: result.reasons[0][0]}
            else:
                row = {"tokens_cut": 0, **self.row(predictor, result)}
            rows.append({name: row.get(name) for name in names})
        return rows

    # ---- Its outputs in an ONNX file -------------------------------------------------------------------------------

    onnx_axes: ClassVar[tuple[str, ...]] = ("batch", "sequence")
    """Of the inputs."""

    def prepare_onnx_inputs(self, graph: "GraphWriter", model: Any) -> None:  # noqa: B027 (most need no nodes)
        """Nodes before the encoder, which reads [batch, sequence]."""

    def onnx_outputs(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        """The outputs of the head for the encoder's output [batch, sequence, H]; their names are those of transformers'
        and Optimum's exports."""
        return []

    def head_outputs(self, model: Any, hidden: Any, packed: Any) -> dict[str, list[Any]]:
        """The same outputs, computed by the model from states [tokens, H]: an array for each packed sequence."""
        from albert.model.albert import output_rows

        return {"logits": output_rows(model.head_outputs(hidden, packed), packed.lengths)}


def compute_apart(
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
