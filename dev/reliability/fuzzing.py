"""Fuzzing: every parser gets mutated samples and must return or raise an AlbertError, within time and memory limits.

A parser reads one file or request body from others. Mutations have fixed seeds, so a number identifies a sample; each
is read in a confined process (confined.py)."""

import asyncio
import gzip
import io
import json
import os
import random
import shutil
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, Literal

import pyarrow
import pyarrow.parquet
from dev.reliability.confined import Broken, Limits, record_all
from dev.reliability.corruptions import PROBE
from dev.reliability.material import TENSORFLOW, Material
from dev.reliability.report import LOADING_RUNS_NOTHING
from dev.reliability.trials import Tries, trial
from starlette.types import Message

from albert.checkpoints import tensor_bundle
from albert.checkpoints.convert import ConversionOptions, read_source
from albert.checkpoints.model_directory import open_model
from albert.inference.files import opened_input
from albert.inference.predictor import Predictor
from albert.inference.server.app import application
from albert.inference.server.batching import Service
from albert.inference.server.limits import Limits as ServerLimits
from albert.recipes.pretraining import PretrainingRecipe
from albert.runtime.devices import mkl_uses_every_kernel
from albert.runtime.errors import AlbertError
from albert.runtime.json_files import load_versioned, read_journal
from albert.runtime.manifest import MANIFEST_NAME, verify_directory
from albert.tables.rows import read_table, records_of
from albert.tasks.submission import DECLARED
from albert.tasks.table_task import load_table_task
from albert.text.corpus import read_corpus
from albert.text.readers import Reading
from albert.text.shards import TokenCorpus
from albert.text.tokenizer_loading import load_tokenizer
from albert.training.state import TrainingState

SECONDS = 5.0
Form = Literal["bytes", "text", "table", "json", "json lines", "safetensors", "gzip", "tensorflow index"]


# ---- small valid files -----------------------------------------------------------------------------------------------

TEXT = "A first paragraph. It has two sentences.\n\nA second: “ﬁne”, é, 東京.\r\nA line.\n"
ROWS = [{"text": f"It was day {n}.", "label": ("bad", "good")[n % 2], "id": f"r{n}"} for n in range(6)]
ANSWER = {"text": "Lisbon", "answer_start": 13}
_QUESTIONS = [
    {"id": "q1", "question": "Where did it come from?", "answers": [ANSWER, ANSWER]},
    {"id": "q2", "question": "When?", "answers": [{"text": "May", "answer_start": 23}]},
]
_PARAGRAPH = {"context": "It came from Lisbon in May. “Strange”, she said — and wept.", "qas": _QUESTIONS}
SQUAD = {"version": "1.1", "data": [{"title": "Letters", "paragraphs": [_PARAGRAPH]}]}
PASSAGE = {
    "id": "middle1.txt",
    "article": "It came from Lisbon in May.",
    "questions": ["Where did it come from?", "When?"],
    "options": [["Lisbon", "Rome", "Bern", "Oslo"], ["May", "June", "July", "August"]],
    "answers": ["A", "B"],
}
CONLL = "-DOCSTART- -X- O O\n\nEU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\nBlackburn NNP I-PER\n"
LINES = "\n".join(json.dumps(row) for row in ROWS) + "\n"
CSV = 'text,label,id\n"It was, so to say, a day.",good,1\n"He said ""no"".",bad,2\nPlain,good,3\n'
TSV = 'sentence\tlabel\nIt was a day.\t1\nIt "was\t0\nfine\t1\n'
TASK = {"kind": "classification", "train": "t.csv", "text": "text", "label": "label", "recipe": {"epochs": 2.0}}
WORDPIECE = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nit\nwas\n##s\na\nday\n東\n"


def parquet() -> bytes:
    """The rows as typed columns."""
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), stream)
    return stream.getvalue()


# ---- requests to the server application, without sockets -------------------------------------------------------------

SAMPLES: dict[str, dict[str, Any]] = {
    "/classify": {"texts": ["It was a day.", "Dull."]},
    "/answer": {"questions": [{"question": "Where?", "context": "It came from Lisbon in May."}], "top_k": 2},
    "/fill-mask": {"texts": ["It was a [MASK] day."], "top_k": 3},
    "/order": {"pairs": [["She opened the letter.", "It was from Lisbon."]]},
    "/embed": {"texts": ["A storm at sea."], "pooling": "cls", "normalize": True},
    "/layers": {"text": "A storm at sea.", "pair": "It was a day."},
}
"""Address -> a valid body."""
MODELS = {"/classify": "classifier", "/answer": "answerer"}
"""The model of the material for an address; otherwise the pre-trained one."""


def post(address: str, path: Path) -> str:
    """Post the content of a file to the model in its folder; returns the status and the beginning of the reply.

    A status of 500 or more, a reply that is not JSON, or one with paths of this machine raises `Broken`.
    """
    key = MODELS.get(address, "pretrained"), os.getpid()
    if key not in _servers:
        _servers[key] = _Server(path.parent)
    status, reply = _servers[key].ask(address, path.read_bytes())
    text = reply.decode("utf-8", "replace")
    if status >= 500:
        raise Broken(f"status {status}: {text[:200]}")
    try:
        json.loads(reply, parse_constant=_refuse_constant)
    except ValueError as error:
        raise Broken(f"status {status} with a reply that is not JSON: {text[:200]}") from error
    if "Traceback" in text or str(path.parent.parent) in text:
        raise Broken(f"status {status} with a path of this machine: {text[:200]}")
    return f"{status} {text[:80]}"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


class _Server:
    def __init__(self, model: Path) -> None:
        self._loop, service = asyncio.new_event_loop(), Service(ServerLimits())

        async def start() -> None:
            service.start(Predictor.open(model, "cpu", precision="fp32"))

        self._loop.run_until_complete(start())
        self._application = application(service)

    def ask(self, address: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the reply."""
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "scheme": "http"}
        scope |= {"path": address, "raw_path": address.encode(), "query_string": b"", "root_path": ""}
        scope |= {"headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80), "state": {}}
        sent: list[Message] = []
        received: asyncio.Queue[Message] = asyncio.Queue()  # after the body the caller waits for the reply
        received.put_nowait({"type": "http.request", "body": body, "more_body": False})

        async def send(message: Message) -> None:
            sent.append(message)

        self._loop.run_until_complete(self._application(scope, received.get, send))
        status = next(message["status"] for message in sent if message["type"] == "http.response.start")
        return status, b"".join(message.get("body", b"") for message in sent)


_servers: dict[tuple[str, int], _Server] = {}
"""By model and process: the server's worker thread does not survive a fork."""

# ---- the parsers -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parser:
    """A parser of files or request bodies."""

    name: str  # also of its folder in tests/reliability/regressions
    file: str  # file name of a sample
    form: Form  # how it is mutated
    samples: Callable[[Material], Sequence[bytes]]
    read: Callable[[Path], object]  # reads all of it, as `albert` does
    beside: Callable[[Material], Path] | None = None  # a folder to copy, without its manifest


def _fixed(name: str, file: str, form: Form, sample: str | bytes | dict, read: Callable[[Path], object]) -> Parser:
    text = json.dumps(sample) if isinstance(sample, dict) else sample
    return Parser(name, file, form, lambda _: [text.encode() if isinstance(text, str) else text], read)


def _made(name: str, folder: str, file: str, form: Form, read: Callable[[Path], object], among: bool = True) -> Parser:
    """A parser of a file of the material; `among`: with the other files of its folder."""

    def place(material: Material) -> Path:
        part, _, rest = folder.partition("/")
        return TENSORFLOW if part == "tensorflow" else getattr(material, part) / rest

    return Parser(name, file, form, lambda m: [(place(m) / file).read_bytes()], read, place if among else None)


def _documents(path: Path, **reading: Any) -> int:
    return sum(map(len, read_corpus([path], Reading(**reading))))


def _rows(path: Path, task: str) -> int:
    declared = DECLARED[task]
    rows = declared.source.with_files({"dev": path}).read(path.parent, "dev").rows
    return len(declared.examples(rows))


def _tokens(path: Path) -> list[int]:
    return load_tokenizer(path.parent).encode_with_offsets(PROBE)[0]


def _split(path: Path) -> int:
    """Read the corpus that a file belongs to."""
    directory = next(place for place in path.parents if (place / "corpus.json").exists())
    corpus = TokenCorpus.open(directory, "train", verify=False)
    return int(corpus.read(0, corpus.n_tokens).sum() + corpus.sentence_starts[-1] + corpus.document_starts[-1])


def _weights(path: Path) -> object:
    return open_model(path.parent, "pretraining", verify=False)


def _converted(path: Path) -> object:
    return read_source(str(path.parent), ConversionOptions())


def _records(path: Path) -> int:
    with opened_input(str(path)) as table:
        return sum(len(record.fields) for record in records_of(table))


_SKIPPING = {"bad_utf8": "skip", "max_document_bytes": 400}
_BLOCKS = {"documents": "blank-line", "bad_utf8": "skip", "max_document_bytes": 100}
_PACKED_LINES, _PACKED_CSV = (gzip.compress(text.encode(), mtime=0) for text in (LINES, CSV))
_RACE = json.dumps(PASSAGE) + "\n"

PARSERS: tuple[Parser, ...] = (
    _fixed("corpus-text", "a.txt", "text", TEXT, _documents),
    _fixed("corpus-blocks", "a.txt", "text", TEXT * 9, partial(_documents, **_BLOCKS)),
    _fixed("corpus-json-lines", "a.jsonl", "json lines", LINES, _documents),
    _fixed("corpus-csv", "a.csv", "table", CSV, partial(_documents, **_SKIPPING)),
    _fixed("corpus-tsv", "a.tsv", "table", TSV, partial(_documents, text_field="sentence")),
    _fixed("corpus-gzip", "a.jsonl.gz", "gzip", _PACKED_LINES, _documents),
    _fixed("corpus-parquet", "a.parquet", "bytes", parquet(), _documents),
    _made("corpus-description", "corpus", "corpus.json", "json", _split),
    _made("shard-tokens", "corpus", "train/00000-00000.tokens.bin", "bytes", _split),
    _made("shard-sentences", "corpus", "train/00000-00000.sentences.npy", "bytes", _split),
    _made("shard-documents", "corpus", "train/00000-00000.documents.npy", "bytes", _split),
    _made("manifest", "tokenizer", "MANIFEST.json", "json", lambda path: verify_directory(path.parent)),
    _fixed("squad", "dev.json", "json", SQUAD, partial(_rows, task="squad-1.1")),
    _fixed("race", "dev.jsonl", "json lines", _RACE, partial(_rows, task="race")),
    _fixed("glue", "dev.tsv", "table", TSV, partial(_rows, task="sst-2")),
    _fixed("table-csv", "t.csv", "table", CSV, read_table),
    _fixed("table-tsv", "t.tsv", "table", TSV, read_table),
    _fixed("table-json-lines", "t.jsonl", "json lines", LINES, read_table),
    _fixed("table-gzip", "t.csv.gz", "gzip", _PACKED_CSV, read_table),
    _fixed("table-parquet", "t.parquet", "bytes", parquet(), read_table),
    _fixed("table-conll", "t.conll", "text", CONLL, read_table),
    _fixed("asked-csv", "in.csv", "table", CSV, _records),
    _fixed("asked-json-lines", "in.jsonl", "json lines", LINES, _records),
    _fixed("asked-text", "in.txt", "text", TEXT, _records),
    _fixed("asked-parquet", "in.parquet", "bytes", parquet(), _records),
    _fixed("task-file", "task.json", "json", TASK, load_table_task),
    _made("recipe", "pretraining_run", "recipe.json", "json", partial(load_versioned, PretrainingRecipe), False),
    _made(
        *("training-state", "pretraining_run/checkpoints/step-00000004", "training_state.json", "json"),
        *(partial(load_versioned, TrainingState), False),
    ),
    _made("journal", "pretraining_run", "journal.jsonl", "json lines", read_journal, False),
    _made("config", "pretrained", "config.json", "json", _weights),
    _made("weights", "pretrained", "model.safetensors", "safetensors", _weights),
    _made("int8-weights", "quantized", "model.int8.safetensors", "safetensors", _weights),
    _made("sentencepiece", "tokenizer", "spiece.model", "bytes", _tokens, False),
    _made("tokenizer-json", "tokenizer", "tokenizer.json", "json", _tokens, False),
    _made("tokenizer-config", "tokenizer", "tokenizer_config.json", "json", _tokens),
    _fixed("wordpiece", "vocab.txt", "text", WORDPIECE, _tokens),
    _made("tensorflow-index", "tensorflow", "model.ckpt-best.index", "tensorflow index", _converted),
    _made("tensorflow-config", "tensorflow", "albert_config.json", "json", _converted),
    *(
        Parser(
            f"request-{address.strip('/')}",
            "body.json",
            "json",
            lambda _, body=body: [json.dumps(body).encode()],
            partial(post, address),
            attrgetter(MODELS.get(address, "pretrained")),
        )
        for address, body in SAMPLES.items()
    ),
)
BY_NAME = {parser.name: parser for parser in PARSERS}


# ---- the trial -------------------------------------------------------------------------------------------------------


@trial(LOADING_RUNS_NOTHING, f"mutated inputs of {len(PARSERS)} parsers", 96, 24_000, 2_000_000)
def fuzzing(tries: Tries) -> None:
    """Mutate samples for each parser in turn; failing inputs are kept in the folder, for regressions/ of the tests."""
    mutations = Mutations(Material(tries.folder / "material"), tries.folder, tries.seed)
    record_all(tries, mutations.work, Limits(tries.folder, SECONDS), mutations.keep, "slowest_seconds")


class Mutations:
    """Numbered mutations, and a folder for each parser."""

    def __init__(self, material: Material, folder: Path, seed: int, parsers: Sequence[Parser] = PARSERS) -> None:
        self._seed, self._folder, self._parsers = seed, folder, parsers
        self._samples = [parser.samples(material) for parser in parsers]
        for parser in parsers:
            arrange(parser, material, folder / "read" / parser.name)

    def work(self, number: int) -> str:
        """Read a mutated sample."""
        parser = self._parsers[number % len(self._parsers)]
        path = self._folder / "read" / parser.name / parser.file
        path.write_bytes(self._mutated(number))
        return read_watched(parser, path)

    def keep(self, number: int) -> str:
        """Save the input of a try; returns its path."""
        path = self._folder / "failing" / self._parsers[number % len(self._parsers)].name / f"{self._seed}-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._mutated(number))
        return str(path)

    def _mutated(self, number: int) -> bytes:
        which = number % len(self._parsers)
        numbers = random.Random(f"{self._seed}/fuzzing/{self._parsers[which].name}/{number}")
        return mutated(self._samples[which], self._parsers[which].form, numbers)


def arrange(parser: Parser, material: Material, folder: Path) -> None:
    """Make the folder for a parser's file; called before the process is forked in which the file is read."""
    mkl_uses_every_kernel()  # is asked once a process, and opens torch's library, which no reader of a file may do
    if parser.beside is None:
        folder.mkdir(parents=True)
    else:
        shutil.copytree(parser.beside(material), folder)
        if parser.file != MANIFEST_NAME:
            (folder / MANIFEST_NAME).unlink(missing_ok=True)


def read_watched(parser: Parser, path: Path) -> str:
    """Read a file; returns "read" or "refused"."""
    try:
        parser.read(path)
    except AlbertError as refusal:
        if "\n" in str(refusal):
            raise Broken(f"refused in more than one line: {refusal}") from refusal
        return "refused"
    return "read"


# ---- mutations of bytes and, depending on the form, of values, lines, headers and checksums --------------------------

# Mutated bytes are mostly refused early; code behind a checksum or a bracket is reached only by samples that still have
# the right form.
LONGEST = 1 << 20
"""Most bytes of a mutated sample."""
_RAW = "raw-token-"
_NUMBERS = ("1e999", "-1e999", "NaN", "-Infinity", "9" * 5000, "1" + "0" * 12, "-1", "0", "1.5", "2147483648", "-0.0")
_TEXTS = ("", "\ud800", "\0", "../../x", "/etc/passwd", "a\nb", "\x1b[31m", "0" * 3000, "éﬁ½İ\u202e", "[MASK]", "nan")
_DEEP = "[" * 3000 + "]" * 3000, '{"a":' * 3000 + "1" + "}" * 3000
_CHUNKS = (
    *(b"", b"\0", b"\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\xed\xa0\x80", b"\xc0\x80", b"\xe2\x80\xa8", b"\r", b"\r\n"),
    *(b"\n", b"\n\n", b"\t", b",", b'"', b"'", b"{", b"[", b"]" * 99, b"\x80\x05", b"PK\x03\x04", b"\x1f\x8b", b"-1"),
    *(struct.pack("<q", number) for number in (-1, 0, 2**31, 2**62, 2**63 - 1)),
    *(struct.pack("<i", number) for number in (-1, 2**31 - 1)),
    b"\xff" * 10,  # an endless varint of a protocol buffer
)


def mutated(samples: Sequence[bytes], form: Form, numbers: random.Random) -> bytes:
    """One of the samples with one to four mutations."""
    sample = numbers.choice(samples)
    for _ in range(numbers.choice((1, 1, 1, 2, 4))):
        change = _bytes_changed if numbers.random() < 0.3 else _BY_FORM[form]
        sample = change(sample, samples, numbers)[:LONGEST]
    return sample


def _bytes_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """Flip, insert, replace, remove, repeat, truncate or zero bytes, or append those of another sample."""
    begin, end = sorted(numbers.randrange(len(sample) + 1) for _ in range(2))
    if numbers.random() < 0.6:
        end = min(end, begin + numbers.choice((1, 2, 8, 64)))
    match numbers.randrange(8):
        case 0 if sample:
            place = min(begin, len(sample) - 1)
            return sample[:place] + bytes([sample[place] ^ 1 << numbers.randrange(8)]) + sample[place + 1 :]
        case 1:
            return sample[:begin] + numbers.choice(_CHUNKS) + sample[begin:]
        case 2:
            return sample[:begin] + numbers.choice(_CHUNKS) + sample[end:]
        case 3:
            return sample[:begin] + sample[end:]
        case 4:
            return sample[:end] + sample[begin:end] * numbers.choice((1, 3, 50)) + sample[end:]
        case 5:
            return sample[:begin]
        case 6:
            return sample[:begin] + bytes(end - begin) + sample[end:]
        case _:
            other = numbers.choice(samples)
            return sample[:begin] + other[numbers.randrange(len(other) + 1) :]


def _lines_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """Remove, repeat, swap, join or replace lines."""
    lines = sample.split(b"\n")
    place = numbers.randrange(len(lines))
    match numbers.randrange(6):
        case 0:
            del lines[place]
        case 1:
            lines[place:place] = [lines[place]] * numbers.choice((1, 3, 300))
        case 2:
            other = numbers.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        case 3:
            lines[place : place + 2] = [b"".join(lines[place : place + 2])]
        case 4:
            lines[place] = numbers.choice((b"", b" ", b"\t" * 9, b'"', b"\0", "ſ\u2028".encode(), b"x" * 99_999))
        case _:
            lines[place] += numbers.choice(_CHUNKS)
    return b"\n".join(lines)


def _fields_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """Replace, remove or repeat a field of one row."""
    if numbers.random() < 0.4:
        return _lines_changed(sample, samples, numbers)
    lines = sample.split(b"\n")
    place = numbers.randrange(len(lines))
    separator = b"\t" if b"\t" in sample else b"," if b"," in sample else b" "
    fields = lines[place].split(separator)
    column = numbers.randrange(len(fields))
    value = numbers.choice(_TEXTS + _NUMBERS).encode("utf-8", "surrogatepass")
    fields[column : column + 1] = numbers.choice(([], [value], [fields[column]] * 2, [b'"' + value], [b'"%b"' % value]))
    lines[place] = separator.join(fields)
    return b"\n".join(lines)


def _json_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """Replace a value of the tree, or rename, remove or repeat its key."""
    try:
        tree = json.loads(sample)
    except (ValueError, RecursionError):  # not JSON after an earlier mutation
        return _bytes_changed(sample, samples, numbers)
    places = list(_places(tree))
    if not places:
        return _bytes_changed(sample, samples, numbers)
    holder, key = numbers.choice(places)
    match numbers.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[numbers.choice((*_TEXTS, key + "x", "_target_"))] = holder.pop(key)
        case 2 if isinstance(holder, dict):
            holder[f"{_RAW}twice-{key}"] = _any_value(numbers)
        case 3 if isinstance(holder, list):
            holder *= numbers.choice((2, 50))
        case _:
            holder[key] = _any_value(numbers)
    try:
        text = json.dumps(tree)
    except (ValueError, RecursionError):
        return _bytes_changed(sample, samples, numbers)
    for number, token in enumerate((*_NUMBERS, *_DEEP)):
        text = text.replace(f'"{_RAW}{number}"', token)
    return text.replace(f"{_RAW}twice-", "").encode()


def _places(tree: Any) -> list[tuple[Any, Any]]:
    """(container, key) of every value; of long containers the first and last."""
    found, waiting = [], [tree]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else []
        if len(keys) > 40:
            keys = [*keys[:20], *keys[-20:]]
        found += [(holder, key) for key in keys]
        waiting += [holder[key] for key in keys]
    return found


def _any_value(numbers: random.Random) -> Any:
    tokens = [f"{_RAW}{number}" for number in range(len(_NUMBERS) + len(_DEEP))]
    plain = [None, True, False, {}, [], [None], {"a": 1}, [[1, 2], "x"], "x" * 50_000]
    return numbers.choice(numbers.choice((tokens, _TEXTS, plain)))


def _json_line_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    if numbers.random() < 0.3:
        return _lines_changed(sample, samples, numbers)
    lines = sample.split(b"\n")
    place = numbers.randrange(len(lines))
    lines[place] = _json_changed(lines[place], [lines[place]], numbers)
    return b"\n".join(lines)


def _header_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """Mutate the header of a safetensors file as JSON, with its correct length or nearly so."""
    if len(sample) < 8:
        return _bytes_changed(sample, samples, numbers)
    length = int.from_bytes(sample[:8], "little")
    header, data = sample[8 : 8 + length], sample[8 + length :]
    changed = _json_changed(header, [header], numbers)
    stated = len(changed) + numbers.choice((0, 0, 0, 0, 1, -1, 2**24, 2**62))
    return struct.pack("<Q", max(stated, 0)) + changed + data


def _content_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    try:
        content = gzip.decompress(sample)
    except (OSError, EOFError, zlib.error):
        return _bytes_changed(sample, samples, numbers)
    return gzip.compress(_lines_changed(content, samples, numbers), 1, mtime=0)


def _block_changed(sample: bytes, samples: Sequence[bytes], numbers: random.Random) -> bytes:
    """Mutate bytes of the first block of a LevelDB table, with a correct checksum."""
    try:
        _, place = tensor_bundle._handle(sample, len(sample) - 48)  # the handle of an empty block
        index, _ = tensor_bundle._handle(sample, place)
        (_, first), *_ = tensor_bundle._block_entries(tensor_bundle._block(sample, index))
        (_, end), _ = tensor_bundle._handle(first, 0)
    except (ValueError, IndexError):  # not a table after an earlier mutation
        return _bytes_changed(sample, samples, numbers)
    content = bytearray(sample[:end])
    for _ in range(numbers.choice((1, 2, 8))):
        chunk = numbers.choice(_CHUNKS) or bytes([numbers.randrange(256)])
        place = numbers.randrange(end)
        content[place : place + len(chunk)] = chunk[: end - place]
    whole = bytes(content) + sample[end : end + 1]
    return whole + tensor_bundle.masked_crc32c(whole).to_bytes(4, "little") + sample[end + 5 :]


Change = Callable[[bytes, Sequence[bytes], random.Random], bytes]
_BY_FORM: dict[Form, Change] = {
    "bytes": _bytes_changed,
    "text": _lines_changed,
    "table": _fields_changed,
    "json": _json_changed,
    "json lines": _json_line_changed,
    "safetensors": _header_changed,
    "gzip": _content_changed,
    "tensorflow index": _block_changed,
}
