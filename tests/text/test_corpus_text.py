"""Text files, JSON lines and tables in text: what a document is, and that nothing of it is lost."""

import bz2
import gzip
import json
import lzma
import random

import pytest

from albert.runtime.errors import DamagedData, InvalidConfiguration
from albert.text.corpus import read_corpus
from albert.text.readers import CorpusReport, Reading

PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def write(path, data):
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(PACK.get(path.suffix, bytes)(data))
    return path


def read(path, report=None, **reading):
    return [(document.text, document.source) for document in read_corpus([path], Reading(**reading), report=report)]


def texts(path, **reading):
    return [text for text, _ in read(path, **reading)]


def test_blank_lines_divide_documents_on_request(tmp_path):
    path = write(tmp_path / "a.txt", "one\nstill one\n\n \ntwo\n")
    assert texts(path) == ["one\nstill one\n\n \ntwo\n"]
    assert read(path, documents="blank-line") == [("one\nstill one\n", "a.txt:1"), ("two\n", "a.txt:5")]


def test_every_line_is_a_document_on_request(tmp_path):
    path = write(tmp_path / "a.txt", "one\n\ntwo")
    assert read(path, documents="line") == [("one\n", "a.txt:1"), ("two", "a.txt:3")]


def test_a_byte_order_mark_is_no_text(tmp_path):
    mark = b"\xef\xbb\xbf"
    assert texts(write(tmp_path / "a.txt", mark + b"one")) == ["one"]
    assert texts(write(tmp_path / "b.jsonl", mark + b'{"text": "one"}')) == ["one"]
    assert texts(write(tmp_path / "c.csv", mark + b'"text"\none')) == ["one"]
    assert texts(write(tmp_path / "d.tsv", mark + b"text\tn\none\t1")) == ["one"]
    for documents in ("blank-line", "line"):
        assert texts(write(tmp_path / "a.txt", mark + b"one"), documents=documents) == ["one"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson.gz", "a.json.xz", "a.jsonl.bz2"])
def test_another_field_can_hold_the_text(tmp_path, name):
    assert texts(write(tmp_path / name, '{"body": "one", "text": 3}'), text_field="body") == ["one"]


def test_a_field_of_csv_may_hold_lines_commas_and_quotes(tmp_path):
    path = write(tmp_path / "a.csv", 'id,text\r\n1,"one, ""two""\r\n\r\nthree"\r\n\r\n2,four é\n')
    assert read(path) == [('one, "two"\r\n\r\nthree', "a.csv:2"), ("four é", "a.csv:6")]


def test_a_tab_always_ends_a_field_of_tsv(tmp_path):
    path = write(tmp_path / "a.tsv", 'id\ttext\r\n1\t"quoted", it is not\r\n\r\n2\tfour')
    assert read(path) == [('"quoted", it is not', "a.tsv:2"), ("four", "a.tsv:4")]


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.csv", "a,b\n1,2\n", r"a\.csv:1: has no column 'text'; known: a, b \(--text-field\)"),
        ("a.csv", "texts,b\n1,2\n", r"did you mean 'texts'\?"),
        ("a.csv", "text,text\n1,2\n", "two columns are named 'text'"),
        ("a.csv", "text,b\n1,2\n3\n", r"a\.csv:3: has 1 fields where the header has 2"),
        ("a.csv", 'text,b\n1,2\n"3,4\n5,6\n', r"a\.csv:3: broken CSV \(unexpected end of data\)"),
        ("a.csv", 'text,b\n1,"2"3\n', r"a\.csv:2: broken CSV"),
        ("a.csv", "text,b\r1,2\r3\r", r"a\.csv:3: has 1 fields where the header has 2"),
        ("a.tsv", "a\tb\n1\t2\n", "has no column 'text'"),
        ("a.tsv", "text\tb\n1\t2\n1\t2\t3\n", r"a\.tsv:3: has 3 fields where the header has 2"),
        ("a.csv", "text,b\n1,2\n".encode("utf-16"), "is UTF-16; convert it"),
    ],
)
def test_a_broken_table_names_file_and_line(tmp_path, name, data, reason):
    with pytest.raises(DamagedData, match=reason):
        texts(write(tmp_path / name, data))


def test_a_table_may_end_its_lines_with_carriage_returns_alone(tmp_path):
    assert texts(write(tmp_path / "a.csv", 'text,b\r"one\rtwo",2\r3,4\r')) == ["one\rtwo", "3"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", r"is not JSON .*jq -c"),
        ("no json", "is not JSON"),
        ('{"text": "a", "text": "b"}', r"is not JSON \(the key 'text' occurs twice\)"),
        ('{"text": "a"} {"text": "b"}', "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"text": "a", "n": ' + "1" * 10_000 + "}", "is not JSON"),
        ('["text"]', "is list, a JSON object is expected; JSON lines hold one object a line"),
        ('{"txt": "a"}', r"has no field 'text'; did you mean 'txt'\?"),
        ("{}", "has no field 'text'$"),
        ('{"text": 3}', "field 'text' is int"),
        ('{"text": ["a"]}', "field 'text' is list"),
    ],
)
def test_a_bad_line_names_file_and_line(tmp_path, line, reason):
    path = write(tmp_path / "a.jsonl", '{"text": "good"}\n' + line + "\n")
    with pytest.raises(DamagedData, match=r"a\.jsonl:2: .*" + reason) as error:
        texts(path)
    assert "\n" not in str(error.value)


# ---- bytes that are no text ----------------------------------------------------------------------------------------


BAD = [
    ("a.txt", b"good \xff bad", "byte 5"),
    ("a.txt", b"\xef\xbb\xbfgood \xff", "byte 8"),
    ("a.txt", b"cut \xe2\x82", "byte 4"),
    ("a.txt", b"overlong \xc0\xaf", "byte 9"),
    ("a.txt", b"a surrogate \xed\xa0\x80", "byte 12"),
    ("a.txt", "caf\u00e9".encode("windows-1252"), "byte 3"),
    ("a.txt.gz", b"good\n\xe9t\xe9", "byte 5"),
    ("a.jsonl", b'{"text": "one"}\n{"text": "\xe9"}', "byte 26"),
]


@pytest.mark.parametrize(("name", "data", "place"), BAD)
def test_invalid_utf8_names_file_and_byte(tmp_path, name, data, place):
    path = write(tmp_path / name, data)
    for documents in ("file", "blank-line", "line"):
        with pytest.raises(DamagedData, match=rf"{name}: is not UTF-8: {place}; .*--bad-utf8 replace or skip"):
            texts(path, documents=documents)


@pytest.mark.parametrize(
    ("name", "data", "documents", "kept"),
    [
        ("a.txt", b"one\n\n\xff\n\nthree", "blank-line", ["one\n", "three"]),
        ("a.txt", b"one\n\xff\nthree", "line", ["one\n", "three"]),
        ("a.jsonl", b'{"text": "one"}\n{"text": "\xff"}\n{"text": "three"}', "file", ["one", "three"]),
        ("a.csv", b'text\none\n"\xff"\nthree\n', "file", ["one", "three"]),
        ("a.tsv", b"text\none\n\0\nthree\n", "file", ["one", "three"]),
    ],
)
def test_documents_with_bad_utf8_are_skipped_on_request(tmp_path, name, data, documents, kept):
    path, report = write(tmp_path / name, data), CorpusReport()
    assert [t for t, _ in read(path, report, documents=documents, bad_utf8="skip")] == kept
    assert report.dropped == {"not UTF-8": 1}
    assert (report.documents_in, report.documents) == (3, 2)
    assert report.bytes_in == report.bytes + report.dropped_bytes["not UTF-8"] > report.bytes
    with pytest.raises(DamagedData, match="byte"):
        read(path, documents=documents)


def test_only_the_column_of_the_text_must_be_utf8(tmp_path):
    assert texts(write(tmp_path / "a.csv", b"text,other\none,\xff\n")) == ["one"]


# ---- documents too long to be held ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("aaaa.\n\nbbbb. bbbb", ["aaaa.\n\n", "bbbb. bbbb"]),
        ("aaa aa\na. aa a", ["aaa aa\n", "a. aa a"]),
        ("aaaa aa. aaaa", ["aaaa aa. ", "aaaa"]),
        ("aaaaa aaaaaa", ["aaaaa ", "aaaaaa"]),
        ("aaaaaaaaaaaaa", ["aaaaaaaaaa", "aaa"]),
        ("éééééééé", ["ééééé", "ééé"]),
        ("語語語語語", ["語語語", "語語"]),
        ("😀😀😀😀", ["😀😀", "😀😀"]),
    ],
)
def test_a_long_document_is_divided_where_something_ends(tmp_path, text, pieces):
    for name, data in (
        ("a.txt", text),
        ("a.jsonl", json.dumps({"text": text})),
        ("a.csv", '"text"\n"' + text + '"'),
    ):
        report = CorpusReport()
        found = read(write(tmp_path / name, data), report, max_document_bytes=10)
        assert [text for text, _ in found] == pieces
        assert [source.partition("#")[2] for _, source in found] == ["", "2"]
        assert (report.cuts, report.documents) == (1, 2)
        assert "1 cuts in documents longer than --max-document-megabytes" in report.remarks()


def test_lines_and_blocks_too_long_are_divided_too(tmp_path):
    path = write(tmp_path / "a.txt", "aa aa aa aa\nbb\n\ncc\ncc\ncc\ncc\n\ndd")
    assert read(path, documents="line", max_document_bytes=8) == [
        ("aa aa ", "a.txt:1"),
        ("aa aa\n", "a.txt:1#2"),
        *((f"{word}\n", f"a.txt:{line}") for word, line in zip(["bb", *["cc"] * 4], (2, 4, 5, 6, 7), strict=True)),
        ("dd", "a.txt:9"),
    ]
    assert read(path, documents="blank-line", max_document_bytes=8) == [
        ("aa aa ", "a.txt:1"),
        ("aa aa\n", "a.txt:1#2"),
        ("bb\n", "a.txt:2#3"),
        ("cc\ncc\n", "a.txt:4"),
        ("cc\ncc\n", "a.txt:6#2"),
        ("dd", "a.txt:9"),
    ]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_a_huge_file_is_never_held_whole(tmp_path, name, monkeypatch):
    """Of a file of 64 times the limit no more than a few limits are asked for at a time."""
    from albert.text import corpus as plain_text

    numbers = random.Random(0)
    text = "".join(numbers.choice(["word ", "it.\n", "ends.\n\n"]) for _ in range(160_000))
    path, asked = write(tmp_path / name, text), []
    pieces = plain_text.pieces

    def watched(read, limit):
        def counted(size):
            asked.append(size)
            return read(size)

        return pieces(counted, limit)

    monkeypatch.setattr(plain_text, "pieces", watched)
    found = texts(path, max_document_bytes=len(text) // 64)
    assert "".join(found) == text
    assert 64 <= len(found) <= 128
    assert max(asked) <= len(text) // 64 + 1


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.jsonl", '{"text": "one"}\n' + json.dumps({"text": "x" * 100})),
        ("a.csv", 'text\none\n"' + "x\n" * 100),
        ("a.tsv", "text\none\n" + "x" * 100),
    ],
)
def test_a_record_that_nothing_can_divide_is_refused(tmp_path, name, data):
    path = write(tmp_path / name, data)
    with pytest.raises(DamagedData, match=rf"{name.replace('.', '[.]')}:[23]: .*longer than"):
        texts(path, max_document_bytes=10)


def test_a_limit_that_holds_no_character_is_refused():
    with pytest.raises(InvalidConfiguration, match="holds no character"):
        Reading(max_document_bytes=3)
