"""Small valid files of the formats that others write: text, tables, tasks, dumps, archives."""

import io
import json
import tarfile
import zipfile

import pyarrow
import pyarrow.parquet

TEXT = "A first paragraph. It has two sentences.\n\nA second: “ﬁne”, é, 東京.\r\nA line.\n"
ROWS = [{"text": f"It was day {n}.", "label": ("bad", "good")[n % 2], "id": f"r{n}"} for n in range(6)]
ANSWER = {"text": "Lisbon", "answer_start": 13}
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Letters",
            "paragraphs": [
                {
                    "context": "It came from Lisbon in May. “Strange”, she said — and wept.",
                    "qas": [
                        {"id": "q1", "question": "Where did it come from?", "answers": [ANSWER, ANSWER]},
                        {"id": "q2", "question": "When?", "answers": [{"text": "May", "answer_start": 23}]},
                    ],
                }
            ],
        }
    ],
}
PASSAGE = {
    "id": "middle1.txt",
    "article": "It came from Lisbon in May.",
    "questions": ["Where did it come from?", "When?"],
    "options": [["Lisbon", "Rome", "Bern", "Oslo"], ["May", "June", "July", "August"]],
    "answers": ["A", "B"],
}
PAGES = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/"><siteinfo><namespaces>'
    '<namespace key="6">File</namespace></namespaces></siteinfo><page><title>Tea</title><ns>0</ns><revision>'
    "<model>wikitext</model><text>'''Tea''' is a [[drink|hot drink]].&lt;ref&gt;x&lt;/ref&gt;\n== Kinds ==\n* {{x|1}}"
    "\n{| a\n|}</text></revision></page></mediawiki>"
)
CONLL = "-DOCSTART- -X- O O\n\nEU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\nBlackburn NNP I-PER\n"
LINES = "\n".join(json.dumps(row) for row in ROWS) + "\n"
CSV = 'text,label,id\n"It was, so to say, a day.",good,1\n"He said ""no"".",bad,2\nPlain,good,3\n'
TSV = 'sentence\tlabel\nIt was a day.\t1\nIt "was\t0\nfine\t1\n'
TASK = {"kind": "classification", "train": "t.csv", "text": "text", "label": "label", "recipe": {"epochs": 2.0}}
WORDPIECE = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nit\nwas\n##s\na\nday\n東\n"
MEMBERS = {"model/model.ckpt.index": bytes(range(200)), "model/albert_config.json": b"{}", "notes.txt": b"none"}


def parquet() -> bytes:
    """The rows as typed columns."""
    stream = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), stream)
    return stream.getvalue()


def zip_archive() -> bytes:
    """A small one of the files of a model."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in MEMBERS.items():
            archive.writestr(zipfile.ZipInfo(name), content)
    return stream.getvalue()


def tar_archive() -> bytes:
    """The same files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, content in MEMBERS.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()
