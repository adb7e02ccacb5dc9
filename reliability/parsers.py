"""Everything that reads what somebody else may have written: a valid sample of each, and how `albert` reads it."""

import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path

from albert.checkpoints.convert import ConversionOptions, read_source
from albert.checkpoints.hub import unpacked
from albert.checkpoints.model_directory import open_model
from albert.pretraining.recipe import PretrainingRecipe
from albert.runtime.json_files import load_json, read_journal
from albert.runtime.manifest import verify_directory
from albert.tasks.custom import read_table
from albert.tasks.examples import to_examples
from albert.tasks.submission import DECLARED
from albert.tasks.table_task import load_table_task
from albert.text.corpus import find_corpus_files, read_corpus
from albert.text.readers import Reading, read_records
from albert.text.shards import TokenCorpus
from albert.text.tokenizer_loading import load_tokenizer
from albert.training.state import TrainingState
from reliability.kept_kinds import PROBE
from reliability.mutations import Form
from reliability.report import CHECKOUT
from reliability.request_bodies import MODELS, SAMPLES, post
from reliability.scene import Scene
from reliability.valid_samples import (
    CONLL,
    CSV,
    LINES,
    PAGES,
    PASSAGE,
    SQUAD,
    TASK,
    TEXT,
    TSV,
    WORDPIECE,
    parquet,
    tar_archive,
    zip_archive,
)

TENSORFLOW = CHECKOUT / "tests" / "checkpoints" / "tensorflow" / "classifier"
"""A checkpoint that TensorFlow wrote."""


@dataclass(frozen=True)
class Parser:
    """One way in.

    Args:
        name: of its folder in tests/museum, too.
        file: what a sample is called on the disk.
        form: how it is mutated.
        samples: valid ones.
        read: reads a file as `albert` does, to the last row.
        beside: a folder whose other files lie beside it, without the manifest that would refuse any change.
    """

    name: str
    file: str
    form: Form
    samples: Callable[[Scene], Sequence[bytes]]
    read: Callable[[Path], object]
    beside: Callable[[Scene], Path] | None = None


def _fixed(*texts: str | bytes) -> Callable[[Scene], Sequence[bytes]]:
    return lambda scene: [text.encode() if isinstance(text, str) else text for text in texts]


def _of(place: Callable[[Scene], Path], name: str) -> Callable[[Scene], Sequence[bytes]]:
    return lambda scene: [(place(scene) / name).read_bytes()]


def _documents(path: Path, reading: Reading) -> int:
    return sum(len(document.text) for document in read_corpus([path], reading))


def _rows(path: Path, task: str) -> int:
    declared = DECLARED[task]
    rows = declared.source.with_files({"dev": path}).read(path.parent, "dev").rows
    return len(to_examples(declared, rows))


def _tokens(path: Path) -> list[int]:
    return load_tokenizer(path.parent).encode_with_offsets(PROBE)[0]


def _split(path: Path) -> int:
    """Whatever file of a prepared corpus it is."""
    directory = next(place for place in path.parents if (place / "corpus.json").exists())
    corpus = TokenCorpus.open(directory, "train", verify=False)
    return int(corpus.read(0, corpus.n_tokens).sum() + corpus.sentence_starts[-1] + corpus.document_starts[-1])


def _weights(path: Path) -> object:
    return open_model(path.parent, "pretraining", verify=False)


def _converted(path: Path) -> object:
    return read_source(str(path.parent), ConversionOptions())


def _unpacked(path: Path) -> int:
    with unpacked(path) as directory:
        return len(list(directory.rglob("*")))


def _records(path: Path) -> int:
    return sum(len(record.fields) for record in read_records(find_corpus_files([path]).files[0], "text"))


_REPLACING = Reading(bad_utf8="replace", max_document_bytes=400)

PARSERS: tuple[Parser, ...] = (
    Parser("corpus-text", "a.txt", "text", _fixed(TEXT), partial(_documents, reading=Reading())),
    Parser(
        "corpus-blocks",
        "a.txt",
        "text",
        _fixed(TEXT * 9),
        partial(_documents, reading=Reading(documents="blank-line", bad_utf8="skip", max_document_bytes=100)),
    ),
    Parser("corpus-json-lines", "a.jsonl", "json lines", _fixed(LINES), partial(_documents, reading=Reading())),
    Parser("corpus-csv", "a.csv", "table", _fixed(CSV), partial(_documents, reading=_REPLACING)),
    Parser("corpus-tsv", "a.tsv", "table", _fixed(TSV), partial(_documents, reading=Reading(text_field="sentence"))),
    Parser(
        "corpus-gzip",
        "a.jsonl.gz",
        "gzip",
        _fixed(gzip.compress(LINES.encode(), mtime=0)),
        partial(_documents, reading=Reading()),
    ),
    Parser("corpus-parquet", "a.parquet", "bytes", lambda s: [parquet()], partial(_documents, reading=Reading())),
    Parser("corpus-wikipedia", "a.xml", "text", _fixed(PAGES), partial(_documents, reading=Reading())),
    Parser(
        "corpus-description", "corpus.json", "json", _of(lambda s: s.corpus, "corpus.json"), _split, lambda s: s.corpus
    ),
    *(
        Parser(
            f"shard-{part}",
            f"train/00000-00000.{name}",
            "bytes",
            _of(lambda s: s.corpus / "train", f"00000-00000.{name}"),
            _split,
            lambda s: s.corpus,
        )
        for part, name in (("tokens", "tokens.bin"), ("sentences", "sentences.npy"), ("documents", "documents.npy"))
    ),
    Parser(
        "manifest",
        "MANIFEST.json",
        "json",
        _of(lambda s: s.tokenizer, "MANIFEST.json"),
        lambda path: verify_directory(path.parent),
        lambda s: s.tokenizer,
    ),
    Parser("squad", "dev.json", "json", _fixed(json.dumps(SQUAD)), partial(_rows, task="squad-1.1")),
    Parser("race", "dev.jsonl", "json lines", _fixed(json.dumps(PASSAGE) + "\n"), partial(_rows, task="race")),
    Parser("glue", "dev.tsv", "table", _fixed(TSV), partial(_rows, task="sst-2")),
    Parser("table-csv", "t.csv", "table", _fixed(CSV), read_table),
    Parser("table-tsv", "t.tsv", "table", _fixed(TSV), read_table),
    Parser("table-json-lines", "t.jsonl", "json lines", _fixed(LINES), read_table),
    Parser("table-gzip", "t.csv.gz", "gzip", _fixed(gzip.compress(CSV.encode(), mtime=0)), read_table),
    Parser("table-parquet", "t.parquet", "bytes", lambda s: [parquet()], read_table),
    Parser("table-conll", "t.conll", "text", _fixed(CONLL), read_table),
    Parser("asked-csv", "in.csv", "table", _fixed(CSV), _records),
    Parser("asked-json-lines", "in.jsonl", "json lines", _fixed(LINES), _records),
    Parser("asked-text", "in.txt", "text", _fixed(TEXT), _records),
    Parser("asked-parquet", "in.parquet", "bytes", lambda s: [parquet()], _records),
    Parser("task-file", "task.json", "json", _fixed(json.dumps(TASK)), load_table_task),
    Parser(
        "recipe",
        "recipe.json",
        "json",
        _of(lambda s: s.pretraining_run, "recipe.json"),
        partial(load_json, PretrainingRecipe),
    ),
    Parser(
        "training-state",
        "training_state.json",
        "json",
        _of(lambda s: s.pretraining_run / "checkpoints" / "step-00000004", "training_state.json"),
        partial(load_json, TrainingState),
    ),
    Parser("journal", "journal.jsonl", "json lines", _of(lambda s: s.pretraining_run, "journal.jsonl"), read_journal),
    Parser(
        "config", "config.json", "json", _of(lambda s: s.pretrained, "config.json"), _weights, lambda s: s.pretrained
    ),
    Parser(
        "weights",
        "model.safetensors",
        "safetensors",
        _of(lambda s: s.pretrained, "model.safetensors"),
        _weights,
        lambda s: s.pretrained,
    ),
    Parser(
        "int8-weights",
        "model.int8.safetensors",
        "safetensors",
        _of(lambda s: s.quantized, "model.int8.safetensors"),
        _weights,
        lambda s: s.quantized,
    ),
    Parser("sentencepiece", "spiece.model", "bytes", _of(lambda s: s.tokenizer, "spiece.model"), _tokens),
    Parser("tokenizer-json", "tokenizer.json", "json", _of(lambda s: s.tokenizer, "tokenizer.json"), _tokens),
    Parser(
        "tokenizer-config",
        "tokenizer_config.json",
        "json",
        _of(lambda s: s.tokenizer, "tokenizer_config.json"),
        _tokens,
        lambda s: s.tokenizer,
    ),
    Parser(
        "wordpiece",
        "vocab.txt",
        "text",
        _fixed(WORDPIECE),
        _tokens,
    ),
    Parser(
        "tensorflow-index",
        "model.ckpt-best.index",
        "tensorflow index",
        _of(lambda s: TENSORFLOW, "model.ckpt-best.index"),
        _converted,
        lambda s: TENSORFLOW,
    ),
    Parser(
        "tensorflow-config",
        "albert_config.json",
        "json",
        _of(lambda s: TENSORFLOW, "albert_config.json"),
        _converted,
        lambda s: TENSORFLOW,
    ),
    Parser("archive-zip", "m.zip", "bytes", lambda s: [zip_archive()], _unpacked),
    Parser("archive-tar", "m.tar", "bytes", lambda s: [tar_archive()], _unpacked),
    *(
        Parser(
            f"request-{address.strip('/')}",
            "body.json",
            "json",
            _fixed(*map(json.dumps, bodies)),
            partial(post, address),
            attrgetter(MODELS.get(address, "pretrained")),
        )
        for address, bodies in SAMPLES.items()
    ),
)
BY_NAME = {parser.name: parser for parser in PARSERS}
