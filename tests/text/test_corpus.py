"""Reading a corpus: every document once, in order, counted; what cannot be read is named."""

import gzip
import json
import os

import pytest

from albert.runtime.errors import DamagedData, MissingInput, UsageError
from albert.text.corpus import CorpusReport, read_corpus


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def texts(*paths, **options):
    return [document.text for document in read_corpus(paths, **options)]


def test_folders_are_read_recursively_in_order(tmp_path):
    write(tmp_path / "b.txt", "second")
    write(tmp_path / "a" / "x.txt.gz", "first")
    write(tmp_path / "c.jsonl", '{"text": "third"}\n\n{"text": "fourth"}\r\n')
    write(tmp_path / "d.JSONL.GZ", gzip.compress(b'{"text": "fifth"}'))
    write(tmp_path / "notes.pdf", "ignored")
    report = CorpusReport()
    found = list(read_corpus([tmp_path], report=report))
    assert [document.text for document in found] == ["first", "second", "third", "fourth", "fifth"]
    assert [document.source for document in found] == ["a/x.txt.gz", "b.txt", "c.jsonl:1", "c.jsonl:3", "d.JSONL.GZ:1"]
    assert (report.files, report.files_ignored) == (4, 1)


def test_patterns_are_expanded_and_no_file_is_read_twice(tmp_path):
    write(tmp_path / "1.txt", "one")
    write(tmp_path / "2.txt", "two")
    assert texts(tmp_path / "*.txt", tmp_path / "1.txt", tmp_path) == ["one", "two"]


def test_a_name_with_brackets_is_a_name(tmp_path):
    write(tmp_path / "x[1].txt", "one")
    assert texts(tmp_path / "x[1].txt") == ["one"]


def test_blank_lines_divide_documents_on_request(tmp_path):
    path = write(tmp_path / "a.txt", "one\nstill one\n\n \ntwo\n")
    assert texts(path) == ["one\nstill one\n\n \ntwo\n"]
    found = list(read_corpus([path], documents="blank-line"))
    assert [(document.text, document.source) for document in found] == [
        ("one\nstill one\n", "a.txt:1"),
        ("two\n", "a.txt:5"),
    ]


def test_a_byte_order_mark_is_no_text(tmp_path):
    assert texts(write(tmp_path / "a.txt", b"\xef\xbb\xbfone")) == ["one"]
    assert texts(write(tmp_path / "b.jsonl", b'\xef\xbb\xbf{"text": "one"}')) == ["one"]


def test_another_field_can_hold_the_text(tmp_path):
    assert texts(write(tmp_path / "a.jsonl", '{"body": "one"}'), text_field="body") == ["one"]


def test_counts_add_up(tmp_path):
    lines = ["one", "", "  \n", "zwei €", "\ud800 half"]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in lines))
    report, progress = CorpusReport(), []
    assert len(list(read_corpus([path], report=report, advance=progress.append))) == 3
    assert report.documents_in == report.documents + sum(report.dropped.values()) == 5
    assert report.bytes_in == report.bytes + sum(report.dropped_bytes.values())
    assert report.dropped == {"empty": 2}
    assert report.surrogates_repaired == 1
    assert sum(progress) == path.stat().st_size


def test_half_a_surrogate_pair_becomes_the_replacement_character(tmp_path):
    assert texts(write(tmp_path / "a.jsonl", '{"text": "a\\ud800b \\ud83d\\ude00"}')) == ["a\ufffdb 😀"]


@pytest.mark.parametrize(
    ("name", "data", "place"),
    [
        ("a.txt", b"good \xff bad", "byte 5"),
        ("a.txt", b"\xef\xbb\xbfgood \xff", "byte 8"),
        ("a.txt", b"cut \xe2\x82", "byte 4"),
        ("a.txt", b"overlong \xc0\xaf", "byte 9"),
        ("a.txt.gz", b"good\n\xe9t\xe9", "byte 5"),
        ("a.jsonl", b'{"text": "one"}\n{"text": "\xe9"}', "byte 26"),
    ],
)
def test_invalid_utf8_names_file_and_byte(tmp_path, name, data, place):
    path = write(tmp_path / name, data)
    for options in ({}, {"documents": "blank-line"}):
        with pytest.raises(DamagedData, match=rf"{name}: is not UTF-8: {place}\b"):
            texts(path, **options)


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_nul_bytes_are_not_text(tmp_path, name):
    with pytest.raises(DamagedData, match="NUL byte at byte 3"):
        texts(write(tmp_path / name, b"abc\0def"))
    with pytest.raises(DamagedData, match="not text|not UTF-8"):
        texts(write(tmp_path / name, "utf sixteen".encode("utf-16")))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "is not JSON"),
        ("no json", "is not JSON"),
        ('{"text": "a"} {"text": "b"}', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"text": "a", "n": ' + "1" * 10_000 + "}", "is not JSON"),
        ('["text"]', "is list, a JSON object"),
        ('{"txt": "a"}', "has no field 'text'; did you mean 'txt'?"),
        ("{}", "has no field 'text'$"),
        ('{"text": 3}', "field 'text' is int"),
        ('{"text": null}', "field 'text' is NoneType"),
    ],
)
def test_a_bad_line_names_file_and_line(tmp_path, line, reason):
    path = write(tmp_path / "a.jsonl", '{"text": "good"}\n' + line + "\n")
    with pytest.raises(DamagedData, match=r"a\.jsonl:2: .*" + reason.replace("?", r"\?")) as error:
        texts(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "change", [lambda d: d[:-10], lambda d: d[:5], lambda d: b"no gzip", lambda d: d[:40] + b"x" * 20 + d[60:]]
)
def test_a_damaged_gzip_file_is_named(tmp_path, change):
    whole = gzip.compress(os.urandom(5_000).hex().encode())
    path = tmp_path / "a.txt.gz"
    path.write_bytes(change(whole))
    with pytest.raises(DamagedData, match=r"a\.txt\.gz: damaged gzip file") as error:
        texts(path)
    assert "\n" not in str(error.value)


def test_what_is_not_there_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe.txt")
    for path, reason in (
        ("nowhere", "no such"),
        ("*.nothing", "matches no file"),
        ("empty", "holds no"),
        ("pipe.txt", "neither"),
    ):
        with pytest.raises(MissingInput, match=reason):
            texts(tmp_path / path)
    with pytest.raises(UsageError, match="no file, folder or pattern"):
        texts()
    with pytest.raises(UsageError, match=r"x\.csv: cannot tell its format"):
        texts(write(tmp_path / "x.csv", "a"))


@pytest.mark.parametrize(
    ("name", "data"), [("a.txt", ""), ("a.txt", " \n"), ("a.jsonl", ""), ("a.jsonl", '{"text": " "}')]
)
def test_an_empty_corpus_is_missing_input(tmp_path, name, data):
    with pytest.raises(MissingInput, match="no document with text"):
        texts(write(tmp_path / name, data))
