"""Corpora: the files that are found, the documents in them, their counts, and the errors for invalid content."""

import bz2
import gzip
import json
import lzma
import os
import random
import sys
from pathlib import Path

import pytest
from tests.refusals import refusal

from albert.runtime.errors import AlbertError, DamagedData, InvalidConfiguration, MissingInput, Unavailable, UsageError
from albert.runtime.manifest import manifest_bytes
from albert.tables.files import open_input_file
from albert.text import corpus as corpus_module
from albert.text import readers
from albert.text.corpus import find_corpus_files, read_corpus
from albert.text.readers import CorpusReport, Reading

COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(COMPRESS.get(path.suffix, bytes)(data))
    return path


def texts(*paths, report=None, **reading):
    return list(read_corpus(paths, Reading(**reading), report=report))


def names(*paths):
    return [file.name for file in find_corpus_files(paths).files]


# ---- finding files -------------------------------------------------------------------------------------------------


def test_folders_are_read_recursively_in_order(tmp_path):
    write(tmp_path / "b.txt", "second")
    write(tmp_path / "a" / "x.txt.gz", "first")
    write(tmp_path / "c.jsonl", '{"text": "third"}\n\n{"text": "fourth"}\r\n')
    (tmp_path / "d.JSONL.GZ").write_bytes(gzip.compress(b'{"text": "fifth"}'))
    write(tmp_path / "notes.pdf", "ignored")
    report = CorpusReport()
    assert texts(tmp_path, report=report) == ["first", "second", "third", "fourth", "fifth"]
    assert names(tmp_path) == ["a/x.txt.gz", "b.txt", "c.jsonl", "d.JSONL.GZ"]
    assert (report.files, report.files_ignored) == (4, 1)


def test_patterns_are_expanded_and_each_file_is_read_once(tmp_path):
    write(tmp_path / "1.txt", "one")
    write(tmp_path / "2.txt", "two")
    write(tmp_path / "3.pdf", "no")
    os.link(tmp_path / "1.txt", tmp_path / "hard.txt")
    os.symlink(tmp_path / "2.txt", tmp_path / "soft.txt")
    report = CorpusReport()
    assert texts(tmp_path / "*", tmp_path / "1.txt", tmp_path, report=report) == ["one", "two"]
    assert (report.files, report.files_repeated, report.files_ignored) == (2, 7, 2)
    assert "7 files found by two paths, read once" in report.remarks()


def test_links_to_folders_are_followed_and_cycles_end(tmp_path):
    write(tmp_path / "elsewhere" / "x.txt", "linked")
    write(tmp_path / "corpus" / "a.txt", "here")
    (tmp_path / "corpus" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "corpus" / "self").symlink_to(".")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "corpus")
    (tmp_path / "elsewhere" / "up").symlink_to("..")
    files, _, repeated = find_corpus_files([tmp_path / "corpus"])
    assert [file.name for file in files] == ["a.txt", "link/x.txt"]
    assert repeated == 4
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "self").symlink_to(".")
    with refusal(MissingInput, "empty", ".txt"):
        texts(tmp_path / "empty")


def test_hidden_files_are_ignored_and_counted(tmp_path):
    write(tmp_path / "a.txt", "one")
    write(tmp_path / ".a.txt.swp", "no")
    write(tmp_path / ".ipynb_checkpoints" / "a.txt", "old")
    files, ignored, _ = find_corpus_files([tmp_path])
    assert ([file.name for file in files], ignored) == (["a.txt"], 2)
    assert texts(tmp_path / ".ipynb_checkpoints" / "a.txt") == ["old"]


@pytest.mark.parametrize("files", [["plan.json", ".lock"], ["journal.jsonl", ".lock"], ["MANIFEST.json"]])
def test_folders_that_albert_wrote_are_no_text(tmp_path, files):
    """A tokenizer, a corpus or a run may be beside the text."""
    write(tmp_path / "a.txt", "one")
    for name in (*files, "results/0.json", "b.txt"):
        write(tmp_path / "out" / name, manifest_bytes({}) if name == "MANIFEST.json" else "{\n")
    files, ignored, _ = find_corpus_files([tmp_path])
    assert ([file.name for file in files], ignored) == (["a.txt"], 1)
    with refusal(MissingInput, "out", ".txt"):
        texts(tmp_path / "out")


def test_other_folders_with_a_manifest_are_text(tmp_path):
    write(tmp_path / "b" / "MANIFEST.json", '{"text": "one"}')
    assert names(tmp_path) == ["b/MANIFEST.json"]


def test_equal_names_are_prefixed_by_their_folders(tmp_path):
    for folder in ("p/a", "p/b", "q/b"):
        write(tmp_path / folder / "x.txt", folder)
    write(tmp_path / "p" / "a" / "y.txt", "y")
    paths = [tmp_path / "p" / "a", tmp_path / "p" / "b", tmp_path / "q" / "b"]
    assert names(*paths) == ["a/x.txt", "y.txt", "p/b/x.txt", "q/b/x.txt"]


def test_bytes_of_a_name_that_are_not_unicode_are_escaped(tmp_path):
    for folder in (b"caf\xe9", b"caf\xea"):
        os.mkdir(os.path.join(os.fsencode(tmp_path), folder))
        for name in (b"\xe9.txt", b"\xea.txt"):
            Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), folder, name))).write_text("one")
    expected = [r"caf\xe9/\xe9.txt", r"caf\xe9/\xea.txt", r"caf\xea/\xe9.txt", r"caf\xea/\xea.txt"]
    assert names(tmp_path) == expected
    assert names(*(tmp_path / os.fsdecode(folder) for folder in (b"caf\xe9", b"caf\xea"))) == expected
    assert texts(tmp_path) == ["one"] * 4


def test_order_of_files_does_not_depend_on_the_file_system(tmp_path, monkeypatch):
    for name in ("c.txt", "a/z.txt", "b.txt", "a/y.txt", "é.txt"):
        write(tmp_path / name, name)
    expected = names(tmp_path)
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listdir(path)[::-1])
    assert names(tmp_path) == expected == ["a/y.txt", "a/z.txt", "b.txt", "c.txt", "é.txt"]


@pytest.mark.parametrize(
    "address", ["hf://name:train", "hf://owner/name", "hf://owner/name/a/b/c:train", "hf:owner/name:train", "hf://a/b:"]
)
def test_invalid_hub_address_is_refused(address):
    with refusal(UsageError, "hf://OWNER/NAME"):
        find_corpus_files([Path(address)])


def test_new_format_needs_one_entry(tmp_path, monkeypatch):
    """As docs/tour.md describes: a function, and its entry in `FORMATS`."""

    def read_upper(file, reading, report, reached):
        with open_input_file(file) as (content, _):
            yield content.read().decode().upper()

    format_ = corpus_module.Format((".upper",), "albert.text.corpus:read_upper")
    monkeypatch.setattr(corpus_module, "read_upper", read_upper, raising=False)
    monkeypatch.setitem(corpus_module.FORMATS, "uppercase", format_)
    (tmp_path / "a.upper").write_text("one")
    (tmp_path / "b.upper.gz").write_bytes(gzip.compress(b"two"))
    assert texts(tmp_path) == ["ONE", "TWO"]
    (tmp_path / "c.unknown").write_text("x")
    with refusal(UsageError, ".upper"):
        texts(tmp_path / "c.unknown")


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("a.parquet", "pyarrow.parquet", "data"),
        ("a.txt.zst", "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd", "data"),
    ],
)
def test_missing_library_names_the_extra(tmp_path, monkeypatch, name, library, extra):
    (tmp_path / name).write_bytes(b"some")
    monkeypatch.delitem(sys.modules, "albert.text.arrow_files", raising=False)
    monkeypatch.delitem(sys.modules, "albert.tables.arrow", raising=False)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(Unavailable, match=rf"is not installed; .*\[{extra}\]"):
        texts(tmp_path / name)


# ---- counts --------------------------------------------------------------------------------------------------------


def test_counts_add_up(tmp_path):
    lines = ["one", "", "  \n", "zwei €", "\ud800 half", None]
    path = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in lines))
    other = write(tmp_path / "b.txt", "three")
    empty = write(tmp_path / "c.jsonl", "")
    report, progress = CorpusReport(), []
    assert len(list(read_corpus([path, other, empty], report=report, advance=progress.append))) == 4
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
        "1 document dropped: null",
        "1 file without a document",
        "1 half surrogate replaced by U+FFFD",
    ]


def test_reading_is_lazy(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "one"}\nbroken')
    assert next(read_corpus([path])) == "one"


# ---- invalid and unusual files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("create", "code", "subjects"),
    [
        (lambda folder: os.mkfifo(folder / "a.txt"), 66, "a.txt pipe"),
        (lambda folder: (folder / "a.txt").symlink_to("/dev/zero"), 66, "a.txt device"),
        (lambda folder: (folder / "a.txt").symlink_to(folder / "b"), 66, "a.txt link"),
        (lambda folder: (folder / "a.txt").symlink_to(folder / "a.txt"), 66, "a.txt symbolic"),
        (lambda folder: (folder / "a.txt").symlink_to("/proc/self/mem"), 66, "a.txt Input/output"),
        (lambda folder: (folder / "a.txt").touch(), 66, "document"),
        (lambda folder: (folder / "a.txt.gz").touch(), 65, "a.txt.gz empty"),
        (lambda folder: write(folder / "a.txt", "one".encode("utf-16")), 65, "a.txt UTF-16 iconv"),
        (lambda folder: write(folder / "a.json", '{\n"text": "one"\n}'), 65, "a.json jq"),
    ],
)
def test_unusable_file_is_refused_with_its_name(tmp_path, create, code, subjects):
    if "Input/output" in subjects and not os.path.exists("/proc/self/mem"):
        pytest.skip("needs /proc, which has a file that not even root can read")
    create(tmp_path)
    with refusal(AlbertError, *subjects.split()) as error:
        texts(tmp_path)
    assert error.value.exit_code == code


@pytest.mark.parametrize(("pattern", "subjects"), [("*.txt", "*.txt"), ("o*/*", "o*/*")])
def test_pattern_without_readable_files_is_refused(tmp_path, pattern, subjects):
    write(tmp_path / "o" / "x.pdf", "a")
    with refusal(MissingInput, *subjects.split()):
        texts(tmp_path / pattern)


BLANK_LINE, LINE = {"documents": "blank-line"}, {"documents": "line"}
BOM = b"\xef\xbb\xbf"


@pytest.mark.parametrize(
    ("name", "data", "reading", "expected"),
    [
        ("a.txt/b.txt", "one", {}, ["one"]),
        ("x[1].txt", "one", {}, ["one"]),
        ("a.txt", "one\n\n \ntwo\n", {}, ["one\n\n \ntwo\n"]),
        ("a.txt", "one\r\n\r\ntwo\r\n", BLANK_LINE, ["one\r\n", "two\r\n"]),
        ("a.txt", "one\r\rtwo\r", BLANK_LINE, ["one\r", "two\r"]),
        ("a.txt", "one\u2028\u2028two", BLANK_LINE, ["one\u2028\u2028two"]),
        ("a.txt", "one\n\n" * 20_000, BLANK_LINE, ["one\n"] * 20_000),
        ("a.txt", BOM + b"one", {}, ["one"]),
        ("a.txt", BOM + b"one", BLANK_LINE, ["one"]),
        ("a.txt", BOM + b"one", LINE, ["one"]),
        ("a.jsonl", BOM + b'{"text": "one"}', {}, ["one"]),
        ("a.csv", BOM + b'"text"\none', {}, ["one"]),
        ("a.tsv", BOM + b"text\tn\none\t1", {}, ["one"]),
        ("a.jsonl", '{"text": "one\u2028two"}', {}, ["one\u2028two"]),
        ("a.jsonl", '{"text": "\\ud800 one \\udc00 \\ud83d\\ude00"}', {}, ["\ufffd one \ufffd 😀"]),
        ("a.jsonl", '{"body": "one", "text": 3}', {"text_field": "body"}, ["one"]),
        ("a.ndjson.gz", '{"body": "one", "text": 3}', {"text_field": "body"}, ["one"]),
        ("a.json.xz", '{"body": "one", "text": 3}', {"text_field": "body"}, ["one"]),
        ("a.csv", 'text,b\r"one\rtwo",2\r3,4\r', {}, ["one\rtwo", "3"]),
        ("a.csv", b"text,other\none,\xff\n", {}, ["one"]),
        ("a.txt", "one\nstill one\n\n \ntwo\n", BLANK_LINE, ["one\nstill one\n", "two\n"]),
        ("a.csv", 'id,text\r\n1,"one, ""two""\r\n\r\nthree"\r\n\r\n2,é\n', {}, ['one, "two"\r\n\r\nthree', "é"]),
        ("a.tsv", 'id\ttext\r\n1\t"quoted", it is not\r\n\r\n2\tfour', {}, ['"quoted", it is not', "four"]),
    ],
)
def test_documents_of_a_file(tmp_path, name, data, reading, expected):
    assert texts(write(tmp_path / name, data), **reading) == expected


@pytest.mark.parametrize("change", ["deleted", "replaced", "grown"])
def test_file_that_changes_while_it_is_read(tmp_path, change):
    """A deleted or replaced file is read to its end as it was; one that grows is refused."""
    path, other = tmp_path / "a.txt", write(tmp_path / "other", "three")
    path.write_bytes(b"one\n\ntwo")
    documents = read_corpus([path], Reading(documents="blank-line"))
    first = next(documents)
    if change == "grown":
        with open(path, "ab") as file:
            file.write(b"\n\nmore")
        with refusal(AlbertError, "a.txt", "changed"):
            list(documents)
        return
    path.unlink() if change == "deleted" else os.replace(other, path)
    assert [first, *documents] == ["one\n", "two"]


@pytest.mark.parametrize(
    ("name", "data", "subjects"),
    [
        ("a.csv", "a,b\n1,2\n", "a.csv:1: 'text' --text-field"),
        ("a.csv", "texts,b\n1,2\n", "'texts'"),
        ("a.csv", "text,text\n1,2\n", "'text'"),
        ("a.csv", "text,b\n1,2\n3\n", "a.csv:3: 1 2"),
        ("a.csv", 'text,b\n"1, 1",2\n"3,4\n5,6\n', "a.csv:3: CSV"),
        ("a.csv", "one film was good,2\nanother was not,3\n", "a.csv:1: 'text' names"),
        ("a.csv", "text,b\none\0,2\n", "a.csv NUL"),
        ("a.csv", "text,b\r1,2\r3\r", "a.csv:3: 1 2"),
        ("a.tsv", "a\tb\n1\t2\n", "a.tsv 'text'"),
        ("a.tsv", "text\tb\n1\t2\n1\t2\t3\n", "a.tsv:3: 3 2"),
        ("a.json", '[{"text": "one"}, {"text": 3}]', "a.json: [1] 'text' 3"),
        ("a.json", '[{"text": "one"}, {"txt": "two"}]', "a.json: [1] 'text' 'txt'"),
        *(
            ("a.jsonl", f'{{"text": "good"}}\n{line}\n', f"a.jsonl:2: {subjects}")
            for line, subjects in [
                ("{", "JSON jq"),
                ("no json", "JSON"),
                ('{"text": "a", "text": "b"}', "JSON 'text' twice"),
                ('{"text": "a"} {"text": "b"}', "JSON"),
                ("[" * 100_000, "JSON"),
                ('{"text": "a", "n": ' + "1" * 10_000 + "}", "JSON"),
                ('["text"]', "list object"),
                ('{"txt": "a"}', "'text' 'txt'"),
                ("{}", "'text'"),
                ('{"text": 3}', "'text' 3"),
                ('{"text": ["a"]}', "'text' list"),
            ]
        ),
    ],
)
def test_error_names_file_and_line(tmp_path, name, data, subjects):
    with refusal(DamagedData, *subjects.split()):
        texts(write(tmp_path / name, data))


@pytest.mark.parametrize(
    ("name", "data", "position"),
    [
        ("a.txt", b"good \xff bad", "byte 5"),
        ("a.txt", b"\xef\xbb\xbfgood \xff", "byte 8"),
        ("a.txt", b"cut \xe2\x82", "byte 4"),
        ("a.txt", b"overlong \xc0\xaf", "byte 9"),
        ("a.txt", b"a surrogate \xed\xa0\x80", "byte 12"),
        ("a.txt", "caf\u00e9".encode("windows-1252"), "byte 3"),
        ("a.txt.gz", b"good\n\xe9t\xe9", "byte 5"),
        ("a.jsonl", b'{"text": "one"}\n{"text": "\xe9"}', "byte 10"),
    ],
)
def test_invalid_utf8_names_file_and_byte(tmp_path, name, data, position):
    path = write(tmp_path / name, data)
    for documents in ("file", "blank-line", "line"):
        with refusal(DamagedData, name, position, "--bad-utf8"):
            texts(path, documents=documents)


@pytest.mark.parametrize(
    ("name", "data", "documents", "kept"),
    [
        ("a.txt", b"one\n\n\xff\n\nthree", "blank-line", ["one\n", "three"]),
        ("a.txt", b"one\n\xff\nthree", "line", ["one\n", "three"]),
        ("a.jsonl", b'{"text": "one"}\n{"text": "\xff"}\n{"text": "three"}', "file", ["one", "three"]),
    ],
)
def test_documents_with_bad_utf8_are_skipped_on_request(tmp_path, name, data, documents, kept):
    path, report = write(tmp_path / name, data), CorpusReport()
    assert texts(path, report=report, documents=documents, bad_utf8="skip") == kept
    assert report.dropped == {"not UTF-8": 1}
    assert (report.documents_in, report.documents) == (3, 2)
    assert report.bytes_in == report.bytes + report.dropped_bytes["not UTF-8"] > report.bytes
    with refusal(DamagedData, "byte"):
        texts(path, documents=documents)


# ---- long documents ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
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
def test_long_document_is_divided_at_the_best_position(tmp_path, text, parts):
    for name, data in (("a.txt", text), ("a.jsonl", json.dumps({"text": text})), ("a.csv", f'"text"\n"{text}"')):
        report = CorpusReport()
        assert texts(write(tmp_path / name, data), report=report, max_document_bytes=10) == parts
        assert (report.cuts, report.documents) == (1, 2)
        assert "1 cut in documents longer than 16 MB" in report.remarks()


@pytest.mark.parametrize(
    ("documents", "cuts", "expected"),
    [
        ("line", 1, ["aa aa ", "aa aa\n", "bb\n", *["cc\n"] * 4, "dd"]),
        ("blank-line", 3, ["aa aa ", "aa aa\n", "bb\n", "cc\ncc\n", "cc\ncc\n", "dd"]),
    ],
)
def test_long_lines_and_blocks_are_divided(tmp_path, documents, cuts, expected):
    path, report = write(tmp_path / "a.txt", "aa aa aa aa\nbb\n\ncc\ncc\ncc\ncc\n\ndd"), CorpusReport()
    assert texts(path, report=report, documents=documents, max_document_bytes=8) == expected
    assert report.cuts == cuts


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_large_file_is_read_in_parts(tmp_path, name, monkeypatch):
    numbers = random.Random(0)
    text = "".join(numbers.choice(["word ", "it.\n", "ends.\n\n"]) for _ in range(160_000))
    path, sizes = write(tmp_path / name, text), []
    split_bytes = readers.split_bytes

    def recorded(read, limit):
        return split_bytes(lambda size: sizes.append(size) or read(size), limit)

    monkeypatch.setattr(readers, "split_bytes", recorded)
    documents = texts(path, max_document_bytes=len(text) // 64)
    assert "".join(documents) == text
    assert 64 <= len(documents) <= 128
    assert max(sizes) <= len(text) // 64 + 1


def test_too_long_record_is_refused(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "one"}\n' + json.dumps({"text": "x" * 100}))
    with refusal(DamagedData, "a.jsonl:"):
        texts(path, max_document_bytes=10)


def test_limit_below_one_character_is_refused():
    with refusal(InvalidConfiguration):
        Reading(max_document_bytes=3)


SENTENCES = "Über die Straße kam der alte Mann. Er sagte kein Wort, schloss die Tür und ging wieder fort.\n" * 20


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (gzip.compress(SENTENCES.encode()), "gzip"),
        (b"%PDF-1.4\n\0\1\xff", "PDF"),
        (b"PK\x03\x04\0\0", "zip archive"),
        (SENTENCES.encode("latin-1"), "iconv -f WINDOWS-1252"),
        (SENTENCES.encode("utf-16-le"), "iconv -f UTF-16LE"),
        (SENTENCES.encode() + b"\xff.", "iconv -c -f UTF-8 -t UTF-8"),
        (SENTENCES.encode() + "Über".encode("latin-1"), "iconv -c -f UTF-8 -t UTF-8"),
        (SENTENCES.encode() + b"\0.", "tr -d '\\0' < FILE"),
    ],
)
def test_a_file_that_is_not_utf8_text_says_what_it_is(tmp_path, data, named):
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(DamagedData) as error:
        list(read_corpus([path]))
    assert named in str(error.value)


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz", "a.tgz", "a.tar.zst", "a.zip", "A.ZIP", "a.7z"])
def test_archives_are_refused_with_what_to_do(tmp_path, name):
    (tmp_path / name).write_bytes(b"some")
    with refusal(UsageError, name, "unpack the archive"):
        texts(tmp_path / name)
    with refusal(MissingInput, "unpack the archive"):
        texts(tmp_path)
    write(tmp_path / "a.txt", "one")
    report = CorpusReport()
    assert (texts(tmp_path, report=report), report.files_ignored) == (["one"], 1)


def test_text_that_begins_like_a_page_is_counted(tmp_path):
    (tmp_path / "a.txt").write_text("<!DOCTYPE html>\n<html><p>One.</p></html>")
    report = CorpusReport()
    assert len(list(read_corpus([tmp_path], report=report))) == 1
    assert "begin like HTML" in " ".join(report.remarks())


def test_a_folder_without_text_says_what_it_holds(tmp_path):
    for name in ("a.html", "b.html", "c.docx"):
        (tmp_path / name).write_text("x")
    with refusal(MissingInput, "2 with .html", "1 with .docx"):
        list(read_corpus([tmp_path]))
