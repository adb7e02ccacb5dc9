"""Which files a corpus consists of, each read once, in order; and the account of what was read."""

import bz2
import gzip
import json
import lzma
import os
from pathlib import Path

import pytest

from albert.runtime.errors import MissingInput, UsageError
from albert.text.corpus import find_corpus_files, kind_of, read_corpus, read_files
from albert.text.readers import CorpusReport, Reading

PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(PACK.get(path.suffix, bytes)(data))
    return path


def texts(*paths, **reading):
    return [document.text for document in read_corpus(paths, Reading(**reading))]


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


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "text"),
        ("A.TXT.GZ", "text"),
        ("a.jsonl.xz", "JSON lines"),
        ("a.ndjson.bz2", "JSON lines"),
        ("a.json.zst", "JSON lines"),
        ("a.csv", "CSV"),
        ("a.tsv.gz", "TSV"),
        ("a.parquet", "Parquet"),
        ("pages-articles.xml.bz2", "Wikipedia"),
        ("a.parquet.gz", None),
        ("txt", None),
        ("a.gz", None),
        ("a.pdf", None),
    ],
)
def test_the_name_of_a_file_says_what_reads_it(name, kind):
    assert kind_of(name) == kind


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


def test_a_name_with_brackets_is_a_name(tmp_path):
    assert texts(write(tmp_path / "x[1].txt", "one")) == ["one"]


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


def test_what_is_not_there_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    write(tmp_path / "other" / "x.pdf", "a")
    for path, reason in (
        ("nowhere", "no such file or folder"),
        ("*.nothing", "matches no file"),
        ("o*/*", r"matches no file of a kind that is read: \.txt \.jsonl"),
        ("empty", r"holds no \.txt \.jsonl .* file$"),
    ):
        with pytest.raises(MissingInput, match=reason):
            texts(tmp_path / path)
    with pytest.raises(UsageError, match="no file, folder or pattern"):
        texts()
    with pytest.raises(UsageError, match=r"x\.pdf: cannot tell its format from its name; known: \.txt \.jsonl"):
        texts(tmp_path / "other" / "x.pdf")


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


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.symlink_to(path.with_name("gone")), "is a link to .*gone, which is not there"),
        (lambda path: path.symlink_to(path), "symbolic links"),
        (os.mkfifo, "is a pipe"),
        (lambda path: path.symlink_to("/dev/null"), "is a device"),
    ],
    ids=["a link to nothing", "a link to itself", "a pipe", "a device"],
)
def test_what_is_no_file_is_refused_not_passed_over(tmp_path, make, reason):
    write(tmp_path / "a.txt", "one")
    make(tmp_path / "odd.txt")
    for place in (tmp_path / "odd.txt", tmp_path, tmp_path / "*.txt"):
        with pytest.raises(MissingInput, match=r"odd\.txt: .*" + reason):
            texts(place)


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


@pytest.mark.parametrize(
    ("name", "data"), [("a.txt", ""), ("a.txt", " \n"), ("a.jsonl", ""), ("a.jsonl", '{"text": " "}'), ("a.csv", "")]
)
def test_an_empty_corpus_is_missing_input(tmp_path, name, data):
    with pytest.raises(MissingInput, match="no document with text"):
        texts(write(tmp_path / name, data))


def test_a_part_of_a_corpus_may_be_empty(tmp_path):
    report = CorpusReport()
    files = find_corpus_files([write(tmp_path / "a.txt", " ")]).files
    assert list(read_files(files, report=report)) == []
    assert report.documents_in == 1


def test_reading_is_lazy(tmp_path):
    """The first document is there before the second is looked at."""
    path = write(tmp_path / "a.jsonl", '{"text": "one"}\nbroken')
    assert next(read_corpus([path])).text == "one"
