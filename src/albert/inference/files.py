"""Prediction on whole files: all rows are checked first, then answered and written batch by batch.

Memory does not grow with the file. What is computed for a row is an entry of `ABILITIES`."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from albert import __version__
from albert.inference.abilities import ABILITIES, ERROR, Ability, Settings, Value
from albert.inference.outputs import OutputFormat, PartialOutput, Progress, Row, output_format, partial_output
from albert.inference.predictor import Predictor
from albert.inference.records import Fields, Inputs
from albert.runtime.environment import load_by_name
from albert.runtime.errors import DamagedData, InvalidConfiguration, MissingInput, UsageError
from albert.runtime.manifest import file_hash
from albert.runtime.progress import progress
from albert.text.readers import CorpusFile, Record, read_records
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
        schema: the types of these, for Parquet; None where nobody args.
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
        inputs: takes the inputs from a row.
        fields: how its fields are called.
        gives: the fields of an answer, under their names in the output.
        typed: whether the columns' types are needed.

    Raises:
        MissingInput: there are no rows.
        DamagedData: a row cannot be read, lacks a field that is needed, or has a field of the answer's name; with its
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
    """A file whose rows are to be answered, and where the answers go.

    Attributes:
        file: the input.
        output: a path whose ending names its format; None is standard output, in JSON lines.
        ability: how every row is answered.
        fields: how the fields of a row are called.
        settings: how it is answered.
        prefix: of the names of an answer's fields, so that they stand beside those of the row.
        replace: whether an existing output, or one that was begun with other settings, gives way.
    """

    file: CorpusFile
    output: Path | None
    ability: Ability
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


def predict_file(predictor: Predictor, args: FilePrediction) -> Summary:
    """Answer every row of a file. An output that was begun by the same call goes on where it was.

    Raises:
        MissingInput, DamagedData: the input cannot be read, or a row lacks a field; nothing is predicted.
        CannotCreate: the output is in use, or was begun with something else.
        WriteFailed: the disk is full or failed; the same call goes on.
        Stopped: by SIGTERM or SIGINT, after noting how far it has come; the same call goes on.
    """
    gives = {f"{args.prefix}{name}": value for name, value in args.ability.gives(predictor, args.settings).items()}
    typed = args.output is not None and args.output.suffix.lower() == ".parquet"
    assert args.ability.row is not None, f"{args.ability.name} is not for files"
    checked = check_input(args.file, args.ability.row, args.fields, gives, typed)
    width = predictor.config.hidden_size
    format = output_format(args.output, checked.columns, gives, checked.schema, args.prefix, width)
    if args.output is None:
        reached = Progress()
        _predict(predictor, args, checked, format, reached, lambda data, rows: _print(data))
        return _summary(reached)
    identity = _identity(predictor, args, checked)
    with partial_output(args.output, identity, format.beginning, args.replace) as rows:
        _predict_stoppably(predictor, args, args.output, checked, format, rows)
        rows.finish(format, args.output)
        return _summary(rows.reached)


def _predict_stoppably(
    predictor: Predictor,
    args: FilePrediction,
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

        _predict(predictor, args, checked, format, rows.reached, write)


def _predict(
    predictor: Predictor,
    args: FilePrediction,
    checked: CheckedInput,
    format: OutputFormat,
    reached: Progress,
    write: Callable[[bytes, int], None],
) -> None:
    """Answer the rows after those that were reached."""
    records = islice(read_records(args.file, args.fields.text), reached.rows, None)
    with progress("Predicting", total=checked.rows, unit="rows", done=reached.rows) as bar:
        for batch in batches_of(records):
            rows = list(_answered(predictor, args, batch, reached.counts))
            write(format.encode(rows), len(rows))
            bar.advance(len(rows))


def _answered(
    predictor: Predictor, args: FilePrediction, batch: Sequence[Record], counts: dict[str, Any]
) -> Iterator[Row]:
    """The rows of a batch with their answers; what is reported at the end is counted."""
    assert args.ability.row is not None
    inputs = [args.ability.row(record, args.fields) for record in batch]
    answers = args.ability.answers(predictor, inputs, args.settings)
    for record, answer in zip(batch, answers, strict=True):
        counts["cut"] = counts.get("cut", 0) + bool(answer.get("tokens_cut"))
        if answer.get(ERROR) is not None:
            counts["unanswered"] = counts.get("unanswered", 0) + 1
            first = counts.setdefault("first_unanswered", [])
            first += [f"{record.where}: {answer[ERROR]}"] if len(first) < SHOWN else []
        yield {**record.fields, **{f"{args.prefix}{name}": value for name, value in answer.items()}}


def _identity(predictor: Predictor, args: FilePrediction, checked: CheckedInput) -> dict[str, Any]:
    """Everything that decides the bytes of the output, in values that JSON keeps."""
    directory = Path(predictor.name)
    weights = sorted(path for pattern in ("*.safetensors", "config.json") for path in directory.glob(pattern))
    fields = asdict(args.fields)
    return {
        "input": checked.sha256,
        "model": " ".join(file_hash(path)[:16] for path in weights),
        "tokenizer": predictor.tokenizer.fingerprint,
        "ask": args.ability.name,
        "precision": predictor.precision,
        "device": predictor.device.type,
        "depth": predictor.depth,
        "patience": predictor.patience,
        "configuration": {key: str(value) for key, value in asdict(predictor.config).items()},
        "prefix": args.prefix,
        **{f"{name}_field": list(value) if isinstance(value, tuple) else value for name, value in fields.items()},
        **asdict(args.settings),
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
# The ability that answers the rows of a file.


def ability_for(predictor: Predictor, name: str | None) -> Ability:
    """The ability of this name, or the one that the model is for.

    Raises:
        UsageError: the model can do several things and no name is given.
        InvalidConfiguration: the model has no head for it.
    """
    possible = [each for each in ABILITIES.values() if each.row and each.needs in predictor.abilities]
    if name is None:
        if len(possible) > 1:
            known = " or ".join(each.name for each in possible)
            raise UsageError("--task", f"{predictor.name} can do several things", f"say {known}")
        return possible[0] if possible else ABILITIES["embed"]
    ability = ABILITIES[name]
    if ability.needs is not None and ability not in possible:
        can = " and ".join(predictor.abilities) or "only embed texts"
        raise InvalidConfiguration(predictor.name, f"has no trained head to {ability.needs}", f"this model can {can}")
    return ability
