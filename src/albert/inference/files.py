"""Prediction on whole files: all rows are checked first, then answered and written batch by batch.

Memory does not grow with the file. `INFERENCE_TASKS` has an entry for each ability."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from albert import __version__
from albert.inference.outputs import OutputFormat, PartialOutput, Progress, Row, output_format, partial_output
from albert.inference.predictor import Predictor
from albert.inference.records import (
    ERROR,
    Fields,
    InferenceTask,
    Inputs,
    Settings,
    Value,
    answers_to,
    one_text,
    options_in_context,
    question_in_context,
    text_and_perhaps_pair,
    text_or_words,
    two_texts,
)
from albert.inference.tasks import ANSWERING, CHOOSING, CLASSIFYING, FILLING, ORDERING, SCORING, TAGGING
from albert.runtime.environment import load_by_name
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError
from albert.runtime.manifest import file_hash
from albert.runtime.progress import progress
from albert.text.readers import CorpusFile
from albert.text.records import Record, read_records
from albert.training.run_folder import Stopped, stop_signals

# --------------------------------------------------------------------------------------------------------------------
# Input validation: all rows are checked first, because a bad last row would be found only after hours.

BATCH_ROWS = 256
BATCH_CHARACTERS = 1_000_000
_TYPED = "albert.inference.parquet_files"


@dataclass(frozen=True)
class CheckedInput:
    """What is known of a file that can be predicted on.

    Attributes:
        rows: how many there are.
        columns: the names of their fields, in the order in which they first come.
        schema: the types of these, for Parquet; None where nobody asked.
        sha256: of the file.
    """

    rows: int
    columns: tuple[str, ...]
    schema: Any
    sha256: str


def check_input(
    file: CorpusFile,
    inputs: Callable[[Record, Fields], Inputs],
    fields: Fields,
    gives: Mapping[str, Value],
    typed: bool,
) -> CheckedInput:
    """Read every row once.

    Args:
        file: the input.
        inputs: takes from a row what is asked about.
        fields: how its fields are called.
        gives: the fields of an answer, under their names in the output.
        typed: whether the columns' types are needed.

    Raises:
        MissingInput: there are no rows.
        DamagedData: a row cannot be read, lacks what is asked about, or has a field of the answer's name; with its
            place.
    """
    columns: dict[str, None] = {}
    types = _types_of(file, typed)
    rows = 0
    with progress("Checking the input", total=None, unit="rows") as bar:
        for batch in batches_of(read_records(file, fields.text)):
            for record in batch:
                columns.update(dict.fromkeys(record.fields))
                inputs(record, fields)
                _refuse_answered(record, gives)
            if types is not None:
                types.add(batch)
            rows += len(batch)
            bar.advance(len(batch))
    if not rows:
        raise MissingInput(file.name, "holds no rows")
    schema = None
    if typed:
        known = load_by_name(_TYPED, "data")
        schema = known.input_schema(file, tuple(columns)) if types is None else types.schema
    return CheckedInput(rows, tuple(columns), schema, file_hash(file.path))


def batches_of(records: Iterator[Record]) -> Iterator[list[Record]]:
    """Rows that are predicted together: 256 of them, or fewer long ones. Where one ends the rows alone decide."""
    batch: list[Record] = []
    characters = 0
    for record in records:
        batch.append(record)
        characters += sum(len(value) for value in record.fields.values() if isinstance(value, str))
        if len(batch) == BATCH_ROWS or characters >= BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _types_of(file: CorpusFile, typed: bool) -> Any:
    """Collects the types of JSON's columns; the other kinds of files say theirs."""
    return load_by_name(_TYPED, "data").ColumnTypes() if typed and file.kind == "JSON lines" else None


def _refuse_answered(record: Record, gives: Mapping[str, Value]) -> None:
    for name in gives:
        if name in record.fields:
            raise DamagedData(record.where, f"has a field {name!r} already", "--prefix calls the answers' otherwise")


SHOWN = 3


@dataclass(frozen=True)
class FilePrediction:
    """What is asked of which file, and where the answers go.

    Attributes:
        file: the input.
        output: a path whose ending names its format; None is standard output, in JSON lines.
        asking: what is asked of every row.
        fields: how the fields of a row are called.
        settings: how it is answered.
        prefix: of the names of an answer's fields, so that they stand beside those of the row.
        replace: whether an existing output, or one that was begun with other settings, gives way.
    """

    file: CorpusFile
    output: Path | None
    asking: InferenceTask
    fields: Fields = field(default_factory=Fields)
    settings: Settings = field(default_factory=Settings)
    prefix: str = "predicted_"
    replace: bool = False


@dataclass(frozen=True)
class Summary:
    """What became of a file: rows, how many texts were cut, how many had no answer, and the first of these."""

    rows: int
    cut: int
    unanswered: int
    first_unanswered: tuple[str, ...]


def predict_file(predictor: Predictor, asked: FilePrediction) -> Summary:
    """Answer every row of a file. An output that was begun by the same call goes on where it was.

    Raises:
        MissingInput, DamagedData: the input cannot be read, or a row lacks what is asked about; nothing is predicted.
        CannotCreate: the output is in use, or was begun with something else.
        WriteFailed: the disk is full or failed; the same call goes on.
        Stopped: by SIGTERM or SIGINT, after noting how far it has come; the same call goes on.
    """
    gives = {f"{asked.prefix}{name}": value for name, value in asked.asking.gives(predictor, asked.settings).items()}
    typed = asked.output is not None and asked.output.suffix.lower() == ".parquet"
    checked = check_input(asked.file, asked.asking.inputs, asked.fields, gives, typed)
    width = predictor.config.hidden_size
    format = output_format(asked.output, checked.columns, gives, checked.schema, asked.prefix, width)
    if asked.output is None:
        reached = Progress()
        _predict(predictor, asked, checked, format, reached, lambda data, rows: _print(data))
        return _summary(reached)
    made_of = _made_of(predictor, asked, checked)
    with partial_output(asked.output, made_of, format.beginning, asked.replace) as rows:
        _predict_stoppably(predictor, asked, asked.output, checked, format, rows)
        rows.finish(format, asked.output)
        return _summary(rows.reached)


def _predict_stoppably(
    predictor: Predictor,
    asked: FilePrediction,
    output: Path,
    checked: CheckedInput,
    format: OutputFormat,
    rows: PartialOutput,
) -> None:
    with stop_signals() as request:

        def write(data: bytes, count: int) -> None:
            rows.write(data, count)
            if request.number is not None and rows.reached.rows < checked.rows:
                rows.note()
                raise Stopped(output, request.number)

        _predict(predictor, asked, checked, format, rows.reached, write)


def _predict(
    predictor: Predictor,
    asked: FilePrediction,
    checked: CheckedInput,
    format: OutputFormat,
    reached: Progress,
    write: Callable[[bytes, int], None],
) -> None:
    """Answer the rows after those that were reached."""
    records = islice(read_records(asked.file, asked.fields.text), reached.rows, None)
    with progress("Predicting", total=checked.rows, unit="rows", done=reached.rows) as bar:
        for batch in batches_of(records):
            rows = list(_answered(predictor, asked, batch, reached.counts))
            write(format.encode(rows), len(rows))
            bar.advance(len(rows))


def _answered(
    predictor: Predictor, asked: FilePrediction, batch: Sequence[Record], counts: dict[str, Any]
) -> Iterator[Row]:
    """The rows of a batch with their answers; what is to be told at the end is counted."""
    inputs = [asked.asking.inputs(record, asked.fields) for record in batch]
    answers = answers_to(asked.asking, predictor, inputs, asked.settings)
    for record, answer in zip(batch, answers, strict=True):
        counts["cut"] = counts.get("cut", 0) + bool(answer.get("tokens_cut"))
        if answer.get(ERROR) is not None:
            counts["unanswered"] = counts.get("unanswered", 0) + 1
            first = counts.setdefault("first_unanswered", [])
            first += [f"{record.where}: {answer[ERROR]}"] if len(first) < SHOWN else []
        yield {**record.fields, **{f"{asked.prefix}{name}": value for name, value in answer.items()}}


def _made_of(predictor: Predictor, asked: FilePrediction, checked: CheckedInput) -> dict[str, Any]:
    """Everything that decides the bytes of the output, in values that JSON keeps."""
    directory = Path(predictor.name)
    weights = sorted(path for pattern in ("*.safetensors", "config.json") for path in directory.glob(pattern))
    fields = asdict(asked.fields)
    return {
        "input": checked.sha256,
        "model": " ".join(file_hash(path)[:16] for path in weights),
        "tokenizer": predictor.tokenizer.fingerprint,
        "ask": asked.asking.name,
        "precision": predictor.precision,
        "device": predictor.device.type,
        "depth": predictor.depth,
        "patience": predictor.patience,
        "configuration": {key: str(value) for key, value in asdict(predictor.config).items()},
        "prefix": asked.prefix,
        **{f"{name}_field": list(value) if isinstance(value, tuple) else value for name, value in fields.items()},
        **asdict(asked.settings),
        "threads": torch.get_num_threads(),
        "versions": f"albert {__version__}, torch {torch.__version__}",
    }


def _summary(reached: Progress) -> Summary:
    counts = reached.counts
    return Summary(
        reached.rows, counts.get("cut", 0), counts.get("unanswered", 0), tuple(counts.get("first_unanswered", ()))
    )


def _print(data: bytes) -> None:
    sys.stdout.write(data.decode())
    sys.stdout.flush()


# --------------------------------------------------------------------------------------------------------------------
# All ways to ask the rows of a file, by the names that they have on the command line.


def inference_task_for(predictor: Predictor, name: str | None) -> InferenceTask:
    """The way to ask that is named, or the one that the model is for.

    Raises:
        UsageError: nobody said which of several.
        InvalidConfiguration: the model has no head for it.
    """
    possible = [asking for asking in INFERENCE_TASKS.values() if asking.ability in predictor.abilities]
    if name is None:
        if len(possible) > 1:
            known = " or ".join(asking.name for asking in possible)
            raise UsageError("--task", f"{predictor.name} can do several things", f"say {known}")
        return possible[0] if possible else INFERENCE_TASKS["embed"]
    asking = INFERENCE_TASKS[name]
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
INFERENCE_TASKS: dict[str, InferenceTask] = {
    asking.name: asking
    for asking in (
        InferenceTask("classify", CLASSIFYING, text_and_perhaps_pair, _classify, _class_fields),
        InferenceTask(
            "score",
            SCORING,
            text_and_perhaps_pair,
            _score,
            lambda predictor, _: {"score": "number", **_depth_field(predictor), "tokens_cut": "count"},
        ),
        InferenceTask("answer", ANSWERING, question_in_context, _answer, _answer_fields),
        InferenceTask(
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
        InferenceTask("tag", TAGGING, text_or_words, _tag, lambda *_: {"tags": [_TAGGED]}),
        InferenceTask("fill-mask", FILLING, one_text, _fill, lambda *_: {"masks": [[_GUESS]], ERROR: "text"}),
        InferenceTask("order", ORDERING, two_texts, _order, _order_fields),
        InferenceTask("embed", None, one_text, _embed, lambda *_: {"embedding": ["number"], "tokens_cut": "count"}),
    )
}
