"""Documents of JSON lines: each line an object with the text in one of its fields."""

import json
from collections.abc import Callable, Iterator

from albert.runtime.errors import DamagedData
from albert.runtime.strict_json import RepeatedKey, each_key_once
from albert.text.readers.corpus_files import CorpusFile
from albert.text.readers.decoding import decode_from_file, repair, similar_name
from albert.text.readers.long_documents import documents_of
from albert.text.readers.reading import NULL, CorpusReport, Document, Reading
from albert.text.readers.unpacking import open_corpus_file

ONE_A_LINE = "JSON lines hold one object a line; of a list or indented objects `jq -c '.[]?' FILE` makes them"


def read(
    file: CorpusFile, reading: Reading, report: CorpusReport, reached: Callable[[int], None]
) -> Iterator[Document]:
    """The documents of a file of JSON lines (see `albert.text.readers.reading.Reader`)."""
    offset, limit = 0, reading.max_record_bytes
    with open_corpus_file(file) as (content, raw):
        for number, line in enumerate(iter(lambda: content.readline(limit + 1), b""), start=1):
            place = f"{file.path}:{number}"
            if len(line) > limit:
                raise DamagedData(place, f"is longer than {limit / 1e6:,.0f} MB", ONE_A_LINE)
            text = decode_from_file(line, file.path, offset, reading, report)
            offset += len(line)
            if text is None or not text or text.isspace():
                continue  # an empty line between records is no record
            value = _field(text, reading.text_field, place)
            if value is None:
                report.drop(NULL, 0)
            else:
                yield from documents_of(repair(value, report), f"{file.name}:{number}", reading, report)
            reached(raw.tell())


def _field(line: str, name: str, place: str) -> str | None:
    try:
        record = json.loads(line, object_pairs_hook=each_key_once)
    except RepeatedKey as error:
        raise DamagedData(place, f"is not JSON ({error})") from error
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", None) or "too deep or too large a value"
        remedy = ONE_A_LINE if line.strip() in ("{", "[") else None
        raise DamagedData(place, f"is not JSON ({reason})", remedy) from error
    if not isinstance(record, dict):
        remedy = ONE_A_LINE if isinstance(record, list) else None
        raise DamagedData(place, f"is {type(record).__name__}, a JSON object is expected", remedy)
    if name not in record:
        raise DamagedData(place, f"has no field {name!r}", similar_name(name, record))
    value = record[name]
    if value is not None and not isinstance(value, str):
        raise DamagedData(place, f"field {name!r} is {type(value).__name__}, text is expected")
    return value
