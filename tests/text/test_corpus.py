"""Corpora: files, documents and counts; what is bad is refused with its place."""

import bz2
import gzip
import json
import lzma
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from albert.runtime.errors import AlbertError, DamagedData, InvalidConfiguration, MissingInput, UsageError
from albert.text import corpus as corpus_module
from albert.text.corpus import find_corpus_files, read_corpus, read_files
from albert.text.readers import CorpusReport, Reading, open_corpus_file

# --------------------------------------------------------------------------------------------------------------------
# Which files a corpus consists of, each read once, in order; and the account of what was read.


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(PACK.get(path.suffix, bytes)(data))
    return path


def texts(*paths, **reading):
    return [document.text for document in read_corpus(paths, Reading(**reading))]


def read(path, report=None, **reading):
    return [(document.text, document.source) for document in read_corpus([path], Reading(**reading), report=report)]


def names(*paths):
    return [file.name for file in find_corpus_files(paths).files]


def test_folders_are_read_recursively_in_order(tmp_path):
    write(tmp_path / "b.txt", "second")
    write(tmp_path / "a" / "x.txt.gz", "first")
    write(tmp_path / "c.jsonl", '{"text": "third"}\n\n{"text": "fourth"}\r\n')
    (tmp_path / "d.JSONL.GZ").write_bytes(gzip.compress(b'{"text": "fifth"}'))
    write(tmp_path / "notes.pdf", "ignored")
    report = CorpusReport()
    found = list(read_corpus([tmp_path], report=report))
    assert [document.text for document in found] == ["first", "second", "third", "fourth", "fifth"]
    assert [document.source for document in found] == ["a/x.txt.gz", "b.txt", "c.jsonl:1", "c.jsonl:3", "d.JSONL.GZ:1"]
    assert (report.files, report.files_ignored) == (4, 1)


def test_patterns_are_expanded_and_no_file_is_read_twice(tmp_path):
    write(tmp_path / "1.txt", "one")
    write(tmp_path / "2.txt", "two")
    write(tmp_path / "3.pdf", "no")
    os.link(tmp_path / "1.txt", tmp_path / "hard.txt")
    os.symlink(tmp_path / "2.txt", tmp_path / "soft.txt")
    report = CorpusReport()
    found = read_corpus([tmp_path / "*", tmp_path / "1.txt", tmp_path], report=report)
    assert [document.text for document in found] == ["one", "two"]
    assert (report.files, report.files_repeated, report.files_ignored) == (2, 7, 2)
    assert "7 files or folders met again by another path, read once" in report.remarks()


def test_links_to_folders_are_followed_and_loops_end(tmp_path):
    write(tmp_path / "elsewhere" / "x.txt", "linked")
    write(tmp_path / "corpus" / "a.txt", "here")
    (tmp_path / "corpus" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "corpus")
    found = find_corpus_files([tmp_path / "corpus"])
    assert [file.name for file in found.files] == ["a.txt", "link/x.txt"]
    assert found.repeated == 1


def test_hidden_files_are_passed_over_and_counted(tmp_path):
    write(tmp_path / "a.txt", "one")
    write(tmp_path / ".a.txt.swp", "no")
    write(tmp_path / ".ipynb_checkpoints" / "a.txt", "an old one")
    found = find_corpus_files([tmp_path])
    assert ([file.name for file in found.files], found.ignored) == (["a.txt"], 2)
    assert texts(tmp_path / ".ipynb_checkpoints" / "a.txt") == ["an old one"]


def test_files_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for folder in ("p/a", "p/b", "q/b"):
        write(tmp_path / folder / "x.txt", folder)
    write(tmp_path / "p" / "a" / "y.txt", "y")
    paths = [tmp_path / "p" / "a", tmp_path / "p" / "b", tmp_path / "q" / "b"]
    assert names(*paths) == ["a/x.txt", "y.txt", "p/b/x.txt", "q/b/x.txt"]


def test_a_name_that_is_no_unicode_can_be_written_down(tmp_path):
    place = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    with open(place, "w") as file:
        file.write("one")
    assert names(tmp_path) == ["caf\ufffd.txt"]
    assert texts(tmp_path) == ["one"]


def test_the_order_does_not_depend_on_how_the_file_system_lists(tmp_path, monkeypatch):
    for name in ("c.txt", "a/z.txt", "b.txt", "a/y.txt", "é.txt"):
        write(tmp_path / name, name)
    usual = names(tmp_path)
    listed = os.listdir
    monkeypatch.setattr(os, "listdir", lambda place: listed(place)[::-1])
    assert names(tmp_path) == usual == ["a/y.txt", "a/z.txt", "b.txt", "c.txt", "é.txt"]


def test_links_that_go_round_in_a_circle_are_not_followed(tmp_path):
    write(tmp_path / "text" / "a.txt", "one")
    write(tmp_path / "text" / "b" / "c.txt", "two")
    (tmp_path / "text" / "b" / "up").symlink_to("..")
    (tmp_path / "text" / "self").symlink_to(".")
    report = CorpusReport()
    found = [document.text for document in read_corpus([tmp_path / "text"], report=report)]
    assert (found, report.files, report.files_repeated) == (["one", "two"], 2, 2)
    assert "2 files or folders met again by another path, read once" in report.remarks()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "self").symlink_to(".")
    with pytest.raises(MissingInput, match="empty: holds no .txt"):
        texts(tmp_path / "empty")


def test_a_folder_that_cannot_be_searched_is_named(tmp_path, monkeypatch):
    write(tmp_path / "a.txt", "one")
    write(tmp_path / "locked" / "b.txt", "two")
    listed = os.listdir

    def refuse(place):
        if str(place).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(place))
        return listed(place)

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(MissingInput, match="locked: Permission denied"):
        texts(tmp_path)


@pytest.mark.parametrize(
    "address", ["hf://name:train", "hf://owner/name", "hf://owner/name/a/b/c:train", "hf:owner/name:train", "hf://a/b:"]
)
def test_an_address_that_is_none_is_shown_how_to_write_it(address):
    with pytest.raises(UsageError, match=r"write hf://OWNER/NAME\[/CONFIG\]\[@REVISION\]:SPLIT"):
        find_corpus_files([Path(address)])


def test_counts_add_up(tmp_path):
    lines = ["one", "", "  \n", "zwei €", "\ud800 half", None]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in lines))
    other = write(tmp_path / "b.txt", "three")
    nothing = write(tmp_path / "c.jsonl", "")
    report, progress = CorpusReport(), []
    assert len(list(read_corpus([path, other, nothing], report=report, advance=progress.append))) == 4
    assert report.documents_in == report.documents + sum(report.dropped.values()) == 7
    assert report.bytes_in == report.bytes + sum(report.dropped_bytes.values())
    assert report.dropped == {"empty": 2, "null": 1}
    assert report.noted == {"half surrogates replaced by U+FFFD": 1}
    assert report.files_empty == 1
    assert sum(progress) == path.stat().st_size + other.stat().st_size
    first, second, third = report.sources
    assert (first.name, first.bytes, first.documents_in, first.documents_used) == ("a.jsonl", path.stat().st_size, 6, 3)
    assert (second.documents_in, second.bytes_in, second.bytes_used) == (1, 5, 5)
    assert third.documents_in == 0
    assert sum(source.bytes_in for source in report.sources) == report.bytes_in
    assert sum(source.bytes_used for source in report.sources) == report.bytes
    assert report.remarks() == [
        "2 documents dropped: empty",
        "1 documents dropped: null",
        "1 files without a document",
        "1 half surrogates replaced by U+FFFD",
    ]


def test_a_part_of_a_corpus_may_be_empty(tmp_path):
    report = CorpusReport()
    files = find_corpus_files([write(tmp_path / "a.txt", " ")]).files
    assert list(read_files(files, report=report)) == []
    assert report.documents_in == 1


def test_reading_is_lazy(tmp_path):
    """The first document is there before the second is looked at."""
    path = write(tmp_path / "a.jsonl", '{"text": "one"}\nbroken')
    assert next(read_corpus([path])).text == "one"


# --------------------------------------------------------------------------------------------------------------------
# Everything that may be wrong with a corpus, in one table: text and counts, or one line that says what and where.


@dataclass(frozen=True)
class Case:
    """What lies in a folder, how it is read, and what comes of it: texts in their order, or an error."""

    name: str
    files: dict[str, bytes] = field(default_factory=dict)
    texts: list[str] | None = None
    error: tuple[int, str] | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    noted: dict[str, int] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)
    make: Callable[[Path], object] | None = None
    place: str = ""


BLANK_LINES = {"documents": "blank-line"}
REPLACED, HALVES = "bad UTF-8 sequences replaced by U+FFFD", "half surrogates replaced by U+FFFD"


CASES = [
    # what is no file
    Case("a pattern of nothing", error=(66, "matches no file"), place="*.txt"),
    Case("a pattern of other kinds", {"o/x.pdf": b"a"}, error=(66, r"matches no file of a kind that"), place="o*/*"),
    Case("a folder called a.txt", {"a.txt/b.txt": b"one"}, ["one"]),
    Case("a pipe", make=lambda here: os.mkfifo(here / "a.txt"), error=(66, "a.txt: is a pipe")),
    Case(
        "a device",
        make=lambda here: (here / "a.txt").symlink_to("/dev/zero"),
        error=(66, "a.txt: is a device"),
    ),
    Case(
        "a link to nothing",
        make=lambda here: (here / "a.txt").symlink_to(here / "b"),
        error=(66, "a.txt: is a link to"),
    ),
    Case(
        "a link to itself",
        make=lambda here: (here / "a.txt").symlink_to(here / "a.txt"),
        error=(66, "a.txt: Too many levels of symbolic links"),
    ),
    Case(
        "a file that cannot be read",
        make=lambda here: (here / "a.txt").symlink_to("/proc/self/mem"),
        error=(66, "a.txt: Input/output error"),
    ),
    # files without much in them
    Case("a name with brackets", {"x[1].txt": b"one"}, ["one"], place="x[1].txt"),
    Case("an empty file", {"a.txt": b"", "b.txt": b"one"}, ["one"], dropped={"empty": 1}),
    Case("a blank file", {"a.txt": b" \n\t\n", "b.txt": b"one"}, ["one"], dropped={"empty": 1}),
    Case("nothing but empty files", {"a.txt": b"", "b.jsonl": b""}, error=(66, "no document with text .1 read, 1 dro")),
    Case("one character", {"a.txt": b"x"}, ["x"]),
    Case("a null", {"a.jsonl": b'{"text": null}\n{"text": "one"}'}, ["one"], dropped={"null": 1}),
    # lines
    Case("CR LF", {"a.txt": b"one\r\n\r\ntwo\r\n"}, ["one\r\n", "two\r\n"], reading=BLANK_LINES),
    Case("CR", {"a.txt": b"one\r\rtwo\r"}, ["one\r", "two\r"], reading=BLANK_LINES),
    Case("U+2028", {"a.txt": "one\u2028\u2028two".encode()}, ["one\u2028\u2028two"], reading=BLANK_LINES),
    Case("U+2028 in JSON lines", {"a.jsonl": '{"text": "one\u2028two"}'.encode()}, ["one\u2028two"]),
    Case("twenty thousand lines", {"a.txt": b"one\n\n" * 20_000}, ["one\n"] * 20_000, reading=BLANK_LINES),
    Case(
        "one huge line",
        {"a.txt": b"word " * 400},
        ["word " * 200] * 2,
        reading={"max_document_bytes": 1000},
    ),
    Case(
        "one huge line without blanks",
        {"a.txt": b"x" * 2500},
        ["x" * 1000, "x" * 1000, "x" * 500],
        reading={"max_document_bytes": 1000, **BLANK_LINES},
    ),
    # bytes that are no text
    Case("a byte order mark", {"a.txt": b"\xef\xbb\xbfone"}, ["one"]),
    Case("nothing but a byte order mark", {"a.txt": b"\xef\xbb\xbf", "b.txt": b"one"}, ["one"], dropped={"empty": 1}),
    Case("UTF-16", {"a.txt": "one".encode("utf-16")}, error=(65, "a.txt: .*it is UTF-16; convert it: iconv")),
    Case(
        "bad UTF-8, replaced",
        {"a.txt": b"caf\xe9 \0 \xe2\x82"},
        ["caf\ufffd \ufffd \ufffd"],
        noted={REPLACED: 3},
        reading={"bad_utf8": "replace"},
    ),
    Case(
        "half surrogates",
        {"a.jsonl": b'{"text": "\\ud800 one \\udc00 \\ud83d\\ude00"}'},
        ["\ufffd one \ufffd 😀"],
        noted={HALVES: 2},
    ),
    # damage
    Case("an empty gzip file", {"a.txt.gz": b""}, error=(65, "a.txt.gz: damaged gzip file .it is empty")),
    Case("a list", {"a.json": b'[\n{"text": "one"}\n]'}, error=(65, r"a.json:1: is not JSON .*jq -c '\.\[\]\?' FILE")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_wrong_is_read_and_nothing_is_lost(tmp_path, case):
    for name, data in case.files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_bytes(data)
    if "cannot be read" in case.name and not os.path.exists("/proc/self/mem"):
        pytest.skip("needs /proc, where there is a file that not even root can read")
    if case.make:
        case.make(tmp_path)
    report, found = CorpusReport(), []
    documents = read_corpus([tmp_path / case.place], Reading(**case.reading), report=report)
    if case.error:
        code, says = case.error
        with pytest.raises(AlbertError, match=says) as error:
            found.extend(documents)
        assert error.value.exit_code == code
        assert "\n" not in str(error.value)
        return
    found = [document.text for document in documents]
    assert found == case.texts
    assert (report.dropped, report.noted) == (case.dropped, case.noted)
    assert report.documents == len(found) == report.documents_in - sum(report.dropped.values())
    assert report.bytes_in == report.bytes + sum(report.dropped_bytes.values())


@pytest.mark.parametrize("change", ["gone", "replaced", "grown"])
def test_a_file_that_is_read_while_it_changes(tmp_path, change):
    """One that was deleted or replaced is read to its end, as it was; one that grows is refused."""
    path, other = tmp_path / "a.txt", write(tmp_path / "other", "three")
    path.write_bytes(b"one\n\ntwo")
    documents = read_corpus([path], Reading(documents="blank-line"))
    found = [next(documents).text]
    if change == "grown":
        with open(path, "ab") as file:
            file.write(b"\n\nmore")
        with pytest.raises(AlbertError, match=r"a\.txt: changed while it was read"):
            list(documents)
        return
    path.unlink() if change == "gone" else os.replace(other, path)
    assert [*found, *(document.text for document in documents)] == ["one\n", "two"]


# --------------------------------------------------------------------------------------------------------------------
# Text files, JSON lines and tables in text: what a document is, and that nothing of it is lost.


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
        ("a.tsv", "text\tb\n1\t2\n1\t2\t3\n", r"a\.tsv:3: has 3 tab-separated fields where the header has 2"),
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
    numbers = random.Random(0)
    text = "".join(numbers.choice(["word ", "it.\n", "ends.\n\n"]) for _ in range(160_000))
    path, asked = write(tmp_path / name, text), []
    pieces = corpus_module.split_bytes

    def watched(read, limit):
        def counted(size):
            asked.append(size)
            return read(size)

        return pieces(counted, limit)

    monkeypatch.setattr(corpus_module, "split_bytes", watched)
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


def test_a_new_format_is_one_entry(tmp_path, monkeypatch):
    """What docs/tour.md says of entering a corpus format: a function, and its entry in `FORMATS`."""

    def read_upper(file, reading, report, reached):
        with open_corpus_file(file) as (content, _):
            yield "", content.read().upper()

    monkeypatch.setattr(corpus_module, "read_upper", read_upper, raising=False)
    monkeypatch.setitem(
        corpus_module.FORMATS, "shouted", corpus_module.Format((".upper",), "albert.text.corpus:read_upper")
    )
    (tmp_path / "a.upper").write_text("one")
    (tmp_path / "b.upper.gz").write_bytes(gzip.compress(b"two"))
    report = CorpusReport()
    assert [document.text for document in read_corpus([tmp_path], report=report)] == ["ONE", "TWO"]
    assert (report.files, report.documents) == (2, 2)
    (tmp_path / "c.unknown").write_text("x")
    with pytest.raises(UsageError, match=r"known: .*\.upper"):
        list(read_corpus([tmp_path / "c.unknown"]))
