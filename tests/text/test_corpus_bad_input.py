"""Everything that may be wrong with a corpus, in one table: text and counts, or one line that says what and where."""

import bz2
import gzip
import json
import lzma
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from albert.runtime.errors import AlbertError
from albert.text.corpus import read_corpus
from albert.text.readers import CorpusReport, Reading


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
LONG = json.dumps({"text": "long " * 1000}).encode()


def cut(data: bytes) -> bytes:
    return data[:-5]


CASES = [
    # what is no file
    Case("nothing there", error=(66, "no such file or folder"), place="nowhere"),
    Case("a pattern of nothing", error=(66, "matches no file"), place="*.txt"),
    Case("an empty folder", error=(66, "holds no .txt .jsonl")),
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
    Case("a folder in itself", {"a.txt": b"one"}, ["one"], make=lambda here: (here / "b").symlink_to(here)),
    Case(
        "a file that cannot be read",
        make=lambda here: (here / "a.txt").symlink_to("/proc/self/mem"),
        error=(66, "a.txt: Input/output error"),
    ),
    Case("two files of one name", {"a/x.txt": b"one", "b/x.txt": b"two"}, ["one", "two"]),
    Case(
        "one file by two paths",
        {"a.txt": b"one"},
        ["one"],
        make=lambda here: os.link(here / "a.txt", here / "b.txt"),
    ),
    Case("a kind that is not read", {"a.pdf": b"%PDF"}, error=(2, "a.pdf: cannot tell its format"), place="a.pdf"),
    # files without much in them
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
    Case("a hundred thousand lines", {"a.txt": b"one\n\n" * 100_000}, ["one\n"] * 100_000, reading=BLANK_LINES),
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
    Case(
        "a huge record", {"a.jsonl": LONG}, error=(65, "a.jsonl:1: is longer than"), reading={"max_document_bytes": 99}
    ),
    # bytes that are no text
    Case("a byte order mark", {"a.txt": b"\xef\xbb\xbfone"}, ["one"]),
    Case("nothing but a byte order mark", {"a.txt": b"\xef\xbb\xbf", "b.txt": b"one"}, ["one"], dropped={"empty": 1}),
    Case("Windows-1252", {"a.txt": b"caf\xe9"}, error=(65, "a.txt: is not UTF-8: byte 3; convert it to UTF-8, or")),
    Case("UTF-16", {"a.txt": "one".encode("utf-16")}, error=(65, "a.txt: .*it is UTF-16; convert it: iconv")),
    Case("a NUL byte", {"a.txt": b"o\0ne"}, error=(65, "a.txt: is not text: NUL byte at byte 1")),
    Case("overlong UTF-8", {"a.txt": b"one \xc0\xaf"}, error=(65, "byte 4")),
    Case("a surrogate in UTF-8", {"a.txt": b"one \xed\xa0\x80"}, error=(65, "byte 4")),
    Case("a letter cut at the end", {"a.txt": b"one \xe2\x82"}, error=(65, "byte 4")),
    Case("bad UTF-8 on line 2", {"a.jsonl": b'{"text": "one"}\n{"text": "\xe9"}'}, error=(65, "a.jsonl: .*byte 26")),
    Case(
        "bad UTF-8, replaced",
        {"a.txt": b"caf\xe9 \0 \xe2\x82"},
        ["caf\ufffd \ufffd \ufffd"],
        noted={REPLACED: 3},
        reading={"bad_utf8": "replace"},
    ),
    Case(
        "bad UTF-8, skipped",
        {"a.txt": b"caf\xe9", "b.jsonl": b'{"text": "\xe9"}\n{"text": "one"}'},
        ["one"],
        dropped={"not UTF-8": 2},
        reading={"bad_utf8": "skip"},
    ),
    Case(
        "half surrogates",
        {"a.jsonl": b'{"text": "\\ud800 one \\udc00 \\ud83d\\ude00"}'},
        ["\ufffd one \ufffd 😀"],
        noted={HALVES: 2},
    ),
    # damage
    *(
        Case(f"cut {name}", {f"a.txt{suffix}": cut(pack(b"text"))}, error=(65, f"a.txt{suffix}: damaged {name} file"))
        for suffix, name, pack in (
            (".gz", "gzip", gzip.compress),
            (".bz2", "bzip2", bz2.compress),
            (".xz", "xz", lzma.compress),
        )
    ),
    Case("an empty gzip file", {"a.txt.gz": b""}, error=(65, "a.txt.gz: damaged gzip file .it is empty")),
    Case("no gzip file", {"a.txt.gz": b"text"}, error=(65, "a.txt.gz: damaged gzip file .*incorrect header check")),
    Case("no JSON", {"a.jsonl": b'{"text": "one"}\n{"text'}, error=(65, "a.jsonl:2: is not JSON")),
    Case("a list", {"a.json": b'[\n{"text": "one"}\n]'}, error=(65, r"a.json:1: is not JSON .*jq -c '\.\[\]\?' FILE")),
    Case("another field", {"a.jsonl": b'{"txt": "one"}'}, error=(65, "a.jsonl:1: .*did you mean 'txt'. .--text-field")),
    Case("another column", {"a.csv": b"txt,id\none,1"}, error=(65, "a.csv:1: .*did you mean 'txt'. .--text-field")),
    Case("a quote that nothing closes", {"a.csv": b'text\n"one\ntwo\n'}, error=(65, "a.csv:2: broken CSV")),
    Case(
        "a ragged table",
        {"a.tsv": b"id\ttext\n1\tone\ttwo"},
        error=(65, "a.tsv:2: has 3 fields where the header has 2"),
    ),
]


def gone(path: Path) -> None:
    path.unlink()


def grown(path: Path) -> None:
    with open(path, "ab") as file:
        file.write(b"\n\nmore")


def replaced(path: Path) -> None:
    shutil.copyfile(path, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)
    os.utime(path, (0, 0))


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


@pytest.mark.parametrize(
    ("change", "says"),
    [(gone, None), (grown, "changed while it was read"), (replaced, None)],
    ids=["gone", "grown", "replaced"],
)
def test_a_file_that_is_read_while_it_changes(tmp_path, change, says):
    """One that was deleted or replaced is read to its end, as it was; one that grows is refused."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\n\ntwo")
    documents = read_corpus([path], Reading(documents="blank-line"))
    found = [next(documents).text]
    change(path)
    if says:
        with pytest.raises(AlbertError, match=rf"a\.txt: {says}"):
            list(documents)
    else:
        assert [*found, *(document.text for document in documents)] == ["one\n", "two"]
