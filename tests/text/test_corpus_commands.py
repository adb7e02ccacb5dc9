"""`albert prepare` and `albert tokenizer train` over mixed corpora: the same options, every source in the account."""

import csv
import json

import pytest

from albert.cli.data import prepare_main, tokenizer_main
from albert.runtime.errors import InvalidConfiguration
from albert.text.sentences import split_sentences
from albert.text.shards import TokenCorpus, read_description

pa = pytest.importorskip("pyarrow", reason="needs the extra [data]: pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra [data]: pyarrow")

OPTIONS = ["--text-field", "body", "--documents", "blank-line", "--bad-utf8", "skip"]


@pytest.fixture
def corpus(documents, tmp_path):
    """A text file, JSON lines, a table and a Parquet file: forty documents, and two that are none."""
    folder = tmp_path / "my corpus"
    folder.mkdir()
    (folder / "a.txt").write_bytes("\n\n".join(documents[:10]).encode() + b"\n\ncaf\xe9")
    lines = [json.dumps({"body": text}) + "\n" for text in [*documents[10:20], None]]
    (folder / "b.ndjson").write_text("".join(lines))
    with open(folder / "c.csv", "w", newline="") as file:
        csv.writer(file).writerows([("id", "body"), *enumerate(documents[20:30])])
    pq.write_table(pa.table({"body": documents[30:40]}), folder / "d.parquet")
    return folder


@pytest.mark.parametrize("workers", ["1", "2"])
def test_every_source_is_in_the_account(corpus, documents, tokenizer_directory, tmp_path, workers, capsys):
    words = [str(corpus), "--tokenizer", str(tokenizer_directory), "--output", str(tmp_path / "data"), *OPTIONS]
    assert prepare_main([*words, "--workers", workers, "--held-out", "0.3"]) == 0
    said = capsys.readouterr().out
    assert "1 documents dropped: not UTF-8" in said and "1 documents dropped: null" in said
    description = read_description(tmp_path / "data")
    assert [(source.name, source.documents_in, source.documents_used) for source in description.sources] == [
        ("a.txt", 11, 10),
        ("b.ndjson", 11, 10),
        ("c.csv", 10, 10),
        ("d.parquet", 10, 10),
    ]
    assert description.documents_dropped == {"not UTF-8": 1, "null": 1}
    assert sum(counts.documents for counts in description.counts.values()) == 40
    assert description.bytes_in == sum(source.bytes_in for source in description.sources)
    text = sum(len(text.encode()) for text in documents[:40]) + 10  # line feeds before the blank lines of a.txt
    assert sum(counts.bytes for counts in description.counts.values()) == text


def test_lines_are_sentences_on_request(documents, tokenizer_directory, tmp_path):
    text = "\n".join(documents[0].split("\n") * 3)
    (tmp_path / "a.txt").write_text(text)
    words = [str(tmp_path / "a.txt"), "--tokenizer", str(tokenizer_directory), "--held-out", "0", "--workers", "1"]
    counts = []
    for number, flags in enumerate([[], ["--sentences-as-lines"]]):
        prepare_main([*words, "--output", str(tmp_path / str(number)), *flags])
        counts.append(TokenCorpus.open(tmp_path / str(number)).n_sentences)
    assert counts == [len(split_sentences(text)), len(text.split("\n"))]
    assert counts[0] != counts[1]


def test_a_vocabulary_takes_the_same_options_and_hands_them_on(corpus, tmp_path, capsys):
    words = ["train", str(corpus), "--output", str(tmp_path / "words"), "--vocab-size", "300", *OPTIONS]
    assert tokenizer_main([*words, "--sentences-as-lines", "--max-document-megabytes", "1"]) == 0
    said = capsys.readouterr().out
    assert "1 documents dropped: not UTF-8" in said
    flags = "--text-field body --documents blank-line --sentences-as-lines --bad-utf8 skip --max-document-megabytes 1.0"
    assert f"next: albert prepare '{corpus}' {flags} --tokenizer" in said


@pytest.mark.parametrize("flags", [["--language", "english"], ["--max-document-megabytes", "0"]])
def test_impossible_options_are_refused_by_both(corpus, tokenizer_directory, tmp_path, flags):
    with pytest.raises(InvalidConfiguration):
        tokenizer_main(["train", str(corpus), "--output", str(tmp_path / "words"), *flags])
    with pytest.raises(InvalidConfiguration):
        words = [str(corpus), "--tokenizer", str(tokenizer_directory), "--output", str(tmp_path / "data")]
        prepare_main([*words, *flags])
    assert [path.name for path in tmp_path.iterdir()] == [corpus.name]
