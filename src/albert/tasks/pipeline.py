"""`Pipeline`: from a request, or a row of a file, to its reply; each is a subclass in a file of its own.

A pipeline says, in this order: which models have it, what it reads of a row, what a request is, how an example becomes
token ids, what the network's outputs mean, what a reply is, which columns a file gets, and which outputs an ONNX file
has. It keeps no model: `Predictor.replies` runs the network between `encode` and `decode`. `albert predict`, the
server with its OpenAPI document and its page, and ONNX export ask these methods; `albert.tasks.pipelines` lists all of
them. One that can be trained is a `Task` (`albert.tasks.task`).

Requests are dataclasses and replies are TypedDicts, whose hints `albert.inference.server.openapi` turns into models of
pydantic. Methods that compute with torch import it themselves, so that a command's help loads none."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypedDict

import numpy as np

from albert.runtime.errors import DamagedData, UsageError, did_you_mean
from albert.runtime.words import kind_of_value
from albert.tables.fields import text_of as written_text
from albert.tables.records import Record
from albert.tasks.examples import Example, Features
from albert.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from albert.checkpoints.sentence_transformers import SentenceVectors
    from albert.inference.onnx_graph import GraphWriter, Output

ENDINGS = (".jsonl", ".csv", ".parquet", ".npy", ".conll")
"""Of files with predictions."""
ERROR = "error"
"""The column with the reason why a row has no reply; null if it has one."""


class Lengths(NamedTuple):
    """Tokens of a sequence (with special ones), of a question, and of the step between windows of a context."""

    max_length: int
    question_length: int
    stride: int


@dataclass(frozen=True)
class Settings:
    """Options of `albert predict` for the rows of a file; None is the default of the pipeline."""

    top_k: int | None = None  # Number of predictions for a mask, or of answers to a question
    pooling: Literal["mean", "cls", "max", "weighted"] | None = None  # None: the model's own
    normalize: bool | None = None
    prompt: str | None = None
    words: bool = False  # Whether a text to tag is split into words at blanks
    option_labels: str | None = None  # What a label of a multiple choice means (`TableTask.option_labels`)


@dataclass(frozen=True, kw_only=True)
class Head:
    """What the files of a model say of its head.

    Attributes:
        model_kind: a `Kind` of `albert.checkpoints.huggingface`.
        model: its name, for errors.
        drawn: names of the tensors that the files lack, which are random.
        config: the further keys of `config.json`.
        labels: the names of a classifier's outputs.
        score_activation: the class of `torch.nn` that makes a score of a single output.
        threshold: the probability from which on a label is predicted, if the user gives one.
        vectors: how the states of the tokens become the vector of a text.
        vector_length: tokens that are read of a text for its vector.
    """

    model_kind: str
    model: str = ""
    drawn: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    score_activation: str = "Identity"
    threshold: float | None = None
    vectors: "SentenceVectors | None" = None
    vector_length: int = 0

    @property
    def problem_type(self) -> Any:
        return self.config.get("problem_type")

    def is_trained(self, heads: Mapping[str, tuple[str, ...]]) -> bool:
        """Whether the model is of one of some kinds, and all tensors with one of its prefixes were in the files."""
        prefixes = heads.get(self.model_kind)
        return prefixes is not None and not any(name.startswith(prefixes) for name in self.drawn)


class UnansweredTexts(UsageError):
    """Some texts of a batch have no reply; `reasons` maps the index of a text to what is wrong and the remedy."""

    def __init__(self, subject: str, reasons: Mapping[int, tuple[str, str | None]]) -> None:
        self.reasons = dict(reasons)
        number, (why, remedy) = min(self.reasons.items())
        super().__init__(subject if number == 0 else f"{subject} {number + 1}", why, remedy)

    def only(self, number: int) -> "UnansweredTexts":
        """The error for a single text, without its number."""
        return UnansweredTexts(self.subject.split()[0], {0: self.reasons[number]})


class ReplyTooLarge(Exception):
    """The reply to a request would be too large; the argument says why, and what to do."""


# --------------------------------------------------------------------------------------------------------------------
# What pipelines read of a row of a file.


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
        raise DamagedData(record.where, f"field {field!r} is {kind_of_value(value)}, a text is expected")
    return text


def optional_text_of(record: Record, field: str, usual: str, option: str) -> str | None:
    """`text_of`, or None if there is no field, or if it has its usual name and is absent."""
    if not field or (field == usual and field not in record.fields):
        return None
    return text_of(record, field, option)


# --------------------------------------------------------------------------------------------------------------------
# Hints of the fields of requests and replies: what they are about, and bounds.


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
    """What every reply to a text may have."""

    tokens_cut: TokensCut
    empty: Empty


def tokens_cut_field(cut: int) -> Costs:
    """The `tokens_cut` field of a reply; left out if nothing was cut."""
    return {"tokens_cut": cut} if cut else {}


def empty_field(*texts: str) -> Costs:
    """The `empty` field of a reply; left out if one of its texts has a character that is not blank."""
    return {} if any(text.strip() for text in texts) else {"empty": True}


# --------------------------------------------------------------------------------------------------------------------
# The bases of all pipelines.


class Pipeline(ABC):
    """From a request to its reply. What most pipelines have in common is the default of a method or attribute here."""

    name: ClassVar[str]
    """The value of `albert predict --task`, and the address of the endpoint after its slash."""
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

    @classmethod
    @abstractmethod
    def of_head(cls, head: Head) -> "Pipeline | None":
        """The pipeline of a model with this head; None for a model that has it not, or with random weights."""

    def fitted(self, lengths: Lengths) -> Lengths:
        """The lengths that are used, of those that the model's files state."""
        return lengths

    # ---- A request -------------------------------------------------------------------------------------------------

    Request: ClassVar[type]
    """A dataclass; its hints are the fields of the request's JSON."""
    request_example: ClassVar[Mapping[str, Any]]
    takes_pair: ClassVar[bool] = False
    """Whether a text may have a second one, as the model was trained."""
    is_windowed: ClassVar[bool] = False
    """Whether a long text is read in windows; otherwise it is cut."""

    @abstractmethod
    def examples(self, request: Any) -> list[Example]:
        """The examples of a request; raises UsageError, and ReplyTooLarge."""

    def with_options_of(self, request: Any) -> "Pipeline":
        """The pipeline with the options in a request, of those that have any; raises UsageError."""
        return self

    @classmethod
    def error_in_request(cls, number: int, error: UnansweredTexts) -> UsageError:
        """The error of the example of this number, which names its place in the request."""
        field = fields(cls.Request)[0].name
        inside = "" if field == f"{error.subject}s" else f".{error.subject}"
        return UsageError(f"{field}.{number}{inside}", error.why, error.remedy)

    # ---- From examples to token ids, and from the network's outputs to what they mean -------------------------------

    runs: ClassVar[Literal["head", "masks", "vectors", "layers"]] = "head"
    """What the predictor computes: the head's output for each sequence, its logits at some positions, the pooled states
    of the encoder, or what the heads give after every layer."""

    @abstractmethod
    def encode(self, examples: Sequence[Example], tokenizer: Tokenizer, lengths: Lengths) -> Features:
        """Token ids, and what was cut; raises UnansweredTexts for examples that cannot be answered."""

    @abstractmethod
    def decode(self, outputs: Iterable[Any], features: Features) -> Sequence[Any] | np.ndarray:
        """For each example the probabilities, number, answers or vector, in the type of the outputs."""

    # ---- The reply -------------------------------------------------------------------------------------------------

    Reply: ClassVar[Any]
    """The type of a reply, as it is in JSON."""
    about_reply: ClassVar[str]

    @abstractmethod
    def reply(self, example: Example, decoded: Any, cut: Sequence[int]) -> Any:
        """The reply to an example; `cut` are the tokens of each of its sequences that did not fit.

        Raises:
            UnansweredTexts: there is none.
        """

    # ---- Its outputs in an ONNX file -------------------------------------------------------------------------------

    onnx_axes: ClassVar[tuple[str, ...]] = ("batch", "sequence")
    """Of the inputs."""

    def onnx_inputs(self, graph: "GraphWriter", model: Any) -> None:  # noqa: B027 (most need no nodes)
        """Nodes before the encoder, which reads [batch, sequence]."""

    def onnx(self, graph: "GraphWriter", model: Any, hidden: str) -> "list[Output]":
        """The outputs of the head for the encoder's output [batch, sequence, H]; their names are those of transformers'
        and Optimum's exports."""
        return []

    def onnx_expected(self, model: Any, hidden: Any, packed: Any) -> dict[str, Any]:
        """The same outputs, by the model from states [tokens, H]: Tensors [tokens, ...] or [sequences, ...]."""
        return {"logits": model.head_outputs(hidden, packed)}


class RowPipeline(Pipeline):
    """A pipeline that answers the rows of files, too, and has a tab on the page."""

    has_first_tab: ClassVar[bool] = False
    """Whether its tab comes before the others."""
    file_options: ClassVar[tuple[str, ...]] = ()
    """Options of `albert predict` for a file that belong to it and not to every pipeline."""
    reads_words: ClassVar[bool] = False
    """Whether the rows of a table with one word in each are joined to sentences."""

    def with_settings(self, settings: Settings) -> "RowPipeline":
        """The pipeline with the options of a command, of those that have any; raises UsageError."""
        return self

    @abstractmethod
    def read(self, record: Record, fields: Fields) -> Example:
        """The example in a row; raises DamagedData."""

    @abstractmethod
    def cell_types(self) -> dict[str, Any]:
        """The columns that every row of a file gets, in order, and their types.

        A type is `str`, `float`, `int`, `bool`, a TypedDict or a dict of names and types, or a list of one of these."""

    def cells(self, reply: Any) -> Mapping[str, Any]:
        """The values of the columns for a reply; others are left out."""
        return reply
