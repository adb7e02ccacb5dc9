"""Every row of a file answered: read, asked and written batch by batch, so that memory does not grow with the file."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from albert import __version__
from albert.inference.files.asked_fields import Fields
from albert.inference.files.asking import ERROR, Asking, Settings, answers_to
from albert.inference.files.checked_input import CheckedInput, batches_of, check_input
from albert.inference.files.outputs import OutputFormat, Row, output_format
from albert.inference.files.partial_output import PartialOutput, Progress, partial_output
from albert.inference.files.records import Record, read_records
from albert.inference.predictor import Predictor
from albert.runtime.manifests import file_hash
from albert.runtime.progress import progress
from albert.text.readers.corpus_files import CorpusFile
from albert.training.stop_signals import Stopped, stop_signals

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
    asking: Asking
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
