"""Property tests of corpus readers: texts survive a round trip, counts add up, and noise raises an AlbertError."""

import bz2
import csv
import gzip
import io
import json
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from albert.runtime.errors import AlbertError
from albert.text.corpus import endings, find_corpus_files, read_files
from albert.text.readers import CorpusReport, Reading

texts = st.lists(
    st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)
    | st.text(alphabet=st.sampled_from(list("aé語😀 ,;\"'\t\n\r\u2028\ufeff{}\\")), max_size=30),
    max_size=6,
)
COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def as_json_lines(texts):
    return "".join(json.dumps({"text": text}, ensure_ascii=len(text) % 2 == 0) + "\n" for text in texts).encode()


def as_csv(texts):
    file = io.StringIO(newline="")
    writer = csv.writer(file, quoting=csv.QUOTE_ALL)
    writer.writerows([["number", "text"], *([number, text] for number, text in enumerate(texts))])
    return file.getvalue().encode()


def as_parquet(texts):
    pa = pytest.importorskip("pyarrow", reason="needs the extra [data]: pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra [data]: pyarrow")
    file = io.BytesIO()
    parquet.write_table(pa.table({"text": pa.array(texts, pa.string())}), file, row_group_size=2)
    return file.getvalue()


WRITERS = {"jsonl": as_json_lines, "csv": as_csv, "parquet": as_parquet}


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("properties")

    def read(name, data, **reading):
        """Return the texts and the report, whose counts are checked."""
        (folder / name).write_bytes(data)
        report, progress = CorpusReport(), []
        files = find_corpus_files([folder / name]).files
        documents = list(read_files(files, Reading(**reading), report=report, advance=progress.append))
        assert report.documents == len(documents) == report.documents_in - sum(report.dropped.values())
        assert report.bytes == sum(len(text.encode()) for text in documents)
        assert report.bytes_in == report.bytes + sum(report.dropped_bytes.values())
        assert sum(progress) == len(data)
        return documents, report

    return read


@pytest.mark.parametrize(
    ("kind", "ending"), [("parquet", ""), *((kind, ending) for kind in ("jsonl", "csv") for ending in COMPRESS)]
)
@given(texts=texts)
def test_written_texts_are_read(reader, kind, ending, texts):
    documents, report = reader(f"a.{kind}{ending}", COMPRESS[ending](WRITERS[kind](texts)))
    assert documents == [text for text in texts if text and not text.isspace()]
    assert report.documents_in == len(texts)


@given(
    blocks=st.lists(
        st.lists(st.text(alphabet="ab é", min_size=1).filter(str.strip), min_size=1, max_size=3), max_size=4
    ),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    blank=st.sampled_from(["", "  ", "\u3000\u00a0"]),
)
def test_blocks_between_blank_lines_and_lines_are_documents(reader, blocks, end, blank):
    text = f"{end}{blank}{end}".join(end.join(block) for block in blocks)
    documents, _ = reader("a.txt", text.encode(), documents="blank-line")
    assert [document.removesuffix("\n").removesuffix("\r").split(end) for document in documents] == blocks
    lines, _ = reader("a.txt", text.encode(), documents="line")
    assert [line.removesuffix("\n").removesuffix("\r") for line in lines] == [line for b in blocks for line in b]


@given(rows=st.lists(st.text(alphabet="ab é',\ufeff", min_size=1).filter(str.strip), max_size=5))
def test_field_of_tsv_is_read_literally(reader, rows):
    data = "".join(f"{number}\t{row}\r\n" for number, row in enumerate(rows))
    assert reader("a.tsv", f"number\ttext\n{data}".encode())[0] == rows


@pytest.mark.parametrize("kind", ["txt", "jsonl", "csv"])
@given(text=st.text(alphabet="ab. é語😀\n", min_size=1, max_size=60), limit=st.integers(4, 20))
def test_parts_of_a_long_document_hold_all_of_it(reader, kind, text, limit):
    data = {"txt": lambda t: t[0].encode(), "jsonl": as_json_lines, "csv": as_csv}[kind]([text])
    reading = Reading(max_document_bytes=limit)
    if len(data) > reading.max_record_bytes and kind != "txt":
        return
    parts, report = reader(f"a.{kind}", data, max_document_bytes=limit)
    assert all(len(part.encode()) <= limit for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert report.cuts == report.documents_in - 1


PARTS = [
    *[b'{"text": "', b'"}', b"text", b",", b'"', b"\t", b"\n", b"\r", b"\n\n", b"\xff", b"\xc3", b"\0", b"a b.", b"{"],
    *[b"[", b"\xef\xbb\xbf", b"<mediawiki>", b"<page>", b"<ns>0</ns>", b"<revision><text>", b"</", b"PAR1", b"&#0;"],
    b"\xed\xa0\x80",
]
noise = st.binary(max_size=80) | st.lists(st.sampled_from(PARTS) | st.binary(max_size=3), max_size=25).map(b"".join)


@pytest.mark.parametrize("suffix", endings().split())
@given(
    data=noise,
    documents=st.sampled_from(["file", "blank-line", "line"]),
    bad_utf8=st.sampled_from(["refuse", "skip"]),
    limit=st.sampled_from([4, 9, 10_000]),
)
def test_noise_is_read_or_raises_one_line(reader, suffix, data, documents, bad_utf8, limit):
    try:
        reader(f"a{suffix}", data, documents=documents, bad_utf8=bad_utf8, max_document_bytes=limit)
    except AlbertError as error:
        assert "\n" not in str(error)
